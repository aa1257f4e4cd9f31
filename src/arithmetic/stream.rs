//! Random numbers determined by a key and an index.

use crate::convert::One;

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

/// Finalizer of splitmix64: every input bit affects every output bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Derives a stream's key from a seed and a number for its purpose.
pub fn stream_key(seed: u64, role: u64) -> u64 {
    mix(mix(seed.wrapping_add(GOLDEN)) ^ role)
}

/// Fills `out` with numbers `start..` of a stream.
#[inline(always)]
pub(crate) fn fill<T: One>(stream: RandomStream, start: u64, out: &mut [T]) {
    let RandomStream { key, mean, step, signs } = stream;
    let value = |bits: u32| mean + bits.cast_signed() as f32 * step;
    if signs {
        each(key, start, out, |bits| if bits & 1 == 0 { value(bits) } else { -value(bits) });
    } else {
        each(key, start, out, value);
    }
}

/// Fills `out` with numbers `start..` of the stream `key`. Numbers 2i and 2i + 1 are the low and the
/// high half of hash i.
fn each<T: One>(key: u64, start: u64, out: &mut [T], value: impl Fn(u32) -> f32) {
    let hash = |pair: u64| mix(key.wrapping_add(pair.wrapping_mul(GOLDEN)));
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
