//! One timed generation: the prefill and every decode step, enqueued ahead of the GPU, with one event at each
//! boundary and nothing else. Progress reports use the same events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cupti::{self, StepId};
use super::engine::{Engine, Step, Timing};
use super::timing::Stamps;
use super::timing::collectives::{self, Around, Choice, Took};
use crate::RunEvent;
use crate::comm::Peers;
use crate::measure::Times;
use crate::recorder::range;
use base::error::Result;
use machine::driver::Event;
use table::shared_gpu;

/// Number of decode steps to enqueue ahead: enough that the GPU never waits for the host, few enough that the
/// driver's queue never blocks.
const AHEAD: usize = 64;

/// Minimum interval between step reports to a watcher.
const INTERVAL: Duration = Duration::from_millis(100);

/// Interval of progress messages without a watcher.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Purpose of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Undisturbed times.
    Sample,
    /// Kernels stamp their times.
    Stamped,
    /// CUPTI records kernels.
    Recorded,
}

impl Purpose {
    /// NVTX ranges of the prefill and of a decode step.
    fn ranges(self) -> [&'static str; 2] {
        match self {
            Self::Sample => ["prefill", "decode step"],
            Self::Stamped => ["prefill, stamped", "decode step, stamped"],
            Self::Recorded => ["prefill, recorded", "decode step, recorded"],
        }
    }

    /// Number of decode steps to enqueue ahead of the one being waited for.
    fn ahead(self) -> usize {
        match self {
            // with a shared GPU, filling the driver's queue would block the other ranks
            _ if shared_gpu::is_on() => 1,
            // CUPTI keeps records in flight in GPU memory
            Self::Recorded => 16,
            Self::Sample | Self::Stamped => AHEAD,
        }
    }
}

pub(super) struct Generation {
    purpose: Purpose,
    prefill: Step,
    /// `None` if only one token is generated.
    decode: Option<Step>,
    around: Option<Around>,
    started: Event,
    /// End of the prefill and of each decode step.
    ends: Vec<Event>,
    sequences: u32,
}

/// Receiver of progress: step events if watched, else an occasional phase.
pub(super) type OnEvent<'a> = &'a mut dyn FnMut(RunEvent);

impl Generation {
    /// Creates the steps for prompts of equal length, with all sequences batched.
    pub fn new(engine: &Engine, sequences: u32, prompt: u32, output: u32) -> Result<Self> {
        Self::timed(engine, [sequences, prompt, output], Purpose::Sample, [None; 2], None)
    }

    /// Like [`Generation::new`], with stamps of prefill and decode steps, and events around the collectives of decode
    /// steps.
    pub fn timed(
        engine: &Engine,
        [sequences, prompt, output]: [u32; 3],
        purpose: Purpose,
        [of_prefill, of_decode]: [Option<&Stamps>; 2],
        around: Option<Around>,
    ) -> Result<Self> {
        let ends: Result<Vec<Event>> = (0..output).map(|_| engine.gpu().event(true)).collect();
        let timing = Timing { stamps: of_prefill, marks: None };
        let mut prefill = engine.prefill_step(0, sequences, prompt, timing)?;
        if shared_gpu::is_on() {
            engine.try_out(&mut prefill)?;
        }
        let timing = Timing { stamps: of_decode, marks: around.as_ref().map(Around::marks) };
        Ok(Self {
            purpose,
            prefill,
            decode: (output > 1).then(|| engine.decode_step(timing)).transpose()?,
            around,
            started: engine.gpu().event(true)?,
            ends: ends?,
            sequences,
        })
    }

    /// Prefill step and decode step.
    pub fn steps(&self) -> (&Step, Option<&Step>) {
        (&self.prefill, self.decode.as_ref())
    }

    /// Adds events around collectives that have their own stream, unless they slow the step down. Returns
    /// `None` if there are no such collectives. Collective over all ranks; discards generated tokens.
    pub fn time_collectives(
        &mut self,
        engine: &Engine,
        peers: Option<&Arc<Peers>>,
    ) -> Result<Option<Choice>> {
        let (Some(around), Some(without)) = (Around::of(engine), &mut self.decode) else {
            return Ok(None);
        };
        let mut with = engine.decode_step(Timing { marks: Some(around.marks()), stamps: None })?;
        let tokens = self.ends.len() as u32;
        let choice = collectives::choose(engine, peers, [without, &mut with], tokens)?;
        if choice.in_samples {
            self.decode = Some(with);
            self.around = Some(around);
        }
        Ok(Some(choice))
    }

    /// Durations of the collectives in the last finished decode step, from the events around them.
    pub fn collectives(&self) -> Result<Vec<Took>> {
        match (&self.around, &self.decode) {
            (Some(around), Some(decode)) => around.read(decode),
            _ => Ok(Vec::new()),
        }
    }

    pub fn graph_nodes(&self) -> Option<usize> {
        self.decode.as_ref()?.graph()?.nodes().ok()
    }

    /// Number of programmatic edges (early starts) in the graph of a decode step.
    pub fn programmatic_edges(&self) -> Option<usize> {
        self.decode.as_ref()?.graph()?.programmatic_edges().ok().flatten()
    }

    /// Prepares for [`Generation::run`] and waits until the GPU is idle.
    pub fn prepare(&self, engine: &Engine, prompts: &[u32]) -> Result<()> {
        engine.reset()?;
        engine.set_prompt(self.sequences, prompts)?;
        engine.wait_idle("preparing a generation")
    }

    /// Runs the generation and returns times in ns since its start. `watch` requests an event per step.
    pub fn run(
        &mut self,
        engine: &Engine,
        name: &str,
        watch: bool,
        on_event: OnEvent<'_>,
    ) -> Result<Times> {
        let steps = self.ends.len().saturating_sub(1);
        let ([prefill, decode_step], ahead) = (self.purpose.ranges(), self.purpose.ahead());
        let is_recorded = self.purpose == Purpose::Recorded;
        let of_step = |step: usize| is_recorded.then(|| cupti::step(StepId(step as u32)));
        let mut pace = Pace { name, watch, reported: None, alive: Instant::now(), done: 0 };
        engine.main().record(&self.started)?;
        {
            let (_range, _step) = (range(prefill), of_step(0));
            engine.run(&mut self.prefill)?;
            engine.main().record(&self.ends[0])?;
        }
        let _range = (self.purpose == Purpose::Sample).then(|| range("decode"));
        let mut known = 0;
        if let Some(decode) = &mut self.decode {
            for step in 1..=steps {
                if step > ahead {
                    known = step - ahead;
                    wait_for(engine, &self.ends, known)?;
                    pace.look(&self.ends, known, on_event)?;
                }
                let (_range, _step) = (range(decode_step), of_step(step));
                engine.run(decode)?;
                engine.main().record(&self.ends[step])?;
            }
        }
        for step in known..=steps {
            wait_for(engine, &self.ends, step)?;
            pace.look(&self.ends, step, on_event)?;
        }
        step_ends(&self.started, &self.ends)
    }
}

/// End times of the steps, in ns since the start of the generation.
pub(super) fn step_ends(started: &Event, ends: &[Event]) -> Result<Times> {
    // event times are f32: summing differences keeps resolution in long generations
    let Some(first) = ends.first() else { return Ok(Times::default()) };
    let mut at = ns(first.elapsed_ms(started)?);
    let prefill_end = at;
    let mut after = Vec::with_capacity(ends.len() - 1);
    for pair in ends.windows(2) {
        at += ns(pair[1].elapsed_ms(&pair[0])?);
        after.push(at);
    }
    Ok(Times { started: 0, prefill_end, step_ends: after })
}

/// Converts a driver time in ms to whole ns.
pub(super) fn ns(milliseconds: f32) -> i64 {
    (f64::from(milliseconds) * 1e6).round() as i64
}

/// Waits for the end of the prefill (0) or of a decode step.
fn wait_for(engine: &Engine, ends: &[Event], step: usize) -> Result<()> {
    engine.wait(
        || ends[step].is_done(),
        || match step {
            0 => "the prefill".into(),
            _ => format!("decode step {step} of {}", ends.len() - 1),
        },
    )
}

/// Rate limit of progress reports: at most ten per second for a watcher, rarely otherwise.
struct Pace<'a> {
    name: &'a str,
    watch: bool,
    reported: Option<Instant>,
    alive: Instant,
    done: usize,
}

impl Pace<'_> {
    /// Reports the steps since the last report to a watcher; without one, only that the run is alive.
    fn look(&mut self, ends: &[Event], done: usize, on_event: OnEvent<'_>) -> Result<()> {
        let of = ends.len().saturating_sub(1);
        if !self.watch {
            if self.alive.elapsed() >= SIGN_OF_LIFE {
                self.alive = Instant::now();
                on_event(RunEvent::Phase { name: format!("{}, step {done} of {of}", self.name) });
            }
            return Ok(());
        }
        let due = self.reported.is_none_or(|at| at.elapsed() >= INTERVAL);
        if !due || (done > 0 && done == self.done) {
            return Ok(());
        }
        let ms = if done == 0 { 0.0 } else { f64::from(ends[done].elapsed_ms(&ends[self.done])?) };
        on_event(RunEvent::Step {
            done: done as u32,
            of: of as u32,
            steps: (done - self.done) as u32,
            ms,
            lanes: Vec::new(),
        });
        self.reported = Some(Instant::now());
        self.done = done;
        Ok(())
    }
}
