//! e4m3 numbers (OCP 8-bit floating point, 2023): 4 exponent bits, 3 significand bits, no infinities,
//! one NaN.

pub const LARGEST: f32 = 448.0;

/// f32 bits of the largest e4m3 number, of the smallest normal one (2^-6), and of infinity.
const MOST_BITS: u32 = 0x43e0_0000;
const LEAST_NORMAL_BITS: u32 = 0x3c80_0000;
const INFINITY_BITS: u32 = 0x7f80_0000;
/// f32 whose last bit equals the unit of e4m3's subnormal numbers, 2^-9.
const SUBNORMAL: f32 = 16384.0;
/// Difference of the exponent biases of f32 and e4m3, shifted to e4m3's exponent bits.
const BIAS: u32 = 120 << 3;

/// Rounds to nearest, ties to even; saturates at 448; keeps NaN.
#[inline(always)]
pub fn to_e4m3(x: f32) -> u8 {
    let (sign, size) = (x.to_bits() >> 24 & 0x80, x.to_bits() & 0x7fff_ffff);
    let nearest = if size > INFINITY_BITS {
        0x7f
    } else if size > MOST_BITS {
        0x7e
    } else if size < LEAST_NORMAL_BITS {
        (f32::from_bits(size) + SUBNORMAL).to_bits() - SUBNORMAL.to_bits()
    } else {
        ((size + 0x7_ffff + (size >> 20 & 1)) >> 20) - BIAS
    };
    (sign | nearest) as u8
}

/// Decodes an e4m3 number.
#[inline(always)]
pub fn from_e4m3(bits: u8) -> f32 {
    let (sign, size) = (u32::from(bits & 0x80) << 24, u32::from(bits & 0x7f));
    let number = match size {
        0x7f => f32::NAN,
        0..8 => size as f32 / 512.0,
        _ => f32::from_bits((size + BIAS) << 20),
    };
    f32::from_bits(sign | number.to_bits())
}

/// Scale that maps the largest magnitude to e4m3's largest number. NaN if any number is not finite, so
/// that scaling does not hide it.
pub fn scale_of(numbers: &[f32]) -> f32 {
    // magnitudes are ordered like their bits, with NaN at the top
    let largest = numbers.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
    if largest < INFINITY_BITS { f32::from_bits(largest) / LARGEST } else { f32::NAN }
}

/// Quantizes numbers divided by `scale` to e4m3; zeros if the scale is not positive.
pub fn quantize(numbers: &[f32], scale: f32, out: &mut [u8]) {
    if scale > 0.0 {
        out.iter_mut().zip(numbers).for_each(|(out, x)| *out = to_e4m3(x / scale));
    } else {
        out.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of e4m3 but NaN, from the format's definition.
    fn all() -> Vec<(u8, f32)> {
        let positive = (0_u8..0x7f).map(|bits| {
            let (exponent, significand) = (i32::from(bits >> 3), f32::from(bits & 7));
            let number = match exponent {
                0 => significand / 8.0 * 2_f32.powi(-6),
                _ => (1.0 + significand / 8.0) * 2_f32.powi(exponent - 7),
            };
            (bits, number)
        });
        positive.flat_map(|(bits, x)| [(bits, x), (bits | 0x80, -x)]).collect()
    }

    #[test]
    fn bits_and_numbers_are_those_of_the_format() {
        let all = all();
        assert_eq!(all.iter().map(|(_, x)| *x).fold(0.0, f32::max), LARGEST);
        for &(bits, x) in &all {
            assert_eq!((from_e4m3(bits).to_bits(), to_e4m3(x)), (x.to_bits(), bits), "{x}");
        }
        for bits in [0x7f, 0xff] {
            assert!(from_e4m3(bits).is_nan() && to_e4m3(f32::from_bits(0x7fc0_0000)) == 0x7f);
        }
        for (x, bits) in [(448.1, 0x7e), (f32::INFINITY, 0x7e), (-1e30, 0xfe), (f32::MIN_POSITIVE, 0)] {
            assert_eq!(to_e4m3(x), bits, "{x}");
        }
    }

    #[test]
    fn other_numbers_become_the_nearest_and_of_two_the_even_one() {
        let all = all();
        let best = |x: f32| all.iter().map(|(_, y)| (x - y).abs()).fold(f32::INFINITY, f32::min);
        for at in -46_000..46_000 {
            let x = at as f32 / 100.0 + 0.003;
            assert!(((x - from_e4m3(to_e4m3(x))).abs() - best(x)).abs() <= 1e-6, "{x}");
        }
        // halfway between neighbours, normal and subnormal
        for bits in 0_u8..0x7e {
            let (low, high) = (from_e4m3(bits), from_e4m3(bits + 1));
            assert_eq!(to_e4m3((low + high) / 2.0), bits + bits % 2, "{low} {high}");
        }
    }

    #[test]
    fn a_scale_makes_the_largest_number_the_formats_and_says_where_one_is_not_finite() {
        let x = [0.5, -3.0, 1e-9, 2.0];
        let mut bits = [0; 4];
        quantize(&x, scale_of(&x), &mut bits);
        let again: Vec<f32> = bits.iter().map(|bits| from_e4m3(*bits) * scale_of(&x)).collect();
        assert!((again[1] + 3.0).abs() < 1e-6, "{again:?}");
        for (x, again) in x.iter().zip(&again) {
            assert!((x - again).abs() <= x.abs() / 16.0 + 3.0 / 448.0 / 1024.0, "{x} {again}");
        }
        quantize(&[0.0; 4], scale_of(&[0.0; 4]), &mut bits);
        assert_eq!((bits, scale_of(&[0.0; 4])), ([0; 4], 0.0));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(scale_of(&[1.0, odd, 2.0]).is_nan());
            quantize(&[1.0, odd], f32::NAN, &mut bits[..2]);
        }
    }
}
