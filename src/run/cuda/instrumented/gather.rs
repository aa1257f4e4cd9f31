//! Combines the timings of all ranks into one trace on rank 0.

use serde_json::{Value, json};

use super::{Context, RankTimes, StepTimes, Traced};
use crate::cuda::timing::collectives;
use crate::cuda::timing::{Tie, rank_tie};
use crate::cuda::{cupti, ranks};
use crate::measure::{self, Times};
use base::error::Result;
use base::statistics::median;
use plan::{Lane, Phase};
use table::{Environment, Instrumented, Link, Recorder};
use trace::{OperationInfo, Span};

/// Clock queries per rank.
const QUESTIONS: usize = 200;

/// Offsets to add to each rank's clock to get rank 0's, on rank 0.
pub(super) fn compare_clocks(context: &Context<'_>) -> Result<Vec<Tie>> {
    let same = Tie { at_ns: 0, uncertainty_ns: 0 };
    match context.peers {
        None => Ok(vec![same]),
        // threads share one clock
        Some(peers) if peers.in_one_process() => Ok(vec![same; peers.ranks()]),
        Some(peers) => {
            let clock = context.clock;
            let answers = peers.compare_clocks(QUESTIONS, move || clock.now())?;
            Ok(answers.iter().map(|answers| rank_tie(answers).unwrap_or(same)).collect())
        }
    }
}

/// Gathers the timings of all ranks on a common time axis. Returns `None` on ranks other than 0.
pub(super) fn gather(
    context: &Context<'_>,
    recorder: Recorder,
    operations: Vec<OperationInfo>,
    (times, of_rank): (Times, RankTimes),
    offsets: &[Tie],
) -> Result<Option<Traced>> {
    let Some(all) = ranks::gather(context.peers, "timings", (times, of_rank))? else {
        return Ok(None);
    };
    let (times, mut ranks): (Vec<Times>, Vec<RankTimes>) = all.into_iter().unzip();
    for (rank, offset) in ranks.iter_mut().zip(offsets) {
        rank.uncertainty_ns += offset.uncertainty_ns;
        rank.steps.iter_mut().for_each(|step| step.start_ns += offset.at_ns);
    }
    let emulated = context.spec.link != Link::Native;
    let steps = ranks.iter().flat_map(|rank| &rank.steps);
    let mut spans: Vec<Span> = steps.flat_map(|step| spans_of(step, &operations, emulated)).collect();
    spans.sort_unstable_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns, s.operation));
    let executed = ranks.len() as u32;
    // extrapolates the recorded steps to the whole decode phase
    let phases = context.steps() as f64 / decode_steps(&ranks).max(1) as f64;
    let overlap = trace::overlap::decode_overlap(&spans, executed).map(|overlap| overlap.times(phases));
    let sample = measure::combine(&times, &[], executed);
    let name = recorder_name(recorder);
    let instrumented = Instrumented {
        recorder: name.into(),
        steps_ms: sample.steps_ms,
        overlap,
        ..Instrumented::default()
    };
    let of_cupti = ranks.iter().filter_map(|rank| rank.report.as_ref()?.warning());
    let mut warnings: Vec<String> =
        of_cupti.chain(ranks.iter().flat_map(|rank| rank.warnings.clone())).collect();
    warnings.dedup();
    let environment = environment(context, name, &ranks, offsets);
    let clock = clock(recorder, &ranks, offsets);
    Ok(Some(Traced { instrumented, operations, spans, ranks: executed, clock, environment, warnings }))
}

/// Number of decode steps timed on the first rank.
fn decode_steps(ranks: &[RankTimes]) -> usize {
    let of_first = |rank: &RankTimes| {
        rank.steps.iter().filter(|step| step.phase == Phase::Decode && step.rank == rank.rank).count()
    };
    ranks.first().map_or(0, of_first)
}

fn recorder_name(recorder: Recorder) -> &'static str {
    match recorder {
        Recorder::Events => "cuda events around modules",
        other => other.as_str(),
    }
}

fn spans_of<'a>(
    step: &'a StepTimes,
    operations: &'a [OperationInfo],
    emulated: bool,
) -> impl Iterator<Item = Span> + 'a {
    let is_before = |info: &OperationInfo| step.phase == Phase::Decode && info.phase == Phase::Prefill;
    let base = operations.iter().filter(|info| is_before(info)).count();
    step.operations.iter().enumerate().filter_map(move |(operation, times)| {
        let [ready, started, ended] = (*times)?;
        let lane = operations.get(base + operation)?.lane;
        Some(Span {
            sample: 0,
            phase: step.phase,
            step: step.step,
            rank: step.rank,
            lane,
            stream: 0,
            operation: (base + operation) as u32,
            ready_ns: step.start_ns + ready,
            start_ns: step.start_ns + started,
            end_ns: step.start_ns + ended,
            // an emulated collective waits for no peer; NCCL's last arrival is unknown
            last_arrival_ns: if lane == Lane::Comm && emulated { step.start_ns + started } else { -1 },
            ..Span::EMPTY
        })
    })
}

/// Duration of a collective in a rank's last decode step, by events and by the recorder (us).
struct Both {
    operation: u32,
    by_events: f64,
    by_recorder: f64,
}

/// Compares events with the recorder for the last decode step of each rank, where both timed a collective.
fn both(ranks: &[RankTimes]) -> Vec<Vec<Both>> {
    let of_rank = |rank: &RankTimes| {
        let steps = ranks.iter().flat_map(|of| &of.steps);
        let steps = steps.filter(|step| step.phase == Phase::Decode && step.rank == rank.rank);
        let last = steps.max_by_key(|step| step.step);
        let both = |took: &collectives::Took| {
            let [_, start, end] = (*last?.operations.get(took.operation as usize)?)?;
            let by_recorder = (end - start) as f64 / 1e3;
            Some(Both { operation: took.operation, by_events: took.us, by_recorder })
        };
        rank.by_events.iter().filter_map(both).collect::<Vec<_>>()
    };
    ranks.iter().map(of_rank).filter(|both| !both.is_empty()).collect()
}

fn environment(context: &Context<'_>, name: &str, ranks: &[RankTimes], offsets: &[Tie]) -> Environment {
    let most = |of: fn(&RankTimes) -> i64| ranks.iter().map(|rank| of(rank).abs()).max().unwrap_or(0);
    let us = |ns: i64| ns as f64 / 1e3;
    let cupti = ranks.iter().any(|rank| rank.report.is_some()).then(cupti::version).flatten();
    let compared = |found: &[&Both]| -> Value {
        let middle =
            |of: fn(&Both) -> f64| median(&found.iter().map(|both| of(both)).collect::<Vec<_>>());
        let off = |both: &Both| both.by_events - both.by_recorder;
        json!({
            "events_us": middle(|both| both.by_events),
            "recorder_us": middle(|both| both.by_recorder),
            "difference_us": middle(off),
            "largest_difference_us": found.iter().map(|both| off(both).abs()).fold(0.0, f64::max),
        })
    };
    let collectives = collectives::alike(context.engine, &both(ranks), |both| both.operation, compared);
    Environment::from([
        ("recorder".into(), json!(name)),
        ("cupti".into(), json!(cupti)),
        (
            "timing".into(),
            json!({
                "steps": decode_steps(ranks),
                "events_a_step": ranks.first().map(|rank| rank.events_per_step),
                "tick_ns": ranks.first().map(|rank| rank.tick_ns).filter(|ns| *ns > 0.0),
                "stamp_us": ranks.first().map(|rank| rank.stamp_us).filter(|us| *us > 0.0),
                "collectives": collectives,
                "clock_uncertainty_us": us(most(|rank| rank.uncertainty_ns)),
                "clock_drift_us": us(most(|rank| rank.drift_ns)),
                "clock_offset_uncertainty_us": us(offsets.iter().map(|t| t.uncertainty_ns).max().unwrap_or(0)),
            }),
        ),
    ])
}

/// Description of the trace's clock and its uncertainty.
fn clock(recorder: Recorder, ranks: &[RankTimes], offsets: &[Tie]) -> String {
    let us = |ns: i64| ns as f64 / 1e3;
    let uncertainty = ranks.iter().map(|rank| rank.uncertainty_ns).max().unwrap_or(0);
    let (drift, over) = ranks
        .iter()
        .map(|rank| (rank.drift_ns, rank.duration_ns))
        .max_by_key(|(drift, _)| drift.abs())
        .unwrap_or_default();
    let source = match recorder {
        Recorder::Cupti => "CUPTI's time stamps",
        Recorder::Stamps => "the kernels' own stamps of %globaltimer",
        _ => {
            "CUDA events around modules and collectives, each step's counted from its own first (f32 ms)"
        }
    };
    let mut text = format!(
        "{source}; tied to CLOCK_MONOTONIC of rank 0's host by round trips, +-{:.1} us, with {:+.1} us of drift over {:.2} s; ns since the run began",
        us(uncertainty),
        us(drift),
        over as f64 / 1e9
    );
    if offsets.iter().any(|offset| offset.uncertainty_ns > 0) {
        text += "; ranks of other processes compared by messages";
    }
    text
}
