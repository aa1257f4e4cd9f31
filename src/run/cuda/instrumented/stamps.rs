//! Operation times from stamps written by the kernels: one replay times a whole step on one clock.

use super::{Context, RankTimes, StepTimes, settled};
use crate::cuda::cupti::OperationSpan;
use crate::cuda::engine::Step;
use crate::cuda::generation::{Generation, Purpose};
use crate::cuda::program::Program;
use crate::cuda::timing::collectives::Around;
use crate::cuda::timing::{RoundTrip, Skeleton, Stamps, Tick, Tie, Timeline};
use crate::measure::Times;
use base::error::{Error, Result};
use plan::Phase;

/// Clock readings; the fastest ties the GPU's clock to the host's.
const LOOKS: usize = 32;

/// Times one generation of this rank; `tick` is the resolution of its GPU's clock.
pub(super) fn run(context: &Context<'_>, tick: Tick) -> Result<(Times, RankTimes)> {
    let engine = context.engine;
    let (programs, steps) = (&engine.programs, context.steps());
    let room = |program: &Program, steps| Stamps::new(&engine.gpu, program.plan.operations.len(), steps);
    let (of_prefill, of_decode) = (room(&programs.prefill, 1)?, room(&programs.decode, steps)?);
    let around = context.events.then(|| Around::of(engine)).flatten();
    let stamps = [Some(&of_prefill), Some(&of_decode)];
    let mut generation = Generation::timed(engine, context.sizes(), Purpose::Stamped, stamps, around)?;
    let stamp_us = of_prefill.cost_us(&engine.gpu, &engine.kernels, engine.main())?;

    context.prepare()?;
    let (first, start_tie) = tie(context, &of_prefill)?;
    for stamps in [&of_prefill, &of_decode] {
        stamps.reset(engine.main())?;
    }
    context.barrier()?;
    let generated = generation.run(engine, "timing operations", false, &mut |_| ())?;
    let mut found = vec![(Phase::Prefill, 0, of_prefill.step(0)?)];
    for step in 0..steps {
        found.push((Phase::Decode, step as u32, of_decode.step(step)?));
    }
    let (last, end_tie) = tie(context, &of_prefill)?;
    let duration_ns = last as i64 - first as i64;
    let timeline = Timeline::between(start_tie, end_tie, duration_ns);
    let host = |at: u64| timeline.host_ns(at as i64 - first as i64);

    let rank = context.rank();
    let mut of_rank = RankTimes {
        rank,
        uncertainty_ns: timeline.uncertainty_ns() + tick.longest_ns as i64,
        drift_ns: timeline.drift_ns(),
        duration_ns,
        tick_ns: tick.ns,
        stamp_us,
        ..RankTimes::default()
    };
    of_rank.by_events = generation.collectives()?;
    let skeletons = [&programs.prefill, &programs.decode].map(|program| Skeleton::of(&program.plan));
    for (phase, step, times) in found {
        let (skeleton, launched) = match phase {
            Phase::Prefill => (&skeletons[0], Some(generation.steps().0)),
            Phase::Decode => (&skeletons[1], generation.steps().1),
        };
        silent(launched, &times)?;
        // GPU clock within a step, host clock for its start
        let Some(start) = times.iter().flatten().map(|times| times[0]).min() else { continue };
        let since = |at: u64| at.saturating_sub(start) as i64;
        let span =
            |times: [u64; 2]| OperationSpan { start_ns: since(times[0]), end_ns: since(times[1]) };
        let spans: Vec<Option<OperationSpan>> = times.iter().map(|times| times.map(span)).collect();
        let (length_ns, operations) = settled(skeleton, &spans, 0);
        let start_ns = host(start);
        of_rank.steps.push(StepTimes { rank, phase, step, start_ns, length_ns, operations });
    }
    Ok((generated, of_rank))
}

/// Returns an error if a launched operation wrote no stamp.
fn silent(step: Option<&Step>, times: &[Option<[u64; 2]>]) -> Result<()> {
    let launched = step.map(|step| step.launches(0)).unwrap_or_default();
    let silent = launched.iter().filter(|at| times.get(**at as usize).is_none_or(Option::is_none));
    match silent.count() {
        0 => Ok(()),
        count => Err(Error::failed(format!(
            "{count} operations of a step recorded no timestamp; --recorder events and cupti need none from kernels"
        ))),
    }
}

/// GPU clock with the host clock at the same moment, from the fastest of several readings.
fn tie(context: &Context<'_>, stamps: &Stamps) -> Result<(u64, Tie)> {
    let engine = context.engine;
    let mut looks = Vec::with_capacity(LOOKS);
    let mut trips = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let before_ns = context.clock.now();
        looks.push(stamps.clock(&engine.kernels, engine.main())?);
        trips.push(RoundTrip { before_ns, after_ns: context.clock.now() });
    }
    let best = RoundTrip::best(&trips).and_then(|(at, tie)| Some((*looks.get(at)?, tie)));
    best.ok_or_else(|| Error::failed("no look at the GPU's clock"))
}
