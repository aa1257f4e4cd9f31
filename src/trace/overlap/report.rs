//! Overlap: the part of communication hidden behind computation, per rank and in total. Communication is
//! exposed while a rank's comm lane is busy and its compute lane is not; overlap % = 100 x (1 - sum of
//! exposed / sum of communication) over ranks. Lanes are unions of intervals, so concurrent work counts
//! once. All sums are exact integer nanoseconds.

use std::collections::BTreeMap;
use std::ops::Add;

use serde::Serialize;

use super::breakdown::{BreakdownRow, Tally};
use super::intervals::{Interval, UnionBuilder, clip, difference};
use super::lanes::{Lanes, LanesBuilder};
use super::runs::{Class, Runs, Selection, origin_ns};
use crate::{Span, Trace};
use plan::{Lane, Phase};
use table::{Overlap, Provenance, overlap_pct};

/// Overlap of one rank, as `ladderscope overlap --format json` prints it: microseconds, from unions of
/// intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RankOverlap {
    /// Rank number, starting at 0; absent for the sum over ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Busy time of the comm lane.
    pub comm_us: f64,
    /// Busy time of the compute lane.
    pub compute_us: f64,
    /// Time of copies and fills; 0 for native traces, which have none.
    pub memory_us: f64,
    /// Time during which both lanes were busy: hidden communication.
    pub overlap_us: f64,
    /// Time during which the comm lane was busy and the compute lane was not.
    pub exposed_comm_us: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
    /// Time during which any lane was busy, including copies and fills.
    pub busy_us: f64,
    /// Time of the span during which no lane was busy.
    pub idle_us: f64,
    /// Time from the first start to the last end.
    pub span_us: f64,
    /// Part of comm spent waiting for the last peer to arrive; null if the trace does not record
    /// arrivals, as for profiler traces (for those, see the stragglers).
    pub peer_wait_us: Option<f64>,
    /// The same times in exact nanoseconds.
    #[serde(flatten)]
    pub exact: Nanoseconds,
}

/// Times of [`RankOverlap`] in exact nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Nanoseconds {
    /// Busy time of the comm lane.
    pub comm_ns: i64,
    /// Busy time of the compute lane.
    pub compute_ns: i64,
    /// Time of copies and fills.
    pub memory_ns: i64,
    /// Time during which both lanes were busy: hidden communication.
    pub overlap_ns: i64,
    /// Time during which the comm lane was busy and the compute lane was not.
    pub exposed_comm_ns: i64,
    /// Time during which any lane was busy, including copies and fills.
    pub busy_ns: i64,
    /// Time of the span during which no lane was busy.
    pub idle_ns: i64,
    /// Time from the first start to the last end.
    pub span_ns: i64,
    /// Part of comm spent waiting for the last peer; also 0 if arrivals are not recorded.
    pub peer_wait_ns: i64,
}

/// Saturates: sums of a damaged trace may be wrong, but never panic.
impl Add for Nanoseconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            comm_ns: self.comm_ns.saturating_add(other.comm_ns),
            compute_ns: self.compute_ns.saturating_add(other.compute_ns),
            memory_ns: self.memory_ns.saturating_add(other.memory_ns),
            overlap_ns: self.overlap_ns.saturating_add(other.overlap_ns),
            exposed_comm_ns: self.exposed_comm_ns.saturating_add(other.exposed_comm_ns),
            busy_ns: self.busy_ns.saturating_add(other.busy_ns),
            idle_ns: self.idle_ns.saturating_add(other.idle_ns),
            span_ns: self.span_ns.saturating_add(other.span_ns),
            peer_wait_ns: self.peer_wait_ns.saturating_add(other.peer_wait_ns),
        }
    }
}

impl RankOverlap {
    fn new(rank: Option<u32>, exact: Nanoseconds, arrivals: bool) -> Self {
        Self {
            rank,
            comm_us: us(exact.comm_ns),
            compute_us: us(exact.compute_ns),
            memory_us: us(exact.memory_ns),
            overlap_us: us(exact.overlap_ns),
            exposed_comm_us: us(exact.exposed_comm_ns),
            overlap_pct: overlap_pct(exact.exposed_comm_ns as f64, exact.comm_ns as f64),
            busy_us: us(exact.busy_ns),
            idle_us: us(exact.idle_ns),
            span_us: us(exact.span_ns),
            peer_wait_us: arrivals.then(|| us(exact.peer_wait_ns)),
            exact,
        }
    }
}

/// Output of `overlap TRACE --format json`: overlap per rank and over all ranks, and a breakdown of the
/// lanes' time (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct OverlapReport {
    /// One entry per rank, ascending.
    pub ranks: Vec<RankOverlap>,
    /// Sums over ranks. `overlap_pct` is computed from the sums.
    pub all: RankOverlap,
    /// Lane time per module and kind of operation.
    pub breakdown: Vec<BreakdownRow>,
    /// Provenance of the numbers.
    pub provenance: Option<Provenance>,
}

pub fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// Overlap and breakdown of a trace, in a few parallel passes over its spans.
pub fn overlap(trace: &Trace, selection: &Selection) -> OverlapReport {
    let runs = Runs::new(trace, selection);
    let lanes = Lanes::of(&runs);
    summarise(&runs, &lanes, &Tally::of(&runs, &lanes))
}

pub fn summarise(runs: &Runs, lanes: &[Lanes], tally: &Tally) -> OverlapReport {
    // a trace without communication lacks no arrivals
    let comm = || runs.trace.spans.iter().filter(|span| span.lane == Lane::Comm);
    let arrivals = comm().next().is_none() || comm().any(|span| span.last_arrival_ns >= 0);
    let ranks: Vec<RankOverlap> = runs
        .ranks
        .iter()
        .zip(lanes)
        .map(|(rank, lanes)| RankOverlap::new(Some(*rank), lanes.sums(), arrivals))
        .collect();
    let sum = ranks.iter().map(|rank| rank.exact).fold(Nanoseconds::default(), Add::add);
    OverlapReport {
        all: RankOverlap::new(None, sum, arrivals),
        breakdown: tally.breakdown(runs.trace, ranks.len()),
        provenance: Some(runs.trace.meta.provenance),
        ranks,
    }
}

/// Overlap of the decode phase for a run's record: averaged over `ranks`, and over samples if there are
/// several. Idle time is a rank's decode phase, from first start to last end, without its busy time.
/// `None` without decode spans.
pub fn decode_overlap(spans: &[Span], ranks: u32) -> Option<Overlap> {
    let mut lanes: BTreeMap<(u32, u32), LanesBuilder> = BTreeMap::new();
    let same = |a: &Span, b: &Span| (a.sample, a.phase, a.rank) == (b.sample, b.phase, b.rank);
    for chunk in spans.chunk_by(same).filter(|chunk| chunk[0].phase == Phase::Decode) {
        let lanes = lanes.entry((chunk[0].sample, chunk[0].rank)).or_default();
        for span in chunk {
            let class = if span.lane == Lane::Comm { Class::Comm } else { Class::Compute };
            lanes.add(span, (span.start_ns, span.end_ns.max(span.start_ns)), class);
        }
    }
    let samples = lanes.keys().fold((0, None), |(count, last), (sample, _)| {
        if last == Some(*sample) { (count, last) } else { (count + 1, Some(*sample)) }
    });
    let shares = f64::from(samples.0) * f64::from(ranks.max(1));
    samples.1?;
    let mut overlap = Overlap::default();
    for lanes in lanes.into_values() {
        let one = lanes.finish().sums();
        overlap.comm_ms += us(one.comm_ns) / 1e3 / shares;
        overlap.exposed_comm_ms += us(one.exposed_comm_ns) / 1e3 / shares;
        overlap.compute_ms += us(one.compute_ns) / 1e3 / shares;
        overlap.idle_ms += us(one.idle_ns) / 1e3 / shares;
    }
    overlap.overlap_pct = overlap_pct(overlap.exposed_comm_ms, overlap.comm_ms);
    Some(overlap)
}

/// Intervals of exposed communication of a rank within `from_ns..to_ns`, in ns since the trace's first
/// start.
pub fn exposed_intervals(trace: &Trace, rank: u32, from_ns: i64, to_ns: i64) -> Vec<Interval> {
    let origin = origin_ns(trace);
    let bounds = (origin.saturating_add(from_ns), origin.saturating_add(to_ns));
    let (mut comm, mut compute) = (UnionBuilder::default(), UnionBuilder::default());
    for span in trace.spans.iter().filter(|span| span.rank == rank) {
        let Some(interval) = clip((span.start_ns, span.end_ns.max(span.start_ns)), bounds) else {
            continue;
        };
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        match Class::of(operation, span.lane) {
            Class::Comm => comm.add(interval),
            Class::Compute => compute.add(interval),
            Class::Memory | Class::Other => {}
        }
    }
    difference(&comm.finish(), &compute.finish())
        .into_iter()
        .map(|(start, end)| (start - origin, end - origin))
        .collect()
}
