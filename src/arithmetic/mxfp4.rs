//! mxfp4 (OCP Microscaling, 2023): e2m1 numbers, two a byte with the first in the low half, and a power of two for each
//! 32 of a row.

use crate::Number;

/// Numbers that share a scale.
pub const TOGETHER: usize = 32;

/// Numbers of e2m1, by their four bits.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Power of two of a scale: an exponent with f32's bias, or NaN.
fn scale(bits: u8) -> f32 {
    match bits {
        0 => f32::MIN_POSITIVE / 2.0,
        0xFF => f32::NAN,
        bits => f32::from_bits(u32::from(bits) << 23),
    }
}

/// Fills `out` with numbers of a row, starting at column `first`. `blocks` and `scales` hold the whole row. bf16 and f32
/// hold all of them exactly.
pub fn fill<T: Number>(blocks: &[u8], scales: &[u8], first: usize, out: &mut [T]) {
    let mut wide = [0.0f32; TOGETHER];
    let mut done = 0;
    while done < out.len() {
        let (column, count) =
            (first + done, (out.len() - done).min(TOGETHER - (first + done) % TOGETHER));
        let scale = scale(scales[column / TOGETHER]);
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
    fn the_ends_of_scales_are_a_subnormal_and_nan() {
        assert_eq!(scale(0), 2f32.powi(-127));
        assert_eq!(scale(254), 2f32.powi(127));
        assert!(scale(255).is_nan());
    }
}
