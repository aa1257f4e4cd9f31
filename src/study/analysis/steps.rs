//! Overlap per step.

use rayon::prelude::*;
use serde::Serialize;

use super::clocks::{Clocks, clocks};
use super::ranges::{around, outer};
use plan::Phase;
use table::overlap_pct;
use table::render::{Shown, Table};
use trace::import::{StepName, StepWork, step_name};
use trace::overlap::{Lanes, Nanoseconds, Run, Runs, Selection, StepKey, us};
use trace::{NO_STEP, Trace};

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
    /// First start on any rank (ns since the trace's first start).
    pub start_ns: i64,
    /// Last end on any rank (ns since the trace's first start).
    pub end_ns: i64,
    /// Time between a rank's first start and its last end (us, averaged over ranks).
    pub duration_us: f64,
    /// Busy time of the comm lane (us, averaged over ranks).
    pub comm_us: f64,
    /// Exposed communication: comm busy, compute idle (us, averaged over ranks).
    pub exposed_us: f64,
    /// Busy time of the compute lane (us, averaged over ranks).
    pub compute_us: f64,
    /// Time with no lane busy between the rank's first start and last end (us, averaged over ranks).
    pub idle_us: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
}

/// Steps of a trace, in order of sample and time. Averages cover the ranks that took part in the step.
pub fn steps(trace: &Trace) -> Vec<StepSummary> {
    of_runs(&Runs::new(trace, &Selection::default()), &clocks(trace))
}

/// Steps with selected spans, on one clock for all ranks.
pub(super) fn of_runs(runs: &Runs, clocks: &Clocks) -> Vec<StepSummary> {
    let names = StepNames::of(runs.trace);
    let steps = runs.by_step().into_par_iter().filter(|(key, _)| key.step != NO_STEP);
    let mut steps: Vec<StepSummary> = steps
        .filter_map(|(key, of_step)| summary(runs, clocks, key, &of_step, names.as_ref()))
        .collect();
    // a serving engine's prefills come between its decode steps
    steps.sort_by_key(|step| (step.sample, step.start_ns));
    steps
}

pub fn steps_table(steps: &[StepSummary]) -> Table {
    Table::of(
        steps,
        &[
            ("sample", &|s| s.sample.into()),
            ("phase", &|s| Shown::text(s.phase)),
            ("step", &|s| s.step.into()),
            ("batch", &|s| s.batch.map_or(Shown::None, Shown::from)),
            ("start_us", &|s| Shown::instant(s.start_ns as f64 / 1e3)),
            ("duration_us", &|s| Shown::Time(s.duration_us)),
            ("compute_us", &|s| Shown::Time(s.compute_us)),
            ("comm_us", &|s| Shown::Time(s.comm_us)),
            ("exposed_us", &|s| Shown::Time(s.exposed_us)),
            ("overlap_pct|overlap %", &|s| Shown::number(s.overlap_pct, 1)),
            ("idle_us", &|s| Shown::Time(s.idle_us)),
        ],
    )
    .least(&["idle_us", "overlap_pct", "comm_us", "phase", "batch", "start_us", "sample"])
}

struct StepNames {
    /// Parsed name of each range name; `None` if it does not name a step.
    names: Vec<Option<StepName>>,
    outer: Vec<u32>,
}

impl StepNames {
    fn of(trace: &Trace) -> Option<Self> {
        let names: Vec<_> = trace.meta.range_names.iter().map(|name| step_name(name)).collect();
        names.iter().any(Option::is_some).then(|| Self { names, outer: outer(&trace.ranges) })
    }

    /// Name and batch of a step, from the ranges around the launches of its first spans.
    fn find(&self, trace: &Trace, step: u32, of_step: &[&Run]) -> (Option<String>, Option<u32>) {
        /// Number of spans to check: the first may be launched by a thread without steps.
        const SPANS: usize = 256;
        let spans = of_step.iter().flat_map(|run| &trace.spans[run.at.clone()]).take(SPANS);
        for span in spans {
            let found: Vec<(u32, &StepName)> = around(&self.outer, span.launched.range)
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
    runs: &Runs,
    clocks: &Clocks,
    key: StepKey,
    of_step: &[&Run],
    names: Option<&StepNames>,
) -> Option<StepSummary> {
    let (mut sum, mut ranks) = (Nanoseconds::default(), 0u32);
    let (mut start, mut end) = (i64::MAX, i64::MIN);
    for of_rank in of_step.chunk_by(|a, b| a.rank == b.rank) {
        let lanes = Lanes::build(runs, of_rank.iter().copied()).finish();
        let Some(extent) = lanes.extent else { continue };
        let offset = clocks.offset(runs.ranks[of_rank[0].rank]);
        start = start.min(extent.0.saturating_add(offset));
        end = end.max(extent.1.saturating_add(offset));
        sum = sum + lanes.sums();
        ranks += 1;
    }
    let average = |ns: i64| us(ns) / f64::from(ranks);
    let (name, batch) = names.map_or((None, None), |names| names.find(runs.trace, key.step, of_step));
    let work = name.as_deref().and_then(step_name).and_then(|name| name.work);
    (ranks > 0).then(|| StepSummary {
        sample: key.sample,
        phase: match (&runs.trace.meta.import, key.phase) {
            (Some(_), Phase::Decode) if work.is_none() => "step",
            (_, phase) => work.map_or(phase.as_str(), StepWork::as_str),
        },
        step: key.step,
        key,
        name,
        batch,
        ranks,
        start_ns: start.saturating_sub(runs.origin),
        end_ns: end.saturating_sub(runs.origin),
        duration_us: average(sum.span_ns),
        comm_us: average(sum.comm_ns),
        exposed_us: average(sum.exposed_comm_ns),
        compute_us: average(sum.compute_ns),
        idle_us: average(sum.idle_ns),
        overlap_pct: overlap_pct(sum.exposed_comm_ns as f64, sum.comm_ns as f64),
    })
}
