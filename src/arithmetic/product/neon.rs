//! NEON: sixteen lanes in four registers.

use std::arch::aarch64::*;

use super::lanes::SimdLanes;
use super::panels::{MXFP4_LINE_INPUTS, PANEL_WIDTH, PanelLine};

/// NEON, present in every 64-bit Arm processor.
#[derive(Clone, Copy)]
pub(super) struct Neon;

impl SimdLanes for Neon {
    type V = [float32x4_t; 4];

    #[inline(always)]
    fn zero(self) -> Self::V {
        // SAFETY: NEON is part of this architecture; this also holds for all calls below
        unsafe { [vdupq_n_f32(0.0); 4] }
    }

    #[inline(always)]
    fn load(self, from: &[f32; PANEL_WIDTH]) -> Self::V {
        let from = from.as_ptr();
        // SAFETY: as above; four quarters of sixteen numbers
        unsafe {
            [vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))]
        }
    }

    #[inline(always)]
    fn store(self, numbers: Self::V, to: &mut [f32; PANEL_WIDTH]) {
        for (numbers, to) in numbers.into_iter().zip(to.as_chunks_mut::<4>().0) {
            // SAFETY: as above; four numbers are written
            unsafe { vst1q_f32(to.as_mut_ptr(), numbers) }
        }
    }

    #[inline(always)]
    fn add(self, mut a: Self::V, b: Self::V) -> Self::V {
        for (a, b) in a.iter_mut().zip(b) {
            // SAFETY: as above
            *a = unsafe { vaddq_f32(*a, b) };
        }
        a
    }

    #[inline(always)]
    fn multiply_add(self, mut sum: Self::V, w: Self::V, x: f32) -> Self::V {
        for (sum, w) in sum.iter_mut().zip(w) {
            // SAFETY: as above
            *sum = unsafe { vfmaq_n_f32(*sum, w, x) };
        }
        sum
    }

    #[inline(always)]
    fn pairs(self, from: &PanelLine) -> [Self::V; 2] {
        let mut wide = [self.zero(); 2];
        for (at, four) in from.0.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: as above; four pairs are read
            unsafe {
                let pairs = vld1q_u32(four.as_ptr());
                wide[0][at] = vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs));
                wide[1][at] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xFFFF_0000)));
            }
        }
        wide
    }

    #[inline(always)]
    fn multiply_add_each(self, mut sum: Self::V, a: Self::V, b: Self::V) -> Self::V {
        for (sum, (a, b)) in sum.iter_mut().zip(a.into_iter().zip(b)) {
            // SAFETY: as above
            *sum = unsafe { vfmaq_f32(*sum, a, b) };
        }
        sum
    }

    #[inline(always)]
    fn e2m1(self, from: &PanelLine) -> [Self::V; MXFP4_LINE_INPUTS] {
        // twice each number, as an integer
        const TWICE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        let mut wide = [self.zero(); MXFP4_LINE_INPUTS];
        for (at, four) in from.0.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: as above; sixteen bytes of the table and four lanes are read
            unsafe {
                let table = vreinterpretq_u8_s8(vld1q_s8(TWICE.as_ptr()));
                let eights = vld1q_u32(four.as_ptr());
                for (input, wide) in wide.iter_mut().enumerate() {
                    // to the highest byte: looked up there, it is a fixed-point number; zeros stay zeros
                    let moved = vshlq_u32(eights, vdupq_n_s32(24 - 4 * input as i32));
                    let index = vandq_u32(moved, vdupq_n_u32(0x0F00_0000));
                    let number = vqtbl1q_u8(table, vreinterpretq_u8_u32(index));
                    wide[at] = vcvtq_n_f32_s32::<25>(vreinterpretq_s32_u8(number));
                }
            }
        }
        wide
    }

    #[inline(always)]
    fn powers(self, from: &PanelLine, at: usize) -> Self::V {
        let mut powers = self.zero();
        for (powers, four) in powers.iter_mut().zip(from.0.as_chunks::<4>().0) {
            // SAFETY: as above; four lanes are read
            unsafe {
                let moved = vshlq_u32(vld1q_u32(four.as_ptr()), vdupq_n_s32(-8 * at as i32));
                *powers = vreinterpretq_f32_u32(vshlq_n_u32::<23>(vandq_u32(moved, vdupq_n_u32(0xFF))));
            }
        }
        powers
    }

    #[inline(always)]
    fn prefetch(self, _: &PanelLine) {}
}
