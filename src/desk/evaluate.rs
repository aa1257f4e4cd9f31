//! The quality of a model's architectures on a text: windows that were evaluated before are found in the store,
//! the others are computed and stored one by one, so that nothing is lost where it is interrupted.

use std::collections::HashSet;

use base::error::{Error, Result};
use base::hash::sha256;
use base::input::InputKind;
use lab::launch::Cancel;
use lab::store::{Evaluation, EvaluationFile, Store, window_key};
use lab::sweep::OWN_TEXT;
pub use lab::sweep::Text;
use model::{Model, Tokenizer, read_tokens};
use plan::{Architecture, CommDType, DType};
use run::{EvaluateRequest, Evaluated, PlanBackend, Window, WindowQuality, evaluation_plan};
use table::{Backend, FEW_WINDOWS, Quality, quality};

/// What is to be evaluated.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The model, with its checkpoint if it has one.
    pub model: Model,
    /// The text, cut into windows of tokens.
    pub text: Text,
    /// The wirings, in the order in which results are wanted.
    pub architectures: Vec<Architecture>,
    /// The model whose `standard` they are compared with, where that is another one.
    pub reference: Option<Model>,
    /// The number of ranks (TP).
    pub tp: u32,
    /// Format of the weights.
    pub dtype: DType,
    /// The format in which partial sums are sent.
    pub comm_dtype: CommDType,
    /// Tokens of a window, at least 2.
    pub context: usize,
    /// How many of the text's tokens are used; all without.
    pub limit: Option<usize>,
    /// Seed of weights where the model has none.
    pub seed: u64,
    /// Whether the model's runs have the quality on this text from now on; else it is somebody's search alone.
    pub counts: bool,
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct TextQuality {
    /// The backend that computed it: activations of cpu are in f32, those of cuda in the format of the weights.
    pub backend: Backend,
    /// Tokens of a window.
    pub context: usize,
    /// Tokens of the text, after the limit.
    pub tokens: usize,
    /// Tokens of the whole text.
    pub all_tokens: usize,
    /// SHA-256 of the text's file.
    pub text_sha256: String,
    /// The fingerprint of the weights.
    pub weights: String,
    /// Windows that the text was split into; a last shorter one was dropped.
    pub windows: usize,
    /// Tokens that were predicted: all of the windows but the first of each.
    pub predicted: u32,
    /// A case for each architecture that was asked for, in that order.
    pub cases: Vec<Case>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// How well one architecture does.
#[derive(Clone, Debug)]
pub struct Case {
    /// The wiring with which the weights were read.
    pub architecture: Architecture,
    /// The number of ranks (TP): some architectures compute other numbers at another.
    pub tp: u32,
    /// The quality over all windows.
    pub quality: Quality,
}

/// What was read of a model and a text: evaluations of other wirings on the same need not read it again.
#[derive(Debug, Default)]
pub struct Subject(Option<Read>);

/// A text as the windows that stand alone, and what the weights are named by.
#[derive(Debug)]
struct Read {
    /// Tokens of the text, after the limit.
    tokens: Vec<u32>,
    /// Tokens of the whole text.
    all: usize,
    /// SHA-256 of the text's file.
    sha256: String,
    /// What each window is stored under.
    keys: Vec<String>,
    /// The fingerprint of the weights.
    weights: String,
    /// That of the model that they are compared with, where it is another one.
    reference: Option<String>,
}

impl Subject {
    /// Reads the text and hashes the weights, unless that was done before.
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

/// How far an evaluation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// What it is doing now, before windows are evaluated.
    Doing(&'a str),
    /// Windows times architectures: how many are done, how many of them were found in the store,
    /// and how many there are.
    Windows {
        /// Windows times architectures that were computed or found.
        done: usize,
        /// Found in the store.
        found: usize,
        /// Windows times architectures in the whole evaluation.
        of: usize,
    },
}

/// Evaluates on `backend`, reading `subject` first where it was not read before (it has to be of the same model and
/// text); finished windows are stored in `store` and found there. After `cancel` no window is begun.
///
/// # Errors
///
/// An input error for a text that cannot be read or is shorter than a window, ids beyond the vocabulary, a TP that
/// does not divide the model, `upper-bound`, a checkpoint that is wrong; [`Error::Interrupted`] where `cancel` came
/// before the end; a failure where results cannot be stored or the backend fails.
pub fn evaluate(
    asked: &Asked,
    subject: &mut Subject,
    backend: &dyn PlanBackend,
    store: &Store,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<TextQuality> {
    let Asked { model, context, tp, dtype, comm_dtype, seed, .. } = asked;
    // what is wrong is told before anything is read that takes long
    let plans = plan_hashes(asked, backend)?;
    let Read { tokens, all, sha256, keys, weights, reference } = subject.read(asked, progress)?;
    let windows: Vec<&[u32]> = tokens.chunks_exact(*context).collect();
    let mut files: Vec<EvaluationFile> = plans
        .iter()
        .map(|(architecture, plan)| {
            let plan = plan.clone();
            let of = Evaluation::new(&model.name, weights, architecture, *tp, *dtype, plan);
            store.evaluation(of.sending(*comm_dtype).beside(reference.clone()))
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
                "{}: logits of {} are no finite numbers: is the checkpoint whole?",
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
    // random weights have no quality that runs could have
    if asked.counts && model.has_weights {
        let text = asked.text.name();
        let beside = asked.reference.as_ref().map(|model| model.name.as_str());
        let of = (model.name.as_str(), beside);
        store.evaluated(of, (&text, *context), backend.name(), keys.clone(), &files)?;
    }
    Ok(TextQuality {
        backend: backend.name(),
        context: *context,
        tokens: tokens.len(),
        all_tokens: *all,
        text_sha256: sha256.clone(),
        weights: weights.clone(),
        windows: windows.len(),
        predicted: (windows.len() * (context - 1)) as u32,
        cases,
        notes: notes(windows.len()),
    })
}

/// The architectures that are asked for, each once, with the hash of its plan.
fn plan_hashes(asked: &Asked, backend: &dyn PlanBackend) -> Result<Vec<(Architecture, String)>> {
    if let Some(problem) = asked.model.shape.tp_problem(asked.tp) {
        return Err(Error::input(problem));
    }
    let precision = backend.precision(asked.dtype);
    let mut hashes: Vec<(Architecture, String)> = Vec::new();
    for architecture in &asked.architectures {
        if hashes.iter().all(|(known, _)| known != architecture) {
            let (tp, sent, lowering) = (asked.tp, asked.comm_dtype, backend.evaluation_lowering());
            let plan = evaluation_plan(&asked.model, architecture, tp, precision, sent, lowering)?;
            // stored windows are found by the hash that they were stored with
            hashes.push((architecture.clone(), plan.json_hash()));
        }
    }
    Ok(hashes)
}

/// The windows of which something is not stored, each once, and their keys.
fn missing(windows: &[&[u32]], keys: &[String], files: &[EvaluationFile]) -> (Vec<Window>, Vec<String>) {
    let mut seen = HashSet::new();
    let one = |(window, key): (&&[u32], &String)| {
        let wanted: Vec<usize> = (0..files.len()).filter(|at| files[*at].get(key).is_none()).collect();
        // a text may say the same twice
        let is_new = !wanted.is_empty() && seen.insert(key.clone());
        is_new.then(|| (Window { tokens: window.to_vec(), wanted }, key.clone()))
    };
    windows.iter().zip(keys).filter_map(one).unzip()
}

/// The tokens of a text, all of them in the vocabulary.
///
/// # Errors
///
/// An input error for a text that cannot be read, a model without a tokenizer where it needs one, ids beyond the
/// vocabulary.
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
                "{}: the tokenizer gives id {id}, but the model's vocabulary has {} entries",
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
            "give token ids with --tokens-file FILE",
        )),
        _ => Tokenizer::of(model),
    }
}

/// A text of which no window is left; `all` tokens it has, `used` of them are used.
fn too_short(asked: &Asked, all: usize, used: usize) -> Error {
    let path = asked.text.path();
    let cut = if used < all { format!(", of which --tokens takes {used}") } else { String::new() };
    let tokens = if all == 1 { "token" } else { "tokens" };
    let help = match used {
        0 | 1 => "give a longer text".into(),
        _ => format!("give a longer text, or windows of at most {used} tokens with --context"),
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

/// What the user should know of a result.
fn notes(windows: usize) -> Vec<String> {
    match windows {
        1 => vec!["one window: no interval can be told from it; a longer text has more".into()],
        2..FEW_WINDOWS => {
            vec![format!(
                "{windows} windows: intervals from so few are too narrow; a longer text has more"
            )]
        }
        _ => Vec::new(),
    }
}
