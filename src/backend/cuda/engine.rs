//! Executes schedules on one GPU for one or several local ranks: loads what they need, captures a decode
//! step once, replays it; or enqueues it eagerly.
//!
//! All methods belong to one thread. What is enqueued is not waited for: [`Engine::wait`] does that, with
//! a limit, and looks meanwhile whether another rank has died.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blas::Blas;
use super::choose::Product;
use super::collective::{Collective, EmulatedScratch, LoopbackTable, Reduction, emulated_call};
use super::cupti;
use super::driver::{
    Arguments, Event, Function, Gpu, Graph, GraphExec, Launch, Memory, Priority, Stream,
};
use super::kernels::{KernelOptions, Kernels};
use super::launches::{Binder, Call, MatvecChoice, StepSize};
use super::load::{self, Loader};
use super::program::Program;
use super::rank::{Activations, RankMemory, Sizes, Weights, is_whole};
use super::schedule::{Item, Layout, Marks, Schedule, StreamId};
use super::tuning::Tuning;
use crate::backend::sample::Sampling;
use crate::comm::Progress;
use crate::error::{Error, Result};
use crate::model::{DType, Model, ModelShape, WeightSource};
use crate::plan::{Architecture, Element, Kind, Lane, Phase};
use crate::record::range;

/// Memory that is left alone, at most: graphs, modules, what libraries load when they first need it
/// (bytes).
const RESERVE_BYTES: u64 = 1 << 30;

/// What an engine is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The model.
    pub model: Model,
    /// Residual wiring.
    pub architecture: Architecture,
    /// Format of everything.
    pub dtype: DType,
    /// Ranks in all, local or not.
    pub tp: u32,
    /// Seed of random weights.
    pub seed: u64,
    /// How tokens are chosen.
    pub(in crate::backend) sampling: Sampling,
    /// Sequences decoded together.
    pub sequences: u32,
    /// Tokens that each sequence's KV cache has room for.
    pub capacity: u32,
    /// New tokens of each sequence.
    pub output_tokens: u32,
    /// Sequences and new tokens of each in the largest prefill step.
    pub prefill: (u32, u32),
    /// Prefill yields the logits of every position.
    pub all_logits: bool,
    /// Whether decode steps are captured and replayed; else they are enqueued eagerly.
    pub graph: bool,
    /// What can be changed of how steps run.
    pub tuning: Tuning,
    /// Who multiplies few rows by a matrix.
    pub matvec: MatvecChoice,
    /// How long nothing may happen before the run is given up.
    pub timeout: Duration,
    /// Told of every step that has ended.
    pub progress: Arc<Progress>,
}

/// Which ranks an engine drives.
#[derive(Debug)]
pub struct Local {
    /// Their indices among all.
    pub ranks: std::ops::Range<u32>,
    /// Who sums over all of them.
    pub collective: Collective,
}

/// Plans of both phases.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The prompt.
    pub prefill: Program,
    /// The other tokens.
    pub decode: Program,
}

impl Programs {
    /// Of a setup.
    pub fn new(setup: &Setup) -> Result<Self> {
        let program = |phase, all_logits, base| {
            let shape = &setup.model.shape;
            Program::new(shape, &setup.architecture, setup.tp, setup.dtype, phase, all_logits, base)
        };
        let prefill = program(Phase::Prefill, setup.all_logits, 0)?;
        let decode = program(Phase::Decode, false, prefill.plan.operations.len() as u32)?;
        Ok(Self { prefill, decode })
    }

    /// Of a phase.
    pub fn of(&self, phase: Phase) -> &Program {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }
}

/// One phase's memory, and what is the same for all its steps.
struct PhaseState {
    schedule: Schedule,
    activations: Vec<Activations>,
    table: Option<LoopbackTable>,
}

/// A step that is ready to run: bound to memory, scheduled, perhaps captured.
pub struct Step {
    phase: Phase,
    schedule: Schedule,
    events: Vec<Event>,
    /// For each local rank and operation.
    calls: Vec<Vec<Vec<Call>>>,
    /// For each operation that is a collective of all local ranks, or emulated: its launch.
    reductions: HashMap<usize, (Function, Launch, Arguments)>,
    /// Timed events, by local rank and mark.
    marks: Vec<Vec<Event>>,
    graph: Option<(Graph, GraphExec)>,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let captured = self.graph.is_some();
        f.debug_struct("Step").field("phase", &self.phase).field("captured", &captured).finish()
    }
}

impl Step {
    /// What it enqueues, in order.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The timed events of a local rank, by mark; recorded anew by each run.
    pub fn marks(&self, local_rank: usize) -> &[Event] {
        self.marks.get(local_rank).map_or(&[], Vec::as_slice)
    }

    /// The operations for which a local rank launches something.
    pub fn launches(&self, local_rank: usize) -> Vec<u32> {
        let calls = self.calls.get(local_rank).map_or(&[][..], Vec::as_slice).iter().enumerate();
        let launched = calls.filter(|(at, calls)| !calls.is_empty() || self.reductions.contains_key(at));
        launched.map(|(at, _)| at as u32).collect()
    }

    /// The graph that was captured; `None` where it runs eagerly.
    pub fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref().map(|(graph, _)| graph)
    }
}

/// One GPU and the ranks on it.
pub struct Engine {
    setup: Setup,
    programs: Arc<Programs>,
    collective: Collective,
    emulated: Option<EmulatedScratch>,
    prefill: PhaseState,
    decode: PhaseState,
    ranks: Vec<RankMemory>,
    /// Prompt tokens of a prefill step.
    prompt: Memory,
    kernels: Kernels,
    blas: Blas,
    streams: HashMap<StreamId, Stream>,
    layout: Layout,
    gpu: Gpu,
    /// Free memory of the GPU before anything was loaded (bytes).
    free_before: u64,
    /// Whether a decode step has run outside of a capture.
    tried: Cell<bool>,
    /// Asked while waiting: an error where another rank has ended.
    alive: Alive,
}

/// Says whether the other ranks are well.
pub type Alive = Arc<dyn Fn() -> Result<()> + Send + Sync>;

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("gpu", &self.gpu).field("layout", &self.layout).finish()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // a collective that never ends would let every free wait for ever
        if let Collective::Nccl(communicator) = &self.collective
            && !self.main().is_done().unwrap_or(true)
        {
            communicator.abort("the run has ended");
        }
        // where it still does not end, the driver layer gives the GPU up and frees nothing
        let _ = self.main().synchronize_within(Duration::from_secs(2));
    }
}

impl Engine {
    /// Checks that everything fits, loads weights, allocates the rest. `tell` hears what goes on, for
    /// people.
    ///
    /// # Errors
    ///
    /// Too little memory, before anything is loaded, with the arithmetic; a kernel that does not compile;
    /// a library that is missing; a checkpoint that cannot be read; what the driver answers.
    pub fn new(
        gpu: &Gpu,
        setup: &Setup,
        programs: Arc<Programs>,
        local: Local,
        alive: Alive,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        gpu.bind()?;
        let shape = &setup.model.shape;
        let ranks = local.ranks.len() as u32;
        let layout = match local.collective {
            Collective::Loopback => Layout::loopback(ranks),
            _ if ranks == 1 => Layout::ONE,
            _ => return Err(Error::failed(format!("{ranks} ranks on one GPU need loopback sums"))),
        };
        let sizes = sizes(setup, gpu, &programs, &local.collective);
        let (free_before, total) = gpu.memory()?;
        check_memory(gpu, setup, &sizes, &programs, ranks, (free_before, total))?;
        tell("compiling kernels");
        let kernels = Kernels::new(
            gpu,
            &KernelOptions {
                dtype: setup.dtype,
                head_dim: shape.head_dim,
                group: shape.heads / shape.kv_heads,
                programmatic: setup.tuning.programmatic && can_overlap(gpu),
            },
        )?;
        let blas = Blas::new(gpu)?;
        let schedule = |program: &Program| Schedule::new(&program.plan, &layout, None);
        let (prefill_schedule, decode_schedule) =
            (schedule(&programs.prefill), schedule(&programs.decode));
        let mut streams = HashMap::new();
        for id in decode_schedule.streams().into_iter().chain(prefill_schedule.streams()) {
            if let std::collections::hash_map::Entry::Vacant(entry) = streams.entry(id) {
                let priority = if id.lane == Lane::Comm { Priority::High } else { Priority::Normal };
                let stream = entry.insert(gpu.stream(priority)?);
                if id.lane == Lane::Compute {
                    blas.reserve(stream)?;
                }
            }
        }
        let main = streams
            .get(&StreamId { rank: 0, lane: Lane::Compute })
            .ok_or_else(|| Error::failed("a plan without compute operations"))?;
        let source = WeightSource::open(&setup.model, setup.seed)?;
        let weights =
            load_weights(gpu, main, &kernels, &source, setup, &programs.decode, &local, &alive, tell)?;
        tell("allocating the KV cache");
        let rope = Arc::new(rope_table(gpu, main, shape, setup.capacity)?);
        let memories: Result<Vec<RankMemory>> = local
            .ranks
            .clone()
            .zip(weights)
            .map(|(rank, weights)| RankMemory::new(gpu, shape, &sizes, rank, weights, Arc::clone(&rope)))
            .collect();
        let memories = memories?;
        let phase = |program: &Program, schedule: Schedule| -> Result<PhaseState> {
            let what = format!("activations of {}", program.plan.phase.as_str());
            let bytes = sizes.buffers(program);
            let activations: Result<Vec<_>> =
                (0..ranks).map(|_| Activations::new(gpu, &bytes, &what)).collect();
            let activations = activations?;
            let table = match local.collective {
                Collective::Loopback => {
                    Some(LoopbackTable::new(gpu, main, &reductions(program, &activations, 0))?)
                }
                _ => None,
            };
            Ok(PhaseState { schedule, activations, table })
        };
        let prefill = phase(&programs.prefill, prefill_schedule)?;
        let decode = phase(&programs.decode, decode_schedule)?;
        let rows = u64::from(setup.prefill.0) * u64::from(setup.prefill.1);
        let emulated = match local.collective {
            Collective::Emulated(_) => {
                let rows = rows.max(u64::from(setup.sequences));
                let bytes = rows * u64::from(shape.hidden) * setup.dtype.bytes();
                Some(EmulatedScratch::new(gpu, main, bytes)?)
            }
            _ => None,
        };
        let prompt = gpu.allocate(rows * 4, "prompt tokens")?;
        let engine = Self {
            setup: setup.clone(),
            programs,
            collective: local.collective,
            emulated,
            prefill,
            decode,
            ranks: memories,
            prompt,
            kernels,
            blas,
            streams,
            layout,
            gpu: gpu.clone(),
            free_before,
            tried: Cell::new(false),
            alive,
        };
        // uploads that went past the streams are there, too
        engine.wait_idle("loading")?;
        engine.gpu.synchronize()?;
        Ok(engine)
    }

    /// The first local rank's compute stream, on which every step begins and ends.
    pub fn main(&self) -> &Stream {
        &self.streams[&StreamId { rank: 0, lane: Lane::Compute }]
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Plans of both phases.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Which ranks it drives, and how.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The local ranks among all.
    pub fn ranks(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.index).collect()
    }

    /// Who sums over the ranks.
    pub fn collective(&self) -> &Collective {
        &self.collective
    }

    /// Who multiplies few rows by a matrix in steps that are made from now on.
    pub fn set_matvec(&mut self, choice: MatvecChoice) {
        self.setup.matvec = choice;
    }

    /// Who multiplies few rows by a matrix.
    pub fn matvec(&self) -> &MatvecChoice {
        &self.setup.matvec
    }

    /// cuBLASLt.
    pub(super) fn blas(&self) -> &Blas {
        &self.blas
    }

    /// Each shape of product of a decode step, with the first local rank's memory.
    pub(super) fn products(&self) -> Result<Vec<Product>> {
        let program = &self.programs.decode;
        let plan = &program.plan;
        let (Some(rank), Some(activations)) = (self.ranks.first(), self.decode.activations.first())
        else {
            return Ok(Vec::new());
        };
        let size = StepSize::decode(self.setup.sequences);
        let all = self.gpu.info().multiprocessors;
        let mut products: Vec<Product> = Vec::new();
        let matmuls = plan.operations.iter().zip(program.beside_collectives());
        for (operation, beside) in matmuls.filter(|(o, _)| o.kind == Kind::MatMul) {
            let taken = if beside { self.taken_by_collectives(size.rows()) } else { 0 };
            let Some(weight) = operation.weight.map(|w| &plan.weights[w.index()]) else { continue };
            let out = &plan.values[operation.writes[0].index()];
            let (rows, logits) = (size.rows_of(out.rows), out.element == Element::Logit);
            let address = rank.weight(&weight.name)?;
            let same = |p: &&mut Product| {
                (p.rows, p.inputs, p.outputs, p.logits) == (rows, weight.inputs, weight.outputs, logits)
            };
            match products.iter_mut().find(same) {
                Some(known) => {
                    known.weights.push(address);
                    known.multiprocessors = known.multiprocessors.min(all.saturating_sub(taken).max(1));
                }
                None => products.push(Product {
                    rows,
                    inputs: weight.inputs,
                    outputs: weight.outputs,
                    logits,
                    whole: is_whole(weight),
                    multiprocessors: all.saturating_sub(taken).max(1),
                    x: activations.buffer(program.buffer(operation.reads[0])),
                    weights: vec![address],
                    out: activations.buffer(program.buffer(operation.writes[0])),
                }),
            }
        }
        Ok(products)
    }

    /// Format of everything.
    pub fn dtype(&self) -> DType {
        self.setup.dtype
    }

    /// The kernels, for what they have to say.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Memory that the process took of the GPU since before loading, for each local rank (bytes).
    pub fn memory_per_rank(&self) -> Result<u64> {
        let (free, _) = self.gpu.memory()?;
        Ok(self.free_before.saturating_sub(free) / self.ranks.len().max(1) as u64)
    }

    /// A decode step: captured, ready to replay, unless graphs are off. With `marks`, a timed one:
    /// `count` events a local rank. Before the first capture the step is tried, after which nothing that
    /// was generated is left.
    pub fn decode_step(&self, marks: Option<(Marks<'_>, u32)>) -> Result<Step> {
        let size = StepSize::decode(self.setup.sequences);
        let mut step = self.step(Phase::Decode, &size, marks)?;
        if self.setup.graph {
            if !self.tried.replace(true) {
                self.try_out(&mut step)?;
            }
            self.capture(&mut step)?;
        }
        Ok(step)
    }

    /// A prefill step of `tokens` new tokens of each of `sequences` sequences from `first_sequence` on;
    /// always eager.
    pub fn prefill_step(
        &self,
        first_sequence: u32,
        sequences: u32,
        tokens: u32,
        marks: Option<(Marks<'_>, u32)>,
    ) -> Result<Step> {
        let most = u64::from(self.setup.prefill.0) * u64::from(self.setup.prefill.1);
        let rows = u64::from(sequences) * u64::from(tokens);
        if rows > most || first_sequence + sequences > self.setup.sequences {
            return Err(Error::failed(format!(
                "a prefill of {rows} rows of sequences {first_sequence}..{} where there is room for {most} \
                 rows of {} sequences",
                first_sequence + sequences,
                self.setup.sequences
            )));
        }
        self.step(Phase::Prefill, &StepSize { first_sequence, sequences, tokens }, marks)
    }

    /// Binds a step to memory; everything that must not happen during a capture happens here.
    fn step(&self, phase: Phase, size: &StepSize, marks: Option<(Marks<'_>, u32)>) -> Result<Step> {
        let program = self.programs.of(phase);
        let state = self.state(phase);
        let beside = program.beside_collectives();
        let mut calls = Vec::with_capacity(self.ranks.len());
        for (rank, activations) in self.ranks.iter().zip(&state.activations) {
            let tokens = match phase {
                Phase::Prefill => self.prompt.ptr(),
                Phase::Decode => rank.state.tokens().ptr(),
            };
            let binder = Binder {
                kernels: &self.kernels,
                program,
                shape: &self.setup.model.shape,
                rank,
                activations,
                sampling: self.setup.sampling,
                matvec: &self.setup.matvec,
                tokens,
                batch: self.setup.sequences,
                capacity: self.setup.capacity,
                multiprocessors: self.gpu.info().multiprocessors,
                collective: (self.taken_by_collectives(size.rows()), &beside),
                programmatic: self.programmatic(),
            };
            calls.push(binder.bind(size)?);
        }
        for call in calls.iter().flatten().flatten() {
            if let Call::MatMul { shape, .. } = call {
                self.blas.prepare(shape)?;
            }
        }
        let reductions = self.reductions(program, state, size)?;
        let (schedule, marks) = match marks {
            None => (state.schedule.clone(), Vec::new()),
            Some((marks, count)) => {
                let schedule = Schedule::new(&program.plan, &self.layout, Some(marks));
                let events = || (0..count).map(|_| self.gpu.event(true)).collect::<Result<Vec<_>>>();
                (schedule, (0..self.ranks.len()).map(|_| events()).collect::<Result<_>>()?)
            }
        };
        let follows = schedule.follows_a_launch();
        for (rank, calls) in calls.iter_mut().enumerate() {
            // a collective must find room: what may run beside one starts no sooner than it must
            let alone =
                |operation: usize| self.taken_by_collectives(size.rows()) == 0 || !beside[operation];
            for operation in 0..calls.len() {
                let lane = program.plan.operations[operation].lane;
                let stream = StreamId { rank: rank as u32, lane };
                let before = follows.get(&(stream, operation as u32));
                let own = before
                    .and_then(|before| calls[*before as usize].last())
                    .is_some_and(|before| matches!(before, Call::Kernel { .. }));
                for (at, call) in calls[operation].iter_mut().enumerate() {
                    if let Call::Kernel { launch, .. } = call {
                        launch.programmatic &= alone(operation) && (at > 0 || own);
                    }
                }
            }
        }
        let events = (0..schedule.events).map(|_| self.gpu.event(false)).collect::<Result<_>>()?;
        Ok(Step { phase, schedule, events, calls, reductions, marks, graph: None })
    }

    /// Whether kernels may start before those before them have ended.
    pub fn programmatic(&self) -> bool {
        self.setup.tuning.programmatic && can_overlap(&self.gpu)
    }

    /// Multiprocessors that kernels leave to a collective of so many rows that may be in flight beside
    /// them.
    pub fn taken_by_collectives(&self, rows: u32) -> u32 {
        taken(&self.setup, &self.collective, rows)
    }

    fn state(&self, phase: Phase) -> &PhaseState {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }

    /// The launches of collectives that are kernels of ours.
    fn reductions(
        &self,
        program: &Program,
        state: &PhaseState,
        size: &StepSize,
    ) -> Result<HashMap<usize, (Function, Launch, Arguments)>> {
        let all = reductions(program, &state.activations, size.rows());
        let operations = program.plan.operations.iter().enumerate();
        let places = operations.filter(|(_, o)| o.kind == Kind::AllReduce).map(|(at, _)| at);
        let mut launches = HashMap::new();
        for (index, (at, reduction)) in places.zip(&all).enumerate() {
            let launch = match (&self.collective, &state.table, &self.emulated) {
                (Collective::Loopback, Some(table), _) => {
                    table.call(&self.kernels, &self.gpu, index, reduction.elements)?
                }
                (Collective::Emulated(link), _, Some(scratch)) => emulated_call(
                    &self.kernels,
                    scratch,
                    link,
                    self.setup.dtype,
                    self.setup.tp,
                    reduction,
                )?,
                _ => continue,
            };
            launches.insert(at, launch);
        }
        Ok(launches)
    }

    /// Runs a step once outside of any capture: libraries load kernels when they are first launched,
    /// which a capture may forbid.
    fn try_out(&self, step: &mut Step) -> Result<()> {
        for rank in &self.ranks {
            let tokens = rank.state.tokens();
            self.main().fill(tokens.ptr(), 0, tokens.bytes())?;
        }
        self.reset()?;
        self.enqueue(step)?;
        self.wait_idle("the first decode step")?;
        self.reset()
    }

    /// Captures a step into a graph and makes it ready.
    fn capture(&self, step: &mut Step) -> Result<()> {
        let main = self.main();
        let graph = main.capture(|| self.enqueue(step))?;
        let exec = graph.instantiate()?;
        exec.upload(main)?;
        step.graph = Some((graph, exec));
        Ok(())
    }

    /// Runs a step: replays it, or enqueues it. Returns before it is done.
    pub fn run(&self, step: &mut Step) -> Result<()> {
        match &step.graph {
            Some((_, exec)) => exec.launch(self.main()),
            None => self.enqueue(step),
        }
    }

    /// Enqueues every item of a step on its stream.
    fn enqueue(&self, step: &mut Step) -> Result<()> {
        let Step { phase, schedule, events, calls, reductions, marks, .. } = step;
        let names = Arc::clone(&self.programs.of(*phase).names);
        let plan = &self.programs.of(*phase).plan;
        for item in &schedule.items {
            match *item {
                Item::Record { stream, event } => {
                    self.streams[&stream].record(&events[event as usize])?;
                }
                Item::Wait { stream, event } => {
                    self.streams[&stream].wait(&events[event as usize])?;
                }
                Item::Mark { stream, mark } => {
                    let events = marks.get(stream.rank as usize);
                    let event =
                        events.and_then(|events| events.get(mark as usize)).ok_or_else(|| {
                            Error::failed(format!(
                                "timing mark {mark} of rank {} has no event",
                                stream.rank
                            ))
                        })?;
                    self.streams[&stream].record_external(event)?;
                }
                Item::Launch { stream, operation } => {
                    let rank = self.ranks.get(stream.rank as usize).map_or(0, |rank| rank.index);
                    let _belongs = cupti::operation(cupti::Label { rank: rank as u8, operation });
                    let operation = operation as usize;
                    let _range = range(&names[operation]);
                    let on = &self.streams[&stream];
                    let launched = match reductions.get_mut(&operation) {
                        Some((function, launch, arguments)) => on.launch(function, launch, arguments),
                        None => self.launch(on, &mut calls[stream.rank as usize][operation]),
                    };
                    launched.map_err(|error| {
                        let name = &plan.operations[operation].name;
                        Error::failed(format!("{} {name}: {error}", phase.as_str()))
                    })?;
                }
            }
        }
        Ok(())
    }

    fn launch(&self, stream: &Stream, calls: &mut [Call]) -> Result<()> {
        for call in calls {
            match call {
                Call::Kernel { function, launch, arguments } => {
                    stream.launch(function, launch, arguments)?;
                }
                Call::MatMul { shape, x, w, out } => self.blas.matmul(stream, shape, *x, *w, *out)?,
                Call::AllReduce { send, receive, elements } => {
                    let Collective::Nccl(communicator) = &self.collective else {
                        return Err(Error::failed("an all-reduce, and nobody to sum"));
                    };
                    // SAFETY: both are buffers of `elements` activations in the setup's format, on the
                    // communicator's GPU, which live as long as the engine; so does the stream.
                    unsafe {
                        communicator.all_reduce(
                            send.0,
                            receive.0,
                            *elements as usize,
                            self.setup.dtype,
                            stream.raw().cast(),
                        )?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Forgets what was generated: the next token of each sequence is its first. In stream order.
    pub fn reset(&self) -> Result<()> {
        for rank in &self.ranks {
            for memory in [rank.state.positions(), rank.state.steps()] {
                self.main().fill(memory.ptr(), 0, memory.bytes())?;
            }
        }
        Ok(())
    }

    /// Forgets the tokens of one sequence, but not what lies in its KV cache. In stream order.
    pub fn forget_tokens(&self, sequence: u32) -> Result<()> {
        for rank in &self.ranks {
            let at = rank.state.steps().ptr().offset(4 * u64::from(sequence));
            self.main().fill(at, 0, 4)?;
        }
        Ok(())
    }

    /// The tokens that the next prefill step processes, a row each. In stream order.
    pub fn set_prompt(&self, tokens: &[u32]) -> Result<()> {
        if tokens.len() as u64 * 4 > self.prompt.bytes() {
            return Err(Error::failed(format!("{} prompt tokens do not fit", tokens.len())));
        }
        self.main().copy_to_device(self.prompt.ptr(), bytemuck::cast_slice(tokens))
    }

    /// The first `count` tokens that the first local rank generated, by sequence. Waits.
    pub fn tokens(&self, count: u32) -> Result<Vec<Vec<u32>>> {
        let batch = self.setup.sequences as usize;
        let mut history = vec![0u32; count as usize * batch];
        self.wait_idle("reading tokens")?;
        let Some(rank) = self.ranks.first() else { return Ok(Vec::new()) };
        rank.state.history().download(0, bytemuck::cast_slice_mut(&mut history))?;
        let of = |sequence: usize| history.iter().skip(sequence).step_by(batch).copied().collect();
        Ok((0..batch).map(of).collect())
    }

    /// The first `rows` rows of the first local rank's logits of the last step of a phase. Waits.
    pub fn logits(&self, phase: Phase, rows: usize) -> Result<Vec<f32>> {
        self.wait_idle("reading logits")?;
        let program = self.programs.of(phase);
        let value = program.plan.logits;
        let columns = program.plan.values[value.index()].columns as usize;
        let mut logits = vec![0f32; rows * columns];
        let Some(activations) = self.state(phase).activations.first() else { return Ok(logits) };
        let memory = activations.memory(program.buffer(value));
        memory.download(0, bytemuck::cast_slice_mut(&mut logits))?;
        Ok(logits)
    }

    /// Waits until everything that was enqueued is done.
    pub fn wait_idle(&self, what: &str) -> Result<()> {
        self.wait(|| self.main().is_done(), || what.to_owned())
    }

    /// Waits until `done`, but not longer than the time-out without its being so. Meanwhile NCCL's errors
    /// and other ranks' ends are errors here.
    pub fn wait(&self, mut done: impl FnMut() -> Result<bool>, what: impl Fn() -> String) -> Result<()> {
        let began = Instant::now();
        loop {
            if done().map_err(|e| Error::failed(format!("{}: {e}", what())))? {
                self.setup.progress.of_run(None);
                return Ok(());
            }
            if let Err(error) = self.check() {
                self.give_up(&error.to_string());
                return Err(error);
            }
            let waited = began.elapsed();
            if waited > self.setup.timeout {
                let ranks = self.ranks();
                let why = format!(
                    "rank {}: {} did not end within {} s: a kernel or a collective hangs (a rank that died \
                     is the usual reason)",
                    ranks.first().copied().unwrap_or_default(),
                    what(),
                    self.setup.timeout.as_secs_f64()
                );
                self.give_up(&why);
                return Err(Error::failed(why));
            }
            if waited > Duration::from_millis(2) {
                std::thread::sleep((waited / 100).min(Duration::from_millis(1)));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether NCCL and the other ranks are well.
    pub fn check(&self) -> Result<()> {
        (self.alive)()?;
        match &self.collective {
            Collective::Nccl(communicator) => communicator.check(),
            _ => Ok(()),
        }
    }

    fn give_up(&self, why: &str) {
        if let Collective::Nccl(communicator) = &self.collective {
            communicator.abort(why);
        }
        // where the GPU does not end even so, the driver layer frees nothing of it any more: that would
        // wait for ever
        let _ = self.main().synchronize_within(Duration::from_secs(2));
    }
}

/// Multiprocessors that a collective of so many rows takes of kernels beside it.
fn taken(setup: &Setup, collective: &Collective, rows: u32) -> u32 {
    let row = u64::from(setup.model.shape.hidden) * setup.dtype.bytes();
    match (collective.multiprocessors(u64::from(rows) * row), setup.tuning.sms_for_comm) {
        (0, _) => 0,
        (_, Some(asked)) => asked,
        (taken, None) => taken,
    }
}

/// Whether a GPU can start a kernel while the one before it still runs (programmatic dependent launches:
/// Hopper and later).
fn can_overlap(gpu: &Gpu) -> bool {
    gpu.info().sm >= (9, 0)
}

/// Sizes that follow from a setup on a GPU.
fn sizes(setup: &Setup, gpu: &Gpu, programs: &Programs, collective: &Collective) -> Sizes {
    let decode = &programs.decode;
    let mut operations = decode.plan.operations.iter().zip(decode.beside_collectives());
    // attention beside a collective leaves it room, too
    let beside = operations.any(|(operation, beside)| operation.kind == Kind::Attend && beside);
    let taken = if beside { taken(setup, collective, setup.sequences) } else { 0 };
    Sizes {
        dtype: setup.dtype,
        tp: setup.tp,
        batch: setup.sequences,
        capacity: setup.capacity,
        output_tokens: setup.output_tokens,
        prefill: setup.prefill,
        sampling: setup.sampling,
        multiprocessors: gpu.info().multiprocessors.saturating_sub(taken).max(1),
    }
}

/// An error where it will not fit, before anything is loaded.
fn check_memory(
    gpu: &Gpu,
    setup: &Setup,
    sizes: &Sizes,
    programs: &Programs,
    ranks: u32,
    (free, all): (u64, u64),
) -> Result<()> {
    let reserve = RESERVE_BYTES.min(all / 20);
    let workspace = super::blas::WORKSPACE_BYTES * u64::from(ranks);
    let need = sizes.need(&setup.model.shape, &programs.prefill, &programs.decode, ranks, workspace);
    let (total, available) = (need.total(), free.saturating_sub(reserve));
    if total <= available {
        return Ok(());
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let who = if ranks == 1 { "a rank needs".into() } else { format!("{ranks} ranks need") };
    Err(Error::failed(format!(
        "out of memory on GPU {}: {who} {}; {:.1} GB are free, of which {:.1} GB are left to the driver; \
         choose a smaller batch, context or model or a larger TP, and see with nvidia-smi whether other \
         processes use the GPU",
        gpu.info().index,
        need.arithmetic(),
        gb(free),
        gb(reserve)
    )))
}

/// The weights of every local rank; whole tensors once.
#[expect(clippy::too_many_arguments, reason = "called once, where all of this is at hand")]
fn load_weights(
    gpu: &Gpu,
    stream: &Stream,
    kernels: &Kernels,
    source: &WeightSource,
    setup: &Setup,
    decode: &Program,
    local: &Local,
    alive: &Alive,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Weights>> {
    let (plan, shape) = (&decode.plan, &setup.model.shape);
    let whole = load::bytes(plan, setup.dtype, is_whole);
    let own = load::bytes(plan, setup.dtype, |w| !is_whole(w));
    let total = whole + own * local.ranks.len() as u64;
    let what = if source.is_random() { "making random weights" } else { "loading weights" };
    let (mut done, mut told) = (0u64, Instant::now());
    tell(what);
    let mut loaded = |bytes: u64| -> Result<()> {
        done += bytes;
        if told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            tell(&format!(
                "{what}: {:.0}% of {:.1} GB",
                100.0 * done as f64 / total as f64,
                total as f64 / 1e9
            ));
        }
        alive()
    };
    let mut loader = Loader {
        gpu,
        stream,
        kernels,
        source,
        shape,
        dtype: setup.dtype,
        tp: setup.tp,
        loaded: &mut loaded,
    };
    let mut shared = Weights::default();
    shared.add(shape, plan, is_whole, |weight| loader.load(weight, 0))?;
    let of_rank = |rank| {
        let mut weights = shared.clone();
        weights.add(shape, plan, |w| !is_whole(w), |weight| loader.load(weight, rank))?;
        Ok(weights)
    };
    local.ranks.clone().map(of_rank).collect()
}

/// `[capacity][head_dim / 2]` pairs of cosine and sine.
fn rope_table(gpu: &Gpu, stream: &Stream, shape: &ModelShape, capacity: u32) -> Result<Memory> {
    let pairs = crate::backend::cpu::RopeTable::new(shape, capacity as usize).pairs();
    let memory = gpu.allocate(4 * pairs.len() as u64, "the table of rotary embeddings")?;
    stream.copy_to_device(memory.ptr(), bytemuck::cast_slice(&pairs))?;
    Ok(memory)
}

/// Every all-reduce of a phase, with its operands on each local rank, for a step of so many rows.
fn reductions(program: &Program, activations: &[Activations], rows: u32) -> Vec<Reduction> {
    let reduces = program.plan.operations.iter().filter(|o| o.kind == Kind::AllReduce);
    reduces
        .map(|operation| {
            let (from, to) = (operation.reads[0], operation.writes[0]);
            let operands = activations
                .iter()
                .map(|a| (a.buffer(program.buffer(from)), a.buffer(program.buffer(to))))
                .collect();
            let columns = program.plan.values[to.index()].columns;
            Reduction { operands, elements: u64::from(rows) * u64::from(columns) }
        })
        .collect()
}
