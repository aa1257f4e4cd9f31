//! The critical path of a step of an own trace: the chain of spans that the step's end waited for.
//!
//! It is walked from the span that ends last, on any rank, backwards. Before a span lies whichever ended
//! last of what it had to wait for: the operations that its operation waits for, and what was before it
//! on its lane (a lane does one thing at a time). A collective moves no data before its last rank has
//! arrived: where that is another rank, the path goes on there. So every nanosecond between the first
//! span of the path and the step's end belongs to one part: computing, transferring, waiting for a peer
//! (only where the spans of the peer that arrived last are not in the trace), or a gap before a span
//! that had what it needed.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use plan::{Lane, Phase};
use trace::overlap::{Runs, StepKey, us};
use trace::{Span, Trace};

/// How the critical path came to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It ends last: here the walk began.
    Last,
    /// The next span of the path reads or awaits its result.
    Result,
    /// It occupied the lane of the next span of the path.
    Lane,
    /// It is the same collective on the rank that arrived last; the next span of the path is its peer.
    Peer,
}

/// A span of the critical path. The steps of a path follow one another in time without holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct PathStep {
    /// Index into the trace's spans.
    pub span: usize,
    /// Why it is on the path.
    pub why: Why,
    /// The part of the path that it accounts for begins (ns, the trace's clock): its start, for a
    /// collective the last arrival. From the previous step's `to_ns` to here is a gap.
    pub from_ns: i64,
    /// The part of the path that it accounts for ends (ns, the trace's clock).
    pub to_ns: i64,
    /// Part of `from_ns..to_ns` spent waiting for a peer that the trace does not show (ns).
    pub peer_ns: i64,
}

/// The critical path of a step, in order of time. Empty where the trace has no such step, or does not
/// know what its operations wait for (imported traces). The trace's spans must be sorted, as they are
/// in every trace that was read or recorded.
pub fn critical_path(trace: &Trace, sample: u32, phase: Phase, step: u32) -> Vec<PathStep> {
    if !knows_dependencies(trace) {
        return Vec::new();
    }
    let spans = StepKey { sample, phase, step }.spans(trace);
    Walk::new(trace, spans.collect()).path()
}

/// What one path consists of; `None` for an empty one.
pub fn path_summary(trace: &Trace, path: &[PathStep]) -> Option<PathSummary> {
    let mut sums = Sums::default();
    sums.add_path(trace, path);
    (sums.steps > 0).then(|| describe(trace, sums, 1))
}

/// Whether a trace knows what its operations wait for (imported ones do not).
pub fn knows_dependencies(trace: &Trace) -> bool {
    trace.operations.iter().any(|operation| !operation.waits_for.is_empty())
}

/// A step's spans, found by rank and operation, and by place on their lanes.
struct Walk<'a> {
    trace: &'a Trace,
    /// Indices of the step's spans.
    spans: Vec<usize>,
    /// Position in `spans` of a (rank, operation).
    executed: Vec<u32>,
    /// Position in `spans` of what was before a span on its lane.
    before: Vec<u32>,
    first_operation: u32,
    operations: usize,
    ranks: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl<'a> Walk<'a> {
    fn new(trace: &'a Trace, mut spans: Vec<usize>) -> Self {
        let of = |at: usize| &trace.spans[at];
        let lane = |span: &Span| (span.rank, span.lane);
        let order = |&at: &usize| (lane(of(at)), of(at).start_ns, of(at).end_ns);
        if !spans.is_sorted_by_key(order) {
            spans.sort_by_key(order);
        }
        let mut ranks: Vec<u32> = spans.iter().map(|&at| of(at).rank).collect();
        ranks.dedup();
        let operations = || spans.iter().map(|&at| of(at).operation);
        let first_operation = operations().min().unwrap_or(0);
        let width = operations().max().map_or(0, |last| (last - first_operation) as usize + 1);
        // A damaged table of operations must not cost memory that the spans do not justify.
        let width = width.min(trace.operations.len());
        let mut walk = Self {
            trace,
            executed: vec![NONE; width * ranks.len()],
            before: vec![NONE; spans.len()],
            spans,
            first_operation,
            operations: width,
            ranks,
        };
        for at in 0..walk.spans.len() {
            let span = walk.span(at);
            if at > 0 && lane(walk.span(at - 1)) == lane(span) {
                walk.before[at] = at as u32 - 1;
            }
            if let Some(cell) = walk.cell(span.rank, span.operation) {
                walk.executed[cell] = at as u32;
            }
        }
        walk
    }

    fn span(&self, at: usize) -> &'a Span {
        &self.trace.spans[self.spans[at]]
    }

    fn cell(&self, rank: u32, operation: u32) -> Option<usize> {
        let column = operation.checked_sub(self.first_operation)? as usize;
        let row = self.ranks.binary_search(&rank).ok()?;
        (column < self.operations).then_some(row * self.operations + column)
    }

    /// Where a rank executed an operation.
    fn find(&self, rank: u32, operation: u32) -> Option<usize> {
        let at = self.executed[self.cell(rank, operation)?];
        (at != NONE).then_some(at as usize)
    }

    /// The path, in order of time.
    fn path(&self) -> Vec<PathStep> {
        let mut path = Vec::new();
        let mut visited = vec![false; self.spans.len()];
        let last =
            (0..self.spans.len()).max_by_key(|&at| (self.span(at).end_ns, self.span(at).start_ns));
        let mut next = last.map(|at| (at, Why::Last));
        let mut until = last.map_or(0, |at| self.span(at).end_ns);
        // Clocks may be odd; no span is on a path twice, so that every walk ends.
        while let Some((at, why)) = next.filter(|(at, _)| !std::mem::replace(&mut visited[*at], true)) {
            let span = self.span(at);
            let to_ns = until.min(span.end_ns).max(span.start_ns.min(until));
            let peer = self.last_peer(at).filter(|&peer| !visited[peer]);
            let arrived = peer.map_or(span.start_ns, |peer| self.span(peer).start_ns);
            let from_ns = arrived.min(to_ns);
            // Arrived after every span we know of: the rank that did is not in the trace.
            let peer_ns = if peer.is_none() && span.lane == Lane::Comm {
                span.last_arrival_ns.min(to_ns).saturating_sub(from_ns).max(0)
            } else {
                0
            };
            path.push(PathStep { span: self.spans[at], why, from_ns, to_ns, peer_ns });
            until = from_ns;
            next = match peer {
                Some(peer) => Some((peer, Why::Peer)),
                None => self.predecessor(at),
            };
        }
        path.reverse();
        path
    }

    /// The span of the same collective on the rank that arrived last, if that is another rank and later.
    fn last_peer(&self, at: usize) -> Option<usize> {
        let span = self.span(at);
        if span.lane != Lane::Comm {
            return None;
        }
        let peers = self.ranks.iter().filter(|rank| **rank != span.rank);
        peers
            .filter_map(|rank| self.find(*rank, span.operation))
            .filter(|&peer| self.span(peer).start_ns > span.start_ns)
            .max_by_key(|&peer| self.span(peer).start_ns)
    }

    /// What a span came after: whichever ended last of what it had to wait for.
    fn predecessor(&self, at: usize) -> Option<(usize, Why)> {
        let span = self.span(at);
        let waits: &[u32] =
            self.trace.operations.get(span.operation as usize).map_or(&[], |o| o.waits_for.as_slice());
        let results = waits.iter().filter_map(|&o| self.find(span.rank, o)).map(|at| (at, Why::Result));
        let before = Some(self.before[at]).filter(|at| *at != NONE).map(|at| (at as usize, Why::Lane));
        // At the same time the result counts: it is what the plan says.
        before.into_iter().chain(results).max_by_key(|(at, _)| self.span(*at).end_ns)
    }
}

/// Spans whose steps are enough for a summary.
const ENOUGH: usize = 1 << 20;

/// What critical paths consist of, over the selected steps. Averages a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PathSummary {
    /// How many steps were walked from their end to their beginning.
    pub steps: u64,
    /// How many steps the selection has; where it has more than were walked, those are
    /// spread evenly over it.
    pub of_steps: u64,
    /// Length of the path (us).
    pub length_us: f64,
    /// Time on the path in which operations computed (us).
    pub compute_us: f64,
    /// Transferring: collectives after their last arrival (us).
    pub transfer_us: f64,
    /// Waiting for peers that are not in the trace (us).
    pub peer_us: f64,
    /// Gaps: nothing ran though all was there (us).
    pub gap_us: f64,
    /// Times the path went over to another rank.
    pub rank_changes: f64,
    /// By module and kind, the longest first.
    pub parts: Vec<PathPart>,
}

/// A module and kind of operation on critical paths.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PathPart {
    /// `attn`, `mlp`, `head` ...
    pub module: String,
    /// What the operations do: `matmul`, `all_reduce` ...
    pub kind: String,
    /// The lane on which they execute: `compute` or `comm`.
    pub lane: &'static str,
    /// Spans on the path, a step.
    pub count: f64,
    /// Time on the path, a step (us).
    pub us: f64,
    /// Share of the path, 0 to 1.
    pub share: f64,
}

/// Sums of some paths (ns).
#[derive(Default)]
struct Sums {
    steps: u64,
    length: i64,
    gap: i64,
    peer: i64,
    changes: u64,
    lanes: [i64; 2],
    /// Count and time by operation.
    operations: BTreeMap<u32, (u64, i64)>,
}

impl Sums {
    fn add_path(&mut self, trace: &Trace, path: &[PathStep]) {
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
        self.steps += 1;
        self.length += last.to_ns.saturating_sub(first.from_ns);
        for pair in path.windows(2) {
            self.gap += pair[1].from_ns.saturating_sub(pair[0].to_ns);
        }
        for step in path {
            let span = &trace.spans[step.span];
            let time = step.to_ns.saturating_sub(step.from_ns) - step.peer_ns;
            self.peer += step.peer_ns;
            self.changes += u64::from(step.why == Why::Peer);
            self.lanes[span.lane as usize] += time;
            let part = self.operations.entry(span.operation).or_default();
            // The peer's part of a collective is the same collective again.
            part.0 += u64::from(step.why != Why::Peer);
            part.1 += time;
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.steps += other.steps;
        self.length += other.length;
        self.gap += other.gap;
        self.peer += other.peer;
        self.changes += other.changes;
        (0..2).for_each(|lane| self.lanes[lane] += other.lanes[lane]);
        for (operation, (count, time)) in other.operations {
            let part = self.operations.entry(operation).or_default();
            (part.0, part.1) = (part.0 + count, part.1 + time);
        }
        self
    }
}

/// The critical paths of the selected steps (of long traces: of some of them), summed up. Windows of time do not cut paths: a step that
/// lies partly within one counts whole. `None` for traces that do not know their dependencies.
pub(super) fn summary(runs: &Runs) -> Option<PathSummary> {
    if !knows_dependencies(runs.trace) {
        return None;
    }
    let mut steps = runs.by_step();
    steps.retain(|(_, of_step)| runs.any(of_step.iter().copied()));
    let (of_steps, spans) = (steps.len(), runs.by_rank.iter().flatten().map(|run| run.at.len()).sum());
    // Steps are much alike: of a long trace, so many of them as do, evenly spread.
    let stride = usize::div_ceil(spans, ENOUGH).max(1);
    let sums = steps
        .into_par_iter()
        .step_by(stride)
        .fold(Sums::default, |mut sums, (_, of_step)| {
            let spans = of_step.iter().flat_map(|run| run.at.clone()).collect();
            sums.add_path(runs.trace, &Walk::new(runs.trace, spans).path());
            sums
        })
        .reduce(Sums::default, Sums::merge);
    (sums.steps > 0).then(|| describe(runs.trace, sums, of_steps as u64))
}

fn describe(trace: &Trace, sums: Sums, of_steps: u64) -> PathSummary {
    let steps = sums.steps as f64;
    let mut parts: BTreeMap<(&str, &str, Lane), (u64, i64)> = BTreeMap::new();
    for (operation, (count, time)) in sums.operations {
        let Some(info) = trace.operations.get(operation as usize) else { continue };
        let part = parts.entry((&info.module, &info.kind, info.lane)).or_default();
        (part.0, part.1) = (part.0 + count, part.1 + time);
    }
    let mut parts: Vec<PathPart> = parts
        .into_iter()
        .map(|((module, kind, lane), (count, time))| PathPart {
            module: module.into(),
            kind: kind.into(),
            lane: lane.as_str(),
            count: count as f64 / steps,
            us: us(time) / steps,
            share: if sums.length > 0 { time as f64 / sums.length as f64 } else { 0.0 },
        })
        .collect();
    parts.sort_by(|a, b| b.us.total_cmp(&a.us));
    PathSummary {
        steps: sums.steps,
        of_steps,
        length_us: us(sums.length) / steps,
        compute_us: us(sums.lanes[Lane::Compute as usize]) / steps,
        transfer_us: us(sums.lanes[Lane::Comm as usize]) / steps,
        peer_us: us(sums.peer) / steps,
        gap_us: us(sums.gap) / steps,
        rank_changes: sums.changes as f64 / steps,
        parts,
    }
}

#[cfg(test)]
mod tests;
