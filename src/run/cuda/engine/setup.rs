//! What an engine is made from, and whether it will fit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::comm::nccl::Communicator;
use crate::comm::{Exchange, Progress};
use crate::cuda::blas;
use crate::cuda::collective::Collective;
use crate::cuda::kernels::geometry;
use crate::cuda::multiply::MatvecChoice;
use crate::cuda::one_shot::OneShot;
use crate::cuda::program::Program;
use crate::cuda::rank::Sizes;
use crate::cuda::size::StepSize;
use crate::cuda::tuning::Tuning;
use crate::sample::Sampling;
use base::error::{Error, Result};
use machine::driver::{Gpu, Priority};
use model::Model;
use plan::{Architecture, CommDType, DType, Kind, Lowering, Phase, PlanSpec, Precision, Variant};
use table::Collective as Asked;

/// Memory that is left alone, at most: graphs, modules, what libraries load when they
/// first need it (bytes).
const RESERVE_BYTES: u64 = 1 << 30;

/// What an engine is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The model, with its checkpoint if it has one.
    pub model: Model,
    /// When module outputs join the residual.
    pub architecture: Architecture,
    /// The format of weights.
    pub weights: DType,
    /// The format of activations and KV cache.
    pub dtype: DType,
    /// Ranks in all, local or not.
    pub tp: u32,
    /// Seed of random weights.
    pub seed: u64,
    /// How tokens are chosen.
    pub(crate) sampling: Sampling,
    /// How many sequences are decoded together.
    pub sequences: u32,
    /// Tokens that each sequence's KV cache has room for.
    pub capacity: u32,
    /// New tokens of each sequence.
    pub output_tokens: u32,
    /// Sequences and new tokens of each in the largest prefill step.
    pub prefill: (u32, u32),
    /// Prefill yields the logits of every position.
    pub all_logits: bool,
    /// What options change in the plan.
    pub variant: Variant,
    /// Whether decode steps are captured and replayed; else they are enqueued eagerly.
    pub graph: bool,
    /// Whether each rank has its part of the vocabulary's rows of the head.
    pub shard_head: bool,
    /// Multiprocessors that communication has for itself; 0: all share all.
    pub comm_sms: u32,
    /// Which all-reduce the ranks of a decode step do; those of a prefill are NCCL's.
    pub collective: Asked,
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
    /// Which of all ranks are executed here.
    pub ranks: std::ops::Range<u32>,
    /// Who sums over all of them.
    pub collective: Collective,
    /// What decode steps sum with instead, where that is asked for.
    pub one_shot: Option<Arc<OneShot>>,
}

/// Plans of both phases.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The plan of the prompt's step.
    pub prefill: Program,
    /// The plan of any decode step.
    pub decode: Program,
}

impl Programs {
    /// Builds both plans as the setup asks.
    pub fn new(setup: &Setup) -> Result<Self> {
        if let Some(why) = lacks(setup.tp, setup.variant) {
            return Err(Error::input(why));
        }
        let program = |phase, all_logits, base| {
            // prompts that are processed one by one are not divided
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
            };
            Program::new(&spec, base)
        };
        let prefill = program(Phase::Prefill, setup.all_logits, 0)?;
        let decode = program(Phase::Decode, false, prefill.plan.operations.len() as u32)?;
        Ok(Self { prefill, decode })
    }

    /// Bytes of the messages of both phases' all-reduces, each once, ascending.
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

    /// The plan of the phase asked for.
    pub fn of(&self, phase: Phase) -> &Program {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }
}

/// Why a variant cannot be executed on GPUs, if so: NCCL scatters sums of the formats that it sums.
pub fn lacks(tp: u32, variant: Variant) -> Option<String> {
    let Variant { comm_dtype, sequence_parallel, .. } = variant;
    (tp > 1 && sequence_parallel && comm_dtype != CommDType::Activations)
        .then(|| format!("the cuda backend has no reduce-scatter of {comm_dtype} messages"))
}

/// Multiprocessors that kernels beside a collective of so many rows leave to it: none where it has its own.
pub(super) fn taken(setup: &Setup, collective: &Collective, rows: u32) -> u32 {
    let hidden = setup.model.shape.hidden;
    let row = u64::from(hidden) * setup.dtype.bytes();
    let needed = match (collective, setup.collective) {
        // a decode step's
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

/// Whether a GPU can start a kernel while the one before it still runs (programmatic dependent
/// launches: Hopper and later), in graphs too, which drivers for CUDA 12.3 and later capture so.
pub(super) fn can_overlap(gpu: &Gpu) -> bool {
    gpu.info().sm >= (9, 0) && gpu.info().driver_api >= 12_030
}

/// Sizes that follow from a setup on a GPU.
pub(super) fn sizes(
    setup: &Setup,
    multiprocessors: u32,
    programs: &Programs,
    collective: &Collective,
) -> Sizes {
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
        multiprocessors: multiprocessors.saturating_sub(taken).max(1),
    }
}

/// Sums once over NCCL for each size of message (bytes): what it connects and allocates with the first one (buffers of
/// NVLink's switch take hundreds of MB a rank) is there before memory is looked at. How much of the GPU's memory that
/// took (bytes). Fails where a rank does not come, or where memory is too small.
pub(in crate::cuda) fn first_sums(
    gpu: &Gpu,
    communicator: &Communicator,
    messages: &[u64],
) -> Result<u64> {
    let (before, _) = gpu.memory()?;
    let stream = gpu.stream(Priority::High)?;
    // once for all: freeing waits for the whole GPU, on which a sum of another rank may wait for this one
    let longest = messages.iter().copied().max().unwrap_or_default();
    let memory = gpu.allocate(longest, "a first message over NCCL")?;
    stream.fill(memory.ptr(), 0, longest)?;
    for &bytes in messages {
        let (at, count) = (memory.ptr().0, (bytes / DType::Bf16.bytes()) as usize);
        // SAFETY: so many numbers lie at that address on the communicator's GPU until the stream is done; so does the
        // stream.
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

/// An error where it will not fit, before anything is loaded.
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
