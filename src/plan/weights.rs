//! Weights of a plan: slices of the model's tensors, with Megatron-style sharding.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{ExpertShape, HeadStep, Latent, ModelShape, RouterBias};

/// A tensor of a Llama-family checkpoint, by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tensor {
    /// Token embedding, `[vocab, hidden]`: one row per token.
    Embedding,
    /// RMSNorm before attention, `[1, hidden]`.
    InputNorm(u32),
    /// Query projection, `[heads x head_dim, hidden]`.
    Query(u32),
    /// Key projection, `[kv_heads x head_dim, hidden]`.
    Key(u32),
    /// Value projection, `[kv_heads x head_dim, hidden]`.
    Value(u32),
    /// Query bias, `[heads x head_dim, 1]`.
    QueryBias(u32),
    /// Key bias, `[kv_heads x head_dim, 1]`.
    KeyBias(u32),
    /// Value bias, `[kv_heads x head_dim, 1]`.
    ValueBias(u32),
    /// RMSNorm of each query head, `[1, head_dim]`.
    QueryNorm(u32),
    /// RMSNorm of each key head, `[1, head_dim]`.
    KeyNorm(u32),
    /// Output projection of attention, `[hidden, heads x head_dim]` (MLA: `heads x value_dim`).
    Output(u32),
    /// Bias of the output projection, `[hidden, 1]`.
    OutputBias(u32),
    /// Attention sink of each head, `[heads, 1]`.
    Sinks(u32),
    /// MLA: down projection of queries, `[q_rank, hidden]`. Without it, [`Tensor::Query`] reads the
    /// module's input.
    QueryDown(u32),
    /// MLA: RMSNorm of the query latent, `[1, q_rank]`.
    QueryLatentNorm(u32),
    /// MLA: down projection of keys and values, `[kv_rank + rope_dim, hidden]`.
    KeyValueDown(u32),
    /// MLA: RMSNorm of the cached latent, `[1, kv_rank]`.
    LatentNorm(u32),
    /// MLA: up projection of the latent, `[heads x (nope_dim + value_dim), kv_rank]`: key, then value of
    /// each head.
    KeyValueUp(u32),
    /// Gate of attention's result, `[heads x value_dim, hidden]`.
    AttentionGate(u32),
    /// RMSNorm before the MLP, `[1, hidden]`.
    PostAttentionNorm(u32),
    /// Gate projection, `[intermediate, hidden]`; its SiLU multiplies [`Tensor::Up`].
    Gate(u32),
    /// Up projection, `[intermediate, hidden]`.
    Up(u32),
    /// Down projection, `[hidden, intermediate]`.
    Down(u32),
    /// Router, `[experts, hidden]`.
    Router(u32),
    /// Bias of the router, `[experts, 1]`.
    RouterBias(u32),
    /// Gate projections of the routed experts, one below the other: `[experts x width, hidden]`.
    ExpertGate(u32),
    /// Up projections of the routed experts, as [`Tensor::ExpertGate`].
    ExpertUp(u32),
    /// Down projections of the routed experts, `[experts x hidden, width]`.
    ExpertDown(u32),
    /// `[experts x width, 1]`.
    ExpertGateBias(u32),
    /// `[experts x width, 1]`.
    ExpertUpBias(u32),
    /// `[experts x hidden, 1]`.
    ExpertDownBias(u32),
    /// Gate projection of all shared experts, `[shared_width, hidden]`.
    SharedGate(u32),
    /// `[shared_width, hidden]`.
    SharedUp(u32),
    /// `[hidden, shared_width]`.
    SharedDown(u32),
    /// RMSNorm after the last layer, `[1, hidden]`.
    FinalNorm,
    /// Head, `[vocab, hidden]`; the embedding itself if tied.
    Head,
}

impl Tensor {
    /// Layer of the tensor; `None` for embedding, final norm and head.
    pub fn layer(self) -> Option<u32> {
        self.identity().1
    }

    /// Number of the tensor among those of its layer. It seeds random weights, so it never changes.
    pub fn number(self) -> u32 {
        self.identity().0
    }

    /// Name in checkpoints of Llama's family. Families name experts differently, and most store one tensor
    /// per expert: those names are unique, but only the model layer knows a checkpoint's.
    pub fn hf_name(self) -> String {
        match self.identity() {
            (_, Some(layer), name) => format!("model.layers.{layer}.{name}"),
            (_, None, name) => name.to_owned(),
        }
    }

    /// Number, layer, and name within the layer (the whole name without one).
    fn identity(self) -> (u32, Option<u32>, &'static str) {
        let (number, layer, name) = match self {
            Self::Embedding => return (1, None, "model.embed_tokens.weight"),
            Self::FinalNorm => return (11, None, "model.norm.weight"),
            Self::Head => return (12, None, "lm_head.weight"),
            Self::InputNorm(l) => (2, l, "input_layernorm.weight"),
            Self::Query(l) => (3, l, "self_attn.q_proj.weight"),
            Self::Key(l) => (4, l, "self_attn.k_proj.weight"),
            Self::Value(l) => (5, l, "self_attn.v_proj.weight"),
            Self::Output(l) => (6, l, "self_attn.o_proj.weight"),
            Self::PostAttentionNorm(l) => (7, l, "post_attention_layernorm.weight"),
            Self::Gate(l) => (8, l, "mlp.gate_proj.weight"),
            Self::Up(l) => (9, l, "mlp.up_proj.weight"),
            Self::Down(l) => (10, l, "mlp.down_proj.weight"),
            Self::QueryBias(l) => (13, l, "self_attn.q_proj.bias"),
            Self::KeyBias(l) => (14, l, "self_attn.k_proj.bias"),
            Self::ValueBias(l) => (15, l, "self_attn.v_proj.bias"),
            Self::QueryNorm(l) => (16, l, "self_attn.q_norm.weight"),
            Self::KeyNorm(l) => (17, l, "self_attn.k_norm.weight"),
            Self::OutputBias(l) => (18, l, "self_attn.o_proj.bias"),
            Self::Sinks(l) => (19, l, "self_attn.sinks"),
            Self::QueryDown(l) => (20, l, "self_attn.q_a_proj.weight"),
            Self::QueryLatentNorm(l) => (21, l, "self_attn.q_a_layernorm.weight"),
            Self::KeyValueDown(l) => (22, l, "self_attn.kv_a_proj_with_mqa.weight"),
            Self::LatentNorm(l) => (23, l, "self_attn.kv_a_layernorm.weight"),
            Self::KeyValueUp(l) => (24, l, "self_attn.kv_b_proj.weight"),
            Self::AttentionGate(l) => (25, l, "self_attn.gate_proj.weight"),
            Self::Router(l) => (26, l, "mlp.gate.weight"),
            Self::RouterBias(l) => (27, l, "mlp.gate.bias"),
            Self::ExpertGate(l) => (28, l, "mlp.experts.gate_proj.weight"),
            Self::ExpertUp(l) => (29, l, "mlp.experts.up_proj.weight"),
            Self::ExpertDown(l) => (30, l, "mlp.experts.down_proj.weight"),
            Self::ExpertGateBias(l) => (31, l, "mlp.experts.gate_proj.bias"),
            Self::ExpertUpBias(l) => (32, l, "mlp.experts.up_proj.bias"),
            Self::ExpertDownBias(l) => (33, l, "mlp.experts.down_proj.bias"),
            Self::SharedGate(l) => (34, l, "mlp.shared_experts.gate_proj.weight"),
            Self::SharedUp(l) => (35, l, "mlp.shared_experts.up_proj.weight"),
            Self::SharedDown(l) => (36, l, "mlp.shared_experts.down_proj.weight"),
        };
        (number, Some(layer), name)
    }

    /// True for matrices of linear layers and the head; false for the embedding, routers, norms and biases.
    fn is_linear(self) -> bool {
        use Tensor::{
            AttentionGate, Down, Gate, Head, Key, KeyValueDown, KeyValueUp, Output, Query, QueryDown,
            SharedDown, SharedGate, SharedUp, Up, Value,
        };
        let attention = matches!(
            self,
            Query(_) | Key(_) | Value(_) | Output(_) | QueryDown(_) | KeyValueDown(_) | KeyValueUp(_)
        );
        let mlp =
            matches!(self, Gate(_) | Up(_) | Down(_) | SharedGate(_) | SharedUp(_) | SharedDown(_));
        attention || mlp || self.is_expert_matrix() || matches!(self, AttentionGate(_) | Head)
    }

    /// True for matrices of routed experts.
    pub(super) fn is_expert_matrix(self) -> bool {
        matches!(self, Self::ExpertGate(_) | Self::ExpertUp(_) | Self::ExpertDown(_))
    }

    /// True if the tensor stacks one matrix or vector per routed expert.
    pub fn is_stacked(self) -> bool {
        let biases =
            matches!(self, Self::ExpertGateBias(_) | Self::ExpertUpBias(_) | Self::ExpertDownBias(_));
        self.is_expert_matrix() || biases
    }

    /// All tensors of a model of this shape, including a tied head.
    pub fn all(shape: &ModelShape) -> Vec<Self> {
        let ends = [Self::Embedding, Self::FinalNorm, Self::Head];
        (0..shape.layers).flat_map(|l| Self::of_layer(shape, l)).chain(ends).collect()
    }

    fn of_layer(shape: &ModelShape, l: u32) -> Vec<Self> {
        let attention = &shape.attention;
        let mut all = vec![Self::InputNorm(l)];
        match &attention.latent {
            Some(latent) => {
                if latent.q_rank.is_some() {
                    all.extend([Self::QueryDown(l), Self::QueryLatentNorm(l)]);
                }
                let own = [Self::KeyValueDown(l), Self::LatentNorm(l), Self::KeyValueUp(l)];
                all.extend([Self::Query(l)].into_iter().chain(own));
                all.extend(latent.is_gated.then_some(Self::AttentionGate(l)));
            }
            None => all.extend([Self::Query(l), Self::Key(l), Self::Value(l)]),
        }
        match shape.qkv {
            HeadStep::Plain | HeadStep::UnitNormed => {}
            HeadStep::Biased => all.extend([Self::QueryBias(l), Self::KeyBias(l), Self::ValueBias(l)]),
            HeadStep::Normed => all.extend([Self::QueryNorm(l), Self::KeyNorm(l)]),
        }
        all.extend(attention.sinks.then_some(Self::Sinks(l)));
        all.push(Self::Output(l));
        all.extend(attention.output_bias.then_some(Self::OutputBias(l)));
        all.push(Self::PostAttentionNorm(l));
        let Some(experts) = shape.experts_of(l) else {
            all.extend([Self::Gate(l), Self::Up(l), Self::Down(l)]);
            return all;
        };
        all.push(Self::Router(l));
        all.extend((experts.routing.bias != RouterBias::None).then_some(Self::RouterBias(l)));
        all.extend([Self::ExpertGate(l), Self::ExpertUp(l), Self::ExpertDown(l)]);
        if experts.biased {
            all.extend([Self::ExpertGateBias(l), Self::ExpertUpBias(l), Self::ExpertDownBias(l)]);
        }
        if experts.shared_width > 0 {
            all.extend([Self::SharedGate(l), Self::SharedUp(l), Self::SharedDown(l)]);
        }
        all
    }

    /// Rows (outputs) and columns (inputs) of the whole tensor, row-major. Norms have one row, biases
    /// one column.
    pub fn dimensions(self, shape: &ModelShape) -> (u32, u32) {
        let (rows, columns) = self.matrix(shape);
        let count = shape.experts.as_ref().filter(|_| self.is_stacked()).map_or(1, |e| e.count);
        (count * rows, columns)
    }

    /// Rows and columns of the whole tensor, or of one expert's part of a stacked tensor.
    pub fn matrix(self, shape: &ModelShape) -> (u32, u32) {
        let hidden = shape.hidden;
        let latent = shape.attention.latent;
        let of_latent = |size: fn(&Latent) -> u32| latent.as_ref().map_or(0, size);
        let query = latent.map_or(shape.head_dim, |latent| latent.query_dim());
        let (q, kv) = (shape.heads * query, shape.kv_heads * shape.head_dim);
        let attended = shape.attended_columns(1);
        let q_rank = of_latent(|latent| latent.q_rank.unwrap_or(0));
        let kv_rank = of_latent(|latent| latent.kv_rank);
        let of_experts = |size: fn(&ExpertShape) -> u32| shape.experts.as_ref().map_or(0, size);
        let (width, shared) = (of_experts(|e| e.width), of_experts(|e| e.shared_width));
        match self {
            Self::Embedding | Self::Head => (shape.vocab, hidden),
            Self::InputNorm(_) | Self::PostAttentionNorm(_) | Self::FinalNorm => (1, hidden),
            Self::Query(_) if q_rank > 0 => (q, q_rank),
            Self::Query(_) => (q, hidden),
            Self::Key(_) | Self::Value(_) => (kv, hidden),
            Self::QueryBias(_) => (q, 1),
            Self::KeyBias(_) | Self::ValueBias(_) => (kv, 1),
            Self::QueryNorm(_) | Self::KeyNorm(_) => (1, shape.head_dim),
            Self::Output(_) => (hidden, attended),
            Self::OutputBias(_) => (hidden, 1),
            Self::Sinks(_) => (shape.heads, 1),
            Self::QueryDown(_) => (q_rank, hidden),
            Self::QueryLatentNorm(_) => (1, q_rank),
            Self::KeyValueDown(_) => (of_latent(Latent::cached), hidden),
            Self::LatentNorm(_) => (1, kv_rank),
            Self::KeyValueUp(_) => {
                (shape.heads * of_latent(|latent| latent.nope_dim + latent.value_dim), kv_rank)
            }
            Self::AttentionGate(_) => (attended, hidden),
            Self::Gate(_) | Self::Up(_) => (shape.intermediate, hidden),
            Self::Down(_) => (hidden, shape.intermediate),
            Self::Router(_) => (of_experts(|e| e.count), hidden),
            Self::RouterBias(_) => (of_experts(|e| e.count), 1),
            Self::ExpertGate(_) | Self::ExpertUp(_) => (width, hidden),
            Self::ExpertDown(_) => (hidden, width),
            Self::ExpertGateBias(_) | Self::ExpertUpBias(_) => (width, 1),
            Self::ExpertDownBias(_) => (hidden, 1),
            Self::SharedGate(_) | Self::SharedUp(_) => (shared, hidden),
            Self::SharedDown(_) => (hidden, shared),
        }
    }

    /// Number of equal units that sharding by rows keeps whole: KV heads of keys and values, else rows.
    fn heads(self, shape: &ModelShape) -> Option<u32> {
        use Tensor::{Key, KeyBias, Value, ValueBias};
        matches!(self, Key(_) | Value(_) | KeyBias(_) | ValueBias(_)).then_some(shape.kv_heads)
    }
}

/// Part of a tensor that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// The whole tensor on every rank: embedding, norms, an unsharded head.
    Whole,
    /// Rows `[rank x rows / tp, (rank + 1) x rows / tp)`: Megatron's column parallel. Of keys and values with
    /// more ranks than KV heads, the rows of KV head rank x heads / tp. Of a stacked tensor, rows of each
    /// expert.
    Rows,
    /// Columns `[rank x columns / tp, (rank + 1) x columns / tp)`: Megatron's row parallel; the product
    /// is a partial sum.
    Columns,
    /// Experts `[rank x experts / ep, (rank + 1) x experts / ep)` of a stacked tensor, whole.
    Experts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightPart {
    pub tensor: Tensor,
    pub shard: Shard,
}

/// Description of fp8 quantization for records.
pub const QUANTIZED: &str =
    "linear layers, and a head that is not the embedding: e4m3, an f32 scale for each output";

/// Matrix or vector read by one operation: slices stacked along the rows (outputs).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weight {
    /// Unique within the plan: the name of the operation that reads it, `L3/attn/qkv`.
    pub name: String,
    /// Slices, concatenated along the outputs.
    pub parts: Vec<WeightPart>,
    /// Rows (outputs) per rank, over all parts.
    pub outputs: u32,
    /// Columns (inputs) per rank.
    pub inputs: u32,
}

impl Weight {
    /// True if every rank holds the full weight.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| part.shard == Shard::Whole)
    }

    /// True if fp8 quantizes it: matrices of linear layers, except a tied head.
    pub fn is_quantized(&self, shape: &ModelShape) -> bool {
        let is_embedding = |tensor| tensor == Tensor::Head && shape.tied_embeddings;
        self.parts.iter().all(|part| part.tensor.is_linear() && !is_embedding(part.tensor))
    }
}

impl WeightPart {
    /// Row range and column range of the tensor that `rank` of `tp` holds; of a stacked tensor, the ranges
    /// in each of the [`Self::experts`] that it holds.
    pub fn slice(&self, shape: &ModelShape, rank: u32, tp: u32) -> (Range<usize>, Range<usize>) {
        let (rows, columns) = self.tensor.matrix(shape);
        let part = |n: u32| {
            let each = n / tp;
            (rank * each) as usize..((rank + 1) * each) as usize
        };
        match (self.shard, self.tensor.heads(shape)) {
            (Shard::Rows, Some(heads)) if heads < tp => {
                let (head, each) = (rank * heads / tp, rows / heads);
                ((head * each) as usize..((head + 1) * each) as usize, 0..columns as usize)
            }
            (Shard::Rows, _) => (part(rows), 0..columns as usize),
            (Shard::Columns, _) => (0..rows as usize, part(columns)),
            (Shard::Whole | Shard::Experts, _) => (0..rows as usize, 0..columns as usize),
        }
    }

    /// Experts of which `rank` of `tp` holds a part; `0..1` if the tensor is not stacked.
    pub fn experts(&self, shape: &ModelShape, rank: u32, tp: u32) -> Range<u32> {
        let count = shape.experts.as_ref().filter(|_| self.tensor.is_stacked()).map_or(1, |e| e.count);
        match self.shard {
            Shard::Experts => rank * (count / tp)..(rank + 1) * (count / tp),
            _ => 0..count,
        }
    }

    /// Rows and columns on each rank, over all its experts.
    pub fn extent(&self, shape: &ModelShape, tp: u32) -> (u32, u32) {
        let (rows, columns) = self.slice(shape, 0, tp);
        (self.experts(shape, 0, tp).len() as u32 * rows.len() as u32, columns.len() as u32)
    }
}
