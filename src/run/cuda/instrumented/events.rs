//! Operation times from CUDA events around modules on the compute stream and collectives on their own. One
//! replay times a whole step; its events are read while the next step runs with a second set.

use std::time::Duration;

use super::{InstrumentedRun, InstrumentedStep, RankTimes, settled};
use crate::cuda::cupti::OperationSpan;
use crate::cuda::engine::{Engine, PreparedStep, Timing};
use crate::cuda::generation::{ns, step_ends};
use crate::cuda::program::GpuProgram;
use crate::cuda::schedule::Schedule;
use crate::cuda::timing::{Bracket, ClockMapping, RoundTrip, Skeleton, StepEvents, StreamSegments, Tie};
use crate::recorder::{GenerationTimes, MonotonicClock, range};
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
    marks: StepEvents,
    steps: Vec<PreparedStep>,
}

impl Instruments {
    fn new(
        engine: &Engine,
        program: &GpuProgram,
        count: usize,
        make: impl Fn(Timing<'_>) -> Result<PreparedStep>,
    ) -> Result<Self> {
        let parts = parts(engine, program);
        let marks = StepEvents::around(&parts, true, |_| true);
        let steps = (0..count).map(|_| make(Timing { marks: Some(&marks), stamps: None }));
        Ok(Self { steps: steps.collect::<Result<_>>()?, skeleton: parts.skeleton(&program.plan), marks })
    }

    /// Copy that executes this step.
    fn step(&mut self, step: usize) -> &mut PreparedStep {
        let count = self.steps.len();
        &mut self.steps[step % count]
    }

    /// Event at the start of a step.
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

fn parts(engine: &Engine, program: &GpuProgram) -> StreamSegments {
    StreamSegments::new(&program.plan, &Schedule::new(&program.plan, &engine.layout, None))
}

/// Operations table of a generation timed by events: a row for each part.
pub(super) fn table(engine: &Engine) -> Vec<OperationInfo> {
    let programs = &engine.programs;
    let operations = trace::operations([&programs.prefill.plan], [&programs.decode.plan]);
    let mut table = parts(engine, &programs.prefill).table(&operations, programs.prefill.base, 0);
    let decode = parts(engine, &programs.decode);
    table.extend(decode.table(&operations, programs.decode.base, table.len() as u32));
    table
}

/// Decode step as read from its events.
struct TimedDecodeStep {
    /// Delay between the previous step's end and this step's start.
    delay_ns: i64,
    parts: Vec<Option<OperationSpan>>,
}

/// Times one generation with CUDA events.
pub(super) fn run(context: &InstrumentedRun<'_>) -> Result<(GenerationTimes, RankTimes)> {
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
    let decode_steps = match &mut decode {
        Some(decode) => run_decode(engine, decode, &ends)?,
        None => Vec::new(),
    };
    engine.wait(|| ends[steps].is_done(), || "a timed generation".into())?;
    let (last, end_tie) = tie(engine, &context.clock, last_ties)?;

    let (starts_ns, end_ns) = step_axis(&first_ties[first], prefill.start(0)?, &ends, &decode_steps)?;
    let duration_ns = end_ns + ns(last_ties[last].elapsed_ms(&ends[steps])?);
    let timeline = ClockMapping::between(start_tie, end_tie, duration_ns);

    let rank = context.rank();
    let mut rank_times = RankTimes {
        rank,
        uncertainty_ns: timeline.uncertainty_ns,
        drift_ns: timeline.drift_ns,
        duration_ns,
        events_per_step: decode.as_ref().map_or(0.0, |decode| decode.marks.count() as f64),
        ..RankTimes::default()
    };
    let timed_prefill = [(Phase::Prefill, 0, &prefill, prefill.read(0)?)];
    let timed_decode = decode_steps
        .into_iter()
        .zip(0..)
        .filter_map(|(timed, step)| Some((Phase::Decode, step, decode.as_ref()?, timed.parts)));
    for ((phase, step, instruments, parts), start_ns) in
        timed_prefill.into_iter().chain(timed_decode).zip(starts_ns)
    {
        let (length_ns, operations) = settled(&instruments.skeleton, &parts, 0);
        let start_ns = timeline.host_ns(start_ns);
        rank_times.steps.push(InstrumentedStep { rank, phase, step, start_ns, length_ns, operations });
    }
    Ok((step_ends(&started, &ends)?, rank_times))
}

/// Runs and times the decode steps; `ends` has the end of prefill, then of each step.
fn run_decode(
    engine: &Engine,
    decode: &mut Instruments,
    ends: &[Event],
) -> Result<Vec<TimedDecodeStep>> {
    let _range = range("decode, timed");
    let steps = ends.len() - 1;
    let mut timed = Vec::with_capacity(steps);
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
            let what = || format!("timed decode step {} of {steps}", done + 1);
            engine.wait(|| ends[done + 1].is_done(), what)?;
            let delay_ns = ns(decode.start(done)?.elapsed_ms(&ends[done])?);
            timed.push(TimedDecodeStep { delay_ns, parts: decode.read(done)? });
        }
    }
    Ok(timed)
}

/// Starts of prefill and of each decode step, and the end of the last one, on the GPU's clock (ns since the first tie).
/// Sums differences of events that are short enough for f32.
fn step_axis(
    first_tie: &Event,
    prefill_start: &Event,
    ends: &[Event],
    decode_steps: &[TimedDecodeStep],
) -> Result<(Vec<i64>, i64)> {
    let to_prefill = ns(prefill_start.elapsed_ms(first_tie)?);
    let mut starts_ns = vec![to_prefill];
    let mut end_ns = to_prefill + ns(ends[0].elapsed_ms(prefill_start)?);
    for (pair, step) in ends.windows(2).zip(decode_steps) {
        starts_ns.push(end_ns + step.delay_ns);
        end_ns += ns(pair[1].elapsed_ms(&pair[0])?);
    }
    Ok((starts_ns, end_ns))
}

/// Ties the GPU's clock to the host's with the best of these events; returns its index and time.
fn tie(engine: &Engine, clock: &MonotonicClock, events: &[Event]) -> Result<(usize, Tie)> {
    RoundTrip::quickest(
        events.len(),
        || clock.now(),
        |at| {
            engine.main().record(&events[at])?;
            events[at].synchronize_within(ROUND_TRIP_TIMEOUT)?;
            Ok(at)
        },
    )
}
