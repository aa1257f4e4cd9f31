//! Operations: what each does, on which lane, in which part of the model.

use serde::{Deserialize, Serialize};

use super::{CommDType, Cost, OpId, ValueId, WeightId};

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
    /// The lane's name in traces, JSON and filters: `compute` or `comm`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Comm => "comm",
        }
    }
}

/// Prefill processes the prompt and yields token 1; decode yields the others, a step each.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
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

/// What an operation does: which operands it reads ([`Operation::reads`], in this order), which weight,
/// and what it writes ([`Operation::writes`]).
///
/// Shapes are those of one rank, row-major. `rows` is [`super::Step::rows`] (sequences x new tokens); widths
/// that are sharded are written divided by `tp`. Offsets are columns into the operand on this rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Looks tokens up in the embedding: reads the step's token ids `[rows, 1]` and the weight
    /// `[vocab, hidden]`, writes activations `[rows, hidden]`.
    Embed,
    /// RMSNorm: reads x `[rows, hidden]` and the weight `[1, hidden]`, writes x over the root of its mean
    /// square (plus the model's epsilon), times the weight, `[rows, hidden]`.
    Norm,
    /// Elementwise sum: reads a, b `[rows, hidden]`, writes a + b. The operands are a residual and a
    /// module's output, or two partial outputs (attention's and the MLP's of a parallel block).
    Add,
    /// A fused [`Kind::Add`] and [`Kind::Norm`]: reads a, b `[rows, hidden]` and the norm's weight
    /// `[1, hidden]`, writes two values, first a + b (the new residual), then its RMSNorm. Made by lowering.
    AddNorm,
    /// What desync reduces: reads the rank's residual, then its partial output, both `[rows, hidden]`;
    /// writes output + residual / tp, of which the sum over ranks is the new residual: the mean of the
    /// ranks' residuals and the whole output.
    AddMean,
    /// What joins a rank's own residual in `delayed`: reads the residual x, the rank's own partial output o, and,
    /// once an all-reduce begun D modules ago has to be there, its sum r and the own partial p that is in
    /// r, all `[rows, hidden]`; writes x + s o + (r - p), or x + s o. s is the root of tp, or 1.
    Join {
        /// Whether s is the root of tp: for modules of which the other ranks' parts never come, or nothing came yet.
        root: bool,
    },
    /// A fused [`Kind::Join`] and [`Kind::Norm`]: reads the operands of the join and the norm's weight
    /// `[1, hidden]`, writes two values, first the new residual, then its RMSNorm. Made by lowering.
    JoinNorm {
        /// Whether the own part is multiplied by the root of tp.
        root: bool,
    },
    /// A rank's part of a mean over ranks: reads x `[rows, hidden]`, writes x / tp, of the same shape; the sum of
    /// what all ranks write is the mean.
    MeanShare,
    /// Brings a partial value into the format of messages: reads x `[rows, hidden]`, writes the nearest numbers that
    /// 8 bits and a scale can say, of the same shape; each [`super::SCALED_TOGETHER`] columns of a row share one scale.
    Quantize {
        /// The format of the messages.
        to: CommDType,
    },
    /// Matrix product with a weight W `[outputs, inputs]`: reads x `[rows, inputs]`, writes x W^T
    /// `[rows, outputs]`. Sharding W by rows leaves the result sharded, by columns partial. A second operand, which lowering
    /// may add, is what [`Kind::SiluMul`] made x of.
    MatMul,
    /// Rotates queries and keys by their positions and appends keys and values to the layer's KV cache:
    /// reads a projection that holds q, k, v side by side from column 0 on, `heads`, `kv_heads` and
    /// `kv_heads` x `head_dim` / tp columns (and in a parallel block more behind them); writes the rotated
    /// queries `[rows, heads x head_dim / tp]`.
    RopeAppend,
    /// A [`Kind::RopeAppend`] that first adds a weight `[columns of q, k, v, 1]` to q, k and v: their biases.
    BiasRopeAppend,
    /// A [`Kind::RopeAppend`] that first puts each head of q and of k through an RMSNorm of its own: the weight is
    /// `[2, head_dim]`, its first row for queries, its second for keys.
    NormRopeAppend,
    /// Causal attention over the layer's KV cache, the new tokens included: reads rotated queries
    /// `[rows, heads x head_dim / tp]`, writes as much. Query heads share KV heads in equal groups (GQA).
    Attend,
    /// Gated activation: reads a projection that holds gate from column `offset` on and up behind it,
    /// each `intermediate / tp` columns wide; writes silu(gate) x up `[rows, intermediate / tp]`.
    SiluMul {
        /// The column of the operand at which gate begins: 0 in an MLP, behind q, k, v in a parallel block.
        offset: u32,
    },
    /// Sum over ranks, on the comm lane: reads a partial value `[rows, hidden]`, writes the same shape,
    /// replicated, as activations. Its message is what it reads; a message in 8 bits is summed in f32.
    AllReduce,
    /// A fused [`Kind::AllReduce`], [`Kind::Add`] and [`Kind::Norm`]: reads a partial value, the residual, both
    /// `[rows, hidden]`, and the norm's weight `[1, hidden]`, writes two values, first the residual plus the sum
    /// over ranks, then its RMSNorm. On the comm lane, or on the compute lane where that would wait for it. Its
    /// message is the all-reduce's. Made by lowering.
    AllReduceAddNorm,
    /// Sum over ranks of which each rank gets its share of the rows, on the comm lane: reads a partial value
    /// `[rows, hidden]`, writes `[share of rows, hidden]`, scattered. Its message is what it reads.
    ReduceScatter,
    /// Concatenation of what the ranks hold, on the comm lane: of columns, reading sharded logits
    /// `[rows, vocab / tp]` and writing `[rows, vocab]` (a sharded head), or of rows, reading a scattered value
    /// `[share of rows, hidden]` and writing `[rows, hidden]`. Its message is what it writes, replicated.
    AllGather,
    /// Keeps the row of each sequence's last new token: reads `[rows, columns]`, writes
    /// `[sequences, columns]`. Prefill needs logits of no other position.
    SelectLast,
    /// Chooses the next token of each sequence, greedily or by temperature and top-k: reads logits
    /// `[sequences, vocab]`, writes token ids `[sequences, 1]`.
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
            Self::Join { .. } => "join",
            Self::JoinNorm { .. } => "join_norm",
            Self::MeanShare => "mean_share",
            Self::Quantize { .. } => "quantize",
            Self::MatMul => "matmul",
            Self::RopeAppend => "rope_append",
            Self::BiasRopeAppend => "bias_rope_append",
            Self::NormRopeAppend => "norm_rope_append",
            Self::Attend => "attend",
            Self::SiluMul { .. } => "silu_mul",
            Self::AllReduce => "all_reduce",
            Self::AllReduceAddNorm => "all_reduce_add_norm",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::SelectLast => "select_last",
            Self::Sample => "sample",
        }
    }

    /// Whether ranks exchange messages in it: it ends on all of them, and starts when the last one is there.
    pub fn is_collective(&self) -> bool {
        matches!(self, Self::AllReduce | Self::AllReduceAddNorm | Self::ReduceScatter | Self::AllGather)
    }
}

/// The part of the model an operation belongs to, for breakdowns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Module {
    /// The look-up of the tokens' rows in the embedding.
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
    /// A name that no other operation of the plan has: layer, module and what it is there, `L12/mlp/down`.
    pub name: String,
    /// What it does, and so how many values it reads and writes, in which order.
    pub kind: Kind,
    /// The lane on which it executes, in the order of the plan.
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
    /// The group of the batch whose part of a step it processes; 0 where the batch is not divided.
    #[serde(default, skip_serializing_if = "super::value::is_first")]
    pub group: u32,
    /// FLOPs and bytes on one rank.
    pub cost: Cost,
    /// Names of the unlowered operations that this one does; its own name where nothing was fused.
    pub origins: Vec<String>,
    /// Operations it must wait for although it reads nothing of theirs (buffer reuse); usually none.
    pub after: Vec<OpId>,
}
