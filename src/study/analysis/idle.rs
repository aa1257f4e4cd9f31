//! Causes of idle time: what a rank waited for while none of its lanes was busy.
//!
//! Every gap between two busy stretches of a rank is split by the span that begins after it. Let *r* be
//! the time within the gap when that span was ready (imported spans: launched by the host; own spans:
//! all dependencies done):
//!
//! 1. from the gap's start to *r*: **host** - the device had no work. In own traces this only counts if the gap does
//!    not follow a collective: a span that is not ready after a collective waits for its result. A receive from
//!    another pipeline stage, which has no length, ends such a wait as well. In imported traces it
//!    needs a recorded launch; otherwise the gap is between kernels. If the next span is the replay of a CUDA graph,
//!    the host's part is **between graphs**;
//! 2. the rest, if the next span is a collective or a collective ended at the gap's start: **communication** - starting
//!    a collective or handing over its result (comm busy while compute is idle is exposed communication, never idle
//!    time);
//! 3. otherwise **between kernels** - the span was ready but had not started, or nothing recorded when it was ready.
//!
//! If several spans begin at once, the first that was ready counts, and any collective makes the gap
//! communication. A gap between timed generations of a run is **outside**, whatever its cause. The four
//! parts add up to the idle time exactly.

use rayon::prelude::*;
use serde::Serialize;

use trace::overlap::intervals::{Interval, seek};
use trace::overlap::{Class, Lanes, Replays, Runs, us};

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct IdleSplit {
    pub rank: u32,
    /// The device had no work (us); in imported traces only as far as launches are recorded.
    pub host_us: f64,
    /// Part of [`Self::host_us`] before the replay of a CUDA graph (us).
    pub between_graphs_us: f64,
    /// Gaps next to collectives, none of them running (us).
    pub communication_us: f64,
    /// The next span was ready but had not started, or no launch is recorded (us).
    pub between_us: f64,
    /// Gaps between timed generations of a run, whatever their cause (us).
    pub outside_us: f64,
    /// Total idle time of the rank, the sum of the four parts (us).
    pub idle_us: f64,
    pub host_ns: i64,
    pub between_graphs_ns: i64,
    pub communication_ns: i64,
    pub between_ns: i64,
    pub outside_ns: i64,
    pub idle_ns: i64,
    pub gaps: u64,
    /// Longest gap within a generation (ns).
    pub longest_ns: i64,
    /// Start of the longest gap (ns since the trace's first start).
    pub longest_at_ns: i64,
}

/// Facts about a gap that determine its cause.
#[derive(Clone, Copy)]
struct Edge {
    /// Earliest ready time of the spans that begin after the gap; `i64::MIN` if a launch is not recorded.
    ready: i64,
    sample: u32,
    to_comm: bool,
    from_comm: bool,
}

pub(super) fn idle(runs: &Runs, lanes: &[Lanes]) -> Vec<IdleSplit> {
    (0..runs.ranks.len()).into_par_iter().map(|rank| of_rank(runs, rank, &lanes[rank])).collect()
}

fn of_rank(runs: &Runs, rank: usize, lanes: &Lanes) -> IdleSplit {
    let gaps: Vec<Interval> = lanes.gaps();
    let own = runs.trace.meta.import.is_none();
    let mut split =
        IdleSplit { rank: runs.ranks[rank], gaps: gaps.len() as u64, ..IdleSplit::default() };
    let mut sample = runs.by_rank[rank].first().map_or(0, |run| run.step.sample);
    let edges = edges(runs, rank, &gaps, sample);
    let late = |((start, _), edge): (&Interval, &Edge)| !own && *start < edge.ready;
    let replays = match gaps.iter().zip(&edges).any(late) {
        true => Replays::of(runs.by_rank[rank].iter().flat_map(|run| &runs.trace.spans[run.at.clone()])),
        false => Replays::default(),
    };
    for ((start, end), edge) in gaps.iter().zip(edges) {
        if std::mem::replace(&mut sample, edge.sample) != edge.sample {
            split.outside_ns += end - start;
            continue;
        }
        let ready = edge.ready.clamp(*start, *end);
        let given = if own && edge.from_comm { *start } else { ready };
        let rest = end - given;
        split.host_ns += given - start;
        if replays.has_launch(edge.ready) {
            split.between_graphs_ns += given - start;
        }
        let is_known = edge.ready > i64::MIN;
        if is_known && (edge.to_comm || edge.from_comm) {
            split.communication_ns += rest;
        } else {
            split.between_ns += rest;
        }
        if end - start > split.longest_ns {
            (split.longest_ns, split.longest_at_ns) = (end - start, start - runs.origin);
        }
    }
    split.idle_ns = split.host_ns + split.communication_ns + split.between_ns + split.outside_ns;
    split.host_us = us(split.host_ns);
    split.between_graphs_us = us(split.between_graphs_ns);
    split.communication_us = us(split.communication_ns);
    split.between_us = us(split.between_ns);
    split.outside_us = us(split.outside_ns);
    split.idle_us = us(split.idle_ns);
    split
}

/// Edges of a rank's gaps. Spans come mostly in order, so the search usually only checks the next gap.
fn edges(runs: &Runs, rank: usize, gaps: &[Interval], sample: u32) -> Vec<Edge> {
    let own = runs.trace.meta.import.is_none();
    let unknown = Edge { ready: i64::MAX, sample, to_comm: false, from_comm: false };
    let mut edges = vec![unknown; gaps.len()];
    let (mut begins, mut ends) = (0, 0);
    runs.each(&runs.by_rank[rank], |span, (start, end)| {
        let comm = runs.class(span) == Class::Comm;
        begins = seek(gaps, begins, |gap| gap.1 < start);
        let is_known = own || span.is_launch_known();
        let is_receive = start == end && is_known && if own { runs.is_receive(span) } else { comm };
        let ends_in = |gap: &Interval| gap.1 == start || is_receive && gap.0 <= start && start < gap.1;
        if gaps.get(begins).is_some_and(ends_in) {
            let edge = &mut edges[begins];
            edge.ready = edge.ready.min(if is_known { span.ready_ns } else { i64::MIN });
            edge.sample = span.sample;
            edge.to_comm |= comm;
            edge.from_comm |= own && is_receive;
        }
        if comm && start < end {
            ends = seek(gaps, ends, |gap| gap.0 < end);
            if gaps.get(ends).is_some_and(|gap| gap.0 == end) {
                edges[ends].from_comm = true;
            }
        }
    });
    edges
}
