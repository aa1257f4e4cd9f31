//! Weights of a plan: slices of the model's tensors, with Megatron-style sharding.

use serde::{Deserialize, Serialize};

use super::{HeadStep, ModelShape};

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
    /// Output projection of attention, `[hidden, heads x head_dim]`.
    Output(u32),
    /// RMSNorm before the MLP, `[1, hidden]`.
    PostAttentionNorm(u32),
    /// Gate projection, `[intermediate, hidden]`; its SiLU multiplies [`Tensor::Up`].
    Gate(u32),
    /// Up projection, `[intermediate, hidden]`.
    Up(u32),
    /// Down projection, `[hidden, intermediate]`.
    Down(u32),
    /// RMSNorm after the last layer, `[1, hidden]`.
    FinalNorm,
    /// Head, `[vocab, hidden]`; the embedding itself if tied.
    Head,
}

impl Tensor {
    /// Layer of the tensor; `None` for embedding, final norm and head.
    pub fn layer(self) -> Option<u32> {
        match self {
            Self::Embedding | Self::FinalNorm | Self::Head => None,
            Self::InputNorm(layer)
            | Self::Query(layer)
            | Self::Key(layer)
            | Self::Value(layer)
            | Self::QueryBias(layer)
            | Self::KeyBias(layer)
            | Self::ValueBias(layer)
            | Self::QueryNorm(layer)
            | Self::KeyNorm(layer)
            | Self::Output(layer)
            | Self::PostAttentionNorm(layer)
            | Self::Gate(layer)
            | Self::Up(layer)
            | Self::Down(layer) => Some(layer),
        }
    }

    pub fn hf_name(self) -> String {
        match self {
            Self::Embedding => "model.embed_tokens.weight".into(),
            Self::InputNorm(l) => format!("model.layers.{l}.input_layernorm.weight"),
            Self::Query(l) => format!("model.layers.{l}.self_attn.q_proj.weight"),
            Self::Key(l) => format!("model.layers.{l}.self_attn.k_proj.weight"),
            Self::Value(l) => format!("model.layers.{l}.self_attn.v_proj.weight"),
            Self::QueryBias(l) => format!("model.layers.{l}.self_attn.q_proj.bias"),
            Self::KeyBias(l) => format!("model.layers.{l}.self_attn.k_proj.bias"),
            Self::ValueBias(l) => format!("model.layers.{l}.self_attn.v_proj.bias"),
            Self::QueryNorm(l) => format!("model.layers.{l}.self_attn.q_norm.weight"),
            Self::KeyNorm(l) => format!("model.layers.{l}.self_attn.k_norm.weight"),
            Self::Output(l) => format!("model.layers.{l}.self_attn.o_proj.weight"),
            Self::PostAttentionNorm(l) => {
                format!("model.layers.{l}.post_attention_layernorm.weight")
            }
            Self::Gate(l) => format!("model.layers.{l}.mlp.gate_proj.weight"),
            Self::Up(l) => format!("model.layers.{l}.mlp.up_proj.weight"),
            Self::Down(l) => format!("model.layers.{l}.mlp.down_proj.weight"),
            Self::FinalNorm => "model.norm.weight".into(),
            Self::Head => "lm_head.weight".into(),
        }
    }

    /// True for matrices of linear layers and the head; false for the embedding, norms and biases.
    pub fn is_linear(self) -> bool {
        use Tensor::{Down, Gate, Head, Key, Output, Query, Up, Value};
        matches!(self, Query(_) | Key(_) | Value(_) | Output(_) | Gate(_) | Up(_) | Down(_) | Head)
    }

    /// All tensors of a model of this shape, including a tied head.
    pub fn all(shape: &ModelShape) -> Vec<Self> {
        let of_layer = |l: u32| {
            let heads = match shape.qkv {
                HeadStep::Plain => vec![],
                HeadStep::Biased => vec![Self::QueryBias(l), Self::KeyBias(l), Self::ValueBias(l)],
                HeadStep::Normed => vec![Self::QueryNorm(l), Self::KeyNorm(l)],
            };
            let attention = [Self::InputNorm(l), Self::Query(l), Self::Key(l), Self::Value(l)];
            let mlp = [Self::PostAttentionNorm(l), Self::Gate(l), Self::Up(l), Self::Down(l)];
            attention.into_iter().chain(heads).chain([Self::Output(l)]).chain(mlp)
        };
        let ends = [Self::Embedding, Self::FinalNorm, Self::Head];
        (0..shape.layers).flat_map(of_layer).chain(ends).collect()
    }

    /// Rows (outputs) and columns (inputs) of the whole tensor, row-major. Norms have one row, biases
    /// one column.
    pub fn dimensions(self, shape: &ModelShape) -> (u32, u32) {
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        match self {
            Self::Embedding | Self::Head => (shape.vocab, shape.hidden),
            Self::InputNorm(_) | Self::PostAttentionNorm(_) | Self::FinalNorm => (1, shape.hidden),
            Self::Query(_) => (q, shape.hidden),
            Self::Key(_) | Self::Value(_) => (kv, shape.hidden),
            Self::QueryBias(_) => (q, 1),
            Self::KeyBias(_) | Self::ValueBias(_) => (kv, 1),
            Self::QueryNorm(_) | Self::KeyNorm(_) => (1, shape.head_dim),
            Self::Output(_) => (shape.hidden, q),
            Self::Gate(_) | Self::Up(_) => (shape.intermediate, shape.hidden),
            Self::Down(_) => (shape.hidden, shape.intermediate),
        }
    }
}

/// Part of a tensor that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// The whole tensor on every rank: embedding, norms, an unsharded head.
    Whole,
    /// Rows `[rank x rows / tp, (rank + 1) x rows / tp)`: Megatron's column parallel.
    Rows,
    /// Columns `[rank x columns / tp, (rank + 1) x columns / tp)`: Megatron's row parallel; the product
    /// is a partial sum.
    Columns,
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
    /// Row range and column range of the tensor that `rank` of `tp` holds.
    pub fn slice(
        &self,
        shape: &ModelShape,
        rank: u32,
        tp: u32,
    ) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let (rows, columns) = self.tensor.dimensions(shape);
        let part = |n: u32| {
            let each = n / tp;
            (rank * each) as usize..((rank + 1) * each) as usize
        };
        match self.shard {
            Shard::Whole => (0..rows as usize, 0..columns as usize),
            Shard::Rows => (part(rows), 0..columns as usize),
            Shard::Columns => (0..rows as usize, part(columns)),
        }
    }
}
