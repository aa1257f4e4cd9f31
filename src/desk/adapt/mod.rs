//! Training: a conversion repaired by a little retraining, or a small model of any architecture from random weights.
//!
//! | file | what it is for |
//! |---|---|
//! | `data` | the text: what is held out, and which windows each step has |
//! | `one` | one training: begun or gone on with, its checkpoints, the model that it ends with |
//! | `cells` | the trainings that an experiment asks for |
//!
//! A training is named by what was asked for, so that the same command goes on where it stopped; what its numbers follow
//! from besides (the text's tokens, the weights) is compared with what it began with.

mod cells;
mod data;
mod one;

use std::path::{Path, PathBuf};

use super::evaluate;
pub use super::evaluate::Text;
pub use cells::train_cells;
use data::Data;

use base::error::{Error, Result};
use base::hash;
use lab::launch::Cancel;
use lab::store::Store;
use model::{Model, check_place};
use plan::{Architecture, LayerSet};
use table::{Curve, Status, TrainingSpec};

/// Parameters of a model up to which a training from scratch is a miniature.
const MINIATURE: u64 = 100_000_000;

/// Which layers are trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// All of the model: embedding, every layer, final norm and head.
    All,
    /// The layers that any of the architectures wires in another way than `standard`.
    Converted,
    /// These layers.
    These(LayerSet),
}

/// What is asked for: a training for each seed and architecture.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The model, with its checkpoint if it has one.
    pub model: Model,
    /// Whether to begin with random weights.
    pub from_scratch: bool,
    /// The text, a part of which is held out.
    pub text: Text,
    /// How many of the text's tokens are used; all without.
    pub limit: Option<usize>,
    /// Share of the tokens that are held out (percent).
    pub held_out_pct: f64,
    /// How the model is wired, a training each.
    pub architectures: Vec<Architecture>,
    /// Seeds, a training each.
    pub seeds: Vec<u64>,
    /// Which layers are trained.
    pub layers: Layers,
    /// Steps of a training.
    pub steps: u32,
    /// Windows of a step.
    pub batch: u32,
    /// Predicted tokens of a window.
    pub context: u32,
    /// The greatest learning rate.
    pub lr: f64,
    /// Steps over which it grows; without, a twentieth of all.
    pub warmup: Option<u32>,
    /// Decay of matrices.
    pub weight_decay: f64,
    /// The greatest norm of gradients.
    pub clip: f64,
    /// How much KL to the unconverted model counts beside the tokens.
    pub distil: Option<f64>,
    /// The number of ranks (TP).
    pub tp: u32,
    /// Sets of ranks that share a step's windows; without, as many as there are cores for.
    pub replicas: Option<usize>,
    /// Steps between checkpoints; without, about a minute's.
    pub checkpoint_every: Option<u32>,
    /// Where the model goes that a training ends with; without, beside its checkpoints. Of several trainings a
    /// directory in which each has its own.
    pub output: Option<PathBuf>,
    /// Whether to forget what is stored of these trainings.
    pub restart: bool,
}

/// How far a training is.
#[derive(Debug)]
pub enum Progress<'a> {
    /// What it is doing before its steps.
    Doing(&'a str),
    /// How far an evaluation of quality is.
    Evaluating(evaluate::Progress<'a>),
    /// Something to be told.
    Note(&'a str),
    /// A step was done.
    Step {
        /// Which training, in a few words.
        what: &'a str,
        /// Steps that are done.
        done: u32,
        /// Those of them that were done by an earlier process.
        found: u32,
        /// Steps of the training.
        of: u32,
        /// What its windows lost before it, in nats a token.
        loss: f64,
        /// Tokens that are trained on in a second.
        tokens_per_s: f64,
    },
}

/// Trains, a training after the other; what is stored of them is gone on with, and what came to its end is found.
///
/// # Errors
///
/// Input errors for what cannot be trained, told before anything starts; [`Error::Interrupted`] where `cancel` came
/// before the end, with a checkpoint stored; a failure where a loss is not finite, or something cannot be stored.
pub fn adapt(
    asked: &Asked,
    store: &Store,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Curve>> {
    check(asked)?;
    let layers = layers(asked)?;
    progress(Progress::Doing("reading the text"));
    let mut tokens = evaluate::tokens(&asked.model, &asked.text)?;
    tokens.truncate(asked.limit.unwrap_or(tokens.len()));
    let name = asked.text.path().display().to_string();
    let data = Data::split(tokens, asked.context as usize, asked.held_out_pct, &name)?;
    let specs = specs(asked, &layers);
    let outputs = outputs(asked, &specs, store)?;
    let mut found = Vec::new();
    for (spec, output) in specs.into_iter().zip(outputs) {
        if cancel.is_all() {
            return Err(Error::Interrupted);
        }
        let one = one::One { asked, spec, output, data: &data, store, cancel };
        found.push(one.train(progress)?);
    }
    Ok(found)
}

/// The stored trainings, the newest first, and why others cannot be shown.
///
/// # Errors
///
/// A failure where the store cannot be read.
pub fn stored(store: &Store) -> Result<(Vec<Curve>, Vec<String>)> {
    store.trainings()
}

/// Of stored trainings those whose ids begin with one of these names, all without names.
///
/// # Errors
///
/// An input error for a name that none has, and where there are none.
pub fn named(store: &Store, names: &[String]) -> Result<Vec<Curve>> {
    let (all, _) = stored(store)?;
    if let Some(name) =
        names.iter().find(|name| !all.iter().any(|one| one.training.id.starts_with(*name)))
    {
        let ids = all.iter().map(|one| one.training.id.as_str());
        return Err(Error::unknown("training", name, ids));
    }
    if all.is_empty() {
        return Err(Error::input_help(
            format!("no training is stored in {}", store.dir().display()),
            "`ladderscope adapt` makes some",
        ));
    }
    let is_meant =
        |one: &Curve| names.is_empty() || names.iter().any(|name| one.training.id.starts_with(name));
    Ok(all.into_iter().filter(is_meant).collect())
}

/// Errors for what cannot be trained.
fn check(asked: &Asked) -> Result<()> {
    let shape = &asked.model.shape;
    if let Some(problem) = shape.tp_problem(asked.tp) {
        return Err(Error::input(problem));
    }
    for architecture in &asked.architectures {
        if architecture.is_limit() {
            return Err(Error::input_help(
                format!(
                    "{architecture} cannot be trained: without all-reduces its numbers are wrong on purpose"
                ),
                "train an architecture that computes a model: standard, ladder, parallel, desync:2, ...",
            ));
        }
        if let Some(problem) = architecture.layer_problem(shape.layers) {
            return Err(Error::input(problem));
        }
    }
    if asked.from_scratch && asked.distil.is_some() {
        return Err(Error::input_help(
            "nothing is to be learned from a model of random weights",
            "leave out --distil, or name a checkpoint with --weights",
        ));
    }
    let numbers = [("lr", asked.lr), ("clip", asked.clip)];
    if let Some((name, value)) = numbers.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
        return Err(Error::input(format!("{name} is {value}; it must be a number above 0")));
    }
    Ok(())
}

/// The layers that are trained; `None`: all of the model.
fn layers(asked: &Asked) -> Result<Option<Vec<u32>>> {
    let count = asked.model.shape.layers;
    match &asked.layers {
        Layers::All => Ok(None),
        Layers::These(set) => set.layers(count).map(Some),
        Layers::Converted => {
            let standard = Architecture::Standard.wiring(count);
            let is_converted = |layer: &u32| {
                asked.architectures.iter().any(|architecture| {
                    let (at, wiring) = (*layer as usize, architecture.wiring(count));
                    wiring.staleness[at] != standard.staleness[at]
                        || wiring.dropped[at]
                        || wiring.fused_block
                        || wiring.reduce != standard.reduce
                })
            };
            let all: Vec<u32> = (0..count).filter(is_converted).collect();
            if all.is_empty() {
                return Err(Error::input_help(
                    "standard converts no layer, so that none is to be trained",
                    "say which: --layers K for the last K, --layers all, or name an architecture that converts some",
                ));
            }
            Ok(Some(all))
        }
    }
}

/// A training for each seed and architecture.
fn specs(asked: &Asked, layers: &Option<Vec<u32>>) -> Vec<TrainingSpec> {
    let model = match &asked.model.dir {
        // a relative name would be another checkpoint from elsewhere
        Some(dir) => {
            std::path::absolute(dir).unwrap_or_else(|_| dir.clone()).to_string_lossy().into_owned()
        }
        None => asked.model.name.clone(),
    };
    let text = asked.text.path();
    let text = std::path::absolute(text).unwrap_or_else(|_| text.to_owned());
    let one = |seed: &u64, architecture: &Architecture| TrainingSpec {
        model: model.clone(),
        from_scratch: asked.from_scratch,
        architecture: architecture.clone(),
        layers: layers.clone(),
        text: match asked.text {
            Text::Own => asked.text.name(),
            _ => text.to_string_lossy().into_owned(),
        },
        tokens: asked.limit,
        held_out_pct: asked.held_out_pct,
        steps: asked.steps,
        batch: asked.batch,
        context: asked.context,
        lr: asked.lr,
        warmup: asked.warmup.unwrap_or_else(|| asked.steps.div_ceil(20)),
        weight_decay: asked.weight_decay,
        clip: asked.clip,
        distil: asked.distil,
        tp: asked.tp,
        seed: *seed,
        look_every: asked.steps.div_ceil(20).max(1),
    };
    asked.seeds.iter().flat_map(|seed| asked.architectures.iter().map(move |a| one(seed, a))).collect()
}

/// What a training is called: it follows from what was asked for.
fn id(spec: &TrainingSpec) -> String {
    hash::short_key(serde_json::to_string(spec).unwrap_or_default())[..12].to_owned()
}

/// Where the model of each training goes, checked before anything takes long.
fn outputs(asked: &Asked, specs: &[TrainingSpec], store: &Store) -> Result<Vec<PathBuf>> {
    let Some(out) = &asked.output else {
        return Ok(specs
            .iter()
            .map(|spec| store.dir().join("trainings").join(id(spec)).join("model"))
            .collect());
    };
    let out = std::path::absolute(out).unwrap_or_else(|_| out.clone());
    let word = |spec: &TrainingSpec| {
        let name = spec.architecture.to_string().replace([':', '[', ']'], "-").replace("--", "-");
        let seed = if asked.seeds.len() > 1 { format!("-seed{}", spec.seed) } else { String::new() };
        format!("{}{seed}", name.trim_end_matches('-'))
    };
    let outputs: Vec<PathBuf> = match specs {
        [_] => vec![out.clone()],
        _ => specs.iter().map(|spec| out.join(word(spec))).collect(),
    };
    let others = store.trainings()?.0;
    for (spec, output) in specs.iter().zip(&outputs) {
        let other = others
            .iter()
            .find(|other| other.training.output == *output && other.training.id != id(spec));
        if let Some(other) =
            other.filter(|other| other.training.status != Status::Ok || written_by(output).is_some())
        {
            let differences = spec.differences(&other.training.spec).join("; ");
            return Err(Error::input_help(
                format!(
                    "{}: training {} goes there: {differences}",
                    output.display(),
                    other.training.id
                ),
                "give what that one was given to go on with it, or name another --output",
            ));
        }
        if written_by(output).as_deref() != Some(&id(spec)) {
            match specs {
                [_] => check_place(output)?,
                _ if output.exists() => check_place(output)?,
                _ => {}
            }
        }
    }
    if specs.len() > 1 {
        std::fs::create_dir_all(&out).map_err(Error::io(&out))?;
    }
    Ok(outputs)
}

/// The training that wrote a model's directory.
fn written_by(output: &Path) -> Option<String> {
    let bytes = std::fs::read(output.join("training.json")).ok()?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    Some(json["id"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests;
