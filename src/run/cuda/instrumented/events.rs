//! Operations timed by CUDA events: a graph a window, replayed in turn, their events read while other
//! replays run.

use std::time::Duration;

use super::Context;
use super::ranks::{RankTimes, StepTimes, triple};
use crate::base::error::{Error, Result};
use crate::machine::driver::Event;
use crate::plan::Phase;
use crate::run::cuda::engine::{Engine, Step, Timing};
use crate::run::cuda::generation::{ns, step_ends};
use crate::run::cuda::program::Program;
use crate::run::cuda::schedule::Schedule;
use crate::run::cuda::timing::{Marks, RoundTrip, Seams, Skeleton, Tie, Timeline, Windows, compose};
use crate::run::measure::Times;
use crate::run::recorder::{Clock, range};

/// Round trips of which the shortest ties the clocks.
const ROUND_TRIPS: usize = 64;

/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The windows of a phase, the events of each, and a step for each (at least two where steps follow one
/// another: one is read while the next runs).
struct Instruments {
    skeleton: Skeleton,
    windows: Windows,
    marks: Vec<Marks>,
    steps: Vec<Step>,
}

impl Instruments {
    fn new(
        engine: &Engine,
        program: &Program,
        windows: Windows,
        least: usize,
        make: impl Fn(&Marks) -> Result<Step>,
    ) -> Result<Self> {
        let skeleton = Skeleton::of(&program.plan);
        let schedule = Schedule::new(&program.plan, &engine.layout(), None);
        let waits = schedule.waits(program.plan.operations.len());
        let lanes = schedule.lanes(&program.plan);
        let marks: Vec<Marks> =
            windows.ranges().iter().map(|range| Marks::new(&lanes, &waits, range.clone())).collect();
        let steps: Result<Vec<Step>> =
            (0..marks.len().max(least)).map(|step| make(&marks[step % marks.len()])).collect();
        Ok(Self { steps: steps?, skeleton, windows, marks })
    }

    /// The events of a step that has ended, in ms since its first; by mark.
    fn read(&self, step: usize) -> Result<Vec<f32>> {
        let events = self.steps[step % self.steps.len()].marks(0);
        let Some((first, rest)) = events.split_first() else { return Ok(Vec::new()) };
        let mut times = Vec::with_capacity(events.len());
        times.push(0.0);
        for event in rest {
            times.push(event.elapsed_ms(first)?);
        }
        Ok(times)
    }

    /// The event at which a step started.
    fn start(&self, step: usize) -> Result<&Event> {
        let of_step = self.steps[step % self.steps.len()].marks(0);
        of_step.first().ok_or_else(|| Error::failed("a timed step without events"))
    }
}

/// Times one generation of this rank.
pub(super) fn run(context: &Context<'_>) -> Result<(Times, RankTimes)> {
    let (engine, spec) = (context.engine, context.spec);
    let programs = engine.programs();
    let steps = context.steps();
    let lanes = |program: &Program| Skeleton::of(&program.plan).lanes;
    let all = Windows::split(&lanes(&programs.prefill), 1);
    let mut prefill = Instruments::new(engine, &programs.prefill, all, 1, |marks| {
        let of = |operation: usize| [marks.before(operation), marks.after(operation)];
        engine.prefill_step(0, spec.batch, spec.prompt_tokens, Timing::Events(&of, marks.count() as u32))
    })?;
    let windows = Windows::new(&lanes(&programs.decode), spec.coverage, steps);
    let mut decode = match steps {
        0 => None,
        _ => Some(Instruments::new(engine, &programs.decode, windows, 2, |marks| {
            let of = |operation: usize| [marks.before(operation), marks.after(operation)];
            engine.decode_step(Timing::Events(&of, marks.count() as u32))
        })?),
    };
    let ends: Vec<Event> = (0..=steps).map(|_| engine.gpu().event(true)).collect::<Result<_>>()?;
    let started = engine.gpu().event(true)?;
    let ties: Vec<Event> =
        (0..2 * ROUND_TRIPS).map(|_| engine.gpu().event(true)).collect::<Result<_>>()?;
    let (first_ties, last_ties) = ties.split_at(ROUND_TRIPS);

    context.prepare()?;
    let (first, start_tie) = tie(engine, &context.clock, first_ties)?;
    engine.main().record(&started)?;
    {
        let _range = range("prefill, timed");
        engine.run(&mut prefill.steps[0])?;
        engine.main().record(&ends[0])?;
    }
    let mut replays: Vec<Vec<f32>> = Vec::with_capacity(steps);
    // from the end of the step before to each step's start (ns)
    let mut late: Vec<i64> = Vec::with_capacity(steps);
    if let Some(decode) = &mut decode {
        let _range = range("decode, timed");
        let ahead = decode.steps.len() - 1;
        for step in 0..steps + ahead {
            // whoever had these events before was read a turn ago
            if step < steps {
                let _range = range("decode step, timed");
                let at = step % decode.steps.len();
                engine.run(&mut decode.steps[at])?;
                engine.main().record(&ends[step + 1])?;
            }
            // while others run
            if let Some(done) = step.checked_sub(ahead) {
                wait_for(engine, &ends[done + 1], || {
                    format!("timed decode step {} of {steps}", done + 1)
                })?;
                late.push(ns(decode.start(done)?.elapsed_ms(&ends[done])?));
                replays.push(decode.read(done)?);
            }
        }
    }
    wait_for(engine, &ends[steps], || "a timed generation".into())?;
    let (last, end_tie) = tie(engine, &context.clock, last_ties)?;
    // everything since the first tie, in differences short enough for f32
    let to_prefill = ns(prefill.start(0)?.elapsed_ms(&first_ties[first])?);
    let mut boundaries = Vec::with_capacity(steps + 1);
    let mut at = to_prefill + ns(ends[0].elapsed_ms(prefill.start(0)?)?);
    boundaries.push(at);
    for pair in ends.windows(2) {
        at += ns(pair[1].elapsed_ms(&pair[0])?);
        boundaries.push(at);
    }
    let duration_ns = at + ns(last_ties[last].elapsed_ms(&ends[steps])?);
    let timeline = Timeline::between(start_tie, end_tie, duration_ns);

    let rank = context.rank();
    let mut of_rank = RankTimes {
        rank,
        windows: decode.as_ref().map_or(1, |decode| decode.windows.len()),
        uncertainty_ns: timeline.uncertainty_ns(),
        drift_ns: timeline.drift_ns(),
        duration_ns,
        ..RankTimes::default()
    };
    let whole = prefill.read(0)?;
    let mut seams = Seams::default();
    of_rank.steps.push(composed(
        rank,
        &prefill,
        &[whole],
        Phase::Prefill,
        0,
        Some(timeline.host_ns(to_prefill)),
        &mut seams,
    )?);
    if let Some(decode) = &decode {
        for ((replay, late), boundary) in replays.iter().zip(&late).zip(&boundaries) {
            let length = replay.get(Marks::STEP_END as usize).copied().unwrap_or_default();
            of_rank.replays.push([timeline.host_ns(boundary + late), ns(length)]);
        }
        let count = decode.windows.len();
        for (index, round) in replays.chunks_exact(count).enumerate() {
            let step = (index * count) as u32;
            of_rank.steps.push(composed(
                rank,
                decode,
                round,
                Phase::Decode,
                step,
                None,
                &mut of_rank.seams,
            )?);
        }
        let events: usize = decode.marks.iter().map(Marks::count).sum();
        of_rank.events_per_step = events as f64;
    }
    Ok((step_ends(&started, &ends)?, of_rank))
}

/// One step of as many replays as there are windows.
fn composed(
    rank: u32,
    instruments: &Instruments,
    replays: &[Vec<f32>],
    phase: Phase,
    step: u32,
    start_ns: Option<i64>,
    seams: &mut Seams,
) -> Result<StepTimes> {
    let Instruments { skeleton, windows, marks, .. } = instruments;
    let composed = compose(skeleton, windows, marks, replays).ok_or_else(|| {
        Error::failed(format!(
            "timing {} step {step}: an event has no time; --recorder cupti or off does without events",
            phase.as_str()
        ))
    })?;
    seams.add(&composed.seams);
    Ok(StepTimes {
        rank,
        phase,
        step,
        start_ns,
        length_ns: composed.length_ns,
        operations: composed.operations.iter().map(triple).map(Some).collect(),
    })
}

/// Ties the GPU's clock to the host's by one of these events; which, and when it was.
fn tie(engine: &Engine, clock: &Clock, events: &[Event]) -> Result<(usize, Tie)> {
    let mut trips = Vec::with_capacity(events.len());
    for event in events {
        let before_ns = clock.now();
        engine.main().record(event)?;
        event.synchronize_within(PATIENCE)?;
        trips.push(RoundTrip { before_ns, after_ns: clock.now() });
    }
    RoundTrip::best(&trips).ok_or_else(|| Error::failed("no events to tie clocks by"))
}

pub(super) fn wait_for(engine: &Engine, event: &Event, what: impl Fn() -> String) -> Result<()> {
    engine.wait(|| event.is_done(), what)
}
