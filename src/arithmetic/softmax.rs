//! Exponentials, softmax, likelihoods and losses.

use pulp::{Arch, Simd, WithSimd};

use crate::real::Real;
use crate::rows::dot;

/// Softmax of rows of scores, `seen` wide; row i sees the first `first + i + 1` of them.
pub struct CausalSoftmax<'a, T> {
    /// Scores, replaced by probabilities.
    pub scores: &'a mut [T],
    pub seen: usize,
    /// Positions before the first query's own.
    pub first: usize,
    pub scale: T,
}

impl<T: Real> WithSimd for CausalSoftmax<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (i, row) in self.scores.chunks_exact_mut(self.seen).enumerate() {
            let (seen, masked) = row.split_at_mut(self.first + i + 1);
            softmax(seen, self.scale);
            masked.fill(T::ZERO);
        }
    }
}

/// Replaces scores by the softmax of their multiples; returns the log-sum-exp.
#[inline(always)]
pub(crate) fn softmax<T: Real>(scores: &mut [T], scale: T) -> f64 {
    let mut greatest = scores[0];
    for score in scores.iter() {
        greatest = if *score > greatest { *score } else { greatest };
    }
    for score in scores.iter_mut() {
        *score = ((*score - greatest) * scale).exp();
    }
    let total = sum(scores);
    let share = T::ONE / total;
    for score in scores.iter_mut() {
        *score *= share;
    }
    (greatest * scale).wide() + total.wide().ln()
}

/// Sum in partial results, so that it vectorizes.
#[inline(always)]
fn sum<T: Real>(numbers: &[T]) -> T {
    let (chunks, rest) = numbers.as_chunks::<16>();
    let mut lanes = [T::ZERO; 16];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane += *number;
        }
    }
    lanes.into_iter().chain(rest.iter().copied()).sum()
}

/// Gradients of query-key products from gradients of probabilities: `scale x p (dp - sum of p dp)`.
pub struct SoftmaxBack<'a, T> {
    /// Probabilities, `[queries, seen]`.
    pub p: &'a [T],
    /// Gradients of probabilities, replaced by those of scores.
    pub ds: &'a mut [T],
    pub seen: usize,
    /// Scale that was applied to the scores.
    pub scale: T,
}

impl<T: Real> WithSimd for SoftmaxBack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (p, ds) in self.p.chunks_exact(self.seen).zip(self.ds.chunks_exact_mut(self.seen)) {
            let mean = dot(p, ds);
            for (p, ds) in p.iter().zip(ds) {
                *ds = self.scale * *p * (*ds - mean);
            }
        }
    }
}

/// Parallel partial results: several registers of any instruction set.
const LANES: usize = 16;

/// `e^x` within 2 units in the last place (Cephes' polynomial). Clamped below at e^-87.3 (the smallest
/// normal number) and above at e^88.3; keeps NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // large enough that adding it leaves the nearest integer in the lowest bits
    const SHIFT: f32 = 12_582_912.0;
    // ln 2 in two parts; an integer times the first is exact
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // comparisons instead of min and max, which would drop NaN
    let x = if x < -87.3 { -87.3 } else { x };
    let x = if x > 88.3 { 88.3 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let power = shifted - SHIFT;
    let x = x - power * LN_2[0] - power * LN_2[1];
    let mut sum = 1.987_569_1e-4;
    for term in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = sum * x + term;
    }
    let fraction = sum * (x * x) + x + 1.0;
    fraction * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// Maximum; negative infinity for an empty slice.
#[inline(always)]
pub(crate) fn max(numbers: &[f32]) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane = if *number > *lane { *number } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Replaces each number by `e^(x - max)` and returns their sum in f64.
#[inline(always)]
pub(crate) fn exponentials(numbers: &mut [f32], max: f32) -> f64 {
    let (chunks, rest) = numbers.as_chunks_mut::<LANES>();
    let mut lanes = [0.0f64; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *number = exp(*number - max);
            *lane += f64::from(*number);
        }
    }
    let mut of_rest = 0.0;
    for number in rest {
        *number = exp(*number - max);
        of_rest += f64::from(*number);
    }
    lanes.iter().sum::<f64>() + of_rest
}

/// Sum of `e^(x - max)` in f64.
#[inline(always)]
fn sum_of_exponentials(numbers: &[f32], max: f32) -> f64 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [0.0f64; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(exp(number - max));
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|number| f64::from(exp(number - max))).sum::<f64>()
}

/// Sum of `weight x (a - b)` in f64.
#[inline(always)]
fn weighted_difference(weights: &[f32], a: &[f32], b: &[f32]) -> f64 {
    let ((weights, w), (a, x), (b, y)) =
        (weights.as_chunks::<LANES>(), a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0f64; LANES];
    for ((weights, a), b) in weights.iter().zip(a).zip(b) {
        for (((lane, weight), a), b) in lanes.iter_mut().zip(weights).zip(a).zip(b) {
            *lane += f64::from(*weight) * f64::from(a - b);
        }
    }
    let rest = w.iter().zip(x).zip(y);
    lanes.iter().sum::<f64>() + rest.map(|((w, a), b)| f64::from(*w) * f64::from(a - b)).sum::<f64>()
}

/// Running statistics of the logits at one position.
#[derive(Clone, Copy, Debug)]
pub struct LogitStatistics {
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

impl LogitStatistics {
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
pub struct LogitPanel<'a> {
    /// Token of the first column.
    pub first: usize,
    pub columns: usize,
    /// Actual next token of each row.
    pub following: &'a [u32],
}

impl LogitPanel<'_> {
    /// Stores the logit of the next token if this block contains it.
    #[inline(always)]
    fn keep_following(&self, row: usize, logits: &[f32], seen: &mut LogitStatistics) {
        let token = (self.following[row] as usize).checked_sub(self.first);
        if let Some(logit) = token.and_then(|token| logits.get(token)) {
            seen.following = *logit;
        }
    }
}

/// Adds the reference's logits; outputs their exponentials and shrink factors.
pub struct TakeReference<'a> {
    pub panel: LogitPanel<'a>,
    pub logits: &'a [f32],
    /// Output: `e^(logit - max)`.
    pub weights: &'a mut [f32],
    /// Output: shrink factor of each row's sums.
    pub shrinks: &'a mut [f64],
    /// Statistics of each row.
    pub seen: &'a mut [LogitStatistics],
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
    pub panel: LogitPanel<'a>,
    pub logits: &'a [f32],
    pub reference: &'a [f32],
    /// Exponentials of the reference's logits.
    pub weights: &'a [f32],
    /// Shrink factor of each row's sums.
    pub shrinks: &'a [f64],
    /// Statistics of each row for the other architecture.
    pub seen: &'a mut [LogitStatistics],
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

/// Loss of a batch of windows: sums over its predicted tokens, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchLoss {
    pub nll: f64,
    /// KL(teacher || student); 0 without a teacher.
    pub kl: f64,
    pub predicted: u64,
}

impl std::ops::AddAssign for BatchLoss {
    fn add_assign(&mut self, other: Self) {
        self.nll += other.nll;
        self.kl += other.kl;
        self.predicted += other.predicted;
    }
}

/// Rows of logits, replaced by their gradients.
pub struct LossRows<'a, T> {
    /// Student's logits, `[targets, vocabulary]`, replaced by their gradients.
    pub student: &'a mut [T],
    /// Teacher's logits, replaced by probabilities, and the weight of the KL loss.
    pub teacher: Option<(&'a mut [T], T)>,
    /// Target token of each row.
    pub targets: &'a [u32],
    /// Weight of one token's loss in the step.
    pub share: T,
}

impl<T: Real> WithSimd for LossRows<'_, T> {
    type Output = BatchLoss;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> BatchLoss {
        let Self { student, mut teacher, targets, share } = self;
        let vocab = student.len() / targets.len();
        let mut lost = BatchLoss::default();
        for (row, (student, target)) in student.chunks_exact_mut(vocab).zip(targets).enumerate() {
            let target = *target as usize;
            let logit = student[target].wide();
            let mut logits_dot = (0.0, 0.0);
            if let Some((teacher, _)) = &mut teacher {
                // sums of t x teacher's logits and of t x student's logits, before they are overwritten
                let teacher = &mut teacher[row * vocab..(row + 1) * vocab];
                let shift = shifted_entropy(teacher);
                logits_dot = (shift, dot(teacher, student).wide());
            }
            let log_total = softmax(student, T::ONE);
            lost.nll += log_total - logit;
            lost.predicted += 1;
            if let Some((teacher, weight)) = &mut teacher {
                // KL = sum t (log t - log p) = sum t log t - (sum t x logits - log total)
                let kl = logits_dot.0 - (logits_dot.1 - log_total);
                // rounding may make the KL of equal distributions negative; NaN is kept
                lost.kl += if kl < 0.0 { 0.0 } else { kl };
                let teacher = &teacher[row * vocab..(row + 1) * vocab];
                let (both, weight) = ((T::ONE + *weight) * share, *weight * share);
                for (p, t) in student.iter_mut().zip(teacher) {
                    *p = *p * both - *t * weight;
                }
            } else {
                for p in student.iter_mut() {
                    *p *= share;
                }
            }
            student[target] -= share;
        }
        lost
    }
}

/// Replaces logits by their probabilities t and returns the sum of `t log t`.
#[inline(always)]
fn shifted_entropy<T: Real>(logits: &mut [T]) -> f64 {
    let own = logits.to_vec();
    let log_total = softmax(logits, T::ONE);
    dot(logits, &own).wide() - log_total
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exponentials_are_those_of_f64(x in -87.3f32..88.3) {
            let wanted = f64::from(x).exp();
            prop_assert!((f64::from(exp(x)) / wanted - 1.0).abs() < 2.5e-7, "{x}");
        }

        #[test]
        fn sums_agree_with_f64_at_every_length(numbers in prop::collection::vec(-30.0f32..30.0, 1..70), shift in -1.0f32..1.0) {
            let greatest = max(&numbers);
            prop_assert_eq!(greatest, numbers.iter().copied().fold(f32::MIN, f32::max));
            let wanted: f64 = numbers.iter().map(|x| f64::from(x - greatest).exp()).sum();
            let mut out = numbers.clone();
            prop_assert!((exponentials(&mut out, greatest) / wanted - 1.0).abs() < 1e-6);
            prop_assert!((sum_of_exponentials(&numbers, greatest) / wanted - 1.0).abs() < 1e-6);
            let others: Vec<f32> = numbers.iter().map(|x| x * 0.5 + shift).collect();
            let wanted: f64 = out.iter().zip(&numbers).zip(&others)
                .map(|((w, a), b)| f64::from(*w) * (f64::from(*a) - f64::from(*b))).sum();
            let found = weighted_difference(&out, &numbers, &others);
            prop_assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "{found} {wanted}");
        }
    }

    #[test]
    fn the_ends_are_finite_and_nothing_hides_what_is_no_number() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 2e-38 && exp(1e30).is_finite());
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(max(&[]), f32::NEG_INFINITY);
        assert!(sum_of_exponentials(&[f32::NAN; 20], 0.0).is_nan());
    }
}
