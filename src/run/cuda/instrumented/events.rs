//! Operation times from CUDA events around modules on the compute stream and collectives on their own. One
//! replay times a whole step; its events are read while the next step runs with a second set. Tested on the software
//! CUDA device, in `tests/cuda/it/timing.rs`.

use std::iter;
use std::time::Duration;

use super::{InstrumentedRun, InstrumentedStep, RankTimes};
use crate::cuda::cupti::{OperationSpan, operation_times};
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
struct StepCopies {
    skeleton: Skeleton,
    events: StepEvents,
    copies: Vec<PreparedStep>,
}

impl StepCopies {
    fn new(
        engine: &Engine,
        program: &GpuProgram,
        count: usize,
        make: impl Fn(Timing<'_>) -> Result<PreparedStep>,
    ) -> Result<Self> {
        let segments = segments(engine, program);
        let events = StepEvents::around(&segments, true, |_| true);
        let copy = |_| make(Timing { marks: Some(&events), stamps: None });
        let copies = (0..count).map(copy).collect::<Result<_>>()?;
        Ok(Self { skeleton: segments.skeleton(&program.plan), events, copies })
    }

    /// Copy that executes this step.
    fn copy(&self, step: usize) -> &PreparedStep {
        &self.copies[step % self.copies.len()]
    }

    fn copy_mut(&mut self, step: usize) -> &mut PreparedStep {
        let count = self.copies.len();
        &mut self.copies[step % count]
    }

    /// Event at the start of a step.
    fn start(&self, step: usize) -> Result<&Event> {
        let start = self.events.start().and_then(|at| self.copy(step).marks(0).get(at as usize));
        start.ok_or_else(|| Error::failed("a timed step without an event at its start"))
    }

    /// Spans of a finished step's segments, in ns since its start.
    fn read(&self, step: usize) -> Result<Vec<Option<OperationSpan>>> {
        let (events, start) = (self.copy(step).marks(0), self.start(step)?);
        let times = events.iter().map(|event| Ok(ns(event.elapsed_ms(start)?)));
        let times: Vec<i64> = times.collect::<Result<_>>()?;
        let span = |segment| {
            let Bracket { start, end } = self.events.bracket(segment)?;
            let (start_ns, end_ns) = (*times.get(start as usize)?, *times.get(end as usize)?);
            Some(OperationSpan { start_ns, end_ns: end_ns.max(start_ns) })
        };
        Ok((0..self.skeleton.lanes.len()).map(span).collect())
    }
}

fn segments(engine: &Engine, program: &GpuProgram) -> StreamSegments {
    StreamSegments::new(&program.plan, &Schedule::new(&program.plan, &engine.layout, None))
}

/// Operations table of a generation timed by events: a row for each segment.
pub(super) fn segment_table(engine: &Engine) -> Vec<OperationInfo> {
    let programs = &engine.programs;
    let operations = trace::operations([&programs.prefill.plan], [&programs.decode.plan]);
    let mut table = segments(engine, &programs.prefill).table(&operations, programs.prefill.base, 0);
    let decode = segments(engine, &programs.decode);
    table.extend(decode.table(&operations, programs.decode.base, table.len() as u32));
    table
}

/// Decode step as read from its events.
struct TimedDecodeStep {
    /// Delay between the previous step's end and this step's start.
    delay_ns: i64,
    spans: Vec<Option<OperationSpan>>,
}

/// Times one generation with CUDA events.
pub(super) fn run(context: &InstrumentedRun<'_>) -> Result<(GenerationTimes, RankTimes)> {
    let (engine, spec) = (context.engine, context.spec);
    let (programs, steps) = (&engine.programs, context.steps());
    let mut prefill = StepCopies::new(engine, &programs.prefill, 1, |timing| {
        engine.prefill_step(0, spec.batch, spec.prompt_tokens, timing)
    })?;
    let make_decode =
        || StepCopies::new(engine, &programs.decode, 2, |timing| engine.decode_step(timing));
    let mut decode = (steps > 0).then(make_decode).transpose()?;
    let ends = allocate_events(engine, steps + 1)?;
    let started = engine.gpu.event(true)?;
    let start_trips = allocate_events(engine, ROUND_TRIPS)?;
    let end_trips = allocate_events(engine, ROUND_TRIPS)?;

    context.prepare()?;
    let (start_trip, start_tie) = tie_clocks(engine, &context.clock, &start_trips)?;
    engine.main().record(&started)?;
    let prefill_range = range("prefill, timed");
    engine.run(prefill.copy_mut(0))?;
    engine.main().record(&ends[0])?;
    drop(prefill_range);
    let decode_steps = match &mut decode {
        Some(decode) => run_decode(engine, decode, &ends)?,
        None => Vec::new(),
    };
    engine.wait(|| ends[steps].is_done(), || "a timed generation".into())?;
    let (end_trip, end_tie) = tie_clocks(engine, &context.clock, &end_trips)?;

    let (starts_ns, end_ns) =
        steps_since_tie(&start_trips[start_trip], prefill.start(0)?, &ends, &decode_steps)?;
    let duration_ns = end_ns + ns(end_trips[end_trip].elapsed_ms(&ends[steps])?);
    let timeline = ClockMapping::between(start_tie, end_tie, duration_ns);

    let timed_prefill = (Phase::Prefill, 0, &prefill.skeleton, prefill.read(0)?);
    let timed_decode = decode_steps.into_iter().zip(0..).filter_map(|(timed, step)| {
        Some((Phase::Decode, step, &decode.as_ref()?.skeleton, timed.spans))
    });
    let rank = context.rank();
    let timed_steps = iter::once(timed_prefill).chain(timed_decode).zip(starts_ns);
    let steps = timed_steps.map(|((phase, step, skeleton, spans), start_ns)| {
        let (length_ns, operations) = operation_times(skeleton, &spans, 0);
        let start_ns = timeline.host_ns(start_ns);
        InstrumentedStep { rank, phase, step, start_ns, length_ns, operations }
    });
    let rank_times = RankTimes {
        rank,
        steps: steps.collect(),
        uncertainty_ns: timeline.uncertainty_ns,
        drift_ns: timeline.drift_ns,
        duration_ns,
        events_per_step: decode.as_ref().map_or(0.0, |decode| decode.events.count() as f64),
        ..RankTimes::default()
    };
    Ok((step_ends(&started, &ends)?, rank_times))
}

fn allocate_events(engine: &Engine, count: usize) -> Result<Vec<Event>> {
    (0..count).map(|_| engine.gpu.event(true)).collect()
}

/// Runs and times the decode steps; `ends` has the end of prefill, then of each step.
fn run_decode(engine: &Engine, decode: &mut StepCopies, ends: &[Event]) -> Result<Vec<TimedDecodeStep>> {
    let _range = range("decode, timed");
    let steps = ends.len() - 1;
    let mut timed = Vec::with_capacity(steps);
    let ahead = decode.copies.len() - 1;
    for step in 0..steps + ahead {
        // the step that used these events before has been read
        if step < steps {
            let _range = range("decode step, timed");
            engine.run(decode.copy_mut(step))?;
            engine.main().record(&ends[step + 1])?;
        }
        // while later steps run
        if let Some(done) = step.checked_sub(ahead) {
            let what = || format!("timed decode step {} of {steps}", done + 1);
            engine.wait(|| ends[done + 1].is_done(), what)?;
            let delay_ns = ns(decode.start(done)?.elapsed_ms(&ends[done])?);
            timed.push(TimedDecodeStep { delay_ns, spans: decode.read(done)? });
        }
    }
    Ok(timed)
}

/// Starts of prefill and of each decode step, and the end of the last one, on the GPU's clock (ns since the event
/// `tied`). Sums differences of events that are short enough for f32.
fn steps_since_tie(
    tied: &Event,
    prefill_start: &Event,
    ends: &[Event],
    decode_steps: &[TimedDecodeStep],
) -> Result<(Vec<i64>, i64)> {
    let to_prefill = ns(prefill_start.elapsed_ms(tied)?);
    let mut starts_ns = vec![to_prefill];
    let mut end_ns = to_prefill + ns(ends[0].elapsed_ms(prefill_start)?);
    for (pair, step) in ends.windows(2).zip(decode_steps) {
        starts_ns.push(end_ns + step.delay_ns);
        end_ns += ns(pair[1].elapsed_ms(&pair[0])?);
    }
    Ok((starts_ns, end_ns))
}

/// Ties the GPU's clock to the host's with the best of these events; returns its index and time.
fn tie_clocks(engine: &Engine, clock: &MonotonicClock, events: &[Event]) -> Result<(usize, Tie)> {
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
