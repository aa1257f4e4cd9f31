//! Abstraction of an instruction set for products: sixteen f32 lanes in registers.

use super::panels::{MXFP4_LINE_INPUTS, PANEL_WIDTH, PanelLine};
use crate::mxfp4::E2M1;

/// Instruction set. A value exists only if the processor supports it.
pub(super) trait SimdLanes: Copy {
    /// Sixteen f32 in one or more registers.
    type V: Copy;
    /// Maximum rows of a tile for which registers hold two sums per product; shorter chains round less.
    const TWO_SUMS: usize = 3;

    fn zero(self) -> Self::V;
    fn load(self, from: &[f32; PANEL_WIDTH]) -> Self::V;
    fn store(self, numbers: Self::V, to: &mut [f32; PANEL_WIDTH]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `sum + w x`.
    fn multiply_add(self, sum: Self::V, w: Self::V, x: f32) -> Self::V;
    /// Loads a line of f32.
    #[inline(always)]
    fn line(self, from: &PanelLine) -> Self::V {
        self.load(bytemuck::cast_ref(&from.0))
    }

    /// Loads a line of bf16 pairs, widened: first numbers, then second numbers.
    fn pairs(self, from: &PanelLine) -> [Self::V; 2];
    /// `sum + a b`, lane by lane.
    fn multiply_add_each(self, sum: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// Loads a line of e2m1 numbers, eight inputs of sixteen outputs.
    fn e2m1(self, from: &PanelLine) -> [Self::V; MXFP4_LINE_INPUTS];
    /// Powers of two from byte `at` of each lane; the lowest is 0, the highest infinity.
    fn powers(self, from: &PanelLine, at: usize) -> Self::V;
    /// Prefetches lines behind this one, which need not exist.
    fn prefetch(self, line: &PanelLine);
}

/// Instruction set with bf16 dot products: adds two products of bf16 to an f32 at once.
pub(super) trait Dots: SimdLanes {
    /// Sixteen pairs of bf16.
    type Pairs: Copy;

    fn pairs_of(self, from: &PanelLine) -> Self::Pairs;
    /// `sum + w.0 x.0 + w.1 x.1`; the first of x is in the low half.
    fn dot(self, sum: Self::V, w: Self::Pairs, x: u32) -> Self::V;
}

/// Fallback: plain loops over sixteen numbers, vectorized by the compiler.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl SimdLanes for Portable {
    type V = [f32; PANEL_WIDTH];

    #[inline(always)]
    fn zero(self) -> Self::V {
        [0.0; PANEL_WIDTH]
    }

    #[inline(always)]
    fn load(self, from: &[f32; PANEL_WIDTH]) -> Self::V {
        *from
    }

    #[inline(always)]
    fn store(self, numbers: Self::V, to: &mut [f32; PANEL_WIDTH]) {
        *to = numbers;
    }

    #[inline(always)]
    fn add(self, mut a: Self::V, b: Self::V) -> Self::V {
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
        a
    }

    #[inline(always)]
    fn multiply_add(self, mut sum: Self::V, w: Self::V, x: f32) -> Self::V {
        for (sum, w) in sum.iter_mut().zip(w) {
            *sum += w * x;
        }
        sum
    }

    #[inline(always)]
    fn pairs(self, from: &PanelLine) -> [Self::V; 2] {
        [
            from.0.map(|pair| f32::from_bits(pair << 16)),
            from.0.map(|pair| f32::from_bits(pair & 0xFFFF_0000)),
        ]
    }

    #[inline(always)]
    fn multiply_add_each(self, mut sum: Self::V, a: Self::V, b: Self::V) -> Self::V {
        for (sum, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
        sum
    }

    #[inline(always)]
    fn e2m1(self, from: &PanelLine) -> [Self::V; MXFP4_LINE_INPUTS] {
        std::array::from_fn(|at| from.0.map(|eight| E2M1[(eight >> (4 * at)) as usize & 15]))
    }

    #[inline(always)]
    fn powers(self, from: &PanelLine, at: usize) -> Self::V {
        from.0.map(|four| f32::from_bits((four >> (8 * at) & 0xFF) << 23))
    }

    #[inline(always)]
    fn prefetch(self, _: &PanelLine) {}
}
