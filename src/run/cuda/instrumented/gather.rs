//! From what each rank has seen to one trace, on rank 0.

use serde_json::json;

use super::ranks::{RankTimes, StepTimes};
use super::{Context, Traced};
use crate::base::error::Result;
use crate::plan::{Lane, Phase, Plan};
use crate::run::cuda::timing::{Seams, Tie, place, rank_tie, recorder_name};
use crate::run::cuda::{cupti, threads};
use crate::run::measure::{self, Times};
use crate::table::{Environment, Instrumented, Link, Overlap, Recorder};
use crate::trace::Span;

/// Questions to each rank's clock.
const QUESTIONS: usize = 200;

/// What to add to each rank's clock to have rank 0's, on rank 0.
pub(super) fn compare_clocks(context: &Context<'_>) -> Result<Vec<Tie>> {
    let same = Tie { at_ns: 0, uncertainty_ns: 0 };
    match context.peers {
        None => Ok(vec![same]),
        // threads read the same clock
        Some(peers) if peers.in_one_process() => Ok(vec![same; peers.ranks()]),
        Some(peers) => {
            let clock = context.clock;
            let answers = peers.compare_clocks(QUESTIONS, move || clock.now())?;
            Ok(answers.iter().map(|answers| rank_tie(answers).unwrap_or(same)).collect())
        }
    }
}

/// Gathers every rank's times and puts them on one axis; `None` on other ranks than 0.
pub(super) fn gather(
    context: &Context<'_>,
    times: Times,
    of_rank: RankTimes,
    offsets: &[Tie],
) -> Result<Option<Traced>> {
    let Some(all) = threads::gather(context.peers, "timings", (times, of_rank))? else {
        return Ok(None);
    };
    let (times, mut ranks): (Vec<Times>, Vec<RankTimes>) = all.into_iter().unzip();
    for (rank, offset) in ranks.iter_mut().zip(offsets) {
        shift(rank, offset);
    }
    let programs = context.engine.programs();
    let windows = ranks.iter().map(|rank| rank.windows).max().unwrap_or(1);
    let composed: Vec<usize> =
        (0..ranks.len()).filter(|rank| !ranks[*rank].replays.is_empty()).collect();
    if !composed.is_empty() {
        place_steps(&mut ranks, &composed, windows);
    }
    let emulated = context.spec.link != Link::Native;
    let mut spans = Vec::new();
    for step in ranks.iter().flat_map(|rank| &rank.steps) {
        let program = match step.phase {
            Phase::Prefill => &programs.prefill,
            Phase::Decode => &programs.decode,
        };
        spans.extend(spans_of(step, &program.plan, program.base, emulated));
    }
    spans.sort_unstable_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns, s.operation));
    let executed = ranks.len() as u32;
    let spec = context.spec;
    let name = recorder_name(spec.recorder, spec.coverage, windows);
    let mut seams = Seams::default();
    ranks.iter().for_each(|rank| seams.add(&rank.seams));
    let decode_steps = ranks.first().map_or(0, |rank| {
        rank.steps.iter().filter(|step| step.phase == Phase::Decode && step.rank == rank.rank).count()
    });
    let overlap = crate::trace::overlap::decode_overlap(&spans, executed)
        .map(|overlap| of_all_steps(overlap, context.steps(), decode_steps));
    let sample = measure::combine(&times, &[], executed);
    let by_events = spec.recorder == Recorder::Events && seams.fitted_ns > 0.0;
    let instrumented = Instrumented {
        recorder: name.clone(),
        windows: windows as u32,
        steps_ms: sample.steps_ms,
        stretch: by_events.then(|| seams.stretch()),
        clipped: by_events.then(|| seams.clipped_ns as f64 / seams.fitted_ns),
        overlap,
        ..Instrumented::default()
    };
    let of_cupti = ranks.iter().filter_map(|rank| rank.report.as_ref()?.warning());
    let mut warnings: Vec<String> =
        of_cupti.chain(ranks.iter().flat_map(|rank| rank.warnings.clone())).collect();
    warnings.dedup();
    let environment = environment(&name, &ranks, &seams, windows, decode_steps, offsets);
    let clock = clock(spec.recorder, &ranks, offsets, windows);
    Ok(Some(Traced { instrumented, spans, ranks: executed, clock, environment, warnings }))
}

/// From the rank's clock to rank 0's.
fn shift(rank: &mut RankTimes, offset: &Tie) {
    rank.uncertainty_ns += offset.uncertainty_ns;
    rank.replays.iter_mut().for_each(|replay| replay[0] += offset.at_ns);
    for start in rank.steps.iter_mut().filter_map(|step| step.start_ns.as_mut()) {
        *start += offset.at_ns;
    }
}

/// Gives composed steps their places on the rank's clock.
fn place_steps(ranks: &mut [RankTimes], composed: &[usize], windows: usize) {
    let replays: Vec<_> = composed.iter().map(|rank| ranks[*rank].replayed()).collect();
    let is_decode = |step: &&StepTimes| step.phase == Phase::Decode;
    let lengths: Vec<Vec<i64>> = composed
        .iter()
        .map(|rank| ranks[*rank].steps.iter().filter(is_decode).map(|step| step.length_ns).collect())
        .collect();
    let starts = place(&replays, &lengths, windows);
    for (column, rank) in composed.iter().enumerate() {
        let steps = ranks[*rank].steps.iter_mut().filter(|step| step.phase == Phase::Decode);
        for (step, starts) in steps.zip(&starts) {
            step.start_ns = Some(starts[column]);
        }
        // what some other rank has no step for
        ranks[*rank].steps.retain(|step| step.start_ns.is_some());
    }
}

fn spans_of<'a>(
    step: &'a StepTimes,
    plan: &'a Plan,
    base: u32,
    emulated: bool,
) -> impl Iterator<Item = Span> + 'a {
    let start = step.start_ns.unwrap_or(0);
    step.operations.iter().enumerate().filter_map(move |(operation, times)| {
        let [ready, started, ended] = (*times)?;
        let lane = plan.operations.get(operation)?.lane;
        Some(Span {
            sample: 0,
            phase: step.phase,
            step: step.step,
            rank: step.rank,
            lane,
            stream: 0,
            operation: base + operation as u32,
            ready_ns: start + ready,
            start_ns: start + started,
            end_ns: start + ended,
            // an emulated collective waits for nobody; when NCCL's last peer came is not known
            last_arrival_ns: if lane == Lane::Comm && emulated { start + started } else { -1 },
        })
    })
}

/// The overlap of the whole decode phase, from that of the steps that stand for it.
fn of_all_steps(overlap: Overlap, steps: usize, composed: usize) -> Overlap {
    let factor = steps as f64 / composed.max(1) as f64;
    Overlap {
        comm_ms: overlap.comm_ms * factor,
        exposed_comm_ms: overlap.exposed_comm_ms * factor,
        compute_ms: overlap.compute_ms * factor,
        idle_ms: overlap.idle_ms * factor,
        ..overlap
    }
}

fn environment(
    name: &str,
    ranks: &[RankTimes],
    seams: &Seams,
    windows: usize,
    steps: usize,
    offsets: &[Tie],
) -> Environment {
    let most = |of: fn(&RankTimes) -> i64| ranks.iter().map(|rank| of(rank).abs()).max().unwrap_or(0);
    let us = |ns: i64| ns as f64 / 1e3;
    let cupti = ranks.iter().any(|rank| rank.report.is_some()).then(cupti::version).flatten();
    Environment::from([
        ("recorder".into(), json!(name)),
        ("cupti".into(), json!(cupti)),
        (
            "timing".into(),
            json!({
                "replays_a_step": windows,
                "steps": steps,
                "events_a_step": ranks.first().map(|rank| rank.events_per_step),
                "tick_ns": ranks.first().map(|rank| rank.tick_ns).filter(|ns| *ns > 0.0),
                "stamp_us": ranks.first().map(|rank| rank.stamp_us).filter(|us| *us > 0.0),
                "stretch": seams.stretch(),
                "clipped_us": us(seams.clipped_ns),
                "moved_seams": seams.moved,
                "clock_uncertainty_us": us(most(|rank| rank.uncertainty_ns)),
                "clock_drift_us": us(most(|rank| rank.drift_ns)),
                "clock_offset_uncertainty_us": us(offsets.iter().map(|t| t.uncertainty_ns).max().unwrap_or(0)),
            }),
        ),
    ])
}

/// What the trace's times are, in words.
fn clock(recorder: Recorder, ranks: &[RankTimes], offsets: &[Tie], windows: usize) -> String {
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
        _ => "CUDA events, each step's counted from its own first (f32 ms)",
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
    if windows > 1 {
        text += &format!(
            "; a decode step is composed of {windows} consecutive replays, each with another window of its operations \
             timed, and stands for them: steps lie one behind the other, and are named after their first replay"
        );
    }
    text
}
