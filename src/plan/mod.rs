//! Plans: what a step of decoding computes, communicates and waits for, on every backend.
//!
//! A [`Plan`] is a list of [`Operation`]s over [`Value`]s, each value written once, each operation on
//! the compute or the comm [`Lane`]. Nobody schedules overlap: an operation waits for its lane's
//! previous operation, for the values it reads, and for nothing else. The plan is SPMD: one for all
//! ranks, the rank a parameter of whoever executes it. Pure: no I/O, no clock, no threads.

mod architecture;
mod buffers;
mod build;
mod cost;
mod lower;
mod weights;

use serde::{Deserialize, Serialize};

pub use architecture::{Architecture, LadderLayers, Reduce, Wiring};
pub use buffers::{Buffer, BufferId, Buffers};
pub use build::{Builder, PlanError};
pub use cost::{Cost, Quantity, Step};
pub use lower::Lowering;
pub use weights::{Shard, Tensor, Weight, WeightPart};

use crate::model::{DType, ModelShape};

/// Where an operation executes: one lane does one thing at a time, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The rank's compute stream or thread.
    Compute,
    /// The rank's communication stream or thread.
    Comm,
}

impl Lane {
    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Comm => "comm",
        }
    }
}

/// Prefill processes the prompt and yields token 1; decode yields the others, a step each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The prompt, all at once.
    Prefill,
    /// One token a sequence and step.
    Decode,
}

impl Phase {
    /// The name in files and in operation names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// What the ranks hold of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The same on every rank.
    Replicated,
    /// Each rank holds its own columns.
    Sharded,
    /// Each rank holds a summand; the sum is pending.
    Partial,
    /// Ranks hold different things that should have been the same: only `desync` and `upper-bound`.
    Divergent,
}

/// Index of a value in [`Plan::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Index of an operation in [`Plan::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpId(pub u32);

/// Index of a weight in [`Plan::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeightId(pub u32);

impl ValueId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl OpId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl WeightId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many rows a value has in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// One a new token of each sequence.
    Tokens,
    /// One a sequence.
    Sequences,
}

/// What a value's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Activations, in the activation dtype.
    Activation,
    /// Logits, f32.
    Logit,
    /// Token ids, u32.
    Token,
}

/// Something an operation writes once and others read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Unique name, `L3/mlp/down`.
    pub name: String,
    /// What the ranks hold.
    pub placement: Placement,
    /// Rows in a step.
    pub rows: Rows,
    /// Columns on one rank.
    pub columns: u32,
    /// What the elements are.
    pub element: Element,
}

/// What an operation does. Offsets are columns into the operand on this rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Rows of the embedding for the step's tokens: tokens -> activations.
    Embed,
    /// RMSNorm with a weight.
    Norm,
    /// `a + b`, elementwise: residual and a module's output, or two partial outputs.
    Add,
    /// Fused: residual `a + b`, and its RMSNorm (writes both, in this order). A lowering of `Add`, `Norm`.
    AddNorm,
    /// `b + a / tp`: the output of a module and the rank's residual, ready to be averaged (desync).
    AddMean,
    /// `x W^T`.
    MatMul,
    /// RoPE on queries and keys; appends keys and values to the layer's KV cache; writes the queries.
    /// The operand holds q, k, v from column 0 on.
    RopeAppend,
    /// Causal attention of the queries over the layer's KV cache.
    Attend,
    /// `silu(gate) x up`; the operand holds gate at `offset`, up behind it.
    SiluMul {
        /// First column of gate.
        offset: u32,
    },
    /// Sum over ranks: partial -> replicated. On the comm lane.
    AllReduce,
    /// Concatenation of columns over ranks: sharded -> replicated. On the comm lane (sharded head).
    AllGather,
    /// The last new token's row of each sequence.
    SelectLast,
    /// The next token of each sequence from its logits (greedy, or temperature and top-k).
    Sample,
}

impl Kind {
    /// The name in files and tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Norm => "norm",
            Self::Add => "add",
            Self::AddNorm => "add_norm",
            Self::AddMean => "add_mean",
            Self::MatMul => "matmul",
            Self::RopeAppend => "rope_append",
            Self::Attend => "attend",
            Self::SiluMul { .. } => "silu_mul",
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::SelectLast => "select_last",
            Self::Sample => "sample",
        }
    }
}

/// The part of the model an operation belongs to, for breakdowns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Module {
    /// Token embedding.
    Embed,
    /// An attention module with the norm and the residual addition before it.
    Attn,
    /// An MLP module with the norm and the residual addition before it.
    Mlp,
    /// A parallel block: attention and MLP as one module.
    Block,
    /// What follows the last layer: final additions, norm, head, sampling.
    Head,
}

impl Module {
    /// The name in files and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Attn => "attn",
            Self::Mlp => "mlp",
            Self::Block => "block",
            Self::Head => "head",
        }
    }
}

/// One operation on one lane, the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Unique name within the plan: `L12/mlp/down`.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Where it executes.
    pub lane: Lane,
    /// Values it reads, in the kind's order.
    pub reads: Vec<ValueId>,
    /// Values it writes, in the kind's order.
    pub writes: Vec<ValueId>,
    /// The weight it reads, if any.
    pub weight: Option<WeightId>,
    /// The layer whose KV cache it appends to or reads, and to which it belongs.
    pub layer: Option<u32>,
    /// The part of the model it belongs to.
    pub module: Module,
    /// FLOPs and bytes on one rank.
    pub cost: Cost,
    /// Names of the unlowered operations that this one does; its own name where nothing was fused.
    pub origins: Vec<String>,
    /// Operations it must wait for although it reads nothing of theirs (buffer reuse); usually none.
    pub after: Vec<OpId>,
}

/// Number formats of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precision {
    /// Of the weights.
    pub weights: DType,
    /// Of activations, and so of the messages of all-reduces.
    pub activations: DType,
    /// Of the KV cache.
    pub kv: DType,
}

impl Precision {
    /// Everything in one format.
    pub fn uniform(dtype: DType) -> Self {
        Self { weights: dtype, activations: dtype, kv: dtype }
    }

    /// The cpu backend's: weights as asked, activations and KV cache in f32.
    pub fn cpu(weights: DType) -> Self {
        Self { weights, activations: DType::F32, kv: DType::F32 }
    }
}

/// What a plan is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSpec {
    /// The model.
    pub shape: ModelShape,
    /// The residual wiring.
    pub architecture: Architecture,
    /// Ranks.
    pub tp: u32,
    /// Prefill or decode.
    pub phase: Phase,
    /// Number formats.
    pub precision: Precision,
    /// What the stack does to the plan.
    pub lowering: Lowering,
}

/// A step's operations, in an order in which each lane can execute them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Prefill or decode.
    pub phase: Phase,
    /// Ranks.
    pub tp: u32,
    /// Operations; an operation reads only what operations before it wrote.
    pub operations: Vec<Operation>,
    /// Values.
    pub values: Vec<Value>,
    /// Weights, as slices of named tensors.
    pub weights: Vec<Weight>,
    /// The step's tokens (input of `Embed`); written by nobody.
    pub tokens: ValueId,
    /// The logits that are sampled from.
    pub logits: ValueId,
    /// The sampled tokens: the output of the step and the input of the next.
    pub output: ValueId,
}

impl Plan {
    /// Builds and lowers the plan. Errors where TP does not divide the model, or where an operation
    /// would read a value with the wrong placement.
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

    /// How many collectives reduce the residual in one step.
    pub fn all_reduces(&self) -> usize {
        self.operations.iter().filter(|o| o.kind == Kind::AllReduce).count()
    }

    /// A hash (SHA-256, first 16 hex digits) of operations, values and weights: what was executed.
    pub fn hash(&self) -> String {
        use sha2::{Digest, Sha256};
        let text =
            serde_json::to_string(&(&self.operations, &self.values, &self.weights)).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes of weights that one rank holds.
    pub fn weight_bytes(&self, precision: Precision) -> u64 {
        self.weights
            .iter()
            .map(|w| u64::from(w.inputs) * u64::from(w.outputs) * precision.weights.bytes())
            .sum()
    }
}

#[cfg(test)]
mod tests;
