//! Quality of models: `evaluations/` in the runs directory.
//!
//! `KEY.jsonl` has the results of one evaluation ([`EvaluationKey`]): a first line that describes it, then one line per
//! window of a text. Windows are named by a hash of their tokens, so texts share the windows that they have in common.
//! A window whose line cannot be read is computed again. A description that cannot be read is written again, as another
//! line, when the model is evaluated again.
//!
//! ```text
//! {"version":1,"model":"DIR","weights":"HASH","architecture":"ladder:10","tp":2,"dtype":"f32","plan":"HASH"}
//! {"window":"HASH","predicted":511,"nll":1722.5,"kl":204.25,"agreed":377}
//! ```
//!
//! `texts.jsonl` has one line per finished evaluation: the model, the text and its windows.
//!
//! ```text
//! {"version":1,"created":"TIME","model":"/DIR","named":"DIR","text":"FILE","context":512,"backend":"cpu","windows":["KEY",...],"evaluations":["KEY",...]}
//! ```
//!
//! Runs get the quality of their model when they are read. It is never stored with runs, so older runs get it as soon
//! as their model is evaluated. The latest text of a model counts, because numbers of different texts are not
//! comparable. To go back to another text, evaluate on it again; all of its results are stored.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::directory::Store;
use super::log;
use base::error::{Error, Result};
use base::{checksum, regular};
use model::Model;
use plan::{Architecture, CommDType, DType, KvDType};
use table::{Backend, Provenance, Record, RunQuality, Spec, WindowQuality, quality};

const VERSION: u32 = 1;

pub(super) const FOLDER: &str = "evaluations";

const TEXTS: &str = "texts.jsonl";

/// Identity of an evaluation: all inputs of its results except the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationKey {
    pub version: u32,
    /// Name or directory of the model, for people. Equal weights count as the same model.
    pub model: String,
    /// Hash of shape and weights ([`model::Model::fingerprint`]).
    pub weights: String,
    pub architecture: Architecture,
    pub tp: u32,
    pub dtype: DType,
    /// Hash of the executed plan ([`plan::Plan::hash`]).
    pub plan: String,
    /// Format in which partial sums are sent; also part of the plan's hash.
    #[serde(default)]
    pub comm_dtype: CommDType,
    /// Hash of shape and weights of the reference model whose `standard` it is compared with, if it is a different
    /// model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    window: String,
    #[serde(flatten)]
    quality: WindowQuality,
}

impl EvaluationKey {
    pub fn new(
        model: &str,
        weights: &str,
        architecture: &Architecture,
        tp: u32,
        dtype: DType,
        plan: String,
    ) -> Self {
        let architecture = architecture.clone();
        Self {
            version: VERSION,
            model: model.into(),
            weights: weights.into(),
            architecture,
            tp,
            dtype,
            plan,
            comm_dtype: CommDType::Activations,
            reference: None,
        }
    }

    /// File name without suffix. Independent of the model's name.
    pub(super) fn key(&self) -> String {
        let Self { version, weights, architecture, tp, dtype, plan, .. } = self;
        let beside = self.reference.iter().map(|reference| format!("\n{reference}")).collect::<String>();
        checksum::short_key(format!(
            "{version}\n{weights}\n{architecture}\n{tp}\n{dtype}\n{plan}{beside}"
        ))
    }
}

/// Name of a window: a hash of its tokens.
pub fn window_key(tokens: &[u32]) -> String {
    checksum::short_key(tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>())
}

#[derive(Debug)]
pub struct EvaluationFile {
    path: PathBuf,
    evaluation: EvaluationKey,
    found: HashMap<String, WindowQuality>,
}

impl EvaluationFile {
    /// Key of the evaluation, which is also the file's name.
    pub fn key(&self) -> String {
        self.evaluation.key()
    }

    pub fn get(&self, window: &str) -> Option<WindowQuality> {
        self.found.get(window).copied()
    }

    /// The description as a line; empty if the file has one.
    fn missing_description(&self, there: &[u8]) -> serde_json::Result<Vec<u8>> {
        if description(there).is_some() { Ok(Vec::new()) } else { log::line(&self.evaluation) }
    }

    /// Stores the result for a window and syncs it to disk. Fails if the file cannot be created or written.
    pub fn add(&mut self, window: &str, quality: WindowQuality) -> Result<()> {
        let window = Line { window: window.to_owned(), quality };
        log::append(&self.path, |there| {
            let mut new = self.missing_description(there)?;
            new.append(&mut log::line(&window)?);
            Ok(new)
        })?;
        self.found.insert(window.window, quality);
        Ok(())
    }
}

/// Description and results of a file; the description is `None` if it cannot be read.
fn parse(bytes: &[u8]) -> (Option<EvaluationKey>, HashMap<String, WindowQuality>) {
    let lines = log::parse::<Line>(bytes).flatten();
    (description(bytes), lines.map(|line| (line.window, line.quality)).collect())
}

/// The first line, or a later one that replaces a damaged first line.
fn description(bytes: &[u8]) -> Option<EvaluationKey> {
    log::parse(bytes).flatten().next()
}

/// Finds the first damaged line of a file in this folder.
pub(super) fn check(name: &str, bytes: &[u8]) -> Result<(), String> {
    if name == TEXTS {
        return log::check(bytes, VERSION, |_, line| log::is::<EvaluatedText>(line));
    }
    let is_described = description(bytes).is_some();
    let checked = log::check(bytes, VERSION, |at, line| match at {
        0 if !is_described => log::is::<EvaluationKey>(line),
        _ => log::is::<Line>(line).or_else(|why| log::is::<EvaluationKey>(line).map_err(|_| why)),
    });
    checked.map_err(|why| match is_described {
        true => why,
        false => {
            format!("{why}; delete it and evaluate the model again, which describes the results again")
        }
    })
}

/// Finished evaluation of a model's architectures on a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EvaluatedText {
    version: u32,
    created: String,
    /// Absolute path of the model.
    model: PathBuf,
    /// Model name as typed. Runs store relative names as typed too, and their working directory is not stored, so
    /// relative names match if they are equal.
    #[serde(default)]
    named: PathBuf,
    text: String,
    context: usize,
    backend: Backend,
    /// Reference model whose `standard` it was compared with, if it is a different model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    windows: Vec<String>,
    evaluations: Vec<String>,
}

/// Evaluations of each model on its latest text.
#[derive(Debug, Default)]
pub(super) struct QualityIndex(Vec<ModelQuality>);

#[derive(Debug)]
struct ModelQuality {
    model: PathBuf,
    named: Vec<PathBuf>,
    cases: Vec<ArchitectureQuality>,
}

/// Evaluation of one architecture of a model.
#[derive(Debug)]
struct ArchitectureQuality {
    evaluation: EvaluationKey,
    /// True if results do not depend on TP, except for the order of summation.
    is_of_any_tp: bool,
    quality: Arc<RunQuality>,
}

impl Store {
    /// Opens the stored results of an evaluation; empty if it is new. Fails if its file exists and cannot be read.
    pub fn evaluation(&self, evaluation: EvaluationKey) -> Result<EvaluationFile> {
        let path = self.folder(FOLDER)?.join(format!("{}.jsonl", evaluation.key()));
        let read = regular::if_exists(regular::read(&path)).map_err(Error::io(&path))?;
        let found = read.map(|bytes| parse(&bytes).1).unwrap_or_default();
        Ok(EvaluationFile { path, evaluation, found })
    }

    /// Records that a model (and its reference model, if different) was evaluated on these windows of a text; each
    /// file has results for all of them. From now on, runs of the model have this quality. Fails if the file cannot
    /// be created or written.
    pub fn record_evaluation(
        &self,
        (model, reference): (&str, Option<&str>),
        (text, context): (&str, usize),
        backend: Backend,
        windows: Vec<String>,
        files: &[EvaluationFile],
    ) -> Result<()> {
        let line = EvaluatedText {
            version: VERSION,
            created: self.now(),
            model: place(model),
            named: plain(model),
            text: text.to_owned(),
            context,
            backend,
            reference: reference.map(str::to_owned),
            windows,
            evaluations: files.iter().map(EvaluationFile::key).collect(),
        };
        for file in files {
            log::append(&file.path, |there| file.missing_description(there))?;
        }
        log::append(&self.texts_path(), |there| {
            // a repeated evaluation finds everything stored and adds no line
            let lines = texts(there);
            let last = lines.iter().rfind(|known| known.model == line.model);
            if last.is_some_and(|known| known.says(&line)) { Ok(Vec::new()) } else { log::line(&line) }
        })
    }

    /// Adds the quality of their models, and the results of their trainings, to runs. Costs one file lookup if no
    /// model was evaluated.
    pub(super) fn attach_quality(&self, records: &mut [Record]) {
        self.add_trainings(records);
        let qualities = self.qualities();
        if qualities.0.is_empty() {
            return;
        }
        let mut known: HashMap<String, Option<&[ArchitectureQuality]>> = HashMap::new();
        for record in records.iter_mut().filter(|record| record.metrics.is_some()) {
            let model = &record.spec.model;
            let cases = *known.entry(model.clone()).or_insert_with(|| qualities.of_model(model));
            record.quality = cases.and_then(|cases| best(cases, &record.spec));
        }
    }

    pub(super) fn texts_path(&self) -> PathBuf {
        self.dir().join(FOLDER).join(TEXTS)
    }

    fn qualities(&self) -> Arc<QualityIndex> {
        // the quality is optional: an unreadable file counts as missing
        self.qualities.get(&self.texts_path(), |read| self.load(&texts(&read.unwrap_or_default())))
    }

    /// Loads the newest line of each model, and older ones for the same text and weights.
    fn load(&self, lines: &[EvaluatedText]) -> QualityIndex {
        let mut models: Vec<(PathBuf, Vec<&EvaluatedText>)> = Vec::new();
        for line in lines.iter().rev() {
            match models.iter_mut().find(|(model, _)| *model == line.model) {
                Some((_, of)) if of[0].is_on_same_text(line) => of.push(line),
                Some(_) => {}
                None => models.push((line.model.clone(), vec![line])),
            }
        }
        let cases = |(model, lines): (PathBuf, Vec<&EvaluatedText>)| {
            let (mut cases, mut seen): (Vec<ArchitectureQuality>, HashSet<&str>) = Default::default();
            let keys = lines.iter().flat_map(|line| line.evaluations.iter().map(move |k| (line, k)));
            for (line, key) in keys {
                // each result is read once, even if several lines name it
                if !seen.insert(key) {
                    continue;
                }
                let Some(case) = self.case(line, key) else { continue };
                let of_same_weights =
                    cases.first().is_none_or(|first| first.quality.weights == case.quality.weights);
                if of_same_weights && !cases.iter().any(|known| known.is_of_same(&case)) {
                    cases.push(case);
                }
            }
            ModelQuality { model, named: lines.iter().map(|line| line.named.clone()).collect(), cases }
        };
        QualityIndex(models.into_par_iter().map(cases).collect())
    }

    fn case(&self, line: &EvaluatedText, key: &str) -> Option<ArchitectureQuality> {
        let path = self.dir().join(FOLDER).join(format!("{key}.jsonl"));
        let (evaluation, found) = parse(&regular::read(&path).ok()?);
        let evaluation = evaluation?;
        let windows: Vec<WindowQuality> =
            line.windows.iter().map(|window| found.get(window).copied()).collect::<Option<_>>()?;
        let is_of_any_tp = evaluation.architecture.is_of_any_tp(evaluation.comm_dtype);
        let quality = RunQuality {
            quality: quality(&windows)?,
            text: line.text.clone(),
            text_hash: line.text_hash(),
            context: line.context,
            windows: windows.len(),
            tp: evaluation.tp,
            dtype: evaluation.dtype,
            weights: evaluation.weights.clone(),
            backend: line.backend,
            provenance: Provenance::Measured,
            reference: line.reference.clone(),
            evaluated: line.created.clone(),
        };
        Some(ArchitectureQuality { evaluation, is_of_any_tp, quality: Arc::new(quality) })
    }
}

impl EvaluatedText {
    fn is_on_same_text(&self, other: &Self) -> bool {
        (self.context, &self.windows, &self.reference)
            == (other.context, &other.windows, &other.reference)
    }

    /// True if this line already contains the other, except for the time.
    fn says(&self, other: &Self) -> bool {
        self.is_on_same_text(other)
            && (&self.text, &self.named) == (&other.text, &other.named)
            && other.evaluations.iter().all(|key| self.evaluations.contains(key))
    }

    fn text_hash(&self) -> String {
        checksum::short_key(self.windows.join("\n"))
    }
}

impl ArchitectureQuality {
    fn is_of_same(&self, other: &Self) -> bool {
        let key_of =
            |case: &Self| (case.evaluation.tp, case.evaluation.dtype, case.evaluation.comm_dtype);
        self.evaluation.architecture == other.evaluation.architecture && key_of(self) == key_of(other)
    }

    /// True if the cell computes what was evaluated, apart from the weight format.
    fn is_of(&self, spec: &Spec) -> bool {
        self.evaluation.architecture == spec.architecture
            && self.evaluation.comm_dtype == spec.comm_dtype
            && spec.kv_dtype == KvDType::Activations
            && (self.evaluation.tp == spec.tp || self.is_of_any_tp)
    }
}

impl QualityIndex {
    /// Evaluations of the model with this name in runs.
    fn of_model(&self, model: &str) -> Option<&[ArchitectureQuality]> {
        let is_relative = Path::new(model).is_relative() && !Model::is_built_in(model);
        let (place, named) = (place(model), plain(model));
        let is_it = |known: &&ModelQuality| match is_relative {
            true => known.named.contains(&named),
            false => known.model == place,
        };
        self.0.iter().find(is_it).map(|known| known.cases.as_slice())
    }
}

/// Quality for a cell. Prefers its own number format, then its own TP.
fn best(cases: &[ArchitectureQuality], spec: &Spec) -> Option<Arc<RunQuality>> {
    let of_cell = cases.iter().filter(|case| case.is_of(spec));
    let fit = |of: &EvaluationKey| (of.dtype == spec.dtype, of.tp == spec.tp);
    let best = of_cell.max_by_key(|case| fit(&case.evaluation));
    best.map(|case| Arc::clone(&case.quality))
}

/// Absolute path of a model from its name in runs; built-in shapes keep their name.
pub(super) fn place(model: &str) -> PathBuf {
    if Model::is_built_in(model) {
        return model.into();
    }
    let absolute = || std::path::absolute(model).unwrap_or_else(|_| model.into());
    std::fs::canonicalize(model).unwrap_or_else(|_| absolute())
}

/// Normalizes a typed name: `./a/` becomes `a`.
fn plain(model: &str) -> PathBuf {
    Path::new(model).components().filter(|part| *part != Component::CurDir).collect()
}

/// Readable lines of `texts.jsonl`, without those of newer builds.
fn texts(bytes: &[u8]) -> Vec<EvaluatedText> {
    let lines = log::parse::<EvaluatedText>(bytes).flatten();
    lines.filter(|line| line.version <= VERSION && !line.windows.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample_spec;
    use super::*;
    use table::{Metrics, Status, measure};

    fn key(weights: &str, architecture: &str, tp: u32) -> EvaluationKey {
        let architecture = architecture.parse().unwrap();
        EvaluationKey::new("m", weights, &architecture, tp, DType::F32, "p".into())
    }

    fn ladder(weights: &str) -> EvaluationKey {
        key(weights, "ladder:2", 2)
    }

    fn window(n: u32) -> WindowQuality {
        WindowQuality { predicted: n, nll: f64::from(n) / 3.0, kl: 1e-17, agreed: n / 2 }
    }

    #[test]
    fn what_is_added_is_found_again_bit_by_bit_and_by_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        let mut file = store.evaluation(ladder("a")).unwrap();
        assert!(!store.dir().exists(), "nothing is made until something is stored");
        for n in 0..3 {
            file.add(&n.to_string(), window(n)).unwrap();
        }
        let moved = EvaluationKey { model: "elsewhere".into(), ..ladder("a") };
        let again = store.evaluation(moved).unwrap();
        assert_eq!((again.get("2"), again.get("3")), (Some(window(2)), None));
        for other in [
            ladder("b"),
            EvaluationKey { tp: 1, ..ladder("a") },
            EvaluationKey { dtype: DType::Bf16, ..ladder("a") },
            EvaluationKey { plan: "x".into(), ..ladder("a") },
            EvaluationKey { architecture: Architecture::Parallel, ..ladder("a") },
            EvaluationKey { reference: Some("b".into()), ..ladder("a") },
        ] {
            assert_eq!(store.evaluation(other).unwrap().get("2"), None);
        }
        assert!(store.list().unwrap().records.is_empty() && store.ids().unwrap().is_empty());
    }

    /// A model's directory, and a store in which it was evaluated on windows of a text.
    struct Place {
        dir: tempfile::TempDir,
        store: Store,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("model")).unwrap();
            let store = Store::open(dir.path().join("runs"));
            Self { store, dir }
        }

        fn model(&self) -> String {
            self.dir.path().join("model").display().to_string()
        }

        /// Says that an architecture lost `kl` nats a token on each of two windows of a text.
        fn evaluate(&self, text: &str, weights: &str, architecture: &str, tp: u32, kl: f64) {
            let mut file = self.store.evaluation(key(weights, architecture, tp)).unwrap();
            let windows = ["1", "2"].map(|window| format!("{text}{window}"));
            for window in &windows {
                let found = WindowQuality { predicted: 4, nll: 8.0, kl: 4.0 * kl, agreed: 3 };
                file.add(window, found).unwrap();
            }
            let told = (text, 5);
            let (model, windows) = (self.model(), windows.to_vec());
            self.store.record_evaluation((&model, None), told, Backend::Cpu, windows, &[file]).unwrap();
        }

        fn run(&self, change: impl FnOnce(&mut Spec)) {
            let mut spec = Spec { model: self.model(), ..sample_spec("ladder") };
            change(&mut spec);
            let run = self.store.begin(&spec, None, 0).unwrap();
            let metrics = Some(Metrics::default());
            // in the order in which they were stored
            let created = format!("{:03}", self.store.list().unwrap().records.len());
            let record = Record { run: run.id, metrics, created, ..Record::new(spec, Status::Ok, None) };
            self.store.finish(&record).unwrap();
        }

        /// KL of each listed run, and the text that it was measured on.
        fn kl(&self) -> Vec<Option<(f64, String)>> {
            let kl = measure("kl").unwrap();
            let of = |record: &Record| Some((kl.of(record)?, record.quality.as_ref()?.text.clone()));
            self.store.list().unwrap().records.iter().map(of).collect()
        }
    }

    fn told(kl: f64, text: &str) -> Option<(f64, String)> {
        Some((kl, text.to_owned()))
    }

    #[test]
    fn runs_have_the_quality_of_what_they_compute() {
        let place = Place::new();
        place.run(|spec| spec.tp = 8);
        place.run(|spec| spec.architecture = "ladder:2".parse().unwrap());
        place.run(|spec| (spec.architecture, spec.tp) = ("desync:2".parse().unwrap(), 2));
        place.run(|spec| (spec.architecture, spec.tp) = ("desync:2".parse().unwrap(), 4));
        place.run(|spec| spec.comm_dtype = CommDType::Int8);
        place.run(|spec| spec.model = "llama-3.2-1b".into());
        assert_eq!(place.kl(), vec![None; 6], "nothing was evaluated");
        place.evaluate("a", "w", "ladder", 1, 0.5);
        place.evaluate("a", "w", "desync:2", 2, 0.25);
        let expected = [told(0.5, "a"), None, told(0.25, "a"), None, None, None];
        assert_eq!(place.kl(), expected, "ladder's numbers do not depend on TP, desync's do");
        assert_eq!(measure("kl").unwrap().interval_of(&place.store.get("last").unwrap()), None);
        let first = place.store.list().unwrap().records.remove(0);
        assert_eq!(measure("kl").unwrap().interval_of(&first), Some([0.5, 0.5]));
        let stored =
            std::fs::read_to_string(place.store.dir().join(&first.run).join("record.json")).unwrap();
        assert!(!stored.contains("perplexity"), "no record keeps it: {stored}");
    }

    #[test]
    fn the_text_evaluated_last_counts_and_changed_weights_are_not_mixed_with_others() {
        let place = Place::new();
        place.run(|_| ());
        place.run(|spec| spec.architecture = Architecture::Standard);
        let before = place.store.fingerprint().unwrap();
        place.evaluate("a", "w", "standard", 1, 0.0);
        place.evaluate("a", "w", "ladder", 1, 0.5);
        assert_ne!(place.store.fingerprint().unwrap(), before, "who shows runs is to read them again");
        assert_eq!(place.kl(), [told(0.5, "a"), told(0.0, "a")]);
        place.evaluate("b", "w", "ladder", 1, 0.75);
        assert_eq!(place.kl(), [told(0.75, "b"), None], "numbers of two texts are not put side by side");
        place.evaluate("a", "w", "ladder", 1, 0.5);
        assert_eq!(place.kl(), [told(0.5, "a"), told(0.0, "a")], "named again, it counts again");
        place.evaluate("a", "other", "ladder", 1, 0.125);
        assert_eq!(place.kl(), [told(0.125, "a"), None]);
    }

    #[test]
    fn a_damaged_description_is_named_and_another_evaluation_writes_it_again() {
        let place = Place::new();
        place.run(|_| ());
        place.evaluate("a", "w", "ladder", 1, 0.5);
        let of = key("w", "ladder", 1);
        let path = place.store.dir().join(FOLDER).join(format!("{}.jsonl", of.key()));
        let whole = std::fs::read_to_string(&path).unwrap();
        let (_, windows) = whole.split_once('\n').unwrap();
        let fresh = || Store::open(place.store.dir());
        std::fs::write(&path, format!("{{\"version\":1,\"mod\n{windows}")).unwrap();
        assert_eq!(fresh().list().unwrap().records[0].quality, None);
        let damaged = fresh().check().unwrap().damaged;
        assert!(damaged[0].problem.contains("evaluate the model again"), "{damaged:?}");
        // as `evaluate` does, which finds the results of all windows
        let file = fresh().evaluation(of).unwrap();
        assert!(file.get("a1").is_some());
        let windows = || vec!["a1".to_owned(), "a2".to_owned()];
        fresh()
            .record_evaluation((&place.model(), None), ("a", 5), Backend::Cpu, windows(), &[file])
            .unwrap();
        assert!(fresh().list().unwrap().records[0].quality.is_some(), "its description is another line");
        let lines = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, lines.split_once('\n').unwrap().1).unwrap();
        assert_eq!(fresh().check().unwrap().damaged, []);
        assert!(fresh().list().unwrap().records[0].quality.is_some());
    }

    /// From where a run's relative name started nothing tells: it is the model that was named alike in this store, and
    /// never what lies under that name where the reader happens to be.
    #[test]
    fn relative_names_are_those_that_were_evaluated_and_what_is_said_twice_is_written_once() {
        let place = Place::new();
        place.run(|spec| spec.model = "no/such/model".into());
        place.run(|spec| spec.model = "src".into());
        place.run(|_| ());
        place.evaluate("a", "w", "ladder", 1, 0.5);
        assert_eq!(place.kl(), [None, None, told(0.5, "a")]);
        let of = key("w", "ladder", 1);
        let windows = || vec!["a1".to_owned(), "a2".to_owned()];
        for _ in 0..3 {
            let file = place.store.evaluation(of.clone()).unwrap();
            let named = "./no/such/model/";
            place
                .store
                .record_evaluation((named, None), ("a", 5), Backend::Cpu, windows(), &[file])
                .unwrap();
        }
        assert_eq!(place.kl(), [told(0.5, "a"), None, told(0.5, "a")]);
        let lines = std::fs::read_to_string(place.store.texts_path()).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines}");
        // a line that somebody did not finish takes none with it
        std::fs::write(place.store.texts_path(), format!("{lines}{{\"version\"")).unwrap();
        place.evaluate("b", "w", "ladder", 1, 0.25);
        assert_eq!(place.kl()[2], told(0.25, "b"));
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse(&bytes), texts(&bytes));
        }
    }
}
