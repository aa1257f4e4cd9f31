//! Matching of cells that differ only along the axis, and choice of their baseline.
//!
//! Pairs with equal numbers, which a table merges into one row.
//!
//! Pair of a baseline and a compared cell: ratio, interval, p-value, gap closed.
//!
//! Labels of matched cells: the main options always, other options only if cells differ in them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::SignedDuration;
use rayon::prelude::*;

use super::comparison::Flag;
use super::pivot::Axis;
use super::{Comparison, ComparisonReport};
use crate::analysis::Decoding;
use crate::analysis::apart::{measured_apart, runs_apart};
use crate::analysis::noise::mean_step_ms;
use base::statistics::{
    LEAST_SAMPLES, distinct, extent, interval_of_few, interval_over_rounds, interval95, median, p_value,
    p_value_of_few, resample,
};
use table::options::{OPTIONS, PAIRS, option};
use table::{
    CellRuns, Metrics, Provenance, Record, Sample, Spec, VARIANTS, completion_ms, hidden_share,
    hidden_shares, host, steps_ms, tokens_per_s,
};

const PROVENANCE: &str = "provenance";

/// Cell with metrics and the samples of all its rounds.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct PooledCell {
    pub record: Record,
    pub metrics: Metrics,
    pub rounds: BTreeMap<u32, Vec<Sample>>,
    /// Runs of these rounds; none of a simulation, which has a single round.
    runs: Vec<Record>,
    pub host: Option<String>,
    /// Gap closed relative to the cells in the same [`cells`] call.
    pub hidden_share: Option<f64>,
    /// Interval of the gap closed; `None` for simulations, for the two limits and with few samples.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// All fields that cells are matched by, sorted by name.
    fields: BTreeMap<String, String>,
}

pub(super) fn cells(records: &[Record]) -> Vec<PooledCell> {
    let runs = CellRuns::group(records);
    let mut cells: Vec<PooledCell> = runs.par_iter().filter_map(PooledCell::new).collect();
    let pooled: Vec<&Record> = cells.iter().map(|cell| &cell.record).collect();
    let shares = hidden_shares(&pooled);
    for (cell, share) in cells.iter_mut().zip(shares) {
        cell.hidden_share = share;
    }
    // measured cells of one setting, whose gap closed varies with the samples
    let mut settings: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, cell) in cells.iter().enumerate() {
        if cell.record.provenance != Provenance::Simulated {
            settings.entry(cell.common(&Axis::ARCHITECTURE)).or_default().push(at);
        }
    }
    let judged: Vec<Vec<MeasuredShare>> =
        settings.par_iter().map(|(_, setting)| measured_shares(&cells, setting)).collect();
    for (at, share, interval) in judged.into_iter().flatten() {
        (cells[at].hidden_share, cells[at].hidden_share_ci95) = (share, interval);
    }
    cells
}

/// Index of a cell, its gap closed and the interval of that.
type MeasuredShare = (usize, Option<f64>, Option<[f64; 2]>);

/// Gaps closed by the cells of a setting: none if standard and upper-bound were measured apart, or differ by no more than
/// noise, so that the interval of the gap includes 0.
fn measured_shares(cells: &[PooledCell], setting: &[usize]) -> Vec<MeasuredShare> {
    let limit = |at: &usize| table::limit(&cells[*at].record.spec);
    let last = |wanted| setting.iter().rfind(|at| limit(at) == Some(wanted)).map(|at| &cells[*at]);
    let limits = last(0).zip(last(1));
    let has_no_gap = limits.is_some_and(|(standard, bound)| {
        let [a, b] = step_medians([standard, bound]);
        // the logarithm of the ratio, which a machine that is slower in some rounds does not change
        let gap = interval_over_rounds([&a, &b], |[standard, bound]| (standard / bound).ln());
        gap.is_some_and(|[low, _]| low <= 0.0)
    });
    let are_limits_apart =
        limits.is_some_and(|(standard, bound)| ComparedRounds::new(&[standard, bound]).are_too_few());
    let judge = |at: &usize| {
        if are_limits_apart {
            return (*at, None, None);
        }
        let cell = &cells[*at];
        let limits = limits.filter(|_| limit(at).is_none() && !has_no_gap);
        let compared = limits.map(|(standard, bound)| with_shared_rounds([standard, cell, bound]));
        let is_apart = compared.as_ref().is_some_and(|(rounds, _)| rounds.are_too_few());
        let shared = compared.filter(|_| !is_apart).map(|(_, narrowed)| narrowed);
        let share = match &shared {
            Some(shared) if shared.iter().any(|cell| matches!(cell, Cow::Owned(_))) => {
                hidden_shares(&shared.each_ref().map(|cell| &cell.record))[1]
            }
            _ => cell.hidden_share.filter(|_| !has_no_gap && !is_apart),
        };
        let limits = limits.filter(|_| share.is_some());
        let interval =
            limits.and_then(|(standard, bound)| hidden_share_interval([standard, cell, bound]));
        // an outlier can move the interval of the mean off the share
        let ends = |([low, high], share): ([f64; 2], f64)| [low.min(share), high.max(share)];
        (*at, share, interval.zip(share).map(ends))
    };
    setting.par_iter().map(judge).collect()
}

impl PooledCell {
    pub(super) fn decoding(&self) -> Decoding<'_> {
        Decoding { decode_ms: self.metrics.decode_ms, overlap: self.record.overlap.as_ref() }
    }

    /// Longest time by which the cell was measured after its baseline, if [apart](measured_apart) from it.
    pub(super) fn apart_from(&self, baseline: &Self) -> Option<SignedDuration> {
        measured_apart(&baseline.runs, &self.runs)
    }

    pub fn new(runs: &CellRuns<'_>) -> Option<Self> {
        let mut record = runs.record().filter(Record::has_numbers)?;
        let metrics = record.metrics.clone()?;
        let (host, mut rounds) = (host(&record), runs.rounds());
        let is_simulated = record.provenance == Provenance::Simulated;
        let of_rounds = if is_simulated { Vec::new() } else { runs.ok().cloned().collect() };
        if is_simulated {
            // only intervals need steps, and simulations have none; dropping them keeps thousands of cells small
            for sample in rounds.values_mut().flatten() {
                sample.steps_ms = Vec::new();
            }
        }
        record.samples = Default::default();
        Some(Self {
            metrics,
            rounds,
            runs: of_rounds,
            fields: fields(&record),
            host,
            hidden_share: None,
            hidden_share_ci95: None,
            record,
        })
    }

    /// The cell with some of its rounds, under the same id; `None` if it has none of them.
    fn of_rounds(&self, has: impl Fn(&u32) -> bool) -> Option<Self> {
        let runs = self.runs.iter().filter(|run| has(&run.round)).collect();
        let mut cell = Self::new(&CellRuns { runs, unfinished: 0 })?;
        cell.record.run.clone_from(&self.record.run);
        (cell.hidden_share, cell.hidden_share_ci95) = (self.hidden_share, self.hidden_share_ci95);
        Some(cell)
    }

    /// Mean decode step of the fastest and of the slowest round (ms); `None` for simulations and with a single round.
    pub fn rounds_ms(&self) -> Option<[f64; 2]> {
        if self.record.provenance == Provenance::Simulated || self.rounds.len() < 2 {
            return None;
        }
        let steps_ms = |samples: &Vec<Sample>| -> Vec<f64> {
            samples.iter().map(|sample| mean_step_ms(&self.record.spec, sample)).collect()
        };
        let of_rounds = self.rounds.values().filter_map(|samples| median(&steps_ms(samples)));
        extent(of_rounds).filter(|[least, _]| *least > 0.0)
    }

    /// TPOT of the fastest and of the slowest round (ms), for cells with [`Self::rounds_ms`].
    pub fn rounds_tpot_ms(&self) -> Option<[f64; 2]> {
        let steps = |samples: &Vec<Sample>| -> Vec<f64> {
            samples.iter().flat_map(|sample| steps_ms(&self.record.spec, sample)).collect()
        };
        self.rounds_ms()?;
        extent(self.rounds.values().filter_map(|samples| median(&steps(samples))))
    }

    /// Key of everything but the axis and the settings that follow from it.
    fn common(&self, axis: &Axis) -> String {
        let key = axis.key();
        let p2p = *axis == Axis::P2P;
        let machine = matches!(axis, Axis::Option("hardware" | "backend"));
        // link and backend decide the provenance; along other axes, runs of different provenance are not compared
        let provenance = matches!(axis, Axis::Option("link" | "backend"));
        // options that only one real backend reads
        let of_one = |name: &str| {
            let used_by = option(name).map(|option| option.about.used_by);
            *axis == Axis::Option("backend") && matches!(used_by, Some([only]) if !only.is_simulated())
        };
        let kept = self.fields.iter().filter(|(name, _)| {
            !axis.spans(name)
                && **name != key
                && name.strip_prefix("files:") != Some(key.as_str())
                && !(*axis == Axis::ARCHITECTURE && VARIANTS.contains(&name.as_str()))
                && !(p2p && (*name == "link" || name.starts_with("env:NCCL_P2P_")))
                && !(machine && *name == "host")
                && !(provenance && *name == PROVENANCE)
                && !of_one(name)
        });
        let mut text = String::new();
        if *axis == Axis::Division {
            text.push_str(&format!("ranks={}\n", self.record.spec.ranks()));
        }
        for (name, value) in kept {
            text.push_str(name);
            text.push('=');
            text.push_str(value);
            text.push('\n');
        }
        text
    }
}

/// Spec as one entry per field, variable and profile value, plus host and provenance.
fn fields(record: &Record) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let spec = serde_json::to_value(&record.spec).unwrap_or_default();
    for (name, value) in spec.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(pairs) => {
                let named = |(key, value): (&String, &serde_json::Value)| {
                    (format!("{name}:{key}"), value.to_string())
                };
                fields.extend(pairs.iter().map(named));
            }
            None => {
                fields.insert(name.clone(), value.to_string());
            }
        }
    }
    fields.insert("host".into(), host(record).unwrap_or_default());
    fields.insert(PROVENANCE.into(), record.provenance.to_string());
    fields
}

/// Groups of cells that differ only along the axis.
#[derive(Debug)]
pub(in crate::analysis) struct CellMatching<'a> {
    axis: &'a Axis,
    wanted: Option<&'a str>,
    groups: Vec<Vec<&'a PooledCell>>,
    order: Vec<String>,
}

impl<'a> CellMatching<'a> {
    /// Groups cells along an axis; `wanted` overrides the default baseline.
    pub fn new(cells: &'a [PooledCell], axis: &'a Axis, wanted: Option<&'a str>) -> Self {
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        let mut groups: Vec<Vec<&PooledCell>> = Vec::new();
        for cell in cells {
            let at = *index.entry(cell.common(axis)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push(cell);
        }
        let order = distinct(cells.iter().map(|cell| axis.value(&cell.record.spec)));
        Self { axis, wanted, groups, order }
    }

    pub fn groups(&self) -> &[Vec<&'a PooledCell>] {
        &self.groups
    }

    pub fn values(&self) -> &[String] {
        &self.order
    }

    /// Baseline value for a group; `None` if none of its cells is a baseline.
    fn baseline(&self, group: &[&PooledCell]) -> Option<String> {
        let has = |wanted: &str| group.iter().any(|cell| self.axis.value(&cell.record.spec) == wanted);
        if let Some(wanted) = self.wanted {
            return has(wanted).then(|| wanted.to_owned());
        }
        match self.axis.natural_baseline() {
            Some(natural) if has(natural) => Some(natural.to_owned()),
            _ if self.axis.needs_baseline() => None,
            // slices of every expert before whole experts
            _ if *self.axis == Axis::Division => group
                .iter()
                .map(|cell| &cell.record.spec)
                .max_by_key(|spec| (spec.tp, std::cmp::Reverse((spec.ep, spec.dp))))
                .map(|spec| self.axis.value(spec)),
            _ => self.order.iter().find(|value| has(value)).cloned(),
        }
    }

    pub fn pairs(&self) -> Vec<Pair<'a>> {
        let by_architecture = *self.axis == Axis::ARCHITECTURE;
        let of_group = |group: &Vec<&'a PooledCell>| {
            let Some(wanted) = self.baseline(group) else { return Vec::new() };
            let is_baseline = |cell: &&&PooledCell| self.axis.value(&cell.record.spec) == wanted;
            let (baselines, others): (Vec<&PooledCell>, Vec<&PooledCell>) =
                group.iter().partition(is_baseline);
            let limit = |cell: &&PooledCell| table::limit(&cell.record.spec) == Some(1);
            let upper_bound = group.iter().copied().find(limit).filter(|_| by_architecture);
            let pair = |other: &&'a PooledCell| {
                let other = *other;
                let near = baselines_of(&baselines, other).collect::<Vec<&'a PooledCell>>();
                near.into_iter().map(move |baseline| Pair { baseline, other, upper_bound })
            };
            others.iter().flat_map(pair).collect()
        };
        self.groups.iter().flat_map(of_group).collect()
    }

    /// Warnings about groups whose baseline was not run.
    pub fn unmatched(&self, label: &LabelBuilder<'_>) -> Vec<Flag> {
        let without = self.groups.iter().filter(|group| self.baseline(group).is_none());
        without
            .map(|group| {
                let values: Vec<String> =
                    group.iter().map(|cell| self.axis.value(&cell.record.spec)).collect();
                let wanted = self.wanted.or(self.axis.natural_baseline()).unwrap_or_default();
                let text = format!(
                    "{}: no '{wanted}' to compare {} with",
                    label.pair(group[0], group[0]),
                    values.join(", ")
                );
                Flag::new(group.iter().copied(), text)
            })
            .collect()
    }
}

/// Baselines of a cell: those with the same link if any (the axis did not choose the link then), else those of the same
/// experiment (whose links belong together), else all.
fn baselines_of<'a: 'b, 'b>(
    baselines: &'b [&'a PooledCell],
    other: &'a PooledCell,
) -> impl Iterator<Item = &'a PooledCell> + 'b {
    let link = |cell: &PooledCell| cell.record.spec.link == other.record.spec.link;
    let experiment = |cell: &PooledCell| cell.record.experiment == other.record.experiment;
    let any = |near: &dyn Fn(&PooledCell) -> bool| baselines.iter().any(|cell| near(cell));
    let (by_link, by_experiment) = (any(&link), any(&experiment));
    baselines.iter().copied().filter(move |cell| match (by_link, by_experiment) {
        (true, _) => link(cell),
        (false, true) => experiment(cell),
        (false, false) => true,
    })
}

/// Everything a table shows of a pair except its cell. Numbers are compared as `f32` (seven digits), so that the
/// summation order does not matter.
type Numbers<'a> = (&'a str, &'a str, &'static str, [Option<u32>; 12]);

fn numbers(pair: &Comparison) -> Numbers<'_> {
    let digits = |number: Option<f64>| number.map(|number| (number as f32).to_bits());
    let (a, b) = (&pair.baseline_side, &pair.side);
    let shown = [
        Some(pair.speedup),
        Some(pair.baseline_tpot_ms),
        Some(pair.tpot_ms),
        Some(a.completion_ms),
        Some(b.completion_ms),
        a.exposed_pct,
        b.exposed_pct,
        pair.baseline_overlap_pct,
        pair.overlap_pct,
        a.hidden_share,
        b.hidden_share,
        pair.adjusted_p,
    ];
    (&pair.baseline, &pair.value, pair.provenance.as_str(), shown.map(digits))
}

/// Index of the first pair with the same numbers and axis values, for each pair of a report; a pair without an earlier
/// match gets its own index. One pass over the pairs.
pub fn first_equal(report: &ComparisonReport) -> Vec<usize> {
    let mut first: HashMap<Numbers<'_>, usize> = HashMap::new();
    let pairs = report.pairs.iter().enumerate();
    pairs.map(|(at, pair)| *first.entry(numbers(pair)).or_insert(at)).collect()
}

#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Pair<'a> {
    pub baseline: &'a PooledCell,
    pub other: &'a PooledCell,
    /// `upper-bound` that matches both; only when architectures are compared.
    pub upper_bound: Option<&'a PooledCell>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Ratio {
    pub speedup: f64,
    pub ci95: Option<[f64; 2]>,
    /// P-value of "the ratio is 1"; `None` without an interval and for two rounds, too few to estimate the noise.
    pub p: Option<f64>,
    /// True if the interval excludes 1; between simulations: if the ratio is not 1.
    pub differs: bool,
    /// True if both are simulations, which have no noise.
    pub exact: bool,
}

impl<'a> Pair<'a> {
    pub fn new(baseline: &'a PooledCell, other: &'a PooledCell) -> Self {
        Self { baseline, other, upper_bound: None }
    }

    /// Ratio of tokens/s to the baseline's: the median over the rounds that both cells share, if any, of the ratio in that
    /// round, so that a machine that is slower in some rounds does not change it.
    pub fn ratio(&self) -> Ratio {
        let cells = [self.other, self.baseline];
        let throughput = |cell: &PooledCell, ms| tokens_per_s(&cell.record.spec, ms);
        let compared = ComparedRounds::new(&cells);
        let [other, baseline] =
            samples_of_rounds(&compared, cells, |_, sample| Some(completion_ms(sample)));
        let ratio = |[a, b]: [f64; 2]| throughput(cells[0], a) / throughput(cells[1], b);
        let by_round = other.iter().zip(&baseline);
        let by_round = by_round.filter_map(|(a, b)| Some(ratio([median(a)?, median(b)?])));
        let by_round: Vec<f64> = by_round.collect();
        let whole = cells[0].metrics.tokens_per_s / cells[1].metrics.tokens_per_s;
        let speedup = median(&by_round).unwrap_or(whole);
        let simulated = cells.map(|cell| cell.record.provenance == Provenance::Simulated);
        let exact = simulated == [true, true];
        let sides = [&other, &baseline];
        let samples = sides.map(|rounds| rounds.iter().map(Vec::len).sum::<usize>());
        let is_judged = simulated == [false, false]
            && !compared.are_too_few()
            && samples.iter().all(|samples| *samples >= LEAST_SAMPLES);
        let (ci95, p) = match by_round.len() {
            _ if !is_judged => (None, None),
            0 | 1 => {
                let resampled = resample([&other[..], &baseline], ratio);
                let p = resampled.as_deref().and_then(|ratios| p_value(ratios, 1.0));
                (resampled.and_then(interval95), p)
            }
            rounds => {
                let logs: Vec<f64> = by_round.iter().map(|ratio| ratio.ln()).collect();
                let ci95 = interval_of_few(&logs).map(|ends| ends.map(f64::exp));
                // an outlier can move the interval of the mean off the median
                let ci95 = ci95.map(|[low, high]| [low.min(speedup), high.max(speedup)]);
                (ci95, p_value_of_few(&logs).filter(|_| rounds > 2))
            }
        };
        let differs = match ci95 {
            Some([low, high]) => low > 1.0 || high < 1.0,
            // Simulations repeat to the last bit except for the order of sums.
            None => exact && (speedup - 1.0).abs() > 1e-9,
        };
        Ratio { speedup, ci95, p, differs, exact }
    }
}

/// Interval of a cell's gap closed, from the rounds that `standard`, the cell and `upper-bound` share; `None` with few
/// samples or if a round has no gap between the limits.
fn hidden_share_interval(cells: [&PooledCell; 3]) -> Option<[f64; 2]> {
    let [a, b, c] = step_medians(cells);
    let share = |medians| hidden_share(medians).unwrap_or(f64::NAN);
    interval_over_rounds([&a, &b, &c], share)
}

/// Rounds in which cells are compared.
pub(super) struct ComparedRounds {
    pub rounds: BTreeSet<u32>,
    /// Rounds that all cells have, but [measured apart](crate::analysis::apart), with the longest time in between. They are
    /// compared only if there are no others.
    pub apart: BTreeMap<u32, SignedDuration>,
}

impl ComparedRounds {
    pub fn new(cells: &[&PooledCell]) -> Self {
        let rounds: Vec<BTreeSet<u32>> =
            cells.iter().map(|cell| cell.rounds.keys().copied().collect()).collect();
        Self::of_runs(&rounds, cells.iter().map(|cell| &cell.runs))
    }

    /// Takes the rounds and the runs of each cell.
    pub fn of_runs<'a>(
        cells: &[BTreeSet<u32>],
        runs: impl IntoIterator<Item = impl IntoIterator<Item = &'a Record>>,
    ) -> Self {
        let rounds = cells.first().into_iter().flatten().copied();
        let is_shared = |round: &u32| cells.iter().all(|rounds| rounds.contains(round));
        let shared: BTreeSet<u32> = rounds.filter(is_shared).collect();
        let mut apart: BTreeMap<u32, SignedDuration> = BTreeMap::new();
        for (run, since) in runs_apart(runs).into_iter().filter(|(run, _)| shared.contains(&run.round)) {
            let longest = apart.entry(run.round).or_default();
            *longest = since.max(*longest);
        }
        let beside: BTreeSet<u32> =
            shared.iter().filter(|round| !apart.contains_key(round)).copied().collect();
        Self { rounds: if beside.is_empty() { shared } else { beside }, apart }
    }

    /// Longest time between the runs of a round that was measured apart.
    pub fn longest_apart(&self) -> Option<SignedDuration> {
        self.apart.values().max().copied()
    }

    /// True if cells have several rounds, but only one side by side, or none: noise between rounds is then unknown.
    pub fn are_too_few(&self) -> bool {
        !self.apart.is_empty() && (self.rounds.len() < 2 || self.are_all_apart())
    }

    pub fn are_all_apart(&self) -> bool {
        self.rounds.iter().all(|round| self.apart.contains_key(round))
    }
}

/// Rounds in which cells are compared, and measured cells with these rounds only; whole if they have none in common.
pub(super) fn with_shared_rounds<const SIDES: usize>(
    cells: [&PooledCell; SIDES],
) -> (ComparedRounds, [Cow<'_, PooledCell>; SIDES]) {
    let is_measured = cells.iter().all(|cell| cell.record.provenance != Provenance::Simulated);
    let compared = ComparedRounds::new(&cells);
    let is_compared = |round: &u32| compared.rounds.contains(round);
    let narrowed = cells.map(|cell| {
        let is_whole = !is_measured || cell.rounds.keys().all(is_compared);
        let narrowed = if is_whole { None } else { cell.of_rounds(is_compared) };
        narrowed.map_or(Cow::Borrowed(cell), Cow::Owned)
    });
    (compared, narrowed)
}

/// Median step latency of each sample (ms), by cell and round.
fn step_medians<const SIDES: usize>(cells: [&PooledCell; SIDES]) -> [Vec<Vec<f64>>; SIDES] {
    let compared = ComparedRounds::new(&cells);
    samples_of_rounds(&compared, cells, |spec, sample| median(&steps_ms(spec, sample)))
}

/// One number per sample, by cell and round, for the rounds in which the cells are compared. Skips rounds with a sample
/// that has no number.
fn samples_of_rounds<const SIDES: usize>(
    compared: &ComparedRounds,
    cells: [&PooledCell; SIDES],
    number: impl Fn(&Spec, &Sample) -> Option<f64>,
) -> [Vec<Vec<f64>>; SIDES] {
    let mut by_side = [(); SIDES].map(|()| Vec::new());
    for round in &compared.rounds {
        let numbers = cells.map(|cell| -> Option<Vec<f64>> {
            cell.rounds.get(round)?.iter().map(|sample| number(&cell.record.spec, sample)).collect()
        });
        if numbers.iter().all(Option::is_some) {
            for (cell, numbers) in by_side.iter_mut().zip(numbers) {
                cell.extend(numbers);
            }
        }
    }
    by_side
}

/// Builds labels from the settings that cells share.
#[derive(Debug)]
pub(in crate::analysis) struct LabelBuilder<'a> {
    axis: &'a Axis,
    varying: Vec<&'static str>,
}

/// Options that every label names; others appear only if cells differ in them.
const ALWAYS: [&str; 6] = ["architecture", "model", "tp", "batch", "p2p", "backend"];

impl<'a> LabelBuilder<'a> {
    /// Takes all cells of a comparison along `axis`.
    pub fn new(cells: &[PooledCell], axis: &'a Axis) -> Self {
        let mut varying = Vec::new();
        if let Some((first, rest)) = cells.split_first() {
            let parts_of = |cell: &PooledCell| parts(&cell.record.spec, cell.host.as_deref());
            let first = parts_of(first);
            for cell in rest {
                for (a, b) in first.iter().zip(parts_of(cell)) {
                    if a.1 != b.1 && !varying.contains(&a.0) {
                        varying.push(a.0);
                    }
                }
            }
        }
        Self { axis, varying }
    }

    /// Label of two matched cells without the axis; if their links differ, it shows both.
    pub fn pair(&self, a: &PooledCell, b: &PooledCell) -> String {
        self.words(a, b, &[])
    }

    /// Label without the axis, TP and batch: the fixed part of a map.
    pub fn rest(&self, a: &PooledCell, b: &PooledCell) -> String {
        self.words(a, b, &["tp", "batch"])
    }

    fn words(&self, a: &PooledCell, b: &PooledCell, without: &[&str]) -> String {
        // Variables set because of P2P, and links named after it, repeat what P2P says.
        let brought = *self.axis == Axis::P2P && a.record.spec.env != b.record.spec.env;
        let is_link_named = [a, b].iter().all(|cell| cell.record.spec.has_link_of_p2p());
        let left_out = |name: &str| {
            self.axis.spans(name)
                || without.contains(&name)
                || (brought && name == "env")
                || (is_link_named && name == "link")
        };
        let shown = |name: &str, text: &str| {
            !left_out(name)
                && !text.is_empty()
                && (ALWAYS.contains(&name)
                    || self.varying.contains(&name)
                    || (name == "link" && text != "native"))
        };
        let both = self.parts(a).into_iter().zip(self.parts(b));
        let words = both
            .filter(|(a, b)| shown(a.0, &a.1) || shown(b.0, &b.1))
            .map(|(a, b)| if a.1 == b.1 { a.1 } else { format!("{}|{}", a.1, b.1) });
        words.collect::<Vec<_>>().join(" ")
    }

    /// [`parts`] without the variable, profile value or file of the axis.
    fn parts(&self, cell: &PooledCell) -> Vec<(&'static str, String)> {
        let mut parts = parts(&cell.record.spec, cell.host.as_deref());
        let spec = &cell.record.spec;
        let (name, left) = match self.axis {
            Axis::Option(option) => ("files", list(&spec.files, Some(option))),
            Axis::Env(key) => ("env", list(&spec.env, Some(key))),
            Axis::Set(key) => ("set", list(&spec.set, Some(key))),
            Axis::Division => return parts,
        };
        parts.iter_mut().filter(|part| part.0 == name).for_each(|part| part.1.clone_from(&left));
        parts
    }
}

/// Entries of a map as `KEY=VALUE`, without one key.
fn list(map: &BTreeMap<String, String>, but: Option<&str>) -> String {
    let kept = map.iter().filter(|(key, _)| Some(key.as_str()) != but);
    kept.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Settings of a cell and its host, as name and text, in label order: options, host, variables, profile values, file
/// hashes.
pub(in crate::analysis) fn parts(spec: &Spec, host: Option<&str>) -> Vec<(&'static str, String)> {
    let mut parts: Vec<(&str, String)> =
        OPTIONS.iter().map(|option| (option.name, option.label(spec))).collect();
    parts.push(("host", host.unwrap_or_default().to_owned()));
    parts.extend(PAIRS.iter().map(|pairs| (pairs.name, list((pairs.get)(spec), None))));
    parts.push(("files", list(&spec.files, None)));
    parts
}
