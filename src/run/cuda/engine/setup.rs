//! Engine settings with experimental switches, plans of both phases, and the memory check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::GenerateOptions;
use crate::comm::nccl::NcclCommunicator;
use crate::comm::{Exchange, ProgressMonitor};
use crate::cuda::blas;
use crate::cuda::collective::CollectiveTransport;
use crate::cuda::kernels::{WeightPrefetch, geometry};
use crate::cuda::matmul::{MatvecChoice, ProductKernel};
use crate::cuda::memory::MemorySizes;
use crate::cuda::one_shot::{GpuAllReduce, OneShotRegions};
use crate::cuda::program::{GpuProgram, StepSize};
use crate::generate::Sampling;
use base::error::{Error, Result};
use machine::driver::{Gpu, Priority};
use model::Model;
use plan::{Architecture, CommDType, DType, Lowering, Phase, PlanSpec, Precision, Variant};
use table::Collective;

/// Maximum memory left free for graphs, modules and lazily loaded library code (bytes).
const RESERVE_BYTES: u64 = 1 << 30;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSetup {
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
    pub collective: Collective,
    pub tuning: Tuning,
    pub matvec: MatvecChoice,
    /// Timeout: the run fails if nothing makes progress for this long.
    pub timeout: Duration,
    /// Notified after every step.
    pub progress: Arc<ProgressMonitor>,
}

impl EngineSetup {
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
            collective: Collective::Nccl,
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
    pub transport: CollectiveTransport,
    /// All-reduce of decode steps instead of `transport`, if requested.
    pub one_shot: Option<Arc<OneShotRegions>>,
}

impl Local {
    /// All `tp` ranks of an engine on one GPU.
    pub fn on_one_gpu(tp: u32) -> Self {
        let transport = if tp == 1 { CollectiveTransport::None } else { CollectiveTransport::Loopback };
        Self { ranks: 0..tp, transport, one_shot: None }
    }
}

#[derive(Clone, Debug)]
pub struct Programs {
    pub prefill: GpuProgram,
    pub decode: GpuProgram,
}

impl Programs {
    pub fn new(setup: &EngineSetup) -> Result<Self> {
        if let Some(why) = reduce_scatter_problem(setup.tp, setup.variant) {
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
                    fuse_all_reduce: phase == Phase::Decode && setup.collective == Collective::Fused,
                    ..GpuProgram::lowering(all_logits)
                },
                variant: if alone { setup.variant.undivided() } else { setup.variant },
                batch: setup.sequences,
                pp: 1,
            };
            GpuProgram::new(&spec, base)
        };
        let prefill = program(Phase::Prefill, setup.all_logits, 0)?;
        let decode = program(Phase::Decode, false, prefill.plan.operations.len() as u32)?;
        Ok(Self { prefill, decode })
    }

    /// Distinct message sizes of both phases' all-reduces (bytes), ascending.
    pub(in crate::cuda) fn messages(&self, setup: &EngineSetup) -> Vec<u64> {
        let row = u64::from(setup.model.shape.hidden) * setup.dtype.bytes();
        let prefill = StepSize::prefill(setup.prefill);
        let decode = StepSize::decode(setup.sequences);
        let sizes = |program: &GpuProgram, size: StepSize| {
            let groups = program.plan.groups;
            let rows = (0..groups.count).map(move |group| size.of_group(groups, group).rows());
            rows.map(move |rows| u64::from(rows) * row)
        };
        let mut all: Vec<u64> =
            sizes(&self.decode, decode).chain(sizes(&self.prefill, prefill)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn program(&self, phase: Phase) -> &GpuProgram {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }
}

/// Returns the reason if GPUs cannot execute a variant. NCCL reduce-scatters only the formats it can sum.
pub fn reduce_scatter_problem(tp: u32, variant: Variant) -> Option<String> {
    let Variant { comm_dtype, sequence_parallel, .. } = variant;
    (tp > 1 && sequence_parallel && comm_dtype != CommDType::Activations)
        .then(|| format!("the cuda backend has no reduce-scatter of {comm_dtype} messages"))
}

/// SMs that kernels leave to a collective of `rows` rows running in parallel; 0 if communication has its own
/// SMs.
pub(super) fn collective_sms(setup: &EngineSetup, transport: &CollectiveTransport, rows: u32) -> u32 {
    let hidden = setup.model.shape.hidden;
    let row = u64::from(hidden) * setup.dtype.bytes();
    let is_decode = rows <= setup.sequences && matches!(transport, CollectiveTransport::Nccl(..));
    let needed = match GpuAllReduce::from_collective(setup.collective) {
        Ok(GpuAllReduce::OneShotAddNorm) if is_decode => geometry::one_shot_rows(rows, hidden).grid[0],
        Ok(GpuAllReduce::OneShot) if is_decode => {
            geometry::one_shot(u64::from(rows) * u64::from(hidden)).grid[0]
        }
        // the run ends with an error where the option has no kernel
        Ok(_) | Err(_) => transport.multiprocessors(u64::from(rows) * row, setup.tp),
    };
    match (needed, setup.tuning.sms_for_comm) {
        (0, _) => 0,
        _ if setup.comm_sms > 0 => 0,
        (_, Some(sms)) => sms,
        (needed, None) => needed,
    }
}

/// True if the GPU supports programmatic dependent launch, also in graphs: Hopper or later, with a driver for
/// CUDA 12.3 or later.
pub(super) fn can_overlap(gpu: &Gpu) -> bool {
    gpu.info().sm >= (9, 0) && gpu.info().driver_api >= 12_030
}

pub(super) fn sizes(
    setup: &EngineSetup,
    multiprocessors: u32,
    programs: &Programs,
    transport: &CollectiveTransport,
) -> MemorySizes {
    let decode = &programs.decode;
    let mut operations = decode.plan.operations.iter().zip(decode.beside_collectives());
    // attention that overlaps a collective leaves it SMs, too
    let beside = operations.any(|(operation, beside)| operation.kind.is_attention() && beside);
    let reserved = if beside { collective_sms(setup, transport, setup.sequences) } else { 0 };
    MemorySizes {
        dtype: setup.dtype,
        tp: setup.tp,
        batch: setup.sequences,
        capacity: setup.capacity,
        output_tokens: setup.output_tokens,
        prefill: setup.prefill,
        sampling: setup.sampling,
        multiprocessors: multiprocessors.saturating_sub(reserved).max(1),
    }
}

/// Runs one NCCL sum per message size, so that NCCL's connections and buffers exist before the memory check
/// (NVLink SHARP buffers take hundreds of MB per rank). Returns the GPU memory taken (bytes), or an error if
/// a rank does not join or memory is too small.
pub(in crate::cuda) fn first_sums(
    gpu: &Gpu,
    communicator: &NcclCommunicator,
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
            let format = Some(DType::Bf16);
            communicator.exchange(Exchange::AllReduce, [at, at], count, format, stream.raw().cast())?;
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
    setup: &EngineSetup,
    sizes: &MemorySizes,
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

/// Early start of kernels: 0 or 1.
const PROGRAMMATIC: &str = "LADDERSCOPE_PROGRAMMATIC";
/// Prefetch of further weights by a product that starts early: 0 or 1.
const PREFETCH: &str = "LADDERSCOPE_PREFETCH";
/// Number of SMs that kernels leave to an overlapping collective.
const SMS_FOR_COMM: &str = "LADDERSCOPE_SMS_FOR_COMM";
/// Implementation of a decode step's products, overriding the timing: `library` or `own`.
const PRODUCTS: &str = "LADDERSCOPE_PRODUCTS";

/// Prefetch of the next product's weights by a product, in KB per SM.
const AHEAD: &str = "LADDERSCOPE_AHEAD";
/// Prefetch by decode attention instead of by the product before it, in KB per SM.
const AHEAD_ATTEND: &str = "LADDERSCOPE_AHEAD_ATTEND";
/// Maximum prefetch (KB per SM): with 132 SMs, more than the L2 cache of an H100 holds.
const MOST_AHEAD: u32 = 384;

/// Experimental execution choices from environment variables of the run's process, listed in the record with their
/// effect. They change results at most in their last bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// True if kernels may start before their predecessors end, if the GPU supports it.
    pub programmatic: bool,
    /// True if a product that starts early prefetches its next weights into the L2 cache.
    pub prefetch: bool,
    /// SMs left to an overlapping collective; `None` means as many as it uses.
    pub sms_for_comm: Option<u32>,
    /// Implementation of all products that have a choice; `None` means the fastest.
    pub products: Option<ProductKernel>,
    /// Prefetch of the next product's weights; off by default.
    pub ahead: WeightPrefetch,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            programmatic: true,
            prefetch: true,
            sms_for_comm: None,
            products: None,
            ahead: WeightPrefetch::default(),
        }
    }
}

impl Tuning {
    /// Reads the switches from this process's environment. Returns an input error for an invalid value, with
    /// the variable's name and its valid values.
    pub fn of_process() -> Result<Self> {
        Self::parse(|name| std::env::var(name).ok())
    }

    fn parse(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name| variable(name).filter(|text| !text.trim().is_empty());
        let switch = |name| match set(name).as_deref().map(str::trim) {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(other) => Err(Error::input(format!("{name} is '{other}'; it must be 0 or 1"))),
        };
        let (programmatic, prefetch) = (switch(PROGRAMMATIC)?, switch(PREFETCH)?);
        let number = |text: String| {
            text.trim().parse().map_err(|_| {
                let wanted = "it must be a number of multiprocessors, such as 24, or 0";
                Error::input(format!("{SMS_FOR_COMM} is '{text}'; {wanted}"))
            })
        };
        let sms_for_comm = set(SMS_FOR_COMM).map(number).transpose()?;
        let kernel = |text: String| match text.trim() {
            "library" => Ok(ProductKernel::Library),
            "own" => Ok(ProductKernel::Own),
            other => {
                let wanted = "it must be library or own";
                Err(Error::input(format!("{PRODUCTS} is '{other}'; {wanted}")))
            }
        };
        let products = set(PRODUCTS).map(kernel).transpose()?;
        let kb = |name| match set(name).as_deref().map(|text| (text, text.trim().parse::<u32>())) {
            None => Ok(0),
            Some((_, Ok(kb))) if kb <= MOST_AHEAD => Ok(kb),
            Some((text, _)) => {
                let wanted = format!("it must be a number of KB up to {MOST_AHEAD}, or 0");
                Err(Error::input(format!("{name} is '{text}'; {wanted}")))
            }
        };
        let ahead = WeightPrefetch { product_kb: kb(AHEAD)?, attention_kb: kb(AHEAD_ATTEND)? };
        Ok(Self { programmatic, prefetch, sms_for_comm, products, ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(programmatic: &str, prefetch: &str, sms: &str) -> Result<Tuning> {
        let all = [(PROGRAMMATIC, programmatic), (PREFETCH, prefetch), (SMS_FOR_COMM, sms)];
        Tuning::parse(|name| {
            all.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn variables_are_read_and_wrong_ones_refused() {
        assert_eq!(Tuning::parse(|_| None).ok(), Some(Tuning::default()));
        assert_eq!(tuning("", "1", " ").ok(), Some(Tuning::default()));
        let wanted = Tuning { programmatic: false, sms_for_comm: Some(8), ..Tuning::default() };
        assert_eq!(tuning("0", "", "8").ok(), Some(wanted));
        assert_eq!(tuning("1", "0", "").ok(), Some(Tuning { prefetch: false, ..Tuning::default() }));
        for (programmatic, prefetch, sms, name) in
            [("yes", "", "8", PROGRAMMATIC), ("1", "2", "8", PREFETCH), ("1", "", "-1", SMS_FOR_COMM)]
        {
            let error = tuning(programmatic, prefetch, sms).expect_err("wrong");
            assert!(error.to_string().starts_with(name) && error.exit_code() == 2, "{error}");
        }
        let products = |text: &str| Tuning::parse(|name| (name == PRODUCTS).then(|| text.to_owned()));
        let ahead = |name: &str, kb: &str| Tuning::parse(|known| (known == name).then(|| kb.to_owned()));
        let wanted = WeightPrefetch { product_kb: 128, attention_kb: 0 };
        assert_eq!(ahead(AHEAD, " 128 ").ok(), Some(Tuning { ahead: wanted, ..Tuning::default() }));
        let wanted = WeightPrefetch { product_kb: 0, attention_kb: 384 };
        assert_eq!(ahead(AHEAD_ATTEND, "384").ok(), Some(Tuning { ahead: wanted, ..Tuning::default() }));
        for (name, kb) in [(AHEAD, "385"), (AHEAD_ATTEND, "-1"), (AHEAD, "64 KB")] {
            let error = ahead(name, kb).expect_err("wrong").to_string();
            assert!(
                error.starts_with(&format!("{name} is '{kb}'; it must be a number of KB")),
                "{error}"
            );
        }
        let error = products("cublas").expect_err("wrong").to_string();
        assert_eq!(error, "LADDERSCOPE_PRODUCTS is 'cublas'; it must be library or own");
    }
}
