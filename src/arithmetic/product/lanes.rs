//! Sixteen f32 side by side in the registers of an instruction set: what products are made of.

use super::panels::{Line, WIDE};

/// An instruction set. A value of it exists only where the processor has it.
pub(super) trait Lanes: Copy {
    /// Sixteen f32 in as many registers as they take.
    type V: Copy;
    /// Rows of a tile up to which the registers hold two sums of each product: shorter chains round less.
    const TWO_SUMS: usize = 3;

    fn zero(self) -> Self::V;
    fn load(self, from: &[f32; WIDE]) -> Self::V;
    fn store(self, numbers: Self::V, to: &mut [f32; WIDE]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `sum + w x`.
    fn multiply_add(self, sum: Self::V, w: Self::V, x: f32) -> Self::V;
    /// A line of f32.
    fn line(self, from: &Line) -> Self::V;
    /// A line of bf16, widened: the first numbers of the pairs, and the second.
    fn pairs(self, from: &Line) -> [Self::V; 2];
    /// Asks for a cache line that is read soon; it need not exist.
    fn prefetch(self, at: *const Line);
}

/// An instruction set that adds the products of two bf16 with two bf16 to an f32 at once.
pub(super) trait Dots: Lanes {
    /// A line of sixteen pairs of bf16.
    type Pairs: Copy;

    fn pairs_of(self, from: &Line) -> Self::Pairs;
    /// `sum + w.0 x.0 + w.1 x.1`; the first of x in the low half.
    fn dot(self, sum: Self::V, w: Self::Pairs, x: u32) -> Self::V;
}

/// No instruction set in particular: whatever the compiler makes of loops over sixteen numbers.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {
    type V = [f32; WIDE];

    #[inline(always)]
    fn zero(self) -> Self::V {
        [0.0; WIDE]
    }

    #[inline(always)]
    fn load(self, from: &[f32; WIDE]) -> Self::V {
        *from
    }

    #[inline(always)]
    fn store(self, numbers: Self::V, to: &mut [f32; WIDE]) {
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
    fn line(self, from: &Line) -> Self::V {
        from.0.map(f32::from_bits)
    }

    #[inline(always)]
    fn pairs(self, from: &Line) -> [Self::V; 2] {
        [
            from.0.map(|pair| f32::from_bits(pair << 16)),
            from.0.map(|pair| f32::from_bits(pair & 0xFFFF_0000)),
        ]
    }

    #[inline(always)]
    fn prefetch(self, _: *const Line) {}
}
