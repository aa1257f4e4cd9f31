//! Row norms in f32 for decoding, and the sum that measures memory bandwidth.

use pulp::{Arch, Simd, WithSimd};

use crate::matrix::{Matrix, MatrixData};

/// RMSNorm of each row: `y = x / sqrt(mean(x^2) + eps) * weight`.
pub fn norm(arch: Arch, x: &[f32], weight: &Matrix, eps: f32, y: &mut [f32]) {
    match &weight.data {
        MatrixData::F32(weight) => arch.dispatch(NormRows { x, weight, eps, y }),
        MatrixData::Bf16(weight) => arch.dispatch(NormRows { x, weight, eps, y }),
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
            let mean = dot(simd, x, x) / width as f32;
            let scale = 1.0 / (mean + self.eps).sqrt();
            for ((y, x), w) in y.iter_mut().zip(x).zip(self.weight) {
                *y = x * scale * f32::from(*w);
            }
        }
    }
}

/// Dot product of two slices of equal length; inlined to use the caller's instruction set.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
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
