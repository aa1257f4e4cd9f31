//! The plans of a cell, which cells that differ in batch, tokens or link share.

use std::sync::OnceLock;

use super::run::collective;
use base::error::{Error, Result};
use machine::hardware::{PlanMemory, Target};
use plan::{DType, Lowering, ModelShape, Phase, Plan, Precision};
use table::{Collective, Spec};

/// The prefill and the decode plan of a cell as a stack lowers them.
#[derive(Clone, Debug)]
pub struct Plans {
    /// The plan of the prompt's step.
    pub prefill: Plan,
    /// The plan of any decode step; costs follow from the step's numbers.
    pub decode: Plan,
    /// Made when they are first asked for: whether a cell can run is told without them.
    hashes: OnceLock<Vec<String>>,
    /// Found when it is first asked for.
    memory: OnceLock<PlanMemory>,
}

impl Plans {
    /// Builds the plans of a cell, both at once. They depend on the spec's architecture, TP, dtype and variant and on how they are lowered; on the
    /// workload only where a batch is divided into groups. An input error where TP does not
    /// divide the model, with the arithmetic.
    pub fn new(spec: &Spec, shape: &ModelShape, target: &Target) -> Result<Self> {
        let lowering = lowering(spec, target);
        let plan = |phase| {
            Plan::new(&spec.plan(shape, phase, Precision::gpu(spec.dtype), lowering))
                .map_err(|error| Error::input(format!("{}: {error}", spec.label())))
        };
        let (prefill, decode) = rayon::join(|| plan(Phase::Prefill), || plan(Phase::Decode));
        Ok(Self { prefill: prefill?, decode: decode?, hashes: OnceLock::new(), memory: OnceLock::new() })
    }

    /// What the plans keep in memory; `shape` and `dtype` are those that they were built with.
    pub fn memory(&self, shape: &ModelShape, dtype: DType) -> &PlanMemory {
        let precision = Precision::gpu(dtype);
        self.memory.get_or_init(|| PlanMemory::of(shape, precision, &self.prefill, &self.decode))
    }

    /// The hashes of the prefill and of the decode plan, in this order: the first time a millisecond or
    /// two for a large model.
    pub fn hashes(&self) -> &[String] {
        self.hashes.get_or_init(|| {
            // not Rayon's join: a worker that waits there may take up a cell that waits for these hashes
            std::thread::scope(|scope| {
                let decode = scope.spawn(|| self.decode.hash());
                let prefill = self.prefill.hash();
                vec![prefill, decode.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
            })
        })
    }
}

/// How the plans of a cell are lowered: as its stack does, and with fused all-reduces where its collective is
/// `fused` and its link has that: emulated ones have whatever is asked for.
pub fn lowering(spec: &Spec, target: &Target) -> Lowering {
    let is_fused = spec.collective == Collective::Fused
        && collective(spec, target).1.is_none_or(|used| used == Collective::Fused);
    Lowering { fuse_all_reduce: is_fused, ..target.stack.lowering() }
}
