//! The cpu backend's arithmetic: matrix products, norms, activations. f32 throughout; bf16 weights
//! are widened in registers.
//!
//! For up to [`FEW_ROWS`] rows a product is bound by reading the weights once from memory, so
//! [`Kernels::matmul`] streams them through an own kernel (bf16 is read as bf16: half the bytes); for more rows
//! it hands over to the `gemm` crate, widening bf16 weights panel by panel. Loops are written so that
//! they vectorise, inside `pulp`'s run-time dispatch to AVX2/AVX-512/NEON. Each is a struct whose
//! `with_simd` is always inlined: a closure would be compiled apart, without the instruction set.

use std::ops::Range;

use half::bf16;
use pulp::{Arch, Simd, WithSimd};

use super::exponential::exp;
use super::gemm::gemm_wt;
use crate::model::{Matrix, MatrixData};

/// Up to so many rows the own matrix-vector kernel is used.
pub const FEW_ROWS: usize = 8;

/// Outputs whose bf16 weights are widened at a time for a product with many rows.
const PANEL: usize = 128;

/// A weight element: how a register's worth of them becomes f32.
///
/// Weights are taken in blocks of two f32 registers' elements. Widening a block may give its elements in
/// another order than they lie in memory; [`Widen::arrange`] puts x into the same order, once a product.
trait Widen: Copy {
    /// Whether a single row of x does best reading one weight row after the other (short rows leave the
    /// prefetcher little to go on), rather than four at a time; measured.
    const ONE_STREAM: bool;

    type Block<S: Simd>: Copy;

    fn widen(self) -> f32;

    /// Whole blocks of a row; what is left over is its last `len % (2 lanes)` elements.
    fn blocks<S: Simd>(row: &[Self]) -> &[Self::Block<S>];

    fn widen_block<S: Simd>(simd: S, block: Self::Block<S>) -> [S::f32s; 2];

    /// One row of x in the order in which blocks of `2 lanes` are widened.
    fn arrange(x: &mut [f32], lanes: usize);
}

impl Widen for f32 {
    const ONE_STREAM: bool = false;

    type Block<S: Simd> = [S::f32s; 2];

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn blocks<S: Simd>(row: &[Self]) -> &[Self::Block<S>] {
        S::as_simd_f32s(row).0.as_chunks().0
    }

    #[inline(always)]
    fn widen_block<S: Simd>(_: S, block: Self::Block<S>) -> [S::f32s; 2] {
        block
    }

    fn arrange(_: &mut [f32], _: usize) {}
}

impl Widen for bf16 {
    const ONE_STREAM: bool = true;

    type Block<S: Simd> = S::u32s;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn blocks<S: Simd>(row: &[Self]) -> &[Self::Block<S>] {
        // rows at odd addresses (odd widths) are left to the scalar loop
        S::as_simd_u32s(bytemuck::try_cast_slice(row).unwrap_or_default()).0
    }

    /// A u32 holds two neighbours: the first in its low half (little endian), the second in its high.
    #[inline(always)]
    fn widen_block<S: Simd>(simd: S, block: Self::Block<S>) -> [S::f32s; 2] {
        let first = simd.wrapping_dyn_shl_u32s(block, simd.splat_u32s(16));
        let second = simd.and_u32s(block, simd.splat_u32s(0xFFFF_0000));
        [simd.transmute_f32s_u32s(first), simd.transmute_f32s_u32s(second)]
    }

    fn arrange(x: &mut [f32], lanes: usize) {
        let mut block_of_x = vec![0.0; 2 * lanes];
        for block in x.chunks_exact_mut(2 * lanes) {
            block_of_x.copy_from_slice(block);
            for (i, pair) in block_of_x.chunks_exact(2).enumerate() {
                (block[i], block[lanes + i]) = (pair[0], pair[1]);
            }
        }
    }
}

/// What kernels need from the thread they run on: the detected instruction set and scratch memory.
#[derive(Debug)]
pub struct Kernels {
    arch: Arch,
    panel: Vec<f32>,
    arranged: Vec<f32>,
}

impl Default for Kernels {
    fn default() -> Self {
        Self { arch: Arch::new(), panel: Vec::new(), arranged: Vec::new() }
    }
}

impl Kernels {
    /// The instruction set in use, for the record: `Scalar`, `V3` (AVX2), `V4` (AVX-512), `Neon`, ...
    pub fn instruction_set(&self) -> String {
        let described = format!("{:?}", self.arch);
        described.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }

    /// `y[rows, outputs] = x[rows, inputs] W^T`. Reads each weight once for up to [`FEW_ROWS`] rows.
    pub fn matmul(&mut self, x: &[f32], w: &Matrix, y: &mut [f32]) {
        self.matmul_part(x, w, 0..w.outputs, y);
    }

    /// [`Kernels::matmul`] with some of the weight's rows: `y[rows, part]`.
    pub fn matmul_part(&mut self, x: &[f32], w: &Matrix, part: Range<usize>, y: &mut [f32]) {
        let (rows, inputs, outputs) = (x.len() / w.inputs, w.inputs, part.len());
        let part = part.start * inputs..part.end * inputs;
        match &w.data {
            MatrixData::F32(data) if rows <= FEW_ROWS => self.few_rows(x, &data[part], inputs, y),
            MatrixData::Bf16(data) if rows <= FEW_ROWS => self.few_rows(x, &data[part], inputs, y),
            MatrixData::F32(data) => gemm_wt(x, &data[part], inputs, y, outputs, 0),
            MatrixData::Bf16(data) => {
                let data = &data[part];
                for first in (0..outputs).step_by(PANEL) {
                    let count = PANEL.min(outputs - first);
                    let from = &data[first * inputs..][..count * inputs];
                    let panel = &mut self.panel;
                    panel.resize(count * inputs, 0.0);
                    self.arch.dispatch(WidenAll { from, to: panel });
                    gemm_wt(x, &self.panel, inputs, y, outputs, first);
                }
            }
        }
    }

    fn few_rows<W: Widen>(&mut self, x: &[f32], w: &[W], inputs: usize, y: &mut [f32]) {
        let outputs = w.len() / inputs;
        for (x, y) in x.chunks(4 * inputs).zip(y.chunks_mut(4 * outputs)) {
            let arranged = &mut self.arranged;
            match x.len() / inputs {
                1 if W::ONE_STREAM => {
                    self.arch.dispatch(Rows::<1, 1, 4, W> { x, arranged, w, inputs, y })
                }
                1 => self.arch.dispatch(Rows::<1, 4, 1, W> { x, arranged, w, inputs, y }),
                2 => self.arch.dispatch(Rows::<2, 4, 1, W> { x, arranged, w, inputs, y }),
                3 => self.arch.dispatch(Rows::<3, 2, 1, W> { x, arranged, w, inputs, y }),
                _ => self.arch.dispatch(Rows::<4, 2, 1, W> { x, arranged, w, inputs, y }),
            }
        }
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
        self.arch.dispatch(SiluMul { x, columns, offset, width, y });
    }

    /// The instruction set, for kernels in other files.
    pub(super) fn arch(&self) -> Arch {
        self.arch
    }
}

/// Widens all of `from`.
struct WidenAll<'a, W> {
    from: &'a [W],
    to: &'a mut [f32],
}

impl<W: Widen> WithSimd for WidenAll<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = from.widen();
        }
    }
}

/// `y = silu(gate) x up` for each row.
struct SiluMul<'a> {
    x: &'a [f32],
    columns: usize,
    offset: usize,
    width: usize,
    y: &'a mut [f32],
}

impl WithSimd for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { x, columns, offset, width, y } = self;
        for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(width)) {
            let (gate, up) = (&x[offset..offset + width], &x[offset + width..offset + 2 * width]);
            for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                *y = gate / (1.0 + exp(-gate)) * up;
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

impl<W: Widen> WithSimd for NormRows<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let mean = dot(simd, x, x) / width as f32;
            let scale = 1.0 / (mean + self.eps).sqrt();
            for ((y, x), w) in y.iter_mut().zip(x).zip(self.weight) {
                *y = x * scale * w.widen();
            }
        }
    }
}

/// `M` rows of x by all outputs, `R` weight rows at a time, each product summed in `C` chains (one alone
/// waits for the adder's latency): `M x R x C` accumulator registers.
struct Rows<'a, const M: usize, const R: usize, const C: usize, W> {
    x: &'a [f32],
    /// Scratch memory for x in the order of the widened weights.
    arranged: &'a mut Vec<f32>,
    w: &'a [W],
    inputs: usize,
    y: &'a mut [f32],
}

impl<const M: usize, const R: usize, const C: usize, W: Widen> WithSimd for Rows<'_, M, R, C, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, arranged, w, inputs, y } = self;
        let outputs = w.len() / inputs;
        arranged.clear();
        arranged.extend_from_slice(x);
        for row in arranged.chunks_exact_mut(inputs) {
            W::arrange(row, S::F32_LANES);
        }
        let plain: [&[f32]; M] = std::array::from_fn(|m| &x[m * inputs..(m + 1) * inputs]);
        let blocks: [&[[S::f32s; 2]]; M] =
            std::array::from_fn(|m| f32::blocks::<S>(&arranged[m * inputs..(m + 1) * inputs]));
        let whole = outputs / R * R;
        for first in (0..whole).step_by(R) {
            let ws: [&[W]; R] = std::array::from_fn(|r| &w[(first + r) * inputs..][..inputs]);
            let sums = products::<S, M, R, C, W>(simd, &plain, &blocks, &ws);
            for (m, sums) in sums.iter().enumerate() {
                y[m * outputs + first..][..R].copy_from_slice(sums);
            }
        }
        for output in whole..outputs {
            let sums =
                products::<S, M, 1, C, W>(simd, &plain, &blocks, &[&w[output * inputs..][..inputs]]);
            for (m, sums) in sums.iter().enumerate() {
                y[m * outputs + output] = sums[0];
            }
        }
    }
}

/// All `M x R` dot products of rows of x (as they are, and in arranged blocks) with weight rows.
#[inline(always)]
fn products<S: Simd, const M: usize, const R: usize, const C: usize, W: Widen>(
    simd: S,
    xs: &[&[f32]; M],
    x_blocks: &[&[[S::f32s; 2]]; M],
    ws: &[&[W]; R],
) -> [[f32; R]; M] {
    let blocks: [&[W::Block<S>]; R] = std::array::from_fn(|r| W::blocks::<S>(ws[r]));
    let count = blocks.iter().map(|b| b.len()).min().unwrap_or(0);
    let count = x_blocks.iter().map(|b| b.len()).min().unwrap_or(0).min(count);
    // known lengths let the compiler drop bounds checks
    let blocks: [&[W::Block<S>]; R] = std::array::from_fn(|r| &blocks[r][..count]);
    let x_blocks: [&[[S::f32s; 2]]; M] = std::array::from_fn(|m| &x_blocks[m][..count]);
    let mut sums = [[[simd.splat_f32s(0.0); C]; R]; M];
    let mut at = 0;
    while at < count {
        for half in 0..2.min(count - at) {
            for r in 0..R {
                let wide = W::widen_block(simd, blocks[r][at + half]);
                for m in 0..M {
                    let x = x_blocks[m][at + half];
                    for part in 0..2 {
                        let chain = &mut sums[m][r][(2 * half + part) % C];
                        *chain = simd.mul_add_e_f32s(x[part], wide[part], *chain);
                    }
                }
            }
        }
        at += 2;
    }
    let whole = count * 2 * S::F32_LANES;
    let mut results = [[0.0; R]; M];
    for m in 0..M {
        for r in 0..R {
            let chains = sums[m][r];
            let lanes = chains[1..].iter().fold(chains[0], |sum, chain| simd.add_f32s(sum, *chain));
            let mut sum = simd.reduce_sum_f32s(lanes);
            for (x, w) in xs[m][whole..].iter().zip(&ws[r][whole..]) {
                sum += x * w.widen();
            }
            results[m][r] = sum;
        }
    }
    results
}

/// Dot product of two slices of the same length; inline so that it takes its caller's instruction set.
#[inline(always)]
pub(super) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    products::<S, 1, 1, 4, f32>(simd, &[a], &[f32::blocks::<S>(a)], &[b])[0][0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| rng.f32() - 0.5).collect()
    }

    fn naive(x: &[f32], w: &[f64], inputs: usize) -> Vec<f64> {
        x.chunks_exact(inputs)
            .flat_map(|x| {
                w.chunks_exact(inputs)
                    .map(|w| x.iter().zip(w).map(|(a, b)| f64::from(*a) * b).sum())
                    .collect::<Vec<f64>>()
            })
            .collect()
    }

    proptest! {
        /// Every row count and shape, both formats, agrees with f64.
        #[test]
        fn products_agree_with_f64(rows in 1usize..20, inputs in 1usize..80, outputs in 1usize..300, seed: u64) {
            let x = numbers(rows * inputs, seed);
            let w = numbers(outputs * inputs, seed ^ 1);
            let narrow: Vec<bf16> = w.iter().map(|w| bf16::from_f32(*w)).collect();
            let mut kernels = Kernels::default();
            for (data, exact) in [
                (MatrixData::F32(w.clone()), w.iter().map(|w| f64::from(*w)).collect::<Vec<_>>()),
                (MatrixData::Bf16(narrow.clone()), narrow.iter().map(|w| w.to_f64()).collect()),
            ] {
                let mut y = vec![f32::NAN; rows * outputs];
                kernels.matmul(&x, &Matrix { outputs, inputs, data }, &mut y);
                for (y, wanted) in y.iter().zip(naive(&x, &exact, inputs)) {
                    prop_assert!((f64::from(*y) - wanted).abs() < 1e-5, "{y} {wanted}");
                }
            }
        }
    }

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
