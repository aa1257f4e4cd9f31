//! Overlap: how much of the communication was hidden behind computation, per rank and in all.
//!
//! Exposed communication is time when a rank's comm lane is busy and its compute lane is not;
//! overlap % = 100 x (1 - sum of exposed / sum of communication) over ranks. Lanes are unions of
//! intervals, so that what runs twice at once counts once.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::breakdown::{BreakdownRow, breakdown};
use super::intervals::{Interval, clip, difference, intersection, length, union};
use crate::plan::{Lane, Phase};
use crate::spec::Provenance;
use crate::store::Overlap;
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
    pub provenance: Option<Provenance>,
}

/// Which spans to look at; `None` means all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection {
    /// Only this phase.
    pub phase: Option<Phase>,
    /// Only this decode step.
    pub step: Option<u32>,
    /// Only what lies at or after this time (ns since the trace's first start); spans are clipped.
    pub from_ns: Option<i64>,
    /// Only what lies before this time; spans are clipped.
    pub to_ns: Option<i64>,
}

/// A selected span: which, and what the selection leaves of it (absolute ns).
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected<'a> {
    pub span: &'a Span,
    pub interval: Interval,
}

/// What a rank did, apart by what did it.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub comm: Vec<Interval>,
    pub compute: Vec<Interval>,
    pub memory: Vec<Interval>,
    pub peer_wait: Vec<Interval>,
    /// First start and last end, events without length included.
    extent: Option<Interval>,
}

/// Kinds of imported operations that copy or fill memory: neither computation nor communication.
const MEMORY_KINDS: [&str; 2] = ["memcpy", "memset"];

/// Whether operations of this kind are copies or fills (imported traces only).
pub(super) fn is_memory(kind: &str) -> bool {
    MEMORY_KINDS.contains(&kind)
}

/// The first start of a trace (ns): the zero of all windows. 0 for an empty trace.
pub fn origin_ns(trace: &Trace) -> i64 {
    trace.spans.iter().map(|span| span.start_ns).min().unwrap_or(0)
}

impl Selection {
    /// The spans of `trace` it selects, clipped.
    pub(super) fn of<'a>(&self, trace: &'a Trace) -> impl Iterator<Item = Selected<'a>> {
        let origin = origin_ns(trace);
        let at = |time: Option<i64>, open| time.map_or(open, |t| origin.saturating_add(t));
        let bounds = (at(self.from_ns, i64::MIN), at(self.to_ns, i64::MAX));
        let Self { phase, step, .. } = *self;
        trace.spans.iter().filter_map(move |span| {
            let wanted = phase.is_none_or(|p| p == span.phase)
                // "This decode step" selects nothing of prefill, whose steps are all 0.
                && step.is_none_or(|s| s == span.step && span.phase == Phase::Decode);
            let interval = clip((span.start_ns, span.end_ns), bounds)?;
            wanted.then_some(Selected { span, interval })
        })
    }
}

impl Lanes {
    /// Adds an execution. `memory`: it is a copy or a fill.
    fn add(&mut self, span: &Span, interval: Interval, memory: bool) {
        match span.lane {
            _ if memory => self.memory.push(interval),
            Lane::Compute => self.compute.push(interval),
            Lane::Comm => {
                self.comm.push(interval);
                // -1 says that nobody recorded the arrivals.
                if span.last_arrival_ns >= 0 {
                    self.peer_wait.push((interval.0, interval.1.min(span.last_arrival_ns)));
                }
            }
        }
        let (start, end) = self.extent.unwrap_or(interval);
        self.extent = Some((start.min(interval.0), end.max(interval.1)));
    }

    /// Turns the lists into unions.
    pub(super) fn close(self) -> Self {
        Self {
            comm: union(self.comm),
            compute: union(self.compute),
            memory: union(self.memory),
            peer_wait: union(self.peer_wait),
            extent: self.extent,
        }
    }

    /// The rank's numbers; lanes must be closed.
    fn summary(&self, rank: u32) -> RankOverlap {
        let comm = length(&self.comm);
        let exposed = length(&difference(&self.comm, &self.compute));
        let any = [&self.comm, &self.compute, &self.memory].into_iter().flatten().copied().collect();
        let busy = length(&union(any));
        let span = self.extent.map_or(0, |(start, end)| end - start);
        RankOverlap {
            rank,
            comm_us: us(comm),
            compute_us: us(length(&self.compute)),
            memory_us: us(length(&self.memory)),
            overlap_us: us(length(&intersection(&self.comm, &self.compute))),
            exposed_comm_us: us(exposed),
            overlap_pct: overlap_pct(exposed as f64, comm as f64),
            busy_us: us(busy),
            idle_us: us(span - busy),
            span_us: us(span),
            peer_wait_us: us(length(&self.peer_wait)),
        }
    }
}

/// Nanoseconds as microseconds.
pub(super) fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// 100 x (1 - exposed / comm); `None` without communication. Any unit, the same for both.
pub(super) fn overlap_pct(exposed: f64, comm: f64) -> Option<f64> {
    (comm > 0.0).then(|| 100.0 * (1.0 - exposed / comm))
}

/// The selected spans' lanes by rank, closed. Ranks of which nothing is selected have empty lanes.
pub(super) fn lanes(trace: &Trace, selection: &Selection) -> BTreeMap<u32, Lanes> {
    let memory: Vec<bool> = trace.operations.iter().map(|o| is_memory(&o.kind)).collect();
    let mut ranks: BTreeMap<u32, Lanes> = BTreeMap::new();
    for span in &trace.spans {
        ranks.entry(span.rank).or_default();
    }
    for Selected { span, interval } in selection.of(trace) {
        let memory = memory.get(span.operation as usize).copied().unwrap_or(false);
        ranks.entry(span.rank).or_default().add(span, interval, memory);
    }
    ranks.into_iter().map(|(rank, lanes)| (rank, lanes.close())).collect()
}

/// Overlap and breakdown of a trace. O(n log n) in spans.
pub fn overlap(trace: &Trace, selection: &Selection) -> OverlapReport {
    let lanes = lanes(trace, selection);
    let ranks: Vec<RankOverlap> = lanes.iter().map(|(rank, lanes)| lanes.summary(*rank)).collect();
    let sum = |of: fn(&RankOverlap) -> f64| ranks.iter().map(of).sum::<f64>();
    let mut all = RankOverlap {
        rank: u32::MAX,
        comm_us: sum(|r| r.comm_us),
        compute_us: sum(|r| r.compute_us),
        memory_us: sum(|r| r.memory_us),
        overlap_us: sum(|r| r.overlap_us),
        exposed_comm_us: sum(|r| r.exposed_comm_us),
        overlap_pct: None,
        busy_us: sum(|r| r.busy_us),
        idle_us: sum(|r| r.idle_us),
        span_us: sum(|r| r.span_us),
        peer_wait_us: sum(|r| r.peer_wait_us),
    };
    all.overlap_pct = overlap_pct(all.exposed_comm_us, all.comm_us);
    let breakdown = breakdown(trace, selection, lanes);
    OverlapReport { ranks, all, breakdown, provenance: Some(trace.meta.provenance) }
}

/// The record's overlap: decode phase of one sample, per rank, averaged over `ranks` (and over the
/// samples, where the spans are of several). Idle is the rank's decode phase, first start to last end,
/// less what its lanes were busy. `None` where there are no decode spans.
pub fn decode_overlap(spans: &[Span], ranks: u32) -> Option<Overlap> {
    let mut lanes: BTreeMap<(u32, u32), Lanes> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.phase == Phase::Decode) {
        let interval = (span.start_ns, span.end_ns);
        lanes.entry((span.sample, span.rank)).or_default().add(span, interval, false);
    }
    if lanes.is_empty() {
        return None;
    }
    let samples: BTreeSet<u32> = lanes.keys().map(|(sample, _)| *sample).collect();
    let shares = samples.len() as f64 * f64::from(ranks.max(1));
    let mut overlap = Overlap::default();
    for ((_, rank), lanes) in lanes {
        let one = lanes.close().summary(rank);
        overlap.comm_ms += one.comm_us / 1e3 / shares;
        overlap.exposed_comm_ms += one.exposed_comm_us / 1e3 / shares;
        overlap.compute_ms += one.compute_us / 1e3 / shares;
        overlap.idle_ms += one.idle_us / 1e3 / shares;
    }
    overlap.overlap_pct = overlap_pct(overlap.exposed_comm_ms, overlap.comm_ms);
    Some(overlap)
}

/// Where a rank's communication was exposed within `from_ns..to_ns`; all times in ns since the
/// trace's first start.
pub fn exposed_intervals(trace: &Trace, rank: u32, from_ns: i64, to_ns: i64) -> Vec<(i64, i64)> {
    let origin = origin_ns(trace);
    let selection = Selection { from_ns: Some(from_ns), to_ns: Some(to_ns), ..Selection::default() };
    let memory: Vec<bool> = trace.operations.iter().map(|o| is_memory(&o.kind)).collect();
    let mut lanes = Lanes::default();
    for Selected { span, interval } in selection.of(trace).filter(|s| s.span.rank == rank) {
        let memory = memory.get(span.operation as usize).copied().unwrap_or(false);
        lanes.add(span, interval, memory);
    }
    let lanes = lanes.close();
    difference(&lanes.comm, &lanes.compute)
        .into_iter()
        .map(|(start, end)| (start - origin, end - origin))
        .collect()
}

/// A prefill or a decode step of one sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// Which timed generation.
    pub sample: u32,
    /// Prefill or decode.
    pub phase: Phase,
    /// Decode step from 0; 0 in prefill.
    pub step: u32,
    /// First start on any rank (ns since the trace's first start).
    pub start_ns: i64,
    /// Last end on any rank (ns since the trace's first start).
    pub end_ns: i64,
    /// Comm lane busy (us, averaged over ranks).
    pub comm_us: f64,
    /// Comm busy, compute not (us, averaged over ranks).
    pub exposed_us: f64,
    /// Compute lane busy (us, averaged over ranks).
    pub compute_us: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
}

/// Every step of a trace, in order of sample, phase and step. Averages are over the ranks that took
/// part in the step.
pub fn steps(trace: &Trace) -> Vec<StepSummary> {
    let origin = origin_ns(trace);
    let memory: Vec<bool> = trace.operations.iter().map(|o| is_memory(&o.kind)).collect();
    let key = |span: &Span| (span.sample, span.phase, span.step);
    // Spans of a trace are sorted, so that a step is one chunk; the map makes up for those that are not.
    let mut chunks: BTreeMap<_, Vec<&[Span]>> = BTreeMap::new();
    for chunk in trace.spans.chunk_by(|a, b| key(a) == key(b)) {
        chunks.entry(key(&chunk[0])).or_default().push(chunk);
    }
    let summarise = |((sample, phase, step), chunks): (_, Vec<&[Span]>)| {
        let mut ranks: BTreeMap<u32, Lanes> = BTreeMap::new();
        let (mut start, mut end) = (i64::MAX, i64::MIN);
        for span in chunks.into_iter().flatten() {
            (start, end) = (start.min(span.start_ns), end.max(span.end_ns));
            let memory = memory.get(span.operation as usize).copied().unwrap_or(false);
            ranks.entry(span.rank).or_default().add(span, (span.start_ns, span.end_ns), memory);
        }
        let count = ranks.len() as f64;
        let (mut comm_us, mut exposed_us, mut compute_us) = (0.0, 0.0, 0.0);
        for (rank, lanes) in ranks {
            let one = lanes.close().summary(rank);
            comm_us += one.comm_us / count;
            exposed_us += one.exposed_comm_us / count;
            compute_us += one.compute_us / count;
        }
        let overlap_pct = overlap_pct(exposed_us, comm_us);
        let (start_ns, end_ns) = (start - origin, end - origin);
        StepSummary {
            sample,
            phase,
            step,
            start_ns,
            end_ns,
            comm_us,
            exposed_us,
            compute_us,
            overlap_pct,
        }
    };
    chunks.into_iter().map(summarise).collect()
}

#[cfg(test)]
#[path = "overlap_tests.rs"]
mod tests;
