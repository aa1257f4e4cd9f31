//! Rows of numbers: norms, activations, and attention over a KV cache.

use pulp::{Arch, Simd, WithSimd};

use crate::matrix::{Matrix, MatrixData};
use crate::real::Real;
use crate::softmax::{exponentials, max};

/// Partial results per sum: several registers of any instruction set.
const LANES: usize = 16;

/// Dot product of two slices of equal length.
#[inline(always)]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [T::ZERO; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += *a * *b;
        }
    }
    let rest: T = a_rest.iter().zip(b_rest).map(|(a, b)| *a * *b).sum();
    lanes.into_iter().sum::<T>() + rest
}

/// Inverse root mean square of a row, the factor of RMSNorm.
#[inline(always)]
fn inverse_rms<T: Real>(x: &[T], eps: T) -> T {
    T::ONE / (dot(x, x) / T::from_f64(x.len() as f64) + eps).sqrt()
}

/// RMSNorm of rows as wide as the weight: `y = x / rms(x) x weight`.
pub struct Norm<'a, T> {
    pub x: &'a [T],
    /// Weight, as wide as a row.
    pub weight: &'a [T],
    /// Added to the mean square, to avoid division by 0.
    pub eps: T,
    pub y: &'a mut [T],
}

impl<T: Real> WithSimd for Norm<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((y, x), w) in y.iter_mut().zip(x).zip(self.weight) {
                *y = *x * scale * *w;
            }
        }
    }
}

/// Gradient of RMSNorm's operand: with s the inverse RMS of a row of n numbers and g = dy x weight, `dx
/// = s g - x s^3 / n x sum(g x)`.
pub struct NormOperand<'a, T> {
    pub x: &'a [T],
    /// Weight, as wide as a row.
    pub weight: &'a [T],
    /// Added to the mean square, to avoid division by 0.
    pub eps: T,
    pub dy: &'a [T],
    /// Output: gradient of the operand.
    pub dx: &'a mut [T],
}

impl<T: Real> WithSimd for NormOperand<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.weight.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((dx, dy), w) in dx.iter_mut().zip(dy).zip(self.weight) {
                *dx = *dy * *w;
            }
            let along = dot(dx, x) * scale * scale * scale / T::from_f64(width as f64);
            for (dx, x) in dx.iter_mut().zip(x) {
                *dx = *dx * scale - *x * along;
            }
        }
    }
}

/// Adds the gradient of RMSNorm's weight: the sum over rows of `dy x / rms(x)`.
pub struct NormWeight<'a, T> {
    pub x: &'a [T],
    /// Added to the mean square, to avoid division by 0.
    pub eps: T,
    pub dy: &'a [T],
    pub dw: &'a mut [T],
}

impl<T: Real> WithSimd for NormWeight<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.dw.len();
        for (x, dy) in self.x.chunks_exact(width).zip(self.dy.chunks_exact(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((dw, x), dy) in self.dw.iter_mut().zip(x).zip(dy) {
                *dw += *dy * *x * scale;
            }
        }
    }
}

/// Rows of a projection with gate at column `offset` and up right behind it, each `width` wide.
#[derive(Clone, Copy)]
pub struct Gated<'a, T> {
    pub x: &'a [T],
    pub columns: usize,
    pub offset: usize,
    /// Columns of gate, and of up.
    pub width: usize,
}

impl<'a, T: Real> Gated<'a, T> {
    #[inline(always)]
    pub fn rows(self) -> impl Iterator<Item = (&'a [T], &'a [T])> {
        let Self { x, columns, offset, width } = self;
        x.chunks_exact(columns)
            .map(move |row| (&row[offset..offset + width], &row[offset + width..offset + 2 * width]))
    }
}

/// `y = silu(gate) x up`.
pub struct SiluMul<'a, T> {
    pub of: Gated<'a, T>,
    pub y: &'a mut [T],
}

impl<T: Real> WithSimd for SiluMul<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((gate, up), y) in self.of.rows().zip(self.y.chunks_exact_mut(self.of.width)) {
            for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                *y = *gate / (T::ONE + (-*gate).exp()) * *up;
            }
        }
    }
}

/// Gradients of gate and up in their columns; other columns of `dx` are unchanged.
pub struct SiluMulOperand<'a, T> {
    pub of: Gated<'a, T>,
    pub dy: &'a [T],
    pub dx: &'a mut [T],
}

impl<T: Real> WithSimd for SiluMulOperand<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Gated { columns, offset, width, .. } = self.of;
        let rows = self.of.rows().zip(self.dy.chunks_exact(width));
        for (((gate, up), dy), dx) in rows.zip(self.dx.chunks_exact_mut(columns)) {
            let (dgate, dup) = dx[offset..offset + 2 * width].split_at_mut(width);
            let numbers = gate.iter().zip(up).zip(dy);
            for (((gate, up), dy), (dgate, dup)) in numbers.zip(dgate.iter_mut().zip(dup)) {
                let sigmoid = T::ONE / (T::ONE + (-*gate).exp());
                *dup = *dy * *gate * sigmoid;
                *dgate = *dy * *up * sigmoid * (T::ONE + *gate * (T::ONE - sigmoid));
            }
        }
    }
}

pub fn all_finite<T: Real>(numbers: &[T]) -> bool {
    numbers.iter().all(|number| number.wide().is_finite())
}

/// RMSNorm of each row: `y = x / sqrt(mean(x^2) + eps) * weight`.
pub fn norm(arch: Arch, x: &[f32], weight: &Matrix, eps: f32, y: &mut [f32]) {
    match &weight.data {
        MatrixData::F32(weight) => arch.dispatch(NormRows { x, weight, eps, y }),
        MatrixData::Bf16(weight) => arch.dispatch(NormRows { x, weight, eps, y }),
        MatrixData::Mxfp4 { .. } => arch.dispatch(NormRows { x, weight: &weight.numbers(), eps, y }),
    }
}

struct NormRows<'a, W> {
    x: &'a [f32],
    weight: &'a [W],
    eps: f32,
    y: &'a mut [f32],
}

impl<W: Copy> WithSimd for NormRows<'_, W>
where
    f32: From<W>,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let mean = inner(simd, x, x) / width as f32;
            let scale = 1.0 / (mean + self.eps).sqrt();
            for ((y, x), w) in y.iter_mut().zip(x).zip(self.weight) {
                *y = x * scale * f32::from(*w);
            }
        }
    }
}

/// Dot product of two slices of equal length; inlined to use the caller's instruction set.
#[inline(always)]
pub(crate) fn inner<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    // parallel sums, because a single chain would be bound by addition latency
    const CHAINS: usize = 4;
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let ((a, a_last), (b, b_last)) = (a.as_chunks::<CHAINS>(), b.as_chunks::<CHAINS>());
    let mut sums = [simd.splat_f32s(0.0); CHAINS];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = simd.mul_add_e_f32s(*a, *b, *sum);
        }
    }
    for (a, b) in a_last.iter().zip(b_last) {
        sums[0] = simd.mul_add_e_f32s(*a, *b, sums[0]);
    }
    let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    simd.reduce_sum_f32s(sum) + rest
}

/// Sum of numbers at full memory bandwidth.
pub fn sum(arch: Arch, numbers: &[f32]) -> f32 {
    arch.dispatch(Sum(numbers))
}

/// Sum with enough accumulators to hide addition latency.
struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, rest) = S::as_simd_f32s(self.0);
        let mut sums = [simd.splat_f32s(0.0); 8];
        let (blocks, tail) = vectors.as_chunks::<8>();
        for block in blocks {
            for (sum, vector) in sums.iter_mut().zip(block) {
                *sum = simd.add_f32s(*sum, *vector);
            }
        }
        for vector in tail {
            sums[0] = simd.add_f32s(sums[0], *vector);
        }
        let total: f32 = sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum();
        total + rest.iter().sum::<f32>()
    }
}

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
            *score = inner(simd, self.query, key) * self.scale;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_once() {
        // Lengths around the width of vectors and of blocks of them.
        for length in [0, 1, 7, 63, 64, 65, 1000, 4096] {
            let numbers = vec![1.0_f32; length];
            assert_eq!(sum(Arch::new(), &numbers), length as f32);
        }
    }
}
