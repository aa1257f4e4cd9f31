//! Comparison: cells that differ along one axis only, their ratios, and whether those mean anything.

mod adjust;
mod axis;
mod heat;
mod label;
mod matching;
mod pair;
mod table;

use std::collections::HashMap;

use rayon::prelude::*;
use serde::Serialize;

use self::matching::cells;
use super::difference::Difference;
use super::flags::flags;
use crate::base::error::{Error, Result};
use crate::table::options::OPTIONS;
use crate::table::{Measure, Provenance, Record, Spec, Split, recorder};

pub use adjust::{Adjusted, LEVEL, benjamini_hochberg};
pub use axis::{Axis, UNSET};
pub use heat::{HeatCell, HeatMap, HeatSlice, HeatValue, slices};
pub(super) use label::{Label, parts};
pub(super) use matching::{Matching, PooledCell};
pub(super) use pair::{Pair, Ratio};
pub use table::{differences_table, pairs_table, told_table};

/// A matched pair in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What both have in common, for people: `tiny tp2 b1 p2p-on cpu emulated:...`.
    pub matched: String,
    /// What both have in common as `matched` says it, without TP and batch.
    #[serde(skip)]
    pub rest: String,
    /// The axis's value of the baseline.
    pub baseline: String,
    /// The axis's value of the other.
    pub value: String,
    /// The id of the baseline's last run.
    pub baseline_run: String,
    /// The id of the compared cell's last run.
    pub run: String,
    /// Where the numbers come from; of two different origins the one further from a measurement.
    pub provenance: Provenance,
    /// Median TPOT of the baseline (ms).
    pub baseline_tpot_ms: f64,
    /// Median TPOT of the compared cell (ms).
    pub tpot_ms: f64,
    /// Tokens/s over the baseline's tokens/s, each the median over the rounds that both have (over
    /// all, where they share none); above 1 is faster.
    pub speedup: f64,
    /// Bootstrap interval of the speedup (rounds resampled as pairs, then samples); null with fewer
    /// than 6 samples or for simulations.
    pub speedup_ci95: Option<[f64; 2]>,
    /// The interval excludes 1 (for simulations: the ratio is not 1).
    pub differs: bool,
    /// Bootstrap p-value of a ratio of 1 (two-sided); null where there is no interval.
    pub p_value: Option<f64>,
    /// The p-value adjusted for the number of comparisons (Benjamini-Hochberg); null
    /// where there is none.
    pub adjusted_p: Option<f64>,
    /// The adjusted p-value is at most 0.05; null where there is none. `differs` stays the rule.
    pub differs_adjusted: Option<bool>,
    /// Overlap % of the baseline; null for both where they were recorded in different ways.
    pub baseline_overlap_pct: Option<f64>,
    /// Overlap of the compared cell (%), over the decode phase.
    pub overlap_pct: Option<f64>,
    /// By architecture, where `standard` and `upper-bound` were run too: (standard - it) / (standard -
    /// upper-bound) in TPOT; null where upper-bound is no faster than standard.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share, null where the share is: the three cells resampled in the same
    /// rounds; null too where the gap between standard and upper-bound may be nothing.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Where the decode phase's difference lies, baseline less it; null where the backend cannot tell.
    pub saved: Option<Difference>,
    /// Where the decode phase's difference from `upper-bound` lies, where that was run too.
    pub above_upper_bound: Option<Difference>,
    /// The measure that was asked for in particular ([`Cells::measure`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What was run as the baseline, and what communication costs in it.
    pub baseline_side: Side,
    /// What was compared with the baseline, and what communication costs in it.
    pub side: Side,
}

/// What both cells of a pair have of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The measure, which JSON has by its name.
    pub measure: &'static Measure,
    /// Its value in the baseline and in the compared cell.
    pub values: [Option<f64>; 2],
    /// The compared cell's over the baseline's.
    pub ratio: Option<f64>,
}

/// One cell of a pair: what was run, and what communication costs in it. Times of the lanes are of the
/// decode phase of one sample, per rank, averaged over ranks (ms); null where nothing was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The cell that was run, with all its options.
    #[serde(skip)]
    pub spec: Spec,
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// Interval of its TPOT (ms).
    pub tpot_ms_ci95: Option<[f64; 2]>,
    /// Latency of all decode steps (ms).
    pub decode_ms: f64,
    /// Latency of prefill and decode together (ms).
    pub completion_ms: f64,
    /// Samples behind the medians.
    pub samples: u32,
    /// How many rounds the samples come from.
    pub rounds: usize,
    /// Comm lane busy (ms).
    pub comm_ms: Option<f64>,
    /// The part of `comm_ms` during which the compute lane was idle (ms).
    pub exposed_comm_ms: Option<f64>,
    /// The exposed part of the decode phase, and so of TPOT (%).
    pub exposed_pct: Option<f64>,
    /// Overlap over the decode phase (%).
    pub overlap_pct: Option<f64>,
    /// Hidden share of this cell's architecture, where `standard` and `upper-bound` were run too.
    pub hidden_share: Option<f64>,
    /// Where the decode phase went; null where the backend cannot tell.
    pub split: Option<Split>,
    /// Neither lane busy (ms).
    pub idle_ms: Option<f64>,
}

impl Side {
    fn new(cell: &PooledCell) -> Self {
        let (metrics, overlap) = (&cell.metrics, cell.record.overlap.as_ref());
        let decode_ms = metrics.decode_ms;
        Self {
            spec: cell.record.spec.clone(),
            provenance: cell.record.provenance,
            tpot_ms_ci95: metrics.tpot_ms_ci95,
            decode_ms,
            completion_ms: metrics.completion_ms,
            samples: metrics.samples,
            rounds: cell.rounds.len(),
            comm_ms: overlap.map(|o| o.comm_ms),
            exposed_comm_ms: overlap.map(|o| o.exposed_comm_ms),
            exposed_pct: overlap
                .map(|o| 100.0 * o.exposed_comm_ms / decode_ms)
                .filter(|pct| pct.is_finite()),
            overlap_pct: overlap.and_then(|o| o.overlap_pct),
            hidden_share: cell.hidden_share,
            split: overlap.and_then(|o| o.split),
            idle_ms: overlap.map(|o| o.idle_ms),
        }
    }
}

/// All pairs that differ only along `axis`, and what looks wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonReport {
    /// The name of the axis along which the pairs differ.
    pub by: String,
    /// Its values among the cells, the first met first.
    pub values: Vec<String>,
    /// The pairs, in the order of their matched cells.
    pub pairs: Vec<Comparison>,
    /// Ratios looked at: the more, the more will differ by chance.
    pub comparisons: usize,
    /// How many of these ratios differ.
    pub differ: usize,
    /// How many differ when their number is taken into account.
    pub adjusted: Adjusted,
    /// Higher TP slower than lower, `upper-bound` that differs between P2P on and off, ...
    pub flags: Vec<String>,
}

/// An axis along which cells differ.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisCount {
    /// An axis along which the cells have more than one value.
    pub axis: Axis,
    /// Its values, the first met first.
    pub values: Vec<String>,
    /// Pairs that differ in it alone.
    pub pairs: usize,
}

/// Cells with numbers, ready to be compared along any axis.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<PooledCell>);

impl Cells {
    /// The cells of runs as stored; pooled records would have lost which samples belong to which round.
    pub fn of(records: &[Record]) -> Self {
        Self(cells(records))
    }

    /// How many cells have numbers and can be compared.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The axes along which these cells differ, with the number of pairs each would give.
    pub fn axes(&self) -> Vec<AxisCount> {
        let mut keys: Vec<Axis> = OPTIONS.iter().map(|option| Axis::Option(option.name)).collect();
        let mut named: Vec<Axis> = Vec::new();
        for PooledCell { record, .. } in &self.0 {
            let variables = record.spec.env.keys().cloned().map(Axis::Env);
            for axis in variables.chain(record.spec.set.keys().cloned().map(Axis::Set)) {
                if !named.contains(&axis) {
                    named.push(axis);
                }
            }
        }
        named.sort();
        keys.extend(named);
        let count = |axis: &Axis| {
            let matching = Matching::new(&self.0, axis, None);
            let values = matching.values().to_vec();
            (values.len() > 1).then(|| AxisCount {
                axis: axis.clone(),
                values,
                pairs: matching.pairs().len(),
            })
        };
        keys.par_iter().filter_map(count).collect()
    }

    /// Compares cells that differ only along `axis` (and, for p2p, in the link that p2p chose and in
    /// NCCL's P2P variables; by hardware and backend, in the machine) with the cell whose value is
    /// `baseline`; without one, with the natural baseline ([`Axis::natural_baseline`]), else the first
    /// value met. Errors where no cell has the baseline.
    pub fn compare(&self, axis: &Axis, baseline: Option<&str>) -> Result<ComparisonReport> {
        let cells = &self.0;
        let matching = Matching::new(cells, axis, baseline);
        if let Some(wanted) = baseline.filter(|wanted| !matching.values().iter().any(|v| v == wanted)) {
            let values = matching.values().iter().map(String::as_str);
            return Err(Error::unknown(&format!("{axis} among these runs:"), wanted, values));
        }
        let label = Label::new(cells, Some(axis));
        let compared: Vec<(Comparison, Vec<String>)> =
            matching.pairs().par_iter().map(|pair| pair.comparison(axis, &label)).collect();
        let mut all = flags(cells);
        all.extend(matching.unmatched(&label));
        let mut pairs = Vec::with_capacity(compared.len());
        for (pair, warnings) in compared {
            pairs.push(pair);
            all.extend(warnings);
        }
        let adjusted = adjust_all(&mut pairs);
        Ok(ComparisonReport {
            by: axis.to_string(),
            values: matching.values().to_vec(),
            comparisons: pairs.len(),
            differ: pairs.iter().filter(|pair| pair.differs).count(),
            adjusted,
            pairs,
            flags: all,
        })
    }
}

impl Cells {
    /// Adds to each pair of a comparison of these cells what both have of a measure.
    pub fn measure(&self, report: &mut ComparisonReport, measure: &'static Measure) {
        let records: Vec<&Record> = self.0.iter().map(|cell| &cell.record).collect();
        let values = measure.of_all(&records);
        let by_run: HashMap<&str, Option<f64>> =
            records.iter().map(|record| record.run.as_str()).zip(values).collect();
        for pair in &mut report.pairs {
            let of = |run: &String| by_run.get(run.as_str()).copied().flatten();
            let values = [of(&pair.baseline_run), of(&pair.run)];
            let [baseline, other] = values;
            let ratio = other.zip(baseline).map(|(b, a)| b / a).filter(|ratio| ratio.is_finite());
            pair.measured = Some(Measured { measure, values, ratio });
        }
    }
}

/// Compares records along an axis by its name; see [`Cells::compare`].
pub fn compare(records: &[Record], axis: &str) -> Result<ComparisonReport> {
    Cells::of(records).compare(&Axis::parse(axis)?, None)
}

/// Sets the adjusted p-values of all pairs.
fn adjust_all(pairs: &mut [Comparison]) -> Adjusted {
    let tested: Vec<usize> = (0..pairs.len()).filter(|i| pairs[*i].p_value.is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|i| pairs[*i].p_value).collect();
    for (&index, adjusted) in tested.iter().zip(benjamini_hochberg(&p)) {
        pairs[index].adjusted_p = Some(adjusted);
        pairs[index].differs_adjusted = Some(adjusted <= LEVEL);
    }
    Adjusted {
        method: "Benjamini-Hochberg",
        false_discovery_rate: LEVEL,
        tested: tested.len(),
        differ: pairs.iter().filter(|pair| pair.differs_adjusted == Some(true)).count(),
    }
}

impl Pair<'_> {
    /// What is said of the pair, and what is wrong with it.
    fn comparison(&self, axis: &Axis, label: &Label) -> (Comparison, Vec<String>) {
        let (baseline, other) = (&self.baseline.record, &self.other.record);
        let Ratio { speedup, ci95, p, differs, .. } = self.ratio();
        let (hidden_share, hidden_share_ci95) = self.hidden_share();
        let matched = label.pair(self.baseline, self.other);
        let (from, to) = (axis.value(&baseline.spec), axis.value(&other.spec));
        let mut flags = Vec::new();
        let rounds = [self.baseline, self.other].map(|cell| cell.rounds.keys().collect::<Vec<_>>());
        if rounds[0] != rounds[1] {
            flags.push(format!(
                "{matched}: {from} has rounds {:?}, {to} has {:?}; ratios use those that both have",
                rounds[0], rounds[1]
            ));
        }
        let (mut baseline_side, mut side) = (Side::new(self.baseline), Side::new(self.other));
        let both = baseline_side.overlap_pct.is_some() && side.overlap_pct.is_some();
        if recorder(baseline) != recorder(other) && both {
            let name = |record| recorder(record).unwrap_or("unknown");
            flags.push(format!(
                "{matched}: overlap of {from} ({}) and {to} ({}) was recorded in different ways and is \
                 not compared",
                name(baseline),
                name(other)
            ));
            (baseline_side.overlap_pct, side.overlap_pct) = (None, None);
        }
        let comparison = Comparison {
            rest: label.rest(self.baseline, self.other),
            matched,
            baseline: from,
            value: to,
            baseline_run: baseline.run.clone(),
            run: other.run.clone(),
            provenance: baseline.provenance.max(other.provenance),
            baseline_tpot_ms: self.baseline.metrics.tpot_ms.p50,
            tpot_ms: self.other.metrics.tpot_ms.p50,
            speedup,
            speedup_ci95: ci95,
            differs,
            p_value: p,
            adjusted_p: None,
            differs_adjusted: None,
            baseline_overlap_pct: baseline_side.overlap_pct,
            overlap_pct: side.overlap_pct,
            hidden_share,
            hidden_share_ci95,
            saved: Difference::new(baseline.overlap.as_ref(), other.overlap.as_ref()),
            measured: None,
            above_upper_bound: self.upper_bound.and_then(|limit| {
                Difference::new(other.overlap.as_ref(), limit.record.overlap.as_ref())
            }),
            baseline_side,
            side,
        };
        (comparison, flags)
    }
}

#[cfg(test)]
mod tests;
