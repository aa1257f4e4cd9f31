//! Quality of an architecture on a text, from what it lost on each window: means over tokens, with intervals; and
//! that of a run, which says on which text it was found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Backend, Provenance};
use base::statistics::bootstrap_mean;
use base::text::counted;
use plan::DType;

/// Below so many windows the intervals are too narrow to be relied on.
pub const FEW_WINDOWS: usize = 6;

/// What an architecture lost on one window: sums over its predicted tokens, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowQuality {
    /// Predicted tokens: all of the window but its first.
    pub predicted: u32,
    /// Negative log-likelihood of the tokens.
    pub nll: f64,
    /// KL(standard || it) over the whole vocabulary.
    pub kl: f64,
    /// Tokens at which the likeliest is `standard`'s likeliest, too.
    pub agreed: u32,
}

impl std::ops::AddAssign for WindowQuality {
    fn add_assign(&mut self, other: Self) {
        self.predicted += other.predicted;
        self.nll += other.nll;
        self.kl += other.kl;
        self.agreed += other.agreed;
    }
}

/// How well an architecture predicts a text, and how far it is from `standard`. Means are over predicted
/// tokens; intervals are of 95 %, from a bootstrap over windows, and `None` of one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quality {
    /// Negative log-likelihood, in nats a token.
    pub nll: f64,
    /// Perplexity, the exponential of `nll` (no unit).
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

/// The quality of a run's model as it is wired in the run, and where it was found: always measured, also where the
/// run's times are simulated.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunQuality {
    /// Likelihood, divergence and agreement with their intervals.
    #[serde(flatten)]
    pub quality: Quality,
    /// The name of the text's file.
    pub text: String,
    /// A hash of the text's tokens as they were cut into windows: the same of the same text, context and limit.
    pub text_hash: String,
    /// Tokens of a window.
    pub context: usize,
    /// Windows of the text.
    pub windows: usize,
    /// The number of ranks (TP) at which it was evaluated: the run's,
    /// unless the architecture computes the same at each.
    pub tp: u32,
    /// The format of the weights in which it was evaluated: the run's where that was done, else another.
    #[schemars(with = "String")]
    pub dtype: DType,
    /// A hash of shape and weights.
    pub weights: String,
    /// The backend that evaluated the model.
    pub backend: Backend,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// The model whose `standard` it is compared with, where that is another: the one that it was trained from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// When the evaluation ended, RFC 3339 in UTC.
    pub evaluated: String,
}

impl RunQuality {
    /// What the numbers rest on, but for TP and format, in which runs may differ:
    /// `measured on cpu, text.txt, 10 windows of 512 tokens`.
    pub fn basis(&self) -> String {
        let windows = counted(self.windows, "window");
        let beside = self.reference.iter().map(|model| format!(", KL from standard of {model}"));
        format!(
            "{} on {}, {}, {windows} of {} tokens{}",
            self.provenance,
            self.backend,
            self.text,
            self.context,
            beside.collect::<String>()
        )
    }

    /// What the numbers rest on.
    pub fn told(&self) -> String {
        format!("{}, TP {}, {}", self.basis(), self.tp, self.dtype)
    }
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
