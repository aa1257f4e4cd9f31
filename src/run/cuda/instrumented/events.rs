//! Operation times from CUDA events around modules on the compute stream and collectives on their own. One
//! replay times a whole step; its events are read while the next step runs with a second set.

use std::time::Duration;

use super::{Context, RankTimes, StepTimes, settled};
use crate::cuda::cupti::OperationSpan;
use crate::cuda::engine::{Engine, Step, Timing};
use crate::cuda::generation::{ns, step_ends};
use crate::cuda::program::Program;
use crate::cuda::schedule::Schedule;
use crate::cuda::timing::{Bracket, Marks, Parts, RoundTrip, Skeleton, Tie, Timeline};
use crate::recorder::Times;
use crate::recorder::{Clock, range};
use base::error::{Error, Result};
use machine::driver::Event;
use plan::Phase;
use trace::OperationInfo;

/// Round trips for tying the clocks; the shortest counts.
const ROUND_TRIPS: usize = 64;

/// Timeout of one round trip.
const ROUND_TRIP_TIMEOUT: Duration = Duration::from_secs(10);

/// Copies of a phase's step with separate events: one is read while the next runs.
struct Instruments {
    skeleton: Skeleton,
    marks: Marks,
    steps: Vec<Step>,
}

impl Instruments {
    fn new(
        engine: &Engine,
        program: &Program,
        count: usize,
        make: impl Fn(Timing<'_>) -> Result<Step>,
    ) -> Result<Self> {
        let parts = parts(engine, program);
        let marks = Marks::around(&parts, true, |_| true);
        let steps = (0..count).map(|_| make(Timing { marks: Some(&marks), stamps: None }));
        Ok(Self { steps: steps.collect::<Result<_>>()?, skeleton: parts.skeleton(&program.plan), marks })
    }

    fn step(&mut self, step: usize) -> &mut Step {
        let count = self.steps.len();
        &mut self.steps[step % count]
    }

    fn start(&self, step: usize) -> Result<&Event> {
        let events = self.steps[step % self.steps.len()].marks(0);
        let start = self.marks.start().and_then(|mark| events.get(mark as usize));
        start.ok_or_else(|| Error::failed("a timed step without an event at its start"))
    }

    /// Spans of a finished step's parts, in ns since its start.
    fn read(&self, step: usize) -> Result<Vec<Option<OperationSpan>>> {
        let (events, start) = (self.steps[step % self.steps.len()].marks(0), self.start(step)?);
        let times = events.iter().map(|event| Ok(ns(event.elapsed_ms(start)?)));
        let times: Vec<i64> = times.collect::<Result<_>>()?;
        let span = |part| {
            let Bracket { start, end } = self.marks.bracket(part)?;
            let (start_ns, end_ns) = (*times.get(start as usize)?, *times.get(end as usize)?);
            Some(OperationSpan { start_ns, end_ns: end_ns.max(start_ns) })
        };
        Ok((0..self.skeleton.lanes.len()).map(span).collect())
    }
}

fn parts(engine: &Engine, program: &Program) -> Parts {
    Parts::of(&program.plan, &Schedule::new(&program.plan, &engine.layout, None))
}

/// Operations table of a generation timed by events.
pub(super) fn table(engine: &Engine) -> Vec<OperationInfo> {
    let programs = &engine.programs;
    let operations = trace::operations([&programs.prefill.plan], [&programs.decode.plan]);
    let mut table = parts(engine, &programs.prefill).table(&operations, programs.prefill.base, 0);
    let decode = parts(engine, &programs.decode);
    table.extend(decode.table(&operations, programs.decode.base, table.len() as u32));
    table
}

pub(super) fn run(context: &Context<'_>) -> Result<(Times, RankTimes)> {
    let (engine, spec) = (context.engine, context.spec);
    let (programs, steps) = (&engine.programs, context.steps());
    let mut prefill = Instruments::new(engine, &programs.prefill, 1, |timing| {
        engine.prefill_step(0, spec.batch, spec.prompt_tokens, timing)
    })?;
    let decode = || Instruments::new(engine, &programs.decode, 2, |timing| engine.decode_step(timing));
    let mut decode = (steps > 0).then(decode).transpose()?;
    let ends: Vec<Event> = (0..=steps).map(|_| engine.gpu.event(true)).collect::<Result<_>>()?;
    let started = engine.gpu.event(true)?;
    let ties: Vec<Event> =
        (0..2 * ROUND_TRIPS).map(|_| engine.gpu.event(true)).collect::<Result<_>>()?;
    let (first_ties, last_ties) = ties.split_at(ROUND_TRIPS);

    context.prepare()?;
    let (first, start_tie) = tie(engine, &context.clock, first_ties)?;
    engine.main().record(&started)?;
    {
        let _range = range("prefill, timed");
        engine.run(prefill.step(0))?;
        engine.main().record(&ends[0])?;
    }
    // per decode step: delay between the previous step's end and its start (ns), and its parts
    let mut read: Vec<(i64, Vec<Option<OperationSpan>>)> = Vec::with_capacity(steps);
    if let Some(decode) = &mut decode {
        let _range = range("decode, timed");
        let ahead = decode.steps.len() - 1;
        for step in 0..steps + ahead {
            // the step that used these events before has been read
            if step < steps {
                let _range = range("decode step, timed");
                engine.run(decode.step(step))?;
                engine.main().record(&ends[step + 1])?;
            }
            // while later steps run
            if let Some(done) = step.checked_sub(ahead) {
                wait_for(engine, &ends[done + 1], || {
                    format!("timed decode step {} of {steps}", done + 1)
                })?;
                read.push((ns(decode.start(done)?.elapsed_ms(&ends[done])?), decode.read(done)?));
            }
        }
    }
    wait_for(engine, &ends[steps], || "a timed generation".into())?;
    let (last, end_tie) = tie(engine, &context.clock, last_ties)?;
    // sum differences that are short enough for f32, starting at the first tie
    let to_prefill = ns(prefill.start(0)?.elapsed_ms(&first_ties[first])?);
    let mut starts = vec![to_prefill];
    let mut at = to_prefill + ns(ends[0].elapsed_ms(prefill.start(0)?)?);
    for (pair, (late, _)) in ends.windows(2).zip(&read) {
        starts.push(at + late);
        at += ns(pair[1].elapsed_ms(&pair[0])?);
    }
    let duration_ns = at + ns(last_ties[last].elapsed_ms(&ends[steps])?);
    let timeline = Timeline::between(start_tie, end_tie, duration_ns);

    let rank = context.rank();
    let mut of_rank = RankTimes {
        rank,
        uncertainty_ns: timeline.uncertainty_ns(),
        drift_ns: timeline.drift_ns(),
        duration_ns,
        events_per_step: decode.as_ref().map_or(0.0, |decode| decode.marks.count() as f64),
        ..RankTimes::default()
    };
    let of_prefill = [(Phase::Prefill, 0, &prefill, prefill.read(0)?)];
    let of_decode = read
        .into_iter()
        .zip(0..)
        .filter_map(|((_, found), step)| Some((Phase::Decode, step, decode.as_ref()?, found)));
    for ((phase, step, instruments, found), start) in of_prefill.into_iter().chain(of_decode).zip(starts)
    {
        let (length_ns, operations) = settled(&instruments.skeleton, &found, 0);
        let start_ns = timeline.host_ns(start);
        of_rank.steps.push(StepTimes { rank, phase, step, start_ns, length_ns, operations });
    }
    Ok((step_ends(&started, &ends)?, of_rank))
}

/// Ties the GPU's clock to the host's with the best of these events; returns its index and time.
fn tie(engine: &Engine, clock: &Clock, events: &[Event]) -> Result<(usize, Tie)> {
    let mut trips = Vec::with_capacity(events.len());
    for event in events {
        let before_ns = clock.now();
        engine.main().record(event)?;
        event.synchronize_within(ROUND_TRIP_TIMEOUT)?;
        trips.push(RoundTrip { before_ns, after_ns: clock.now() });
    }
    RoundTrip::best(&trips).ok_or_else(|| Error::failed("no events to tie clocks by"))
}

pub(super) fn wait_for(engine: &Engine, event: &Event, what: impl Fn() -> String) -> Result<()> {
    engine.wait(|| event.is_done(), what)
}
