//! Benjamini-Hochberg adjustment for many comparisons.
//!
//! Of a hundred ratios that are all 1, about five have a 95% interval that excludes 1. The adjustment bounds the share
//! of false positives among the reported differences (the false discovery rate). It holds for comparisons that are
//! independent or positively dependent, as with a shared baseline. Holm's method, which bounds the chance of a single
//! false positive, needs p-values of 0.05 / comparisons: finer than a bootstrap of 2,000 resamples can give for 50 or
//! more comparisons.

use serde::Serialize;

/// Significance level: a difference is reported if its adjusted p-value is at most this.
pub const LEVEL: f64 = 0.05;

/// Number of significant differences after adjustment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Adjusted {
    pub method: &'static str,
    /// Bound on the expected share of false positives among the reported differences.
    pub false_discovery_rate: f64,
    /// Ratios with a p-value: measured, with enough samples.
    pub tested: usize,
    /// Adjusted p-values at or below the rate.
    pub differ: usize,
}

/// Adjusted p-values in the order of `p`: the smallest false discovery rate at which each difference would still be
/// reported.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0f64;
    // from the largest down; rank counts in ascending order
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
