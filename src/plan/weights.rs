//! Weights as a plan names them: slices of the model's tensors, sharded the Megatron way.

use serde::{Deserialize, Serialize};

use crate::model::ModelShape;

/// A tensor of a Llama-family checkpoint, by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tensor {
    /// `[vocab, hidden]`
    Embedding,
    /// `[1, hidden]`, before attention.
    InputNorm(u32),
    /// `[heads x head_dim, hidden]`
    Query(u32),
    /// `[kv_heads x head_dim, hidden]`
    Key(u32),
    /// `[kv_heads x head_dim, hidden]`
    Value(u32),
    /// `[hidden, heads x head_dim]`
    Output(u32),
    /// `[1, hidden]`, before the MLP.
    PostAttentionNorm(u32),
    /// `[intermediate, hidden]`
    Gate(u32),
    /// `[intermediate, hidden]`
    Up(u32),
    /// `[hidden, intermediate]`
    Down(u32),
    /// `[1, hidden]`, after the last layer.
    FinalNorm,
    /// `[vocab, hidden]`; the embedding itself where they are tied.
    Head,
}

impl Tensor {
    /// The name in HF checkpoints.
    pub fn hf_name(self) -> String {
        match self {
            Self::Embedding => "model.embed_tokens.weight".into(),
            Self::InputNorm(l) => format!("model.layers.{l}.input_layernorm.weight"),
            Self::Query(l) => format!("model.layers.{l}.self_attn.q_proj.weight"),
            Self::Key(l) => format!("model.layers.{l}.self_attn.k_proj.weight"),
            Self::Value(l) => format!("model.layers.{l}.self_attn.v_proj.weight"),
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

    /// Rows (outputs) and columns (inputs) of the whole tensor, row-major. Norms are one row.
    pub fn dimensions(self, shape: &ModelShape) -> (u32, u32) {
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        match self {
            Self::Embedding | Self::Head => (shape.vocab, shape.hidden),
            Self::InputNorm(_) | Self::PostAttentionNorm(_) | Self::FinalNorm => (1, shape.hidden),
            Self::Query(_) => (q, shape.hidden),
            Self::Key(_) | Self::Value(_) => (kv, shape.hidden),
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
    /// All of it.
    Whole,
    /// Rows `[rank x rows / tp, (rank + 1) x rows / tp)`: Megatron's column parallel.
    Rows,
    /// Columns, likewise: Megatron's row parallel.
    Columns,
}

/// One tensor's contribution to a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightPart {
    /// Which tensor.
    pub tensor: Tensor,
    /// Which part of it.
    pub shard: Shard,
}

/// What one operation multiplies by: the parts' slices, one below the other (rows are outputs).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weight {
    /// Unique name: `L3/attn/qkv`.
    pub name: String,
    /// Slices, concatenated along the outputs.
    pub parts: Vec<WeightPart>,
    /// Rows on one rank.
    pub outputs: u32,
    /// Columns on one rank.
    pub inputs: u32,
}

impl Weight {
    /// Whether every rank holds all of it.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| part.shard == Shard::Whole)
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
