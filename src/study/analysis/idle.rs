//! Causes of idle time: what a rank waited for while none of its lanes was busy.
//!
//! Every gap between two busy stretches of a rank is split by the span that begins after it. Let *r* be
//! the time within the gap when that span could start (imported spans: its launch, and the latency of a launch
//! without other holdups, see [`Launches`]; own spans: all dependencies done):
//!
//! 1. from the gap's start to *r*: **host** - the device had no work. In own traces this only counts if the gap does
//!    not follow a collective: a span that is not ready after a collective waits for its result. A receive from
//!    another pipeline stage, which has no length, ends such a wait as well. In imported traces it
//!    needs a recorded launch; otherwise the gap is between kernels. If the next span is the replay of a CUDA graph,
//!    the host's part is **between graphs**;
//! 2. the rest, if the next span is a collective or a collective ended at the gap's start: **communication** - starting
//!    a collective or handing over its result (comm busy while compute is idle is exposed communication, never idle
//!    time);
//! 3. otherwise **between kernels** - the span could start but had not, or its launch is not recorded.
//!
//! If several spans begin at once, the first that was ready counts, and any collective makes the gap
//! communication. A gap between timed generations of a run is **outside**, whatever its cause. The four
//! parts add up to the idle time exactly.

use rayon::prelude::*;
use serde::Serialize;

use trace::Trace;
use trace::overlap::intervals::{Coverage, TimeInterval, difference, pieces, seek, union};
use trace::overlap::{Class, Lanes, Launches, Selection, SpanRuns, us};

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct IdleSplit {
    pub rank: u32,
    /// The device had no work (us); in imported traces only as far as launches are recorded.
    pub host_us: f64,
    /// Part of [`Self::host_us`] before the replay of a CUDA graph (us).
    pub between_graphs_us: f64,
    /// Gaps next to collectives, none of them running (us).
    pub communication_us: f64,
    /// The next span could start but had not, or no launch is recorded (us).
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
    /// Earliest possible start of the spans that begin after the gap; `i64::MIN` if a launch is not recorded.
    ready: i64,
    /// True if that span is the replay of a CUDA graph.
    is_replay: bool,
    sample: u32,
    to_comm: bool,
    from_comm: bool,
}

/// Idle time of each rank in the selected part of a trace, from the runs and lanes of the whole: the cause of a gap at the
/// end of the selection is behind it.
pub(super) fn idle(runs: &SpanRuns, all: &SpanRuns, lanes: &[Lanes]) -> Vec<IdleSplit> {
    let of_rank = |rank: usize| {
        let (mut near, mut selected) = (0, Vec::new());
        for gap in gaps(all, rank, &lanes[rank]) {
            let cut = |interval: TimeInterval| Gap {
                interval,
                given: gap.given.clamp(interval.0, interval.1),
                ..gap
            };
            selected.extend(pieces(runs.parts(rank), gap.interval, &mut near).map(cut));
        }
        IdleSplit::new(runs.ranks[rank], runs.origin, &selected)
    };
    (0..runs.ranks.len()).into_par_iter().map(of_rank).collect()
}

/// Times of ranks within a window (ns), averaged over the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WindowTimes {
    pub exposed: f64,
    /// Part of `exposed` without the collectives of the layers.
    pub exposed_others: f64,
    /// Waiting for the host.
    pub host: f64,
    /// Part of `host` before replays of CUDA graphs.
    pub between_graphs: f64,
    /// Busy time of the compute lane, of the rank with the most.
    pub compute: f64,
}

/// Rank whose times in windows are wanted.
pub(crate) struct WindowRank {
    pub rank: u32,
    /// Clock correction to add to the rank's times (ns).
    pub offset: i64,
    /// Spans of the layers' collectives (ns of the common clock).
    pub collectives: Vec<TimeInterval>,
}

/// Exposed communication and waiting for the host, as `overlap` counts them, of these ranks in windows of a common clock.
pub(crate) fn window_times(
    trace: &Trace,
    ranks: &[WindowRank],
    windows: &[TimeInterval],
) -> Vec<WindowTimes> {
    let runs = SpanRuns::new(trace, &Selection::default());
    let lanes = Lanes::from_runs(&runs);
    let of_rank = |of: &WindowRank| {
        let rank = runs.ranks.iter().position(|rank| *rank == of.rank)?;
        let gaps = gaps(&runs, rank, &lanes[rank]);
        let waits = |wanted: fn(&Gap) -> bool| {
            let gaps = gaps.iter().filter(|gap| wanted(gap));
            Coverage::new(union(gaps.map(|gap| (gap.interval.0, gap.given))))
        };
        let own = |(start, end): &TimeInterval| (start - of.offset, end - of.offset);
        let exposed = difference(&lanes[rank].comm, lanes[rank].compute.union());
        let others = difference(&exposed, &union(of.collectives.iter().map(own)));
        let compute = Coverage::new(lanes[rank].compute.union().to_vec());
        let parts = [
            Coverage::new(exposed),
            Coverage::new(others),
            waits(|_| true),
            waits(|gap| gap.is_replay),
            compute,
        ];
        let within =
            |window: &TimeInterval| parts.each_ref().map(|part| part.within(own(window)) as f64);
        Some(windows.iter().map(within).collect::<Vec<_>>())
    };
    let by_rank: Vec<Vec<[f64; 5]>> = ranks.par_iter().filter_map(of_rank).collect();
    let mean = |at: usize, part: usize| {
        by_rank.iter().map(|windows| windows[at][part]).sum::<f64>() / by_rank.len().max(1) as f64
    };
    let times = |at: usize| WindowTimes {
        exposed: mean(at, 0),
        exposed_others: mean(at, 1),
        host: mean(at, 2),
        between_graphs: mean(at, 3),
        compute: by_rank.iter().map(|windows| windows[at][4]).fold(0.0, f64::max),
    };
    (0..windows.len()).map(times).collect()
}

/// Idle time between two busy stretches of a rank.
#[derive(Clone, Copy)]
struct Gap {
    interval: TimeInterval,
    /// End of the part in which the device had no work.
    given: i64,
    /// True if the next span is the replay of a CUDA graph.
    is_replay: bool,
    rest: Rest,
}

/// Cause of a gap after the part in which the device had no work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Communication,
    Between,
    /// The whole gap is between two timed generations.
    Outside,
}

/// Idle time of a rank (an index into [`SpanRuns::ranks`]) by gap, in order. `runs` and `lanes` are those of a whole trace.
fn gaps(runs: &SpanRuns, rank: usize, lanes: &Lanes) -> Vec<Gap> {
    let intervals: Vec<TimeInterval> = lanes.gaps();
    let own = runs.trace.meta.import.is_none();
    let mut sample = runs.by_rank[rank].first().map_or(0, |run| run.step.sample);
    let edges = edges(runs, rank, &intervals, sample);
    let gap = |(interval, edge): (TimeInterval, Edge)| {
        let is_replay = edge.is_replay;
        if std::mem::replace(&mut sample, edge.sample) != edge.sample {
            return Gap { interval, given: interval.0, is_replay, rest: Rest::Outside };
        }
        let given = match own && edge.from_comm {
            true => interval.0,
            false => edge.ready.clamp(interval.0, interval.1),
        };
        let is_known = edge.ready > i64::MIN;
        let rest = match is_known && (edge.to_comm || edge.from_comm) {
            true => Rest::Communication,
            false => Rest::Between,
        };
        Gap { interval, given, is_replay, rest }
    };
    intervals.into_iter().zip(edges).map(gap).collect()
}

impl IdleSplit {
    fn new(rank: u32, origin: i64, gaps: &[Gap]) -> Self {
        let mut split = Self { rank, gaps: gaps.len() as u64, ..Self::default() };
        for Gap { interval: (start, end), given, is_replay, rest } in gaps {
            split.host_ns += given - start;
            if *is_replay {
                split.between_graphs_ns += given - start;
            }
            *match rest {
                Rest::Communication => &mut split.communication_ns,
                Rest::Between => &mut split.between_ns,
                Rest::Outside => &mut split.outside_ns,
            } += end - given;
            if *rest != Rest::Outside && end - start > split.longest_ns {
                (split.longest_ns, split.longest_at_ns) = (end - start, start - origin);
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
}

/// Edges of a rank's gaps. Spans come mostly in order, so the search usually only checks the next gap.
fn edges(runs: &SpanRuns, rank: usize, gaps: &[TimeInterval], sample: u32) -> Vec<Edge> {
    let own = runs.trace.meta.import.is_none();
    let spans = runs.by_rank[rank].iter().flat_map(|run| &runs.trace.spans[run.at.clone()]);
    let launches = match own || gaps.is_empty() {
        true => Launches::default(),
        false => Launches::of_trace(runs.trace, spans),
    };
    let unknown = Edge { ready: i64::MAX, is_replay: false, sample, to_comm: false, from_comm: false };
    let mut edges = vec![unknown; gaps.len()];
    let (mut begins, mut ends) = (0, 0);
    runs.each(&runs.by_rank[rank], |span, (start, end)| {
        let comm = runs.class(span) == Class::Comm;
        begins = seek(gaps, begins, |gap| gap.1 < start);
        let is_known = own || span.is_launch_known();
        let is_receive = start == end && is_known && if own { runs.is_receive(span) } else { comm };
        let ends_in =
            |gap: &TimeInterval| gap.1 == start || is_receive && gap.0 <= start && start < gap.1;
        if gaps.get(begins).is_some_and(ends_in) {
            let edge = &mut edges[begins];
            let ready = if own { Some(span.ready_ns) } else { launches.release(span) };
            let ready = ready.unwrap_or(i64::MIN);
            if ready < edge.ready {
                (edge.ready, edge.is_replay) = (ready, launches.replays.has(span));
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
    use trace::Span;
    use trace::testing::{span, trace};

    #[test]
    fn window_times_are_those_of_the_overlap_of_the_same_window_on_each_clock() {
        const APART: i64 = 3_000_000;
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let of_rank = |rank: u32, late: i64| {
            let at = |lane, from: i64, to: i64| {
                let shift = i64::from(rank) * APART;
                span(rank, lane, from + shift, to + shift)
            };
            // launched 20 before its start
            let next = at(compute, 260 + late, 400);
            [
                at(compute, 0, 100),
                at(comm, 90, 200),
                Span { ready_ns: next.start_ns - 20, ..next },
                at(comm, 380, 450),
                at(compute, 450, 600),
            ]
        };
        let mut trace = trace([of_rank(0, 0), of_rank(1, 30)].concat());
        (trace.meta.spec, trace.meta.import) = (None, Some(Default::default()));
        let window = (50, 500);
        let ranks = [(0, 0), (1, -APART)].map(|(rank, offset)| WindowRank {
            rank,
            offset,
            collectives: vec![(90, 200)],
        });
        let found = window_times(&trace, &ranks, &[window])[0];
        let [mut exposed_us, mut host_us] = [0.0; 2];
        for (at, WindowRank { offset, .. }) in ranks.iter().enumerate() {
            let [from_ns, to_ns] = [window.0, window.1].map(|time| Some(time - offset));
            let selection = Selection { from_ns, to_ns, ..Selection::default() };
            let report = super::super::trace_report(&trace, &selection);
            exposed_us += report.overlap.ranks[at].exposed_comm_us / 2.0;
            host_us += report.idle[at].host_us / 2.0;
        }
        assert!((found.exposed / 1e3 - exposed_us).abs() < 1e-9, "{found:?}, not {exposed_us}");
        assert!((found.host / 1e3 - host_us).abs() < 1e-9, "{found:?}, not {host_us}");
        assert_eq!((found.exposed, found.exposed_others, found.host), (150.0, 50.0, 55.0));
    }
}
