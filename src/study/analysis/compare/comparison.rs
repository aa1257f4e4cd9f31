//! Result of a comparison: pairs with both sides, and totals.
//!
//! Benjamini-Hochberg adjustment for many comparisons.
//!
//! Of a hundred ratios that are all 1, about five have a 95% interval that excludes 1. The adjustment bounds the share
//! of false positives among the reported differences (the false discovery rate). It holds for comparisons that are
//! independent or positively dependent, as with a shared baseline. Holm's method, which bounds the chance of a single
//! false positive, needs p-values of 0.05 / comparisons: finer than the 2,000 resamples of a single round can give for 50
//! or more comparisons.
//!
//! Selection of runs for a comparison: those that match a filter, plus their baselines.
//!
//! Architectures that beat `upper-bound`. It drops only the communication of `standard`, so architectures that compute
//! less than `standard` can be faster.

use jiff::SignedDuration;
use serde::Serialize;

use super::matching::PooledCell;
use super::pivot::Axis;
use crate::analysis::filter::{Filter, Term, Test, has_word};
use crate::analysis::side_by_side::Difference;
use crate::analysis::{PublishedValue, RunTable, is_measured_apart};
use crate::validate::TieBand;
use base::error::Error;
use base::text::{counted, whole_percent};
use base::words::words;
use plan::Architecture;
use table::{Collective, Measure, Overlap, Provenance, Record, Spec, Split};

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Comparison {
    /// Label of the settings that both sides share: `tiny tp2 b1 p2p-on cpu emulated:...`.
    pub matched: String,
    /// `matched` without TP and batch.
    #[serde(skip)]
    pub rest: String,
    pub baseline: String,
    pub value: String,
    pub baseline_run: String,
    pub run: String,
    /// Source of the numbers; if the sides differ, the one further from a measurement.
    pub provenance: Provenance,
    pub baseline_tpot_ms: f64,
    pub tpot_ms: f64,
    /// Ratio of tokens/s to the baseline's, each the median over shared rounds (over all rounds if none are shared);
    /// above 1 is faster.
    pub speedup: f64,
    /// 95 % interval of the speedup: by Student's t of the logarithms of the rounds' ratios, of a single round by
    /// bootstrap of its samples; null with fewer than 6 samples or for simulations.
    pub speedup_ci95: Option<[f64; 2]>,
    /// True if the interval excludes 1 (for simulations: if the ratio is not 1).
    pub differs: bool,
    /// Two-sided p-value of a ratio of 1, as the interval; null without one and with 2 shared rounds. Of a single round,
    /// only its samples count.
    pub p_value: Option<f64>,
    /// P-value adjusted for the number of comparisons (Benjamini-Hochberg); null without a p-value.
    pub adjusted_p: Option<f64>,
    /// Measured runs compared with the same baseline run that are faster than it as well, and whose own paired ratio to
    /// this one does not exclude 1.
    #[serde(skip)]
    pub tied_runs: Vec<String>,
    /// True if the adjusted p-value is at most 0.05; null without one. `differs` stays unadjusted.
    pub differs_adjusted: Option<bool>,
    /// Faster, slower or neither; `too close` for a simulated lead below the simulator's error.
    #[schemars(with = "String")]
    pub verdict: PairVerdict,
    /// Overlap of the baseline (%); null on both sides if they were recorded in different ways.
    pub baseline_overlap_pct: Option<f64>,
    /// Overlap of the compared cell in the decode phase (%).
    pub overlap_pct: Option<f64>,
    /// Gap closed by the compared cell: (standard - cell) / (standard - upper-bound) in TPOT. Needs runs of
    /// `standard` and `upper-bound`; null if upper-bound is not faster than standard, or if they were measured apart.
    pub hidden_share: Option<f64>,
    /// Interval of the gap closed, from the same rounds of all three cells; null without a share, for the two limits,
    /// and if the gap between standard and upper-bound may be 0.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Breakdown of the decode-phase difference, baseline minus compared; null if the backend does not provide it.
    pub saved: Option<Difference>,
    /// Breakdown of the decode-phase difference from `upper-bound`, if that was run.
    pub above_upper_bound: Option<Difference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasureComparison>,
    /// Number of rounds that both cells have, but measured so long after each other that the machine may have changed.
    #[serde(skip)]
    pub rounds_apart: usize,
    /// Longest time from the baseline to the cell in such a round, negative if the cell ran first.
    #[serde(skip)]
    pub longest_apart: Option<SignedDuration>,
    /// True if too few rounds of the two cells and `upper-bound` were measured together: the gap closed is unknown.
    #[serde(skip)]
    pub is_gap_apart: bool,
    /// True if noise or drift puts the cell above `upper-bound` of its setting.
    #[serde(skip)]
    pub is_above_limit: bool,
    /// Published speedup of these cells with the error of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_speedup: Option<PublishedValue>,
    pub baseline_side: Side,
    pub side: Side,
}

words! {
    /// Verdict on a pair.
    PairVerdict, "verdict" {
        /// It has more tokens/s.
        Faster = "faster",
        /// It has fewer tokens/s.
        Slower = "slower",
        /// Difference too small to matter ([`LEAST_DIFFERENCE`]).
        Same = "the same",
        /// Simulations that differ by less than the simulator's error ([`TieBand`]).
        TooClose = "too close",
        /// Not significant after adjustment for the number of comparisons; it may be chance.
        Chance = "not significant",
        /// Too few samples or rounds, or rounds that were measured apart.
        Unknown = "unknown",
    }
}

/// Smallest relative throughput difference that matters. Simulations repeat to the last bit, so they need a threshold
/// too.
pub const LEAST_DIFFERENCE: f64 = 0.005;

/// Cause of a [capped](Comparison::is_capped) pair's gap to `upper-bound`.
pub const CONTENTION: &str =
    "contention: communication slows compute beside it (a fitted constant, not measured here)";

impl PairVerdict {
    /// True for a difference that is too small to matter or within the simulator's error.
    pub fn is_tie(self) -> bool {
        matches!(self, Self::Same | Self::TooClose)
    }

    /// Mark in tables and on maps: `≈` without a clear difference, `?` if unknown.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Same | Self::TooClose | Self::Chance => "≈",
            Self::Unknown => "?",
            Self::Faster | Self::Slower => "",
        }
    }

    /// True if the samples do not decide which side is faster.
    pub fn is_undecided(self) -> bool {
        matches!(self, Self::Chance | Self::Unknown)
    }
}

/// `41 min`, `2 h 10 min`, `3 days`.
pub(super) fn minutes(time: SignedDuration) -> String {
    match time.as_mins() {
        all @ ..60 => format!("{all} min"),
        all @ 60..2880 => format!("{} h {:02} min", all / 60, all % 60),
        all => format!("{} days", all / 1440),
    }
}

impl Comparison {
    /// True if the pair differs by enough to matter; the count next to a comparison table.
    pub fn matters(&self) -> bool {
        self.differs && !self.verdict.is_tie()
    }

    /// Verdict as a word for tables: a lead of `upper-bound` is the limit, not a result.
    pub fn verdict_word(&self) -> &'static str {
        if self.is_limit_ahead() { "the limit" } else { self.verdict.as_str() }
    }

    /// True if the compared side is `upper-bound`, which nobody can choose.
    pub fn is_limit(&self) -> bool {
        self.side.spec.architecture.is_limit()
    }

    /// True if the compared side is `upper-bound`, ahead of a baseline that is not.
    pub fn is_limit_ahead(&self) -> bool {
        let is_from_limit = self.baseline_side.spec.architecture.is_limit();
        self.verdict == PairVerdict::Faster && self.is_limit() && !is_from_limit
    }

    /// True if both sides are simulated: exact repeats, but subject to the simulator's error.
    pub fn is_simulated(&self) -> bool {
        [self.baseline_side.provenance, self.side.provenance] == [Provenance::Simulated; 2]
    }

    /// True if neither of two cells of a setting is shown to be faster: simulated ones within the simulator's error, measured
    /// ones whose own paired ratio does not exclude 1.
    pub fn ties_with(&self, other: &Self) -> bool {
        let band = self.side.band_with(&other.side);
        band.is_some_and(|band| band.holds(other.speedup / self.speedup))
            || self.tied_runs.contains(&other.run)
    }

    /// True if the cell can be chosen, and is simulated to be faster than another of its setting by more than the
    /// simulator's error.
    pub(super) fn leads(&self, other: &Self) -> bool {
        let band = self.side.band_with(&other.side).filter(|_| self.speedup > other.speedup);
        !self.is_limit() && band.is_some_and(|band| !band.holds(self.speedup / other.speedup))
    }

    /// Smallest simulated lead that the verdict calls one; `None` if a side was measured.
    pub fn band(&self) -> Option<TieBand> {
        self.baseline_side.band_with(&self.side)
    }

    /// True if a simulated ratio of the two sides is within the simulator's error.
    pub fn is_tie(&self, ratio: f64) -> bool {
        self.band().is_some_and(|band| band.holds(ratio))
    }

    /// Latency that the pair compares: TPOT, or TTFT of a prefill without decoded tokens.
    pub fn latency(&self) -> &'static str {
        if self.side.spec.output_tokens > 1 { "TPOT" } else { "TTFT" }
    }

    /// [`Self::latency`] of the baseline and of the compared cell (ms).
    pub fn latencies_ms(&self) -> [f64; 2] {
        match self.side.spec.output_tokens > 1 {
            true => [self.baseline_tpot_ms, self.tpot_ms],
            false => [self.baseline_side.completion_ms, self.side.completion_ms],
        }
    }

    /// True if a simulated cell is slower than `upper-bound` almost only by contention: the stack's constants then
    /// decide its gap closed, whatever the TP.
    pub fn is_capped(&self) -> bool {
        let above = self.above_upper_bound.filter(|above| above.decode_ms > 0.0);
        self.is_simulated() && above.is_some_and(|above| above.contention_ms >= 0.95 * above.decode_ms)
    }

    /// Reason for [`PairVerdict::Unknown`].
    pub fn why_unknown(&self) -> String {
        match (self.longest_apart, self.baseline_side.rounds.min(self.side.rounds)) {
            (Some(apart), _) => format!("measured {} apart", minutes(apart.abs())),
            (None, 2) => "too few rounds".into(),
            (None, _) => "too few samples".into(),
        }
    }

    /// Longest time by which the cell was measured apart from its baseline of this name: `41 min after standard`.
    pub fn apart_from(&self, baseline: &str) -> Option<String> {
        let apart = self.longest_apart?;
        let order = if apart.is_negative() { "before" } else { "after" };
        Some(format!("{} {order} {baseline}", minutes(apart.abs())))
    }

    /// Verdict on the ratio: significant by the adjusted p-value (between simulations: above the simulator's error),
    /// and large enough to matter.
    pub(super) fn judge(&self) -> PairVerdict {
        let exact = self.is_simulated();
        match self.differs_adjusted {
            None if !exact => PairVerdict::Unknown,
            Some(false) => PairVerdict::Chance,
            _ if (self.speedup - 1.0).abs() < LEAST_DIFFERENCE => PairVerdict::Same,
            _ if self.is_tie(self.speedup) => PairVerdict::TooClose,
            _ if self.speedup > 1.0 => PairVerdict::Faster,
            _ => PairVerdict::Slower,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Measured")]
pub struct MeasureComparison {
    #[schemars(with = "String")]
    pub measure: &'static Measure,
    /// Values in the baseline and in the compared cell.
    pub values: [Option<f64>; 2],
    pub ratio: Option<f64>,
}

/// One cell of a pair, with its communication cost, from the rounds in which the two are compared. Lane times cover the
/// decode phase of one sample, per rank, averaged over ranks (ms); null if nothing was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Side {
    #[serde(skip)]
    pub spec: Spec,
    pub provenance: Provenance,
    /// Tie band of the cell; `None` if it was measured.
    #[serde(skip)]
    pub band: Option<TieBand>,
    pub tpot_ms_ci95: Option<[f64; 2]>,
    pub decode_ms: f64,
    /// Latency of prefill and decode together (ms).
    pub completion_ms: f64,
    /// Number of timed generations, over all rounds.
    pub samples: u32,
    pub rounds: usize,
    /// Mean decode step of the fastest and of the slowest of these rounds (ms); `None` for simulations and with a single
    /// round.
    #[serde(skip)]
    pub rounds_ms: Option<[f64; 2]>,
    /// TPOT of the fastest and of the slowest of these rounds (ms), if they have `rounds_ms`.
    #[serde(skip)]
    pub rounds_tpot_ms: Option<[f64; 2]>,
    /// As `rounds_ms`, of all rounds of the cell, compared or not.
    #[serde(skip)]
    pub all_rounds_ms: Option<[f64; 2]>,
    /// Busy time of the comm lane, hidden or not (ms).
    pub comm_ms: Option<f64>,
    /// Part of `comm_ms` during which the compute lane was idle (ms).
    pub exposed_comm_ms: Option<f64>,
    /// Part of `exposed_comm_ms` before the last rank arrives (ms); null if arrivals are unknown.
    pub peer_wait_ms: Option<f64>,
    /// Exposed share of the recorded decode phase, and so of TPOT (%).
    pub exposed_pct: Option<f64>,
    pub overlap_pct: Option<f64>,
    /// Gap closed by the architecture, if `standard` and `upper-bound` were run too.
    pub hidden_share: Option<f64>,
    /// Interval of the gap closed; null for simulations, for the two limits and with few samples.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Breakdown of the decode phase; null if the backend does not provide it.
    pub split: Option<Split>,
    pub compute_ms: Option<f64>,
    pub idle_ms: Option<f64>,
}

impl Side {
    /// Gap closed in percent with its interval, `55 % [41, 68]`; a dash if there is none.
    pub fn gap_closed(&self) -> String {
        let Some(share) = self.hidden_share else { return "-".into() };
        let ends = |[low, high]: [f64; 2]| format!(" [{:.0}, {:.0}]", 100.0 * low, 100.0 * high);
        whole_percent(100.0 * share) + &self.hidden_share_ci95.map(ends).unwrap_or_default()
    }

    /// Share of the exposed communication that waits for the last rank (%); 0 without exposed communication, `None` if
    /// arrivals are unknown.
    pub fn peer_wait_pct(&self) -> Option<f64> {
        let (wait, exposed) = (self.peer_wait_ms?, self.exposed_comm_ms?);
        Some(if exposed > 0.0 { 100.0 * wait / exposed } else { 0.0 })
    }

    /// Band of a ratio of two simulated cells; `None` if one was measured.
    fn band_with(&self, other: &Self) -> Option<TieBand> {
        self.band.zip(other.band).map(|(own, other)| own.between(other))
    }

    pub(super) fn new(cell: &PooledCell) -> Self {
        let (metrics, overlap) = (&cell.metrics, cell.record.overlap.as_ref());
        Self {
            spec: cell.record.spec.clone(),
            provenance: cell.record.provenance,
            band: None,
            tpot_ms_ci95: metrics.tpot_ms_ci95,
            decode_ms: metrics.decode_ms,
            completion_ms: metrics.completion_ms,
            samples: metrics.samples,
            rounds: cell.rounds.len(),
            rounds_ms: cell.rounds_ms(),
            rounds_tpot_ms: cell.rounds_tpot_ms(),
            all_rounds_ms: cell.rounds_ms(),
            comm_ms: overlap.map(|o| o.comm_ms),
            exposed_comm_ms: overlap.map(|o| o.exposed_comm_ms),
            peer_wait_ms: overlap.and_then(Overlap::peer_wait_ms),
            exposed_pct: overlap.and_then(Overlap::exposed_pct),
            overlap_pct: overlap.and_then(|o| o.overlap_pct),
            hidden_share: cell.hidden_share,
            hidden_share_ci95: cell.hidden_share_ci95,
            split: overlap.and_then(|o| o.split),
            compute_ms: overlap.map(|o| o.compute_ms),
            idle_ms: overlap.map(|o| o.idle_ms),
        }
    }
}

/// Warning about cells that look wrong.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Flag {
    pub text: String,
    #[serde(skip)]
    pub runs: Vec<String>,
    #[serde(skip)]
    pub kind: FlagKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlagKind {
    /// Link extrapolated to the cell's TP.
    Extrapolation,
    /// `upper-bound` that differs between P2P on and off, although it does not communicate.
    UnequalLimits,
    #[default]
    Other,
}

impl Flag {
    pub(in crate::analysis) fn new<'a>(
        cells: impl IntoIterator<Item = &'a PooledCell>,
        text: String,
    ) -> Self {
        let runs = cells.into_iter().map(|cell| cell.record.run.clone()).collect();
        Self { text, runs, kind: FlagKind::default() }
    }
}

/// All pairs that differ only along `axis`, with warnings.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ComparisonReport {
    pub by: String,
    pub values: Vec<String>,
    pub pairs: Vec<Comparison>,
    /// Number of ratios compared: the more, the more differ by chance.
    pub comparisons: usize,
    pub differ: usize,
    /// Number that differ after adjustment for multiple comparisons.
    pub adjusted: SignificanceAdjustment,
    /// Warnings: higher TP slower than lower, `upper-bound` that differs between P2P on and off, ...
    pub flags: Vec<Flag>,
}

impl ComparisonReport {
    /// Latency of all pairs: TPOT, or TTFT if none decodes a token.
    pub fn latency(&self) -> &'static str {
        let decodes = self.pairs.is_empty() || self.pairs.iter().any(|pair| pair.latency() == "TPOT");
        if decodes { "TPOT" } else { "TTFT" }
    }

    /// Widest band of the pairs with this verdict, if it is given; `None` if none of them is simulated.
    pub fn band(&self, verdict: Option<PairVerdict>) -> Option<TieBand> {
        let pairs = self.pairs.iter().filter(|pair| verdict.is_none_or(|of| pair.verdict == of));
        self.bands(pairs).reduce(TieBand::wider)
    }

    fn bands<'a>(
        &self,
        pairs: impl IntoIterator<Item = &'a Comparison>,
    ) -> impl Iterator<Item = TieBand> {
        let latency = self.latency();
        let own = pairs.into_iter().filter(move |pair| pair.latency() == latency);
        own.filter_map(Comparison::band)
    }

    /// Bands within which these pairs tie, in words: `within 2 %`, `within 2 to 5 %` if cells differ in theirs; empty if
    /// none is simulated.
    pub fn within<'a>(&self, pairs: impl IntoIterator<Item = &'a Comparison>) -> String {
        let bands: Vec<TieBand> = self.bands(pairs).collect();
        let narrowest = bands.iter().copied().min_by(|a, b| a.share.total_cmp(&b.share));
        match narrowest.zip(bands.into_iter().reduce(TieBand::wider)) {
            None => String::new(),
            Some((least, most)) if least.share < most.share => {
                format!("within {} to {}", least.pct().trim_end_matches(" %"), most.pct())
            }
            Some((_, most)) => most.within(),
        }
    }

    /// Numbers of pairs and of those that differ: significant ones between measurements; between simulations, which
    /// repeat exactly, those beyond the simulator's error.
    pub fn counts(&self) -> String {
        let (simulated, measured): (Vec<_>, Vec<_>) =
            self.pairs.iter().partition(|pair| pair.is_simulated());
        let count_words = |all: usize, word: &str| match simulated.is_empty() || measured.is_empty() {
            true => String::new(),
            false => format!(" of {all} {word}"),
        };
        let differ = |pairs: &[&Comparison]| pairs.iter().filter(|pair| pair.matters()).count();
        let mut text = counted(self.pairs.len(), "comparison");
        if !measured.is_empty() {
            let total = count_words(measured.len(), "measured");
            let chance = "before correction for multiple comparisons";
            text += &format!(", {}{total} significant ({chance})", differ(&measured));
        }
        if !simulated.is_empty() {
            let total = count_words(simulated.len(), "simulated");
            text += &format!(", {}{total} differ", differ(&simulated));
        }
        let close = self.pairs.iter().filter(|pair| pair.verdict == PairVerdict::TooClose).count();
        let band = self.band(Some(PairVerdict::TooClose));
        text + &band.map_or(String::new(), |band| format!(", {close} {}", band.too_close()))
    }

    /// Report of some of the pairs; counts remain those of the whole comparison.
    pub fn of_pairs(&self, pairs: Vec<Comparison>) -> Self {
        let (by, values, flags) = (self.by.clone(), self.values.clone(), self.flags.clone());
        Self { by, values, pairs, flags, ..*self }
    }
}

/// Axis along which the cells have more than one value.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisCount {
    pub axis: Axis,
    pub values: Vec<String>,
    /// Runs of each pair, the baseline first.
    pub pairs: Vec<[String; 2]>,
}

/// Significance level: a difference is reported if its adjusted p-value is at most this.
pub const LEVEL: f64 = 0.05;

/// Number of significant differences after adjustment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Adjusted")]
pub struct SignificanceAdjustment {
    pub method: &'static str,
    /// Bound on the expected share of false positives among the reported differences.
    pub false_discovery_rate: f64,
    /// Ratios with a p-value: measured, with enough samples.
    pub tested: usize,
    /// Adjusted p-values at or below the rate.
    pub differ: usize,
}

/// Adjusted p-values in the order of `p`: the smallest false discovery rate at which each difference would still be
/// reported.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0f64;
    // from the largest down; rank counts in ascending order
    for (above, index) in order.into_iter().enumerate() {
        let rank = p.len() - above;
        least = least.min(p[index] * p.len() as f64 / rank as f64);
        adjusted[index] = least;
    }
    adjusted
}

/// Rows that match a filter, plus rows at the axis' baseline (the default if none is given) that match the filter's
/// other terms. Terms on the axis and on measures do not apply to baselines: `arch:ladder` keeps the baseline of
/// ladder, and `tpot<12` keeps a slower one. Rows are in table order without duplicates; errors in the filter come
/// second.
pub fn compared_rows(
    filter: &Filter,
    table: &RunTable,
    records: &[Record],
    axis: &Axis,
    baseline: Option<&str>,
) -> (Vec<u32>, Vec<Error>) {
    let (bound, wrong) = filter.bind(table);
    let mut rows = bound.rows(table);
    if let Some(baseline) = baseline.or(axis.natural_baseline()) {
        let others = filter.terms.iter().filter(|term| !is_of_side(term, table, axis));
        let others = Filter { terms: others.cloned().collect() };
        let is_baseline = |row: &u32| {
            records.get(*row as usize).is_some_and(|record| axis.value(&record.spec) == baseline)
        };
        rows.extend(others.bind(table).0.rows(table).into_iter().filter(is_baseline));
        rows.sort_unstable();
        rows.dedup();
    }
    (rows, wrong)
}

/// True if a term tests the axis or a measure, in which the sides of a pair differ. A word tests the axis if a value of
/// the axis contains it.
fn is_of_side(term: &Term, table: &RunTable, axis: &Axis) -> bool {
    let names = match axis {
        Axis::Option(name) => vec![(*name).to_owned()],
        Axis::Division => Axis::DIVIDED.map(str::to_owned).to_vec(),
        Axis::Env(key) => vec![format!("env.{key}")],
        Axis::Set(key) => vec![format!("set.{key}")],
    };
    let own: Vec<usize> = names.iter().filter_map(|name| table.find(name)).collect();
    match &term.test {
        Test::Field { name, .. } => {
            let column = table.find(name);
            let measures = |at: usize| table.columns().get(at).is_some_and(|c| c.field.is_measure());
            column.is_some_and(|at| own.contains(&at) || measures(at))
        }
        Test::Word { text, exact } => {
            let mut columns = own.iter().filter_map(|at| table.columns().get(*at));
            columns.any(|column| has_word(column, text, *exact))
        }
    }
}

/// Description of the work that a cell saves relative to `upper-bound`; `None` if it saves none.
pub fn less_work(spec: &Spec) -> Option<&'static str> {
    if spec.architecture.wiring(1).fused_block {
        Some("one norm and one input projection a layer instead of two")
    } else if spec.collective == Collective::Fused || spec.sequence_parallel {
        Some("collectives take over norms, which upper-bound has to compute")
    } else {
        None
    }
}

/// True if another measured cell of the same setting is faster than this `upper-bound`, although it does no less work.
/// Cells that were measured apart show nothing.
pub fn is_beaten_by_noise<'a>(
    limit: &Comparison,
    pairs: impl IntoIterator<Item = &'a Comparison>,
) -> bool {
    let beats = |pair: &Comparison| {
        !pair.is_limit()
            && !is_measured_apart(pair)
            && pair.baseline_run == limit.baseline_run
            && pair.speedup > limit.speedup * (1.0 + LEAST_DIFFERENCE)
            && less_work(&pair.side.spec).is_none()
    };
    let is_measured = limit.is_limit() && !limit.is_simulated() && !is_measured_apart(limit);
    is_measured && pairs.into_iter().any(beats)
}

/// Remark on cells that beat `upper-bound` in the same setting because they do less work; `setting` names the setting
/// of a pair.
pub fn beaten_limit(
    report: &ComparisonReport,
    setting: impl Fn(&Comparison) -> String,
) -> Option<String> {
    let (limits, choices): (Vec<&Comparison>, Vec<&Comparison>) =
        report.pairs.iter().filter(|pair| !is_measured_apart(pair)).partition(|pair| pair.is_limit());
    // skip large grids without upper-bound
    let choices = choices.into_iter().filter(|_| !limits.is_empty());
    let beaten = choices.filter_map(|pair| {
        let less = less_work(&pair.side.spec)?;
        let spec = Spec { architecture: Architecture::UpperBound, ..pair.side.spec.clone() };
        let of_pair = |limit: &&&Comparison| {
            limit.side.spec == spec && limit.side.provenance == pair.side.provenance
        };
        let limit = limits.iter().find(of_pair)?;
        let lead = limit.tpot_ms / pair.tpot_ms;
        (lead > 1.0 + LEAST_DIFFERENCE).then_some((lead, pair, limit.tpot_ms, less))
    });
    let beaten: Vec<(f64, &Comparison, f64, &str)> = beaten.collect();
    let (_, pair, limit_ms, less) = beaten.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let at = match setting(pair) {
        at if at.is_empty() => String::new(),
        at if beaten.len() == 1 => format!(" at {at}"),
        at => format!(", most of {} cases at {at}", beaten.len()),
    };
    let label = pair.side.spec.architecture_label();
    Some(no_limit(&label, less, [pair.tpot_ms, *limit_ms], &at))
}

/// Sentence on an architecture that beats `upper-bound`, with both TPOTs (ms).
pub fn no_limit(label: &str, less: &str, [tpot_ms, limit_ms]: [f64; 2], at: &str) -> String {
    format!(
        "upper-bound is not a limit for {label}, which does less work ({less}): TPOT {tpot_ms:.2} ms against {limit_ms:.2} ms{at}."
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use table::testing::sim_record;

    #[test]
    fn as_in_the_paper() {
        // Benjamini and Hochberg (1995), 15 p-values: 4 are significant at 0.05
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0000,
        ];
        let adjusted = benjamini_hochberg(&p);
        assert_eq!(adjusted.iter().filter(|q| **q <= 0.05).count(), 4);
        assert!((adjusted[0] - 0.0015).abs() < 1e-12 && (adjusted[3] - 0.035_625).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn never_below_p_never_above_one_and_in_the_same_order(
            p in prop::collection::vec(0.0f64..=1.0, 1..40), turn in 0usize..40,
        ) {
            let adjusted = benjamini_hochberg(&p);
            let most = p.len() as f64;
            for (p, q) in p.iter().zip(&adjusted) {
                prop_assert!(*q >= *p - 1e-12 && *q <= 1.0 && *q <= p * most + 1e-12);
            }
            for i in 0..p.len() {
                for j in 0..p.len() {
                    prop_assert!(p[i] > p[j] || adjusted[i] <= adjusted[j]);
                }
            }
            // the order in which they come does not matter
            let turn = turn % p.len();
            let mut turned = p.clone();
            turned.rotate_left(turn);
            let mut back = benjamini_hochberg(&turned);
            back.rotate_right(turn);
            prop_assert_eq!(back, adjusted);
        }
    }

    fn kept(axis: &Axis, filter: &str, baseline: Option<&str>) -> String {
        let of = |run: &str, architecture: &str, tp: u32, step_ms: f64| {
            let change = |spec: &mut table::Spec| {
                (spec.architecture, spec.tp) = (architecture.parse().unwrap(), tp);
            };
            sim_record(run, change, 1.0, step_ms)
        };
        let records = [
            of("a", "standard", 4, 14.0),
            of("b", "ladder", 4, 11.0),
            of("c", "upper-bound", 4, 9.0),
            of("d", "standard", 8, 10.0),
            of("e", "ladder", 8, 7.0),
        ];
        let table = RunTable::new(&records, &Default::default());
        let (rows, wrong) = compared_rows(&Filter::parse(filter), &table, &records, axis, baseline);
        assert!(wrong.is_empty(), "{wrong:?}");
        rows.iter().map(|row| records[*row as usize].run.as_str()).collect()
    }

    #[test]
    fn what_is_compared_with_stays() {
        let by_architecture = |filter| kept(&Axis::ARCHITECTURE, filter, None);
        assert_eq!(by_architecture("arch:ladder"), "abde");
        assert_eq!(by_architecture("ladder"), "abde", "a word that the axis has");
        assert_eq!(by_architecture("upb"), "acd", "letters in order find upper-bound");
        assert_eq!(by_architecture("-arch:ladder"), "acd");
        assert_eq!(by_architecture("arch:ladder tp:8"), "de", "what is not of the axis holds for both");
        assert_eq!(by_architecture("tpot<12 tp:4"), "abc", "a slower baseline");
        assert_eq!(kept(&Axis::TP, "tp:8", None), "de", "no value of TP is a natural baseline");
        assert_eq!(kept(&Axis::TP, "tp:8 arch:ladder", Some("4")), "be");
    }
}
