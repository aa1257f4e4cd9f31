//! What a rank waited for while none of its lanes was busy.
//!
//! Every gap between two busy stretches of a rank is split by what begins after it. Let *r* be when
//! that was ready (an imported span: launched by its host; own spans: all that it waits for was
//! there), within the gap:
//!
//! 1. from the gap's start to *r*: **host** - the device had nothing to do, because nothing was given
//!    to it. In own traces only where the gap does not follow a collective: their spans wait for results
//!    of spans, so that what follows a collective and is not ready waits for that collective's result.
//!    In imported ones only where the launch is recorded: else the gap lies between kernels. Where what begins
//!    is the replay of a CUDA graph, the host's part lies **between graphs**;
//! 2. of the rest, where what begins is a collective, or a collective ended where the gap starts:
//!    **communication** - setting a collective going, or handing its result on (comm busy while compute
//!    is not is exposed communication, never idle time);
//! 3. else **between kernels** - all was there, and the device had not begun yet; or nobody recorded
//!    when it was.
//!
//! Where several spans begin at once, the first that was ready counts, and any collective makes it
//! communication. A gap between the timed generations of a run is none of these: **outside**, whatever
//! lay there. The four parts add up to the idle time exactly.

use rayon::prelude::*;
use serde::Serialize;

use trace::overlap::intervals::{Interval, seek};
use trace::overlap::{Class, Lanes, Replays, Runs, us};

/// Idle time of one rank, by what it waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct IdleSplit {
    /// The rank whose lanes were idle, from 0.
    pub rank: u32,
    /// Nothing had been given to the device (us); of an imported trace as far as launches are recorded.
    pub host_us: f64,
    /// The part of [`Self::host_us`] after which the replay of a CUDA graph began (us).
    pub between_graphs_us: f64,
    /// Around collectives, none of them running (us).
    pub communication_us: f64,
    /// All was there, and nothing had begun, or no launch is recorded (us).
    pub between_us: f64,
    /// Gaps between the timed generations of a run, whatever was waited for (us).
    pub outside_us: f64,
    /// All idle time of the rank, the sum of the four parts (us).
    pub idle_us: f64,
    /// [`Self::host_us`] as it was summed, in whole nanoseconds.
    pub host_ns: i64,
    /// [`Self::between_graphs_us`] as it was summed, in whole nanoseconds.
    pub between_graphs_ns: i64,
    /// [`Self::communication_us`] as it was summed, in whole nanoseconds.
    pub communication_ns: i64,
    /// [`Self::between_us`] as it was summed, in whole nanoseconds.
    pub between_ns: i64,
    /// [`Self::outside_us`] as it was summed, in whole nanoseconds.
    pub outside_ns: i64,
    /// The sum of the four parts, in whole nanoseconds.
    pub idle_ns: i64,
    /// How many gaps there were.
    pub gaps: u64,
    /// The longest of them that lies within a generation (ns).
    pub longest_ns: i64,
    /// When the longest began (ns since the trace's first start).
    pub longest_at_ns: i64,
}

/// What is known of a gap.
#[derive(Clone, Copy)]
struct Edge {
    /// When the first of what begins after it was ready; the least time where no launch of it is recorded.
    ready: i64,
    /// The timed generation that goes on after it.
    sample: u32,
    /// A collective begins after it.
    to_comm: bool,
    /// A collective ended where it begins.
    from_comm: bool,
}

/// The idle time of every rank.
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

/// The edges of a rank's gaps. Spans come mostly in order, so that finding their gaps is mostly a look
/// at the next one.
fn edges(runs: &Runs, rank: usize, gaps: &[Interval], sample: u32) -> Vec<Edge> {
    let own = runs.trace.meta.import.is_none();
    let unknown = Edge { ready: i64::MAX, sample, to_comm: false, from_comm: false };
    let mut edges = vec![unknown; gaps.len()];
    let (mut begins, mut ends) = (0, 0);
    runs.each(&runs.by_rank[rank], |span, (start, end)| {
        let comm = runs.class(span) == Class::Comm;
        begins = seek(gaps, begins, |gap| gap.1 < start);
        if gaps.get(begins).is_some_and(|gap| gap.1 == start) {
            let edge = &mut edges[begins];
            let is_known = own || span.is_launch_known();
            edge.ready = edge.ready.min(if is_known { span.ready_ns } else { i64::MIN });
            edge.sample = span.sample;
            edge.to_comm |= comm;
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
