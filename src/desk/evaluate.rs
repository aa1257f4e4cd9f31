//! Quality of a model's architectures on a text. Stored windows are reused; new ones are stored one by one, so an
//! interruption loses nothing.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;

use base::checksum::sha256;
use base::error::{Error, Result};
use base::input::InputKind;
use lab::launch::Cancel;
use lab::store::{EvaluationFile, EvaluationKey, Store, window_key};
use lab::sweep::OWN_TEXT;
pub use lab::sweep::TextSource;
use model::{Model, Tokenizer, read_tokens};
use plan::{Architecture, CommDType, DType};
use run::{EvaluateRequest, Evaluated, EvaluationWindow, Execute, WindowQuality, evaluation_plan};
use table::{Backend, FEW_WINDOWS, Provenance, Quality, quality};

#[derive(Clone, Debug)]
pub struct QualityRequest {
    pub model: Model,
    pub text: TextSource,
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
    pub cases: Vec<ArchitectureQuality>,
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
pub struct ArchitectureQuality {
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// TP; some architectures compute different values at different TP.
    pub tp: u32,
    #[serde(flatten)]
    pub quality: Quality,
}

/// Loaded text and weight hashes of a model, reused by evaluations of other architectures.
pub type TextCache = Option<LoadedText>;

/// Text in independent windows, with the fingerprint of the weights.
#[derive(Debug)]
pub struct LoadedText {
    tokens: Vec<u32>,
    all: usize,
    sha256: String,
    /// Store key of each window.
    keys: Vec<String>,
    weights: String,
    reference: Option<String>,
}

impl LoadedText {
    fn load(request: &QualityRequest, progress: &mut dyn FnMut(EvaluationProgress<'_>)) -> Result<Self> {
        progress(EvaluationProgress::Doing("reading the text"));
        let mut tokens = tokens(&request.model, &request.text)?;
        let all = tokens.len();
        tokens.truncate(request.limit.unwrap_or(all));
        let keys: Vec<String> = tokens.chunks_exact(request.context).map(window_key).collect();
        if keys.is_empty() {
            return Err(too_short(request, all, tokens.len()));
        }
        progress(EvaluationProgress::Doing("hashing the weights"));
        let weights = request.model.fingerprint(request.seed)?;
        let reference =
            request.reference.as_ref().map(|model| model.fingerprint(request.seed)).transpose()?;
        let path = request.text.path();
        let sha256 = match &request.text {
            TextSource::Own => sha256(OWN_TEXT),
            _ => sha256(InputKind::TEXT.bytes(path)?),
        };
        Ok(Self { tokens, all, sha256, keys, weights, reference })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationProgress<'a> {
    Doing(&'a str),
    /// Progress in windows times architectures.
    Windows {
        done: usize,
        /// Part of `done` that came from the store.
        found: usize,
        of: usize,
    },
}

/// Evaluates on `backend`. Reads `cache` on first use; it must belong to the same model and text. Completed windows
/// are stored in `store` and reused. Starts no window after `cancel`.
///
/// # Errors
///
/// Returns an input error for a text that is unreadable or shorter than a window, token ids beyond the vocabulary, a
/// TP that does not divide the model, `upper-bound`, or an invalid checkpoint; [`Error::Interrupted`] on
/// cancellation; an error if results cannot be stored or the backend fails.
pub fn evaluate(
    request: &QualityRequest,
    cache: &mut TextCache,
    backend: &dyn Execute,
    store: &Store,
    cancel: &Cancel,
    progress: &mut dyn FnMut(EvaluationProgress<'_>),
) -> Result<TextQuality> {
    let QualityRequest { model, context, tp, dtype, comm_dtype, seed, .. } = request;
    // check the request before any slow reading
    let plans = hashed_plans(request, backend)?;
    let text = match cache.take() {
        Some(text) => text,
        None => LoadedText::load(request, progress)?,
    };
    let text = &*cache.insert(text);
    let LoadedText { tokens, all, sha256, keys, weights, .. } = text;
    let windows: Vec<&[u32]> = tokens.chunks_exact(*context).collect();
    let mut files = result_files(request, &plans, text, store)?;
    let (missing, missing_keys) = missing(&windows, keys, &files);
    let of = windows.len() * files.len();
    let found = keys.iter().map(|key| files.iter().filter(|file| file.get(key).is_some()).count()).sum();
    progress(EvaluationProgress::Windows { done: found, found, of });
    let backend_request = EvaluateRequest {
        model: model.clone(),
        architectures: plans.iter().map(|plan| plan.architecture.clone()).collect(),
        reference: request.reference.clone(),
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
                model.name, plans[architecture].architecture
            )));
        }
        let key = &missing_keys[window];
        files[architecture].add(key, quality)?;
        done += keys.iter().filter(|known| *known == key).count();
        progress(EvaluationProgress::Windows { done, found, of });
        Ok(())
    };
    if !backend_request.windows.is_empty() {
        backend.evaluate(&backend_request, &|| cancel.is_all(), &mut keep)?;
    }
    let cases = cases(request, &plans, &files, keys).ok_or(Error::Interrupted)?;
    // random weights have no quality worth storing
    if request.counts && model.has_weights {
        let text = request.text.name();
        let reference = request.reference.as_ref().map(|model| model.name.as_str());
        let models = (model.name.as_str(), reference);
        store.record_evaluation(models, (&text, *context), backend.name(), keys.clone(), &files)?;
    }
    Ok(TextQuality {
        model: model.name.clone(),
        weights: weights.clone(),
        reference: request.reference.as_ref().map(|model| model.name.clone()),
        text: TextFile { file: request.text.name(), sha256: sha256.clone(), tokens: *all },
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

/// Stored results of each plan, on these weights.
fn result_files(
    request: &QualityRequest,
    plans: &[HashedPlan],
    text: &LoadedText,
    store: &Store,
) -> Result<Vec<EvaluationFile>> {
    let QualityRequest { model, tp, dtype, comm_dtype, .. } = request;
    let file = |HashedPlan { architecture, hash }: &HashedPlan| {
        let hash = hash.clone();
        store.evaluation(EvaluationKey {
            comm_dtype: *comm_dtype,
            reference: text.reference.clone(),
            ..EvaluationKey::new(&model.name, &text.weights, architecture, *tp, *dtype, hash)
        })
    };
    plans.iter().map(file).collect()
}

/// Quality of each requested architecture; `None` if the result of a window is missing.
fn cases(
    request: &QualityRequest,
    plans: &[HashedPlan],
    files: &[EvaluationFile],
    keys: &[String],
) -> Option<Vec<ArchitectureQuality>> {
    let case = |architecture: &Architecture| {
        let file = &files[plans.iter().position(|plan| plan.architecture == *architecture)?];
        let windows: Option<Vec<WindowQuality>> = keys.iter().map(|key| file.get(key)).collect();
        let quality = quality(&windows?)?;
        Some(ArchitectureQuality { architecture: architecture.clone(), tp: request.tp, quality })
    };
    request.architectures.iter().map(case).collect()
}

/// Architecture to evaluate, with the hash of its plan, by which stored windows are found.
struct HashedPlan {
    architecture: Architecture,
    hash: String,
}

/// Plans of the distinct architectures.
fn hashed_plans(request: &QualityRequest, backend: &dyn Execute) -> Result<Vec<HashedPlan>> {
    if let Some(problem) = request.model.shape.tp_problem(request.tp) {
        return Err(Error::input(problem));
    }
    let precision = backend.precision(request.dtype);
    let mut plans: Vec<HashedPlan> = Vec::new();
    for architecture in &request.architectures {
        if plans.iter().all(|known| known.architecture != *architecture) {
            let (tp, sent, lowering) = (request.tp, request.comm_dtype, backend.evaluation_lowering());
            let plan = evaluation_plan(&request.model, architecture, tp, precision, sent, lowering)?;
            plans.push(HashedPlan { architecture: architecture.clone(), hash: plan.json_hash() });
        }
    }
    Ok(plans)
}

/// Distinct windows with missing results, and their keys.
fn missing(
    windows: &[&[u32]],
    keys: &[String],
    files: &[EvaluationFile],
) -> (Vec<EvaluationWindow>, Vec<String>) {
    let mut seen = HashSet::new();
    let missing_window = |(window, key): (&&[u32], &String)| {
        let wanted: Vec<usize> = (0..files.len()).filter(|at| files[*at].get(key).is_none()).collect();
        // a text may repeat a window
        let is_new = !wanted.is_empty() && seen.insert(key.clone());
        is_new.then(|| (EvaluationWindow { tokens: window.to_vec(), wanted }, key.clone()))
    };
    windows.iter().zip(keys).filter_map(missing_window).unzip()
}

/// Tokens of a text, all within the vocabulary.
///
/// # Errors
///
/// Returns an input error if the text cannot be read, the model needs a tokenizer and has none, or an id is beyond
/// the vocabulary.
pub(super) fn tokens(model: &Model, text: &TextSource) -> Result<Vec<u32>> {
    let path = text.path();
    let words = match text {
        TextSource::Ids(path) => return read_tokens(path, model.shape.vocab),
        TextSource::Own => OWN_TEXT.to_owned(),
        TextSource::Words(path) => InputKind::TEXT.text(path)?,
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
        _ => Tokenizer::from_model(model),
    }
}

fn too_short(request: &QualityRequest, all: usize, used: usize) -> Error {
    let path = request.text.path();
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
            request.context
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
