//! One timed generation, and text generation from prompts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cupti::{self, StepId};
use super::engine::{Engine, EngineSetup, Local, PreparedStep, Programs, Timing};
use super::instrumented::Stamps;
use super::kernels::geometry;
use super::ranks::{alive, among_peers, on_threads};
use super::timing::collectives::{self, CollectiveEvents, CollectiveTime, EventChoice};
use crate::comm::Peers;
use crate::comm::nccl::Nccl;
use crate::generate::{
    CHUNK, GenerateOptions, GenerateRequest, GenerationResult, GenerationStatus, PromptLogits, Sampling,
    StatusCallback,
};
use crate::recorder::{GenerationTimes, range};
use crate::{PlanBackend, RunEvent};
use base::error::{Error, Result};
use machine::driver::{Event, Gpu};
use plan::Phase;
use table::shared_gpu;

/// Number of decode steps to enqueue ahead: enough that the GPU never waits for the host, few enough that the
/// driver's queue never blocks.
const MAX_STEPS_AHEAD: usize = 64;

/// Minimum interval between step reports to a watcher.
const STEP_REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of progress messages without a watcher.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Purpose of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Sample of a record: no stamps, no CUPTI.
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
            Self::Sample | Self::Stamped => MAX_STEPS_AHEAD,
        }
    }
}

pub(super) struct Generation {
    purpose: Purpose,
    prefill: PreparedStep,
    /// `None` if only one token is generated.
    decode: Option<PreparedStep>,
    events: Option<CollectiveEvents>,
    started: Event,
    /// End of the prefill and of each decode step.
    ends: Vec<Event>,
}

/// Receiver of progress: step events if watched, else an occasional phase.
type OnEvent<'a> = &'a mut dyn FnMut(RunEvent);

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
        events: Option<CollectiveEvents>,
    ) -> Result<Self> {
        let ends: Result<Vec<Event>> = (0..output).map(|_| engine.gpu.event(true)).collect();
        let timing = Timing { stamps: of_prefill, marks: None };
        let mut prefill = engine.prefill_step(0, sequences, prompt, timing)?;
        if shared_gpu::is_on() {
            engine.try_out(&mut prefill)?;
        }
        let timing = Timing { stamps: of_decode, marks: events.as_ref().map(CollectiveEvents::marks) };
        Ok(Self {
            purpose,
            prefill,
            decode: (output > 1).then(|| engine.decode_step(timing)).transpose()?,
            events,
            started: engine.gpu.event(true)?,
            ends: ends?,
        })
    }

    /// Prefill step and decode step.
    pub fn steps(&self) -> (&PreparedStep, Option<&PreparedStep>) {
        (&self.prefill, self.decode.as_ref())
    }

    /// Adds events around collectives that have their own stream, unless they slow the step down. Returns
    /// `None` if there are no such collectives. Collective over all ranks; discards generated tokens.
    pub fn time_collectives(
        &mut self,
        engine: &Engine,
        peers: Option<&Arc<Peers>>,
    ) -> Result<Option<EventChoice>> {
        let (Some(events), Some(without)) = (CollectiveEvents::from_engine(engine), &mut self.decode)
        else {
            return Ok(None);
        };
        let mut with = engine.decode_step(Timing { marks: Some(events.marks()), stamps: None })?;
        let tokens = self.ends.len() as u32;
        let choice = collectives::choose_events(engine, peers, without, &mut with, tokens)?;
        if choice.in_samples {
            self.decode = Some(with);
            self.events = Some(events);
        }
        Ok(Some(choice))
    }

    /// Durations of the collectives in the last finished decode step, from the events around them.
    pub fn collectives(&self) -> Result<Vec<CollectiveTime>> {
        match (&self.events, &self.decode) {
            (Some(events), Some(decode)) => events.read(decode),
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

    /// Runs the generation that [`Engine::prepare`] prepared and returns times in ns since its start. `watch` requests
    /// an event per step.
    pub fn run(
        &mut self,
        engine: &Engine,
        name: &str,
        watch: bool,
        on_event: OnEvent<'_>,
    ) -> Result<GenerationTimes> {
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
pub(super) fn step_ends(started: &Event, ends: &[Event]) -> Result<GenerationTimes> {
    // event times are f32: summing differences keeps resolution in long generations
    let Some(first) = ends.first() else { return Ok(GenerationTimes::default()) };
    let mut at = ns(first.elapsed_ms(started)?);
    let prefill_end = at;
    let mut after = Vec::with_capacity(ends.len() - 1);
    for pair in ends.windows(2) {
        at += ns(pair[1].elapsed_ms(&pair[0])?);
        after.push(at);
    }
    Ok(GenerationTimes { started: 0, prefill_end, step_ends: after })
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
        let total = ends.len().saturating_sub(1);
        if !self.watch {
            if self.alive.elapsed() >= PROGRESS_INTERVAL {
                self.alive = Instant::now();
                on_event(RunEvent::Phase { name: format!("{}, step {done} of {total}", self.name) });
            }
            return Ok(());
        }
        let due = self.reported.is_none_or(|at| at.elapsed() >= STEP_REPORT_INTERVAL);
        if !due || (done > 0 && done == self.done) {
            return Ok(());
        }
        let ms = if done == 0 { 0.0 } else { f64::from(ends[done].elapsed_ms(&ends[self.done])?) };
        on_event(RunEvent::Step {
            done: done as u32,
            of: total as u32,
            steps: (done - self.done) as u32,
            ms,
            lanes: Vec::new(),
        });
        self.reported = Some(Instant::now());
        self.done = done;
        Ok(())
    }
}

/// Decode steps between two progress checks, if the caller wants progress.
const LOOK_EVERY: u32 = 16;

/// Generates tokens. `on_token` occasionally receives the number of tokens per sequence so far, `say`
/// receives progress messages.
pub fn generate(
    request: &GenerateRequest,
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(usize),
    say: &mut StatusCallback<'_>,
) -> Result<GenerationResult> {
    request.check()?;
    super::CudaBackend.check_format(request.dtype)?;
    let longest = request.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let whole = |number: usize, what: &str| {
        u32::try_from(number).map_err(|_| Error::input(format!("{number} {what} are too many")))
    };
    let GenerateRequest { model, architecture, dtype, tp, .. } = request;
    let setup = EngineSetup {
        seed: request.seed,
        sampling: request.sampling(),
        sequences: whole(request.prompts.len(), "prompts")?,
        capacity: whole(request.capacity(), "tokens of a sequence")?,
        output_tokens: request.output_tokens,
        prefill: (1, longest.min(CHUNK) as u32),
        all_logits: true,
        variant: request.variant,
        graph: options.graph,
        timeout: options.timeout,
        ..EngineSetup::new(model.clone(), architecture.clone(), *dtype, *tp)?
    };
    if let Some(note) = slow_sampling(setup.sampling, request.model.shape.vocab) {
        say(GenerationStatus::Note(&note));
    }
    let programs = Arc::new(Programs::new(&setup)?);
    let gpus = Gpu::count()?;
    if request.tp == 1 || gpus < request.tp as usize || shared_gpu::is_on() {
        if request.tp > 1 {
            say(GenerationStatus::Note(&format!(
                "{} ranks share one GPU, and their all-reduces are a kernel on it",
                request.tp
            )));
        }
        let (local, mut on_phase) =
            (Local::on_one_gpu(request.tp), |what: &str| say(GenerationStatus::Phase(what)));
        let engine = Engine::new(&Gpu::open(0)?, &setup, programs, local, alive(None), &mut on_phase)?;
        return on_engine(&engine, request, &Ok, on_token);
    }
    over_nccl(request, &setup, &programs, on_token, &mut |what| say(GenerationStatus::Phase(what)))
}

/// Warning if sampling among this many candidates is slow.
fn slow_sampling(sampling: Sampling, vocab: u32) -> Option<String> {
    let Sampling::Random { top_k, .. } = sampling else { return None };
    let (candidates, few) = (top_k.min(vocab as usize), geometry::FEW_CANDIDATES);
    (candidates > few as usize).then(|| {
        format!(
            "the {candidates} likeliest tokens are sorted in memory, not in a multiprocessor: each step takes longer than \
             among {few} or fewer (--top-k)"
        )
    })
}

/// Runs one thread and GPU per rank; rank 0 runs on this thread and returns the result.
fn over_nccl(
    request: &GenerateRequest,
    setup: &EngineSetup,
    programs: &Arc<Programs>,
    on_token: &mut dyn FnMut(usize),
    on_phase: &mut dyn FnMut(&str),
) -> Result<GenerationResult> {
    let nccl = Nccl::load()?;
    let rank = |peers: &Arc<Peers>, on_token: &mut dyn FnMut(usize), on_phase: &mut dyn FnMut(&str)| {
        among_peers(nccl, peers.rank(), peers, None, |gpu, local| {
            let (programs, alive) = (Arc::clone(programs), alive(Some(peers)));
            let engine = Engine::new(gpu, setup, programs, local, alive, on_phase)?;
            peers.barrier()?;
            let first_says = |stopped: bool| {
                Ok(peers.broadcast(vec![u8::from(stopped)])?.first().is_some_and(|said| *said != 0))
            };
            let generated = on_engine(&engine, request, &first_says, on_token)?;
            peers.barrier()?;
            Ok(generated)
        })
    };
    // ranks compute the same tokens if the architecture keeps them in sync; otherwise rank 0 decides
    on_threads(
        Peers::threads(setup.tp as usize, setup.timeout),
        |peers| rank(peers, on_token, on_phase),
        |peers| rank(peers, &mut |_| (), &mut |_| ()),
    )
}

/// Generates on one engine. `agree` turns each rank's wish to stop into one decision: a rank that continued
/// alone would deadlock.
fn on_engine(
    engine: &Engine,
    request: &GenerateRequest,
    agree: &dyn Fn(bool) -> Result<bool>,
    on_token: &mut dyn FnMut(usize),
) -> Result<GenerationResult> {
    let vocab = request.model.shape.vocab as usize;
    let mut generated = GenerationResult::default();
    let steps = request.output_tokens - 1;
    // the trial run before the first capture changes the state, so it comes first
    let mut decode = if steps > 0 { Some(engine.decode_step(Timing::default())?) } else { None };
    engine.reset()?;
    for (sequence, prompt) in request.prompts.iter().enumerate() {
        let mut seen = PromptLogits::default();
        for first in (0..prompt.len()).step_by(CHUNK) {
            let tokens = &prompt[first..(first + CHUNK).min(prompt.len())];
            engine.set_prompt(1, tokens)?;
            let mut step =
                engine.prefill_step(sequence as u32, 1, tokens.len() as u32, Timing::default())?;
            engine.run(&mut step)?;
            let what = format!("prefill of prompt {sequence}");
            engine.wait_idle(&what)?;
            seen.take(prompt, first, &engine.logits(Phase::Prefill, tokens.len())?, vocab);
            if first + tokens.len() < prompt.len() {
                // only the last chunk's token continues the prompt
                engine.forget_tokens(sequence as u32)?;
            }
        }
        seen.finish(prompt, &mut generated);
    }
    let mut made = 1;
    if let Some(step) = &mut decode {
        while made < request.output_tokens {
            on_token(made as usize);
            let next = (made + LOOK_EVERY).min(request.output_tokens);
            for _ in made..next {
                engine.run(step)?;
            }
            engine.wait_idle(&format!("decode steps {made} to {}", next - 1))?;
            made = next;
            if request.stop_at.is_empty() {
                continue;
            }
            let tokens = engine.tokens(made)?;
            if agree(tokens.iter().all(|tokens| stop(tokens, &request.stop_at).is_some()))? {
                break;
            }
        }
    }
    generated.tokens = engine.tokens(made)?;
    for tokens in &mut generated.tokens {
        if let Some(length) = stop(tokens, &request.stop_at) {
            tokens.truncate(length);
        }
    }
    Ok(generated)
}

/// Length of a sequence up to its first stop token, if any.
fn stop(tokens: &[u32], stop_at: &[u32]) -> Option<usize> {
    tokens.iter().position(|token| stop_at.contains(token)).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_ends_with_its_first_end_token() {
        assert_eq!(stop(&[3, 7, 9, 7], &[7, 8]), Some(2));
        assert_eq!(stop(&[3, 7], &[]), None);
        assert_eq!(stop(&[8], &[8]), Some(1));
        assert_eq!(stop(&[], &[8]), None);
    }

    #[test]
    fn many_candidates_are_told_to_be_slow() {
        let of =
            |top_k, vocab| slow_sampling(Sampling::Random { temperature: 1.0, top_k, seed: 0 }, vocab);
        assert!(of(2000, 32_000).is_some_and(|said| said.starts_with("the 2000 likeliest tokens")));
        assert!(of(1 << 40, 32_000).is_some_and(|said| said.starts_with("the 32000 likeliest tokens")));
        assert_eq!(
            [of(1024, 32_000), of(2000, 256), slow_sampling(Sampling::Greedy, 32_000)],
            [None, None, None]
        );
    }
}
