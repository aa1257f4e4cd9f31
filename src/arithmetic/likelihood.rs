//! Online statistics of logits: for each position the running maximum and sums relative to it, rescaled
//! when the maximum grows.

use pulp::{Arch, Simd, WithSimd};

use crate::exponential::{exponentials, max, sum_of_exponentials, weighted_difference};

/// Running statistics of the logits at one position.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub max: f32,
    /// Token with the largest logit; the first one on ties.
    pub best: usize,
    /// Sum of `e^(logit - max)`.
    pub total: f64,
    /// Logit of the actual next token.
    pub following: f32,
    /// Sum of `e^(p - max of p) x (p - q)`, with the reference's logits p and these logits q.
    pub cross: f64,
}

impl Seen {
    pub const NOTHING: Self =
        Self { max: f32::NEG_INFINITY, best: 0, total: 0.0, following: f32::NAN, cross: 0.0 };

    /// Log-sum-exp of the logits.
    pub fn log_total(&self) -> f64 {
        f64::from(self.max) + self.total.ln()
    }

    /// Updates the maximum with logits of tokens from `first`; returns the factor by which sums relative
    /// to it shrink.
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

/// Block of logits for tokens from `first`, `columns` per row; one row per position.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    /// Token of the first column.
    pub first: usize,
    pub columns: usize,
    /// Actual next token of each row.
    pub following: &'a [u32],
}

impl Panel<'_> {
    /// Stores the logit of the next token if this block contains it.
    #[inline(always)]
    fn keep_following(&self, row: usize, logits: &[f32], seen: &mut Seen) {
        let token = (self.following[row] as usize).checked_sub(self.first);
        if let Some(logit) = token.and_then(|token| logits.get(token)) {
            seen.following = *logit;
        }
    }
}

/// Adds the reference's logits; outputs their exponentials and shrink factors.
pub struct TakeReference<'a> {
    pub panel: Panel<'a>,
    pub logits: &'a [f32],
    /// Output: `e^(logit - max)`.
    pub weights: &'a mut [f32],
    /// Output: shrink factor of each row's sums.
    pub shrinks: &'a mut [f64],
    /// Statistics of each row.
    pub seen: &'a mut [Seen],
}

impl TakeReference<'_> {
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

/// Adds another architecture's logits, relative to the reference's.
pub struct TakeOther<'a> {
    pub panel: Panel<'a>,
    pub logits: &'a [f32],
    pub reference: &'a [f32],
    /// Exponentials of the reference's logits.
    pub weights: &'a [f32],
    /// Shrink factor of each row's sums.
    pub shrinks: &'a [f64],
    /// Statistics of each row for the other architecture.
    pub seen: &'a mut [Seen],
}

impl TakeOther<'_> {
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
