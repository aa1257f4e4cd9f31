//! Plans of a cell, shared by cells that differ in batch, tokens or link.

use std::sync::OnceLock;

use super::run::collective;
use base::error::{Error, Result};
use machine::hardware::{PlanMemory, Target};
use plan::{DType, Lowering, ModelShape, Phase, Plan, Precision};
use table::{Collective, Spec};

#[derive(Clone, Debug)]
pub struct Plans {
    pub prefill: Plan,
    /// Plan of every decode step; costs depend on the step.
    pub decode: Plan,
    /// Lazy, because feasibility checks do not need them.
    hashes: OnceLock<Vec<String>>,
    memory: OnceLock<PlanMemory>,
}

impl Plans {
    /// Builds both plans in parallel. They depend on architecture, TP, dtype, variant and lowering, and on the batch
    /// only if it is divided into micro-batches. Returns an input error with the arithmetic if TP does not divide the
    /// model.
    pub fn new(spec: &Spec, shape: &ModelShape, target: &Target) -> Result<Self> {
        let lowering = lowering(spec, target);
        let plan = |phase| {
            Plan::new(&spec.plan(shape, phase, Precision::gpu(spec.dtype), lowering))
                .map_err(|error| Error::input(format!("{}: {error}", spec.label())))
        };
        let (prefill, decode) = rayon::join(|| plan(Phase::Prefill), || plan(Phase::Decode));
        Ok(Self { prefill: prefill?, decode: decode?, hashes: OnceLock::new(), memory: OnceLock::new() })
    }

    /// Memory need of the plans; `shape` and `dtype` must be those they were built with.
    pub fn memory(&self, shape: &ModelShape, dtype: DType) -> &PlanMemory {
        let precision = Precision::gpu(dtype);
        self.memory.get_or_init(|| PlanMemory::of(shape, precision, &self.prefill, &self.decode))
    }

    /// Hashes of prefill and decode plan. The first call takes one or two milliseconds for a large model.
    pub fn hashes(&self) -> &[String] {
        self.hashes.get_or_init(|| {
            // not Rayon's join: a waiting worker may pick up a cell that waits for these hashes
            std::thread::scope(|scope| {
                let decode = scope.spawn(|| self.decode.hash());
                let prefill = self.prefill.hash();
                vec![prefill, decode.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
            })
        })
    }
}

/// Lowering of a cell's plans: the stack's, with fused all-reduces if the cell asks for them and its link supports
/// them. Emulated links support every collective.
pub fn lowering(spec: &Spec, target: &Target) -> Lowering {
    let is_fused = spec.collective == Collective::Fused
        && collective(spec, target).1.is_none_or(|used| used == Collective::Fused);
    Lowering { fuse_all_reduce: is_fused, ..target.stack.lowering() }
}
