//! What an engine is made from, and whether it will fit.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::machine::driver::Gpu;
use crate::model::Model;
use crate::plan::{Architecture, CommDType, DType, Kind, Phase, PlanSpec, Precision, Variant};
use crate::run::comm::Progress;
use crate::run::cuda::blas;
use crate::run::cuda::collective::Collective;
use crate::run::cuda::launches::MatvecChoice;
use crate::run::cuda::program::Program;
use crate::run::cuda::rank::Sizes;
use crate::run::cuda::tuning::Tuning;
use crate::run::sample::Sampling;

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
    /// The format of weights, activations and KV cache, which is one.
    pub dtype: DType,
    /// Ranks in all, local or not.
    pub tp: u32,
    /// Seed of random weights.
    pub seed: u64,
    /// How tokens are chosen.
    pub(in crate::run) sampling: Sampling,
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
                precision: Precision::uniform(setup.dtype),
                lowering: Program::lowering(all_logits),
                variant: if alone { setup.variant.undivided() } else { setup.variant },
                batch: setup.sequences,
            };
            Program::new(&spec, base)
        };
        let prefill = program(Phase::Prefill, setup.all_logits, 0)?;
        let decode = program(Phase::Decode, false, prefill.plan.operations.len() as u32)?;
        Ok(Self { prefill, decode })
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

/// Multiprocessors that a collective of so many rows needs.
pub(super) fn needed(setup: &Setup, collective: &Collective, rows: u32) -> u32 {
    let row = u64::from(setup.model.shape.hidden) * setup.dtype.bytes();
    collective.multiprocessors(u64::from(rows) * row)
}

/// Multiprocessors that kernels beside a collective of so many rows leave to it.
pub(super) fn taken(setup: &Setup, collective: &Collective, rows: u32) -> u32 {
    match (needed(setup, collective, rows), setup.tuning.sms_for_comm) {
        (0, _) => 0,
        (_, Some(asked)) => asked,
        (taken, None) => taken,
    }
}

/// Whether a GPU can start a kernel while the one before it still runs (programmatic dependent
/// launches: Hopper and later).
pub(super) fn can_overlap(gpu: &Gpu) -> bool {
    gpu.info().sm >= (9, 0)
}

/// Sizes that follow from a setup on a GPU.
pub(super) fn sizes(setup: &Setup, gpu: &Gpu, programs: &Programs, collective: &Collective) -> Sizes {
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
