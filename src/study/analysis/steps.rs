//! Overlap per step.
//!
//! A step lasts until the next one begins ([`StepTime`]): the gap after its last kernel and kernels outside of steps
//! are part of its latency. A simulated step begins at the end of the one before, with the host's time before its first
//! operation. `diff` compares these times, and `rewire` measures its steps in the same way.

use std::collections::{BTreeSet, HashMap};

use rayon::prelude::*;
use serde::Serialize;

use super::clocks::{Clocks, clocks};
use super::outer_ranges::OuterRanges;
use plan::Phase;
use table::overlap_pct;
use table::render::{Shown, Table};
use trace::import::{StepName, StepWork, step_name};
use trace::overlap::intervals::{Coverage, TimeInterval, UnionBuilder, difference};
use trace::overlap::{Lanes, RankOverlap, Selection, SpanRun, SpanRuns, StepKey, us};
use trace::{NO_STEP, Trace};

/// [`StepSummary::phase`] of steps whose names do not say what they do.
pub const UNKNOWN_WORK: &str = "step";

/// Prefill or decode step of one sample.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct StepSummary {
    /// Timed generation of the run, from 0.
    pub sample: u32,
    /// `prefill` or `decode`; in imported traces also `mixed` (prefills and decodes of a serving engine), and `step` if
    /// the step's name does not say.
    pub phase: &'static str,
    /// Decode step from 0; 0 in prefill. In imported traces: the step's number in the profile, or its index among the
    /// unnumbered iterations of a serving engine. Work outside of steps has no row.
    pub step: u32,
    #[serde(skip)]
    pub key: StepKey,
    /// Name of the step's range in an imported trace.
    pub name: Option<String>,
    /// Requests in the step, if its name contains the number.
    pub batch: Option<u32>,
    pub ranks: u32,
    /// First start on any rank; in simulations, the end of the step before (ns since the trace's first start).
    pub start_ns: i64,
    /// Last end on any rank (ns since the trace's first start).
    pub end_ns: i64,
    /// Latency of the step, until the next one begins ([`StepTime::step_us`]).
    pub duration_us: f64,
    /// Busy time of the comm lane (us, averaged over ranks).
    pub comm_us: f64,
    /// Exposed communication: comm busy, compute idle (us, averaged over ranks).
    pub exposed_us: f64,
    /// Busy time of the compute lane (us, averaged over ranks).
    pub compute_us: f64,
    /// Time with no lane busy in `duration_us`, with the gap before the next step (us, averaged over ranks).
    #[serde(rename = "idle_us")]
    pub idle_and_gap_us: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
    /// Parts of the latency.
    pub time: StepTime,
}

/// Latency of a step until the rank's next step begins, averaged over ranks (us). It begins with the rank's first start, or
/// in simulations at the end of the step before. All work that runs in this time counts; compute, exposed communication,
/// other work, idle time and the gap add up to the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct StepTime {
    pub step_us: f64,
    /// False for the last step of a generation and before a step that was not recorded: the time ends with the step's
    /// last kernel.
    pub until_next: bool,
    pub comm_us: f64,
    pub compute_us: f64,
    pub exposed_us: f64,
    /// Copies, fills and other work without compute or communication.
    pub other_us: f64,
    /// Idle time before the last end.
    pub idle_us: f64,
    /// Idle time after the last end.
    pub gap_us: f64,
    /// Time of work that was launched outside of steps, which the other parts contain.
    pub outside_us: f64,
}

/// Times of the steps on each rank (ns of the rank's clock, in order).
pub fn step_windows(trace: &Trace) -> HashMap<u32, Vec<(TimeInterval, StepKey)>> {
    let runs = SpanRuns::new(trace, &Selection::default());
    let mut windows: HashMap<u32, Vec<(TimeInterval, StepKey)>> = HashMap::new();
    for (key, of_step) in numbered(&runs) {
        for of_rank in of_step.chunk_by(|a, b| a.rank == b.rank) {
            let Some(window) = runs.window(of_rank[0]) else { continue };
            windows.entry(runs.ranks[of_rank[0].rank]).or_default().push((window.time, key));
        }
    }
    windows.values_mut().for_each(|of_rank| of_rank.sort_unstable());
    windows
}

/// Steps of a trace in order of time, each from its first start to its last end over all ranks (ns), as the timeline draws
/// them: without the gap to the next step, which [`step_windows`] include.
pub fn step_extents(trace: &Trace) -> Vec<(TimeInterval, StepKey)> {
    let runs = SpanRuns::new(trace, &Selection::default());
    let mut extents: Vec<(TimeInterval, StepKey)> = numbered(&runs)
        .par_iter()
        .filter_map(|(key, of_step)| {
            let spans = of_step.iter().flat_map(|run| &trace.spans[run.at.clone()]);
            let times = spans.map(|span| (span.start_ns, span.end_ns));
            Some((times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?, *key))
        })
        .collect();
    extents.sort_unstable_by_key(|((from, _), key)| (*from, *key));
    extents
}

/// Index of the typical one of successive steps with these lengths: the one nearest to the median length; of several, the
/// one nearest to the middle.
pub fn typical_step(lengths: &[i64]) -> Option<usize> {
    let mut ascending = lengths.to_vec();
    ascending.sort_unstable();
    let middle = lengths.len() / 2;
    let median = *ascending.get(middle)?;
    (0..lengths.len()).min_by_key(|at| (lengths[*at].abs_diff(median), at.abs_diff(middle)))
}

fn numbered<'r>(runs: &'r SpanRuns) -> Vec<(StepKey, Vec<&'r SpanRun>)> {
    runs.by_step().into_iter().filter(|(key, _)| key.step != NO_STEP).collect()
}

/// Steps of a trace, in order of sample and time. Averages cover the ranks that took part in the step.
pub fn steps(trace: &Trace) -> Vec<StepSummary> {
    let runs = SpanRuns::new(trace, &Selection::default());
    of_runs(&runs, &Lanes::from_runs(&runs), &clocks(trace))
}

/// Steps with selected spans, on one clock for all ranks. Their times do not depend on the selected phase and steps, only
/// on the time window.
pub(super) fn of_runs(runs: &SpanRuns, lanes: &[Lanes], clocks: &Clocks) -> Vec<StepSummary> {
    let names = StepNames::from_trace(runs.trace);
    let work = RankWork::new(runs, lanes);
    let mut steps: Vec<StepSummary> = numbered(runs)
        .par_iter()
        .filter_map(|(key, of_step)| summary(runs, clocks, (*key, of_step), names.as_ref(), &work))
        .collect();
    // a serving engine's prefills come between its decode steps
    steps.sort_by_key(|step| (step.sample, step.start_ns));
    steps
}

/// Steps of an imported trace whose names say that they process prompts and decode in one batch.
pub fn mixed_steps(trace: &Trace) -> BTreeSet<StepKey> {
    let is_mixed = |name: &StepName| name.work == Some(StepWork::Mixed);
    let names = StepNames::from_trace(trace).filter(|names| names.names.iter().flatten().any(is_mixed));
    let Some(names) = names else { return BTreeSet::new() };
    let runs = SpanRuns::new(trace, &Selection::default());
    let of_step = |(key, of_step): (StepKey, Vec<&SpanRun>)| {
        let (name, _) = names.find(trace, key.step, &of_step);
        name.as_deref().and_then(step_name).filter(is_mixed).map(|_| key)
    };
    numbered(&runs).into_iter().filter_map(of_step).collect()
}

pub fn steps_table(steps: &[StepSummary]) -> Table {
    Table::from_rows(
        steps,
        &[
            ("sample", &|s| s.sample.into()),
            ("phase", &|s| Shown::text(s.phase)),
            ("step", &|s| s.step.into()),
            ("batch", &|s| s.batch.into()),
            ("start_us", &|s| Shown::instant(s.start_ns as f64 / 1e3)),
            ("duration_us", &|s| Shown::Time(s.duration_us)),
            ("gap_us|gap to next", &|s| Shown::time(s.time.until_next.then_some(s.time.gap_us))),
            ("compute_us", &|s| Shown::Time(s.compute_us)),
            ("comm_us", &|s| Shown::Time(s.comm_us)),
            ("exposed_us", &|s| Shown::Time(s.exposed_us)),
            ("overlap_pct|overlap %", &|s| Shown::number(s.overlap_pct, 1)),
            ("idle_us", &|s| Shown::Time(s.idle_and_gap_us)),
        ],
    )
    .least(&["idle_us", "gap_us", "overlap_pct", "comm_us", "phase", "batch", "start_us", "sample"])
}

struct StepNames<'a> {
    /// Parsed name of each range name; `None` if it does not name a step.
    names: Vec<Option<StepName>>,
    outer: OuterRanges<'a>,
}

impl<'a> StepNames<'a> {
    fn from_trace(trace: &'a Trace) -> Option<Self> {
        let names: Vec<_> = trace.meta.range_names.iter().map(|name| step_name(name)).collect();
        names.iter().any(Option::is_some).then(|| Self { names, outer: OuterRanges::from_trace(trace) })
    }

    /// Name and batch of a step, from the ranges around the launches of its first spans.
    fn find(&self, trace: &Trace, step: u32, of_step: &[&SpanRun]) -> (Option<String>, Option<u32>) {
        /// Number of spans to check: the first may be launched by a thread without steps.
        const SPANS: usize = 256;
        let spans = of_step.iter().flat_map(|run| &trace.spans[run.at.clone()]).take(SPANS);
        for span in spans {
            let found: Vec<(u32, &StepName)> = (self.outer)
                .around(span.launched.range)
                .filter_map(|at| {
                    let name = trace.ranges[at].name;
                    Some((name, self.names.get(name as usize)?.as_ref()?))
                })
                .collect();
            let numbered = found.iter().find(|(_, name)| name.number == Some(step));
            let Some((name, _)) = numbered.or(found.iter().find(|(_, name)| name.number.is_none()))
            else {
                continue;
            };
            let batch = found.iter().find_map(|(_, name)| name.batch);
            return (trace.meta.range_names.get(*name as usize).cloned(), batch);
        }
        (None, None)
    }
}

fn summary(
    runs: &SpanRuns,
    clocks: &Clocks,
    (key, of_step): (StepKey, &[&SpanRun]),
    names: Option<&StepNames<'_>>,
    work: &[RankWork],
) -> Option<StepSummary> {
    let mut ranks = 0u32;
    let (mut time, mut until_next) = (StepTime::default(), true);
    let (mut start, mut end) = (i64::MAX, i64::MIN);
    for of_rank in of_step.chunk_by(|a, b| a.rank == b.rank) {
        let mut last: Option<i64> = None;
        runs.each(of_rank.iter().copied(), |_, (_, end)| last = last.max(Some(end)));
        let (Some(window), Some(last)) = (runs.window(of_rank[0]), last) else { continue };
        let rank = of_rank[0].rank;
        let offset = clocks.offset(runs.ranks[rank]);
        time = time.plus(work[rank].within(window.time));
        until_next &= window.until_next;
        start = start.min(window.time.0.saturating_add(offset));
        end = end.max(last.saturating_add(offset));
        ranks += 1;
    }
    let time = StepTime { until_next, ..time.over(f64::from(ranks)) };
    let (name, batch) = names.map_or((None, None), |names| names.find(runs.trace, key.step, of_step));
    let work = name.as_deref().and_then(step_name).and_then(|name| name.work);
    (ranks > 0).then(|| StepSummary {
        sample: key.sample,
        phase: match (&runs.trace.meta.import, key.phase) {
            (Some(_), Phase::Decode) if work.is_none() => UNKNOWN_WORK,
            (_, phase) => work.map_or(phase.as_str(), StepWork::as_str),
        },
        step: key.step,
        key,
        name,
        batch,
        ranks,
        start_ns: start.saturating_sub(runs.origin),
        end_ns: end.saturating_sub(runs.origin),
        duration_us: time.step_us,
        comm_us: time.comm_us,
        exposed_us: time.exposed_us,
        compute_us: time.compute_us,
        idle_and_gap_us: time.idle_and_gap_us(),
        overlap_pct: overlap_pct(time.exposed_us, time.comm_us),
        time,
    })
}

/// Work of a rank by lane, for lookups.
struct RankWork {
    comm: Coverage,
    compute: Coverage,
    exposed: Coverage,
    busy: Coverage,
    /// Work outside of steps.
    outside: Coverage,
}

impl RankWork {
    fn new(runs: &SpanRuns, lanes: &[Lanes]) -> Vec<Self> {
        let of_rank = |(lanes, of_rank): (&Lanes, &Vec<SpanRun>)| {
            let mut outside = UnionBuilder::default();
            let without_step = of_rank.iter().filter(|run| run.step.step == NO_STEP);
            runs.each(without_step, |_, interval| outside.add(interval));
            Self {
                comm: Coverage::new(lanes.comm.clone()),
                compute: lanes.compute.clone(),
                exposed: Coverage::new(difference(&lanes.comm, lanes.compute.union())),
                busy: Coverage::new(lanes.busy()),
                outside: Coverage::new(outside.finish()),
            }
        };
        lanes.par_iter().zip(&runs.by_rank).map(of_rank).collect()
    }

    fn within(&self, window: TimeInterval) -> StepTime {
        let (from, until) = window;
        let before = self.busy.union().partition_point(|(start, _)| *start < until);
        let last = before.checked_sub(1).map_or(from, |at| self.busy.union()[at].1.clamp(from, until));
        let works = [&self.comm, &self.compute, &self.exposed, &self.busy, &self.outside];
        let [comm, compute, exposed, busy, outside] = works.map(|work| work.within(window));
        StepTime {
            step_us: us(until - from),
            until_next: true,
            comm_us: us(comm),
            compute_us: us(compute),
            exposed_us: us(exposed),
            other_us: us(busy - compute - exposed),
            idle_us: us(last - from - busy),
            gap_us: us(until - last),
            outside_us: us(outside),
        }
    }
}

impl StepTime {
    fn each(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            step_us: of(self.step_us, other.step_us),
            until_next: self.until_next,
            comm_us: of(self.comm_us, other.comm_us),
            compute_us: of(self.compute_us, other.compute_us),
            exposed_us: of(self.exposed_us, other.exposed_us),
            other_us: of(self.other_us, other.other_us),
            outside_us: of(self.outside_us, other.outside_us),
            idle_us: of(self.idle_us, other.idle_us),
            gap_us: of(self.gap_us, other.gap_us),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    fn over(self, count: f64) -> Self {
        self.each(self, |a, _| a / count)
    }

    pub fn idle_and_gap_us(&self) -> f64 {
        self.idle_us + self.gap_us
    }

    /// Time of a trace without steps, from its overlap over `ranks` ranks.
    pub fn of_whole(all: &RankOverlap, ranks: f64) -> Self {
        Self {
            step_us: all.span_us,
            comm_us: all.comm_us,
            compute_us: all.compute_us,
            exposed_us: all.exposed_comm_us,
            other_us: all.busy_us - all.compute_us - all.exposed_comm_us,
            idle_us: all.idle_us,
            ..Self::default()
        }
        .over(ranks)
    }
}
