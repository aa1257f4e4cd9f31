//! Verbs `models` and `experiments`: built-in model shapes, and experiment files with their questions.

use std::path::Path;

use super::output::{self, FormatArgs, OutputFormat};
use super::stderr;
use crate::desk::{self, experiments::DIRECTORY};
use base::error::Result;
use base::text::counted;
use lab::sweep::Experiment;
use model::Model;
use plan::ExpertShape;
use run::Feasibility;
use table::render::{Shown, Sourced, Table};

pub fn models(args: &FormatArgs) -> Result<u8> {
    let models = Model::built_in();
    let list: Vec<PrintedModel<'_>> = models.iter().map(PrintedModel::from_model).collect();
    output::table(args.format, &list, &models_table(&models), Sourced::NoRuns)?;
    Ok(0)
}

/// Formats a number of parameters, e.g. `70.55 B` or `0.24 M`.
fn parameters_in_words(parameters: u64) -> Shown {
    let parameters = parameters as f64;
    Shown::text(if parameters < 1e9 {
        format!("{:.2} M", parameters / 1e6)
    } else {
        format!("{:.2} B", parameters / 1e9)
    })
}

fn models_table(models: &[Model]) -> Table {
    Table::from_rows(
        models,
        &[
            ("name", &|m: &Model| Shown::text(&m.name)),
            ("layers", &|m| m.shape.layers.into()),
            ("hidden", &|m| m.shape.hidden.into()),
            ("heads", &|m| m.shape.heads.into()),
            ("kv_heads|KV", &|m| m.shape.kv_heads.into()),
            ("mlp", &|m| m.shape.intermediate.into()),
            ("experts|", &|m| of_experts(m, |experts| experts.count.into())),
            ("top_k|", &|m| of_experts(m, |experts| experts.top_k.into())),
            ("|experts", &|m| of_experts(m, |e| Shown::text(format!("{} top-{}", e.count, e.top_k)))),
            ("vocabulary|vocab", &|m| m.shape.vocab.into()),
            ("parameters|", &|m| m.shape.parameters().into()),
            ("|parameters", &|m| parameters_in_words(m.shape.parameters())),
            ("~note", &|m| m.note.into()),
        ],
    )
}

/// Value of a mixture; nothing for a dense model.
fn of_experts(model: &Model, value: impl Fn(&ExpertShape) -> Shown) -> Shown {
    model.shape.experts.as_ref().map_or(Shown::None, value)
}

/// Model in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedModel<'a> {
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

impl<'a> PrintedModel<'a> {
    fn from_model(model: &'a Model) -> Self {
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

/// Prints the list. An invalid file causes a warning only, because the others can be run.
pub fn experiments(args: &FormatArgs) -> Result<u8> {
    let mut experiments = Vec::new();
    for found in desk::experiments::available_experiments(Path::new(DIRECTORY))? {
        match found.experiment {
            // built-in experiments are run by name
            Ok(experiment) if found.path.is_none() => {
                experiments.push(Experiment { path: found.name.into(), ..experiment });
            }
            Ok(experiment) => experiments.push(experiment),
            Err(error) => stderr::print_error(&error),
        }
    }
    if args.format == OutputFormat::Table && experiments.is_empty() {
        stderr::note(&format!("no experiment files (*.toml) in ./{DIRECTORY}"));
        return Ok(0);
    }
    let list: Vec<PrintedExperiment<'_>> =
        experiments.iter().map(PrintedExperiment::from_experiment).collect();
    let csv = || experiments_table(&experiments).csv(Sourced::NoRuns);
    output::print(args.format, &list, csv, || {
        let text: String = experiments.iter().map(experiment_text).collect();
        format!("{text}Run one: ladderscope sweep EXPERIMENT\n")
    })?;
    Ok(0)
}

fn can_run(experiment: &Experiment) -> usize {
    experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs).count()
}

/// Name, size, and the question below them.
fn experiment_text(experiment: &Experiment) -> String {
    let (cells, fit) = (experiment.cells.len(), can_run(experiment));
    let fit = if fit < cells { format!(" ({fit} fit)") } else { String::new() };
    let head = format!("{}: {}{fit}", experiment.path.display(), counted(cells, "cell"));
    let axes = experiment.axes.join(" x ");
    let question = experiment.question.as_deref().unwrap_or_default();
    output::wrapped("", &format!("{head}, {}: {axes}", counted(experiment.rounds as usize, "round")), 4)
        + &match question.is_empty() {
            true => String::new(),
            false => output::wrapped("    ", question, 4),
        }
}

fn experiments_table(experiments: &[Experiment]) -> Table {
    Table::from_rows(
        experiments,
        &[
            ("path|experiment", &|e: &Experiment| Shown::text(e.path.display())),
            ("axes", &|e| e.axes.join(" x ").into()),
            ("cells", &|e| e.cells.len().into()),
            ("can_run|cells that fit", &|e| can_run(e).into()),
            ("rounds", &|e| e.rounds.into()),
            ("question", &|e| e.question.as_deref().into()),
        ],
    )
}

/// Experiment in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedExperiment<'a> {
    name: &'a str,
    path: &'a Path,
    question: Option<&'a str>,
    /// Names of the grid's axes, in file order.
    axes: &'a [String],
    /// Cells of the grid.
    cells: usize,
    /// Cells that can run on this machine.
    can_run: usize,
    /// Passes over the cells.
    rounds: u32,
}

impl<'a> PrintedExperiment<'a> {
    fn from_experiment(experiment: &'a Experiment) -> Self {
        Self {
            name: &experiment.name,
            path: &experiment.path,
            question: experiment.question.as_deref(),
            axes: &experiment.axes,
            cells: experiment.cells.len(),
            can_run: can_run(experiment),
            rounds: experiment.rounds,
        }
    }
}
