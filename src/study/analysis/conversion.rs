//! Choice of the layers to convert: sets of layers, their quality cost and predicted speedup, and the best set within a
//! budget.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use base::error::{Error, Result};
use base::statistics::extent;
use base::text::layer_list;
use base::words::words;
use plan::{Architecture, DType, LayerSet};
use table::Quality;
use table::render::{Shown, Table};
use table::{Provenance, Spec};

/// Number of parts of the model's depth; last-K and random-K sets are evaluated at the part boundaries.
const PARTS: u32 = 6;

words! {
    Conversion, "conversion" {
        /// Its modules read the residual without the newest output.
        Ladder = "ladder",
        /// Attention's all-reduce is dropped.
        SyncDrop = "sync-drop",
        /// Experts do not see attention, and the next attention not the routed experts.
        FarSkip = "farskip",
    }
}

words! {
    /// Method that chose a set of layers.
    SetSeries, "series" {
        /// One layer: its sensitivity.
        Alone = "alone",
        /// The layers that cost least alone.
        Ordered = "ordered",
        /// Layer after layer, each time the one with which the set costs least.
        Greedy = "greedy",
        /// The upper half of the model, as in the paper.
        UpperHalf = "upper-half",
        /// The last layers, as many as another set has.
        Last = "last",
        /// Layers drawn by chance.
        Random = "random",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversionCandidate {
    pub conversion: Conversion,
    pub series: SetSeries,
    /// Indices of the converted layers, from 0, ascending.
    pub layers: Vec<u32>,
}

/// Set of layers with its measured quality and predicted speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConversionPoint {
    /// Number among the points, from 1.
    pub number: usize,
    pub conversion: Conversion,
    pub series: SetSeries,
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// Converted layers of the checkpoint, ascending.
    pub layers: Vec<u32>,
    #[serde(flatten)]
    pub quality: Quality,
    /// Architecture of the target model whose speed is predicted.
    #[schemars(with = "String")]
    pub target_architecture: Architecture,
    /// Simulated throughput on the target (tokens/s).
    pub tokens_per_s: f64,
    /// Simulated median TPOT on the target (ms).
    pub tpot_ms: f64,
    /// Throughput over that of `standard` on the target.
    pub speedup: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unconverted {
    #[serde(flatten)]
    pub quality: Quality,
    /// Simulated throughput on the target (tokens/s).
    pub tokens_per_s: f64,
    /// Simulated median TPOT on the target (ms).
    pub tpot_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Origins {
    /// Provenance of likelihood, divergence and agreement.
    pub quality: Provenance,
    /// Provenance of tokens/s, TPOT and speedup.
    pub speed: Provenance,
}

/// Quality cost of converting layers of a checkpoint on a text, and speedup on a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConversionReport {
    pub version: u32,
    /// Directory of the checkpoint, as the user wrote it.
    pub model: String,
    pub layers: u32,
    /// Path of the text, as the user wrote it.
    pub text: String,
    /// Tokens per window.
    pub context: usize,
    /// Tokens of the text, after the limit.
    pub tokens: usize,
    pub windows: usize,
    /// Predicted tokens: all of a window except the first.
    pub predicted: u32,
    /// Tensor-parallel size used for evaluation.
    pub tp: u32,
    /// Weight format used for evaluation.
    #[schemars(with = "String")]
    pub dtype: DType,
    /// Cell whose speed is predicted, with `standard`.
    pub target: Spec,
    pub provenance: Origins,
    pub standard: Unconverted,
    pub points: Vec<ConversionPoint>,
}

/// Draws per wanted random set, at most, to find enough distinct ones.
const DRAWN_AGAIN: u32 = 8;

/// KL divergences of random sets of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomSetSummary {
    pub count: usize,
    pub sets: usize,
    pub kl: f64,
    /// Minimum and maximum KL.
    pub range: [f64; 2],
    pub speedup: f64,
}

impl Conversion {
    /// Architecture of a model of `layers` layers with these ones converted.
    pub fn architecture(self, chosen: &[u32], layers: u32) -> Architecture {
        let set = LayerSet::new(chosen, layers);
        match self {
            Self::Ladder => Architecture::Ladder(set),
            Self::SyncDrop => Architecture::SyncDrop(set),
            Self::FarSkip => Architecture::FarSkip(set),
        }
    }
}

impl ConversionCandidate {
    fn new(conversion: Conversion, series: SetSeries, mut layers: Vec<u32>) -> Self {
        layers.sort_unstable();
        Self { conversion, series, layers }
    }
}

pub fn alone(conversion: Conversion, layers: u32) -> Vec<ConversionCandidate> {
    (0..layers)
        .map(|layer| ConversionCandidate::new(conversion, SetSeries::Alone, vec![layer]))
        .collect()
}

/// Sets of the layers with the lowest individual cost, from one layer to all. `alone` holds the cost of each layer;
/// ties go to the later layer, as in the paper.
pub fn ordered(conversion: Conversion, alone: &[f64]) -> Vec<ConversionCandidate> {
    let mut order: Vec<u32> = (0..alone.len() as u32).rev().collect();
    order.sort_by(|a, b| alone[*a as usize].total_cmp(&alone[*b as usize]));
    let first =
        |count: usize| ConversionCandidate::new(conversion, SetSeries::Ordered, order[..count].to_vec());
    (1..=order.len()).map(first).collect()
}

/// Comparison sets: the upper half, and at several sizes the last layers and up to `draws` distinct random sets.
/// Deterministic.
pub fn comparators(conversion: Conversion, layers: u32, draws: u32) -> Vec<ConversionCandidate> {
    let last = |series, count: u32| {
        ConversionCandidate::new(conversion, series, (layers - count..layers).collect())
    };
    let mut sizes: Vec<u32> = (1..PARTS).map(|part| (layers * part + PARTS / 2) / PARTS).collect();
    sizes.retain(|count| (1..layers).contains(count));
    sizes.dedup();
    let mut all = Vec::new();
    if layers > 1 {
        all.push(last(SetSeries::UpperHalf, layers / 2));
    }
    all.extend(sizes.iter().map(|count| last(SetSeries::Last, *count)));
    for count in sizes {
        // small models yield duplicates, and may not have enough distinct sets
        let drawn = (0..draws.saturating_mul(DRAWN_AGAIN)).map(|draw| {
            let mut random = fastrand::Rng::with_seed(u64::from(count) << 32 | u64::from(draw));
            let mut layers = random.choose_multiple(0..layers, count as usize);
            layers.sort_unstable();
            layers
        });
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        let new = drawn.filter(|layers| seen.insert(layers.clone())).take(draws as usize);
        all.extend(new.map(|layers| ConversionCandidate::new(conversion, SetSeries::Random, layers)));
    }
    all
}

/// Candidates of a greedy step: the set plus each one of the other layers.
pub fn extended(conversion: Conversion, set: &[u32], layers: u32) -> Vec<ConversionCandidate> {
    let others = (0..layers).rev().filter(|layer| !set.contains(layer));
    let with =
        |layer: u32| ConversionCandidate::new(conversion, SetSeries::Greedy, [set, &[layer]].concat());
    others.map(with).collect()
}

/// Maps converted layers from a model of `from` layers to one of `to` layers: layer j is converted if layer floor(j *
/// from / to) is.
pub fn carried_over(chosen: &[u32], from: u32, to: u32) -> Vec<u32> {
    let source = |layer: u32| (u64::from(layer) * u64::from(from) / u64::from(to.max(1))) as u32;
    (0..to).filter(|layer| chosen.contains(&source(*layer))).collect()
}

impl ConversionReport {
    pub const VERSION: u32 = 1;

    /// Fastest ladder with a KL of at most `kl`; ties go to the lower KL.
    ///
    /// # Errors
    ///
    /// Returns an input error with the lowest available KL if no set meets the limit.
    pub fn within(&self, kl: f64) -> Result<&ConversionPoint> {
        let ladders = || self.points.iter().filter(|p| p.conversion == Conversion::Ladder);
        let faster = |a: &&ConversionPoint, b: &&ConversionPoint| {
            a.speedup.total_cmp(&b.speedup).then(b.quality.kl.total_cmp(&a.quality.kl))
        };
        let least = ladders().map(|point| point.quality.kl).fold(f64::INFINITY, f64::min);
        ladders().filter(|point| point.quality.kl <= kl).max_by(faster).ok_or_else(|| {
            Error::input_help(
                format!("no set of layers has a KL of at most {kl}"),
                format!("smallest possible: kl<={least:.3e}"),
            )
        })
    }

    /// Point with this number.
    ///
    /// # Errors
    ///
    /// Returns an input error if there is none.
    pub fn point(&self, number: usize) -> Result<&ConversionPoint> {
        self.points.iter().find(|point| point.number == number).ok_or_else(|| {
            Error::input(format!("no point {number}; the table has points 1 to {}", self.points.len()))
        })
    }

    /// Points of a series, ordered by number of layers.
    pub fn series(&self, conversion: Conversion, series: SetSeries) -> Vec<&ConversionPoint> {
        let is_of = |p: &&ConversionPoint| (p.conversion, p.series) == (conversion, series);
        let mut points: Vec<&ConversionPoint> = self.points.iter().filter(is_of).collect();
        points.sort_by_key(|point| point.layers.len());
        points
    }

    pub fn draws(&self, conversion: Conversion) -> Vec<RandomSetSummary> {
        let points = self.series(conversion, SetSeries::Random);
        let of_size = points.chunk_by(|a, b| a.layers.len() == b.layers.len());
        let summary = |of: &[&ConversionPoint]| {
            let mean = |value: fn(&ConversionPoint) -> f64| {
                of.iter().map(|point| value(point)).sum::<f64>() / of.len() as f64
            };
            RandomSetSummary {
                count: of[0].layers.len(),
                sets: of.len(),
                kl: mean(|point| point.quality.kl),
                range: extent(of.iter().map(|point| point.quality.kl)).unwrap_or_default(),
                speedup: mean(|point| point.speedup),
            }
        };
        of_size.map(summary).collect()
    }

    /// Short label of the target: `llama-3-8b tp8 b1 p2p-off on h100_sxm`.
    pub fn target_label(&self) -> String {
        let Spec { model, architecture, hardware, .. } = &self.target;
        let label = self.target.label();
        let label = label.strip_prefix(&format!("{architecture} ")).unwrap_or(&label);
        format!("{model} {label} on {hardware}")
    }

    /// Table for files: [`Self::table`] plus the provenance of its numbers.
    pub fn file(&self) -> Table {
        self.table()
            .with("quality_provenance", &Shown::text(self.provenance.quality))
            .with("speed_provenance", &Shown::text(self.provenance.speed))
    }

    pub fn table(&self) -> Table {
        Table::from_rows(
            &self.points,
            &[
                ("point", &|p: &ConversionPoint| p.number.into()),
                ("to|conversion", &|p| Shown::text(p.conversion)),
                ("series|chosen", &|p| Shown::text(p.series)),
                ("count|layers", &|p| p.layers.len().into()),
                ("kl|KL", &|p| Shown::interval(Some(p.quality.kl), p.quality.kl_ci95, 4)),
                ("nll|NLL", &|p| Shown::number(p.quality.nll, 4)),
                ("perplexity", &|p| Shown::number(p.quality.perplexity, 2)),
                ("agreement", &|p| Shown::number(p.quality.agreement, 3)),
                ("speedup", &|p| Shown::number(p.speedup, 3)),
                ("tokens/s|tok/s", &|p| Shown::number(p.tokens_per_s, 1)),
                ("tpot_ms|TPOT ms", &|p| Shown::number(p.tpot_ms, 3)),
                ("~layers|indices", &|p| Shown::text(layer_list(&p.layers))),
            ],
        )
        .least(&["TPOT ms", "tok/s", "NLL", "perplexity"])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::conversion_report as report;

    #[test]
    fn layers_are_added_in_the_order_of_what_each_costs() {
        let sets: Vec<Vec<u32>> = ordered(Conversion::Ladder, &[0.4, 0.1, 0.3, 0.2])
            .into_iter()
            .map(|set| set.layers)
            .collect();
        assert_eq!(sets, [vec![1], vec![1, 3], vec![1, 2, 3], vec![0, 1, 2, 3]]);
        let equal = ordered(Conversion::Ladder, &[0.0; 3]);
        assert_eq!(equal[1].layers, [1, 2], "where nothing tells them apart the last are first");
        let next: Vec<Vec<u32>> =
            extended(Conversion::Ladder, &[1], 4).into_iter().map(|set| set.layers).collect();
        assert_eq!(next, [vec![1, 3], vec![1, 2], vec![0, 1]]);
    }

    #[test]
    fn comparators_are_the_upper_half_the_last_and_the_same_random_layers_each_time() {
        let sets = comparators(Conversion::Ladder, 30, 3);
        assert_eq!(sets, comparators(Conversion::Ladder, 30, 3));
        let of = |series| sets.iter().filter(move |set| set.series == series);
        let half: Vec<u32> = (15..30).collect();
        assert_eq!(of(SetSeries::UpperHalf).map(|set| &set.layers).collect::<Vec<_>>(), [&half]);
        let sizes: Vec<usize> = of(SetSeries::Last).map(|set| set.layers.len()).collect();
        assert_eq!(sizes, [5, 10, 15, 20, 25]);
        assert!(of(SetSeries::Last).all(|set| set.layers.last() == Some(&29)));
        let random: Vec<_> = of(SetSeries::Random).map(|set| &set.layers).collect();
        assert_eq!(random.len(), 15);
        assert!(random.iter().all(|set| set.is_sorted_by(|a, b| a < b) && set.iter().all(|l| *l < 30)));
        assert_ne!(random[0], random[1]);
        // of four layers one can be left or chosen in four ways
        let few = comparators(Conversion::Ladder, 4, 6);
        let few: Vec<_> = few.iter().filter(|set| set.series == SetSeries::Random).collect();
        for size in 1..4 {
            let of: Vec<_> = few.iter().filter(|set| set.layers.len() == size).collect();
            assert!(
                of.iter().enumerate().all(|(at, set)| of[..at].iter().all(|o| o.layers != set.layers))
            );
            assert!(of.len() <= 6 && of.len() >= 3, "{of:?}");
        }
        assert!(comparators(Conversion::Ladder, 1, 3).is_empty());
    }

    #[test]
    fn the_fastest_within_a_budget_is_taken_and_what_is_not_there_is_told() {
        let report = report();
        let chosen = report.within(0.05).unwrap();
        assert_eq!((chosen.layers.len(), chosen.quality.kl), (2, 0.04), "not the one with layer 0");
        assert_eq!(report.within(1.0).unwrap().layers.len(), 4);
        let told = report.within(0.001).unwrap_err();
        assert_eq!(told.exit_code(), 2);
        assert!(told.to_string().contains("0.001"), "{told}");
        assert_eq!(report.point(6).unwrap().layers, [1, 3]);
        assert!(report.point(0).is_err() && report.point(99).is_err());
        let draws = report.draws(Conversion::Ladder);
        assert!(
            draws.iter().all(|d| d.sets == 2 && d.range[0] <= d.kl && d.kl <= d.range[1]),
            "{draws:?}"
        );
    }

    #[test]
    fn reports_are_read_as_they_are_written() {
        let report = report();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<ConversionReport>(&text).unwrap(), report);
        let first: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = ["number", "series", "architecture", "layers", "kl", "kl_ci95", "speedup", "tpot_ms"];
        assert!(keys.iter().all(|key| !first["points"][0][key].is_null()), "{first}");
    }

    proptest! {
        #[test]
        fn sets_carried_over_keep_their_share_and_their_order(
            from in 1u32..40, to in 1u32..90, bits: u64,
        ) {
            let chosen: Vec<u32> = (0..from).filter(|layer| bits >> layer & 1 == 1).collect();
            let carried = carried_over(&chosen, from, to);
            prop_assert!(carried.is_sorted() && carried.iter().all(|layer| *layer < to));
            if to >= from {
                let share = |count: usize, of: u32| count as f64 / f64::from(of);
                let difference = share(carried.len(), to) - share(chosen.len(), from);
                // every layer stands for to / from layers, rounded up or down
                prop_assert!(difference.abs() <= chosen.len().max(1) as f64 / f64::from(to), "{difference}");
                prop_assert!(carried.is_empty() == chosen.is_empty());
            }
            if to == from {
                prop_assert_eq!(carried, chosen);
            }
        }
    }
}
