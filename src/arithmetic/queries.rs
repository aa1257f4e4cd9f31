//! Decode attention in f32: one query over its context, and causal softmaxes.

use pulp::{Arch, Simd, WithSimd};

use crate::exponential::{exponentials, max};
use crate::vectors::dot;

pub struct OneQuery<'a> {
    /// Query, one head wide.
    pub query: &'a [f32],
    /// Keys of the context, `[positions, head]`.
    pub keys: &'a [f32],
    /// Values of the context, `[positions, head]`.
    pub values: &'a [f32],
    /// Scratch memory, one number per position.
    pub scores: &'a mut [f32],
    pub scale: f32,
    /// Output: weighted sum of the values, one head wide.
    pub out: &'a mut [f32],
}

impl OneQuery<'_> {
    pub fn run(self, arch: Arch) {
        arch.dispatch(self);
    }
}

impl WithSimd for OneQuery<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let dim = self.query.len();
        for (score, key) in self.scores.iter_mut().zip(self.keys.chunks_exact(dim)) {
            *score = dot(simd, self.query, key) * self.scale;
        }
        let greatest = max(self.scores);
        let total = exponentials(self.scores, greatest) as f32;
        self.out.fill(0.0);
        for (score, value) in self.scores.iter().zip(self.values.chunks_exact(dim)) {
            for (out, value) in self.out.iter_mut().zip(value) {
                *out += score * value;
            }
        }
        for out in self.out.iter_mut() {
            *out /= total;
        }
    }
}

/// Softmax of rows of scores; the first row sees `seen` positions, each later one sees one more.
pub struct CausalScores<'a> {
    /// Query-key products, `[queries, context]`, replaced by probabilities.
    pub scores: &'a mut [f32],
    pub context: usize,
    /// Positions visible to the first query.
    pub seen: usize,
    pub scale: f32,
}

impl CausalScores<'_> {
    pub fn run(self, arch: Arch) {
        arch.dispatch(self);
    }
}

impl WithSimd for CausalScores<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (i, scores) in self.scores.chunks_exact_mut(self.context).enumerate() {
            let (seen, masked) = scores.split_at_mut(self.seen + i);
            for score in seen.iter_mut() {
                *score *= self.scale;
            }
            let greatest = max(seen);
            let total = exponentials(seen, greatest) as f32;
            for score in seen.iter_mut() {
                *score /= total;
            }
            masked.fill(0.0);
        }
    }
}
