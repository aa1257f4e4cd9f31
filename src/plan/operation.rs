//! Operations (kind, lane, part of the model), the values that they read and write, and typed indices.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{CommDType, Cost, Step};
use base::words::words;

words! {
    /// Execution lane of a rank; it runs one operation at a time, in order.
    Lane, "lane" {
        /// The rank's compute stream or thread.
        Compute = "compute",
        /// The rank's communication stream or thread.
        Comm = "comm",
    }
}

words! {
    /// Prefill processes the prompt and yields token 1; each decode step yields one more.
    Phase, "phase" {
        /// The whole prompt at once.
        Prefill = "prefill",
        /// One token per sequence and step.
        Decode = "decode",
    }
}

/// Kind of an operation. It defines the operands ([`Operation::reads`], in order), the weight, and the
/// results ([`Operation::writes`]).
///
/// Shapes are per rank, row-major. `rows` is [`super::Step::rows`] (sequences x new tokens); sharded
/// widths are divided by `tp`. Offsets are columns of the operand on this rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Embedding lookup: reads token ids `[rows, 1]` and the weight `[vocab, hidden]`, writes
    /// activations `[rows, hidden]`.
    Embed,
    /// RMSNorm: reads x `[rows, hidden]` and the weight `[1, hidden]`, writes x / sqrt(mean square +
    /// epsilon) x weight, `[rows, hidden]`.
    Norm,
    /// Elementwise sum: reads a, b `[rows, hidden]`, writes a + b. Adds a residual and a module's
    /// output, or two partial outputs (attention and MLP of a parallel block).
    Add,
    /// Fused [`Kind::Add`] and [`Kind::Norm`]: reads a, b `[rows, hidden]` and the norm's weight `[1,
    /// hidden]`, writes a + b (the new residual), then its RMSNorm. Made by lowering.
    AddNorm,
    /// Operand of desync's all-reduce: reads the rank's residual and its partial output, both `[rows,
    /// hidden]`; writes output + residual / tp. The sum over ranks is the mean residual plus the whole
    /// output.
    AddMean,
    /// Update of a rank's own residual. In `delayed` it reads the residual x, the rank's own partial output
    /// o and, once an all-reduce from D modules ago is due, its sum r and the own part p contained in r,
    /// all `[rows, hidden]`; writes x + s o + (r - p), or x + s o. In `partial` it reads x, o and the sum r
    /// of the first channels, `[rows, fewer]`; writes x + r there and x + s o in the others. s is sqrt(tp)
    /// or 1.
    Join {
        /// True if s is sqrt(tp): for parts of other ranks that never arrive, or have not yet.
        root: bool,
    },
    /// Fused [`Kind::Join`] and [`Kind::Norm`]: reads the operands of the join and the norm's weight
    /// `[1, hidden]`, writes the new residual, then its RMSNorm. Made by lowering.
    JoinNorm {
        /// True if the own part is multiplied by sqrt(tp).
        root: bool,
    },
    /// First columns of a partial value, the message of `partial`: reads x `[rows, hidden]`, writes `[rows,
    /// fewer]`.
    Narrow,
    /// A rank's share of a mean over ranks: reads x, writes x / tp, both `[rows, hidden]`; the sum over
    /// ranks is the mean.
    MeanShare,
    /// Quantizes a partial value for messages: reads x `[rows, hidden]`, writes the nearest 8-bit
    /// numbers of the same shape; every [`super::SCALED_TOGETHER`] columns of a row share one scale.
    Quantize { to: CommDType },
    /// Matrix product with a weight W `[outputs, inputs]`: reads x `[rows, inputs]`, writes x W^T
    /// `[rows, outputs]`. The result is sharded if W is sharded by rows, partial if by columns. A further
    /// weight is a bias `[outputs, 1]`; of a partial result, rank 0 alone adds it. Lowering
    /// may add a second operand: the input from which [`Kind::SiluMul`] computed x.
    MatMul,
    /// Rotates queries and keys by position and appends keys and values to the layer's KV cache. Reads a
    /// projection with q, k, v side by side from column 0 (`heads`, `kv_heads` and `kv_heads` x
    /// `head_dim` / tp columns, more behind them in a parallel block); writes the rotated queries
    /// `[rows, heads x head_dim / tp]`.
    RopeAppend,
    /// [`Kind::RopeAppend`] that first adds the biases `[columns of q, k, v, 1]`.
    BiasRopeAppend,
    /// [`Kind::RopeAppend`] that first applies an RMSNorm to each head of q and k; the weight is `[2,
    /// head_dim]`, row 0 for queries, row 1 for keys; without it, all are 1.
    NormRopeAppend,
    /// [`Kind::RopeAppend`] without rotation; multiplies queries by their position's [`super::Temperature`], if any.
    Append,
    /// Causal attention over the layer's KV cache, including the new tokens: reads rotated queries
    /// `[rows, heads x head_dim / tp]`, writes the same shape. Query heads share KV heads in equal
    /// groups (GQA). The weight `[heads / tp, 1]`, if any, is a logit per head that joins the softmax's
    /// denominator only (attention sink).
    Attend,
    /// [`Kind::Attend`] in which a query sees only the last `tokens` tokens, its own included; if chunked,
    /// those of them in its own chunk of `tokens` tokens.
    WindowAttend { tokens: u32, is_chunked: bool },
    /// Norms the latent of keys and values, rotates the key that all heads share, and appends both to the
    /// layer's cache (MLA). Reads a projection and writes the same shape, `[rows, kv_rank + rope_dim]`; the
    /// weight is `[1, kv_rank]`.
    LatentAppend,
    /// Attention over the layer's cached latents, including the new tokens. Reads queries that are not
    /// rotated yet, `[rows, heads x (nope_dim + rope_dim) / tp]`, and the new latents; the weight is
    /// [`super::Tensor::KeyValueUp`]; writes `[rows, heads x value_dim / tp]`.
    LatentAttend,
    /// Reads attention's result and a gate of the same shape, writes result x sigmoid(gate).
    SigmoidMul,
    /// Chooses the experts of each token: reads x `[rows, hidden]`, the weight `[experts, hidden]` and
    /// possibly a bias `[experts, 1]`, writes an expert and its weight for each choice, `[rows, top_k]`. See
    /// [`super::Routing`].
    Router,
    /// MLPs of the chosen experts that the rank holds: reads x `[rows, hidden]` and the choices; writes the sum
    /// of their outputs times the choices' weights, `[rows, hidden]`. The weight stacks gate and up of all
    /// experts, the first further weight down; then, if biased, gate and up's biases and down's. With a slice of
    /// every expert, rank 0 alone adds down's.
    Experts,
    /// Sends each row to the ranks that hold its experts, on the comm lane: reads x `[rows, hidden]` and the
    /// choices; writes the copies that the rank receives, on the mean `[rows, top_k x hidden]`.
    Dispatch,
    /// Returns the experts' outputs to the ranks of their tokens and sums them, on the comm lane: reads the
    /// outputs and the choices, writes `[rows, hidden]`.
    Combine,
    /// Gated activation: reads a projection with gate at column `offset` and up right behind it, each as
    /// wide as the result, `intermediate / tp` or `shared_width / tp`; writes silu(gate) x up.
    SiluMul {
        /// First column of gate: 0 in an MLP, after q, k, v in a parallel block.
        offset: u32,
    },
    /// Sum over ranks, on the comm lane: reads a partial value `[rows, hidden]`, writes activations of
    /// the same shape, replicated. The message is the operand; 8-bit messages are summed in f32.
    AllReduce,
    /// Fused [`Kind::AllReduce`], [`Kind::Add`] and [`Kind::Norm`]: reads a partial value and the
    /// residual, both `[rows, hidden]`, and the norm's weight `[1, hidden]`; writes the residual plus
    /// the sum over ranks, then its RMSNorm. Runs on the comm lane, or on the compute lane if that would
    /// wait for it anyway. Same message as the all-reduce. Made by lowering.
    AllReduceAddNorm,
    /// Sum over ranks, scattered by rows, on the comm lane: reads a partial value `[rows, hidden]`,
    /// writes `[share of rows, hidden]`. The message is the operand.
    ReduceScatter,
    /// Concatenation over ranks, on the comm lane. By columns: sharded logits `[rows, vocab / tp]` to
    /// `[rows, vocab]` (sharded head), or divergent rows side by side. By rows: a scattered value `[share of rows, hidden]` to `[rows,
    /// hidden]`. The message is the result, replicated.
    AllGather,
    /// Keeps the row of each sequence's last new token: reads `[rows, columns]`, writes `[sequences,
    /// columns]`. Prefill needs logits only there.
    SelectLast,
    /// Transfer to the same rank of the next pipeline stage (sampled tokens: of the first stage), on the
    /// comm lane: reads any value, writes nothing. The message is the operand.
    Send,
    /// The other end of a [`Kind::Send`], on the compute lane, which waits there for the data: reads
    /// nothing, writes the value sent. The n-th send of a stage arrives at the n-th receive of the next.
    Receive,
    /// Picks the next token of each sequence, greedily or by temperature and top-k: reads logits
    /// `[sequences, vocab]`, writes token ids `[sequences, 1]`.
    Sample,
}

impl Kind {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Norm => "norm",
            Self::Add => "add",
            Self::AddNorm => "add_norm",
            Self::AddMean => "add_mean",
            Self::Join { .. } => "join",
            Self::JoinNorm { .. } => "join_norm",
            Self::Narrow => "narrow",
            Self::MeanShare => "mean_share",
            Self::Quantize { .. } => "quantize",
            Self::MatMul => "matmul",
            Self::RopeAppend => "rope_append",
            Self::BiasRopeAppend => "bias_rope_append",
            Self::NormRopeAppend => "norm_rope_append",
            Self::Append => "append",
            Self::Attend => "attend",
            Self::WindowAttend { .. } => "window_attend",
            Self::LatentAppend => "latent_append",
            Self::LatentAttend => "latent_attend",
            Self::SigmoidMul => "sigmoid_mul",
            Self::Router => "router",
            Self::Experts => "experts",
            Self::Dispatch => "dispatch",
            Self::Combine => "combine",
            Self::SiluMul { .. } => "silu_mul",
            Self::AllReduce => "all_reduce",
            Self::AllReduceAddNorm => "all_reduce_add_norm",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::SelectLast => "select_last",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Sample => "sample",
        }
    }

    /// True if ranks exchange messages: the operation starts once the last rank arrives and ends on all.
    pub fn is_collective(&self) -> bool {
        matches!(self, Self::AllReduce | Self::AllReduceAddNorm | Self::ReduceScatter | Self::AllGather)
            || self.is_all_to_all()
    }

    /// True for collectives in which each rank sends different rows to each other rank.
    pub fn is_all_to_all(&self) -> bool {
        matches!(self, Self::Dispatch | Self::Combine)
    }

    /// True for attention, in any of its forms.
    pub fn is_attention(&self) -> bool {
        matches!(self, Self::Attend | Self::WindowAttend { .. } | Self::LatentAttend)
    }

    /// True for either end of a transfer between two pipeline stages.
    pub fn is_transfer(&self) -> bool {
        matches!(self, Self::Send | Self::Receive)
    }
}

words! {
    /// Part of the model an operation belongs to, for breakdowns.
    Module, "module" {
        /// Embedding lookup.
        Embed = "embed",
        /// Attention module, with the norm and residual addition before it.
        Attn = "attn",
        /// MLP module, with the norm and residual addition before it.
        Mlp = "mlp",
        /// Mixture of experts in place of an MLP, with the norm and residual addition before it.
        Moe = "moe",
        /// Parallel block: attention and MLP as one module.
        Block = "block",
        /// Everything after the last layer: final additions, norm, head, sampling.
        Head = "head",
    }
}

impl Operation {
    /// All weights, in the kind's order.
    pub fn weights(&self) -> impl Iterator<Item = WeightId> {
        self.weight.into_iter().chain(self.more.iter().copied())
    }
}

/// One operation on one lane, the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Unique within the plan: layer, module and role, `L12/mlp/down`.
    pub name: String,
    /// Also fixes the number and order of operands and results.
    pub kind: Kind,
    pub lane: Lane,
    /// Operands, in the kind's order.
    pub reads: Vec<ValueId>,
    /// Results, in the kind's order.
    pub writes: Vec<ValueId>,
    pub weight: Option<WeightId>,
    /// Further weights, in the kind's order; usually none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<WeightId>,
    /// Layer of the operation, and of the KV cache it uses.
    pub layer: Option<u32>,
    pub module: Module,
    /// Group of the batch it processes; 0 if the batch is not divided.
    #[serde(default, skip_serializing_if = "is_first")]
    pub group: u32,
    pub cost: Cost,
    /// Names of the unlowered operations it performs; its own name if nothing was fused.
    pub origins: Vec<String>,
    /// Extra dependencies without data flow (buffer reuse); usually empty.
    pub after: Vec<OpId>,
}

/// Distribution of a value over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Every rank holds the same full value.
    Replicated,
    Sharded,
    /// Each rank holds a summand of a pending sum.
    Partial,
    /// Each rank holds its own rows ([`Rows::Share`]): sequence parallelism.
    Scattered,
    /// Ranks hold different versions of the same value; only where the architecture allows it
    /// ([`super::Wiring::may_diverge`]).
    Divergent,
}

macro_rules! index {
    ($(#[doc = $about:literal] $name:ident;)*) => {
        $(
            #[doc = $about]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
            pub struct $name(pub u32);

            impl $name {
                pub fn index(self) -> usize {
                    self.0 as usize
                }
            }
        )*
    };
}

index! {
    /// Index of a value in [`super::Plan::values`].
    ValueId;
    /// Index of an operation in [`super::Plan::operations`].
    OpId;
    /// Index of a weight in [`super::Plan::weights`].
    WeightId;
    /// Index of a gradient in [`super::TrainingPlan::gradients`].
    GradientId;
}

/// Row count of a value in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// One row per new token of each sequence: [`super::Step::rows`].
    Tokens,
    Sequences,
    /// A rank's share of [`Rows::Tokens`]: equal shares in rank order, rounded up; the last ranks get
    /// the rest ([`Rows::share`]).
    Share,
}

impl Rows {
    /// Rows on one of `tp` ranks; for shares, the largest.
    pub fn count(self, step: &Step, tp: u32) -> u64 {
        match self {
            Self::Tokens => step.rows(),
            Self::Sequences => step.sequences,
            Self::Share => step.rows().div_ceil(u64::from(tp)),
        }
    }

    /// Range of a rank's share of `rows` rows.
    pub fn share(rows: usize, rank: u32, tp: u32) -> Range<usize> {
        let each = rows.div_ceil(tp as usize);
        let first = (each * rank as usize).min(rows);
        first..(first + each).min(rows)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Activations, in the plan's dtype ([`super::Precision::activations`]).
    Activation,
    /// Scores over the vocabulary before sampling, always f32.
    Logit,
    /// 8-bit all-reduce messages, with one f32 scale per [`super::SCALED_TOGETHER`] numbers of a row.
    Eight,
    /// Token ids, u32.
    Token,
    /// A chosen expert (u32) and its weight (f32).
    Choice,
}

/// Data that one operation writes and others read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Unique within the plan: the name of the operation that writes it, `L3/mlp/down`.
    pub name: String,
    pub placement: Placement,
    pub rows: Rows,
    /// Columns per rank.
    pub columns: u32,
    pub element: Element,
    /// Group of the batch its rows belong to; 0 if the batch is not divided.
    #[serde(default, skip_serializing_if = "is_first")]
    pub group: u32,
}

/// True for the first group, which serialization omits.
fn is_first(group: &u32) -> bool {
    *group == 0
}
