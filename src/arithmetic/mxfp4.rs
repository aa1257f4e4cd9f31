//! mxfp4 (OCP Microscaling, 2023): e2m1 numbers, two a byte with the first in the low half, and a power of two for each
//! 32 of a row.

use crate::Number;

/// Numbers that share a scale.
pub const MXFP4_BLOCK: usize = 32;

/// Numbers of e2m1, by their four bits.
pub(crate) static E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Power of two of a scale: an exponent with f32's bias, or NaN.
fn scale(bits: u8) -> f32 {
    match bits {
        0 => f32::MIN_POSITIVE / 2.0,
        0xFF => f32::NAN,
        bits => f32::from_bits(u32::from(bits) << 23),
    }
}

/// Rounds to nearest, ties to even, in blocks of [`MXFP4_BLOCK`] with the scale 2^(floor(log2 max) - 2) (OCP Microscaling 1.0).
/// Exact for numbers that came from mxfp4.
pub fn quantize(numbers: &[f32], blocks: &mut [u8], scales: &mut [u8]) {
    let blocks = blocks.chunks_exact_mut(MXFP4_BLOCK / 2).zip(scales);
    for (numbers, (block, scale)) in numbers.chunks_exact(MXFP4_BLOCK).zip(blocks) {
        // magnitudes are ordered like their bits, with infinity and NaN at the top
        let largest = numbers.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7FFF_FFFF)) >> 23;
        if largest == 0xFF {
            *scale = 0xFF;
            continue;
        }
        *scale = largest.saturating_sub(2).max(1) as u8;
        let inverse = f32::from_bits((254 - u32::from(*scale)) << 23);
        let nearest = |x: f32| {
            let size = x.abs() * inverse;
            let [low, high] = [[0.25, 1.25, 2.5, 5.0], [0.75, 1.75, 3.5, f32::INFINITY]];
            let above = low.map(|bound| u8::from(size > bound)).iter().sum::<u8>();
            let from = high.map(|bound| u8::from(size >= bound)).iter().sum::<u8>();
            (above + from) | u8::from(x.is_sign_negative()) << 3
        };
        for (byte, [first, second]) in block.iter_mut().zip(numbers.as_chunks().0) {
            *byte = nearest(*first) | nearest(*second) << 4;
        }
    }
}

/// Fills `out` with numbers of a row, starting at column `first`. `blocks` and `scales` hold the whole row. bf16 and f32
/// hold all of them exactly.
pub fn fill<T: Number>(blocks: &[u8], scales: &[u8], first: usize, out: &mut [T]) {
    let mut wide = [0.0f32; MXFP4_BLOCK];
    let mut done = 0;
    while done < out.len() {
        let (column, count) =
            (first + done, (out.len() - done).min(MXFP4_BLOCK - (first + done) % MXFP4_BLOCK));
        let scale = scale(scales[column / MXFP4_BLOCK]);
        for (at, wide) in wide[..count].iter_mut().enumerate() {
            let byte = blocks[(column + at) / 2];
            let half = if (column + at).is_multiple_of(2) { byte & 15 } else { byte >> 4 };
            *wide = E2M1[usize::from(half)] * scale;
        }
        T::from_f32_bytes(bytemuck::cast_slice(&wide[..count]), &mut out[done..done + count]);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_pairs_times_a_power_of_two() {
        // 64 numbers: 0, 1, ... 15 in turn, first with a scale of 2, then of 1/4
        let blocks: Vec<u8> = (0..32u8).map(|at| (at * 2 % 16) | (((at * 2 + 1) % 16) << 4)).collect();
        let scales = [128, 125];
        let mut all = vec![f32::NAN; 64];
        fill(&blocks, &scales, 0, &mut all);
        assert_eq!(all[..8], [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0]);
        assert_eq!(all[9], -1.0);
        assert_eq!(all[32 + 7], 1.5);
        assert_eq!(all[63], -1.5);
        for first in 0..64 {
            for count in [1, 2, 31, 40] {
                let mut some = vec![half::bf16::ZERO; count.min(64 - first)];
                fill(&blocks, &scales, first, &mut some);
                let wide: Vec<f32> = some.iter().map(|x| x.to_f32()).collect();
                assert_eq!(wide, all[first..first + some.len()]);
            }
        }
    }

    #[test]
    fn numbers_become_the_nearest_and_those_of_the_format_stay() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut blocks, mut scales) = ([0; 32], [0; 2]);
        for round in 0..200 {
            let size = 2f32.powi(round % 60 - 30);
            let numbers: Vec<f32> = (0..64).map(|_| (random.f32() - 0.5) * size).collect();
            quantize(&numbers, &mut blocks, &mut scales);
            let mut nearest = [0.0f32; 64];
            fill(&blocks, &scales, 0, &mut nearest);
            for (at, (x, found)) in numbers.iter().zip(nearest).enumerate() {
                let scale = scale(scales[at / MXFP4_BLOCK]);
                let best = E2M1.iter().map(|y| (x - y * scale).abs()).fold(f32::INFINITY, f32::min);
                assert_eq!((x - found).abs(), best, "{x} {found}");
            }
            let largest = numbers[..32].iter().fold(0f32, |most, x| most.max(x.abs()));
            assert!((4.0..8.0).contains(&(largest / scale(scales[0]))));
            // any block of the format, even one that lacks large numbers
            blocks
                .iter_mut()
                .for_each(|byte| *byte = random.u8(..) & [0xFF, 0x99, 0xBB][round as usize % 3]);
            fill(&blocks, &scales, 0, &mut nearest);
            quantize(&nearest, &mut blocks, &mut scales);
            let mut again = [0.0f32; 64];
            fill(&blocks, &scales, 0, &mut again);
            assert_eq!(again, nearest);
        }
        let halfway = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0, 6.0];
        let mut numbers = [0.0; 32];
        numbers[..9].copy_from_slice(&halfway);
        quantize(&numbers, &mut blocks[..16], &mut scales[..1]);
        fill(&blocks, &scales, 0, &mut numbers);
        assert_eq!(numbers[..9], [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -4.0, 6.0]);
        numbers[3] = f32::NAN;
        quantize(&numbers, &mut blocks[..16], &mut scales[..1]);
        assert!(scale(scales[0]).is_nan());
    }

    #[test]
    fn the_ends_of_scales_are_a_subnormal_and_nan() {
        assert_eq!(scale(0), 2f32.powi(-127));
        assert_eq!(scale(254), 2f32.powi(127));
        assert!(scale(255).is_nan());
    }
}
