//! Compiled plan for the cpu backend: buffers assigned, names formatted, waits resolved, weights shared.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arithmetic::product::{Format, Panels};
use base::error::{Error, Result};
use model::{Matrix, MatrixData, Model, WeightSource};
use plan::{Buffer, BufferId, DType, Kind, Lane, Plan, Tensor, Weight};

#[derive(Debug)]
pub struct Program {
    pub plan: Plan,
    pub(super) buffer_of: Vec<BufferId>,
    pub(super) buffers: Vec<Buffer>,
    /// Last comm operation that each operation must wait for (comm completes in order).
    pub(super) awaits: Vec<Option<u32>>,
    /// True for collectives whose operand a later operation reads.
    pub(super) keeps: Vec<bool>,
    /// Operation names with their phase, for NVTX.
    pub(super) names: Arc<[String]>,
    /// Index of the first operation in the trace's operations table.
    pub(super) base: u32,
}

impl Program {
    /// Compiles a plan; `base` is the number of operations before it in the trace's table.
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

/// Weight in memory: panels for matrix products and the embedding (which the head may share), plain rows for norms
/// and biases.
#[derive(Clone, Debug)]
pub(super) enum StoredWeight {
    Panels(Arc<Panels>),
    Rows(Arc<Matrix>),
}

impl StoredWeight {
    pub fn panels(&self) -> Option<&Arc<Panels>> {
        match self {
            Self::Panels(panels) => Some(panels),
            Self::Rows(_) => None,
        }
    }

    pub fn rows(&self) -> Option<&Matrix> {
        match self {
            Self::Rows(matrix) => Some(matrix),
            Self::Panels(_) => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Panels(panels) => panels.bytes(),
            Self::Rows(matrix) => match &matrix.data {
                MatrixData::F32(data) => size_of_val(data.as_slice()) as u64,
                MatrixData::Bf16(data) => size_of_val(data.as_slice()) as u64,
            },
        }
    }

    fn address(&self) -> *const u8 {
        match self {
            Self::Panels(panels) => Arc::as_ptr(panels).cast(),
            Self::Rows(matrix) => Arc::as_ptr(matrix).cast(),
        }
    }
}

/// One rank's weights by name. Unsharded tensors (norms, embedding, head) are shared between ranks.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    by_name: HashMap<String, StoredWeight>,
}

/// A plan's weights, each with a flag that is true if it is read as panels.
fn weights_of(plan: &Plan) -> impl Iterator<Item = (&Weight, bool)> {
    let in_panels = move |at: usize| {
        let mut readers =
            plan.operations.iter().filter(move |o| o.weight.is_some_and(|w| w.index() == at));
        readers.any(|operation| matches!(operation.kind, Kind::MatMul | Kind::Embed))
    };
    plan.weights.iter().enumerate().map(move |(at, weight)| (weight, in_panels(at)))
}

impl Weights {
    pub fn shared(source: &WeightSource, model: &Model, plans: &[&Plan], dtype: DType) -> Result<Self> {
        let mut weights = Self::default();
        let tied = |tensor: Tensor| tensor == Tensor::Head && model.shape.tied_embeddings;
        let whole = || plans.iter().flat_map(|plan| weights_of(plan)).filter(|(w, _)| w.is_whole());
        let own = whole().filter(|(weight, _)| !tied(weight.parts[0].tensor));
        weights.load(own.collect(), dtype, |weight| source.load(weight, 0, 1, dtype))?;
        for (weight, in_panels) in whole().filter(|(weight, _)| tied(weight.parts[0].tensor)) {
            let embedding = whole().find(|(other, _)| other.parts[0].tensor == Tensor::Embedding);
            match embedding.and_then(|(embedding, _)| weights.by_name.get(&embedding.name)).cloned() {
                Some(embedding) => drop(weights.by_name.insert(weight.name.clone(), embedding)),
                None => {
                    weights.load(vec![(weight, in_panels)], dtype, |w| source.load(w, 0, 1, dtype))?
                }
            }
        }
        Ok(weights)
    }

    pub fn with_rank(
        mut self,
        source: &WeightSource,
        plans: &[&Plan],
        rank: u32,
        dtype: DType,
    ) -> Result<Self> {
        for plan in plans {
            let own = weights_of(plan).filter(|(weight, _)| !weight.is_whole());
            self.load(own.collect(), dtype, |weight| source.load(weight, rank, plan.tp, dtype))?;
        }
        Ok(self)
    }

    fn load(
        &mut self,
        mut wanted: Vec<(&Weight, bool)>,
        dtype: DType,
        load: impl Fn(&Weight) -> Result<Matrix>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        wanted.retain(|(w, _)| !self.by_name.contains_key(&w.name) && seen.insert(w.name.as_str()));
        for (weight, _) in wanted.iter().filter(|(_, in_panels)| !in_panels) {
            self.by_name.insert(weight.name.clone(), StoredWeight::Rows(Arc::new(load(weight)?)));
        }
        let in_panels = || wanted.iter().filter(|(_, in_panels)| *in_panels).map(|(weight, _)| *weight);
        let sizes = in_panels().map(|weight| (weight.outputs as usize, weight.inputs as usize));
        let format = if dtype == DType::Bf16 { Format::Bf16 } else { Format::F32 };
        let all = Panels::of_all(sizes, format, in_panels().map(load))?;
        for (weight, panels) in in_panels().zip(all) {
            self.by_name.insert(weight.name.clone(), StoredWeight::Panels(Arc::new(panels)));
        }
        Ok(())
    }

    pub(super) fn of_plan(&self, plan: &Plan) -> Result<Vec<StoredWeight>> {
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

    /// Bytes of all weights; tied weights count once.
    pub fn bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        self.by_name.values().filter(|held| seen.insert(held.address())).map(StoredWeight::bytes).sum()
    }
}
