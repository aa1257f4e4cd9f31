//! Operation times from CUPTI's activity records.
//!
//! CUPTI records a whole process. If ranks are threads, rank 0 starts and stops the recording and gets the
//! records of all ranks; if ranks are processes, each records itself.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{InstrumentedRun, InstrumentedStep, RankTimes};
use crate::cuda::cupti::{
    CuptiRecording, CuptiSession, OperationLabel, OperationSpan, StepId, assemble, operation_times,
};
use crate::cuda::engine::Engine;
use crate::cuda::generation::{Generation, Purpose};
use crate::cuda::timing::Skeleton;
use crate::cuda::timing::collectives::CollectiveEvents;
use crate::recorder::GenerationTimes;
use base::error::Result;
use plan::Phase;

/// Times one generation. On rank 0 of a multi-threaded run the result contains the steps of all ranks, which
/// [`super::combine_ranks`] separates.
pub(super) fn run(context: &InstrumentedRun<'_>) -> Result<(GenerationTimes, RankTimes)> {
    let engine = context.engine;
    let is_one_process = context.peers.is_some_and(|peers| peers.in_one_process());
    let clock = context.clock;
    let is_recording = !is_one_process || context.rank() == 0;
    let session = is_recording.then(|| CuptiSession::start(move || clock.now())).transpose()?;
    // no rank captures before recording is on
    context.barrier()?;
    let events = context.events.then(|| CollectiveEvents::from_engine(engine)).flatten();
    let mut generation =
        Generation::timed(engine, context.sizes(), Purpose::Recorded, [None; 2], events)?;
    context.prepare()?;
    let start_ns = clock.now();
    let times = generation.run(engine, "timing operations", false, &mut |_| ())?;
    let duration_ns = clock.now() - start_ns;
    // all ranks must finish before recording stops
    context.barrier()?;
    let mut rank_times = RankTimes { rank: context.rank(), duration_ns, ..RankTimes::default() };
    rank_times.by_events = generation.collectives()?;
    if let Some(session) = session {
        let recording = session.finish(move || clock.now())?;
        let ranks = if is_one_process { 0..context.spec.tp } else { context.rank()..context.rank() + 1 };
        add_recording(context, &generation, &recording, ranks, &mut rank_times);
    }
    Ok((times, rank_times))
}

/// Adds the steps of `ranks`, and the accuracy of their times, to `rank_times`.
fn add_recording(
    context: &InstrumentedRun<'_>,
    generation: &Generation,
    recording: &CuptiRecording,
    ranks: Range<u32>,
    rank_times: &mut RankTimes,
) {
    rank_times.uncertainty_ns = recording.timeline.uncertainty_ns;
    rank_times.drift_ns = recording.timeline.drift_ns;
    let assembled =
        assemble(recording, |step| launched(context.engine, generation, step, ranks.clone()));
    let programs = &context.engine.programs;
    let (prefill, decode) =
        (Skeleton::from_plan(&programs.prefill.plan), Skeleton::from_plan(&programs.decode.plan));
    let steps = context.steps();
    for (step, spans) in assembled.steps.iter().filter(|(step, _)| step.0 as usize <= steps) {
        let skeleton = if *step == StepId(0) { &prefill } else { &decode };
        let times = |rank| step_times(skeleton, *step, rank, spans);
        rank_times.steps.extend(ranks.clone().filter_map(times));
    }
    rank_times.events_per_step =
        assembled.report.activities as f64 / (steps as f64 + 1.0) / ranks.len() as f64;
    rank_times.report = Some(assembled.report);
}

/// Operations of a step that launch something on each of `ranks`.
fn launched(
    engine: &Engine,
    generation: &Generation,
    id: StepId,
    ranks: Range<u32>,
) -> Vec<OperationLabel> {
    let programs = &engine.programs;
    let (prefill, decode) = generation.steps();
    let (step, program) = match id {
        StepId(0) => (Some(prefill), &programs.prefill),
        _ => (decode, &programs.decode),
    };
    let Some(step) = step else { return Vec::new() };
    // rank 0 has rows whenever any rank has
    let operations = step.launches(0);
    let labels = ranks.flat_map(|rank| {
        let operations = operations.iter().filter(move |at| step.concerns(program, **at, rank));
        operations.map(move |operation| OperationLabel { rank: rank as u8, operation: *operation })
    });
    labels.collect()
}

/// Times of one rank's step on the host's clock; `None` without records.
fn step_times(
    skeleton: &Skeleton,
    step: StepId,
    rank: u32,
    spans: &BTreeMap<OperationLabel, OperationSpan>,
) -> Option<InstrumentedStep> {
    let operations: Vec<Option<OperationSpan>> = (0..skeleton.lanes.len() as u32)
        .map(|operation| spans.get(&OperationLabel { rank: rank as u8, operation }).copied())
        .collect();
    let start = operations.iter().flatten().map(|span| span.start_ns).min()?;
    let (length_ns, operations) = operation_times(skeleton, &operations, start);
    Some(InstrumentedStep {
        phase: if step == StepId(0) { Phase::Prefill } else { Phase::Decode },
        step: step.0.saturating_sub(1),
        rank,
        start_ns: 0,
        length_ns,
        operations,
    })
}
