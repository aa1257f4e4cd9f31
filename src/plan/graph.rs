//! A plan as a whole: what it is built from, its operations in order, and what each of them waits for.

use serde::{Deserialize, Serialize};

use super::{
    Architecture, DType, Groups, Kind, Lowering, ModelShape, OpId, Operation, Phase, PlanError, Value,
    ValueId, Variant, Weight, build, lower,
};

/// Bytes of the scale of an output of fp8 weights, an f32.
const SCALE_BYTES: u64 = 4;

/// Number formats of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precision {
    /// The format of weights in memory; see [`Precision::of_weight`].
    pub weights: DType,
    /// The format of activations, and so of the messages of all-reduces.
    pub activations: DType,
    /// The format of keys and values in the KV cache.
    pub kv: DType,
}

impl Precision {
    /// Weights, activations and KV cache in one format.
    pub fn uniform(dtype: DType) -> Self {
        Self { weights: dtype, activations: dtype, kv: dtype }
    }

    /// A GPU's: weights as asked, activations and KV cache in the same format, or in bf16 beside fp8 weights.
    pub fn gpu(weights: DType) -> Self {
        Self { weights, ..Self::uniform(weights.activations()) }
    }

    /// The cpu backend's: weights as asked, activations and KV cache in f32. It keeps fp8 weights as the f32 numbers
    /// that they stand for.
    pub fn cpu(weights: DType) -> Self {
        let weights = if weights == DType::Fp8 { DType::F32 } else { weights };
        Self { weights, activations: DType::F32, kv: DType::F32 }
    }

    /// The format in which a rank holds a weight: beside fp8 matrices all others have the format of activations.
    pub fn of_weight(self, weight: &Weight, shape: &ModelShape) -> DType {
        if self.weights == DType::Fp8 && !weight.is_quantized(shape) {
            return self.activations;
        }
        self.weights
    }

    /// Bytes of one rank's slice of a weight, with the scales of fp8.
    pub fn weight_bytes(self, weight: &Weight, shape: &ModelShape) -> u64 {
        let format = self.of_weight(weight, shape);
        let scale = if format == DType::Fp8 { SCALE_BYTES } else { 0 };
        u64::from(weight.outputs) * (u64::from(weight.inputs) * format.bytes() + scale)
    }
}

/// What a plan is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSpec {
    /// The shape of the model: layers, widths, heads, vocabulary.
    pub shape: ModelShape,
    /// When outputs join the residual, and when they are reduced.
    pub architecture: Architecture,
    /// The number of ranks (TP) over which weights and heads are sharded.
    pub tp: u32,
    /// Whether the plan is of the prompt (prefill) or of one decode step.
    pub phase: Phase,
    /// The formats of weights, activations and KV cache.
    pub precision: Precision,
    /// What the stack does to the plan.
    pub lowering: Lowering,
    /// What options change in it.
    pub variant: Variant,
    /// Sequences that are processed together; matters where they are divided into groups, and nowhere else.
    pub batch: u32,
}

impl PlanSpec {
    /// The groups into which the batch is divided.
    pub fn groups(&self) -> Groups {
        Groups::of(self.phase, self.batch, self.variant.micro_batches)
    }
}

/// A step's operations, in an order in which each lane can execute them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whether the plan is of the prompt (prefill) or of one decode step.
    pub phase: Phase,
    /// The number of ranks (TP) that execute it, each with its own slices of the weights.
    pub tp: u32,
    /// Operations; an operation reads only what operations before it wrote.
    pub operations: Vec<Operation>,
    /// The values that operations read and write; a [`ValueId`] is an index here.
    pub values: Vec<Value>,
    /// Weights, as slices of named tensors.
    pub weights: Vec<Weight>,
    /// The groups into which the batch is divided.
    pub groups: Groups,
    /// The step's tokens, of each group (input of `Embed`); written by nobody.
    pub tokens: Vec<ValueId>,
    /// The logits, of each group that has some: where a prompt's tokens are divided, of the last alone, unless
    /// the logits of every position are asked for.
    pub logits: Vec<ValueId>,
    /// The sampled tokens, of each group or, where a prompt's tokens are divided, of the last alone: the output
    /// of the step and the input of the next.
    pub outputs: Vec<ValueId>,
}

impl Plan {
    /// Builds the plan of an architecture and lowers it as the stack asks.
    ///
    /// # Errors
    ///
    /// [`PlanError::Shape`] where TP does not divide the model, with the arithmetic;
    /// [`PlanError::Placement`] where an operation would read a value with the wrong placement.
    pub fn new(spec: &PlanSpec) -> Result<Self, PlanError> {
        let plan = build::build(spec)?;
        Ok(lower::lower(plan, &spec.lowering))
    }

    /// The operation that writes each value (`None` for the step's tokens).
    pub fn writers(&self) -> Vec<Option<OpId>> {
        let mut writers = vec![None; self.values.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for value in &operation.writes {
                writers[value.index()] = Some(OpId(index as u32));
            }
        }
        writers
    }

    /// For each operation what it waits for: its lane's previous operation, the writers of what it
    /// reads, and its explicit edges.
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

    /// What the last position of each sequence is taken from, a row a position: in a prefill that was lowered
    /// with [`Lowering::late_select`] what the final norm gave. `None` of decode, which has no other positions.
    pub fn selected_from(&self) -> Option<ValueId> {
        let select = self.operations.iter().rfind(|operation| operation.kind == Kind::SelectLast)?;
        Some(select.reads[0])
    }

    /// A hash (SHA-256, first 16 hex digits) of operations, values and weights: what was executed. It begins with the
    /// version of what is hashed; records of earlier versions have one of JSON text ([`Plan::json_hash`]).
    pub fn hash(&self) -> String {
        super::digest::digest(self)
    }

    /// The same of the JSON text of operations, values and weights, as records and keys of evaluations had it from the
    /// first format on: what is found by it is found still. Some ten times slower than [`Plan::hash`].
    pub fn json_hash(&self) -> String {
        let text =
            serde_json::to_string(&(&self.operations, &self.values, &self.weights)).unwrap_or_default();
        base::hash::short_key(text)
    }

    /// Bytes of weights that one rank holds.
    pub fn weight_bytes(&self, precision: Precision, shape: &ModelShape) -> u64 {
        self.weights.iter().map(|weight| precision.weight_bytes(weight, shape)).sum()
    }
}
