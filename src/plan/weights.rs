//! Weights as a plan names them: slices of the model's tensors, sharded the Megatron way.

use serde::{Deserialize, Serialize};

use super::{HeadStep, ModelShape};

/// A tensor of a Llama-family checkpoint, by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tensor {
    /// The embedding of tokens, `[vocab, hidden]`: a row a token.
    Embedding,
    /// The RMSNorm before a layer's attention, `[1, hidden]`.
    InputNorm(u32),
    /// A layer's query projection, `[heads x head_dim, hidden]`.
    Query(u32),
    /// A layer's key projection, `[kv_heads x head_dim, hidden]`.
    Key(u32),
    /// A layer's value projection, `[kv_heads x head_dim, hidden]`.
    Value(u32),
    /// The bias of a layer's queries, `[heads x head_dim, 1]`: one number an output.
    QueryBias(u32),
    /// The bias of a layer's keys, `[kv_heads x head_dim, 1]`.
    KeyBias(u32),
    /// The bias of a layer's values, `[kv_heads x head_dim, 1]`.
    ValueBias(u32),
    /// The RMSNorm of each of a layer's queries, `[1, head_dim]`.
    QueryNorm(u32),
    /// The RMSNorm of each of a layer's keys, `[1, head_dim]`.
    KeyNorm(u32),
    /// A layer's output projection of attention, `[hidden, heads x head_dim]`.
    Output(u32),
    /// The RMSNorm before a layer's MLP, `[1, hidden]`.
    PostAttentionNorm(u32),
    /// A layer's gate projection, `[intermediate, hidden]`; its SiLU multiplies [`Tensor::Up`].
    Gate(u32),
    /// A layer's up projection, `[intermediate, hidden]`.
    Up(u32),
    /// A layer's down projection, `[hidden, intermediate]`.
    Down(u32),
    /// The RMSNorm after the last layer, `[1, hidden]`.
    FinalNorm,
    /// The head, `[vocab, hidden]`: the embedding itself where they are tied.
    Head,
}

impl Tensor {
    /// The layer that it belongs to; `None` of embedding, final norm and head.
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

    /// The name in HF checkpoints.
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

    /// True of the matrices of linear layers and the head; false of the embedding, norms and biases.
    pub fn is_linear(self) -> bool {
        match self {
            Self::Query(_)
            | Self::Key(_)
            | Self::Value(_)
            | Self::Output(_)
            | Self::Gate(_)
            | Self::Up(_)
            | Self::Down(_)
            | Self::Head => true,
            Self::Embedding
            | Self::InputNorm(_)
            | Self::QueryBias(_)
            | Self::KeyBias(_)
            | Self::ValueBias(_)
            | Self::QueryNorm(_)
            | Self::KeyNorm(_)
            | Self::PostAttentionNorm(_)
            | Self::FinalNorm => false,
        }
    }

    /// Every tensor of a model of this shape, the head also where it is the embedding.
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

    /// Rows (outputs) and columns (inputs) of the whole tensor, row-major. Norms are one row, biases one column.
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

/// Which part of a tensor a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// All of the tensor, the same on every rank: embedding, norms, an unsharded head.
    Whole,
    /// Rows `[rank x rows / tp, (rank + 1) x rows / tp)`: Megatron's column parallel.
    Rows,
    /// Columns `[rank x columns / tp, (rank + 1) x columns / tp)`: Megatron's row parallel, whose
    /// product is a partial sum.
    Columns,
}

/// One tensor's contribution to a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightPart {
    /// The tensor of the checkpoint that is sliced.
    pub tensor: Tensor,
    /// Which part of the tensor a rank holds.
    pub shard: Shard,
}

/// What fp8 quantizes and how, for records.
pub const QUANTIZED: &str =
    "linear layers, and a head that is not the embedding: e4m3, an f32 scale for each output";

/// What one operation multiplies by: the parts' slices, one below the other (rows are outputs).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weight {
    /// A name that no other weight of the plan has: that of the operation that reads it, `L3/attn/qkv`.
    pub name: String,
    /// Slices, concatenated along the outputs.
    pub parts: Vec<WeightPart>,
    /// How many rows (outputs) one rank holds, over all parts.
    pub outputs: u32,
    /// How many columns (inputs) one rank holds.
    pub inputs: u32,
}

impl Weight {
    /// Whether every rank holds all of it.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| part.shard == Shard::Whole)
    }

    /// True of what fp8 quantizes: matrices of linear layers, except a head that is the embedding.
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
