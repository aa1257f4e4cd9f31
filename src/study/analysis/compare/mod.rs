//! Comparison of pooled cells that differ along one axis: ratios and their significance. The
//! tables of pairs and of their differences have one list of columns each, for terminal, files and pages.

mod comparison;
mod heat;
mod matching;
mod pivot;

pub use comparison::{
    Adjusted, AxisCount, CONTENTION, Comparison, ComparisonReport, Flag, LEAST_DIFFERENCE, Measured,
    PairVerdict, Side, beaten_limit, benjamini_hochberg, compared_rows, is_beaten_by_noise, less_work,
    no_limit,
};
pub use heat::{Gaps, HeatCell, HeatMap, HeatSlice, HeatValue, Reasons, slices};
pub use matching::first_equal;
pub(super) use matching::{Label, Matching, Pair, PooledCell, parts};
pub(crate) use pivot::fastest;
pub use pivot::{Axis, Pivot, PivotRow, UNSET, pivot_table};

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rayon::prelude::*;

use self::comparison::LEVEL;
use self::matching::{Ratio, cells};
use crate::analysis::noise::flags;
use crate::analysis::{Difference, PublishedValue, Varied};
use crate::validate::TieBand;
use base::error::{Error, Result};
use table::options::OPTIONS;
use table::render::{Shown, Table};
use table::{Measure, MeasureScope, Record, Spec, recorder};

/// Cells with metrics, ready to be compared along any axis.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<PooledCell>);

impl Cells {
    /// Groups stored runs into cells. Takes unpooled records: pooling loses which samples belong to which round.
    pub fn of(records: &[Record]) -> Self {
        Self(cells(records))
    }

    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        self.0.iter().map(|cell| &cell.record.spec)
    }

    pub fn samples(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|cell| cell.metrics.samples as usize)
    }

    /// Axes along which the cells differ, with the number of pairs of each.
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
            let matching = Matching::new(&self.0, axis, None);
            let values = matching.values().to_vec();
            // without experts, a division is a TP
            let is_axis = values.len() > 1
                && (*axis != Axis::Division || values.iter().any(|value| value.contains("ep")));
            is_axis.then(|| AxisCount { axis: axis.clone(), values, pairs: matching.pairs().len() })
        };
        keys.par_iter().filter_map(count).collect()
    }

    /// Compares cells that differ only along `axis` with the cell whose value is `baseline`, or else the default
    /// ([`Axis::natural_baseline`]), or else the first value found. Along p2p, the link chosen by P2P and NCCL's P2P
    /// variables may differ too; along hardware and backend, the machine. Returns an error if no cell has the baseline.
    pub fn compare(&self, axis: &Axis, baseline: Option<&str>) -> Result<ComparisonReport> {
        let cells = &self.0;
        let matching = Matching::new(cells, axis, baseline);
        if let Some(wanted) = baseline.filter(|wanted| !matching.values().iter().any(|v| v == wanted)) {
            let values = matching.values().iter().map(String::as_str);
            return Err(Error::unknown(&format!("{axis} among these runs:"), wanted, values));
        }
        let label = Label::new(cells, Some(axis));
        let compared: Vec<(Comparison, Vec<Flag>)> =
            matching.pairs().par_iter().map(|pair| pair.comparison(axis, &label)).collect();
        let mut all = flags(cells);
        all.extend(matching.unmatched(&label));
        let mut pairs = Vec::with_capacity(compared.len());
        for (pair, warnings) in compared {
            pairs.push(pair);
            all.extend(warnings);
        }
        set_bands(&mut pairs, cells);
        let adjusted = adjust_all(&mut pairs);
        Ok(ComparisonReport {
            by: axis.to_string(),
            values: matching.values().to_vec(),
            comparisons: pairs.len(),
            differ: pairs.iter().filter(|pair| pair.matters()).count(),
            adjusted,
            pairs,
            flags: all,
        })
    }
}

impl Cells {
    /// Adds a measure to each pair of a comparison of these cells. Quality on two different texts gets no ratio.
    pub fn measure(&self, report: &mut ComparisonReport, measure: &'static Measure) {
        let records: Vec<&Record> = self.0.iter().map(|cell| &cell.record).collect();
        let values = measure.of_all(&records);
        let by_run: HashMap<&str, Option<f64>> =
            records.iter().map(|record| record.run.as_str()).zip(values).collect();
        let texts: HashMap<&str, &str> = match measure.scope {
            MeasureScope::Quality => records
                .iter()
                .filter_map(|record| {
                    Some((record.run.as_str(), record.quality.as_ref()?.text_hash.as_str()))
                })
                .collect(),
            _ => HashMap::new(),
        };
        for pair in &mut report.pairs {
            let text = |run: &String| texts.get(run.as_str());
            let of_one_text = text(&pair.baseline_run) == text(&pair.run);
            let record_of = |run: &String| by_run.get(run.as_str()).copied().flatten();
            let values = [record_of(&pair.baseline_run), record_of(&pair.run)];
            let [baseline, other] = values;
            let ratio = other.zip(baseline).map(|(b, a)| b / a);
            let ratio = ratio.filter(|ratio| ratio.is_finite() && of_one_text);
            pair.measured = Some(Measured { measure, values, ratio });
        }
    }
}

pub fn compare(records: &[Record], axis: &str) -> Result<ComparisonReport> {
    Cells::of(records).compare(&Axis::parse(axis)?, None)
}

/// Gives the simulated pairs of an experiment that compare one latency the same tie band, the widest of their cells: it
/// must not depend on what else is stored.
fn set_bands(pairs: &mut [Comparison], cells: &[PooledCell]) {
    let experiments: HashMap<&str, Option<&str>> =
        cells.iter().map(|cell| (cell.record.run.as_str(), cell.record.experiment.as_deref())).collect();
    let key = |pair: &Comparison| {
        let experiment = experiments.get(pair.run.as_str()).copied().flatten();
        pair.is_simulated().then(|| (pair.latency(), experiment))
    };
    for (latency, experiment) in pairs.iter().filter_map(key).collect::<BTreeSet<_>>() {
        let is_own = |pair: &Comparison| key(pair) == Some((latency, experiment));
        let mut runs: BTreeMap<&str, &Spec> = BTreeMap::new();
        for pair in pairs.iter().filter(|pair| is_own(pair)) {
            runs.insert(&pair.baseline_run, &pair.baseline_side.spec);
            runs.insert(&pair.run, &pair.side.spec);
        }
        let band = match latency {
            "TPOT" => TieBand::of(runs.into_values()),
            _ => TieBand::of_first_tokens(runs.into_values()),
        };
        pairs.iter_mut().filter(|pair| is_own(pair)).for_each(|pair| pair.band = Some(band));
    }
}

fn adjust_all(pairs: &mut [Comparison]) -> Adjusted {
    let tested: Vec<usize> = (0..pairs.len()).filter(|i| pairs[*i].p_value.is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|i| pairs[*i].p_value).collect();
    for (&index, adjusted) in tested.iter().zip(benjamini_hochberg(&p)) {
        pairs[index].adjusted_p = Some(adjusted);
        pairs[index].differs_adjusted = Some(adjusted <= LEVEL);
    }
    pairs.iter_mut().for_each(|pair| pair.verdict = pair.judge());
    Adjusted {
        method: "Benjamini-Hochberg",
        false_discovery_rate: LEVEL,
        tested: tested.len(),
        differ: pairs.iter().filter(|pair| pair.differs_adjusted == Some(true)).count(),
    }
}

impl Pair<'_> {
    fn comparison(&self, axis: &Axis, label: &Label) -> (Comparison, Vec<Flag>) {
        let (baseline, other) = (&self.baseline.record, &self.other.record);
        let Ratio { speedup, ci95, p, differs, .. } = self.ratio();
        let matched = label.pair(self.baseline, self.other);
        let (from, to) = (axis.value(&baseline.spec), axis.value(&other.spec));
        let mut flags = Vec::new();
        let flag = |text: String| Flag::new([self.baseline, self.other], text);
        let rounds = [self.baseline, self.other].map(|cell| cell.rounds.keys().collect::<Vec<_>>());
        if rounds[0] != rounds[1] {
            flags.push(flag(format!(
                "{matched}: {from} has rounds {:?}, {to} has {:?}; ratios use those that both have",
                rounds[0], rounds[1]
            )));
        }
        let (mut baseline_side, mut side) = (Side::new(self.baseline), Side::new(self.other));
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
            baseline_tpot_ms: self.baseline.metrics.tpot_ms.p50,
            tpot_ms: self.other.metrics.tpot_ms.p50,
            speedup,
            speedup_ci95: ci95,
            differs,
            p_value: p,
            adjusted_p: None,
            differs_adjusted: None,
            verdict: PairVerdict::Unknown,
            band: None,
            baseline_overlap_pct: baseline_side.overlap_pct,
            overlap_pct: side.overlap_pct,
            hidden_share: side.hidden_share,
            hidden_share_ci95: side.hidden_share_ci95,
            saved: Difference::new(self.baseline.decoding(), self.other.decoding()),
            measured: None,
            published_speedup: PublishedValue::of_speedup([&baseline.spec, &other.spec], speedup),
            above_upper_bound: self
                .upper_bound
                .and_then(|limit| Difference::new(self.other.decoding(), limit.decoding())),
            baseline_side,
            side,
        };
        (comparison, flags)
    }
}

fn sides(report: &ComparisonReport) -> impl Iterator<Item = &Spec> + Clone {
    report.pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec])
}

/// Settings that all cells of a report share, for a line beside its tables, whose rows name the others.
pub fn common_settings(report: &ComparisonReport) -> String {
    sides(report).next().map_or_else(String::new, |spec| Varied::of(sides(report)).common(spec))
}

/// Settings that name a row: those in which the cells of a report differ, besides its axis. `None` if the rows need
/// [`Comparison::matched`] to be told apart, for their machines or files.
struct RowSettings(Option<Varied>);

impl RowSettings {
    fn of(report: &ComparisonReport) -> Self {
        let varied = Varied::of(sides(report));
        let varied = Axis::parse(&report.by).map_or(varied.clone(), |axis| varied.without(&axis));
        let settings = varied.model_last(sides(report));
        let words: BTreeSet<String> =
            report.pairs.iter().map(|pair| settings.words(&pair.side.spec)).collect();
        let matched: BTreeSet<&str> = report.pairs.iter().map(|pair| pair.matched.as_str()).collect();
        Self((words.len() >= matched.len()).then_some(settings))
    }

    fn name(&self, pair: &Comparison) -> String {
        self.0.as_ref().map_or_else(|| pair.matched.clone(), |settings| settings.words(&pair.side.spec))
    }
}

/// Columns that a narrow window drops, the last entry first.
const LEAST: [&str; 10] = [
    "published",
    "baseline TPOT ms",
    "TPOT ms",
    "gap closed",
    "overlap %",
    "exposed %",
    "baseline gap closed",
    "baseline overlap %",
    "baseline exposed %",
    "adjusted p",
];

/// Table with one row per pair. Files have all digits and the ends of intervals.
pub fn pairs_table(report: &ComparisonReport) -> Table {
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 3);
    let saved = |p: &Comparison, of: fn(&Difference) -> f64| Shown::number(p.saved.as_ref().map(of), 2);
    let above = |p: &Comparison, of: fn(&Difference) -> f64| {
        Shown::number(p.above_upper_bound.as_ref().map(of), 2)
    };
    // no TPOT if no token was decoded
    let tpot = |ms: f64| Shown::number(Some(ms).filter(|ms| *ms > 0.0), 3);
    let value = |p: &Comparison, at: usize| {
        let measured = p.measured.as_ref();
        Shown::number(measured.and_then(|m| m.values[at]), measured.map_or(3, |m| m.measure.decimals))
    };
    let title = |before: &str| {
        let measured = report.pairs.first().and_then(|pair| pair.measured.as_ref());
        measured.map(|m| format!("{before} {}", m.measure.title).trim().to_owned()).unwrap_or_default()
    };
    let (tpots, ttfts, speedup) = match report.latency() {
        "TPOT" => {
            let tpots = ["baseline_tpot_ms|baseline TPOT ms", "tpot_ms|TPOT ms"];
            (tpots, ["", ""], "speedup|speedup (tokens/s)")
        }
        _ => {
            let ttfts = ["|baseline TTFT ms", "|TTFT ms"];
            (["baseline_tpot_ms|", "tpot_ms|"], ttfts, "speedup|speedup (TTFT)")
        }
    };
    let [published, error] = match report.pairs.iter().any(|pair| pair.published_speedup.is_some()) {
        true => ["published_speedup|published", "published_error_pct|vs published %"],
        false => ["published_speedup|", "published_error_pct|"],
    };
    // omit columns that were not requested
    let named = |name: &str, title: &str| {
        if title.is_empty() { String::new() } else { format!("{name}|{title}") }
    };
    let [mine, base, ratio] = ["", "baseline", "ratio of"].map(title);
    let (measure, mine) = (if mine.is_empty() { "" } else { "measure|" }, named("measured", &mine));
    let (base, ratio) = (named("baseline_measured", &base), named("measured_ratio", &ratio));
    let settings = RowSettings::of(report);
    Table::of(
        &report.pairs,
        &[
            ("matched|", &|p| Shown::text(&p.matched)),
            ("~|cell", &|p| Shown::some(settings.name(p))),
            ("by|", &|_| Shown::text(&report.by)),
            ("baseline", &|p| Shown::text(&p.baseline)),
            ("value", &|p| Shown::text(&p.value)),
            ("baseline_run|", &|p| Shown::text(&p.baseline_run)),
            ("run|", &|p| Shown::text(&p.run)),
            (tpots[0], &|p| tpot(p.baseline_tpot_ms)),
            (tpots[1], &|p| tpot(p.tpot_ms)),
            (ttfts[0], &|p| Shown::Number(p.latencies_ms()[0], 3)),
            (ttfts[1], &|p| Shown::Number(p.latencies_ms()[1], 3)),
            (measure, &|p| Shown::some(p.measured.as_ref().map_or("", |m| m.measure.name))),
            (&base, &|p| value(p, 0)),
            (&mine, &|p| value(p, 1)),
            (&ratio, &|p| Shown::number(p.measured.as_ref().and_then(|m| m.ratio), 3)),
            (speedup, &|p| Shown::Interval(p.speedup, p.speedup_ci95, 3)),
            ("speedup_ci95_low|", &|p| end(p.speedup_ci95, 0)),
            ("speedup_ci95_high|", &|p| end(p.speedup_ci95, 1)),
            ("differs|", &|p| Shown::text(p.differs)),
            ("verdict", &|p| Shown::text(p.verdict_word())),
            (published, &|p| Shown::number(p.published_speedup.map(|of| of.value), 3)),
            (error, &|p| Shown::number(p.published_speedup.map(|of| of.error_pct), 1)),
            ("p_value|", &|p| Shown::number(p.p_value, 4)),
            ("adjusted_p|adjusted p", &|p| Shown::number(p.adjusted_p, 4)),
            ("baseline_exposed_pct|baseline exposed %", &|p| {
                Shown::number(p.baseline_side.exposed_pct, 1)
            }),
            ("exposed_pct|exposed %", &|p| Shown::number(p.side.exposed_pct, 1)),
            ("baseline_overlap_pct|baseline overlap %", &|p| Shown::number(p.baseline_overlap_pct, 1)),
            ("overlap_pct|overlap %", &|p| Shown::number(p.overlap_pct, 1)),
            ("baseline_hidden_share|", &|p| Shown::number(p.baseline_side.hidden_share, 3)),
            // standard closes no gap, and is the baseline when comparing architectures
            ("|baseline gap closed", &|p| {
                let side = &p.baseline_side;
                let share = side.hidden_share.filter(|share| *share != 0.0);
                Shown::interval(share, side.hidden_share_ci95, 3)
            }),
            ("hidden_share|gap closed", &|p| Shown::interval(p.hidden_share, p.hidden_share_ci95, 3)),
            ("hidden_share_ci95_low|", &|p| end(p.hidden_share_ci95, 0)),
            ("hidden_share_ci95_high|", &|p| end(p.hidden_share_ci95, 1)),
            ("!provenance", &|p| Shown::text(p.provenance)),
            ("saved_decode_ms|", &|p| saved(p, |d| d.decode_ms)),
            ("saved_transfer_ms|", &|p| saved(p, |d| d.transfer_ms)),
            ("saved_peer_wait_ms|", &|p| saved(p, |d| d.peer_wait_ms)),
            ("saved_contention_ms|", &|p| saved(p, |d| d.contention_ms)),
            ("saved_operations_ms|", &|p| saved(p, |d| d.operations_ms)),
            ("saved_idle_ms|", &|p| saved(p, |d| d.idle_ms)),
            ("saved_rest_ms|", &|p| saved(p, |d| d.rest_ms)),
            ("above_bound_decode_ms|", &|p| above(p, |d| d.decode_ms)),
            ("above_bound_transfer_ms|", &|p| above(p, |d| d.transfer_ms)),
            ("above_bound_peer_wait_ms|", &|p| above(p, |d| d.peer_wait_ms)),
            ("above_bound_contention_ms|", &|p| above(p, |d| d.contention_ms)),
            ("above_bound_operations_ms|", &|p| above(p, |d| d.operations_ms)),
            ("above_bound_idle_ms|", &|p| above(p, |d| d.idle_ms)),
            ("above_bound_rest_ms|", &|p| above(p, |d| d.rest_ms)),
            ("baseline_comm_ms|", &|p| Shown::number(p.baseline_side.comm_ms, 3)),
            ("comm_ms|", &|p| Shown::number(p.side.comm_ms, 3)),
            ("baseline_exposed_comm_ms|", &|p| Shown::number(p.baseline_side.exposed_comm_ms, 3)),
            ("exposed_comm_ms|", &|p| Shown::number(p.side.exposed_comm_ms, 3)),
            ("baseline_samples|", &|p| p.baseline_side.samples.into()),
            ("samples|", &|p| p.side.samples.into()),
        ],
    )
    .least(&LEAST)
}

/// Title of a table of differences.
pub const DIFFERENCES: &str = "Source of the difference in decode latency (ms, mean over ranks)";

/// Explanation of the column `rest`.
pub const REST: &str = "rest: ranks that end early, prefills of other requests";

/// Row of a table of differences.
#[derive(Clone, Debug)]
pub struct DifferenceRow<'a> {
    /// Matched cell, for files; empty if the table has one.
    pub cell: &'a str,
    /// Its settings that others do not have, for people.
    pub settings: String,
    /// `minuend − subtrahend`.
    pub name: String,
    pub difference: Difference,
}

/// Table of decode-phase differences: one row for baseline minus compared, one for compared minus `upper-bound`; none
/// if the backend does not provide a breakdown. Times per rank (ms).
pub fn differences_table(report: &ComparisonReport) -> Table {
    let settings = RowSettings::of(report);
    let mut rows: Vec<DifferenceRow<'_>> = Vec::new();
    for pair in &report.pairs {
        let mut add = |minuend: &str, subtrahend: &str, difference: Option<Difference>| {
            // skip upper-bound minus itself
            let difference = difference.filter(|_| minuend != subtrahend);
            rows.extend(difference.map(|difference| DifferenceRow {
                cell: &pair.matched,
                settings: settings.name(pair),
                name: format!("{minuend} − {subtrahend}"),
                difference,
            }));
        };
        add(&pair.baseline, &pair.value, pair.saved);
        add(&pair.value, "upper-bound", pair.above_upper_bound);
    }
    difference_rows_table(&rows)
}

/// Table of differences. Windows too narrow for all parts lose the smallest ones.
pub fn difference_rows_table(rows: &[DifferenceRow<'_>]) -> Table {
    let total =
        |part: fn(&Difference) -> f64| rows.iter().map(|row| part(&row.difference).abs()).sum::<f64>();
    let mut parts = [
        ("transfer", total(|d| d.transfer_ms)),
        ("peer wait", total(|d| d.peer_wait_ms)),
        ("contention", total(|d| d.contention_ms)),
        ("compute", total(|d| d.operations_ms)),
        ("idle", total(|d| d.idle_ms)),
        ("rest", total(|d| d.rest_ms)),
    ];
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    Table::of(
        rows,
        &[
            ("cell|", &|row| Shown::some(row.cell)),
            ("~|cell", &|row| Shown::some(&row.settings)),
            ("difference", &|row| Shown::text(&row.name)),
            ("decode_ms|decode ms", &|row| Shown::Number(row.difference.decode_ms, 2)),
            ("transfer_ms|transfer", &|row| Shown::Number(row.difference.transfer_ms, 2)),
            ("peer_wait_ms|peer wait", &|row| Shown::Number(row.difference.peer_wait_ms, 2)),
            ("contention_ms|contention", &|row| Shown::Number(row.difference.contention_ms, 2)),
            ("operations_ms|compute", &|row| Shown::Number(row.difference.operations_ms, 2)),
            ("idle_ms|idle", &|row| Shown::Number(row.difference.idle_ms, 2)),
            ("rest_ms|rest", &|row| Shown::Number(row.difference.rest_ms, 2)),
        ],
    )
    .least(&parts.map(|(name, _)| name))
}

#[cfg(test)]
mod tests;
