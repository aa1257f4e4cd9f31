//! Plans: their inputs, their operations in order, and the dependencies between operations.

use serde::{Deserialize, Serialize};

use super::{
    Architecture, DType, Groups, Kind, Lowering, ModelShape, OpId, Operation, Phase, PlanError, Value,
    ValueId, Variant, Weight, build, lower,
};

/// Bytes of the f32 scale of one fp8 output.
const SCALE_BYTES: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precision {
    /// Format of weights in memory; see [`Precision::of_weight`].
    pub weights: DType,
    /// Format of activations, and so of all-reduce messages.
    pub activations: DType,
    pub kv: DType,
}

impl Precision {
    /// One format for weights, activations and KV cache.
    pub fn uniform(dtype: DType) -> Self {
        Self { weights: dtype, activations: dtype, kv: dtype }
    }

    /// Formats on a GPU: activations and KV cache match the weights, or are bf16 with fp8 weights.
    pub fn gpu(weights: DType) -> Self {
        Self { weights, ..Self::uniform(weights.activations()) }
    }

    /// Formats of the cpu backend: f32 activations and KV cache. It dequantizes fp8 weights to f32.
    pub fn cpu(weights: DType) -> Self {
        let weights = if weights == DType::Fp8 { DType::F32 } else { weights };
        Self { weights, activations: DType::F32, kv: DType::F32 }
    }

    /// Format in which a rank holds a weight; with fp8, unquantized weights use the activation format.
    pub fn of_weight(self, weight: &Weight, shape: &ModelShape) -> DType {
        if self.weights == DType::Fp8 && !weight.is_quantized(shape) {
            return self.activations;
        }
        self.weights
    }

    /// Bytes of one rank's slice of a weight, including fp8 scales.
    pub fn weight_bytes(self, weight: &Weight, shape: &ModelShape) -> u64 {
        let format = self.of_weight(weight, shape);
        let scale = if format == DType::Fp8 { SCALE_BYTES } else { 0 };
        u64::from(weight.outputs) * (u64::from(weight.inputs) * format.bytes() + scale)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlanSpec {
    pub shape: ModelShape,
    pub architecture: Architecture,
    /// TP: the number of ranks over which weights and heads are sharded.
    pub tp: u32,
    pub phase: Phase,
    pub precision: Precision,
    pub lowering: Lowering,
    pub variant: Variant,
    /// Sequences processed together; matters only if they are divided into groups.
    pub batch: u32,
}

impl PlanSpec {
    pub fn groups(&self) -> Groups {
        Groups::of(self.phase, self.batch, self.variant.micro_batches)
    }
}

/// Operations of a step, in an order in which each lane can execute them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub phase: Phase,
    /// TP: the number of ranks, each with its own weight slices.
    pub tp: u32,
    /// Each operation reads only what earlier ones wrote.
    pub operations: Vec<Operation>,
    /// Indexed by [`ValueId`].
    pub values: Vec<Value>,
    /// Weights, as slices of named tensors.
    pub weights: Vec<Weight>,
    pub groups: Groups,
    /// Input tokens of each group (read by `Embed`); no operation writes them.
    pub tokens: Vec<ValueId>,
    /// Logits of each group. If the prompt's tokens are divided, only the last group has them, unless
    /// logits of every position are wanted.
    pub logits: Vec<ValueId>,
    /// Sampled tokens of each group (only the last if the prompt's tokens are divided): the step's
    /// output and the next step's input.
    pub outputs: Vec<ValueId>,
}

impl Plan {
    /// Builds the plan of an architecture and lowers it for the stack.
    ///
    /// # Errors
    ///
    /// Returns [`PlanError::Shape`] if TP does not divide the model, and [`PlanError::Placement`] if an
    /// operation would read a value with the wrong placement.
    pub fn new(spec: &PlanSpec) -> Result<Self, PlanError> {
        let plan = build::build(spec)?;
        Ok(lower::lower(plan, &spec.lowering))
    }

    /// For each value, the operation that writes it (`None` for the step's tokens).
    pub fn writers(&self) -> Vec<Option<OpId>> {
        let mut writers = vec![None; self.values.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for value in &operation.writes {
                writers[value.index()] = Some(OpId(index as u32));
            }
        }
        writers
    }

    /// Dependencies of each operation: the previous operation on its lane, the writers of its operands,
    /// and its explicit edges.
    pub fn dependencies(&self) -> Vec<Vec<OpId>> {
        let writers = self.writers();
        let mut previous = [None; 2];
        self.operations
            .iter()
            .enumerate()
            .map(|(index, operation)| {
                let lane = &mut previous[operation.lane as usize];
                let mut waits: Vec<OpId> = operation
                    .reads
                    .iter()
                    .filter_map(|value| writers[value.index()])
                    .chain(operation.after.iter().copied())
                    .chain(*lane)
                    .collect();
                waits.sort_unstable();
                waits.dedup();
                *lane = Some(OpId(index as u32));
                waits
            })
            .collect()
    }

    /// Value from which the last position of each sequence is selected, one row per position: with
    /// [`Lowering::late_select`] the output of the final norm. `None` in decode, which has no other
    /// positions.
    pub fn selected_from(&self) -> Option<ValueId> {
        let select = self.operations.iter().rfind(|operation| operation.kind == Kind::SelectLast)?;
        Some(select.reads[0])
    }

    /// Hash (SHA-256, first 16 hex digits) of operations, values and weights. The encoding is versioned;
    /// older records use [`Plan::json_hash`].
    pub fn hash(&self) -> String {
        super::digest::digest(self)
    }

    /// Hash of the plan's JSON text, as in records and evaluation keys since the first format; kept to
    /// find those. About ten times slower than [`Plan::hash`].
    pub fn json_hash(&self) -> String {
        let text =
            serde_json::to_string(&(&self.operations, &self.values, &self.weights)).unwrap_or_default();
        base::hash::short_key(text)
    }

    pub fn weight_bytes(&self, precision: Precision, shape: &ModelShape) -> u64 {
        self.weights.iter().map(|weight| precision.weight_bytes(weight, shape)).sum()
    }
}
