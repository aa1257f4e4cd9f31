//! One timed generation: the prefill, then every decode step, enqueued ahead of the GPU, with an event at
//! each boundary and nothing else. Watchers learn of steps from the same events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::around::{self, Around, Choice, Took};
use super::engine::{Engine, Step, Timing};
use crate::RunEvent;
use crate::comm::Peers;
use crate::measure::Times;
use crate::recorder::range;
use base::error::Result;
use base::shared_gpu;
use machine::driver::Event;

/// Decode steps that are enqueued before their results are looked at: enough that the GPU never waits
/// for the host, and few enough that the driver's queue never blocks it.
const AHEAD: usize = 64;

/// Least time between two steps that a watcher is told of.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often a generation says that it goes on, where nobody watches.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// The steps of a cell, ready to run again and again.
pub(super) struct Generation {
    prefill: Step,
    /// None where a generation is one token long.
    decode: Option<Step>,
    /// The events in the decode step, where it has any.
    around: Option<Around>,
    started: Event,
    /// When the prefill and each decode step had ended.
    ends: Vec<Event>,
    sequences: u32,
}

/// Who is told that a generation goes on: steps, where somebody watches; else a phase now and then.
pub(super) type OnEvent<'a> = &'a mut dyn FnMut(RunEvent);

impl Generation {
    /// A generation of all sequences together, with prompts of equal length.
    pub fn new(engine: &Engine, sequences: u32, prompt: u32, output: u32) -> Result<Self> {
        let ends: Result<Vec<Event>> = (0..output).map(|_| engine.gpu().event(true)).collect();
        let mut prefill = engine.prefill_step(0, sequences, prompt, Timing::default())?;
        if shared_gpu::is_on() {
            engine.try_out(&mut prefill)?;
        }
        Ok(Self {
            prefill,
            decode: (output > 1).then(|| engine.decode_step(Timing::default())).transpose()?,
            around: None,
            started: engine.gpu().event(true)?,
            ends: ends?,
            sequences,
        })
    }

    /// Puts events around the collectives of the decode step that have a stream of their own, if the step takes as long with
    /// them; `None` where there are none. All ranks together. What was generated is lost.
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
        let choice = around::choose(engine, peers, [without, &mut with], tokens)?;
        if choice.in_samples {
            self.decode = Some(with);
            self.around = Some(around);
        }
        Ok(Some(choice))
    }

    /// What the collectives of the last decode step took that has ended, by the events around them.
    pub fn collectives(&self) -> Result<Vec<Took>> {
        match (&self.around, &self.decode) {
            (Some(around), Some(decode)) => around.read(decode),
            _ => Ok(Vec::new()),
        }
    }

    /// How many nodes the graph of a decode step has.
    pub fn graph_nodes(&self) -> Option<usize> {
        self.decode.as_ref()?.graph()?.nodes().ok()
    }

    /// How many edges of the graph of a decode step let a kernel begin early.
    pub fn programmatic_edges(&self) -> Option<usize> {
        self.decode.as_ref()?.graph()?.programmatic_edges().ok().flatten()
    }

    /// Makes everything ready for [`Generation::run`], and waits for it.
    pub fn prepare(&self, engine: &Engine, prompts: &[u32]) -> Result<()> {
        engine.reset()?;
        engine.set_prompt(self.sequences, prompts)?;
        engine.wait_idle("preparing a generation")
    }

    /// Runs it; moments are ns since its start. `watch`: whether `on_event` wants to know of steps.
    pub fn run(
        &mut self,
        engine: &Engine,
        name: &str,
        watch: bool,
        on_event: OnEvent<'_>,
    ) -> Result<Times> {
        let steps = self.ends.len().saturating_sub(1);
        let mut pace = Pace { name, watch, reported: None, alive: Instant::now(), done: 0 };
        engine.main().record(&self.started)?;
        {
            let _range = range("prefill");
            engine.run(&mut self.prefill)?;
            engine.main().record(&self.ends[0])?;
        }
        let _range = range("decode");
        // of ranks that share a GPU one that fills the driver's queue would keep the others from theirs
        let ahead = if shared_gpu::is_on() { 1 } else { AHEAD };
        let mut known = 0;
        if let Some(decode) = &mut self.decode {
            for step in 1..=steps {
                if step > ahead {
                    known = step - ahead;
                    wait_for(engine, &self.ends, known)?;
                    pace.look(&self.ends, known, on_event)?;
                }
                let _range = range("decode step");
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

/// When steps ended, as a sample has it: ns since the generation's start.
pub(super) fn step_ends(started: &Event, ends: &[Event]) -> Result<Times> {
    // times are f32: the sum of differences keeps the resolution that a long generation's would lose
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

/// A driver's milliseconds, rounded to nanoseconds.
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

/// Telling of steps: a watcher at most ten times a second, others rarely.
struct Pace<'a> {
    /// Which generation it is, for people.
    name: &'a str,
    watch: bool,
    reported: Option<Instant>,
    alive: Instant,
    /// How many steps were reported so far.
    done: usize,
}

impl Pace<'_> {
    /// Tells, after `done` decode steps, who watches of the steps since the last report, and else only
    /// that the run is alive.
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
