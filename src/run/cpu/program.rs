//! A plan made ready for the cpu: buffers assigned, names formatted, waits resolved, weights shared.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::model::{Matrix, MatrixData, Model, WeightSource};
use crate::plan::{Buffer, BufferId, DType, Lane, Plan, PlanSpec, Tensor};

/// A plan and what all ranks can share about it.
#[derive(Debug)]
pub struct Program {
    /// The plan whose operations the ranks execute.
    pub plan: Plan,
    /// The buffer of each value.
    pub(super) buffer_of: Vec<BufferId>,
    /// What each buffer holds.
    pub(super) buffers: Vec<Buffer>,
    /// For each operation, the last comm operation that must have completed (comm completes in order).
    pub(super) awaits: Vec<Option<u32>>,
    /// For each operation, whether it is a collective whose operand a later operation reads.
    pub(super) keeps: Vec<bool>,
    /// Names with their phase, for NVTX.
    pub(super) names: Arc<[String]>,
    /// Index of the first operation in the trace's operations table.
    pub(super) base: u32,
}

impl Program {
    /// Builds a phase's plan; `base` is the number of operations before it in the trace's table.
    pub fn new(spec: &PlanSpec, base: u32) -> Result<Self> {
        let plan = Plan::new(spec).map_err(|problem| Error::input(problem.to_string()))?;
        Ok(Self::of(plan, base))
    }

    /// Makes a plan ready; `base` is the number of operations before it in the trace's table.
    pub fn of(plan: Plan, base: u32) -> Self {
        let assigned = plan.buffers();
        let writers = plan.writers();
        let awaits = plan
            .operations
            .iter()
            .map(|operation| {
                operation
                    .reads
                    .iter()
                    .filter_map(|value| writers[value.index()])
                    .chain(operation.after.iter().copied())
                    .filter(|op| plan.operations[op.index()].lane == Lane::Comm)
                    .map(|op| op.0)
                    .max()
            })
            .collect();
        let keeps = plan.operations.iter().enumerate().map(|(at, operation)| {
            let mut later = plan.operations[at + 1..].iter().flat_map(|later| &later.reads);
            operation.lane == Lane::Comm && later.any(|read| operation.reads.contains(read))
        });
        let keeps = keeps.collect();
        let phase = plan.phase.as_str();
        let names = plan.operations.iter().map(|o| format!("{phase}/{}", o.name)).collect();
        Self {
            buffer_of: assigned.of_value,
            buffers: assigned.buffers,
            awaits,
            keeps,
            names,
            base,
            plan,
        }
    }
}

/// One rank's weights by name. Whole tensors (norms, embedding, head) are shared between ranks.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    by_name: HashMap<String, Arc<Matrix>>,
}

impl Weights {
    /// Loads what every rank holds whole for these plans: norms, embedding and head, once for all ranks.
    pub fn shared(source: &WeightSource, model: &Model, plans: &[&Plan], dtype: DType) -> Result<Self> {
        let mut weights = Self::default();
        let mut embedding: Option<Arc<Matrix>> = None;
        let all = plans.iter().flat_map(|plan| &plan.weights);
        for weight in all.filter(|weight| weight.is_whole()) {
            if weights.by_name.contains_key(&weight.name) {
                continue;
            }
            let first = weight.parts[0].tensor;
            let matrix = match (first, &embedding) {
                (Tensor::Head, Some(embedding)) if model.shape.tied_embeddings => Arc::clone(embedding),
                _ => Arc::new(source.load(weight, 0, 1, dtype)?),
            };
            if first == Tensor::Embedding {
                embedding = Some(Arc::clone(&matrix));
            }
            weights.by_name.insert(weight.name.clone(), matrix);
        }
        Ok(weights)
    }

    /// Adds the slices of sharded weights that this rank holds for these plans.
    pub fn with_rank(
        mut self,
        source: &WeightSource,
        plans: &[&Plan],
        rank: u32,
        dtype: DType,
    ) -> Result<Self> {
        for plan in plans {
            for weight in plan.weights.iter().filter(|weight| !weight.is_whole()) {
                if self.by_name.contains_key(&weight.name) {
                    continue;
                }
                let matrix = source.load(weight, rank, plan.tp, dtype)?;
                self.by_name.insert(weight.name.clone(), Arc::new(matrix));
            }
        }
        Ok(self)
    }

    /// The plan's weights, by its indices.
    pub fn of_plan(&self, plan: &Plan) -> Result<Vec<Arc<Matrix>>> {
        plan.weights
            .iter()
            .map(|weight| {
                self.by_name
                    .get(&weight.name)
                    .cloned()
                    .ok_or_else(|| Error::failed(format!("weight {} was not loaded", weight.name)))
            })
            .collect()
    }

    /// Bytes of all weights, tied ones once.
    pub fn bytes(&self) -> u64 {
        let mut seen = std::collections::HashSet::new();
        self.by_name
            .values()
            .filter(|matrix| seen.insert(Arc::as_ptr(matrix)))
            .map(|matrix| bytes(matrix))
            .sum()
    }
}

fn bytes(matrix: &Matrix) -> u64 {
    match &matrix.data {
        MatrixData::F32(data) => size_of_val(data.as_slice()) as u64,
        MatrixData::Bf16(data) => size_of_val(data.as_slice()) as u64,
    }
}
