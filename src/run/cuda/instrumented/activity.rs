//! Operation times from CUPTI's activity records.
//!
//! CUPTI records a whole process. If ranks are threads, rank 0 starts and stops the recording and gets the
//! records of all ranks; if ranks are processes, each records itself.

use std::collections::BTreeMap;

use super::{Context, RankTimes, StepTimes, settled};
use crate::cuda::cupti::{Label, OperationSpan, Session, StepId, assemble};
use crate::cuda::generation::{Generation, Purpose};
use crate::cuda::timing::Skeleton;
use crate::cuda::timing::collectives::CollectiveEvents;
use crate::recorder::Times;
use base::error::Result;
use plan::Phase;

/// Times one generation. On rank 0 of a multi-threaded run the result contains the steps of all ranks, which
/// [`super::combine_ranks`] separates.
pub(super) fn run(context: &Context<'_>) -> Result<(Times, RankTimes)> {
    let (engine, spec) = (context.engine, context.spec);
    let steps = context.steps();
    let shared = context.peers.is_some_and(|peers| peers.in_one_process());
    let clock = context.clock;
    let session = match !shared || context.rank() == 0 {
        true => Some(Session::start(move || clock.now())?),
        false => None,
    };
    // no rank captures before recording is on
    context.barrier()?;
    let events = context.events.then(|| CollectiveEvents::of(engine)).flatten();
    let mut generation =
        Generation::timed(engine, context.sizes(), Purpose::Recorded, [None; 2], events)?;
    context.prepare()?;
    let begun = clock.now();
    let times = generation.run(engine, "timing operations", false, &mut |_| ())?;
    let duration_ns = clock.now() - begun;
    // all ranks must finish before recording stops
    context.barrier()?;
    let mut of_rank = RankTimes { rank: context.rank(), duration_ns, ..RankTimes::default() };
    of_rank.by_events = generation.collectives()?;
    if let Some(session) = session {
        let recording = session.finish(move || clock.now())?;
        of_rank.uncertainty_ns = recording.timeline.uncertainty_ns();
        of_rank.drift_ns = recording.timeline.drift_ns();
        let ranks: Vec<u32> = match shared {
            true => (0..spec.tp).collect(),
            false => vec![context.rank()],
        };
        let programs = &engine.programs;
        let expected = |id: StepId| {
            let (prefill, decode) = generation.steps();
            let (step, program) = match id {
                StepId(0) => (Some(prefill), &programs.prefill),
                _ => (decode, &programs.decode),
            };
            let Some(step) = step else { return Vec::new() };
            // rank 0 has rows whenever any rank has
            let operations = step.launches(0);
            let of_rank = |rank: &u32| {
                let rank = *rank;
                let operations = operations.iter().filter(move |at| step.concerns(program, **at, rank));
                operations.map(move |at| Label { rank: rank as u8, operation: *at })
            };
            ranks.iter().flat_map(of_rank).collect()
        };
        let assembled = assemble(&recording, expected);
        let (prefill, decode) =
            (Skeleton::of(&programs.prefill.plan), Skeleton::of(&programs.decode.plan));
        let kept = assembled.steps.iter().filter(|(step, _)| step.0 as usize <= steps);
        for (step, found) in kept {
            let skeleton = if *step == StepId(0) { &prefill } else { &decode };
            for rank in &ranks {
                of_rank.steps.extend(of_step(skeleton, *step, *rank, found));
            }
        }
        of_rank.events_per_step =
            assembled.report.activities as f64 / (steps as f64 + 1.0) / ranks.len() as f64;
        of_rank.report = Some(assembled.report);
    }
    Ok((times, of_rank))
}

/// Times of one rank's step on the host's clock; `None` without records.
fn of_step(
    skeleton: &Skeleton,
    step: StepId,
    rank: u32,
    found: &BTreeMap<Label, OperationSpan>,
) -> Option<StepTimes> {
    let operations: Vec<Option<OperationSpan>> = (0..skeleton.lanes.len() as u32)
        .map(|operation| found.get(&Label { rank: rank as u8, operation }).copied())
        .collect();
    let start = operations.iter().flatten().map(|span| span.start_ns).min()?;
    let (length_ns, operations) = settled(skeleton, &operations, start);
    Some(StepTimes {
        phase: if step == StepId(0) { Phase::Prefill } else { Phase::Decode },
        step: step.0.saturating_sub(1),
        rank,
        start_ns: 0,
        length_ns,
        operations,
    })
}
