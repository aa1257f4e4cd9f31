//! Weight formats: conversion of checkpoint bytes, and random numbers.

use half::{bf16, f16};

use crate::stream::{RandomStream, fill};

/// Weight format for conversion during loading.
///
/// Conversions read little-endian bytes without alignment, because a safetensors header may end
/// anywhere. Bytes and `out` should hold equally many numbers; the shorter one limits. Rounds to
/// nearest, ties to even.
pub trait Number: Copy + Default + bytemuck::Pod {
    fn from_f32_bytes(bytes: &[u8], out: &mut [Self]);
    fn from_bf16_bytes(bytes: &[u8], out: &mut [Self]);
    fn from_f16_bytes(bytes: &[u8], out: &mut [Self]);
    /// Fills `out` with a random stream, starting at index `start`.
    fn random(stream: RandomStream, start: u64, out: &mut [Self]);
}

pub(crate) trait One: Copy {
    fn from_f32(x: f32) -> Self;
    /// Like [`Self::from_f32`], for finite `x` far from overflow; skips NaN handling.
    fn from_small(x: f32) -> Self;
    fn from_bf16(x: bf16) -> Self;
}

impl One for f32 {
    fn from_f32(x: f32) -> Self {
        x
    }
    fn from_small(x: f32) -> Self {
        x
    }
    fn from_bf16(x: bf16) -> Self {
        x.to_f32()
    }
}

impl One for bf16 {
    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
    fn from_small(x: f32) -> Self {
        let bits = x.to_bits();
        // half a unit of the last kept bit, minus one if that bit is even
        let rounding = 0x7fff + ((bits >> 16) & 1);
        bf16::from_bits((bits.wrapping_add(rounding) >> 16) as u16)
    }
    fn from_bf16(x: bf16) -> Self {
        x
    }
}

impl One for f16 {
    fn from_f32(x: f32) -> Self {
        f16::from_f32(x)
    }
    fn from_small(x: f32) -> Self {
        f16::from_f32(x)
    }
    fn from_bf16(x: bf16) -> Self {
        f16::from_f32(x.to_f32())
    }
}

fn each<const N: usize, T>(bytes: &[u8], out: &mut [T], number: impl Fn([u8; N]) -> T) {
    for (to, from) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *to = number(*from);
    }
}

macro_rules! numbers {
    ($($format:ty),*) => {
        $(impl Number for $format {
            fn from_f32_bytes(bytes: &[u8], out: &mut [Self]) {
                each(bytes, out, |from| Self::from_f32(f32::from_le_bytes(from)));
            }
            fn from_bf16_bytes(bytes: &[u8], out: &mut [Self]) {
                each(bytes, out, |from| Self::from_bf16(bf16::from_le_bytes(from)));
            }
            fn from_f16_bytes(bytes: &[u8], out: &mut [Self]) {
                each(bytes, out, |from| Self::from_f32(f16::from_le_bytes(from).to_f32()));
            }
            fn random(stream: RandomStream, start: u64, out: &mut [Self]) {
                fill(stream, start, out);
            }
        })*
    };
}

numbers!(f32, bf16, f16);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fast_rounding_is_the_exact_one(x in -1e30f32..1e30) {
            prop_assert_eq!(<bf16 as One>::from_small(x), bf16::from_f32(x));
        }

        #[test]
        fn unaligned_bytes_convert_alike(numbers in prop::collection::vec(any::<u16>(), 1..20)) {
            let mut bytes = vec![0u8];
            bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            let mut out = vec![0f32; numbers.len()];
            f32::from_f16_bytes(&bytes[1..], &mut out);
            for (bits, got) in numbers.iter().zip(&out) {
                prop_assert_eq!(f16::from_bits(*bits).to_f32().to_bits(), got.to_bits());
            }
        }

        #[test]
        fn f16_stays_f16(numbers in prop::collection::vec(any::<u16>(), 1..20)) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let mut out = vec![f16::ZERO; numbers.len()];
            f16::from_f16_bytes(&bytes, &mut out);
            for (bits, got) in numbers.iter().zip(&out) {
                // NaNs may become quiet
                prop_assert!(*bits == got.to_bits() || got.is_nan() && f16::from_bits(*bits).is_nan());
            }
        }
    }

    #[test]
    fn ties_round_to_even() {
        let (down, up) = (f32::from_bits(0x3f80_8000), f32::from_bits(0x3f81_8000));
        assert_eq!(<bf16 as One>::from_small(down).to_bits(), 0x3f80);
        assert_eq!(<bf16 as One>::from_small(up).to_bits(), 0x3f82);
    }
}
