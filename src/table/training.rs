//! Trainings: request, progress and results, and their summary for runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quality, Status};
use base::statistics::{interval_of_few, mean};
use plan::Architecture;

pub const TRAINING: u32 = 1;

/// Requested training: everything its numbers depend on, except the contents of the named files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingSpec {
    /// Checkpoint directory, or built-in shape trained from random weights.
    pub model: String,
    /// True if training starts from random weights.
    pub from_scratch: bool,
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// Trained layers; null for the whole model.
    pub layers: Option<Vec<u32>>,
    /// Text file.
    pub text: String,
    /// Number of tokens used; null for all.
    pub tokens: Option<usize>,
    /// Percentage of tokens held out, at the end of the text.
    pub held_out_pct: f64,
    pub steps: u32,
    /// Windows per step.
    pub batch: u32,
    /// Predicted tokens per window.
    pub context: u32,
    /// Peak learning rate.
    pub lr: f64,
    /// Warmup steps of the learning rate.
    pub warmup: u32,
    /// Weight decay of matrices, multiplied by the learning rate.
    pub weight_decay: f64,
    /// Maximum gradient norm per step.
    pub clip: f64,
    /// Weight of the KL loss to the unconverted model; null without distillation.
    pub distil: Option<f64>,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Seed of window order and random weights.
    pub seed: u64,
    /// Steps between evaluations on the held-out text.
    pub look_every: u32,
}

/// Training: request, progress and results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Training {
    pub version: u32,
    /// Folder name, derived from the spec.
    pub id: String,
    pub status: Status,
    /// Reason for a failure or interruption.
    pub reason: Option<String>,
    pub spec: TrainingSpec,
    /// Hash of the initial weights; must match on resume.
    pub weights: String,
    /// Hash of the text's tokens; must match on resume.
    pub text_hash: String,
    /// Size of the training set in tokens.
    pub train_tokens: usize,
    /// Size of the held-out set in tokens.
    pub held_out_tokens: usize,
    /// Total parameters.
    pub parameters: u64,
    pub trained_parameters: u64,
    /// Data-parallel replicas: sets of ranks that share a step's windows.
    pub replicas: usize,
    /// Start, RFC 3339 in UTC.
    pub created: String,
    /// Last write, RFC 3339 in UTC.
    pub updated: String,
    /// Steps until the last checkpoint.
    pub step: u32,
    /// Duration of these steps (s).
    pub seconds: f64,
    /// Null before the first checkpoint.
    pub speed: Option<TrainingSpeed>,
    /// Mean loss over the last tenth of the steps, in nats per token; null until finished.
    pub loss: Option<f64>,
    /// Quality on the held-out text before the first step; null from scratch.
    pub before: Option<Quality>,
    /// Quality on the held-out text after the last step. KL is relative to the initial model in
    /// `standard`; from scratch, to the trained model itself in `standard`.
    pub after: Option<Quality>,
    /// HF directory of the result.
    pub output: PathBuf,
    /// Machine of the measurements.
    pub machine: String,
    /// True for a model of a few million parameters on a short text, whose curves only hint at larger
    /// models.
    pub miniature: bool,
}

/// Training speed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingSpeed {
    /// Tokens per second, excluding evaluations on the held-out text.
    pub tokens_per_s: f64,
    /// Matrix-product FLOP per token, forward and backward.
    pub flop_per_token: f64,
    /// Peak speed of large matrix products on the same threads (FLOP/s): the maximum of measurements
    /// before each part of the training and after the last, because other programs can only lower it.
    pub gemm_flop_per_s: f64,
    /// Share of that peak reached by training (0 to 1); null if above 1, which means that other programs
    /// slowed the peak measurement more than the training.
    #[serde(deserialize_with = "share")]
    #[schemars(with = "Option<f64>")]
    pub gemm_share: Option<f64>,
}

/// Reads a share and drops values above 1, which earlier records contain.
fn share<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::deserialize(from)?.filter(|share| *share <= 1.0))
}

impl TrainingSpeed {
    /// Speed from the token rate, the FLOP per token and the measured peak.
    pub fn new(tokens_per_s: f64, flop_per_token: f64, gemm_flop_per_s: f64) -> Self {
        let gemm_share =
            Some(tokens_per_s * flop_per_token / gemm_flop_per_s).filter(|share| *share <= 1.0);
        Self { tokens_per_s, flop_per_token, gemm_flop_per_s, gemm_share }
    }
}

/// Training step: one line of the curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingStep {
    /// Step number, from 1.
    pub step: u32,
    /// Loss of its windows before the update, in nats per token.
    pub nll: f64,
    /// KL to the unconverted model; null without distillation.
    pub kl: Option<f64>,
    pub rate: f64,
    /// Norm over all gradients.
    pub gradient_norm: f64,
    /// Duration (s).
    pub seconds: f64,
    /// Held-out loss after the update; null if not evaluated.
    pub held_out: Option<HeldOutLoss>,
}

/// Held-out loss: means over tokens, in nats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HeldOut")]
pub struct HeldOutLoss {
    pub nll: f64,
    /// KL to the unconverted model; null without distillation.
    pub kl: Option<f64>,
}

/// Training with its curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    #[serde(flatten)]
    pub training: Training,
    /// Held-out loss before the first step.
    pub start: Option<HeldOutLoss>,
    pub curve: Vec<TrainingStep>,
}

/// Training results for runs with the same model and architecture: means over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunTraining {
    /// Mean loss over the last tenth of the steps, in nats per token.
    pub loss: f64,
    /// 95 % interval of `loss` over seeds; null for one seed.
    pub loss_ci95: Option<[f64; 2]>,
    /// Negative log-likelihood of the held-out text after training, in nats per token.
    pub nll: Option<f64>,
    /// 95 % interval of `nll` over seeds; for one seed, over windows.
    pub nll_ci95: Option<[f64; 2]>,
    /// KL from the initial model on the held-out text; null from scratch.
    pub kl: Option<f64>,
    pub tokens_per_s: Option<f64>,
    pub steps: u32,
    pub seeds: usize,
    /// Training ids.
    pub trainings: Vec<String>,
}

impl TrainingSpec {
    /// Short label: `ladder seed 1`.
    pub fn label(&self) -> String {
        let beside = if self.from_scratch { format!(" seed {}", self.seed) } else { String::new() };
        format!("{}{beside}", self.architecture)
    }

    /// Differences from another spec, in words.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let members = |spec: &Self| serde_json::to_value(spec).unwrap_or_default();
        let (own, other) = (members(self), members(other));
        let (Some(own), Some(other)) = (own.as_object(), other.as_object()) else { return Vec::new() };
        let differ = own.iter().filter(|(name, value)| other.get(*name) != Some(value));
        differ
            .map(|(name, value)| {
                let there = other.get(name).unwrap_or(&serde_json::Value::Null);
                format!("{name} is {there} there, {value} here")
            })
            .collect()
    }

    /// Spec without seed and architecture; trainings with equal sets have comparable curves.
    pub fn set(&self) -> Self {
        Self { seed: 0, architecture: Architecture::Standard, ..self.clone() }
    }
}

impl Curve {
    /// Held-out losses by step.
    pub fn held_out(&self) -> Vec<(u32, HeldOutLoss)> {
        let start = self.start.map(|lost| (0, lost));
        let looks = self.curve.iter().filter_map(|step| Some((step.step, step.held_out?)));
        start.into_iter().chain(looks).collect()
    }

    /// Mean loss over the last tenth of the recorded steps.
    pub fn last_loss(&self) -> Option<f64> {
        let last = self.curve.len().div_ceil(10).max(1).min(self.curve.len());
        let last = &self.curve[self.curve.len() - last..];
        mean(&last.iter().map(|step| step.nll).collect::<Vec<_>>())
    }
}

impl RunTraining {
    /// Summary of finished trainings that differ only in their seeds; `None` without any.
    pub fn from_trainings(trainings: &[&Training]) -> Option<Self> {
        let first = trainings.first()?;
        let all = |of: &dyn Fn(&Training) -> Option<f64>| -> Vec<f64> {
            trainings.iter().filter_map(|training| of(training)).collect()
        };
        let losses = all(&|t| t.loss);
        let nlls = all(&|t| Some(t.after?.nll));
        let of_windows = || first.after.and_then(|after| after.nll_ci95);
        let kls = all(&|t| Some(t.after?.kl).filter(|_| !t.spec.from_scratch));
        Some(Self {
            loss: mean(&losses)?,
            loss_ci95: interval_of_few(&losses),
            nll: mean(&nlls),
            nll_ci95: if nlls.len() == 1 { of_windows() } else { interval_of_few(&nlls) },
            kl: mean(&kls),
            tokens_per_s: mean(&all(&|t| Some(t.speed?.tokens_per_s))),
            steps: first.spec.steps,
            seeds: trainings.len(),
            trainings: trainings.iter().map(|training| training.id.clone()).collect(),
        })
    }

    /// Basis of the numbers.
    pub fn basis(&self) -> String {
        format!(
            "measured on cpu, {} of {} steps",
            base::text::counted(self.seeds, "training"),
            self.steps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::TrainingSpeed;

    #[test]
    fn a_share_above_one_is_no_share() {
        let of = |gemm_flop_per_s| TrainingSpeed::new(10.0, 2e9, gemm_flop_per_s);
        assert_eq!(of(4e10).gemm_share, Some(0.5));
        assert_eq!(of(2e10).gemm_share, Some(1.0));
        let busy = of(5e9);
        assert_eq!((busy.gemm_share, busy.gemm_flop_per_s, busy.tokens_per_s), (None, 5e9, 10.0));
        let mut written = serde_json::to_value(busy).unwrap();
        assert!(written["gemm_share"].is_null());
        written["gemm_share"] = 4.0.into();
        assert_eq!(serde_json::from_value::<TrainingSpeed>(written).unwrap(), busy);
        let half = serde_json::to_string(&of(4e10)).unwrap();
        assert_eq!(serde_json::from_str::<TrainingSpeed>(&half).unwrap(), of(4e10));
    }
}
