//! Whether a cell can run, found before anything starts.

use super::Verdict;
use super::gpus::Gpus;
use super::shared::Shared;
use crate::error::Result;
use crate::model::{DType, ModelShape};
use crate::plan::Precision;
use crate::spec::{Backend, Spec};

/// Whether a cell can run here, before anything starts: TP divides the model, memory suffices, the
/// backend exists and can do the dtype.
pub fn verdict(spec: &Spec) -> Result<Verdict> {
    verdict_with(spec, &Shared::default())
}

/// Likewise, of one cell of many.
pub(super) fn verdict_with(spec: &Spec, shared: &Shared) -> Result<Verdict> {
    let model = shared.model(&spec.model)?;
    if let Some(problem) = model.shape.tp_problem(spec.tp) {
        return Ok(Verdict::Skipped(problem));
    }
    match spec.backend {
        Backend::Cuda => return Ok(on_gpus(spec, &model.shape, Gpus::of_machine(), shared)),
        Backend::Cpu if spec.dtype == DType::F16 => {
            return Ok(Verdict::Skipped("the cpu backend computes in f32 or bf16, not in f16".into()));
        }
        _ => {}
    }
    memory(spec, &model.shape, shared)
}

/// Of a GPU's memory, what is left to the driver, its context, compiled kernels, graphs and NCCL.
const RESERVE: f64 = 0.05;

/// Whether a cell can run on these GPUs.
pub(super) fn on_gpus(spec: &Spec, shape: &ModelShape, gpus: &Gpus, shared: &Shared) -> Verdict {
    let all = match &gpus.found {
        Ok(all) => all,
        Err(why) => return Verdict::Skipped(format!("{why} (sim predicts this cell)")),
    };
    if let Some(why) = too_few(spec, gpus, all.len()) {
        return Verdict::Skipped(why);
    }
    let Some(gpu) = gpus.smallest() else {
        return Verdict::Skipped("no GPU answers (sim predicts this cell)".into());
    };
    let need = match shared.memory_on_gpu(spec, shape, gpu.multiprocessors) {
        Ok(need) => need,
        Err(why) => return Verdict::Skipped(why.to_string()),
    };
    let capacity = (gpu.memory_bytes as f64 * (1.0 - RESERVE)) as u64;
    if need.fits(capacity) {
        return Verdict::Runs;
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    Verdict::Oom(format!(
        "a rank needs {}; GPU {} ({}) has {:.1} GB, of which {:.0} % are left to the driver and libraries: \
         {:.1} GB",
        need.arithmetic(),
        gpu.index,
        gpu.name,
        gb(gpu.memory_bytes),
        RESERVE * 100.0,
        gb(capacity)
    ))
}

/// Why there are not enough GPUs for a cell's ranks, if so. Over an emulated link one rank runs.
fn too_few(spec: &Spec, gpus: &Gpus, count: usize) -> Option<String> {
    if spec.tp < 2 || spec.link.is_emulated() {
        return None;
    }
    let tp = spec.tp as usize;
    match &gpus.launched {
        Err(why) => Some(why.clone()),
        Ok(Some(ranks)) if *ranks < tp => Some(crate::launch::too_few(*ranks, spec)),
        Ok(Some(_)) => None,
        Ok(None) if count < tp => Some(format!(
            "tp {tp} needs {tp} GPUs, and {count} answer{}; one GPU runs one rank's shard over an emulated \
             link (--link p2p-on --hardware h100_sxm, or --link emulated:...)",
            if count == 1 { "s" } else { "" }
        )),
        Ok(None) => None,
    }
}

/// Whether the cell's memory is there: on cpu for all ranks together, else for one on its GPU.
pub(super) fn memory(spec: &Spec, shape: &ModelShape, shared: &Shared) -> Result<Verdict> {
    let cpu = spec.backend == Backend::Cpu;
    let (precision, capacity) = if cpu {
        (Precision::cpu(spec.dtype), crate::environment::available_memory())
    } else {
        let target = shared.target(&spec.hardware, &spec.stack, &spec.set)?;
        (Precision::uniform(spec.dtype), Some(target.profile.memory_bytes))
    };
    // where nobody knows how much there is, running is how to find out
    let Some(capacity) = capacity else { return Ok(Verdict::Runs) };
    let need = shared.memory(spec, shape, precision);
    let ranks = if cpu { u64::from(spec.tp) } else { 1 };
    let total = need.total().saturating_mul(ranks);
    if total <= capacity {
        return Ok(Verdict::Runs);
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let arithmetic = need.arithmetic();
    Ok(Verdict::Oom(if cpu {
        format!(
            "a rank needs {arithmetic}; {ranks} ranks need {:.1} GB, and {:.1} GB of memory are available",
            gb(total),
            gb(capacity)
        )
    } else {
        format!("a rank needs {arithmetic}; {} has {:.1} GB", spec.hardware, gb(capacity))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::usable;
    use crate::backend::sim::testing::{shape_70b, spec};
    use crate::spec::Link;
    use crate::sweep::gpus::made_up as gpus;

    fn cell(tp: u32) -> Spec {
        let spec = spec("ladder", "llama-3-70b");
        Spec { backend: Backend::Cuda, hardware: "host".into(), tp, dtype: DType::Bf16, ..spec }
    }

    fn judged(spec: &Spec, gpus: &Gpus) -> Verdict {
        on_gpus(spec, &shape_70b(), gpus, &Shared::default())
    }

    fn skipped(verdict: Verdict) -> String {
        match verdict {
            Verdict::Skipped(why) => why,
            other => panic!("{other:?}"),
        }
    }

    const H200: u64 = 150_000_000_000;

    #[test]
    fn a_cell_runs_where_each_rank_has_a_gpu_that_holds_its_shard() {
        assert_eq!(judged(&cell(8), &gpus(8, H200)), Verdict::Runs);
        assert_eq!(judged(&cell(2), &gpus(8, H200)), Verdict::Runs);
        let why = skipped(judged(&cell(8), &gpus(1, H200)));
        assert!(
            why.starts_with("tp 8 needs 8 GPUs, and 1 answers; one GPU runs one rank's shard"),
            "{why}"
        );
        // one rank's shard, the others emulated
        for link in [Link::P2pOff, Link::Emulated { alpha_us: 10.0, gb_s: 100.0 }] {
            assert_eq!(judged(&Spec { link, ..cell(8) }, &gpus(1, H200)), Verdict::Runs);
        }
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_arithmetic() {
        assert_eq!(judged(&cell(1), &gpus(1, H200)), Verdict::Runs, "just so");
        let large = Spec { batch: 16, ..cell(1) };
        let Verdict::Oom(why) = judged(&large, &gpus(1, H200)) else { panic!("141 GB of weights") };
        assert!(
            why.starts_with("a rank needs weights 141.1 GB + KV cache")
                && why.contains("GPU 0 (NVIDIA H200) has 150.0 GB, of which 5 % are left")
                && why.ends_with(": 142.5 GB"),
            "{why}"
        );
        assert!(matches!(judged(&cell(4), &gpus(4, 24_000_000_000)), Verdict::Oom(_)));
    }

    #[test]
    fn under_a_launcher_its_ranks_count() {
        let mut few = gpus(1, H200);
        few.launched = Ok(Some(8));
        assert_eq!(judged(&cell(8), &few), Verdict::Runs);
        few.launched = Ok(Some(4));
        assert_eq!(skipped(judged(&cell(8), &few)), "tp 8 needs 8 ranks, and the launcher started 4");
        few.launched = Err("RANK is set and WORLD_SIZE is not".into());
        assert!(skipped(judged(&cell(8), &few)).starts_with("RANK is set"));
    }

    #[test]
    fn machines_without_gpus_and_old_ones_say_so() {
        let none = Gpus { found: Err("no NVIDIA driver".into()), launched: Ok(None) };
        assert_eq!(skipped(judged(&cell(1), &none)), "no NVIDIA driver (sim predicts this cell)");
        let mut two = gpus(2, H200).found.unwrap();
        assert_eq!(usable::too_old(&two), None);
        two[1].sm = (7, 5);
        let why = usable::too_old(&two).unwrap();
        assert!(why.contains("GPU 1 (NVIDIA H200) has compute capability 7.5"), "{why}");
        let old = Gpus { found: Err(why.clone()), launched: Ok(None) };
        assert!(skipped(judged(&cell(2), &old)).starts_with(&why));
    }
}
