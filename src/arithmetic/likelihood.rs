//! What logits say of a text: of each position the greatest so far and sums relative to it, which are rescaled where a
//! greater one comes.

use pulp::{Arch, Simd, WithSimd};

use crate::exponential::{exponentials, max, sum_of_exponentials, weighted_difference};

/// What was seen of the logits at one position.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The greatest logit; of equal ones the first.
    pub max: f32,
    /// The token whose logit it is.
    pub best: usize,
    /// The sum of `e^(logit - max)`.
    pub total: f64,
    /// The logit of the token that follows.
    pub following: f32,
    /// The sum of `e^(p - max of p) x (p - q)`, where p are the reference's logits and q these.
    pub cross: f64,
}

impl Seen {
    /// What is seen of no logits.
    pub const NOTHING: Self =
        Self { max: f32::NEG_INFINITY, best: 0, total: 0.0, following: f32::NAN, cross: 0.0 };

    /// The logarithm of the sum of all exponentials.
    pub fn log_total(&self) -> f64 {
        f64::from(self.max) + self.total.ln()
    }

    /// Takes in the greatest of some logits, of the tokens from `first` on;
    /// by what factor sums relative to the greatest shrink.
    #[inline(always)]
    fn raise(&mut self, logits: &[f32], first: usize) -> f64 {
        let greatest = max(logits);
        if greatest <= self.max {
            return 1.0;
        }
        let shrinks = f64::from(self.max - greatest).exp();
        self.max = greatest;
        self.best = first + logits.iter().position(|logit| *logit == greatest).unwrap_or(0);
        self.total *= shrinks;
        shrinks
    }
}

/// Which logits: those of the tokens from `first` on, `columns` a row; a row a token that follows.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    /// The token of the first column.
    pub first: usize,
    /// Tokens of a row.
    pub columns: usize,
    /// For each row the token that follows.
    pub following: &'a [u32],
}

impl Panel<'_> {
    /// Keeps the logit of the token that follows, where it is among these.
    #[inline(always)]
    fn keep_following(&self, row: usize, logits: &[f32], seen: &mut Seen) {
        let token = (self.following[row] as usize).checked_sub(self.first);
        if let Some(logit) = token.and_then(|token| logits.get(token)) {
            seen.following = *logit;
        }
    }
}

/// Takes in the reference's logits; leaves their exponentials and by how much sums shrink.
pub struct TakeReference<'a> {
    /// Which logits they are.
    pub panel: Panel<'a>,
    /// The reference's logits.
    pub logits: &'a [f32],
    /// Becomes `e^(logit - max)`.
    pub weights: &'a mut [f32],
    /// Becomes by what factor each row's sums shrink.
    pub shrinks: &'a mut [f64],
    /// What was seen so far, a row each.
    pub seen: &'a mut [Seen],
}

impl TakeReference<'_> {
    /// Runs with the instructions that this machine has.
    pub fn run(self, arch: Arch) {
        arch.dispatch(self);
    }
}

impl WithSimd for TakeReference<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let columns = self.panel.columns;
        let rows = self.logits.chunks_exact(columns).zip(self.weights.chunks_exact_mut(columns));
        let rows = rows.zip(self.shrinks).zip(self.seen).enumerate();
        for (row, (((logits, weights), shrinks), seen)) in rows {
            *shrinks = seen.raise(logits, self.panel.first);
            weights.copy_from_slice(logits);
            seen.total += exponentials(weights, seen.max);
            self.panel.keep_following(row, logits, seen);
        }
    }
}

/// Takes in another's logits beside the reference's.
pub struct TakeOther<'a> {
    /// Which logits they are.
    pub panel: Panel<'a>,
    /// The other's logits.
    pub logits: &'a [f32],
    /// The reference's logits.
    pub reference: &'a [f32],
    /// Their exponentials.
    pub weights: &'a [f32],
    /// By what factor each row's sums shrink.
    pub shrinks: &'a [f64],
    /// What was seen so far of the other's, a row each.
    pub seen: &'a mut [Seen],
}

impl TakeOther<'_> {
    /// Runs with the instructions that this machine has.
    pub fn run(self, arch: Arch) {
        arch.dispatch(self);
    }
}

impl WithSimd for TakeOther<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let columns = self.panel.columns;
        let rows = self.logits.chunks_exact(columns).zip(self.reference.chunks_exact(columns));
        let rows = rows.zip(self.weights.chunks_exact(columns)).zip(self.shrinks).zip(self.seen);
        for (row, ((((logits, reference), weights), shrinks), seen)) in rows.enumerate() {
            seen.raise(logits, self.panel.first);
            seen.total += sum_of_exponentials(logits, seen.max);
            seen.cross = seen.cross * shrinks + weighted_difference(weights, reference, logits);
            self.panel.keep_following(row, logits, seen);
        }
    }
}
