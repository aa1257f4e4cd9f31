//! Arithmetic of the cpu backend in f32; bf16 weights are widened in registers. The rank's threads ([`super::team`])
//! share each matrix product.

use std::ops::Range;
use std::sync::Arc;

use arithmetic::e4m3::{self, from_e4m3, to_e4m3};
use arithmetic::product::{Arranged, InstructionSet, PANEL_WIDTH, Panels, ProductOutput};
use arithmetic::{Gated, Real, SiluMul};
use pulp::Arch;

use super::team::Team;
use model::Matrix;
use plan::{CommDType, SCALED_TOGETHER};

#[derive(Debug)]
pub struct CpuKernels {
    arch: Arch,
    set: InstructionSet,
    /// Rearranged input, shared with the rank's other threads during a product.
    arranged: Arc<Arranged>,
    team: Team,
}

impl Default for CpuKernels {
    fn default() -> Self {
        Self::with(Team::default())
    }
}

impl CpuKernels {
    pub(super) fn with(team: Team) -> Self {
        Self { arch: Arch::new(), set: InstructionSet::chosen(), arranged: Arc::default(), team }
    }

    /// Instruction set of products, for the run record: `avx512`, `avx2`, `neon`, `portable`.
    pub fn instruction_set(&self) -> String {
        self.set.to_string()
    }

    /// `y[rows, outputs] = x[rows, inputs] W^T`. Reads each weight from memory once per 512 rows.
    pub fn matmul(&mut self, x: &[f32], w: &Arc<Panels>, y: &mut [f32]) {
        self.matmul_part(x, w, 0..w.outputs, y);
    }

    /// [`CpuKernels::matmul`] with some of the weight's rows: `y[rows, part]`. The part must start at a panel boundary.
    pub fn matmul_part(&mut self, x: &[f32], w: &Arc<Panels>, part: Range<usize>, y: &mut [f32]) {
        assert!(part.start.is_multiple_of(PANEL_WIDTH), "a part begins with a panel");
        let arranged = Arc::make_mut(&mut self.arranged);
        arranged.fill(x, w, self.set);
        let panels = part.start / PANEL_WIDTH..part.end.div_ceil(PANEL_WIDTH);
        self.team.product(self.set, &self.arranged, w, panels, ProductOutput { y, columns: part.len() });
    }

    /// RMSNorm of each row: `y = x / sqrt(mean(x^2) + eps) * weight`.
    pub fn norm(&self, x: &[f32], weight: &Matrix, eps: f32, y: &mut [f32]) {
        arithmetic::norm(self.arch, x, weight, eps, y);
    }

    pub fn add(&self, a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }

    pub fn add_scaled(&self, a: &[f32], scale: f32, b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a * scale + b;
        }
    }

    /// `y = x + own x scale + (sum - part)`; the last term only if `others` is given.
    pub fn join(&self, [x, own]: [&[f32]; 2], scale: f32, others: Option<[&[f32]; 2]>, y: &mut [f32]) {
        self.add_scaled(own, scale, x, y);
        if let Some([sum, part]) = others {
            for ((y, sum), part) in y.iter_mut().zip(sum).zip(part) {
                *y += sum - part;
            }
        }
    }

    /// For each row: `y = x + sum` in the first columns, of which `sum` has `shared` a row, and `y = x + own x
    /// scale` in the others.
    pub fn join_channels(
        &self,
        [x, own]: [&[f32]; 2],
        scale: f32,
        (sum, shared): (&[f32], usize),
        columns: usize,
        y: &mut [f32],
    ) {
        self.add_scaled(own, scale, x, y);
        for ((y, x), sum) in
            y.chunks_exact_mut(columns).zip(x.chunks_exact(columns)).zip(sum.chunks_exact(shared))
        {
            self.add(x, sum, &mut y[..shared]);
        }
    }

    /// The first columns of each row of `x`.
    pub fn narrow(&self, x: &[f32], columns: usize, kept: usize, y: &mut [f32]) {
        for (y, x) in y.chunks_exact_mut(kept).zip(x.chunks_exact(columns)) {
            y.copy_from_slice(&x[..kept]);
        }
    }

    pub fn scale(&self, x: &[f32], scale: f32, y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x * scale;
        }
    }

    /// `y = silu(gate) x up` for each row of `x`; gate starts at column `offset`, up follows it.
    pub fn silu_mul(&self, x: &[f32], columns: usize, offset: usize, width: usize, y: &mut [f32]) {
        f32::silu_mul(self.arch, SiluMul { of: Gated { x, columns, offset, width }, y });
    }

    /// `y = x x sigmoid(gate)`.
    pub fn sigmoid_mul(&self, x: &[f32], gate: &[f32], y: &mut [f32]) {
        for ((y, x), gate) in y.iter_mut().zip(x).zip(gate) {
            *y = x / (1.0 + (-gate).exp());
        }
    }

    pub(super) fn arch(&self) -> Arch {
        self.arch
    }
}

/// Rounds `x` to a message format. Ranks of this backend share memory, so messages stay f32 with rounded values; links
/// count the bytes of the message format. Each group of [`SCALED_TOGETHER`] columns of a row shares a scale that maps its
/// largest magnitude to the format's maximum. Reads x twice.
pub fn quantize(x: &[f32], columns: usize, to: CommDType, y: &mut [f32]) {
    let together = SCALED_TOGETHER as usize;
    for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        for (x, y) in x.chunks(together).zip(y.chunks_mut(together)) {
            let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let (most, nearest): (f32, fn(f32) -> f32) = match to {
                CommDType::Activations => {
                    y.copy_from_slice(x);
                    continue;
                }
                CommDType::F8 => (e4m3::LARGEST, |x| from_e4m3(to_e4m3(x))),
                CommDType::Int8 => (127.0, f32::round_ties_even),
            };
            let scale = largest / most;
            for (y, x) in y.iter_mut().zip(x) {
                *y = if scale > 0.0 { nearest(x / scale) * scale } else { *x };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use model::MatrixData;

    #[test]
    fn norm_and_activation() {
        let kernels = CpuKernels::default();
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

    proptest! {
        #[test]
        fn errors_are_within_half_a_step_of_the_largest(
            rows in 1usize..4, columns in 1usize..300, seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let x: Vec<f32> = (0..rows * columns).map(|_| (random.f32() - 0.5) * 20.0).collect();
            for (to, worst) in [(CommDType::Int8, 0.5 / 127.0), (CommDType::F8, 16.0 / 448.0)] {
                let mut y = vec![f32::NAN; x.len()];
                quantize(&x, columns, to, &mut y);
                for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
                    for (x, y) in x.chunks(128).zip(y.chunks(128)) {
                        let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                        for (x, y) in x.iter().zip(y) {
                            prop_assert!((x - y).abs() <= largest * worst * 1.001, "{to}: {x} {y}");
                        }
                    }
                }
                // what was said once is said again alike
                let mut again = y.clone();
                quantize(&y, columns, to, &mut again);
                for (again, y) in again.iter().zip(&y) {
                    prop_assert!((again - y).abs() <= 1e-5 * y.abs().max(1e-6), "{to}");
                }
            }
        }
    }

    #[test]
    fn zeros_stay_and_what_is_not_finite_is_not_hidden() {
        let mut y = [1.0; 4];
        quantize(&[0.0; 4], 4, CommDType::F8, &mut y);
        assert_eq!(y, [0.0; 4]);
        quantize(&[f32::NAN, 1.0, 2.0, 3.0], 4, CommDType::Int8, &mut y);
        assert!(y[0].is_nan() && (y[3] - 3.0).abs() < 1e-6, "{y:?}");
        quantize(&[f32::INFINITY, 1.0, 2.0, 3.0], 4, CommDType::Int8, &mut y);
        assert!(!y[0].is_finite());
    }
}
