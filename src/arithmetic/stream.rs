//! Random numbers that follow from a key and their index alone.

use crate::convert::One;

/// Odd constant of the Weyl sequence that splitmix64 hashes.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// How the numbers of one tensor follow from their index (row x columns + column), for whoever
/// makes them elsewhere: number i is `mean + step x b`, rounded to f32 after each of the two
/// operations and then to its format, where `b` are the low (i even) or the high 32 bits, signed,
/// of hash i / 2; its sign is turned where `signs` and `b` is odd. Hash j is splitmix64's finaliser
/// of `key + j x 0x9e3779b97f4a7c15`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomStream {
    /// The key of the stream, which follows from the seed and the tensor.
    pub key: u64,
    /// The mean of the numbers that are drawn.
    pub mean: f32,
    /// By which a number grows with its hash.
    pub step: f32,
    /// Whether odd hashes turn the sign.
    pub signs: bool,
}

/// The finaliser of splitmix64: every input bit reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a stream, which follows from a seed and a number for what the stream is of.
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
    // a slice may begin within a pair
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
