//! Quality of an architecture on a text, from what it lost on each window: means over tokens, with intervals.

use serde::{Deserialize, Serialize};

use crate::base::statistics::bootstrap_mean;
use crate::run::WindowQuality;

/// Below so many windows the intervals are too narrow to be relied on.
pub const FEW_WINDOWS: usize = 6;

/// How well an architecture predicts a text, and how far it is from `standard`. Means are over predicted
/// tokens; intervals are of 95 %, from a bootstrap over windows, and `None` of one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Negative log-likelihood, in nats a token.
    pub nll: f64,
    /// `e^nll`.
    pub perplexity: f64,
    /// KL(standard || it) over the whole vocabulary, in nats a token.
    pub kl: f64,
    /// Share of the tokens (0 to 1) at which its likeliest token is `standard`'s.
    pub agreement: f64,
    /// The interval of `nll`.
    pub nll_ci95: Option<[f64; 2]>,
    /// The interval of `perplexity`.
    pub perplexity_ci95: Option<[f64; 2]>,
    /// The interval of `kl`.
    pub kl_ci95: Option<[f64; 2]>,
    /// The interval of `agreement`.
    pub agreement_ci95: Option<[f64; 2]>,
}

/// The quality on windows that are alike in length; `None` without windows or predicted tokens.
pub fn quality(windows: &[WindowQuality]) -> Option<Quality> {
    let predicted: u32 = windows.iter().map(|window| window.predicted).sum();
    if predicted == 0 {
        return None;
    }
    let mean = |of: fn(&WindowQuality) -> f64| {
        let means: Vec<f64> = windows.iter().map(|w| of(w) / f64::from(w.predicted)).collect();
        (windows.iter().map(of).sum::<f64>() / f64::from(predicted), bootstrap_mean(&means))
    };
    let (nll, nll_ci95) = mean(|window| window.nll);
    let (kl, kl_ci95) = mean(|window| window.kl);
    let (agreement, agreement_ci95) = mean(|window| f64::from(window.agreed));
    Some(Quality {
        nll,
        perplexity: nll.exp(),
        kl,
        agreement,
        nll_ci95,
        // the exponential keeps order, so that percentiles move with it
        perplexity_ci95: nll_ci95.map(|ends| ends.map(f64::exp)),
        kl_ci95,
        agreement_ci95,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_tokens_and_intervals_over_windows() {
        assert_eq!(quality(&[]), None);
        let window = |nll, kl, agreed| WindowQuality { predicted: 4, nll, kl, agreed };
        let one = quality(&[window(8.0, 1.0, 3)]).unwrap();
        assert_eq!((one.nll, one.kl, one.agreement), (2.0, 0.25, 0.75));
        assert_eq!((one.perplexity, one.nll_ci95, one.kl_ci95), (2.0f64.exp(), None, None));
        let two = quality(&[window(8.0, 1.0, 3), window(16.0, 0.0, 4)]).unwrap();
        assert_eq!((two.nll, two.kl, two.agreement), (3.0, 0.125, 0.875));
        // of two windows a bootstrap draws one, the other or both
        assert_eq!(two.nll_ci95, Some([2.0, 4.0]));
        assert_eq!(two.perplexity_ci95, Some([2.0f64.exp(), 4.0f64.exp()]));
        assert_eq!((two.kl_ci95, two.agreement_ci95), (Some([0.0, 0.25]), Some([0.75, 1.0])));
    }
}
