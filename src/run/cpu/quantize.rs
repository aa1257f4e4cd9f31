//! 8-bit messages. Ranks of this backend share memory, so messages stay f32 with rounded values; links count the
//! bytes of the message format.

use arithmetic::e4m3::{self, from_e4m3, to_e4m3};
use plan::{CommDType, SCALED_TOGETHER};

/// Rounds `x` to a message format. Each group of [`SCALED_TOGETHER`] columns of a row shares a scale that maps its
/// largest magnitude to the format's maximum. Reads x twice.
pub(crate) fn quantize(x: &[f32], columns: usize, to: CommDType, y: &mut [f32]) {
    let together = SCALED_TOGETHER as usize;
    for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        for (x, y) in x.chunks(together).zip(y.chunks_mut(together)) {
            let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let (most, nearest): (f32, fn(f32) -> f32) = match to {
                CommDType::Activations => {
                    y.copy_from_slice(x);
                    continue;
                }
                CommDType::F8 => (e4m3::MOST, |x| from_e4m3(to_e4m3(x))),
                CommDType::Int8 => (127.0, f32::round_ties_even),
            };
            let scale = largest / most;
            for (y, x) in y.iter_mut().zip(x) {
                *y = if scale > 0.0 { nearest(x / scale) * scale } else { *x };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn errors_are_within_half_a_step_of_the_largest(
            rows in 1usize..4, columns in 1usize..300, seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let x: Vec<f32> = (0..rows * columns).map(|_| (random.f32() - 0.5) * 20.0).collect();
            for (to, worst) in [(CommDType::Int8, 0.5 / 127.0), (CommDType::F8, 16.0 / 448.0)] {
                let mut y = vec![f32::NAN; x.len()];
                quantize(&x, columns, to, &mut y);
                for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
                    for (x, y) in x.chunks(128).zip(y.chunks(128)) {
                        let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                        for (x, y) in x.iter().zip(y) {
                            prop_assert!((x - y).abs() <= largest * worst * 1.001, "{to}: {x} {y}");
                        }
                    }
                }
                // what was said once is said again alike
                let mut again = y.clone();
                quantize(&y, columns, to, &mut again);
                for (again, y) in again.iter().zip(&y) {
                    prop_assert!((again - y).abs() <= 1e-5 * y.abs().max(1e-6), "{to}");
                }
            }
        }
    }

    #[test]
    fn zeros_stay_and_what_is_not_finite_is_not_hidden() {
        let mut y = [1.0; 4];
        quantize(&[0.0; 4], 4, CommDType::F8, &mut y);
        assert_eq!(y, [0.0; 4]);
        quantize(&[f32::NAN, 1.0, 2.0, 3.0], 4, CommDType::Int8, &mut y);
        assert!(y[0].is_nan() && (y[3] - 3.0).abs() < 1e-6, "{y:?}");
        quantize(&[f32::INFINITY, 1.0, 2.0, 3.0], 4, CommDType::Int8, &mut y);
        assert!(!y[0].is_finite());
    }
}
