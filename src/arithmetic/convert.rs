//! Numbers of checkpoints, and random ones.

use half::{bf16, f16};

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

pub(crate) trait FromFloat: Copy {
    fn from_f32(x: f32) -> Self;
    /// Like [`Self::from_f32`], for finite `x` far from overflow; skips NaN handling.
    fn from_small(x: f32) -> Self;
    fn from_bf16(x: bf16) -> Self;
}

impl FromFloat for f32 {
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

impl FromFloat for bf16 {
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

impl FromFloat for f16 {
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

/// Odd constant of splitmix64's Weyl sequence.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Definition of a tensor's random numbers by index (row x columns + column), so that other programs can
/// reproduce them. Number i is `mean + step x b`, rounded to f32 after each of the two operations and
/// then to its format; `b` is the low (even i) or high (odd i) signed 32 bits of hash i / 2. With
/// `signs`, odd `b` flips the sign. Hash j is splitmix64's finalizer of `key + j x 0x9e3779b97f4a7c15`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomStream {
    /// Key of the stream, derived from the seed and the tensor.
    pub key: u64,
    pub mean: f32,
    /// Factor of the hash bits.
    pub step: f32,
    /// True if odd hash bits flip the sign.
    pub signs: bool,
}

/// Finalizer of SplitMix64: every input bit affects every output bit.
pub fn splitmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Derives a stream's key from a seed and a number for its purpose.
pub fn stream_key(seed: u64, role: u64) -> u64 {
    splitmix64(splitmix64(seed.wrapping_add(GOLDEN)) ^ role)
}

/// Fills `out` with numbers `start..` of a stream.
#[inline(always)]
pub(crate) fn fill<T: FromFloat>(stream: RandomStream, start: u64, out: &mut [T]) {
    let RandomStream { key, mean, step, signs } = stream;
    let value = |bits: u32| mean + bits.cast_signed() as f32 * step;
    if signs {
        each_draw(key, start, out, |bits| if bits & 1 == 0 { value(bits) } else { -value(bits) });
    } else {
        each_draw(key, start, out, value);
    }
}

/// Fills `out` with numbers `start..` of the stream `key`. Numbers 2i and 2i + 1 are the low and the
/// high half of hash i.
fn each_draw<T: FromFloat>(key: u64, start: u64, out: &mut [T], value: impl Fn(u32) -> f32) {
    let hash = |pair: u64| splitmix64(key.wrapping_add(pair.wrapping_mul(GOLDEN)));
    let low = |hash: u64| T::from_small(value(hash as u32));
    let high = |hash: u64| T::from_small(value((hash >> 32) as u32));
    let mut pair = start / 2;
    // a slice may start within a pair
    let (first, rest) = out.split_at_mut(out.len().min((start % 2) as usize));
    if let [first] = first {
        *first = high(hash(pair));
        pair += 1;
    }
    let (pairs, last) = rest.as_chunks_mut::<2>();
    for two in pairs {
        let hash = hash(pair);
        *two = [low(hash), high(hash)];
        pair += 1;
    }
    if let [last] = last {
        *last = low(hash(pair));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fast_rounding_is_the_exact_one(x in -1e30f32..1e30) {
            prop_assert_eq!(<bf16 as FromFloat>::from_small(x), bf16::from_f32(x));
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
        assert_eq!(<bf16 as FromFloat>::from_small(down).to_bits(), 0x3f80);
        assert_eq!(<bf16 as FromFloat>::from_small(up).to_bits(), 0x3f82);
    }
}
