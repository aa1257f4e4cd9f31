//! `ladderscope models`: built-in model shapes.

use serde_json::json;

use super::output::{self, Format, FormatArgs};
use crate::base::error::Result;
use crate::model::Model;
use crate::table::render::{Shown, Table};

/// Prints the built-in models as a table, JSON or CSV.
pub fn run(args: &FormatArgs) -> Result<u8> {
    let models = Model::built_in();
    match args.format {
        Format::Json => {
            let list: Vec<_> = models
                .iter()
                .map(|model| {
                    json!({
                        "name": model.name,
                        "layers": model.shape.layers,
                        "hidden": model.shape.hidden,
                        "heads": model.shape.heads,
                        "kv_heads": model.shape.kv_heads,
                        "head_dim": model.shape.head_dim,
                        "mlp": model.shape.intermediate,
                        "vocabulary": model.shape.vocab,
                        "rope_theta": model.shape.rope.theta,
                        "norm_eps": model.shape.norm_eps,
                        "tied_embeddings": model.shape.tied_embeddings,
                        "parameters": model.shape.parameters(),
                        "note": model.note,
                    })
                })
                .collect();
            output::json(&list)?;
        }
        Format::Csv => output::emit(&rows(&models, Shown::Whole).csv())?,
        Format::Table => output::emit(&output::aligned(&rows(&models, for_people)))?,
    }
    Ok(0)
}

/// `70.55 B`, `0.24 M`.
fn for_people(parameters: u64) -> Shown {
    let parameters = parameters as f64;
    Shown::text(if parameters < 1e9 {
        format!("{:.2} M", parameters / 1e6)
    } else {
        format!("{:.2} B", parameters / 1e9)
    })
}

fn rows(models: &[Model], parameters: fn(u64) -> Shown) -> Table {
    Table::of(
        models,
        &[
            ("name", &|m: &Model| Shown::text(&m.name)),
            ("layers", &|m| m.shape.layers.into()),
            ("hidden", &|m| m.shape.hidden.into()),
            ("heads", &|m| m.shape.heads.into()),
            ("kv_heads", &|m| m.shape.kv_heads.into()),
            ("mlp", &|m| m.shape.intermediate.into()),
            ("vocabulary", &|m| m.shape.vocab.into()),
            ("parameters", &|m| parameters(m.shape.parameters())),
            ("note", &|m| m.note.into()),
        ],
    )
}
