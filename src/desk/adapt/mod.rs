//! Training: repairs a conversion with a little retraining, or trains a small model from random weights.
//!
//! `training` runs one training: start or resume, checkpoints, final model.
//!
//! A training's id is a hash of its options, so the same command resumes it. Other inputs (the text's tokens, the
//! weights) are compared with those it started from.

mod training;

use std::path::{Path, PathBuf};

pub use super::evaluate::TextSource;
use super::evaluate::{self, EvaluationProgress};
use base::checksum;
use base::error::{Error, Result};
use lab::launch::Cancel;
use lab::store::Store;
use model::{Model, check_place};
use plan::{Architecture, LayerSet};
use table::{Curve, Status, TrainingSpec};

/// Maximum parameters for which a training from scratch counts as a miniature.
const MINIATURE: u64 = 100_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Embedding, all layers, final norm and head.
    All,
    /// Layers that any of the architectures wires differently from `standard`.
    Converted,
    These(LayerSet),
}

#[derive(Clone, Debug)]
pub struct TrainingRequest {
    pub model: Model,
    pub from_scratch: bool,
    pub text: TextSource,
    pub limit: Option<usize>,
    pub architectures: Vec<Architecture>,
    pub options: TrainingOptions,
}

/// Options of trainings, as on the command line.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainingOptions {
    /// Share of the tokens to hold out for evaluation, from the end of the text (%)
    #[arg(long, value_name = "PERCENT", default_value_t = Self::default().held_out, value_parser = percent)]
    pub held_out: f64,
    /// Number of training steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Layers to train: all, converted (those that the architecture converts), K (the last K) or a set such as
    /// [0+2+5] [default: converted; from scratch all]
    #[arg(long, value_name = "all|converted|LAYERS", value_parser = layer_choice)]
    pub layers: Option<Layers>,
    /// Also distil from the unconverted model: weight of the KL divergence in the loss [without a value: 1]
    #[arg(long, value_name = "WEIGHT", num_args = 0..=1, default_missing_value = "1", value_parser = positive)]
    pub distil: Option<f64>,
    /// Peak learning rate, reached after the warm-up and then decayed to a tenth [default: 1e-4; from scratch 1e-3]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub lr: Option<f64>,
    /// Warm-up steps of the learning rate [default: 5 % of all steps]
    #[arg(long, value_name = "STEPS")]
    pub warmup: Option<u32>,
    /// Weight decay of the matrices (AdamW: scaled by the learning rate)
    #[arg(long, value_name = "DECAY", default_value_t = Self::default().weight_decay)]
    pub weight_decay: f64,
    /// Maximum gradient norm; larger gradients are scaled down to it
    #[arg(long, value_name = "NORM", default_value_t = Self::default().clip, value_parser = positive)]
    pub clip: f64,
    /// Batch size: windows per step
    #[arg(long, value_name = "WINDOWS", default_value_t = Self::default().batch, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: u32,
    /// Tokens per window
    #[arg(long, value_name = "TOKENS", default_value_t = Self::default().context, value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub context: u32,
    /// Tensor-parallel size (ranks) of each replica
    #[arg(long, default_value_t = Self::default().tp, value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: u32,
    /// Number of data-parallel replicas; changes the summation order, so results differ in the last digits
    /// [default: cores over TP]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub replicas: Option<u32>,
    /// Seeds of the window order and of random weights, one training each: 0,1,2
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub seed: Vec<u64>,
    /// Steps between checkpoints [default: about one per minute]
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub checkpoint_every: Option<u32>,
    /// Output HF directory; parent directory for several trainings [default: next to the checkpoints, in
    /// RUNS_DIR/trainings/ID]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Start over: discard the stored checkpoints of this training
    #[arg(long)]
    pub restart: bool,
}

impl Default for TrainingOptions {
    fn default() -> Self {
        Self {
            held_out: 10.0,
            steps: 1,
            layers: None,
            distil: None,
            lr: None,
            warmup: None,
            weight_decay: 0.1,
            clip: 1.0,
            batch: 8,
            context: 256,
            tp: 1,
            replicas: None,
            seed: vec![0],
            checkpoint_every: None,
            output: None,
            restart: false,
        }
    }
}

fn layer_choice(text: &str) -> Result<Layers> {
    match text {
        "all" => Ok(Layers::All),
        "converted" => Ok(Layers::Converted),
        _ => match super::convert::layer_set(text)? {
            LayerSet::Last(0) => Err(Error::input("--layers 0: train at least one layer")),
            set => Ok(Layers::These(set)),
        },
    }
}

fn number(text: &str, is_right: impl Fn(f64) -> bool, what: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && is_right(*number));
    number.ok_or_else(|| Error::input(format!("'{text}' is not a {what}")))
}

fn positive(text: &str) -> Result<f64> {
    number(text, |number| number > 0.0, "number above 0")
}

fn percent(text: &str) -> Result<f64> {
    number(text, |number| (0.0..=90.0).contains(&number), "percentage from 0 to 90")
}

impl TrainingRequest {
    /// Peak learning rate.
    fn lr(&self) -> f64 {
        self.options.lr.unwrap_or(if self.from_scratch { 1e-3 } else { 1e-4 })
    }
}

#[derive(Debug)]
pub enum TrainingProgress<'a> {
    Doing(&'a str),
    Evaluating(EvaluationProgress<'a>),
    Note(&'a str),
    Step {
        what: &'a str,
        done: u32,
        /// Steps completed by an earlier process.
        found: u32,
        of: u32,
        /// Loss of the step's windows before the update, in nats per token.
        loss: f64,
        tokens_per_s: f64,
    },
}

/// Runs the trainings one after the other; resumes interrupted ones and returns completed ones from the store.
///
/// # Errors
///
/// Returns an input error for an invalid request, before anything starts; [`Error::Interrupted`] on cancellation,
/// with a checkpoint stored; an error if a loss is not finite or the store cannot be written.
pub fn adapt(
    request: &TrainingRequest,
    store: &Store,
    cancel: &Cancel,
    progress: &mut dyn FnMut(TrainingProgress<'_>),
) -> Result<Vec<Curve>> {
    check(request)?;
    let layers = layers(request)?;
    progress(TrainingProgress::Doing("reading the text"));
    let mut tokens = evaluate::tokens(&request.model, &request.text)?;
    tokens.truncate(request.limit.unwrap_or(tokens.len()));
    let name = request.text.path().display().to_string();
    let data = Data::split(tokens, request.options.context as usize, request.options.held_out, &name)?;
    let specs = specs(request, &layers);
    let outputs = outputs(request, &specs, store)?;
    let mut found = Vec::new();
    for (spec, output) in specs.into_iter().zip(outputs) {
        if cancel.is_all() {
            return Err(Error::Interrupted);
        }
        let run = training::TrainingRun { request, spec, output, data: &data, store, cancel };
        found.push(run.train(progress)?);
    }
    Ok(found)
}

/// Returns the stored trainings whose ids start with one of `names`, or all without names. Returns an input error for
/// an unknown name, and if no training is stored.
pub fn named(store: &Store, names: &[String]) -> Result<Vec<Curve>> {
    let (all, _) = store.trainings()?;
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

fn check(request: &TrainingRequest) -> Result<()> {
    let shape = &request.model.shape;
    if let Some(problem) = shape.tp_problem(request.options.tp) {
        return Err(Error::input(problem));
    }
    for architecture in &request.architectures {
        if architecture.is_limit() {
            return Err(Error::input_help(
                format!(
                    "{architecture} cannot be trained: it has no all-reduces, so its output is wrong by design"
                ),
                "train an architecture that computes a model: standard, ladder, parallel, desync:2, ...",
            ));
        }
        if let Some(problem) = architecture.model_problem(shape, request.options.tp) {
            return Err(Error::input(problem));
        }
    }
    if request.from_scratch && request.options.distil.is_some() {
        return Err(Error::input_help(
            "--distil needs trained weights, but these are random",
            "omit --distil, or pass a checkpoint with --model",
        ));
    }
    let numbers = [("lr", request.lr()), ("clip", request.options.clip)];
    if let Some((name, value)) = numbers.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
        return Err(Error::input(format!("{name} is {value}; it must be a number above 0")));
    }
    Ok(())
}

fn layers(request: &TrainingRequest) -> Result<Option<Vec<u32>>> {
    let count = request.model.shape.layers;
    match &request.options.layers {
        Some(Layers::All) => Ok(None),
        None if request.from_scratch => Ok(None),
        Some(Layers::These(set)) => set.layers(count).map(Some),
        Some(Layers::Converted) | None => {
            let standard = Architecture::Standard.wiring(count);
            let is_converted = |layer: &u32| {
                request.architectures.iter().any(|architecture| {
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
                    "standard converts no layer, so there is no layer to train",
                    "choose layers with --layers K (the last K) or --layers all, or an architecture that converts some",
                ));
            }
            Ok(Some(all))
        }
    }
}

fn specs(request: &TrainingRequest, layers: &Option<Vec<u32>>) -> Vec<TrainingSpec> {
    let model = match &request.model.dir {
        // a relative path would name another checkpoint from another directory
        Some(dir) => {
            std::path::absolute(dir).unwrap_or_else(|_| dir.clone()).to_string_lossy().into_owned()
        }
        None => request.model.name.clone(),
    };
    let text = request.text.path();
    let text = std::path::absolute(text).unwrap_or_else(|_| text.to_owned());
    let training = |seed: &u64, architecture: &Architecture| TrainingSpec {
        model: model.clone(),
        from_scratch: request.from_scratch,
        architecture: architecture.clone(),
        layers: layers.clone(),
        text: match request.text {
            TextSource::Own => request.text.name(),
            _ => text.to_string_lossy().into_owned(),
        },
        tokens: request.limit,
        held_out_pct: request.options.held_out,
        steps: request.options.steps,
        batch: request.options.batch,
        context: request.options.context,
        lr: request.lr(),
        warmup: request.options.warmup.unwrap_or_else(|| request.options.steps.div_ceil(20)),
        weight_decay: request.options.weight_decay,
        clip: request.options.clip,
        distil: request.options.distil,
        tp: request.options.tp,
        seed: *seed,
        look_every: request.options.steps.div_ceil(20).max(1),
    };
    request
        .options
        .seed
        .iter()
        .flat_map(|seed| {
            request.architectures.iter().map(move |architecture| training(seed, architecture))
        })
        .collect()
}

fn id(spec: &TrainingSpec) -> String {
    checksum::short_key(serde_json::to_string(spec).unwrap_or_default())[..12].to_owned()
}

/// Output directory of each training, checked before any long work.
fn outputs(request: &TrainingRequest, specs: &[TrainingSpec], store: &Store) -> Result<Vec<PathBuf>> {
    let Some(out) = &request.options.output else {
        return Ok(specs
            .iter()
            .map(|spec| store.dir().join("trainings").join(id(spec)).join("model"))
            .collect());
    };
    let out = std::path::absolute(out).unwrap_or_else(|_| out.clone());
    let word = |spec: &TrainingSpec| {
        let name = spec.architecture.to_string().replace([':', '[', ']'], "-").replace("--", "-");
        let seed =
            if request.options.seed.len() > 1 { format!("-seed{}", spec.seed) } else { String::new() };
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
                "use the same options to resume it, or choose another --output",
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

fn written_by(output: &Path) -> Option<String> {
    let bytes = std::fs::read(output.join("training.json")).ok()?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    Some(json["id"].as_str()?.to_owned())
}

/// Training tokens and, from the end of the text, held-out tokens.
#[derive(Clone, Debug)]
struct Data {
    pub train: Vec<u32>,
    pub held_out: Vec<u32>,
    context: usize,
}

impl Data {
    /// Holds out `held_out_pct` percent of the tokens, at least one window. Returns an input error, with the text's
    /// `name`, if less than a window is left for training.
    pub fn split(mut tokens: Vec<u32>, context: usize, held_out_pct: f64, name: &str) -> Result<Self> {
        let all = tokens.len();
        let share = (all as f64 * held_out_pct / 100.0).round() as usize;
        // a window has one token more than it predicts
        let least = context + 1;
        let held_out = share.max(least);
        if all < held_out + least {
            return Err(Error::input_help(
                format!(
                    "{name}: the text has {all} tokens, {held_out} of them held out: fewer than a window of {context} \
                     and the token after it are left to train on"
                ),
                format!("use a text of at least {} tokens, or a smaller --context", held_out + least),
            ));
        }
        let held_out = tokens.split_off(all - held_out);
        Ok(Self { train: tokens, held_out, context })
    }

    pub fn key(&self) -> String {
        let words = [&self.train, &self.held_out].into_iter().flat_map(|part| {
            let tokens = part.iter().flat_map(|token| token.to_le_bytes());
            tokens.chain((part.len() as u64).to_le_bytes()).collect::<Vec<u8>>()
        });
        checksum::short_key(words.collect::<Vec<u8>>())
    }

    fn count(&self) -> usize {
        // this many windows fit after every shift, unless the text is hardly longer than one
        ((self.train.len() - self.context) / self.context).max(1)
    }

    /// Windows of step `step`, from 0. Each pass over the text starts at a random shift within its first window and
    /// shuffles its windows; both depend only on the seed and the number of the pass.
    pub fn windows(&self, seed: u64, step: u32, batch: u32) -> Vec<&[u32]> {
        let count = self.count();
        let first = step as usize * batch as usize;
        let windows: Vec<usize> = (first..first + batch as usize).collect();
        let of_pass = |windows: &[usize]| {
            let (shift, order) = self.pass(seed, windows[0] / count);
            let starts = windows.iter().map(|window| shift + order[window % count] * self.context);
            starts.map(|at| &self.train[at..=at + self.context]).collect::<Vec<_>>()
        };
        windows.chunk_by(|a, b| a / count == b / count).flat_map(of_pass).collect()
    }

    /// First token of the first window of a pass, and its windows in the order of training.
    fn pass(&self, seed: u64, number: usize) -> (usize, Vec<usize>) {
        let mut random = fastrand::Rng::with_seed(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03),
        );
        let count = self.count();
        let most = (self.train.len() - 1 - count * self.context).min(self.context - 1);
        let shift = random.usize(0..=most);
        let mut order: Vec<usize> = (0..count).collect();
        random.shuffle(&mut order);
        (shift, order)
    }

    pub fn held_out(&self, most: usize) -> Vec<&[u32]> {
        let starts = (0..).step_by(self.context).take(most);
        starts.map_while(|at| self.held_out.get(at..=at + self.context)).collect()
    }
}

#[cfg(test)]
mod tests;
