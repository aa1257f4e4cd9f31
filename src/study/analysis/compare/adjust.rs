//! Many comparisons: the Benjamini-Hochberg adjustment.
//!
//! Of a hundred ratios that are all 1, some five have a 95% interval that excludes 1. The adjustment
//! bounds the share of such among those called different (the false discovery rate); it holds for
//! comparisons that are independent or positively dependent, as those are that share a baseline. Holm's,
//! which bounds the chance of a single one, asks for p-values of 0.05 / comparisons, finer than a
//! bootstrap of 2,000 resamples gives from 50 comparisons on.

use serde::Serialize;

/// Below this adjusted p-value a difference is called one.
pub const LEVEL: f64 = 0.05;

/// What remains of the differences when their number is taken into account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Adjusted {
    /// The name of the adjustment, `Benjamini-Hochberg`, for output.
    pub method: &'static str,
    /// The share of false ones among those called different (the expectation is at most this).
    pub false_discovery_rate: f64,
    /// Ratios that have a p-value: measured, with samples enough.
    pub tested: usize,
    /// How many adjusted p-values are at most the rate.
    pub differ: usize,
}

/// Adjusted p-values, in the order of `p`: the least false discovery rate at which each would still
/// be called a difference.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0f64;
    // from the greatest down: rank is its place among the ascending ones
    for (above, index) in order.into_iter().enumerate() {
        let rank = p.len() - above;
        least = least.min(p[index] * p.len() as f64 / rank as f64);
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_in_the_paper() {
        // Benjamini and Hochberg (1995), 15 p-values: 4 are significant at 0.05
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0000,
        ];
        let adjusted = benjamini_hochberg(&p);
        assert_eq!(adjusted.iter().filter(|q| **q <= 0.05).count(), 4);
        assert!((adjusted[0] - 0.0015).abs() < 1e-12 && (adjusted[3] - 0.035_625).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn never_below_p_never_above_one_and_in_the_same_order(
            p in prop::collection::vec(0.0f64..=1.0, 1..40), turn in 0usize..40,
        ) {
            let adjusted = benjamini_hochberg(&p);
            let most = p.len() as f64;
            for (p, q) in p.iter().zip(&adjusted) {
                prop_assert!(*q >= *p - 1e-12 && *q <= 1.0 && *q <= p * most + 1e-12);
            }
            for i in 0..p.len() {
                for j in 0..p.len() {
                    prop_assert!(p[i] > p[j] || adjusted[i] <= adjusted[j]);
                }
            }
            // the order in which they come does not matter
            let turn = turn % p.len();
            let mut turned = p.clone();
            turned.rotate_left(turn);
            let mut back = benjamini_hochberg(&turned);
            back.rotate_right(turn);
            prop_assert_eq!(back, adjusted);
        }
    }
}
