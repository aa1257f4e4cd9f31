//! Norms of rows in f32, as decoding takes them.

use pulp::{Arch, Simd, WithSimd};

use crate::matrix::{Matrix, MatrixData};

/// RMSNorm of each row: `y = x / sqrt(mean(x^2) + eps) * weight`.
pub fn norm(arch: Arch, x: &[f32], weight: &Matrix, eps: f32, y: &mut [f32]) {
    match &weight.data {
        MatrixData::F32(weight) => arch.dispatch(NormRows { x, weight, eps, y }),
        MatrixData::Bf16(weight) => arch.dispatch(NormRows { x, weight, eps, y }),
    }
}

/// RMSNorm of each row.
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

/// Dot product of two slices of the same length; inline so that it takes its caller's instruction set.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    // sums side by side: one alone would wait for the adder's latency
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
