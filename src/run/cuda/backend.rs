//! The cuda backend: which cells fit this machine's GPUs, defaults, and the environment of run processes.

use super::program::GpuProgram;
use super::{experts, one_shot};
use crate::backend::{AutoFit, Execute, PlanBackend};
use crate::comm::nccl::{self, Nccl};
use crate::generate::{Emit, EvaluateRequest, GenerateOptions, StatusCallback};
use crate::launcher::too_few as too_few_ranks;
use crate::{
    Feasibility, GenerateRequest, GenerationResult, GridContext, Job, RunEvent, RunResult, launcher,
    resolve,
};
use base::error::{Error, Result};
use base::text::counted;
use machine::driver::libraries::{Library, open};
use machine::driver::{Gpu, GpuInfo};
use machine::environment::after_gpus;
use machine::hardware::profile_of;
use model::Model;
use plan::{AttentionShape, DType, Lowering, ModelShape};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::OnceLock;
use table::{
    Backend, CellOptions, Collective, Environment, Link, Nvls, P2p, Provenance, Spec, shared_gpu,
};

#[derive(Debug)]
pub struct CudaBackend;

impl PlanBackend for CudaBackend {
    fn name(&self) -> Backend {
        Backend::Cuda
    }

    fn available(&self) -> std::result::Result<String, String> {
        let count = usable_gpus().map_err(|error| error.to_string())?.len();
        Ok(match count {
            _ if shared_gpu::is_on() => {
                Nccl::load().map_err(|error| error.to_string())?;
                "all ranks share GPU 0, as a check: latencies are meaningless (LADDERSCOPE_SHARED_GPU)"
                    .into()
            }
            1 => "TP 1, and one rank's shard of a larger TP with --link emulated:... or p2p-on, p2p-off"
                .into(),
            count if Nccl::load().is_ok() => {
                format!("TP up to {count}, and --link emulated:... on one GPU")
            }
            _ => "TP 1, and --link emulated:...; TP 2 and more needs NCCL (above)".into(),
        })
    }

    fn complete(&self, _: &CellOptions, _: &GridContext, spec: &mut Spec) -> Result<()> {
        if spec.tp == 1 {
            (spec.comm_sms, spec.shard_head) = (0, false);
        }
        Ok(())
    }

    fn auto_fit(&self, options: &CellOptions, model: &Model, shared: &GridContext) -> Result<AutoFit> {
        let gpus = shared.gpus();
        let Some(gpu) = gpus.smallest() else { return Ok(Err("no GPU found".into())) };
        let spec = resolve::fill(options, model, self, shared)?;
        if model.shape.tp_problem(spec.tp).is_some() {
            // no backend can run it; the default backend reports why
            return Ok(Err("no backend divides it".into()));
        }
        if let Some(why) = one_shot::all_reduce_problem(&spec) {
            return Ok(Err(format!("not cuda: {why}")));
        }
        Ok(match on_gpus(&spec, &model.shape, gpus, shared) {
            Feasibility::Runs if spec.tp > 1 && spec.link.is_emulated() => {
                Ok(format!("{} answers; it runs one rank's shard of {}", gpu.name, spec.tp))
            }
            Feasibility::Runs => Ok(match &gpus.launched {
                Ok(Some(ranks)) => {
                    format!("the launcher started {ranks} ranks, and {} answers", gpu.name)
                }
                _ => {
                    let count = gpus.found.iter().flatten().count();
                    format!("{count} x {} answer{}", gpu.name, if count == 1 { "s" } else { "" })
                }
            }),
            Feasibility::Skipped(why) | Feasibility::Oom(why) => Err(format!("not cuda: {why}")),
        })
    }

    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &GridContext) -> Result<Feasibility> {
        if spec.pp > 1 {
            return Ok(Feasibility::Skipped(format!(
                "no pipeline stages on cuda (pp {}): sends between GPUs were never tested on two GPUs; cpu runs this \
                 cell, sim predicts it",
                spec.pp
            )));
        }
        let problem = super::engine::reduce_scatter_problem(spec.tp, spec.variant());
        if let Some(why) = problem.or_else(|| one_shot::all_reduce_problem(spec)) {
            return Ok(Feasibility::Skipped(why));
        }
        if shared.is_remote {
            return Ok(Feasibility::Runs);
        }
        Ok(on_gpus(spec, shape, shared.gpus(), shared))
    }

    fn lacks_shape(&self, shape: &ModelShape) -> Option<String> {
        let AttentionShape { latent, window, .. } = shape.attention;
        let what = match (latent, window) {
            (Some(_), _) => Some("latent attention (MLA)".to_owned()),
            (_, Some(window)) if window.is_chunked => Some("attention in chunks".to_owned()),
            _ => shape.experts.as_ref().and_then(experts::kernel_problem),
        };
        what.map(|what| format!("the cuda backend has no {what}; sim predicts this model"))
    }

    fn executor(&self) -> Option<&dyn Execute> {
        Some(self)
    }
}

impl Execute for CudaBackend {
    fn run(&self, job: &Job, emit: &mut dyn FnMut(RunEvent)) -> RunResult {
        super::run::run(job, emit)
    }

    fn is_supervised(&self) -> bool {
        true
    }

    fn gpus(&self, spec: &Spec) -> u32 {
        // an emulated link runs one rank's shard on one GPU
        if self.takes_processes(spec) { spec.tp } else { 1 }
    }

    fn takes_processes(&self, spec: &Spec) -> bool {
        spec.tp > 1 && spec.link == Link::Native
    }

    fn prepare(&self, command: &mut Command, spec: &Spec) {
        match spec.p2p {
            P2p::Off => command.env("NCCL_P2P_DISABLE", "1"),
            // do not inherit the variable in a cell with P2P
            P2p::On => command.env_remove("NCCL_P2P_DISABLE"),
        };
        if spec.nvls == Nvls::Off {
            command.env(nccl::NVLS, "0");
        }
        // collectives of all ranks share these SMs
        if spec.provenance() == Provenance::SharedGpu && spec.comm_sms > 0 {
            let room = (spec.comm_sms / spec.tp).clamp(1, shared_gpu::BLOCKS);
            command.env(shared_gpu::MOST_BLOCKS, room.to_string());
        }
    }

    fn after(&self, job: &Job, environment: &mut Environment) -> Vec<String> {
        if let Some(gpu) = Gpu::list().ok().and_then(|all| all.into_iter().nth(job.ranks.device)) {
            let profile = profile_of(&gpu.name, gpu.memory_bytes);
            environment.insert("hardware_profile".into(), json!(profile));
        }
        // each rank that is a process has one GPU
        let is_one = job.ranks.peers.is_some() || job.spec.provenance() == Provenance::SharedGpu;
        let count = if is_one { 1 } else { self.gpus(&job.spec) as usize };
        let warnings = after_gpus(environment, job.ranks.device..job.ranks.device + count);
        // throttled, shared or MIG GPUs do not show what the GPU can do: fail the self-check
        let part = |gpu: &Value| gpu["name"].as_str().is_some_and(|name| name.contains(" MIG "));
        let is_part =
            environment.get("gpus").and_then(Value::as_array).is_some_and(|all| all.iter().any(part));
        let parts = is_part.then(|| "the GPU is a part of one (MIG)".to_owned());
        let ended: Vec<String> = warnings.iter().cloned().chain(parts).collect();
        if let Some(check) = environment.get_mut("self_check").and_then(Value::as_object_mut)
            && !ended.is_empty()
        {
            check.insert("passed".into(), json!(false));
            check.insert("ended_by".into(), json!(ended));
        }
        warnings
    }

    fn suits_generation(&self, _: &Model, dtype: Option<DType>) -> AutoFit {
        match usable_gpus().map(|gpus| gpus.len()) {
            Ok(0) => Err("no GPU".into()),
            Ok(count) => Ok(counted(count, "GPU")),
            Err(error) if dtype == Some(DType::F16) => {
                Ok(format!("only it computes in f16; but {error}"))
            }
            Err(error) => Err(error.to_string().split(';').next().unwrap_or_default().to_owned()),
        }
    }

    fn generate(
        &self,
        request: &GenerateRequest,
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(usize),
        say: &mut StatusCallback<'_>,
    ) -> Result<GenerationResult> {
        super::generation::generate(request, options, on_token, say)
    }

    fn evaluation_lowering(&self) -> Lowering {
        GpuProgram::lowering(true)
    }

    fn evaluate(
        &self,
        request: &EvaluateRequest,
        stop: &(dyn Fn() -> bool + Sync),
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        super::evaluate::evaluate(request, stop, emit)
    }
}

/// Share of GPU memory reserved for the driver, its context, compiled kernels, graphs and NCCL.
const RESERVE: f64 = 0.05;

/// Feasibility of a cell on these GPUs.
fn on_gpus(spec: &Spec, shape: &ModelShape, gpus: &AvailableGpus, shared: &GridContext) -> Feasibility {
    let all = match &gpus.found {
        Ok(all) => all,
        Err(why) => return Feasibility::Skipped(format!("{why} (sim predicts this cell)")),
    };
    if let Some(why) = too_few(spec, gpus, all.len()) {
        return Feasibility::Skipped(why);
    }
    let Some(gpu) = gpus.smallest() else {
        return Feasibility::Skipped("no GPU found (use --backend sim to predict this cell)".into());
    };
    let need = match shared.memory_on_gpu(spec, shape, gpu.multiprocessors) {
        Ok(need) => need,
        Err(why) => return Feasibility::Skipped(why.to_string()),
    };
    let is_shared = spec.provenance() == Provenance::SharedGpu && !spec.link.is_emulated();
    let ranks = if is_shared { spec.tp } else { 1 };
    let capacity = (gpu.memory_bytes as f64 * (1.0 - RESERVE)) as u64 / u64::from(ranks);
    if need.fits(capacity) {
        return Feasibility::Runs;
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    Feasibility::Oom(format!(
        "a rank needs {}; GPU {} ({}) has {:.1} GB, of which {:.0} % are left to the driver and libraries: \
         {:.1} GB{}",
        need.arithmetic(),
        gpu.index,
        gpu.name,
        gb(gpu.memory_bytes),
        RESERVE * 100.0,
        gb(capacity),
        if ranks > 1 { " for each of the ranks that share it" } else { "" }
    ))
}

/// Returns the reason if there are fewer GPUs than ranks. An emulated link needs only one.
fn too_few(spec: &Spec, gpus: &AvailableGpus, count: usize) -> Option<String> {
    if spec.tp < 2 || spec.link.is_emulated() {
        return None;
    }
    let tp = spec.tp as usize;
    if spec.provenance() == Provenance::SharedGpu && spec.collective != Collective::Nccl {
        return Some(format!(
            "--collective {} needs a GPU for each rank, and the ranks share one",
            spec.collective
        ));
    }
    match &gpus.launched {
        Err(why) => Some(why.clone()),
        Ok(Some(ranks)) if *ranks < tp => Some(too_few_ranks(*ranks, spec)),
        Ok(Some(_)) if spec.collective != Collective::Nccl => {
            Some(one_shot::process_problem(spec.collective))
        }
        Ok(Some(_)) => None,
        Ok(None) if count < tp && spec.provenance() != Provenance::SharedGpu => Some(format!(
            "tp {tp} needs {tp} GPUs, and {count} answer{}; one GPU runs one rank's shard over an emulated \
             link (--link p2p-on --hardware h100_sxm, or --link emulated:...)",
            if count == 1 { "s" } else { "" }
        )),
        Ok(None) => None,
    }
}

#[derive(Clone, Debug)]
pub struct AvailableGpus {
    /// Usable GPUs, or the reason why there are none.
    pub found: Result<Vec<GpuInfo>, String>,
    /// Number of ranks started by a launcher, or the problem with its variables; `None` without a launcher.
    pub launched: Result<Option<usize>, String>,
}

impl AvailableGpus {
    /// Queried once: the set of GPUs does not change within a process.
    pub fn of_machine() -> &'static Self {
        static FOUND: OnceLock<AvailableGpus> = OnceLock::new();
        FOUND.get_or_init(|| Self {
            found: usable_gpus().map_err(|e| e.to_string()),
            launched: launcher::of_process()
                .map(|launched| launched.map(|launched| launched.meeting.ranks))
                .map_err(|e| e.to_string()),
        })
    }

    /// GPU with the least memory, which limits all ranks.
    pub fn smallest(&self) -> Option<&GpuInfo> {
        self.found.iter().flatten().min_by_key(|gpu| gpu.memory_bytes)
    }
}

/// Fictitious GPUs for tests.
#[cfg(test)]
pub fn made_up_gpus(count: usize, memory_bytes: u64) -> AvailableGpus {
    let gpu = |index| GpuInfo {
        index,
        name: "NVIDIA H200".into(),
        sm: (9, 0),
        multiprocessors: 132,
        memory_bytes,
        l2_bytes: 50 << 20,
        shared_per_block: 227 << 10,
        driver_api: 13_000,
        uuid: format!("GPU-{index}"),
        pci: String::new(),
        clock_khz: 0,
    };
    AvailableGpus { found: Ok((0..count).map(gpu).collect()), launched: Ok(None) }
}

/// Minimum compute capability (major, minor).
const OLDEST: (u32, u32) = (8, 0);

/// GPUs visible to this process, if all can run the cuda backend.
///
/// # Errors
///
/// Returns an error if there is no driver or no GPU, a GPU is older than compute capability 8.0, or a
/// required library (NVRTC, cuBLASLt) is missing.
pub fn usable_gpus() -> Result<Vec<GpuInfo>> {
    let all = Gpu::list()?;
    if let Some(why) = too_old(&all) {
        return Err(Error::failed(why));
    }
    // load these large libraries only if there is a GPU
    if !all.is_empty() {
        open(Library::Nvrtc)?;
        open(Library::CublasLt)?;
    }
    Ok(all)
}

/// Returns the reason if kernels do not support one of these GPUs.
pub fn too_old(gpus: &[GpuInfo]) -> Option<String> {
    gpus.iter().find(|gpu| gpu.sm < OLDEST).map(|old| {
        format!(
            "GPU {} ({}) has compute capability {}.{}; the cuda backend needs {}.{} or newer",
            old.index, old.name, old.sm.0, old.sm.1, OLDEST.0, OLDEST.1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{shape_70b, spec};

    fn cell(tp: u32) -> Spec {
        let spec = spec("ladder", "llama-3-70b");
        Spec { backend: Backend::Cuda, hardware: "host".into(), tp, dtype: DType::Bf16, ..spec }
    }

    fn judged(spec: &Spec, gpus: &AvailableGpus) -> Feasibility {
        on_gpus(spec, &shape_70b(), gpus, &GridContext::default())
    }

    fn skipped(found: Feasibility) -> String {
        match found {
            Feasibility::Skipped(why) => why,
            other => panic!("{other:?}"),
        }
    }

    const H200: u64 = 150_000_000_000;

    #[test]
    fn a_cell_runs_where_each_rank_has_a_gpu_that_holds_its_shard() {
        assert_eq!(judged(&cell(8), &made_up_gpus(8, H200)), Feasibility::Runs);
        assert_eq!(judged(&cell(2), &made_up_gpus(8, H200)), Feasibility::Runs);
        let why = skipped(judged(&cell(8), &made_up_gpus(1, H200)));
        assert!(
            why.starts_with("tp 8 needs 8 GPUs, and 1 answers; one GPU runs one rank's shard"),
            "{why}"
        );
        // one rank's shard, the others emulated
        for link in [Link::P2pOff, Link::Emulated { alpha_us: 10.0, gb_s: 100.0 }] {
            assert_eq!(judged(&Spec { link, ..cell(8) }, &made_up_gpus(1, H200)), Feasibility::Runs);
        }
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_arithmetic() {
        assert_eq!(judged(&cell(1), &made_up_gpus(1, H200)), Feasibility::Runs, "just so");
        let large = Spec { batch: 16, ..cell(1) };
        let Feasibility::Oom(why) = judged(&large, &made_up_gpus(1, H200)) else {
            panic!("141 GB of weights")
        };
        assert!(
            why.starts_with("a rank needs weights 141.1 GB + KV cache")
                && why.contains("GPU 0 (NVIDIA H200) has 150.0 GB, of which 5 % are left")
                && why.ends_with(": 142.5 GB"),
            "{why}"
        );
        assert!(matches!(judged(&cell(4), &made_up_gpus(4, 24_000_000_000)), Feasibility::Oom(_)));
    }

    #[test]
    fn under_a_launcher_its_ranks_count() {
        let mut few = made_up_gpus(1, H200);
        few.launched = Ok(Some(8));
        assert_eq!(judged(&cell(8), &few), Feasibility::Runs);
        let why = skipped(judged(&Spec { collective: Collective::Fused, ..cell(8) }, &few));
        assert!(why.contains("needs all ranks in one process"), "{why}");
        few.launched = Ok(Some(4));
        assert_eq!(skipped(judged(&cell(8), &few)), "tp 8 needs 8 ranks, and the launcher started 4");
        few.launched = Err("RANK is set and WORLD_SIZE is not".into());
        assert!(skipped(judged(&cell(8), &few)).starts_with("RANK is set"));
    }

    #[test]
    fn machines_without_gpus_and_old_ones_say_so() {
        let none = AvailableGpus { found: Err("no NVIDIA driver".into()), launched: Ok(None) };
        assert_eq!(skipped(judged(&cell(1), &none)), "no NVIDIA driver (sim predicts this cell)");
        let mut two = made_up_gpus(2, H200).found.unwrap();
        assert_eq!(too_old(&two), None);
        two[1].sm = (7, 5);
        let why = too_old(&two).unwrap();
        assert!(why.contains("GPU 1 (NVIDIA H200) has compute capability 7.5"), "{why}");
        let old = AvailableGpus { found: Err(why.clone()), launched: Ok(None) };
        assert!(skipped(judged(&cell(2), &old)).starts_with(&why));
    }
}
