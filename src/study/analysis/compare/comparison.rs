//! Result of a comparison: pairs with both sides, and totals.

use serde::{Serialize, Serializer};

use super::adjust::Adjusted;
use super::axis::Axis;
use super::matching::PooledCell;
use crate::analysis::difference::Difference;
use crate::analysis::is_too_close;
use table::render::Shown;
use table::{Measure, Overlap, Provenance, Spec, Split};

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
    /// Bootstrap interval of the speedup (rounds resampled as pairs, then samples); null with fewer than 6 samples or
    /// for simulations.
    pub speedup_ci95: Option<[f64; 2]>,
    /// True if the interval excludes 1 (for simulations: if the ratio is not 1).
    pub differs: bool,
    /// Two-sided bootstrap p-value of a ratio of 1; null without an interval.
    pub p_value: Option<f64>,
    /// P-value adjusted for the number of comparisons (Benjamini-Hochberg); null without a p-value.
    pub adjusted_p: Option<f64>,
    /// True if the adjusted p-value is at most 0.05; null without one. `differs` stays unadjusted.
    pub differs_adjusted: Option<bool>,
    /// Faster, slower or neither; `too close` for a simulated lead below the simulator's error.
    #[schemars(with = "String")]
    pub verdict: Verdict,
    /// Overlap of the baseline (%); null on both sides if they were recorded in different ways.
    pub baseline_overlap_pct: Option<f64>,
    /// Overlap of the compared cell in the decode phase (%).
    pub overlap_pct: Option<f64>,
    /// Hidden share of the compared cell: (standard - cell) / (standard - upper-bound) in TPOT. Needs runs of
    /// `standard` and `upper-bound`; null if upper-bound is not faster than standard.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share, from the same rounds of all three cells; null without a share, for the two limits,
    /// and if the gap between standard and upper-bound may be 0.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Breakdown of the decode-phase difference, baseline minus compared; null if the backend does not provide it.
    pub saved: Option<Difference>,
    /// Breakdown of the decode-phase difference from `upper-bound`, if that was run.
    pub above_upper_bound: Option<Difference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    pub baseline_side: Side,
    pub side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Faster,
    Slower,
    /// Difference too small to matter ([`LEAST_DIFFERENCE`]).
    Same,
    /// Simulations that differ by less than the simulator's error ([`SPEEDUP_ERROR`](crate::analysis::SPEEDUP_ERROR)).
    TooClose,
    /// Not significant after adjustment for the number of comparisons.
    Chance,
    Unknown,
}

/// Smallest relative throughput difference that matters. Simulations repeat to the last bit, so they need a threshold
/// too.
pub const LEAST_DIFFERENCE: f64 = 0.005;

impl Verdict {
    /// Word used in tables; `not significant` is a difference that may be chance.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "the same",
            Self::TooClose => "too close",
            Self::Chance => "not significant",
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
    /// True if the pair differs by enough to matter; the count next to a comparison table.
    pub fn matters(&self) -> bool {
        self.differs && !matches!(self.verdict, Verdict::Same | Verdict::TooClose)
    }

    /// True if both sides are simulated: exact repeats, but subject to the simulator's error.
    pub fn is_simulated(&self) -> bool {
        [self.baseline_side.provenance, self.side.provenance] == [Provenance::Simulated; 2]
    }

    /// Verdict on the ratio: significant by the adjusted p-value (between simulations: above the simulator's error),
    /// and large enough to matter.
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

#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Measured {
    #[schemars(with = "String")]
    pub measure: &'static Measure,
    /// Values in the baseline and in the compared cell.
    pub values: [Option<f64>; 2],
    pub ratio: Option<f64>,
}

/// One cell of a pair, with its communication cost. Lane times cover the decode phase of one sample, per rank, averaged
/// over ranks (ms); null if nothing was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Side {
    #[serde(skip)]
    pub spec: Spec,
    pub provenance: Provenance,
    pub tpot_ms_ci95: Option<[f64; 2]>,
    pub decode_ms: f64,
    /// Latency of prefill and decode together (ms).
    pub completion_ms: f64,
    /// Number of timed generations, over all rounds.
    pub samples: u32,
    pub rounds: usize,
    /// Busy time of the comm lane, hidden or not (ms).
    pub comm_ms: Option<f64>,
    /// Part of `comm_ms` during which the compute lane was idle (ms).
    pub exposed_comm_ms: Option<f64>,
    /// Exposed share of the recorded decode phase, and so of TPOT (%).
    pub exposed_pct: Option<f64>,
    pub overlap_pct: Option<f64>,
    /// Hidden share of the architecture, if `standard` and `upper-bound` were run too.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share; null for simulations, for the two limits and with few samples.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Breakdown of the decode phase; null if the backend does not provide it.
    pub split: Option<Split>,
    pub compute_ms: Option<f64>,
    pub idle_ms: Option<f64>,
}

impl Side {
    /// Hidden share with its interval, `0.55 [0.41, 0.68]`; a dash if there is none.
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

/// Warning about cells that look wrong.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Flag {
    pub text: String,
    #[serde(skip)]
    pub runs: Vec<String>,
    /// True if the only issue is a link extrapolated to the cell's TP.
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
    pub adjusted: Adjusted,
    /// Warnings: higher TP slower than lower, `upper-bound` that differs between P2P on and off, ...
    pub flags: Vec<Flag>,
}

/// Axis along which the cells have more than one value.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisCount {
    pub axis: Axis,
    pub values: Vec<String>,
    pub pairs: usize,
}
