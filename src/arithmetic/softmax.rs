//! Softmaxes of rows of scores, forward and backward.

use pulp::{Simd, WithSimd};

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
