//! Decode attention in f32: one query over its context, and causal softmaxes.

use pulp::{Arch, Simd, WithSimd};

use crate::exponential::{exponentials, max};
use crate::vectors::dot;

pub struct OneQuery<'a> {
    /// Query, one head wide.
    pub query: &'a [f32],
    /// Keys of the context, `[positions, head]`.
    pub keys: &'a [f32],
    /// Values of the context: the first columns of `[positions, stride]`, as many as the output has.
    pub values: &'a [f32],
    pub stride: usize,
    /// Scratch memory, one number per position.
    pub scores: &'a mut [f32],
    pub scale: f32,
    /// Score without a key that joins the softmax's denominator only.
    pub sink: Option<f32>,
    /// Output: weighted sum of the values.
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
        let greatest = self.sink.unwrap_or(f32::NEG_INFINITY).max(max(self.scores));
        let total = exponentials(self.scores, greatest) as f32 + of_sink(self.sink, greatest);
        self.out.fill(0.0);
        for (score, value) in self.scores.iter().zip(self.values.chunks(self.stride)) {
            for (out, value) in self.out.iter_mut().zip(value) {
                *out += score * value;
            }
        }
        for out in self.out.iter_mut() {
            *out /= total;
        }
    }
}

/// Exponential of a sink's score; 0 without one.
#[inline(always)]
fn of_sink(sink: Option<f32>, greatest: f32) -> f32 {
    sink.map_or(0.0, |sink| (sink - greatest).exp())
}

/// Softmax of rows of scores; the first row sees `seen` positions, each later one sees one more. With a window, a row
/// sees only the last of them.
pub struct CausalScores<'a> {
    /// Query-key products, `[queries, context]`, replaced by probabilities.
    pub scores: &'a mut [f32],
    pub context: usize,
    /// Positions visible to the first query.
    pub seen: usize,
    /// Positions that a query sees at most, its own included.
    pub window: usize,
    pub scale: f32,
    /// Score without a key that joins the softmax's denominator only.
    pub sink: Option<f32>,
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
            let (left, seen) = seen.split_at_mut(seen.len().saturating_sub(self.window));
            for score in seen.iter_mut() {
                *score *= self.scale;
            }
            let greatest = self.sink.unwrap_or(f32::NEG_INFINITY).max(max(seen));
            let total = exponentials(seen, greatest) as f32 + of_sink(self.sink, greatest);
            for score in seen.iter_mut() {
                *score /= total;
            }
            left.fill(0.0);
            masked.fill(0.0);
        }
    }
}
