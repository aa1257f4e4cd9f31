//! Documents, one JSON file each, written atomically.
//!
//! `baselines/NAME.json`: runs that later ones are compared with. A baseline holds whole records, so that it outlives
//! its runs and can be copied to another machine or into a repository. A replaced or deleted one moves to
//! `baselines/.replaced/NAME-TIME.json`.
//!
//! ```text
//! {"version":1,"name":"main","created":"2026-11-23T14:56:00Z","records":[{"schema":1,"run":"ID",...}, ...]}
//! ```
//!
//! `predictions/NAME.json`: predictions of `rewire` and `whatif`, with the measurements that checked them.
//!
//! `conversions/KEY.json`: results of `convert`, one per checkpoint, text and target, replaced when it is computed
//! again. The store treats the contents as opaque JSON.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::directory::{Store, file_name, json, names};
use base::error::{Error, Result};
use base::regular::DirectoryEntry;
use base::{atomic, regular};
use table::Record;

const VERSION: u32 = 1;

pub(super) const BASELINES: &str = "baselines";

pub(super) const CONVERSIONS: &str = "conversions";

pub(super) const PREDICTIONS: &str = "predictions";

pub(super) const REPLACED: &str = ".replaced";

#[derive(Clone, Debug)]
pub struct Baseline {
    pub name: String,
    /// Creation time, RFC 3339 in UTC.
    pub created: String,
    pub records: Vec<Record>,
}

/// Contents of a baseline's file.
#[derive(Serialize, Deserialize)]
struct Contents<R> {
    version: u32,
    name: String,
    created: String,
    records: Vec<R>,
}

impl Baseline {
    /// Reads a baseline file. Fails if the file cannot be read, and an input error if it is not a baseline or has a
    /// newer format than this build knows.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = regular::read(path).map_err(Error::io(path))?;
        let wrong = |why: String| Error::input(format!("{}: not a baseline: {why}", path.display()));
        let read: Contents<serde_json::Value> =
            serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        if read.version > VERSION {
            return Err(Error::input(format!(
                "{}: baseline format {} is newer than this build's {VERSION}",
                path.display(),
                read.version
            )));
        }
        let record = |(at, record): (usize, &serde_json::Value)| {
            let record = record.to_string();
            table::parse(record.as_bytes()).map_err(|why| wrong(format!("record {at}: {why}")))
        };
        let records = read.records.iter().enumerate().map(record).collect::<Result<_>>()?;
        Ok(Self { name: read.name, created: read.created, records })
    }
}

impl Store {
    /// Stores these runs as a baseline. Returns the path of its file, and true if it replaced another.
    ///
    /// # Errors
    ///
    /// Returns an input error for an invalid name or if no run ended well, and a failure if the file cannot be
    /// written.
    pub fn set_baseline(&self, name: &str, records: &[Record]) -> Result<(PathBuf, bool)> {
        let path = self.baseline_path(name)?;
        // quality belongs to a model and is looked up when runs are read, never stored in a record
        let own = |record: &Record| Record { quality: None, training: None, ..record.clone() };
        let records: Vec<Record> =
            records.iter().filter(|record| record.has_numbers()).map(own).collect();
        if records.is_empty() {
            return Err(Error::input_help(
                format!("baseline '{name}': no finished runs to store"),
                "`ladderscope runs --status ok` lists finished runs",
            ));
        }
        let contents =
            Contents { version: VERSION, name: name.to_owned(), created: self.now(), records };
        let bytes = serde_json::to_vec(&contents)
            .map_err(|e| Error::failed(format!("a record cannot be written as JSON: {e}")))?;
        // copied, not moved: a complete baseline exists even if the process dies here
        let replaced = self
            .keep(&path, name, |from, to| regular::open_or_make(to)?.write_all(&regular::read(from)?))?;
        atomic::write(&path, &bytes)?;
        Ok((path, replaced))
    }

    /// Returns the baseline of this name, or reads it from a file if the name is a path.
    ///
    /// # Errors
    ///
    /// Returns an input error with the known names if there is none, or the errors of [`Baseline::read`].
    pub fn baseline(&self, name: &str) -> Result<Baseline> {
        if name.contains(std::path::MAIN_SEPARATOR) || name.ends_with(".json") {
            return Baseline::read(Path::new(name));
        }
        let path = self.baseline_path(name)?;
        if path.exists() {
            return Baseline::read(&path);
        }
        let help = format!("create it from stored runs: `ladderscope baseline set {name} RUNS`");
        Err(self.no_document(BASELINES, "baseline", name, &help))
    }

    /// Names of all baselines, sorted. Fails if their folder cannot be read.
    pub fn baseline_names(&self) -> Result<Vec<String>> {
        self.document_names(BASELINES)
    }

    /// Deletes a baseline by moving its file to `baselines/.replaced`.
    ///
    /// # Errors
    ///
    /// Returns an input error if there is none of this name, and a failure if its file cannot be moved.
    pub fn delete_baseline(&self, name: &str) -> Result<()> {
        match self.keep(&self.baseline_path(name)?, name, regular::rename)? {
            true => Ok(()),
            false => self.baseline(name).map(|_| ()),
        }
    }

    /// Moves or copies a baseline's file to `baselines/.replaced`. Returns false if there is none.
    fn keep(
        &self,
        path: &Path,
        name: &str,
        put: impl FnOnce(&Path, &Path) -> std::io::Result<()>,
    ) -> Result<bool> {
        let replaced = self.folder(BASELINES)?.join(REPLACED);
        regular::check_directory(&replaced).map_err(Error::io(&replaced))?;
        if !path.exists() {
            return Ok(false);
        }
        regular::make_folder(&replaced).map_err(Error::io(&replaced))?;
        let to = replaced.join(format!("{name}-{}.json", self.ids.id(self.ids.now(), "old")));
        put(path, &to).map_err(Error::io(&to))?;
        Ok(true)
    }

    fn baseline_path(&self, name: &str) -> Result<PathBuf> {
        self.named_path(BASELINES, "a baseline", name)
    }

    /// Path of a document that the user named.
    fn named_path(&self, folder: &str, kind: &str, name: &str) -> Result<PathBuf> {
        let fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '@');
        let is_file = name.to_ascii_lowercase().ends_with(".json");
        if name.is_empty()
            || name.starts_with('.')
            || !name.chars().all(fine)
            || is_file
            || name.len() > 100
        {
            return Err(Error::input_help(
                format!("'{name}' cannot be the name of {kind}"),
                "names have letters, digits and -_.+@, at most 100, do not begin with a dot and do not end in .json",
            ));
        }
        Ok(self.dir().join(folder).join(format!("{name}.json")))
    }

    /// Stores a prediction under a name, replacing an earlier one. Returns its path. Fails for an invalid name, or if
    /// the file cannot be written.
    pub fn set_prediction(&self, name: &str, prediction: &impl Serialize) -> Result<PathBuf> {
        let path = self.named_path(PREDICTIONS, "a prediction", name)?;
        self.folder(PREDICTIONS)?;
        atomic::write(&path, &json(prediction)?)?;
        Ok(path)
    }

    /// Reads the prediction of this name. Returns an input error with the known names if there is none, or if it is
    /// damaged.
    pub fn prediction<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let path = self.named_path(PREDICTIONS, "a prediction", name)?;
        if !path.exists() {
            let help = "store one with `ladderscope rewire TRACE --save NAME`";
            return Err(self.no_document(PREDICTIONS, "prediction", name, help));
        }
        let bytes = regular::read(&path).map_err(Error::io(&path))?;
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::input(format!("{}: not a prediction: {e}", path.display())))
    }

    /// All readable predictions, by name.
    pub fn predictions<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        let names = self.document_names(PREDICTIONS)?;
        Ok(names.iter().filter_map(|name| self.prediction(name).ok()).collect())
    }

    /// Error for a name that no document of a kind has. `help` is for when there are none at all.
    fn no_document(&self, folder: &str, kind: &str, name: &str, help: &str) -> Error {
        match self.document_names(folder) {
            Ok(known) if known.is_empty() => {
                Error::input_help(format!("no {kind} '{name}' in {}", self.dir().display()), help)
            }
            Ok(known) => Error::unknown(kind, name, known.iter().map(String::as_str)),
            Err(error) => error,
        }
    }

    fn document_names(&self, kind: &str) -> Result<Vec<String>> {
        let is_document =
            |entry: &DirectoryEntry| Some(file_name(entry)?.strip_suffix(".json")?.to_owned());
        names(&self.folder(kind)?, is_document)
    }

    /// Stores a conversion under a key, replacing an earlier one. Returns its path. Fails if the file cannot be
    /// written.
    pub fn add_conversion(&self, key: &str, conversion: &impl Serialize) -> Result<PathBuf> {
        let path = self.folder(CONVERSIONS)?.join(format!("{key}.json"));
        atomic::write(&path, &json(conversion)?)?;
        Ok(path)
    }

    /// Stored conversions, newest first, and the errors of unreadable ones. Fails if the folder exists and cannot be
    /// read.
    pub fn conversions<T: DeserializeOwned>(&self) -> Result<(Vec<T>, Vec<String>)> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for name in self.document_names(CONVERSIONS)? {
            let path = self.dir().join(CONVERSIONS).join(format!("{name}.json"));
            let written = path.metadata().and_then(|there| there.modified()).ok();
            let read = regular::read(&path).map_err(|e| e.to_string());
            match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string())) {
                Ok(conversion) => found.push((written, conversion)),
                Err(why) => unreadable.push(format!("{}: {why}", path.display())),
            }
        }
        found.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        Ok((found.into_iter().map(|(_, conversion)| conversion).collect(), unreadable))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use table::Status;
    use table::testing::record;

    fn records() -> Vec<Record> {
        let failed = Record { status: Status::Failed, ..record("b", |_| (), 0, &[(1.0, 2.0)]) };
        vec![record("a", |s| s.tp = 2, 0, &[(1.0, 2.0), (1.5, 2.5)]), failed]
    }

    #[test]
    fn what_is_set_is_read_again_from_the_store_and_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let (path, replaced) = store.set_baseline("main", &records()).unwrap();
        assert!(!replaced);
        for name in ["main", path.to_str().unwrap()] {
            let read = store.baseline(name).unwrap();
            assert_eq!((read.name.as_str(), &read.records), ("main", &records()[..1].to_vec()));
        }
        assert!(store.list().unwrap().records.is_empty(), "a baseline is no run");
        assert!(store.list().unwrap().damaged.is_empty());
    }

    #[test]
    fn a_baseline_that_is_replaced_or_deleted_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        store.set_baseline("main", &records()).unwrap();
        assert!(store.set_baseline("main", &records()).unwrap().1);
        store.delete_baseline("main").unwrap();
        assert!(store.baseline_names().unwrap().is_empty());
        let aside = std::fs::read_dir(dir.path().join(BASELINES).join(REPLACED)).unwrap();
        assert_eq!(aside.count(), 2);
        assert!(store.delete_baseline("main").is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_and_runs_without_numbers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        for name in ["", "../x", ".x", "a b", "a/b", "a\u{1b}", "main.json"] {
            assert!(store.set_baseline(name, &records()).is_err(), "{name:?}");
        }
        let error = store.set_baseline("x", &records()[1..]).unwrap_err().to_string();
        assert!(error.contains("no finished runs to store"), "{error}");
        store.set_baseline("main", &records()).unwrap();
        let error = store.baseline("mian").unwrap_err();
        assert!(format!("{error:?}").contains("main"), "{error:?}");
    }

    #[test]
    fn a_damaged_and_a_newer_file_say_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.json");
        for (text, said) in [
            ("{", "not a baseline"),
            (r#"{"version":1,"name":"a","created":"","records":[{}]}"#, "record 0"),
            (r#"{"version":2,"name":"a","created":"","records":[]}"#, "newer than this build's 1"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Baseline::read(&path).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("b.json"), "{error}");
        }
    }

    #[test]
    fn a_prediction_is_read_by_its_name_and_is_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let unknown = store.prediction::<Value>("p").unwrap_err();
        assert!(unknown.to_string().contains("no prediction 'p'"), "{unknown}");
        let path = store.set_prediction("p", &json!({"n": 1})).unwrap();
        assert_eq!(store.prediction::<Value>("p").unwrap(), json!({"n": 1}));
        assert_eq!(store.predictions::<Value>().unwrap().len(), 1);
        assert!(format!("{:?}", store.prediction::<Value>("q").unwrap_err()).contains('p'));
        assert!(store.set_prediction("../p", &json!({})).is_err());
        assert!(store.list().unwrap().damaged.is_empty() && store.check().unwrap().foreign.is_empty());
        std::fs::write(&path, "{").unwrap();
        let damaged = store.prediction::<Value>("p").unwrap_err().to_string();
        assert!(damaged.contains("p.json: not a prediction"), "{damaged}");
        assert_eq!(store.check().unwrap().damaged.len(), 1);
    }

    #[test]
    fn what_is_stored_is_found_once_and_what_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        assert_eq!(store.conversions::<Value>().unwrap(), (vec![], vec![]));
        assert!(!store.dir().exists(), "nothing is made until something is stored");
        store.add_conversion("a", &json!({"n": 1})).unwrap();
        let path = store.add_conversion("a", &json!({"n": 2})).unwrap();
        std::fs::write(path.with_file_name("b.json"), "{").unwrap();
        std::fs::write(path.with_file_name("c.txt"), "other").unwrap();
        let (found, unreadable) = store.conversions::<Value>().unwrap();
        assert_eq!(found, [json!({"n": 2})]);
        assert!(unreadable.len() == 1 && unreadable[0].contains("b.json: "), "{unreadable:?}");
        assert!(store.list().unwrap().records.is_empty() && store.ids().unwrap().is_empty());
    }
}
