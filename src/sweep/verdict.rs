//! Whether a cell can run, found before anything starts.

use super::Verdict;
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
        Backend::Cuda => {
            let why = "the cuda backend is not in this build; sim and cpu are (sim predicts this cell)";
            return Ok(Verdict::Skipped(why.into()));
        }
        Backend::Cpu if spec.dtype == DType::F16 => {
            return Ok(Verdict::Skipped("the cpu backend computes in f32 or bf16, not in f16".into()));
        }
        _ => {}
    }
    memory(spec, &model.shape, shared)
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
