//! Quality of an architecture on a text: means over tokens with intervals, computed from per-window
//! sums, plus the basis of a run's quality.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Backend, Provenance};
use base::statistics::bootstrap_mean;
use base::text::counted;
use plan::DType;

/// Minimum number of windows for reliable intervals.
pub const FEW_WINDOWS: usize = 6;

/// Sums over one window's predicted tokens, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowQuality {
    /// Predicted tokens: all of the window except the first.
    pub predicted: u32,
    pub nll: f64,
    /// KL(standard || architecture) over the whole vocabulary.
    pub kl: f64,
    /// Tokens with the same most likely token as `standard`.
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

/// Quality of an architecture's predictions and its distance from `standard`. Means are over predicted
/// tokens; intervals are 95 %, from a bootstrap over windows, null for a single window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quality {
    /// Negative log-likelihood in nats per token.
    pub nll: f64,
    /// Perplexity: exp(`nll`).
    pub perplexity: f64,
    /// KL(standard || architecture) over the whole vocabulary, in nats per token.
    pub kl: f64,
    /// Share of tokens (0 to 1) with the same most likely token as `standard`.
    pub agreement: f64,
    /// 95 % interval of `nll`.
    pub nll_ci95: Option<[f64; 2]>,
    /// 95 % interval of `perplexity`.
    pub perplexity_ci95: Option<[f64; 2]>,
    /// 95 % interval of `kl`.
    pub kl_ci95: Option<[f64; 2]>,
    /// 95 % interval of `agreement`.
    pub agreement_ci95: Option<[f64; 2]>,
}

/// Quality of a run's model in its architecture, and its basis. Always measured, even if the run's
/// latencies are simulated.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunQuality {
    #[serde(flatten)]
    pub quality: Quality,
    /// File name of the evaluation text.
    pub text: String,
    /// Hash of the tokens as cut into windows: equal for the same text, context and limit.
    pub text_hash: String,
    /// Tokens per window.
    pub context: usize,
    pub windows: usize,
    /// Tensor-parallel size used for evaluation: the run's, unless the architecture computes the same at
    /// any TP.
    pub tp: u32,
    /// Weight format used for evaluation: the run's if evaluated, else another.
    #[schemars(with = "String")]
    pub dtype: DType,
    /// Hash of shape and weights.
    pub weights: String,
    pub backend: Backend,
    pub provenance: Provenance,
    /// Reference model whose `standard` the comparison uses, if different: the model it was trained
    /// from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// End of the evaluation, RFC 3339 in UTC.
    pub evaluated: String,
}

impl RunQuality {
    /// Basis of the numbers without TP and format, which may differ between runs: `measured on cpu,
    /// text.txt, 10 windows of 512 tokens`.
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

    /// Basis of the numbers, including TP and format.
    pub fn full_basis(&self) -> String {
        format!("{}, TP {}, {}", self.basis(), self.tp, self.dtype)
    }
}

/// Quality over windows of equal length; `None` without predicted tokens.
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
        // the exponential is monotonic, so percentiles carry over
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
