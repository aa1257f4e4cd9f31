//! Quality of a model's architectures on a text. Stored windows are reused; new ones are stored one by one, so an
//! interruption loses nothing.
//!
//! Quality of an experiment's cells (`[evaluate]`): one evaluation for all cells that compute the same values, on the
//! backend that ran them, or on cpu for simulated cells. Stored results are reused.

use std::collections::{HashMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use base::checksum::sha256;
use base::error::{Error, Result};
use base::input::InputKind;
use base::text::counted;
use lab::launch::Cancel;
use lab::store::{Evaluation, EvaluationFile, Store, window_key};
pub use lab::sweep::Text;
use lab::sweep::{Experiment, OWN_TEXT, SweepEvent};
use model::{Model, Tokenizer, read_tokens};
use plan::{Architecture, CommDType, DType};
use run::{
    Evaluate, EvaluateRequest, Evaluated, Feasibility, Window, WindowQuality, evaluation_plan, evaluator,
};
use table::{Backend, FEW_WINDOWS, Provenance, Quality, Spec, quality};

#[derive(Clone, Debug)]
pub struct Asked {
    pub model: Model,
    pub text: Text,
    pub architectures: Vec<Architecture>,
    /// Another reference model, whose `standard` the architectures are compared with.
    pub reference: Option<Model>,
    pub tp: u32,
    pub dtype: DType,
    pub comm_dtype: CommDType,
    /// Tokens per window, at least 2.
    pub context: usize,
    pub limit: Option<usize>,
    /// Seed of random weights, if the model has no checkpoint.
    pub seed: u64,
    /// True if the model's runs get this quality; false for an internal search.
    pub counts: bool,
}

/// Quality of a model's architectures on a text, as `evaluate --format json` prints it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TextQuality {
    /// Built-in name or directory of the model, as given.
    pub model: String,
    /// Fingerprint of the weights.
    pub weights: String,
    /// Reference model whose `standard` is compared with, if it is a different model.
    pub reference: Option<String>,
    pub text: TextFile,
    /// Backend that computed it; cpu has f32 activations, cuda the format of the weights.
    pub backend: Backend,
    pub context: usize,
    /// Tokens of the text, after the limit.
    pub tokens: usize,
    /// Number of windows; a short last window is dropped.
    pub windows: usize,
    /// Predicted tokens: all except the first of each window.
    pub predicted: u32,
    pub provenance: Provenance,
    /// One per requested architecture, in that order.
    pub cases: Vec<Case>,
    #[serde(skip)]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TextFile {
    pub file: String,
    pub sha256: String,
    /// Total tokens, of which a limit may leave fewer.
    pub tokens: usize,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Case {
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// TP; some architectures compute different values at different TP.
    pub tp: u32,
    #[serde(flatten)]
    pub quality: Quality,
}

/// Loaded text and weight hashes of a model, reused by evaluations of other architectures.
#[derive(Debug, Default)]
pub struct Subject(Option<Read>);

/// Text in independent windows, with the fingerprint of the weights.
#[derive(Debug)]
struct Read {
    tokens: Vec<u32>,
    all: usize,
    sha256: String,
    /// Store key of each window.
    keys: Vec<String>,
    weights: String,
    reference: Option<String>,
}

impl Subject {
    fn read(&mut self, asked: &Asked, progress: &mut dyn FnMut(Progress<'_>)) -> Result<&Read> {
        let read = match self.0.take() {
            Some(read) => read,
            None => Read::of(asked, progress)?,
        };
        Ok(self.0.insert(read))
    }
}

impl Read {
    fn of(asked: &Asked, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Self> {
        progress(Progress::Doing("reading the text"));
        let mut tokens = tokens(&asked.model, &asked.text)?;
        let all = tokens.len();
        tokens.truncate(asked.limit.unwrap_or(all));
        let keys: Vec<String> = tokens.chunks_exact(asked.context).map(window_key).collect();
        if keys.is_empty() {
            return Err(too_short(asked, all, tokens.len()));
        }
        progress(Progress::Doing("hashing the weights"));
        let weights = asked.model.fingerprint(asked.seed)?;
        let reference =
            asked.reference.as_ref().map(|model| model.fingerprint(asked.seed)).transpose()?;
        let path = asked.text.path();
        let sha256 = match &asked.text {
            Text::Own => sha256(OWN_TEXT),
            _ => sha256(InputKind::TEXT.bytes(path)?),
        };
        Ok(Self { tokens, all, sha256, keys, weights, reference })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    Doing(&'a str),
    /// Progress in windows times architectures.
    Windows {
        done: usize,
        /// Part of `done` that came from the store.
        found: usize,
        of: usize,
    },
}

/// Evaluates on `backend`. Reads `subject` on first use; it must belong to the same model and text. Completed windows
/// are stored in `store` and reused. Starts no window after `cancel`.
///
/// # Errors
///
/// Returns an input error for a text that is unreadable or shorter than a window, token ids beyond the vocabulary, a
/// TP that does not divide the model, `upper-bound`, or an invalid checkpoint; [`Error::Interrupted`] on
/// cancellation; an error if results cannot be stored or the backend fails.
pub fn evaluate(
    asked: &Asked,
    subject: &mut Subject,
    backend: &dyn Evaluate,
    store: &Store,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<TextQuality> {
    let Asked { model, context, tp, dtype, comm_dtype, seed, .. } = asked;
    // check the request before any slow reading
    let plans = plan_hashes(asked, backend)?;
    let Read { tokens, all, sha256, keys, weights, reference } = subject.read(asked, progress)?;
    let windows: Vec<&[u32]> = tokens.chunks_exact(*context).collect();
    let mut files: Vec<EvaluationFile> = plans
        .iter()
        .map(|(architecture, plan)| {
            let plan = plan.clone();
            store.evaluation(Evaluation {
                comm_dtype: *comm_dtype,
                reference: reference.clone(),
                ..Evaluation::new(&model.name, weights, architecture, *tp, *dtype, plan)
            })
        })
        .collect::<Result<_>>()?;

    let (missing, missing_keys) = missing(&windows, keys, &files);
    let of = windows.len() * files.len();
    let found = keys.iter().map(|key| files.iter().filter(|file| file.get(key).is_some()).count()).sum();
    progress(Progress::Windows { done: found, found, of });
    let request = EvaluateRequest {
        model: model.clone(),
        architectures: plans.iter().map(|(architecture, _)| architecture.clone()).collect(),
        reference: asked.reference.clone(),
        dtype: *dtype,
        tp: *tp,
        comm_dtype: *comm_dtype,
        seed: *seed,
        windows: missing,
    };
    let mut done = found;
    let mut keep = |evaluated: Evaluated| {
        let Evaluated { window, architecture, quality } = evaluated;
        if !(quality.nll.is_finite() && quality.kl.is_finite()) {
            return Err(Error::failed(format!(
                "{}: logits of {} are not finite; the checkpoint may be incomplete",
                model.name, plans[architecture].0
            )));
        }
        let key = &missing_keys[window];
        files[architecture].add(key, quality)?;
        done += keys.iter().filter(|known| *known == key).count();
        progress(Progress::Windows { done, found, of });
        Ok(())
    };
    if !request.windows.is_empty() {
        backend.evaluate(&request, &|| cancel.is_all(), &mut keep)?;
    }
    let cases: Option<Vec<Case>> = asked
        .architectures
        .iter()
        .map(|architecture| {
            let file = &files[plans.iter().position(|(known, _)| known == architecture)?];
            let windows: Option<Vec<WindowQuality>> = keys.iter().map(|key| file.get(key)).collect();
            Some(Case { architecture: architecture.clone(), tp: *tp, quality: quality(&windows?)? })
        })
        .collect();
    let cases = cases.ok_or(Error::Interrupted)?;
    // random weights have no quality worth storing
    if asked.counts && model.has_weights {
        let text = asked.text.name();
        let beside = asked.reference.as_ref().map(|model| model.name.as_str());
        let of = (model.name.as_str(), beside);
        store.record_evaluation(of, (&text, *context), backend.name(), keys.clone(), &files)?;
    }
    Ok(TextQuality {
        model: model.name.clone(),
        weights: weights.clone(),
        reference: asked.reference.as_ref().map(|model| model.name.clone()),
        text: TextFile { file: asked.text.name(), sha256: sha256.clone(), tokens: *all },
        backend: backend.name(),
        context: *context,
        tokens: tokens.len(),
        windows: windows.len(),
        predicted: (windows.len() * (context - 1)) as u32,
        provenance: Provenance::Measured,
        cases,
        notes: notes(windows.len()),
    })
}

fn plan_hashes(asked: &Asked, backend: &dyn Evaluate) -> Result<Vec<(Architecture, String)>> {
    if let Some(problem) = asked.model.shape.tp_problem(asked.tp) {
        return Err(Error::input(problem));
    }
    let precision = backend.precision(asked.dtype);
    let mut hashes: Vec<(Architecture, String)> = Vec::new();
    for architecture in &asked.architectures {
        if hashes.iter().all(|(known, _)| known != architecture) {
            let (tp, sent, lowering) = (asked.tp, asked.comm_dtype, backend.evaluation_lowering());
            let plan = evaluation_plan(&asked.model, architecture, tp, precision, sent, lowering)?;
            // stored windows were keyed by this hash
            hashes.push((architecture.clone(), plan.json_hash()));
        }
    }
    Ok(hashes)
}

/// Distinct windows with missing results, and their keys.
fn missing(windows: &[&[u32]], keys: &[String], files: &[EvaluationFile]) -> (Vec<Window>, Vec<String>) {
    let mut seen = HashSet::new();
    let one = |(window, key): (&&[u32], &String)| {
        let wanted: Vec<usize> = (0..files.len()).filter(|at| files[*at].get(key).is_none()).collect();
        // a text may repeat a window
        let is_new = !wanted.is_empty() && seen.insert(key.clone());
        is_new.then(|| (Window { tokens: window.to_vec(), wanted }, key.clone()))
    };
    windows.iter().zip(keys).filter_map(one).unzip()
}

/// Tokens of a text, all within the vocabulary.
///
/// # Errors
///
/// Returns an input error if the text cannot be read, the model needs a tokenizer and has none, or an id is beyond
/// the vocabulary.
pub(super) fn tokens(model: &Model, text: &Text) -> Result<Vec<u32>> {
    let path = text.path();
    let words = match text {
        Text::Ids(path) => return read_tokens(path, model.shape.vocab),
        Text::Own => OWN_TEXT.to_owned(),
        Text::Words(path) => InputKind::TEXT.text(path)?,
    };
    let ids = tokenizer(model)?.encode_plain(&words)?;
    match ids.iter().find(|id| **id >= model.shape.vocab) {
        Some(id) => Err(Error::input_help(
            format!(
                "{}: the tokenizer produced id {id}, but the model's vocabulary has {} entries",
                path.display(),
                model.shape.vocab
            ),
            "tokenizer.json and config.json must be of the same model",
        )),
        None => Ok(ids),
    }
}

fn tokenizer(model: &Model) -> Result<Tokenizer> {
    match &model.dir {
        Some(dir) if !dir.join("tokenizer.json").is_file() => Err(Error::input_help(
            format!("--text needs {}, which is not there", dir.join("tokenizer.json").display()),
            "pass token ids with --tokens-file FILE",
        )),
        _ => Tokenizer::of(model),
    }
}

fn too_short(asked: &Asked, all: usize, used: usize) -> Error {
    let path = asked.text.path();
    let cut = if used < all { format!(", limited to {used} by --tokens") } else { String::new() };
    let tokens = if all == 1 { "token" } else { "tokens" };
    let help = match used {
        0 | 1 => "use a longer text".into(),
        _ => format!("use a longer text, or --context of at most {used}"),
    };
    Error::input_help(
        format!(
            "{}: the text has {all} {tokens}{cut}: fewer than a window of {} has",
            path.display(),
            asked.context
        ),
        help,
    )
}

fn notes(windows: usize) -> Vec<String> {
    match windows {
        1 => vec!["only one window, so no confidence interval; use a longer text".into()],
        2..FEW_WINDOWS => {
            vec![format!(
                "{windows} windows: intervals from few windows are too narrow; use a longer text"
            )]
        }
        _ => Vec::new(),
    }
}

/// One evaluation, for all cells that compute the same values.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    backend: Backend,
    model: String,
    dtype: DType,
    comm_dtype: CommDType,
    tp: u32,
    architectures: Vec<Architecture>,
}

impl Part {
    /// Evaluation for one cell. Ranks that never diverge compute the same at every TP, and one rank is fastest.
    fn of(spec: &Spec) -> Self {
        let backend = if spec.backend.is_simulated() { Backend::Cpu } else { spec.backend };
        Self {
            backend,
            model: spec.model.clone(),
            // the cpu backend does not support f16
            dtype: match spec.dtype {
                DType::F16 if backend == Backend::Cpu => DType::F32,
                dtype => dtype,
            },
            comm_dtype: spec.comm_dtype,
            tp: if spec.architecture.is_of_any_tp(spec.comm_dtype) { 1 } else { spec.tp },
            architectures: vec![spec.architecture.clone()],
        }
    }

    /// Merges another part's architectures if all else is equal; returns true if it did.
    fn takes(&mut self, other: &Self) -> bool {
        let of = |part: &Self| (part.backend, part.model.clone(), part.dtype, part.comm_dtype, part.tp);
        let same = of(self) == of(other);
        let new = other.architectures.iter().filter(|one| same && !self.architectures.contains(one));
        let new: Vec<Architecture> = new.cloned().collect();
        self.architectures.extend(new);
        same
    }

    fn label(&self) -> String {
        let names: Vec<String> = self.architectures.iter().map(ToString::to_string).collect();
        let sent = match self.comm_dtype {
            CommDType::Activations => String::new(),
            sent => format!(", messages in {sent}"),
        };
        format!("{} of {} ({}, TP {}{sent})", names.join(", "), self.model, self.dtype, self.tp)
    }
}

/// Evaluates the models of the feasible cells; returns the number of failed evaluations, each reported in a note.
/// Returns [`Error::Interrupted`] on cancellation; completed windows are stored.
pub fn evaluate_cells(
    experiment: &Experiment,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<usize> {
    let Some(asked) = &experiment.evaluate else { return Ok(0) };
    let (parts, notes) = parts(experiment);
    notes.into_iter().for_each(|note| emit(SweepEvent::Note(note)));
    let mut failed = 0;
    let mut subjects: HashMap<String, Subject> = HashMap::new();
    for part in parts {
        let what = part.label();
        emit(SweepEvent::Note(format!("evaluating {what} on {}", asked.text.name())));
        let subject = subjects.entry(part.model.clone()).or_default();
        match one(&part, subject, asked, store, cancel, emit) {
            Ok(quality) => {
                quality_notes(&quality, &part).into_iter().for_each(|note| emit(SweepEvent::Note(note)))
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                failed += 1;
                emit(SweepEvent::Note(format!("no quality of {what}: {}", in_words(&error))));
            }
        }
    }
    Ok(failed)
}

fn one(
    part: &Part,
    subject: &mut Subject,
    of: &lab::sweep::Evaluate,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<TextQuality> {
    let asked = Asked {
        model: Model::resolve(&part.model)?,
        text: of.text.clone(),
        architectures: part.architectures.clone(),
        reference: None,
        tp: part.tp,
        dtype: part.dtype,
        comm_dtype: part.comm_dtype,
        context: of.context,
        limit: of.limit,
        seed: 0,
        counts: true,
    };
    let backend = evaluator(part.backend)?;
    evaluate(&asked, subject, backend, store, cancel, &mut |progress| {
        if let Progress::Windows { done, found, of } = progress {
            emit(SweepEvent::Evaluating { what: part.label(), done, found, of });
        }
    })
}

/// Evaluations that the cells need, and notes about cells that have none.
fn parts(experiment: &Experiment) -> (Vec<Part>, Vec<String>) {
    let (mut parts, mut notes): (Vec<Part>, Vec<String>) = Default::default();
    let mut models: Vec<(&str, bool)> = Vec::new();
    let mut say = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        let spec = &cell.spec;
        let has_weights = match models.iter().find(|(model, _)| *model == spec.model) {
            Some((_, has_weights)) => *has_weights,
            None => {
                let has_weights = Model::resolve(&spec.model).is_ok_and(|model| model.has_weights);
                models.push((&spec.model, has_weights));
                has_weights
            }
        };
        if !has_weights {
            say(format!(
                "{}: quality needs trained weights; pass a checkpoint with --model DIR, or path in [model]",
                spec.model
            ));
            continue;
        }
        if spec.architecture == Architecture::UpperBound {
            say("upper-bound has no quality: without all-reduces its numbers are wrong on purpose"
                .into());
            continue;
        }
        let part = Part::of(spec);
        if !parts.iter_mut().any(|known| known.takes(&part)) {
            parts.push(part);
        }
    }
    (parts, notes)
}

/// One line per architecture with its quality.
fn quality_notes(found: &TextQuality, part: &Part) -> Vec<String> {
    let windows = counted(found.windows, "window");
    let line = |case: &Case| {
        let quality = &case.quality;
        format!(
            "quality of {} ({}, TP {}): NLL {:.4}, KL {:.4} nats/token, agreement {:.1} % (measured on {}, {windows} of {} tokens)",
            case.architecture,
            part.dtype,
            part.tp,
            quality.nll,
            quality.kl,
            100.0 * quality.agreement,
            found.backend.as_str(),
            found.context
        )
    };
    found.cases.iter().map(line).chain(found.notes.iter().cloned()).collect()
}

fn in_words(error: &Error) -> String {
    match error {
        Error::Input { message, help: Some(help) } => format!("{message} ({help})"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sweep::Experiment;

    /// Labels of the evaluations of an experiment whose model has weights, and the messages for others.
    fn planned(lines: &str) -> (Vec<String>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let config = r#"{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
            "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": true}"#;
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        std::fs::write(dir.path().join("model.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'])
            .unwrap();
        let text =
            format!("backend = \"sim\"\n[model]\npath = \".\"\n[evaluate]\ncontext = 64\n{lines}");
        let experiment = Experiment::from_str(&text, &dir.path().join("x.toml")).unwrap();
        let (parts, notes) = parts(&experiment);
        let of = format!(" of {}", experiment.cells[0].spec.model);
        (parts.iter().map(|part| part.label().replace(&of, "")).collect(), notes)
    }

    #[test]
    fn one_evaluation_is_of_all_cells_that_compute_the_same() {
        let (parts, notes) = planned(
            "[grid]\narchitecture = [\"standard\", \"ladder:2\", \"desync:2\", \"upper-bound\"]\ntp = [2, 4]\n\
             batch = [1, 8]\ndtype = [\"bf16\", \"f16\"]\np2p = [\"on\", \"off\"]\n",
        );
        assert_eq!(
            parts,
            [
                "standard, ladder:2 (bf16, TP 1)",
                "standard, ladder:2 (f32, TP 1)",
                "desync:2 (bf16, TP 2)",
                "desync:2 (f32, TP 2)",
                "desync:2 (bf16, TP 4)",
                "desync:2 (f32, TP 4)",
            ]
        );
        assert!(notes.len() == 1 && notes[0].starts_with("upper-bound has no quality"), "{notes:?}");
        let (parts, _) = planned(
            "[grid]\ntp = [2]\nbatch = [2]\ncomm_dtype = [\"activations\", \"int8\"]\nmicro_batches = [1, 2]\n",
        );
        // groups of a batch that alternate change no number
        assert_eq!(parts, ["standard (bf16, TP 1)", "standard (bf16, TP 2, messages in int8)"]);
    }

    #[test]
    fn cells_are_evaluated_by_the_backend_that_runs_them() {
        let part = |backend, dtype| Part::of(&Spec { backend, dtype, ..Spec::default() });
        let of = |backend, dtype| (part(backend, dtype).backend, part(backend, dtype).dtype);
        assert_eq!(of(Backend::Cuda, DType::F16), (Backend::Cuda, DType::F16));
        assert_eq!(of(Backend::Sim, DType::F16), (Backend::Cpu, DType::F32));
        assert_eq!(of(Backend::Cpu, DType::Bf16), (Backend::Cpu, DType::Bf16));
        let mut one = part(Backend::Cuda, DType::F32);
        assert!(!one.takes(&part(Backend::Sim, DType::F32)), "other numbers");
        assert!(one.takes(&part(Backend::Cuda, DType::F32)));
    }

    #[test]
    fn a_built_in_shape_has_no_quality() {
        let text = "backend = \"sim\"\n[model]\nname = \"llama-3-8b\"\n[evaluate]\n[grid]\ntp = [2]\n";
        let experiment = Experiment::from_str(text, std::path::Path::new("x.toml")).unwrap();
        let (parts, notes) = parts(&experiment);
        assert!(parts.is_empty());
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("llama-3-8b: quality needs trained weights"), "{notes:?}");
    }
}
