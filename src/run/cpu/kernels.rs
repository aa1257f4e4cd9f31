//! The cpu backend's arithmetic: matrix products, norms, activations. f32 throughout; bf16 weights
//! are widened in registers.
//!
//! Products are those of [`super::product`], divided over the threads of a rank ([`super::team`]). The other loops are
//! written so that they vectorise, inside `pulp`'s run-time dispatch to AVX2/NEON. Each is a struct whose
//! `with_simd` is always inlined: a closure would be compiled apart, without the instruction set.

use std::ops::Range;
use std::sync::Arc;

use pulp::{Arch, Simd, WithSimd};

use super::product::{Arranged, InstructionSet, Onto, Panels, WIDE};
use super::real::Real;
use super::team::Team;
use crate::model::{Matrix, MatrixData};

/// What kernels need from the thread they run on: the detected instruction set, scratch memory, and
/// the other threads of the rank.
#[derive(Debug)]
pub struct Kernels {
    arch: Arch,
    set: InstructionSet,
    /// Shared with the rank's other threads while they multiply.
    arranged: Arc<Arranged>,
    team: Team,
}

impl Default for Kernels {
    fn default() -> Self {
        Self::with(Team::default())
    }
}

impl Kernels {
    /// Kernels whose products the threads of a team share.
    pub(super) fn with(team: Team) -> Self {
        Self { arch: Arch::new(), set: InstructionSet::chosen(), arranged: Arc::default(), team }
    }

    /// The instruction set of products, for the record: `avx512`, `avx2`, `neon`, `portable`.
    pub fn instruction_set(&self) -> String {
        self.set.to_string()
    }

    /// `y[rows, outputs] = x[rows, inputs] W^T`. Reads each weight from memory once for up to 512 rows.
    pub fn matmul(&mut self, x: &[f32], w: &Arc<Panels>, y: &mut [f32]) {
        self.matmul_part(x, w, 0..w.outputs, y);
    }

    /// [`Kernels::matmul`] with some of the weight's rows: `y[rows, part]`. The part begins with a panel.
    pub fn matmul_part(&mut self, x: &[f32], w: &Arc<Panels>, part: Range<usize>, y: &mut [f32]) {
        assert!(part.start.is_multiple_of(WIDE), "a part begins with a panel");
        let arranged = Arc::make_mut(&mut self.arranged);
        arranged.fill(x, w, self.set);
        let panels = part.start / WIDE..part.end.div_ceil(WIDE);
        self.team.product(self.set, &self.arranged, w, panels, Onto { y, columns: part.len() });
    }

    /// RMSNorm of each row: `y = x / sqrt(mean(x^2) + eps) * weight`.
    pub fn norm(&self, x: &[f32], weight: &Matrix, eps: f32, y: &mut [f32]) {
        match &weight.data {
            MatrixData::F32(weight) => self.arch.dispatch(NormRows { x, weight, eps, y }),
            MatrixData::Bf16(weight) => self.arch.dispatch(NormRows { x, weight, eps, y }),
        }
    }

    /// `y = a + b`.
    pub fn add(&self, a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }

    /// `y = b + a x scale`.
    pub fn add_scaled(&self, a: &[f32], scale: f32, b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a * scale + b;
        }
    }

    /// `y = x + own x scale + (sum - part)`, without the last where no `sum` is there yet.
    pub fn join(&self, [x, own]: [&[f32]; 2], scale: f32, others: Option<[&[f32]; 2]>, y: &mut [f32]) {
        self.add_scaled(own, scale, x, y);
        if let Some([sum, part]) = others {
            for ((y, sum), part) in y.iter_mut().zip(sum).zip(part) {
                *y += sum - part;
            }
        }
    }

    /// `y = x x scale`.
    pub fn scale(&self, x: &[f32], scale: f32, y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x * scale;
        }
    }

    /// `y = silu(gate) x up` for each row of `x`, where gate starts at column `offset` and up follows.
    pub fn silu_mul(&self, x: &[f32], columns: usize, offset: usize, width: usize, y: &mut [f32]) {
        self.arch.dispatch(SiluMul { of: Gated { x, columns, offset, width }, y });
    }

    /// The instruction set, for kernels in other files.
    pub(super) fn arch(&self) -> Arch {
        self.arch
    }
}

/// Rows of a projection in which gate begins at a column and up follows, each as wide.
#[derive(Clone, Copy)]
pub(in crate::run::cpu) struct Gated<'a, T> {
    pub x: &'a [T],
    pub columns: usize,
    pub offset: usize,
    pub width: usize,
}

impl<'a, T: Real> Gated<'a, T> {
    /// Gate and up, row by row.
    #[inline(always)]
    pub(in crate::run::cpu) fn rows(self) -> impl Iterator<Item = (&'a [T], &'a [T])> {
        let Self { x, columns, offset, width } = self;
        x.chunks_exact(columns)
            .map(move |row| (&row[offset..offset + width], &row[offset + width..offset + 2 * width]))
    }
}

/// `y = silu(gate) x up`.
pub(in crate::run::cpu) struct SiluMul<'a, T> {
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
pub(super) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_and_activation() {
        let kernels = Kernels::default();
        let weight = Matrix { outputs: 1, inputs: 2, data: MatrixData::F32(vec![1.0, 2.0]) };
        let mut y = [0.0; 2];
        kernels.norm(&[3.0, 4.0], &weight, 0.0, &mut y);
        // rms = sqrt(12.5)
        assert!(
            (y[0] - 3.0 / 12.5f32.sqrt()).abs() < 1e-6 && (y[1] - 8.0 / 12.5f32.sqrt()).abs() < 1e-6
        );
        // columns: one that is skipped, gate, up
        kernels.silu_mul(&[9.0, 1.0, 2.0, 3.0, 4.0], 5, 1, 2, &mut y);
        let silu = |x: f32| x / (1.0 + (-x).exp());
        assert!((y[0] - silu(1.0) * 3.0).abs() < 1e-6 && (y[1] - silu(2.0) * 4.0).abs() < 1e-6);
    }
}
