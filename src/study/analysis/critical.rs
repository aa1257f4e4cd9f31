//! Critical path of a step of an own trace: the chain of spans that determines when the step ends.
//!
//! The walk starts at the span that ends last, on any rank, and goes backwards. The predecessor of a span is the one
//! that ended last among the operations it waits for and the previous span on its lane (a lane runs one thing at a
//! time). A collective moves no data before its last rank arrives: if that is another rank, the path continues there.
//! So every nanosecond between the first span of the path and the end of the step belongs to one part: compute,
//! transfer, waiting for a peer (only if the peer that arrived last is not in the trace), or a gap before a span that
//! was ready.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use plan::{Lane, Phase};
use trace::overlap::{SpanRuns, StepKey, us};
use trace::{Span, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReason {
    /// Last span to end; the walk starts here.
    Last,
    /// The next span of the path needs its result.
    Result,
    /// It occupied the lane of the next span of the path.
    Lane,
    /// Same collective on the rank that arrived last; the next span of the path is its peer.
    Peer,
}

/// Span of the critical path. The steps of a path follow one another without holes in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Index into the trace's spans.
    pub span: usize,
    pub why: PathReason,
    /// Start of the part of the path that the span accounts for (ns, trace clock): the span's start, or the last
    /// arrival of a collective. Any time since the previous step's `to_ns` is a gap.
    pub from_ns: i64,
    /// End of that part (ns, trace clock).
    pub to_ns: i64,
    /// Time in `from_ns..to_ns` spent waiting for a peer that is not in the trace (ns).
    pub peer_ns: i64,
}

/// Critical path of a step, in order of time. Empty if the trace has no such step or no dependencies (imported traces).
/// Spans must be sorted, as in every trace that was read or recorded.
pub fn critical_path(trace: &Trace, sample: u32, phase: Phase, step: u32) -> Vec<PathStep> {
    if !knows_dependencies(trace) {
        return Vec::new();
    }
    let spans = StepKey { sample, phase, step }.spans(trace);
    Walk::new(trace, spans.collect()).path()
}

pub fn path_summary(trace: &Trace, path: &[PathStep]) -> Option<PathSummary> {
    let mut sums = Sums::default();
    let key = StepKey::from_span(&trace.spans[path.first()?.span]);
    sums.add_path(trace, path, key.begin(trace));
    (sums.steps > 0).then(|| describe(trace, sums, 1))
}

/// True if the trace records dependencies of operations (imported traces do not).
pub fn knows_dependencies(trace: &Trace) -> bool {
    trace.operations.iter().any(|operation| !operation.waits_for.is_empty())
}

/// Spans of a step, indexed by rank and operation, and by order on their lanes.
struct Walk<'a> {
    trace: &'a Trace,
    spans: Vec<usize>,
    /// Position in `spans` by (rank, operation); [`NONE`] if not executed.
    executed: Vec<u32>,
    /// Position in `spans` of the previous span on the same lane.
    before: Vec<u32>,
    first_operation: u32,
    operations: usize,
    ranks: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl<'a> Walk<'a> {
    fn new(trace: &'a Trace, mut spans: Vec<usize>) -> Self {
        let span_at = |at: usize| &trace.spans[at];
        let lane = |span: &Span| (span.rank, span.lane);
        let order = |&at: &usize| (lane(span_at(at)), span_at(at).start_ns, span_at(at).end_ns);
        if !spans.is_sorted_by_key(order) {
            spans.sort_by_key(order);
        }
        let mut ranks: Vec<u32> = spans.iter().map(|&at| span_at(at).rank).collect();
        ranks.dedup();
        let operations = || spans.iter().map(|&at| span_at(at).operation);
        let first_operation = operations().min().unwrap_or(0);
        let width = operations().max().map_or(0, |last| (last - first_operation) as usize + 1);
        // A damaged table of operations must not allocate more memory than the spans justify.
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

    fn find(&self, rank: u32, operation: u32) -> Option<usize> {
        let at = self.executed[self.cell(rank, operation)?];
        (at != NONE).then_some(at as usize)
    }

    fn path(&self) -> Vec<PathStep> {
        let mut path = Vec::new();
        let mut visited = vec![false; self.spans.len()];
        // of ranks that did the same at the same times, the first
        let order =
            |at: usize| (self.span(at).end_ns, self.span(at).start_ns, Reverse(self.span(at).rank));
        let last = (0..self.spans.len()).max_by_key(|&at| order(at));
        let mut next = last.map(|at| (at, PathReason::Last));
        let mut until = last.map_or(0, |at| self.span(at).end_ns);
        // Clocks may be inconsistent; a span is visited once, so every walk ends.
        while let Some((at, why)) = next.filter(|(at, _)| !std::mem::replace(&mut visited[*at], true)) {
            let span = self.span(at);
            let to_ns = until.min(span.end_ns).max(span.start_ns.min(until));
            let peer = self.last_peer(at).filter(|&peer| !visited[peer]);
            let arrived = peer.map_or(span.start_ns, |peer| self.span(peer).start_ns);
            let from_ns = arrived.min(to_ns);
            // Arrival later than all recorded spans: the last rank is not in the trace.
            let peer_ns = if peer.is_none() && span.lane == Lane::Comm {
                span.last_arrival_ns.min(to_ns).saturating_sub(from_ns).max(0)
            } else {
                0
            };
            path.push(PathStep { span: self.spans[at], why, from_ns, to_ns, peer_ns });
            until = from_ns;
            next = match peer {
                Some(peer) => Some((peer, PathReason::Peer)),
                None => self.predecessor(at),
            };
        }
        path.reverse();
        path
    }

    /// Span of the same collective on the rank that arrived last, if another rank arrived later.
    fn last_peer(&self, at: usize) -> Option<usize> {
        let span = self.span(at);
        if span.lane != Lane::Comm {
            return None;
        }
        let peers = self.ranks.iter().filter(|rank| **rank != span.rank);
        peers
            .filter_map(|rank| self.find(*rank, span.operation))
            .filter(|&peer| self.span(peer).start_ns > span.start_ns)
            .max_by_key(|&peer| (self.span(peer).start_ns, Reverse(self.span(peer).rank)))
    }

    /// Span that ended last among those that this span waited for.
    fn predecessor(&self, at: usize) -> Option<(usize, PathReason)> {
        let span = self.span(at);
        let waits: &[u32] =
            self.trace.operations.get(span.operation as usize).map_or(&[], |o| o.waits_for.as_slice());
        let results =
            waits.iter().filter_map(|&o| self.find(span.rank, o)).map(|at| (at, PathReason::Result));
        let before =
            Some(self.before[at]).filter(|at| *at != NONE).map(|at| (at as usize, PathReason::Lane));
        // On a tie the dependency wins over lane order: the plan requires it.
        before.into_iter().chain(results).max_by_key(|(at, _)| self.span(*at).end_ns)
    }
}

/// Number of spans that suffices for a summary.
const ENOUGH: usize = 1 << 20;

/// Composition of critical paths over the selected steps; averages per step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PathSummary {
    pub steps: u64,
    /// Number of selected steps; if not all were walked, the walked ones are evenly spread.
    pub of_steps: u64,
    pub length_us: f64,
    pub compute_us: f64,
    /// Transfer time: collectives after their last arrival (us).
    pub transfer_us: f64,
    /// Waiting time for peers that are not in the trace (us).
    pub peer_us: f64,
    /// Gaps: nothing ran although the next span was ready, or the host had not launched the simulated step (us).
    pub gap_us: f64,
    /// Number of times the path moves to another rank.
    pub rank_changes: f64,
    pub parts: Vec<PathPart>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PathPart {
    /// `attn`, `mlp`, `head` ...
    pub module: String,
    /// Kind of operation: `matmul`, `all_reduce` ...
    pub kind: String,
    /// Lane: `compute` or `comm`.
    pub lane: &'static str,
    /// Spans on the path, per step.
    pub count: f64,
    /// Time on the path, per step (us).
    pub us: f64,
    pub share: f64,
}

#[derive(Default)]
struct Sums {
    steps: u64,
    length: i64,
    gap: i64,
    peer: i64,
    changes: u64,
    lanes: [i64; 2],
    operations: BTreeMap<u32, (u64, i64)>,
}

impl Sums {
    /// Adds the path of a step. Time from the step's begin, if known, to its first span is a gap.
    fn add_path(&mut self, trace: &Trace, path: &[PathStep], begin: Option<i64>) {
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
        self.steps += 1;
        let begin = begin.unwrap_or(first.from_ns).min(first.from_ns);
        self.gap += first.from_ns.saturating_sub(begin);
        self.length += last.to_ns.saturating_sub(begin);
        for pair in path.windows(2) {
            self.gap += pair[1].from_ns.saturating_sub(pair[0].to_ns);
        }
        for step in path {
            let span = &trace.spans[step.span];
            let time = step.to_ns.saturating_sub(step.from_ns) - step.peer_ns;
            self.peer += step.peer_ns;
            self.changes += u64::from(step.why == PathReason::Peer);
            self.lanes[span.lane as usize] += time;
            let part = self.operations.entry(span.operation).or_default();
            // the peer's part of a collective is the same collective, so count it once
            part.0 += u64::from(step.why != PathReason::Peer);
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

/// Sums up the critical paths of the selected steps (a sample of them in long traces). Time windows do not cut paths: a
/// step partly inside counts whole. `None` for traces without dependencies.
pub(super) fn summary(runs: &SpanRuns) -> Option<PathSummary> {
    if !knows_dependencies(runs.trace) {
        return None;
    }
    let mut steps = runs.by_step();
    steps.retain(|(_, of_step)| runs.any(of_step.iter().copied()));
    let (of_steps, spans) = (steps.len(), runs.by_rank.iter().flatten().map(|run| run.at.len()).sum());
    // steps are alike, so an even sample of a long trace is enough
    let stride = usize::div_ceil(spans, ENOUGH).max(1);
    let sums = steps
        .into_par_iter()
        .step_by(stride)
        .fold(Sums::default, |mut sums, (key, of_step)| {
            let spans = of_step.iter().flat_map(|run| run.at.clone()).collect();
            sums.add_path(runs.trace, &Walk::new(runs.trace, spans).path(), key.begin(runs.trace));
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
        let part = parts.entry((&info.module, info.kind.as_str(), info.lane)).or_default();
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
mod tests {
    //! Critical paths of traces made by hand.

    use super::*;
    use crate::analysis::trace_report;
    use trace::overlap::Selection;
    use trace::testing::{span, trace};

    /// Operations 0 to 4 in a row, each waiting for the one before; 1 is the collective.
    fn chained(spans: Vec<Span>) -> Trace {
        let mut trace = trace(spans);
        for at in 1..trace.operations.len() {
            trace.operations[at].waits_for = vec![at as u32 - 1];
        }
        let key = |s: &Span| (StepKey::from_span(s), s.rank, s.lane, s.start_ns);
        trace.spans.sort_by_key(key);
        trace
    }

    fn op(rank: u32, operation: u32, from: i64, to: i64) -> Span {
        let lane = if operation == 1 { Lane::Comm } else { Lane::Compute };
        Span { operation, ..span(rank, lane, from, to) }
    }

    /// (rank, operation, why, from, to) of each step.
    fn described(trace: &Trace) -> Vec<(u32, u32, PathReason, i64, i64)> {
        critical_path(trace, 0, Phase::Decode, 0)
            .iter()
            .map(|s| {
                let span = &trace.spans[s.span];
                (span.rank, span.operation, s.why, s.from_ns, s.to_ns)
            })
            .collect()
    }

    #[test]
    fn a_chain_is_its_own_path_and_gaps_lie_between() {
        let trace = chained(vec![op(0, 0, 100, 200), op(0, 1, 210, 300), op(0, 2, 300, 450)]);
        assert_eq!(
            described(&trace),
            [
                (0, 0, PathReason::Result, 100, 200),
                (0, 1, PathReason::Result, 210, 300),
                (0, 2, PathReason::Last, 300, 450)
            ]
        );
        let summary = trace_report(&trace, &Selection::default()).critical_path.unwrap();
        assert_eq!((summary.steps, summary.length_us), (1, 0.35));
        assert_eq!((summary.compute_us, summary.transfer_us, summary.gap_us), (0.25, 0.09, 0.01));
        assert_eq!(summary.parts[0].kind, "attend", "the longest part comes first");
    }

    #[test]
    fn the_hosts_time_before_a_simulated_step_is_a_gap_of_its_path() {
        let at = |step, span: Span| Span { step, ..span };
        let mut trace = chained(vec![
            at(4, op(0, 0, 100, 200)),
            at(4, op(0, 1, 200, 300)),
            at(5, op(0, 0, 350, 450)),
            at(5, op(0, 1, 450, 500)),
        ]);
        let of = |trace: &Trace| {
            let step = Selection { step: Some(5), ..Selection::default() };
            let found = trace_report(trace, &step).critical_path.unwrap();
            let path = critical_path(trace, 0, Phase::Decode, 5);
            assert_eq!(path_summary(trace, &path).unwrap(), found);
            (found.length_us, found.gap_us)
        };
        assert_eq!(of(&trace), (0.2, 0.05));
        trace.meta.provenance = table::Provenance::Measured;
        assert_eq!(of(&trace), (0.15, 0.0));
    }

    #[test]
    fn at_a_collective_the_path_goes_on_where_the_last_rank_came_from() {
        let trace = chained(vec![
            op(0, 0, 0, 100),
            op(0, 1, 100, 600),
            op(0, 2, 600, 900),
            op(1, 0, 0, 400),
            op(1, 1, 400, 600),
            op(1, 2, 600, 700),
        ]);
        assert_eq!(
            described(&trace),
            [
                (1, 0, PathReason::Result, 0, 400),
                (1, 1, PathReason::Peer, 400, 400),
                (0, 1, PathReason::Result, 400, 600),
                (0, 2, PathReason::Last, 600, 900)
            ]
        );
        let summary = trace_report(&trace, &Selection::default()).critical_path.unwrap();
        assert_eq!((summary.compute_us, summary.transfer_us, summary.rank_changes), (0.7, 0.2, 1.0));
        let reduce = summary.parts.iter().find(|p| p.kind == "all_reduce").unwrap();
        assert_eq!(reduce.count, 1.0, "both ranks' spans are one collective");
    }

    #[test]
    fn a_peer_that_the_trace_does_not_show_is_waited_for() {
        let mut collective = op(0, 1, 100, 600);
        collective.last_arrival_ns = 450;
        let trace = chained(vec![op(0, 0, 0, 100), collective]);
        let summary = trace_report(&trace, &Selection::default()).critical_path.unwrap();
        assert_eq!((summary.compute_us, summary.peer_us, summary.transfer_us), (0.1, 0.35, 0.15));
    }

    #[test]
    fn a_hidden_collective_is_not_on_the_path_but_a_busy_lane_is() {
        // 2 does not wait for the collective, but for its lane; 3 waits for 1, which was done long before.
        let mut trace =
            chained(vec![op(0, 0, 0, 100), op(0, 1, 100, 200), op(0, 2, 100, 400), op(0, 3, 400, 500)]);
        trace.operations[2].waits_for = vec![];
        trace.operations[3].waits_for = vec![1];
        assert_eq!(
            described(&trace),
            [
                (0, 0, PathReason::Lane, 0, 100),
                (0, 2, PathReason::Lane, 100, 400),
                (0, 3, PathReason::Last, 400, 500)
            ]
        );
    }

    #[test]
    fn without_dependencies_or_without_the_step_there_is_no_path() {
        let imported = trace(vec![op(0, 0, 0, 100)]);
        assert!(critical_path(&imported, 0, Phase::Decode, 0).is_empty());
        assert_eq!(trace_report(&imported, &Selection::default()).critical_path, None);
        assert!(critical_path(&chained(vec![op(0, 0, 0, 9)]), 0, Phase::Decode, 7).is_empty());
    }

    mod laws {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            /// However odd the clocks: a path ends, has no span twice, and its parts add up.
            #[test]
            fn parts_add_up_to_the_length(
                spans in prop::collection::vec((0u32..3, 0u32..5, 0i64..900, -50i64..300), 1..40),
                waits in prop::collection::vec(prop::collection::vec(0u32..6, 0..3), 5),
            ) {
                let spans = spans.into_iter().map(|(rank, operation, start, length)| {
                    let mut span = op(rank, operation, start, start + length);
                    if span.lane == Lane::Comm { span.last_arrival_ns = start + length / 2 }
                    span
                });
                let mut trace = chained(spans.collect());
                for (operation, waits) in trace.operations.iter_mut().zip(waits) {
                    operation.waits_for = waits;
                }
                trace.operations[0].waits_for.push(4);
                let path = critical_path(&trace, 0, Phase::Decode, 0);
                prop_assert!(!path.is_empty());
                let mut seen: Vec<usize> = path.iter().map(|s| s.span).collect();
                seen.sort_unstable();
                seen.dedup();
                prop_assert_eq!(seen.len(), path.len());
                prop_assert!(path.iter().all(|s| s.from_ns <= s.to_ns && s.peer_ns <= s.to_ns - s.from_ns));
                prop_assert!(path.windows(2).all(|w| w[0].to_ns <= w[1].from_ns));
                let sum = trace_report(&trace, &Selection::default()).critical_path.unwrap();
                let parts = sum.compute_us + sum.transfer_us + sum.peer_us + sum.gap_us;
                prop_assert!((parts - sum.length_us).abs() < 1e-6, "{:?}", sum);
            }
        }
    }
}
