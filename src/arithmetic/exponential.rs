//! Vectorizable exponentials and maxima for use inside `pulp`'s dispatch.
//!
//! The standard library's `exp` works number by number; softmaxes over a vocabulary or context, and
//! SiLU, need millions of exponentials per token.

/// Parallel partial results: several registers of any instruction set.
const LANES: usize = 16;

/// `e^x` within 2 units in the last place (Cephes' polynomial). Clamped below at e^-87.3 (the smallest
/// normal number) and above at e^88.3; keeps NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // large enough that adding it leaves the nearest integer in the lowest bits
    const SHIFT: f32 = 12_582_912.0;
    // ln 2 in two parts; an integer times the first is exact
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // comparisons instead of min and max, which would drop NaN
    let x = if x < -87.3 { -87.3 } else { x };
    let x = if x > 88.3 { 88.3 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let power = shifted - SHIFT;
    let x = x - power * LN_2[0] - power * LN_2[1];
    let mut sum = 1.987_569_1e-4;
    for term in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = sum * x + term;
    }
    let fraction = sum * (x * x) + x + 1.0;
    fraction * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// Maximum; negative infinity for an empty slice.
#[inline(always)]
pub(crate) fn max(numbers: &[f32]) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane = if *number > *lane { *number } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Replaces each number by `e^(x - max)` and returns their sum in f64.
#[inline(always)]
pub(crate) fn exponentials(numbers: &mut [f32], max: f32) -> f64 {
    let (chunks, rest) = numbers.as_chunks_mut::<LANES>();
    let mut lanes = [0.0f64; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *number = exp(*number - max);
            *lane += f64::from(*number);
        }
    }
    let mut of_rest = 0.0;
    for number in rest {
        *number = exp(*number - max);
        of_rest += f64::from(*number);
    }
    lanes.iter().sum::<f64>() + of_rest
}

/// Sum of `e^(x - max)` in f64.
#[inline(always)]
pub(crate) fn sum_of_exponentials(numbers: &[f32], max: f32) -> f64 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [0.0f64; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(exp(number - max));
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|number| f64::from(exp(number - max))).sum::<f64>()
}

/// Sum of `weight x (a - b)` in f64.
#[inline(always)]
pub(crate) fn weighted_difference(weights: &[f32], a: &[f32], b: &[f32]) -> f64 {
    let ((weights, w), (a, x), (b, y)) =
        (weights.as_chunks::<LANES>(), a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0f64; LANES];
    for ((weights, a), b) in weights.iter().zip(a).zip(b) {
        for (((lane, weight), a), b) in lanes.iter_mut().zip(weights).zip(a).zip(b) {
            *lane += f64::from(*weight) * f64::from(a - b);
        }
    }
    let rest = w.iter().zip(x).zip(y);
    lanes.iter().sum::<f64>() + rest.map(|((w, a), b)| f64::from(*w) * f64::from(a - b)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exponentials_are_those_of_f64(x in -87.3f32..88.3) {
            let wanted = f64::from(x).exp();
            prop_assert!((f64::from(exp(x)) / wanted - 1.0).abs() < 2.5e-7, "{x}");
        }

        #[test]
        fn sums_agree_with_f64_at_every_length(numbers in prop::collection::vec(-30.0f32..30.0, 1..70), shift in -1.0f32..1.0) {
            let greatest = max(&numbers);
            prop_assert_eq!(greatest, numbers.iter().copied().fold(f32::MIN, f32::max));
            let wanted: f64 = numbers.iter().map(|x| f64::from(x - greatest).exp()).sum();
            let mut out = numbers.clone();
            prop_assert!((exponentials(&mut out, greatest) / wanted - 1.0).abs() < 1e-6);
            prop_assert!((sum_of_exponentials(&numbers, greatest) / wanted - 1.0).abs() < 1e-6);
            let others: Vec<f32> = numbers.iter().map(|x| x * 0.5 + shift).collect();
            let wanted: f64 = out.iter().zip(&numbers).zip(&others)
                .map(|((w, a), b)| f64::from(*w) * (f64::from(*a) - f64::from(*b))).sum();
            let found = weighted_difference(&out, &numbers, &others);
            prop_assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "{found} {wanted}");
        }
    }

    #[test]
    fn the_ends_are_finite_and_nothing_hides_what_is_no_number() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 2e-38 && exp(1e30).is_finite());
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(max(&[]), f32::NEG_INFINITY);
        assert!(sum_of_exponentials(&[f32::NAN; 20], 0.0).is_nan());
    }
}
