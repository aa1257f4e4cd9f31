//! Overlap of a trace: unions of intervals per rank, their sums, and the breakdown by operation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::Sum;

use rayon::prelude::*;
use serde::Serialize;

use super::intervals::{
    Coverage, TimeInterval, UnionBuilder, clip, common_length, difference, length, merge, pieces,
};
use super::runs::{Class, Selection, SpanRuns, origin_ns, starts};
use crate::{OperationInfo, Span, Trace};
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
    /// Time from the first start to the last end; of selected steps, until the next one begins.
    pub span_us: f64,
    /// Part of comm spent waiting for the last peer to arrive, hidden or exposed; null if the trace does
    /// not record arrivals, as for profiler traces (for those, see the stragglers).
    pub peer_wait_us: Option<f64>,
    /// The same times in exact nanoseconds.
    #[serde(flatten)]
    pub exact: LaneNanoseconds,
}

/// Times of [`RankOverlap`] in exact nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct LaneNanoseconds {
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
    /// Part of comm spent waiting for the last peer, hidden or exposed; also 0 if arrivals are not
    /// recorded.
    pub peer_wait_ns: i64,
}

/// Saturates: sums of a damaged trace may be wrong, but never panic.
impl Sum for LaneNanoseconds {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            comm_ns: sum.comm_ns.saturating_add(one.comm_ns),
            compute_ns: sum.compute_ns.saturating_add(one.compute_ns),
            memory_ns: sum.memory_ns.saturating_add(one.memory_ns),
            overlap_ns: sum.overlap_ns.saturating_add(one.overlap_ns),
            exposed_comm_ns: sum.exposed_comm_ns.saturating_add(one.exposed_comm_ns),
            busy_ns: sum.busy_ns.saturating_add(one.busy_ns),
            idle_ns: sum.idle_ns.saturating_add(one.idle_ns),
            span_ns: sum.span_ns.saturating_add(one.span_ns),
            peer_wait_ns: sum.peer_wait_ns.saturating_add(one.peer_wait_ns),
        })
    }
}

impl RankOverlap {
    fn new(rank: Option<u32>, exact: LaneNanoseconds, arrivals: bool) -> Self {
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
    let runs = SpanRuns::new(trace, selection);
    let lanes = Lanes::from_runs(&runs);
    summarise(&runs, &lanes, &Tally::new(&runs, &lanes))
}

pub fn summarise(runs: &SpanRuns, lanes: &[Lanes], tally: &Tally) -> OverlapReport {
    // a trace without communication lacks no arrivals
    let comm = || runs.trace.spans.iter().filter(|span| span.lane == Lane::Comm);
    let arrivals = comm().next().is_none() || comm().any(|span| runs.trace.arrival(span).is_some());
    let ranks: Vec<RankOverlap> = runs
        .ranks
        .iter()
        .zip(lanes)
        .map(|(rank, lanes)| RankOverlap::new(Some(*rank), lanes.sums(), arrivals))
        .collect();
    let sum = ranks.iter().map(|rank| rank.exact).sum();
    OverlapReport {
        all: RankOverlap::new(None, sum, arrivals),
        breakdown: tally.breakdown(runs.trace, ranks.len()),
        provenance: Some(runs.trace.meta.provenance),
        ranks,
    }
}

/// Overlap of the decode phase for a run's record: averaged over `ranks`, and over samples if there are
/// several. Idle time is a rank's decode phase, from first start to last end, without its busy time. The
/// time waiting for peers is unknown if a collective has no recorded arrival, or if `lacks_ranks`: ranks
/// that were not recorded may arrive last. `None` without decode spans.
pub fn decode_overlap(spans: &[Span], ranks: u32, lacks_ranks: bool) -> Option<Overlap> {
    let mut lanes: BTreeMap<(u32, u32), LanesBuilder> = BTreeMap::new();
    let mut has_arrivals = true;
    let same = |a: &Span, b: &Span| (a.sample, a.phase, a.rank) == (b.sample, b.phase, b.rank);
    for chunk in spans.chunk_by(same).filter(|chunk| chunk[0].phase == Phase::Decode) {
        let lanes = lanes.entry((chunk[0].sample, chunk[0].rank)).or_default();
        for span in chunk {
            let class = if span.lane == Lane::Comm { Class::Comm } else { Class::Compute };
            has_arrivals &= class == Class::Compute || (span.last_arrival_ns >= 0 && !lacks_ranks);
            lanes.add(span, (span.start_ns, span.end_ns.max(span.start_ns)), class);
        }
    }
    let samples: BTreeSet<u32> = lanes.keys().map(|(sample, _)| *sample).collect();
    samples.first()?;
    let shares = samples.len() as f64 * f64::from(ranks.max(1));
    let (mut overlap, mut peer_wait_ms) = (Overlap::default(), 0.0);
    for lanes in lanes.into_values() {
        let lanes = lanes.finish();
        let one = lanes.sums();
        peer_wait_ms += us(lanes.exposed_wait_ns()) / 1e3 / shares;
        overlap.comm_ms += us(one.comm_ns) / 1e3 / shares;
        overlap.exposed_comm_ms += us(one.exposed_comm_ns) / 1e3 / shares;
        overlap.compute_ms += us(one.compute_ns) / 1e3 / shares;
        overlap.idle_ms += us(one.idle_ns) / 1e3 / shares;
    }
    overlap.overlap_pct = overlap_pct(overlap.exposed_comm_ms, overlap.comm_ms);
    overlap.peer_wait_ms = has_arrivals.then_some(peer_wait_ms);
    Some(overlap)
}

/// Intervals of exposed communication of a rank within `from_ns..to_ns`, in ns since the trace's first
/// start.
pub fn exposed_intervals(trace: &Trace, rank: u32, from_ns: i64, to_ns: i64) -> Vec<TimeInterval> {
    let origin = origin_ns(trace);
    let bounds = (origin.saturating_add(from_ns), origin.saturating_add(to_ns));
    let mut lanes = LanesBuilder::default();
    for span in trace.spans.iter().filter(|span| span.rank == rank) {
        let Some(interval) = clip((span.start_ns, span.end_ns.max(span.start_ns)), bounds) else {
            continue;
        };
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        lanes.add(span, interval, Class::new(operation, span.lane));
    }
    let lanes = lanes.finish();
    difference(&lanes.comm, lanes.compute.union())
        .into_iter()
        .map(|(start, end)| (start - origin, end - origin))
        .collect()
}

/// Unions of one rank's intervals by class (absolute ns).
#[derive(Debug, Default)]
pub struct Lanes {
    pub comm: Vec<TimeInterval>,
    pub compute: Coverage,
    pub memory: Vec<TimeInterval>,
    pub other: Vec<TimeInterval>,
    pub peer_wait: Vec<TimeInterval>,
    /// Intervals that idle time counts in, sorted and disjoint: the selected steps, or one from the first start to the
    /// last end, including zero-length events.
    pub extents: Vec<TimeInterval>,
}

#[derive(Debug, Default)]
pub struct LanesBuilder {
    /// By [`Class`].
    classes: [UnionBuilder; 4],
    peer_wait: UnionBuilder,
    extent: Option<TimeInterval>,
}

impl LanesBuilder {
    #[inline]
    pub fn add(&mut self, span: &Span, interval: TimeInterval, class: Class) {
        self.classes[class as usize].add(interval);
        // -1: arrivals were not recorded.
        if class == Class::Comm && span.last_arrival_ns >= 0 {
            self.peer_wait.add((interval.0, interval.1.min(span.last_arrival_ns)));
        }
        self.reach(interval);
    }

    fn reach(&mut self, interval: TimeInterval) {
        let (start, end) = self.extent.unwrap_or(interval);
        self.extent = Some((start.min(interval.0), end.max(interval.1)));
    }

    fn append(&mut self, other: Self) {
        for (own, other) in self.classes.iter_mut().zip(other.classes) {
            own.append(other);
        }
        self.peer_wait.append(other.peer_wait);
        if let Some(extent) = other.extent {
            self.reach(extent);
        }
    }

    pub fn finish(self) -> Lanes {
        let [compute, comm, memory, other] = self.classes.map(UnionBuilder::finish);
        Lanes {
            comm,
            compute: Coverage::new(compute),
            memory,
            other,
            peer_wait: self.peer_wait.finish(),
            extents: self.extent.into_iter().collect(),
        }
    }
}

impl Lanes {
    /// Lanes of all selected ranks, in the order of [`SpanRuns::ranks`]. Ranks without selected spans have
    /// empty lanes.
    pub fn from_runs(runs: &SpanRuns) -> Vec<Self> {
        let portions: Vec<(usize, LanesBuilder)> = runs
            .portions()
            .into_par_iter()
            .map(|portion| {
                let mut builder = LanesBuilder::default();
                runs.each(portion, |span, interval| builder.add(span, interval, runs.class(span)));
                (portion[0].rank, builder)
            })
            .collect();
        let mut ranks: Vec<Vec<LanesBuilder>> = Vec::new();
        ranks.resize_with(runs.ranks.len(), Vec::new);
        portions.into_iter().for_each(|(rank, builder)| ranks[rank].push(builder));
        let whole = |(rank, builders): (usize, Vec<LanesBuilder>)| {
            let all = builders.into_iter().reduce(|mut all, next| {
                all.append(next);
                all
            });
            Self { extents: runs.parts(rank).to_vec(), ..all.unwrap_or_default().finish() }
        };
        ranks.into_par_iter().enumerate().map(whole).collect()
    }

    /// Lanes of a selection, from those of the whole trace, without a pass over the spans.
    pub fn within(all: &[Self], runs: &SpanRuns) -> Vec<Self> {
        let of_rank = |(rank, all): (usize, &Self)| {
            let parts = runs.parts(rank);
            let cut = |intervals: &[TimeInterval]| -> Vec<TimeInterval> {
                let mut cursor = 0;
                intervals.iter().flat_map(|interval| pieces(parts, *interval, &mut cursor)).collect()
            };
            Self {
                comm: cut(&all.comm),
                compute: Coverage::new(cut(all.compute.union())),
                memory: cut(&all.memory),
                other: cut(&all.other),
                peer_wait: cut(&all.peer_wait),
                extents: parts.to_vec(),
            }
        };
        all.par_iter().enumerate().map(of_rank).collect()
    }

    /// Intervals in which any lane was busy (absolute ns), as a union.
    pub fn busy(&self) -> Vec<TimeInterval> {
        merge(&[&self.comm, self.compute.union(), &self.memory, &self.other])
    }

    /// Intervals of the extents in which no lane was busy (absolute ns), sorted and disjoint.
    pub fn gaps(&self) -> Vec<TimeInterval> {
        difference(&self.extents, &self.busy())
    }

    /// Exposed part of the time spent waiting for the last peer (ns); 0 if arrivals are not recorded.
    pub fn exposed_wait_ns(&self) -> i64 {
        length(&self.peer_wait) - common_length(&self.peer_wait, self.compute.union())
    }

    pub fn sums(&self) -> LaneNanoseconds {
        let [comm, compute] = [&self.comm[..], self.compute.union()].map(length);
        let overlap = common_length(&self.comm, self.compute.union());
        let busy = match self.memory.is_empty() && self.other.is_empty() {
            true => comm + compute - overlap,
            false => length(&self.busy()),
        };
        let span = length(&self.extents);
        LaneNanoseconds {
            comm_ns: comm,
            compute_ns: compute,
            memory_ns: length(&self.memory),
            overlap_ns: overlap,
            exposed_comm_ns: comm - overlap,
            busy_ns: busy,
            idle_ns: span - busy,
            span_ns: span,
            peer_wait_ns: length(&self.peer_wait),
        }
    }
}

/// Lane time of one module and kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakdownRow {
    /// Module: `attn`, `mlp`, `head`; empty for an imported trace.
    pub module: String,
    /// Kind of operation: `matmul`, `all_reduce`; for an imported trace, the kind from the matching
    /// rule.
    pub kind: String,
    /// `compute` or `comm`; `memory` for the copies and fills of imported traces.
    pub lane: String,
    /// Number of executions on all ranks.
    pub count: u64,
    /// Sum of durations, averaged over ranks (us).
    pub total_us: f64,
    /// Exposed part of `total_us`, for communication (us, averaged over ranks).
    pub exposed_us: f64,
    /// Share of the lane's summed durations, 0 to 1. Shares of a lane add up to 1 even if an imported
    /// trace ran several operations concurrently.
    pub share: f64,
}

/// Sums over executions. Durations are summed, not united: concurrent executions count twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyCell {
    /// Executions that started in the selection.
    pub count: u64,
    pub total_ns: i64,
    /// For communication: the part of `total_ns` hidden by computation of the same rank.
    pub hidden_ns: i64,
    /// For communication: its share of the rank's exposed time, with each moment counted once
    /// ([`ExposureCounter`]).
    pub exposed_ns: i64,
    /// Executions with time in the selection, also those that started before it.
    pub executions: u64,
    /// The longest of them, clipped to the selection.
    pub longest_ns: i64,
}

impl TallyCell {
    /// True without a start and without time: work that began before the selection has only time.
    pub fn is_empty(&self) -> bool {
        (self.count, self.total_ns) == (0, 0)
    }

    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.hidden_ns = self.hidden_ns.saturating_add(other.hidden_ns);
        self.exposed_ns = self.exposed_ns.saturating_add(other.exposed_ns);
        self.executions += other.executions;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// Exposed communication of one rank. Each moment counts once, for the concurrent collective that
/// started first, so the operations add up to the rank's exposed time. Spans must be in order of start.
#[derive(Clone, Copy, Debug)]
pub struct ExposureCounter {
    /// End of the communication so far.
    until: i64,
    cursor: usize,
}

impl Default for ExposureCounter {
    fn default() -> Self {
        Self { until: i64::MIN, cursor: 0 }
    }
}

impl ExposureCounter {
    pub fn add(&mut self, (start, end): TimeInterval, compute: &Coverage) -> i64 {
        let new = (start.max(self.until), end);
        if new.0 >= new.1 {
            return 0;
        }
        self.until = end;
        new.1 - new.0 - compute.within_with_cursor(new, &mut self.cursor)
    }
}

/// Sums over all ranks per operation, or per another key of the spans, separately for the compute and
/// comm lanes.
#[derive(Debug)]
pub struct Tally {
    pub cells: Vec<[TallyCell; 2]>,
}

impl Tally {
    /// Tallies the selected spans by operation, in one pass.
    pub fn new(runs: &SpanRuns, lanes: &[Lanes]) -> Self {
        // By operation, not by name: names are compared once per operation, not once per span.
        Self::by(runs, lanes, runs.trace.operations.len(), |span| span.operation as usize)
    }

    /// Tallies the selected spans by `number`. Skips spans with a number of `count` or more.
    pub fn by(
        runs: &SpanRuns,
        lanes: &[Lanes],
        count: usize,
        number: impl Fn(&Span) -> usize + Sync,
    ) -> Self {
        let empty = || vec![[TallyCell::default(); 2]; count];
        let cells = runs
            .portions()
            .into_par_iter()
            .fold(empty, |mut cells, portion| {
                let (compute, mut cursor) = (&lanes[portion[0].rank].compute, 0);
                // pieces of a span follow each other: sum its time
                let mut last: Option<(*const Span, i64)> = None;
                runs.each(portion, |span, interval| {
                    let Some(cell) = cells.get_mut(number(span)) else { return };
                    let cell = &mut cell[span.lane as usize];
                    let duration = interval.1.saturating_sub(interval.0);
                    cell.total_ns = cell.total_ns.saturating_add(duration);
                    cell.count += u64::from(starts(span, interval));
                    let before = last.filter(|(of, _)| *of == std::ptr::from_ref(span));
                    let time = before.map_or(0, |(_, time)| time).saturating_add(duration);
                    last = Some((std::ptr::from_ref(span), time));
                    cell.executions += u64::from(before.is_none());
                    cell.longest_ns = cell.longest_ns.max(time);
                    if span.lane == Lane::Comm {
                        let hidden = compute.within_with_cursor(interval, &mut cursor);
                        cell.hidden_ns += hidden;
                        cell.exposed_ns += duration - hidden;
                    }
                });
                cells
            })
            .reduce(empty, |mut all, more| {
                all.iter_mut().flatten().zip(more.iter().flatten()).for_each(|(a, b)| a.add(b));
                all
            });
        let mut tally = Self { cells };
        tally.expose_once(runs, lanes, number);
        tally
    }

    /// Removes double-counted exposed time of concurrent operations. Returns early if none are
    /// concurrent.
    fn expose_once(&mut self, runs: &SpanRuns, lanes: &[Lanes], number: impl Fn(&Span) -> usize + Sync) {
        let united = lanes.iter().fold(0i64, |sum, lanes| sum.saturating_add(length(&lanes.comm)));
        let of_comm = |cells: &[TallyCell; 2]| cells[Lane::Comm as usize].total_ns;
        if self.cells.iter().map(of_comm).fold(0, i64::saturating_add) == united {
            return;
        }
        let each: Vec<Vec<(usize, i64)>> = (0..runs.ranks.len())
            .into_par_iter()
            .map(|rank| {
                let mut spans: Vec<(TimeInterval, usize)> = Vec::new();
                runs.each(&runs.by_rank[rank], |span, interval| {
                    if runs.class(span) == Class::Comm {
                        spans.push((interval, number(span)));
                    }
                });
                spans.sort_unstable();
                let (compute, mut exposure) = (&lanes[rank].compute, ExposureCounter::default());
                spans.into_iter().map(|(at, number)| (number, exposure.add(at, compute))).collect()
            })
            .collect();
        let of_comm = |cells: &mut [TallyCell; 2]| cells[Lane::Comm as usize].exposed_ns = 0;
        self.cells.iter_mut().for_each(of_comm);
        for (number, exposed) in each.into_iter().flatten() {
            if let Some(cells) = self.cells.get_mut(number) {
                cells[Lane::Comm as usize].exposed_ns += exposed;
            }
        }
    }

    pub fn comm(&self, operation: usize) -> TallyCell {
        self.cells[operation][Lane::Comm as usize]
    }

    pub fn operations<'a>(
        &'a self,
        trace: &'a Trace,
    ) -> impl Iterator<Item = (&'a OperationInfo, &'static str, TallyCell)> {
        trace.operations.iter().zip(&self.cells).flat_map(|(operation, cells)| {
            [Lane::Compute, Lane::Comm].into_iter().zip(cells).filter(|(_, cell)| !cell.is_empty()).map(
                move |(lane, cell)| {
                    let class = Class::new(operation, lane);
                    let of_comm = |ns: i64| if class == Class::Comm { ns } else { 0 };
                    let [hidden_ns, exposed_ns] = [cell.hidden_ns, cell.exposed_ns].map(of_comm);
                    (operation, class.as_str(), TallyCell { hidden_ns, exposed_ns, ..*cell })
                },
            )
        })
    }

    pub fn group<'a, K: Ord>(
        &'a self,
        trace: &'a Trace,
        key: impl Fn(&'a OperationInfo, &'static str) -> Option<K>,
    ) -> BTreeMap<K, TallyCell> {
        let mut groups: BTreeMap<K, TallyCell> = BTreeMap::new();
        for (operation, lane, cell) in self.operations(trace) {
            if let Some(key) = key(operation, lane) {
                groups.entry(key).or_default().add(&cell);
            }
        }
        groups
    }

    /// Breakdown by module and kind, longest first; times are averaged over `ranks`.
    pub fn breakdown(&self, trace: &Trace, ranks: usize) -> Vec<BreakdownRow> {
        let ranks = ranks.max(1) as f64;
        let groups = self.group(trace, |o, lane| Some((o.module.as_str(), o.kind.as_str(), lane)));
        let mut lane_ns: HashMap<&str, i64> = HashMap::new();
        for ((_, _, lane), cell) in &groups {
            let sum = lane_ns.entry(lane).or_default();
            *sum = sum.saturating_add(cell.total_ns);
        }
        let mut rows: Vec<BreakdownRow> = groups
            .into_iter()
            .map(|((module, kind, lane), cell)| BreakdownRow {
                module: module.into(),
                kind: kind.into(),
                lane: lane.into(),
                count: cell.count,
                total_us: us(cell.total_ns) / ranks,
                exposed_us: us(cell.exposed_ns) / ranks,
                share: match lane_ns.get(lane) {
                    Some(&all) if all > 0 => cell.total_ns as f64 / all as f64,
                    _ => 0.0,
                },
            })
            .collect();
        rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        rows
    }
}
