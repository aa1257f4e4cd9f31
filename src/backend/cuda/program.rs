//! A plan made ready for GPUs: lowered, buffers assigned, names formatted. Pure: no driver, no memory.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::{DType, ModelShape};
use crate::plan::{
    Architecture, Buffer, BufferId, Element, Kind, Lowering, Phase, Plan, PlanSpec, Precision, Rows,
    ValueId,
};

/// A plan and what all ranks share about it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The plan.
    pub plan: Plan,
    /// Format of weights, activations and KV cache.
    pub dtype: DType,
    /// The buffers.
    pub(super) buffers: Vec<Buffer>,
    /// The buffer of each value.
    pub(super) buffer_of: Vec<BufferId>,
    /// Names with their phase, for NVTX.
    pub(super) names: Arc<[String]>,
    /// Index of the first operation in the trace's operations table.
    pub base: u32,
}

impl Program {
    /// Builds a phase's plan with everything in `dtype` and additions fused with the norms that follow
    /// them; `base` is the number of operations before it in the trace's table.
    pub fn new(
        shape: &ModelShape,
        architecture: &Architecture,
        tp: u32,
        dtype: DType,
        phase: Phase,
        all_logits: bool,
        base: u32,
    ) -> Result<Self> {
        let plan = Plan::new(&PlanSpec {
            shape: shape.clone(),
            architecture: architecture.clone(),
            tp,
            phase,
            precision: Precision::uniform(dtype),
            lowering: Lowering { all_logits, fuse_add_norm: true, shard_head: false },
        })
        .map_err(|problem| Error::input(problem.to_string()))?;
        if let Some(gather) = plan.operations.iter().find(|o| o.kind == Kind::AllGather) {
            return Err(Error::input(format!(
                "{}: the cuda backend does not shard the head",
                gather.name
            )));
        }
        let assigned = plan.buffers();
        let names = plan.operations.iter().map(|o| format!("{}/{}", phase.as_str(), o.name)).collect();
        Ok(Self { buffers: assigned.buffers, buffer_of: assigned.of_value, names, dtype, base, plan })
    }

    /// The buffer of a value.
    pub(super) fn buffer(&self, value: ValueId) -> usize {
        self.buffer_of[value.index()].0 as usize
    }

    /// Bytes of each buffer in a step of so many rows and sequences; 0 for tokens, which the step's
    /// state holds.
    pub(super) fn buffer_bytes(&self, rows: u64, sequences: u64) -> Vec<u64> {
        let bytes = |buffer: &Buffer| {
            let rows = match buffer.rows {
                Rows::Tokens => rows,
                Rows::Sequences => sequences,
            };
            let each = match buffer.element {
                Element::Activation => self.dtype.bytes(),
                Element::Logit => 4,
                Element::Token => 0,
            };
            rows.saturating_mul(u64::from(buffer.columns)).saturating_mul(each)
        };
        self.buffers.iter().map(bytes).collect()
    }
}
