//! Mixture of experts: shape of a model's routed layers, and how many experts a step touches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::graph::{is_one, one};
use base::error::Error;

/// Clamp of gate and up in [`ExpertActivation::Clamped`].
pub const CLAMP: f32 = 7.0;

/// Slope of the sigmoid in [`ExpertActivation::Clamped`].
pub const CLAMP_SLOPE: f32 = 1.702;

/// Routed layers of a model: each has a router, routed experts, and optionally shared experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpertShape {
    /// Routed experts per layer, over all ranks.
    pub count: u32,
    /// Routed experts that each token chooses.
    pub top_k: u32,
    /// Width of a routed expert (of gate or up alone).
    pub width: u32,
    /// Width of all shared experts together, which every token passes with weight 1; 0 without.
    pub shared_width: u32,
    /// Leading layers with a dense MLP (of width [`super::ModelShape::intermediate`]) instead of experts.
    pub dense_first: u32,
    /// Interval of routed layers: after the leading dense ones every N-th has experts, the others a dense MLP.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub every: u32,
    pub routing: Routing,
    #[serde(default)]
    pub activation: ExpertActivation,
    /// True if gate, up and down of routed experts have biases.
    #[serde(default)]
    pub biased: bool,
}

/// From a token's router logits z (one per expert) to its experts and their weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Routing {
    pub score: RouterScore,
    #[serde(default)]
    pub bias: RouterBias,
    /// True if the chosen scores are divided by their sum.
    pub renormalise: bool,
    /// Factor of the weights (`routed_scaling_factor`).
    pub scale: f64,
    /// Groups of consecutive experts; 1 without a limit. A group's score is the sum of its two largest, with a
    /// softmax over all experts (DeepSeek-V2) its largest.
    pub groups: u32,
    /// Groups in which a token may choose experts.
    pub kept_groups: u32,
    /// True if the weight multiplies the expert's input instead of its output (Llama 4).
    #[serde(default)]
    pub weighs_input: bool,
}

impl Routing {
    /// Routing without bias, factor or groups; the chosen scores are divided by their sum if `renormalise`.
    pub const fn plain(score: RouterScore, renormalise: bool) -> Self {
        Self {
            score,
            bias: RouterBias::None,
            renormalise,
            scale: 1.0,
            groups: 1,
            kept_groups: 1,
            weighs_input: false,
        }
    }
}

/// Function from logits to scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterScore {
    /// Softmax over all experts, before the choice: Mixtral, Qwen3.
    Softmax,
    /// Softmax over the logits of the chosen experts: gpt-oss.
    SoftmaxChosen,
    /// Sigmoid of each logit: DeepSeek-V3, Llama 4.
    Sigmoid,
}

/// Learned bias of the router, one number per expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterBias {
    #[default]
    None,
    /// Added to the logits: gpt-oss.
    Logits,
    /// Added to the scores for the choice only, not to the weights: DeepSeek-V3.
    Choice,
}

/// Activation of a routed expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertActivation {
    /// silu(gate) x up.
    #[default]
    Silu,
    /// With g = min(gate, 7) and u = clamp(up, -7, 7): (u + 1) x g x sigmoid(1.702 g). gpt-oss.
    Clamped,
}

impl ExpertShape {
    /// Maximum number of routed experts in a layer.
    pub const LARGEST_COUNT: u32 = 1 << 16;

    /// Experts without shared ones, biases or dense layers.
    pub const fn plain(count: u32, top_k: u32, width: u32, routing: Routing) -> Self {
        Self {
            count,
            top_k,
            width,
            shared_width: 0,
            dense_first: 0,
            every: 1,
            routing,
            activation: ExpertActivation::Silu,
            biased: false,
        }
    }

    /// True if layer `layer` has routed experts.
    pub(super) fn is_routed(&self, layer: u32) -> bool {
        layer.checked_sub(self.dense_first).is_some_and(|after| after.is_multiple_of(self.every))
    }

    /// Explains why the routing is impossible; `None` if it is possible.
    pub fn routing_problem(&self) -> Option<String> {
        let Routing { groups, kept_groups, .. } = self.routing;
        let (count, top_k) = (self.count, self.top_k);
        if count == 0 || self.width == 0 {
            return Some(format!("{count} experts of width {}: both must be at least 1", self.width));
        }
        if count > Self::LARGEST_COUNT {
            return Some(format!("{count} experts: at most {}", Self::LARGEST_COUNT));
        }
        if top_k == 0 || top_k > count {
            return Some(format!("top-k {top_k} of {count} experts: it must be between 1 and {count}"));
        }
        if groups == 0 || !count.is_multiple_of(groups) || kept_groups == 0 || kept_groups > groups {
            return Some(format!(
                "{kept_groups} of {groups} groups of {count} experts: groups must divide the experts, and a token \
                 chooses in 1 to {groups} of them"
            ));
        }
        let choices = count / groups * kept_groups;
        (top_k > choices).then(|| {
            format!("top-k {top_k} exceeds the {choices} experts of {kept_groups} of {groups} groups")
        })
    }
}

/// Weights of routed experts that an operation reads: of an expert only if a token chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoutedWeights {
    /// Routed experts over all ranks.
    pub experts: u32,
    pub top_k: u32,
    /// EP: ranks among which whole experts are divided; 1 if each rank has a slice of every expert.
    pub ep: u32,
    /// Ranks whose tokens reach the experts: more than 1 with data-parallel attention.
    pub dp: u32,
    /// Bytes of a rank's slice of one expert.
    pub expert_bytes: u64,
}

impl RoutedWeights {
    /// Expected distinct experts of one rank that a step's rows touch, on the mean over ranks.
    pub fn touched(&self, rows: u64, load: &ExpertLoad) -> f64 {
        let tokens = rows as f64 * f64::from(self.dp.max(1));
        load.touched(self.experts, self.top_k, tokens) / f64::from(self.ep.max(1))
    }

    /// Bytes that a rank reads for a step's rows.
    pub fn bytes(&self, rows: u64, load: &ExpertLoad) -> f64 {
        self.touched(rows, load) * self.expert_bytes as f64
    }
}

/// Distribution of tokens over experts.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ExpertLoad {
    /// Each token chooses independently, every expert with the same probability.
    #[default]
    Uniform,
    /// Choices are spread evenly: b tokens touch min(experts, b x top-k) experts. As in many benchmarks.
    Balanced,
    /// Expert popularities are quantiles of the density x^-exponent, truncated at 1 and at 0.8 x the number of tokens;
    /// 0 means equal popularity; the smallest positive exponent already spreads them from 1 to the maximum. Skew over 8 ranks
    /// is largest near 2 with 16 tokens and near 1.5 with 1024; beyond, most experts are as unpopular as the least.
    PowerLaw(f64),
    /// Tokens of each expert, as measured.
    Counts(Vec<u64>),
}

impl ExpertLoad {
    /// Forms that a user can write.
    pub const FORMS: [&'static str; 4] = ["uniform", "balanced", "power:S", "counts:N+N+..."];

    /// Short description of each of [`Self::FORMS`], in the same order.
    pub const MEANINGS: [&'static str; Self::FORMS.len()] = [
        "tokens choose independently, all experts alike",
        "choices are spread evenly, as in many benchmarks",
        "popularities are quantiles of a density x^-S (0 to 4): most skewed at S 1.5 to 2",
        "measured: tokens of each expert, in order",
    ];

    /// Probability with which a token chooses each expert, at most 1; they sum to `top_k`. Experts are in
    /// falling order of popularity, or in the order of measured counts.
    pub fn probabilities(&self, experts: u32, top_k: u32, tokens: f64) -> Vec<f64> {
        let shares: Vec<f64> = match self {
            Self::Uniform | Self::Balanced => vec![1.0; experts as usize],
            Self::PowerLaw(exponent) => power_law(experts, *exponent, (0.8 * tokens).max(2.0)),
            Self::Counts(counts) => {
                (0..experts as usize).map(|i| counts.get(i).map_or(0.0, |c| *c as f64)).collect()
            }
        };
        capped(shares, f64::from(top_k.min(experts)))
    }

    /// Expected number of distinct experts that `tokens` tokens choose.
    pub fn touched(&self, experts: u32, top_k: u32, tokens: f64) -> f64 {
        match self {
            Self::Balanced => (tokens * f64::from(top_k)).min(experts.into()),
            Self::Uniform => {
                let missed = 1.0 - f64::from(top_k) / f64::from(experts.max(1));
                f64::from(experts) * (1.0 - missed.max(0.0).powf(tokens))
            }
            Self::PowerLaw(_) | Self::Counts(_) => {
                let probabilities = self.probabilities(experts, top_k, tokens);
                probabilities.iter().map(|p| 1.0 - (1.0 - p).max(0.0).powf(tokens)).sum()
            }
        }
    }
}

impl fmt::Display for ExpertLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Balanced => f.write_str("balanced"),
            Self::PowerLaw(exponent) => write!(f, "power:{exponent}"),
            Self::Counts(counts) => {
                let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
                write!(f, "counts:{}", counts.join("+"))
            }
        }
    }
}

impl FromStr for ExpertLoad {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            let forms = Self::FORMS.join(", ");
            Error::input_help(format!("expert load '{text}': {why}"), format!("write {forms}"))
        };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "balanced" => Ok(Self::Balanced),
            Some(("power", exponent)) => match exponent.parse::<f64>() {
                Ok(exponent) if (0.0..=4.0).contains(&exponent) => Ok(Self::PowerLaw(exponent)),
                _ => Err(wrong("the exponent must be a number from 0 to 4")),
            },
            Some(("counts", list)) => {
                let counts: Result<Vec<u64>, _> = list.split('+').map(str::parse).collect();
                let counts = counts.map_err(|_| wrong("counts must be whole numbers"))?;
                match counts.iter().any(|count| *count > 0) {
                    true => Ok(Self::Counts(counts)),
                    false => Err(wrong("no expert has a token")),
                }
            }
            _ => Err(Error::unknown("expert load", text, Self::FORMS)),
        }
    }
}

impl Serialize for ExpertLoad {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExpertLoad {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Quantiles of a power law with density x^-exponent between 1 and `most`, largest first.
fn power_law(experts: u32, exponent: f64, most: f64) -> Vec<f64> {
    if exponent == 0.0 {
        return vec![1.0; experts as usize];
    }
    let quantile = |u: f64| {
        let power = 1.0 - exponent;
        if power.abs() < 1e-9 {
            return most.powf(u);
        }
        ((most.powf(power) - 1.0) * u + 1.0).powf(1.0 / power)
    };
    (0..experts).rev().map(|i| quantile((f64::from(i) + 0.5) / f64::from(experts))).collect()
}

/// Scales shares to the sum `top_k` with none above 1: what exceeds 1 goes to the others.
fn capped(mut shares: Vec<f64>, top_k: f64) -> Vec<f64> {
    let mut is_full = vec![false; shares.len()];
    loop {
        let full = is_full.iter().filter(|full| **full).count() as f64;
        let free: f64 = shares.iter().zip(&is_full).filter(|(_, full)| !**full).map(|(s, _)| s).sum();
        if free <= 0.0 {
            return shares;
        }
        let scale = (top_k - full) / free;
        let mut grew = false;
        for (share, full) in shares.iter_mut().zip(&mut is_full).filter(|(_, full)| !**full) {
            *share *= scale;
            if *share >= 1.0 {
                (*share, *full, grew) = (1.0, true, true);
            }
        }
        if !grew {
            return shares;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loads() -> impl Strategy<Value = ExpertLoad> {
        prop_oneof![
            Just(ExpertLoad::Uniform),
            Just(ExpertLoad::Balanced),
            (0.0..2.0f64).prop_map(ExpertLoad::PowerLaw),
            proptest::collection::vec(1u64..100, 64).prop_map(ExpertLoad::Counts),
        ]
    }

    proptest! {
        #[test]
        fn tokens_touch_at_most_their_choices_and_all_experts_in_the_end(
            load in loads(), top_k in 1u32..8, tokens in 1u32..2000
        ) {
            let of = load.probabilities(64, top_k, tokens.into());
            prop_assert!((of.iter().sum::<f64>() - f64::from(top_k)).abs() < 1e-6);
            prop_assert!(of.iter().all(|p| (0.0..=1.0).contains(p)));
            let touched = load.touched(64, top_k, tokens.into());
            let most = f64::from(64.min(tokens * top_k));
            prop_assert!((f64::from(top_k) - 1e-6..=most + 1e-6).contains(&touched), "{touched}");
        }
    }

    #[test]
    fn uniform_routing_touches_what_independent_choices_touch_and_skew_less() {
        // 128 (1 - (1 - 4 / 128)^32)
        let uniform = ExpertLoad::Uniform.touched(128, 4, 32.0);
        assert!((uniform - 81.66).abs() < 0.01, "{uniform}");
        assert_eq!(ExpertLoad::Balanced.touched(128, 4, 32.0), 128.0);
        let skewed = ExpertLoad::PowerLaw(1.2).touched(128, 4, 32.0);
        assert!((0.5 * uniform..uniform).contains(&skewed), "{skewed}");
        assert!((ExpertLoad::PowerLaw(0.0).touched(128, 4, 32.0) - uniform).abs() < 1e-9);
    }

    #[test]
    fn loads_are_read_as_they_are_written() {
        for text in ["uniform", "balanced", "power:1.2", "counts:3+0+5"] {
            assert_eq!(text.parse::<ExpertLoad>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("power:x", "exponent"),
            ("power:-1", "exponent"),
            ("counts:1+x", "whole numbers"),
            ("counts:0+0", "no expert"),
            ("unifrm", "unknown expert load"),
        ] {
            let error = text.parse::<ExpertLoad>().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn impossible_routing_is_explained() {
        let shape = |count, top_k, groups, kept_groups| {
            let routing = Routing { groups, kept_groups, ..Routing::plain(RouterScore::Sigmoid, true) };
            ExpertShape::plain(count, top_k, 8, routing)
        };
        assert_eq!(shape(256, 8, 8, 4).routing_problem(), None);
        for (shape, part) in [
            (shape(8, 9, 1, 1), "top-k 9 of 8 experts"),
            (shape(8, 0, 1, 1), "top-k 0"),
            (shape(8, 2, 3, 1), "groups must divide"),
            (shape(8, 2, 2, 3), "1 to 2 of them"),
            (shape(8, 3, 4, 1), "top-k 3 exceeds the 2 experts"),
        ] {
            let problem = shape.routing_problem().unwrap();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
