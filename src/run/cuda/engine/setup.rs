//! Engine settings, plans of both phases, and the memory check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::GenerateOptions;
use crate::comm::nccl::Communicator;
use crate::comm::{Exchange, Progress};
use crate::cuda::blas;
use crate::cuda::collective::Collective;
use crate::cuda::kernels::geometry;
use crate::cuda::matmul::MatvecChoice;
use crate::cuda::memory::Sizes;
use crate::cuda::one_shot::OneShot;
use crate::cuda::program::{Program, StepSize};
use crate::cuda::tuning::Tuning;
use crate::sample::Sampling;
use base::error::{Error, Result};
use machine::driver::{Gpu, Priority};
use model::Model;
use plan::{Architecture, CommDType, DType, Lowering, Phase, PlanSpec, Precision, Variant};
use table::Collective as Asked;

/// Maximum memory left free for graphs, modules and lazily loaded library code (bytes).
const RESERVE_BYTES: u64 = 1 << 30;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Model, with its checkpoint if it has one.
    pub model: Model,
    pub architecture: Architecture,
    pub weights: DType,
    /// Format of activations and KV cache.
    pub dtype: DType,
    /// Total number of ranks, local or not.
    pub tp: u32,
    pub seed: u64,
    pub(crate) sampling: Sampling,
    /// Number of sequences decoded together.
    pub sequences: u32,
    /// KV-cache capacity per sequence (tokens).
    pub capacity: u32,
    /// New tokens per sequence.
    pub output_tokens: u32,
    /// Sequences, and new tokens of each, in the largest prefill step.
    pub prefill: (u32, u32),
    /// True if prefill returns the logits of every position.
    pub all_logits: bool,
    pub variant: Variant,
    /// True if decode steps are captured and replayed; false if they run eagerly.
    pub graph: bool,
    /// True if the vocabulary rows of the head are sharded over ranks.
    pub shard_head: bool,
    /// SMs reserved for communication; 0 if all work shares all SMs.
    pub comm_sms: u32,
    /// All-reduce of decode steps; prefill always uses NCCL.
    pub collective: Asked,
    pub tuning: Tuning,
    pub matvec: MatvecChoice,
    /// Timeout: the run fails if nothing makes progress for this long.
    pub timeout: Duration,
    /// Notified after every step.
    pub progress: Arc<Progress>,
}

impl Setup {
    /// One greedily decoded sequence of one token, with random weights of seed 0.
    pub fn new(model: Model, architecture: Architecture, weights: DType, tp: u32) -> Result<Self> {
        Ok(Self {
            model,
            architecture,
            weights,
            dtype: weights.activations(),
            tp,
            seed: 0,
            sampling: Sampling::Greedy,
            sequences: 1,
            capacity: 1,
            output_tokens: 1,
            prefill: (1, 1),
            all_logits: false,
            variant: Variant::default(),
            graph: true,
            shard_head: false,
            comm_sms: 0,
            collective: Asked::Nccl,
            tuning: Tuning::of_process()?,
            matvec: MatvecChoice::usual(weights),
            timeout: GenerateOptions::default().timeout,
            progress: Arc::default(),
        })
    }
}

/// Local ranks of an engine and their collectives.
#[derive(Debug)]
pub struct Local {
    /// Global indices of the local ranks.
    pub ranks: std::ops::Range<u32>,
    pub collective: Collective,
    /// All-reduce of decode steps instead of `collective`, if requested.
    pub one_shot: Option<Arc<OneShot>>,
}

impl Local {
    /// All `tp` ranks of an engine on one GPU.
    pub fn on_one_gpu(tp: u32) -> Self {
        let collective = if tp == 1 { Collective::None } else { Collective::Loopback };
        Self { ranks: 0..tp, collective, one_shot: None }
    }
}

#[derive(Clone, Debug)]
pub struct Programs {
    pub prefill: Program,
    pub decode: Program,
}

impl Programs {
    pub fn new(setup: &Setup) -> Result<Self> {
        if let Some(why) = lacks(setup.tp, setup.variant) {
            return Err(Error::input(why));
        }
        let program = |phase, all_logits, base| {
            // prompts processed one by one are not split into groups
            let alone = phase == Phase::Prefill && setup.prefill.0 < setup.sequences;
            let spec = PlanSpec {
                shape: setup.model.shape.clone(),
                architecture: setup.architecture.clone(),
                tp: setup.tp,
                phase,
                precision: Precision::gpu(setup.weights),
                lowering: Lowering {
                    shard_head: setup.shard_head,
                    fuse_all_reduce: phase == Phase::Decode && setup.collective == Asked::Fused,
                    ..Program::lowering(all_logits)
                },
                variant: if alone { setup.variant.undivided() } else { setup.variant },
                batch: setup.sequences,
                pp: 1,
            };
            Program::new(&spec, base)
        };
        let prefill = program(Phase::Prefill, setup.all_logits, 0)?;
        let decode = program(Phase::Decode, false, prefill.plan.operations.len() as u32)?;
        Ok(Self { prefill, decode })
    }

    /// Distinct message sizes of both phases' all-reduces (bytes), ascending.
    pub(in crate::cuda) fn messages(&self, setup: &Setup) -> Vec<u64> {
        let row = u64::from(setup.model.shape.hidden) * setup.dtype.bytes();
        let (sequences, tokens) = setup.prefill;
        let prefill = StepSize { first_sequence: 0, sequences, first_token: 0, tokens };
        let decode = StepSize::decode(setup.sequences);
        let of = |program: &Program, size: StepSize| {
            let groups = program.plan.groups;
            let rows = (0..groups.count).map(move |group| size.of_group(groups, group).rows());
            rows.map(move |rows| u64::from(rows) * row)
        };
        let mut all: Vec<u64> = of(&self.decode, decode).chain(of(&self.prefill, prefill)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn of(&self, phase: Phase) -> &Program {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }
}

/// Returns the reason if GPUs cannot execute a variant. NCCL reduce-scatters only the formats it can sum.
pub fn lacks(tp: u32, variant: Variant) -> Option<String> {
    let Variant { comm_dtype, sequence_parallel, .. } = variant;
    (tp > 1 && sequence_parallel && comm_dtype != CommDType::Activations)
        .then(|| format!("the cuda backend has no reduce-scatter of {comm_dtype} messages"))
}

/// SMs that kernels leave to a collective of `rows` rows running in parallel; 0 if communication has its own
/// SMs.
pub(super) fn taken(setup: &Setup, collective: &Collective, rows: u32) -> u32 {
    let hidden = setup.model.shape.hidden;
    let row = u64::from(hidden) * setup.dtype.bytes();
    let needed = match (collective, setup.collective) {
        // decode steps only
        (Collective::Nccl(..), Asked::Fused) if rows <= setup.sequences => {
            geometry::one_shot_rows(rows, hidden).grid[0]
        }
        (Collective::Nccl(..), asked) if asked != Asked::Nccl && rows <= setup.sequences => {
            geometry::one_shot(u64::from(rows) * u64::from(hidden)).grid[0]
        }
        _ => collective.multiprocessors(u64::from(rows) * row, setup.tp),
    };
    match (needed, setup.tuning.sms_for_comm) {
        (0, _) => 0,
        _ if setup.comm_sms > 0 => 0,
        (_, Some(asked)) => asked,
        (taken, None) => taken,
    }
}

/// True if the GPU supports programmatic dependent launch, also in graphs: Hopper or later, with a driver for
/// CUDA 12.3 or later.
pub(super) fn can_overlap(gpu: &Gpu) -> bool {
    gpu.info().sm >= (9, 0) && gpu.info().driver_api >= 12_030
}

pub(super) fn sizes(
    setup: &Setup,
    multiprocessors: u32,
    programs: &Programs,
    collective: &Collective,
) -> Sizes {
    let decode = &programs.decode;
    let mut operations = decode.plan.operations.iter().zip(decode.beside_collectives());
    // attention that overlaps a collective leaves it SMs, too
    let beside = operations.any(|(operation, beside)| operation.kind.is_attention() && beside);
    let taken = if beside { taken(setup, collective, setup.sequences) } else { 0 };
    Sizes {
        dtype: setup.dtype,
        tp: setup.tp,
        batch: setup.sequences,
        capacity: setup.capacity,
        output_tokens: setup.output_tokens,
        prefill: setup.prefill,
        sampling: setup.sampling,
        multiprocessors: multiprocessors.saturating_sub(taken).max(1),
    }
}

/// Runs one NCCL sum per message size, so that NCCL's connections and buffers exist before the memory check
/// (NVLink SHARP buffers take hundreds of MB per rank). Returns the GPU memory taken (bytes), or an error if
/// a rank does not join or memory is too small.
pub(in crate::cuda) fn first_sums(
    gpu: &Gpu,
    communicator: &Communicator,
    messages: &[u64],
) -> Result<u64> {
    let (before, _) = gpu.memory()?;
    let stream = gpu.stream(Priority::High)?;
    // allocated once: freeing waits for the whole GPU, where another rank's sum may wait for this rank
    let longest = messages.iter().copied().max().unwrap_or_default();
    let memory = gpu.allocate(longest, "a first message over NCCL")?;
    stream.fill(memory.ptr(), 0, longest)?;
    for &bytes in messages {
        let (at, count) = (memory.ptr().0, (bytes / DType::Bf16.bytes()) as usize);
        // SAFETY: the memory holds `count` elements on the communicator's GPU; it and the stream live until
        // the stream is done.
        unsafe {
            let sum = (Exchange::AllReduce, Some(DType::Bf16));
            communicator.exchange(sum.0, [at, at], count, sum.1, stream.raw().cast())?;
        }
        let began = Instant::now();
        while !stream.is_done()? {
            communicator.check()?;
            if began.elapsed() > communicator.timeout() {
                communicator.abort("the first sum did not end in time");
                return Err(Error::failed(format!(
                    "the first all-reduce over NCCL ({bytes} bytes) hangs: it did not end within {:.0} s",
                    communicator.timeout().as_secs_f64()
                )));
            }
            std::thread::yield_now();
        }
    }
    drop(memory);
    let (after, _) = gpu.memory()?;
    Ok(before.saturating_sub(after))
}

/// Returns an error if the weights and buffers do not fit, before anything is loaded.
pub(super) fn check_memory(
    gpu: &Gpu,
    setup: &Setup,
    sizes: &Sizes,
    programs: &Programs,
    ranks: u32,
    (free, all): (u64, u64),
) -> Result<()> {
    let reserve = RESERVE_BYTES.min(all / 20);
    let workspace = blas::WORKSPACE_BYTES * u64::from(ranks);
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
