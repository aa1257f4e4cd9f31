//! Executes schedules on one GPU for one or several local ranks. Loads weights, captures a decode step once and replays it,
//! or enqueues steps eagerly.
//!
//! | file | contents |
//! |---|---|
//! | `setup` | engine settings, plans of both phases, memory check |
//! | `step` | steps: bound to memory, captured, replayed or enqueued; calibration of emulated collectives |
//!
//! All methods run on one thread. Enqueued work is asynchronous: [`Engine::wait`] waits for it with a timeout and watches for the
//! death of other ranks.

mod setup;
mod step;

pub(super) use setup::first_sums;
pub use setup::{EngineSetup, Local, Programs, Tuning, reduce_scatter_problem};
use setup::{can_overlap, check_memory, sizes};
use step::transfers;
pub use step::{EmulatedLatency, LinkCheck, PreparedStep, Timing};

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::comm::nccl::PeerCheck;
use crate::cuda::blas::Blas;
use crate::cuda::collective::{CollectiveTransport, LoopbackTable, emulated_scratch};
use crate::cuda::kernels::{GpuKernels, KernelOptions, WeightPrefetch};
use crate::cuda::load::Loader;
use crate::cuda::memory::{MemorySizes, RankMemory};
use crate::cuda::one_shot::OneShotRegions;
use crate::cuda::program::{GpuProgram, StepSize};
use crate::cuda::schedule::{RankLayout, Schedule, StreamId};
use crate::token_comparison::GeneratedTokens;
use base::error::{Error, Result};
use machine::driver::{Gpu, Memory, PartitionedGpu, Priority, Stream};
use model::WeightSource;
use plan::{DType, Lane, ModelShape, Phase};

pub(in crate::cuda) struct PhaseState {
    pub(in crate::cuda) schedule: Schedule,
    /// Buffers of each local rank, by [`GpuProgram::buffer`].
    pub(in crate::cuda) activations: Vec<Vec<Memory>>,
    pub(in crate::cuda) table: Option<LoopbackTable>,
}

impl PhaseState {
    /// Allocates activations of these sizes (bytes) for each local rank.
    fn new(
        gpu: &Gpu,
        stream: &Stream,
        program: &GpuProgram,
        schedule: Schedule,
        bytes: &[u64],
    ) -> Result<Self> {
        let what = format!("activations of {}", program.plan.phase.as_str());
        let ranks = 0..schedule.layout.ranks;
        let buffers = |_: u32| -> Result<Vec<Memory>> {
            bytes.iter().map(|bytes| gpu.allocate(*bytes, &what)).collect()
        };
        let activations: Vec<Vec<Memory>> = ranks.map(buffers).collect::<Result<_>>()?;
        let table = match schedule.layout.joint {
            true => {
                let all = transfers(program, &activations, &StepSize::decode(0));
                let all: Vec<_> = all.into_iter().map(|(_, transfer)| transfer).collect();
                Some(LoopbackTable::new(gpu, stream, &all)?)
            }
            false => None,
        };
        Ok(Self { schedule, activations, table })
    }
}

/// One GPU and its ranks.
pub struct Engine {
    pub(in crate::cuda) setup: EngineSetup,
    pub(in crate::cuda) programs: Arc<Programs>,
    pub(in crate::cuda) transport: CollectiveTransport,
    /// All-reduce of decode steps instead of `transport`, if requested.
    pub(in crate::cuda) one_shot: Option<Arc<OneShotRegions>>,
    /// Scratch memory and state of emulated collectives.
    pub(in crate::cuda) emulated: Option<[Memory; 2]>,
    /// Gather buffer for the 8-bit messages of all ranks.
    pub(in crate::cuda) gathered: Option<Memory>,
    pub(in crate::cuda) prefill: PhaseState,
    pub(in crate::cuda) decode: PhaseState,
    pub(in crate::cuda) ranks: Vec<RankMemory>,
    pub(in crate::cuda) prompt: Memory,
    pub(in crate::cuda) kernels: GpuKernels,
    pub(in crate::cuda) blas: Blas,
    pub(in crate::cuda) streams: HashMap<StreamId, Stream>,
    /// Separate SM partitions for compute and communication; `None` if they share all SMs.
    divided: Option<PartitionedGpu>,
    pub(in crate::cuda) layout: RankLayout,
    pub(in crate::cuda) gpu: Gpu,
    /// Free GPU memory before loading (bytes).
    free_before: u64,
    /// Memory taken by NCCL's first sums (bytes), excluding initialization.
    pub(in crate::cuda) nccl_bytes: u64,
    /// Launch overhead subtracted from an emulated collective (ns).
    pub(in crate::cuda) link_launch_ns: u64,
    /// True once a decode step has run outside a capture.
    pub(in crate::cuda) tried: Cell<bool>,
    /// True while exchanges with other ranks are skipped.
    pub(in crate::cuda) without_peers: Cell<bool>,
    /// Polled while waiting; returns an error if another rank has ended.
    alive: PeerCheck,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // a hung collective would make every free wait forever
        if let CollectiveTransport::Nccl(communicator, _) = &self.transport
            && !self.main().is_done().unwrap_or(true)
        {
            communicator.abort("the run has ended");
        }
        // if it still hangs, the driver layer abandons the GPU and frees nothing
        let _ = self.main().synchronize_within(Duration::from_secs(2));
    }
}

impl Engine {
    /// Checks memory, loads the weights and allocates everything else. `on_phase` receives progress messages.
    ///
    /// # Errors
    ///
    /// Returns an error if memory is too small (checked before loading), a kernel does not compile, a library
    /// is missing, a checkpoint cannot be read, or a driver call fails.
    pub fn new(
        gpu: &Gpu,
        setup: &EngineSetup,
        programs: Arc<Programs>,
        local: Local,
        alive: PeerCheck,
        on_phase: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        gpu.bind()?;
        let shape = &setup.model.shape;
        let Programs { prefill, decode } = &*programs;
        let ranks = local.ranks.len() as u32;
        // loopback collectives are ordinary kernels
        let is_loopback = matches!(local.transport, CollectiveTransport::Loopback);
        let is_divided = setup.comm_sms > 0 && !is_loopback;
        let layout = layout(ranks, is_loopback, is_divided)?;
        let divided = is_divided.then(|| gpu.divide(setup.comm_sms)).transpose()?;
        let for_compute =
            divided.as_ref().map_or(gpu.info().multiprocessors, |divided| divided.multiprocessors().0);
        let sizes = sizes(setup, for_compute, &programs, &local.transport);
        let nccl_bytes = match &local.transport {
            CollectiveTransport::Nccl(communicator, _) => {
                on_phase("first sums over NCCL");
                first_sums(gpu, communicator, &programs.messages(setup))?
            }
            _ => 0,
        };
        let (free_before, total) = gpu.memory()?;
        check_memory(gpu, setup, &sizes, &programs, ranks, (free_before, total))?;
        on_phase("compiling kernels");
        let kernels = GpuKernels::new(gpu, &kernel_options(gpu, setup))?;
        let blas = Blas::new(gpu)?;
        let [of_prefill, of_decode] =
            [prefill, decode].map(|program| Schedule::new(&program.plan, &layout, None));
        let ids = of_decode.streams().into_iter().chain(of_prefill.streams());
        let streams = open_streams(gpu, divided.as_ref(), &blas, ids)?;
        let main = streams
            .get(&StreamId { rank: 0, lane: Lane::Compute })
            .ok_or_else(|| Error::failed("a plan without compute operations"))?;
        let loader = Loader {
            gpu,
            stream: main,
            kernels: &kernels,
            source: &WeightSource::open(&setup.model, setup.seed)?,
            shape,
            precision: decode.precision,
            tp: setup.tp,
        };
        let memories =
            rank_memories(&loader, setup, &programs, &sizes, local.ranks.clone(), &alive, on_phase)?;
        let phase = |program: &GpuProgram, schedule: Schedule| {
            PhaseState::new(gpu, main, program, schedule, &sizes.buffers(program))
        };
        let (of_prefill, of_decode) = (phase(prefill, of_prefill)?, phase(decode, of_decode)?);
        let rows = u64::from(setup.prefill.0) * u64::from(setup.prefill.1);
        let message = rows.max(setup.sequences.into()) * u64::from(shape.hidden) * setup.dtype.bytes();
        let is_emulated = matches!(local.transport, CollectiveTransport::Emulated(_));
        let emulated = is_emulated.then(|| emulated_scratch(gpu, main, message)).transpose()?;
        let gathered = sizes.gathered_bytes(prefill, decode, ranks);
        let gathered =
            (gathered > 0).then(|| gpu.allocate(gathered, "messages of all ranks")).transpose()?;
        let prompt = gpu.allocate(rows * 4, "prompt tokens")?;
        let engine = Self {
            setup: setup.clone(),
            programs,
            transport: local.transport,
            one_shot: local.one_shot,
            emulated,
            gathered,
            prefill: of_prefill,
            decode: of_decode,
            ranks: memories,
            prompt,
            kernels,
            blas,
            streams,
            divided,
            layout,
            gpu: gpu.clone(),
            free_before,
            nccl_bytes,
            link_launch_ns: 0,
            tried: Cell::new(false),
            without_peers: Cell::new(false),
            alive,
        };
        // also wait for uploads that bypassed the streams
        engine.wait_idle("loading")?;
        engine.gpu.synchronize()?;
        Ok(engine)
    }

    /// First local rank's compute stream, where every step begins and ends.
    pub fn main(&self) -> &Stream {
        &self.streams[&StreamId { rank: 0, lane: Lane::Compute }]
    }

    /// SMs available to compute when no collective is in flight.
    pub fn multiprocessors(&self) -> u32 {
        self.divided().map_or(self.gpu.info().multiprocessors, |(compute, _)| compute)
    }

    /// SMs of the compute and communication partitions; `None` if they share all SMs.
    pub fn divided(&self) -> Option<(u32, u32)> {
        self.divided.as_ref().map(PartitionedGpu::multiprocessors)
    }

    /// GPU memory per local rank taken since before loading (bytes). Includes memory that other processes
    /// took meanwhile, because the driver only reports free memory.
    pub fn memory_per_rank(&self) -> Result<u64> {
        let (free, _) = self.gpu.memory()?;
        Ok(self.free_before.saturating_sub(free) / self.ranks.len().max(1) as u64)
    }

    /// Resets generation: the next token of each sequence is its first. Enqueued without waiting.
    pub fn reset(&self) -> Result<()> {
        for rank in &self.ranks {
            let state = &rank.state;
            for memory in [&state.positions, &state.steps, &state.not_finite] {
                self.main().fill(memory.ptr(), 0, memory.bytes())?;
            }
        }
        Ok(())
    }

    /// Resets generation, uploads the prompts of all sequences and waits until the GPU is idle.
    pub fn prepare(&self, sequences: u32, prompts: &[u32]) -> Result<()> {
        self.reset()?;
        self.set_prompt(sequences, prompts)?;
        self.wait_idle("preparing a generation")
    }

    /// Resets generation and the last tokens, so that a decode step can start without a prefill.
    pub fn forget(&self) -> Result<()> {
        for rank in &self.ranks {
            let tokens = &rank.state.tokens;
            self.main().fill(tokens.ptr(), 0, tokens.bytes())?;
        }
        self.reset()
    }

    /// Resets the token count of one sequence and keeps its KV cache. Enqueued without waiting.
    pub fn forget_tokens(&self, sequence: u32) -> Result<()> {
        for rank in &self.ranks {
            let at = rank.state.steps.ptr().offset(4 * u64::from(sequence));
            self.main().fill(at, 0, 4)?;
        }
        Ok(())
    }

    /// Enqueues the upload of the next prefill step's tokens, sequence by sequence, with the same number for
    /// each. Returns an error if they exceed the prompt buffer.
    pub fn set_prompt(&self, sequences: u32, tokens: &[u32]) -> Result<()> {
        let each = (tokens.len() / sequences.max(1) as usize).max(1);
        let groups = self.programs.prefill.plan.groups;
        // rows of a group are contiguous, so groups of tokens need reordering
        let mut ordered = Vec::new();
        if groups.of_tokens {
            for group in 0..groups.count {
                let (first, count) = groups.part(each as u64, group);
                let part = first as usize..(first + count) as usize;
                ordered.extend(tokens.chunks_exact(each).flat_map(|prompt| &prompt[part.clone()]));
            }
        }
        let tokens = if ordered.is_empty() { tokens } else { ordered.as_slice() };
        if tokens.len() as u64 * 4 > self.prompt.bytes() {
            return Err(Error::failed(format!("{} prompt tokens do not fit", tokens.len())));
        }
        self.main().copy_to_device(self.prompt.ptr(), bytemuck::cast_slice(tokens))
    }

    /// Returns the first `count` tokens of each sequence from the first local rank. Waits as
    /// [`Engine::wait_idle`].
    pub fn tokens(&self, count: u32) -> Result<Vec<Vec<u32>>> {
        let batch = self.setup.sequences as usize;
        let mut history = vec![0u32; count as usize * batch];
        self.wait_idle("reading tokens")?;
        let Some(rank) = self.ranks.first() else { return Ok(Vec::new()) };
        rank.state.history.download(0, bytemuck::cast_slice_mut(&mut history))?;
        let sequence_tokens =
            |sequence: usize| history.iter().skip(sequence).step_by(batch).copied().collect();
        Ok((0..batch).map(sequence_tokens).collect())
    }

    /// Fingerprint of the first local rank's results since the last [`Engine::reset`], over `count` tokens
    /// per sequence. Waits as [`Engine::wait_idle`].
    pub(crate) fn generated_tokens(&self, count: u32) -> Result<GeneratedTokens> {
        let tokens = self.tokens(count)?;
        let mut not_finite = [0u32];
        if let Some(rank) = self.ranks.first() {
            rank.state.not_finite.download(0, bytemuck::cast_slice_mut(&mut not_finite))?;
        }
        Ok(GeneratedTokens::new(tokens.iter().flatten(), not_finite[0].into()))
    }

    /// First `rows` rows of the first local rank's logits from the last step of a phase, `[rows, vocab]`.
    /// Waits as [`Engine::wait_idle`].
    pub fn logits(&self, phase: Phase, rows: usize) -> Result<Vec<f32>> {
        self.wait_idle("reading logits")?;
        let program = self.programs.program(phase);
        let Some(&value) = program.plan.logits.first() else { return Ok(Vec::new()) };
        let columns = program.plan.values[value.index()].columns as usize;
        let mut logits = vec![0f32; rows * columns];
        let Some(activations) = self.state(phase).activations.first() else { return Ok(logits) };
        let memory = &activations[program.buffer(value)];
        memory.download(0, bytemuck::cast_slice_mut(&mut logits))?;
        Ok(logits)
    }

    /// Waits until all enqueued work is done; `what` names the work in errors. Returns an error on timeout or
    /// if another rank has given up.
    pub fn wait_idle(&self, what: &str) -> Result<()> {
        self.wait(|| self.main().is_done(), || what.to_owned())
    }

    /// Polls until `done` returns true, up to the timeout. Returns an error if NCCL fails or another rank
    /// ends meanwhile.
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
                let why = format!(
                    "{} did not end within {} s: a kernel or a collective hangs (a rank that died is the \
                     usual reason)",
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

    /// Checks the other ranks and NCCL without waiting.
    pub fn check(&self) -> Result<()> {
        (self.alive)()?;
        match &self.transport {
            CollectiveTransport::Nccl(communicator, _) => communicator.check(),
            _ => Ok(()),
        }
    }

    fn give_up(&self, why: &str) {
        if let CollectiveTransport::Nccl(communicator, _) = &self.transport {
            communicator.abort(why);
        }
        // if the GPU still hangs, the driver layer stops freeing its memory, which would wait forever
        let _ = self.main().synchronize_within(Duration::from_secs(2));
    }
}

fn kernel_options(gpu: &Gpu, setup: &EngineSetup) -> KernelOptions {
    let (shape, tuning) = (&setup.model.shape, &setup.tuning);
    KernelOptions {
        dtype: setup.dtype,
        head_dim: shape.head_dim,
        // with more ranks than KV heads, each has a copy of one
        group: shape.heads / setup.tp / shape.kv_heads_of(setup.tp),
        programmatic: tuning.programmatic && can_overlap(gpu),
        prefetch: tuning.prefetch,
        // fp8 weights are read in other steps, for which the prefetch was not designed
        ahead: if setup.weights == DType::Fp8 { WeightPrefetch::default() } else { tuning.ahead },
    }
}

/// Opens the streams of all schedules: collectives have the higher priority, and their own SMs if `divided`.
fn open_streams(
    gpu: &Gpu,
    divided: Option<&PartitionedGpu>,
    blas: &Blas,
    ids: impl Iterator<Item = StreamId>,
) -> Result<HashMap<StreamId, Stream>> {
    let mut streams = HashMap::new();
    for id in ids {
        if let Entry::Vacant(entry) = streams.entry(id) {
            let for_comm = id.lane == Lane::Comm;
            let priority = if for_comm { Priority::High } else { Priority::Normal };
            let stream = entry.insert(match divided {
                Some(divided) => divided.stream(for_comm, priority)?,
                None => gpu.stream(priority)?,
            });
            if id.lane == Lane::Compute {
                blas.reserve(stream)?;
            }
        }
    }
    Ok(streams)
}

/// Layout of the local ranks' streams. Collectives with SMs of their own keep their own stream.
fn layout(ranks: u32, is_loopback: bool, is_divided: bool) -> Result<RankLayout> {
    match is_loopback {
        true => Ok(RankLayout::loopback(ranks)),
        false if ranks == 1 => Ok(RankLayout { chained: !is_divided, ..RankLayout::ONE }),
        false => Err(Error::failed(format!("{ranks} ranks on one GPU need loopback sums"))),
    }
}

/// Loads the weights of the local ranks and allocates their caches and scratch memory.
fn rank_memories(
    loader: &Loader<'_>,
    setup: &EngineSetup,
    programs: &Programs,
    sizes: &MemorySizes,
    ranks: Range<u32>,
    alive: &PeerCheck,
    on_phase: &mut dyn FnMut(&str),
) -> Result<Vec<RankMemory>> {
    let Programs { prefill, decode } = programs;
    let (gpu, shape) = (loader.gpu, loader.shape);
    let weights = loader.weights_of(ranks.clone(), &decode.plan, &**alive, on_phase)?;
    on_phase("allocating the KV cache");
    let rope = Arc::new(rope_table(gpu, loader.stream, shape, setup.capacity)?);
    let scratch =
        [sizes.expanded_bytes(shape, prefill, decode), sizes.expert_bytes(shape, prefill, decode)];
    let memory =
        |(rank, weights)| RankMemory::new(gpu, shape, sizes, rank, weights, Arc::clone(&rope), scratch);
    ranks.zip(weights).map(memory).collect()
}

/// Pairs of cosine and sine, `[capacity][head_dim / 2]`.
fn rope_table(gpu: &Gpu, stream: &Stream, shape: &ModelShape, capacity: u32) -> Result<Memory> {
    let pairs: Vec<f32> = crate::cpu::RopeTable::new(shape, capacity as usize).pairs();
    let memory = gpu.allocate(4 * pairs.len() as u64, "the table of rotary embeddings")?;
    stream.copy_to_device(memory.ptr(), bytemuck::cast_slice(&pairs))?;
    Ok(memory)
}
