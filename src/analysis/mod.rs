//! Analysis: overlap, breakdown, statistics, Pareto frontiers, comparison.
//!
//! Everything here is pure: spans or records in, numbers out.

use serde::Serialize;

use crate::spec::Spec;
use crate::store::{Metrics, Overlap, Record, Sample};
use crate::trace::{Span, Trace};

/// Overlap of one rank (contract.md, `overlap`). Microseconds, unions of intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RankOverlap {
    /// The rank.
    pub rank: u32,
    /// Comm lane busy.
    pub comm_us: f64,
    /// Compute lane busy.
    pub compute_us: f64,
    /// Copies and fills; 0 for own traces.
    pub memory_us: f64,
    /// Both lanes busy.
    pub overlap_us: f64,
    /// Comm busy, compute not.
    pub exposed_comm_us: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
    /// Any lane busy.
    pub busy_us: f64,
    /// Span less busy.
    pub idle_us: f64,
    /// First start to last end.
    pub span_us: f64,
    /// Part of comm spent waiting for the last peer to arrive.
    pub peer_wait_us: f64,
}

/// A row of the breakdown: where the lanes' time went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BreakdownRow {
    /// `attn`, `mlp`, `head` ...
    pub module: String,
    /// `matmul`, `all_reduce` ...
    pub kind: String,
    /// `compute` or `comm`.
    pub lane: String,
    /// Executions, over all ranks.
    pub count: u64,
    /// Sum of durations per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Part of it exposed: comm with an idle compute lane (us, averaged over ranks).
    pub exposed_us: f64,
    /// Share of the lane's busy time, 0 to 1.
    pub share: f64,
}

/// `overlap TRACE --format json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverlapReport {
    /// Each rank.
    pub ranks: Vec<RankOverlap>,
    /// Sums over ranks; `overlap_pct` from the sums, rank is `u32::MAX` and not shown.
    pub all: RankOverlap,
    /// By module and kind.
    pub breakdown: Vec<BreakdownRow>,
    /// Where the numbers come from.
    pub provenance: Option<crate::spec::Provenance>,
}

/// Which spans to look at; `None` means all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection {
    /// Only this phase.
    pub phase: Option<crate::plan::Phase>,
    /// Only this decode step.
    pub step: Option<u32>,
    /// Only what lies at or after this time (ns since the trace's first start); spans are clipped.
    pub from_ns: Option<i64>,
    /// Only what lies before this time; spans are clipped.
    pub to_ns: Option<i64>,
}

/// Overlap and breakdown of a trace. O(n log n) in spans.
pub fn overlap(trace: &Trace, selection: &Selection) -> OverlapReport {
    let _ = (trace, selection);
    todo!()
}

/// The record's overlap: decode phase of one sample, per rank, averaged over `ranks`. `None` where
/// there are no decode spans.
pub fn decode_overlap(spans: &[Span], ranks: u32) -> Option<Overlap> {
    let _ = (spans, ranks);
    todo!()
}

/// Metrics of one run or of a cell's pooled runs: `rounds` holds each round's samples.
/// `memory_bytes_per_rank` is passed through. `None` without samples.
pub fn metrics(spec: &Spec, rounds: &[&[Sample]], memory_bytes_per_rank: u64) -> Option<Metrics> {
    let _ = (spec, rounds, memory_bytes_per_rank);
    todo!()
}

/// One record a cell: runs of the same spec (rounds) pooled; oldest-first order is kept. Failed and
/// skipped runs stay as they are unless another round of the same cell is ok.
pub fn aggregate(records: &[Record]) -> Vec<Record> {
    let _ = records;
    todo!()
}

/// A point of a Pareto plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// The run (or aggregated cell's last run).
    pub run: String,
    /// Its spec.
    #[serde(flatten)]
    pub spec: Spec,
    /// Where the numbers come from.
    pub provenance: crate::spec::Provenance,
    /// Completion latency (ms).
    pub completion_ms: f64,
    /// Throughput over TP.
    pub tokens_per_s_per_gpu: f64,
    /// TPOT (ms, median).
    pub tpot_ms: f64,
    /// Whether no other run of its group dominates it.
    pub on_frontier: bool,
    /// Which group it was compared within: model, workload, hardware, provenance (for people).
    pub group: String,
}

/// All ok cells as points, frontier marked within each group (design.md). Ties are all on it.
pub fn pareto(records: &[Record]) -> Vec<ParetoPoint> {
    let _ = records;
    todo!()
}

/// A matched pair in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What both have in common, for people: `tiny tp2 b1 p2p-on cpu emulated:...`.
    pub matched: String,
    /// The axis's value of the baseline.
    pub baseline: String,
    /// The axis's value of the other.
    pub value: String,
    /// Runs compared.
    pub baseline_run: String,
    /// Runs compared.
    pub run: String,
    /// Where the numbers come from.
    pub provenance: crate::spec::Provenance,
    /// Baseline's TPOT (ms).
    pub baseline_tpot_ms: f64,
    /// TPOT (ms).
    pub tpot_ms: f64,
    /// Tokens/s over the baseline's tokens/s; above 1 is faster.
    pub speedup: f64,
    /// Bootstrap interval of the speedup (rounds resampled as pairs, then samples); null with fewer
    /// than 6 samples or for simulations.
    pub speedup_ci95: Option<[f64; 2]>,
    /// The interval excludes 1 (for simulations: the ratio is not 1).
    pub differs: bool,
    /// Overlap % of the baseline.
    pub baseline_overlap_pct: Option<f64>,
    /// Overlap %.
    pub overlap_pct: Option<f64>,
    /// By architecture, where `upper-bound` was run too: (standard - it) / (standard - upper-bound) in TPOT.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share, likewise.
    pub hidden_share_ci95: Option<[f64; 2]>,
}

/// All pairs that differ only along `axis`, and what looks wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonReport {
    /// The axis.
    pub by: String,
    /// Pairs.
    pub pairs: Vec<Comparison>,
    /// Ratios looked at: the more, the more will differ by chance.
    pub comparisons: usize,
    /// Higher TP slower than lower, `upper-bound` that differs between P2P on and off, ...
    pub flags: Vec<String>,
}

/// Axes one can compare by.
pub const AXES: [&str; 10] = [
    "architecture",
    "p2p",
    "tp",
    "batch",
    "link",
    "model",
    "hardware",
    "backend",
    "dtype",
    "collective",
];

/// Compares cells that differ only along `axis` (and, for p2p, in the link that p2p chose).
/// The baseline is `standard` for architecture, `on` for p2p, else the first value met.
pub fn compare(records: &[Record], axis: &str) -> crate::error::Result<ComparisonReport> {
    let _ = (records, axis);
    todo!()
}
