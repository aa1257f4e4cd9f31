//! Trainings: what one was asked for, how it went and what it ended with, and what runs say of it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quality, Status};
use base::statistics::{interval_of_few, mean};
use plan::Architecture;

/// Version of the files of a training.
pub const TRAINING: u32 = 1;

/// What a training is asked for: all that its numbers follow from, but for the contents of the files that it names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingSpec {
    /// The checkpoint's directory, or the built-in shape that is trained from random weights.
    pub model: String,
    /// Whether it begins with random weights.
    pub from_scratch: bool,
    /// How the model is wired.
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// The layers that are trained; null where all of the model is.
    pub layers: Option<Vec<u32>>,
    /// The file of the text, and how many of its tokens are used; null: all.
    pub text: String,
    /// How many of the text's tokens are used; null: all.
    pub tokens: Option<usize>,
    /// Share of the tokens, at the text's end, that are held out (percent).
    pub held_out_pct: f64,
    /// Steps of the whole training.
    pub steps: u32,
    /// Windows of a step.
    pub batch: u32,
    /// Predicted tokens of a window.
    pub context: u32,
    /// The greatest learning rate.
    pub lr: f64,
    /// Steps over which the learning rate grows.
    pub warmup: u32,
    /// Decay of matrices, times the learning rate.
    pub weight_decay: f64,
    /// The greatest norm of a step's gradients.
    pub clip: f64,
    /// How much KL to the unconverted model counts beside the tokens; null without it.
    pub distil: Option<f64>,
    /// The number of ranks (TP).
    pub tp: u32,
    /// Seed of the order of windows, and of random weights.
    pub seed: u64,
    /// Steps between two looks at the held-out text.
    pub look_every: u32,
}

/// A training: what was asked for, how far it is, what it ended with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Training {
    /// The version of the format.
    pub version: u32,
    /// The name of its folder, which follows from what was asked for.
    pub id: String,
    /// How it ended, or that it has not yet.
    pub status: Status,
    /// Why it did not end well.
    pub reason: Option<String>,
    /// What was asked for.
    pub spec: TrainingSpec,
    /// Hashes of the weights that it began with and of the text's tokens: what must be the same when it goes on.
    pub weights: String,
    /// The hash of the text's tokens.
    pub text_hash: String,
    /// Tokens that are trained on, once.
    pub train_tokens: usize,
    /// Tokens that are held out.
    pub held_out_tokens: usize,
    /// Numbers of the model.
    pub parameters: u64,
    /// Those of them that are trained.
    pub trained_parameters: u64,
    /// Sets of ranks that share a step's windows.
    pub replicas: usize,
    /// When it began, RFC 3339 in UTC.
    pub created: String,
    /// When this was written.
    pub updated: String,
    /// Steps until the last checkpoint.
    pub step: u32,
    /// How long these steps took (s).
    pub seconds: f64,
    /// How fast it was; null before its first checkpoint.
    pub speed: Option<TrainingSpeed>,
    /// The mean loss over the last tenth of its steps, in nats a token; null until it has ended.
    pub loss: Option<f64>,
    /// The quality on the held-out text before the first step; null from scratch.
    pub before: Option<Quality>,
    /// The quality there after the last one. KL is from the model that it began with, as standard; from scratch from
    /// itself as standard.
    pub after: Option<Quality>,
    /// The HF directory that it ends with.
    pub output: PathBuf,
    /// What is measured it was measured on.
    pub machine: String,
    /// Whether this is a model of a few million numbers on a short text, whose curves show what larger ones might do.
    pub miniature: bool,
}

/// How fast a training is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingSpeed {
    /// Tokens that are trained on in a second, looks at the held-out text left out.
    pub tokens_per_s: f64,
    /// Arithmetic of matrix products for a token (FLOP), forwards and backwards.
    pub flop_per_token: f64,
    /// What large products of matrices reach on as many threads (FLOP/s): the most that was measured just before each
    /// part of the training, where it was interrupted, and just after the last, since other programs only take from it.
    pub gemm_flop_per_s: f64,
    /// Share of that which the training reached (0 to 1); null where it would be above 1: then the machine was busier
    /// with other programs while products were measured than while it trained.
    #[serde(deserialize_with = "share")]
    #[schemars(with = "Option<f64>")]
    pub gemm_share: Option<f64>,
}

/// A share as written, where it is one: earlier records have shares above 1.
fn share<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::deserialize(from)?.filter(|share| *share <= 1.0))
}

impl TrainingSpeed {
    /// The speed at a rate of tokens, with the arithmetic of one of them and what products of matrices reach.
    pub fn new(tokens_per_s: f64, flop_per_token: f64, gemm_flop_per_s: f64) -> Self {
        let gemm_share =
            Some(tokens_per_s * flop_per_token / gemm_flop_per_s).filter(|share| *share <= 1.0);
        Self { tokens_per_s, flop_per_token, gemm_flop_per_s, gemm_share }
    }
}

/// A step of a training: a line of its curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingStep {
    /// The number of the step, from 1.
    pub step: u32,
    /// What its windows lost before it, in nats a token.
    pub nll: f64,
    /// KL to the unconverted model there; null where nothing is learned from that.
    pub kl: Option<f64>,
    /// The learning rate.
    pub rate: f64,
    /// The norm of all gradients.
    pub gradient_norm: f64,
    /// How long it took (s).
    pub seconds: f64,
    /// What the held-out text lost after it; null where nobody looked.
    pub held_out: Option<HeldOut>,
}

/// What the held-out text lost: means over tokens, in nats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldOut {
    /// Negative log-likelihood.
    pub nll: f64,
    /// KL to the unconverted model; null where nothing is learned from that.
    pub kl: Option<f64>,
}

/// A training with its curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// The training.
    #[serde(flatten)]
    pub training: Training,
    /// What the held-out text lost before the first step.
    pub start: Option<HeldOut>,
    /// Its steps in order.
    pub curve: Vec<TrainingStep>,
}

/// What trainings say of a run that has their model and architecture: means over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunTraining {
    /// The mean loss over the last tenth of the steps, in nats a token.
    pub loss: f64,
    /// The interval of that over seeds; null of one seed.
    pub loss_ci95: Option<[f64; 2]>,
    /// Negative log-likelihood of the held-out text after training, in nats a token.
    pub nll: Option<f64>,
    /// The interval of that over seeds; of one seed over windows.
    pub nll_ci95: Option<[f64; 2]>,
    /// KL there from the model that it began with; null from scratch.
    pub kl: Option<f64>,
    /// Tokens trained on in a second.
    pub tokens_per_s: Option<f64>,
    /// Steps of a training.
    pub steps: u32,
    /// How many seeds the means are over.
    pub seeds: usize,
    /// The ids of the trainings.
    pub trainings: Vec<String>,
}

impl TrainingSpec {
    /// What it is in a few words: `ladder seed 1`.
    pub fn label(&self) -> String {
        let beside = if self.from_scratch { format!(" seed {}", self.seed) } else { String::new() };
        format!("{}{beside}", self.architecture)
    }

    /// What sets it apart from another, in words; nothing where they are alike.
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

    /// The same for any seed and architecture: trainings whose curves can be compared.
    pub fn set(&self) -> Self {
        Self { seed: 0, architecture: Architecture::Standard, ..self.clone() }
    }
}

impl Curve {
    /// Points of what the held-out text lost, by step.
    pub fn held_out(&self) -> Vec<(u32, HeldOut)> {
        let start = self.start.map(|lost| (0, lost));
        let looks = self.curve.iter().filter_map(|step| Some((step.step, step.held_out?)));
        start.into_iter().chain(looks).collect()
    }

    /// The mean loss over the last tenth of the steps that there are.
    pub fn last_loss(&self) -> Option<f64> {
        let last = self.curve.len().div_ceil(10).max(1).min(self.curve.len());
        let last = &self.curve[self.curve.len() - last..];
        mean(&last.iter().map(|step| step.nll).collect::<Vec<_>>())
    }
}

impl RunTraining {
    /// Of finished trainings that differ in their seeds alone; `None` without any.
    pub fn of(trainings: &[&Training]) -> Option<Self> {
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

    /// What the numbers rest on.
    pub fn told(&self) -> String {
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
