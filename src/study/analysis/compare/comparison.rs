//! What a comparison says: its pairs, each with its two sides, and what was looked at in all.

use serde::{Serialize, Serializer};

use super::adjust::Adjusted;
use super::axis::Axis;
use super::matching::PooledCell;
use crate::analysis::difference::Difference;
use crate::analysis::is_too_close;
use table::render::Shown;
use table::{Measure, Overlap, Provenance, Spec, Split};

/// A matched pair in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
    /// Faster, slower or neither; `too close` for a simulated lead below the simulator's error.
    #[schemars(with = "String")]
    pub verdict: Verdict,
    /// Overlap % of the baseline; null for both where they were recorded in different ways.
    pub baseline_overlap_pct: Option<f64>,
    /// Overlap of the compared cell (%), over the decode phase.
    pub overlap_pct: Option<f64>,
    /// The compared cell's, where `standard` and `upper-bound` were run too: (standard - it) / (standard -
    /// upper-bound) in TPOT; null where upper-bound is no faster than standard.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share, null where the share is and for the two limits: the three cells
    /// resampled in the same rounds; null too where the gap between standard and upper-bound may be nothing.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Where the decode phase's difference lies, baseline less it; null where the backend cannot tell.
    pub saved: Option<Difference>,
    /// Where the decode phase's difference from `upper-bound` lies, where that was run too.
    pub above_upper_bound: Option<Difference>,
    /// The measure that was asked for in particular.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What was run as the baseline, and what communication costs in it.
    pub baseline_side: Side,
    /// What was compared with the baseline, and what communication costs in it.
    pub side: Side,
}

/// What a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Faster than the baseline, and not by chance.
    Faster,
    /// Slower than the baseline, and not by chance.
    Slower,
    /// The difference is too small to matter ([`LEAST_DIFFERENCE`]).
    Same,
    /// Simulations that differ by less than the simulator's error ([`SPEEDUP_ERROR`](crate::analysis::SPEEDUP_ERROR)).
    TooClose,
    /// The difference cannot be told from chance, the number of comparisons taken into account.
    Chance,
    /// Too few samples to say.
    Unknown,
}

/// A difference that is smaller than this share of the baseline's throughput matters to nobody, however
/// exactly it is known: simulations repeat to the last bit.
pub const LEAST_DIFFERENCE: f64 = 0.005;

impl Verdict {
    /// The verdict in the words of tables; `not shown` is a difference that chance could have made.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "the same",
            Self::TooClose => "too close",
            Self::Chance => "not shown",
            Self::Unknown => "unknown",
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Comparison {
    /// Whether it differs, and by enough to matter: what is counted beside a table of comparisons.
    pub fn matters(&self) -> bool {
        self.differs && !matches!(self.verdict, Verdict::Same | Verdict::TooClose)
    }

    /// True if both sides are simulated: they repeat to the last bit, and are as far off as the simulator is.
    pub fn is_simulated(&self) -> bool {
        [self.baseline_side.provenance, self.side.provenance] == [Provenance::Simulated; 2]
    }

    /// The verdict on the ratio: whether it differs by the adjusted p-value (between simulations, by more than the
    /// simulator's error), and whether by enough to matter.
    pub(super) fn judge(&self) -> Verdict {
        let exact = self.is_simulated();
        match self.differs_adjusted {
            None if !exact => Verdict::Unknown,
            Some(false) => Verdict::Chance,
            _ if (self.speedup - 1.0).abs() < LEAST_DIFFERENCE => Verdict::Same,
            _ if exact && is_too_close(self.speedup) => Verdict::TooClose,
            _ if self.speedup > 1.0 => Verdict::Faster,
            _ => Verdict::Slower,
        }
    }
}

/// What both cells of a pair have of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Measured {
    /// The measure, which JSON has by its name.
    #[schemars(with = "String")]
    pub measure: &'static Measure,
    /// Its value in the baseline and in the compared cell.
    pub values: [Option<f64>; 2],
    /// The compared cell's over the baseline's.
    pub ratio: Option<f64>,
}

/// One cell of a pair: what was run, and what communication costs in it. Times of the lanes are of the
/// decode phase of one sample, per rank, averaged over ranks (ms); null where nothing was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
    /// How many timed generations the medians are of, over all rounds.
    pub samples: u32,
    /// How many rounds the samples come from.
    pub rounds: usize,
    /// Time for which the comm lane was busy, hidden or not (ms).
    pub comm_ms: Option<f64>,
    /// The part of `comm_ms` during which the compute lane was idle (ms).
    pub exposed_comm_ms: Option<f64>,
    /// The exposed part of the decode phase as it was recorded, and so of TPOT (%).
    pub exposed_pct: Option<f64>,
    /// Overlap over the decode phase (%).
    pub overlap_pct: Option<f64>,
    /// Hidden share of this cell's architecture, where `standard` and `upper-bound` were run too.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share; null for simulations, the two limits and with few samples.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Where the decode phase went; null where the backend cannot tell.
    pub split: Option<Split>,
    /// Time for which the compute lane was busy (ms).
    pub compute_ms: Option<f64>,
    /// Time for which neither lane was busy (ms).
    pub idle_ms: Option<f64>,
}

impl Side {
    /// Its hidden share with the interval, `0.55 [0.41, 0.68]`; a dash where it has none.
    pub fn hidden(&self) -> String {
        Shown::interval(self.hidden_share, self.hidden_share_ci95, 2).to_string()
    }

    pub(super) fn new(cell: &PooledCell) -> Self {
        let (metrics, overlap) = (&cell.metrics, cell.record.overlap.as_ref());
        Self {
            spec: cell.record.spec.clone(),
            provenance: cell.record.provenance,
            tpot_ms_ci95: metrics.tpot_ms_ci95,
            decode_ms: metrics.decode_ms,
            completion_ms: metrics.completion_ms,
            samples: metrics.samples,
            rounds: cell.rounds.len(),
            comm_ms: overlap.map(|o| o.comm_ms),
            exposed_comm_ms: overlap.map(|o| o.exposed_comm_ms),
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

/// Something that looks wrong, and the cells that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Flag {
    /// What looks wrong, in words.
    pub text: String,
    /// The last runs of the cells.
    #[serde(skip)]
    pub runs: Vec<String>,
    /// True if nothing is wrong but a link was extrapolated to the cell's TP.
    #[serde(skip)]
    pub is_extrapolation: bool,
}

impl Flag {
    pub(in crate::analysis) fn new<'a>(
        cells: impl IntoIterator<Item = &'a PooledCell>,
        text: String,
    ) -> Self {
        let runs = cells.into_iter().map(|cell| cell.record.run.clone()).collect();
        Self { text, runs, is_extrapolation: false }
    }
}

/// All pairs that differ only along `axis`, and what looks wrong.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
    pub flags: Vec<Flag>,
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
