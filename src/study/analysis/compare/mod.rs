//! Comparison of pooled cells that differ along one axis: ratios and their significance.

mod comparison;
mod heat;
mod matching;
mod pivot;
mod running;
mod tables;

pub use comparison::{
    AxisCount, CONTENTION, Comparison, ComparisonReport, Flag, FlagKind, LEAST_DIFFERENCE,
    MeasureComparison, PairVerdict, Side, SignificanceAdjustment, beaten_limit, benjamini_hochberg,
    compared_rows, is_beaten_by_noise, less_work, no_limit,
};
pub use heat::{Gaps, HeatAxes, HeatCell, HeatMap, HeatSlice, HeatValue, Reasons, slices, slices_over};
pub use matching::first_equal;
pub(super) use matching::{CellMatching, LabelBuilder, Pair, PooledCell, parts};
pub(crate) use pivot::fastest;
pub use pivot::{Axis, Pivot, PivotRow, UNSET, pivot_table};
pub use running::{RatioSoFar, ratio_so_far};
pub use tables::{
    DIFFERENCES, DifferenceRow, REST, common_settings, difference_rows_table, differences_table,
    pairs_table,
};

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rayon::prelude::*;

use self::comparison::{LEVEL, minutes};
use self::matching::{ComparedRounds, Ratio, cells, with_shared_rounds};
use crate::analysis::noise::flags;
use crate::analysis::{Difference, PublishedValue, Varied};
use crate::validate::TieBand;
use base::error::{Error, Result};
use base::statistics::distinct;
use table::options::OPTIONS;
use table::{Measure, MeasureScope, Provenance, Record, Spec, recorder};

/// Cells with metrics, ready to be compared along any axis.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<PooledCell>);

impl Cells {
    /// Groups stored runs into cells. Takes unpooled records: pooling loses which samples belong to which round.
    pub fn from_records(records: &[Record]) -> Self {
        Self(cells(records))
    }

    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        self.0.iter().map(|cell| &cell.record.spec)
    }

    pub fn samples(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|cell| cell.metrics.samples as usize)
    }

    /// Axes along which the cells differ, with the pairs of each.
    pub fn axes(&self) -> Vec<AxisCount> {
        let mut keys: Vec<Axis> = OPTIONS.iter().map(|option| Axis::Option(option.name)).collect();
        let mut named: BTreeSet<Axis> = BTreeSet::new();
        for PooledCell { record, .. } in &self.0 {
            named.extend(record.spec.env.keys().cloned().map(Axis::Env));
            named.extend(record.spec.set.keys().cloned().map(Axis::Set));
        }
        keys.push(Axis::Division);
        keys.extend(named);
        let count = |axis: &Axis| {
            let matching = CellMatching::new(&self.0, axis, None);
            let values = matching.values().to_vec();
            // without experts, a division is a TP
            let is_axis = values.len() > 1
                && (*axis != Axis::Division || values.iter().any(|value| value.contains("ep")));
            let runs = |pair: &Pair<'_>| [pair.baseline, pair.other].map(|cell| cell.record.run.clone());
            let pairs = || matching.pairs().iter().map(runs).collect();
            is_axis.then(|| AxisCount { axis: axis.clone(), values, pairs: pairs() })
        };
        keys.par_iter().filter_map(count).collect()
    }

    /// Compares cells that differ only along `axis` with the cell whose value is `baseline`, or else the default
    /// ([`Axis::natural_baseline`]), or else the first value found. Along p2p, the link chosen by P2P and NCCL's P2P
    /// variables may differ too; along hardware and backend, the machine. Returns an error if no cell has the baseline.
    pub fn compare(&self, axis: &Axis, baseline: Option<&str>) -> Result<ComparisonReport> {
        let cells = &self.0;
        let matching = CellMatching::new(cells, axis, baseline);
        if let Some(wanted) = baseline.filter(|wanted| !matching.values().iter().any(|v| v == wanted)) {
            let values = matching.values().iter().map(String::as_str);
            return Err(Error::unknown(&format!("{axis} among these runs:"), wanted, values));
        }
        let label = LabelBuilder::new(cells, axis);
        let compared: Vec<(Comparison, Vec<Flag>)> =
            matching.pairs().par_iter().map(|pair| pair.comparison(axis, &label)).collect();
        let mut all = flags(cells);
        all.extend(matching.unmatched(&label));
        let mut pairs = Vec::with_capacity(compared.len());
        for (pair, warnings) in compared {
            pairs.push(pair);
            all.extend(warnings);
        }
        sort_by_setting(&mut pairs, axis);
        set_bands(&mut pairs, cells);
        let adjusted = adjust_all(&mut pairs);
        set_ties(&mut pairs, cells);
        mark_above_limit(&mut pairs);
        Ok(ComparisonReport {
            by: axis.to_string(),
            values: in_order(matching.values().to_vec()),
            comparisons: pairs.len(),
            differ: pairs.iter().filter(|pair| pair.matters()).count(),
            adjusted,
            pairs,
            flags: all,
        })
    }

    /// Adds a measure to each pair of a comparison of these cells. Quality on two different texts gets no ratio.
    pub fn measure(&self, report: &mut ComparisonReport, measure: &'static Measure) {
        let records: Vec<&Record> = self.0.iter().map(|cell| &cell.record).collect();
        let values = measure.of_all(&records);
        let is_quality = measure.scope == MeasureScope::Quality;
        // value of a run, and the text that it is of
        let by_run = self.0.iter().zip(values).map(|(cell, value)| {
            let quality = cell.record.quality.as_ref().filter(|_| is_quality);
            (cell.record.run.as_str(), (value, quality.map(|quality| quality.text_hash.as_str())))
        });
        let by_run: HashMap<&str, (Option<f64>, Option<&str>)> = by_run.collect();
        for pair in &mut report.pairs {
            let of = |run: &String| by_run.get(run.as_str()).copied().unwrap_or_default();
            let [(baseline, text), (other, other_text)] = [&pair.baseline_run, &pair.run].map(of);
            let ratio = other.zip(baseline).map(|(b, a)| b / a);
            let ratio = ratio.filter(|ratio| ratio.is_finite() && text == other_text);
            pair.measured = Some(MeasureComparison { measure, values: [baseline, other], ratio });
        }
    }
}

pub fn compare(records: &[Record], axis: &str) -> Result<ComparisonReport> {
    Cells::from_records(records).compare(&Axis::parse(axis)?, None)
}

/// Sorts pairs by the settings in which they differ, then by the compared value. Pairs of the same setting on several
/// machines keep their order.
fn sort_by_setting(pairs: &mut [Comparison], axis: &Axis) {
    let settings = Varied::from_specs(sides(pairs)).without(axis);
    let axes: Vec<Axis> = settings.axes().chain([axis]).cloned().collect();
    let ranks = |axis: &Axis| -> HashMap<String, usize> {
        let values = distinct(pairs.iter().map(|pair| axis.value(&pair.side.spec)));
        in_order(values).into_iter().zip(0..).collect()
    };
    let ranks: Vec<HashMap<String, usize>> = axes.iter().map(ranks).collect();
    pairs.sort_by_cached_key(|pair| -> Vec<Option<usize>> {
        let rank = |(axis, ranks): (&Axis, &HashMap<String, usize>)| {
            ranks.get(&axis.value(&pair.side.spec)).copied()
        };
        axes.iter().zip(&ranks).map(rank).collect()
    });
}

/// Values of an axis in the order of a table: numbers by size, names as they were met.
fn in_order(mut values: Vec<String>) -> Vec<String> {
    let number = |value: &str| match value {
        UNSET => Some(f64::NEG_INFINITY),
        _ => value.parse::<f64>().ok(),
    };
    if values.iter().all(|value| number(value).is_some()) {
        let key = |value: &str| number(value).unwrap_or_default();
        values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    }
    values
}

/// Gives the simulated sides the tie bands of their cells, which take long to find.
fn set_bands(pairs: &mut [Comparison], cells: &[PooledCell]) {
    let simulated = cells.par_iter().filter(|cell| cell.record.provenance == Provenance::Simulated);
    let band = |cell: &PooledCell| (cell.record.run.clone(), TieBand::from_spec(&cell.record.spec));
    let bands: HashMap<String, TieBand> = simulated.map(band).collect();
    for pair in pairs {
        pair.baseline_side.band = bands.get(&pair.baseline_run).copied();
        pair.side.band = bands.get(&pair.run).copied();
    }
}

/// Finds the measured pairs of each baseline run that beat it, and that do not differ from each other.
fn set_ties(pairs: &mut [Comparison], cells: &[PooledCell]) {
    let mut faster: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, pair) in pairs.iter().enumerate() {
        if pair.verdict == PairVerdict::Faster && !pair.is_simulated() && !pair.is_limit() {
            faster.entry(&pair.baseline_run).or_default().push(at);
        }
    }
    let mut rivals: Vec<[usize; 2]> = Vec::new();
    for all in faster.values() {
        for (at, first) in all.iter().enumerate() {
            rivals.extend(all[at + 1..].iter().map(|other| [*first, *other]));
        }
    }
    let cells: HashMap<&str, &PooledCell> =
        cells.iter().map(|cell| (cell.record.run.as_str(), cell)).collect();
    let ties = |both: &[usize; 2]| {
        let [a, b] = both.map(|at| cells.get(pairs[at].run.as_str()));
        a.zip(b).is_some_and(|(a, b)| !Pair::new(a, b).ratio().differs)
    };
    let tied: Vec<[usize; 2]> = rivals.into_par_iter().filter(ties).collect();
    for [a, b] in tied {
        let (of_a, of_b) = (pairs[a].run.clone(), pairs[b].run.clone());
        pairs[a].tied_runs.push(of_b);
        pairs[b].tied_runs.push(of_a);
    }
}

/// Marks the measured pairs that noise or drift puts above `upper-bound` of their setting.
fn mark_above_limit(pairs: &mut [Comparison]) {
    let mut limits: HashMap<&str, Vec<&Comparison>> = HashMap::new();
    for pair in pairs.iter().filter(|pair| pair.is_limit()) {
        limits.entry(&pair.baseline_run).or_default().push(pair);
    }
    let is_above = |pair: &Comparison| {
        let mut own = limits.get(pair.baseline_run.as_str()).into_iter().flatten();
        own.any(|limit| is_beaten_by_noise(limit, [pair]))
    };
    let above: Vec<bool> = pairs.iter().map(is_above).collect();
    for (pair, is_above) in pairs.iter_mut().zip(above) {
        pair.is_above_limit = is_above;
    }
}

fn adjust_all(pairs: &mut [Comparison]) -> SignificanceAdjustment {
    let tested: Vec<usize> = (0..pairs.len()).filter(|i| pairs[*i].p_value.is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|i| pairs[*i].p_value).collect();
    for (&index, adjusted) in tested.iter().zip(benjamini_hochberg(&p)) {
        let pair = &mut pairs[index];
        pair.adjusted_p = Some(adjusted);
        pair.differs_adjusted = Some(adjusted <= LEVEL);
    }
    pairs.iter_mut().for_each(|pair| pair.verdict = pair.judge());
    SignificanceAdjustment {
        method: "Benjamini-Hochberg",
        false_discovery_rate: LEVEL,
        tested: tested.len(),
        differ: pairs.iter().filter(|pair| pair.differs_adjusted == Some(true)).count(),
    }
}

impl Pair<'_> {
    fn comparison(&self, axis: &Axis, label: &LabelBuilder<'_>) -> (Comparison, Vec<Flag>) {
        // all numbers come from the same rounds as the ratio
        let (compared, [baseline_cell, cell]) = &with_shared_rounds([self.baseline, self.other]);
        let (baseline, other) = (&baseline_cell.record, &cell.record);
        let Ratio { speedup, ci95, p, differs, .. } = self.ratio();
        let matched = label.pair(self.baseline, self.other);
        let (from, to) = (axis.value(&baseline.spec), axis.value(&other.spec));
        let mut flags = Vec::new();
        let flag = |text: String| Flag::new([self.baseline, self.other], text);
        let rounds = [self.baseline, self.other].map(|cell| cell.rounds.keys().collect::<Vec<_>>());
        if rounds[0] != rounds[1] {
            flags.push(flag(format!(
                "{matched}: {from} has rounds {:?}, {to} has {:?}; numbers are of those that both have",
                rounds[0], rounds[1]
            )));
        }
        if let Some(longest) = compared.longest_apart() {
            let what = match compared.are_all_apart() {
                true => "none was measured side by side, so the machine may have changed between them",
                false => "they do not count, as the machine may have changed between them",
            };
            flags.push(flag(format!(
                "{matched}: rounds {:?} of {from} and {to} were measured apart, up to {}; {what}",
                compared.apart.keys().collect::<Vec<_>>(),
                minutes(longest)
            )));
        }
        let (mut baseline_side, mut side) = (Side::new(baseline_cell), Side::new(cell));
        baseline_side.all_rounds_ms = self.baseline.rounds_ms();
        side.all_rounds_ms = self.other.rounds_ms();
        let both = baseline_side.overlap_pct.is_some() && side.overlap_pct.is_some();
        if recorder(baseline) != recorder(other) && both {
            let name = |record| recorder(record).unwrap_or("unknown");
            flags.push(flag(format!(
                "{matched}: overlap of {from} ({}) and {to} ({}) was recorded in different ways and is \
                 not compared",
                name(baseline),
                name(other)
            )));
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
            baseline_tpot_ms: baseline_cell.metrics.tpot_ms.p50,
            tpot_ms: cell.metrics.tpot_ms.p50,
            speedup,
            speedup_ci95: ci95,
            differs,
            p_value: p,
            adjusted_p: None,
            tied_runs: Vec::new(),
            differs_adjusted: None,
            verdict: PairVerdict::Unknown,
            baseline_overlap_pct: baseline_side.overlap_pct,
            overlap_pct: side.overlap_pct,
            hidden_share: side.hidden_share,
            hidden_share_ci95: side.hidden_share_ci95,
            saved: Difference::new(baseline_cell.decoding(), cell.decoding()),
            measured: None,
            rounds_apart: compared.apart.len(),
            longest_apart: self.other.apart_from(self.baseline),
            is_gap_apart: self.upper_bound.is_some_and(|limit| {
                ComparedRounds::new(&[self.baseline, self.other, limit]).are_too_few()
            }),
            is_above_limit: false,
            published_speedup: PublishedValue::of_speedup([&baseline.spec, &other.spec], speedup),
            above_upper_bound: self.upper_bound.and_then(|limit| {
                let (compared, [cell, limit]) = &with_shared_rounds([self.other, limit]);
                let difference = Difference::new(cell.decoding(), limit.decoding());
                difference.filter(|_| !compared.are_too_few())
            }),
            baseline_side,
            side,
        };
        (comparison, flags)
    }
}

fn sides(pairs: &[Comparison]) -> impl Iterator<Item = &Spec> + Clone {
    pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec])
}

#[cfg(test)]
mod tests;
