//! `ladderscope models`: built-in model shapes.

use super::output::{self, FormatArgs};
use base::error::Result;
use model::Model;
use plan::ExpertShape;
use table::render::{Shown, Sourced, Table};

pub fn run(args: &FormatArgs) -> Result<u8> {
    let models = Model::built_in();
    let list: Vec<Printed<'_>> = models.iter().map(Printed::of).collect();
    output::table(args.format, &list, &table(&models), Sourced::NoRuns)?;
    Ok(0)
}

/// Formats a number of parameters, e.g. `70.55 B` or `0.24 M`.
fn for_people(parameters: u64) -> Shown {
    let parameters = parameters as f64;
    Shown::text(if parameters < 1e9 {
        format!("{:.2} M", parameters / 1e6)
    } else {
        format!("{:.2} B", parameters / 1e9)
    })
}

fn table(models: &[Model]) -> Table {
    Table::of(
        models,
        &[
            ("name", &|m: &Model| Shown::text(&m.name)),
            ("layers", &|m| m.shape.layers.into()),
            ("hidden", &|m| m.shape.hidden.into()),
            ("heads", &|m| m.shape.heads.into()),
            ("kv_heads|KV", &|m| m.shape.kv_heads.into()),
            ("mlp", &|m| m.shape.intermediate.into()),
            ("experts|", &|m| experts(m, |experts| experts.count.into())),
            ("top_k|", &|m| experts(m, |experts| experts.top_k.into())),
            ("|experts", &|m| experts(m, |e| Shown::text(format!("{} top-{}", e.count, e.top_k)))),
            ("vocabulary|vocab", &|m| m.shape.vocab.into()),
            ("parameters|", &|m| m.shape.parameters().into()),
            ("|parameters", &|m| for_people(m.shape.parameters())),
            ("~note", &|m| m.note.into()),
        ],
    )
}

/// Value of a mixture; nothing for a dense model.
fn experts(model: &Model, of: impl Fn(&ExpertShape) -> Shown) -> Shown {
    model.shape.experts.as_ref().map_or(Shown::None, of)
}

/// Model in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    name: &'a str,
    layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    /// Width of the MLP.
    mlp: u32,
    /// Routed experts in a layer; null in a dense model.
    experts: Option<u32>,
    /// Experts that each token uses; null in a dense model.
    top_k: Option<u32>,
    /// Number of entries in the vocabulary.
    vocabulary: u32,
    rope_theta: f64,
    norm_eps: f64,
    tied_embeddings: bool,
    parameters: u64,
    /// Differences from the released model's shape.
    note: Option<&'a str>,
}

impl<'a> Printed<'a> {
    fn of(model: &'a Model) -> Self {
        let shape = &model.shape;
        Self {
            name: &model.name,
            layers: shape.layers,
            hidden: shape.hidden,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            mlp: shape.intermediate,
            experts: shape.experts.as_ref().map(|experts| experts.count),
            top_k: shape.experts.as_ref().map(|experts| experts.top_k),
            vocabulary: shape.vocab,
            rope_theta: shape.rope.theta,
            norm_eps: shape.norm_eps,
            tied_embeddings: shape.tied_embeddings,
            parameters: shape.parameters(),
            note: model.note,
        }
    }
}
