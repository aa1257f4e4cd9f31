//! Cached results of evaluations: `evaluations/KEY.jsonl` in the runs directory, where KEY identifies the computation
//! ([`Evaluation`]). The first line describes it; every other line is the result for one window. Windows are named by
//! a hash of their tokens, so texts share the windows that they have in common.
//!
//! ```text
//! {"version":1,"model":"DIR","weights":"HASH","architecture":"ladder:10","tp":2,"dtype":"f32","plan":"HASH"}
//! {"window":"HASH","predicted":511,"nll":1722.5,"kl":204.25,"agreed":377}
//! ```
//!
//! Lines are appended under a lock when a window is finished. Torn and unreadable lines are ignored, and their
//! windows are computed again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory::Store;
use super::shared_lines::{append_line, heal, open_locked};
use base::error::{Error, Result};
use base::{hash, regular};
use plan::{Architecture, CommDType, DType};
use run::WindowQuality;

const VERSION: u32 = 1;

pub(super) const FOLDER: &str = "evaluations";

/// Identity of an evaluation: all inputs of its results except the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    version: u32,
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

impl Evaluation {
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

    /// Copy with another format of partial sums.
    pub fn sending(self, comm_dtype: CommDType) -> Self {
        Self { comm_dtype, ..self }
    }

    /// Copy that compares with the `standard` of another model, if `reference` is set.
    pub fn beside(self, reference: Option<String>) -> Self {
        Self { reference, ..self }
    }

    /// File name without suffix. Independent of the model's name.
    pub(super) fn key(&self) -> String {
        let Self { version, weights, architecture, tp, dtype, plan, .. } = self;
        let beside = self.reference.iter().map(|reference| format!("\n{reference}")).collect::<String>();
        hash::short_key(format!("{version}\n{weights}\n{architecture}\n{tp}\n{dtype}\n{plan}{beside}"))
    }
}

/// Name of a window: a hash of its tokens.
pub fn window_key(tokens: &[u32]) -> String {
    hash::short_key(tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>())
}

#[derive(Debug)]
pub struct EvaluationFile {
    path: PathBuf,
    evaluation: Evaluation,
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

    /// Stores the result for a window and syncs it to disk. Fails if the file cannot be created or written.
    pub fn add(&mut self, window: &str, quality: WindowQuality) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        regular::make_folder(folder).map_err(Error::io(folder))?;
        let mut file = open_locked(&self.path)?;
        if heal(&mut file).map_err(Error::io(&self.path))? == 0 {
            append_line(&mut file, &self.evaluation).map_err(Error::io(&self.path))?;
        }
        let line = Line { window: window.to_owned(), quality };
        append_line(&mut file, &line).map_err(Error::io(&self.path))?;
        self.found.insert(line.window, quality);
        Ok(())
    }
}

impl Store {
    /// Opens the stored results of an evaluation; empty if it is new. Fails if its file exists and cannot be read.
    pub fn evaluation(&self, evaluation: Evaluation) -> Result<EvaluationFile> {
        let folder = self.dir().join(FOLDER);
        regular::folder(&folder).map_err(Error::io(&folder))?;
        let path = folder.join(format!("{}.jsonl", evaluation.key()));
        let found = match regular::read(&path) {
            Ok(bytes) => parse(&bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            Err(e) => return Err(Error::io(&path)(e)),
        };
        Ok(EvaluationFile { path, evaluation, found })
    }
}

/// Reads the description and the results of a file; `None` if it cannot be read.
pub(super) fn read(folder: &Path, key: &str) -> Option<(Evaluation, HashMap<String, WindowQuality>)> {
    let bytes = regular::read(&folder.join(format!("{key}.jsonl"))).ok()?;
    let first = bytes.split(|byte| *byte == b'\n').next()?;
    Some((serde_json::from_slice(first).ok()?, parse(&bytes)))
}

/// Results from the readable lines. Text after the last line feed is a torn line.
fn parse(bytes: &[u8]) -> HashMap<String, WindowQuality> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = bytes[..whole].split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    lines.map(|line| (line.window, line.quality)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ladder(weights: &str) -> Evaluation {
        let architecture = "ladder:2".parse().unwrap();
        Evaluation::new("dir", weights, &architecture, 2, DType::F32, "plan".into())
    }

    fn quality(n: u32) -> WindowQuality {
        WindowQuality { predicted: n, nll: f64::from(n) / 3.0, kl: 1e-17, agreed: n / 2 }
    }

    #[test]
    fn what_is_added_is_found_again_bit_by_bit_and_by_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        let mut file = store.evaluation(ladder("a")).unwrap();
        assert!(!store.dir().exists(), "nothing is made until something is stored");
        for n in 0..3 {
            file.add(&n.to_string(), quality(n)).unwrap();
        }
        let moved = Evaluation { model: "elsewhere".into(), ..ladder("a") };
        let again = store.evaluation(moved).unwrap();
        assert_eq!((again.get("2"), again.get("3")), (Some(quality(2)), None));
        for other in [
            ladder("b"),
            Evaluation { tp: 1, ..ladder("a") },
            Evaluation { dtype: DType::Bf16, ..ladder("a") },
            Evaluation { plan: "x".into(), ..ladder("a") },
            Evaluation { architecture: Architecture::Parallel, ..ladder("a") },
            ladder("a").beside(Some("b".into())),
        ] {
            assert_eq!(store.evaluation(other).unwrap().get("2"), None);
        }
        assert!(store.list().unwrap().records.is_empty() && store.ids().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_ends_within_a_line_loses_that_line_and_takes_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let mut file = store.evaluation(ladder("a")).unwrap();
        file.add("1", quality(1)).unwrap();
        file.add("2", quality(2)).unwrap();
        let whole = std::fs::read(&file.path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&file.path, &whole[..cut]).unwrap();
            let mut found = store.evaluation(ladder("a")).unwrap();
            assert_eq!(found.get("2"), None, "cut at {cut}");
            found.add("3", quality(3)).unwrap();
            let healed = store.evaluation(ladder("a")).unwrap();
            assert_eq!(healed.get("1"), found.get("1"));
            assert_eq!((healed.get("2"), healed.get("3")), (None, Some(quality(3))));
            let text = std::fs::read_to_string(&file.path).unwrap();
            let mut lines = text.lines();
            assert_eq!(serde_json::from_str::<Evaluation>(lines.next().unwrap()).unwrap(), ladder("a"));
            assert!(lines.all(|line| serde_json::from_str::<Line>(line).is_ok()), "{text}");
        }
    }

    #[test]
    fn windows_are_named_by_their_tokens() {
        assert_eq!(window_key(&[1, 2]), window_key(&[1, 2]));
        let keys =
            [window_key(&[1, 2]), window_key(&[2, 1]), window_key(&[1, 2, 0]), window_key(&[258])];
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }
    }
}
