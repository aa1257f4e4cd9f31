//! The experiments that can be chosen: files in `experiments/` of the current directory, and those
//! built in. A broken file is an entry too, with its error.

use std::path::{Path, PathBuf};

use super::format;
use crate::error::Result;
use crate::sweep::{BUILT_IN, Experiment};

/// The place of an entry that has no file.
const BUILT_IN_PLACE: &str = "built in";

/// An experiment, or why it is none.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The file's stem.
    pub name: String,
    /// Where it lies: a path, or `built in`.
    pub place: String,
    /// The file's text.
    pub text: String,
    /// The experiment, or what is wrong with the file.
    pub experiment: std::result::Result<Box<Experiment>, String>,
    /// [`crate::spec::Spec::key`] of each cell, to match stored runs.
    pub keys: Vec<String>,
}

impl Entry {
    /// An entry from what reading it gave.
    pub fn new(name: &str, place: &str, text: String, experiment: Result<Experiment>) -> Self {
        let keys = experiment
            .as_ref()
            .map(|e| e.cells.iter().map(|c| c.spec.key()).collect())
            .unwrap_or_default();
        let experiment = experiment.map(Box::new).map_err(|e| format::error(&e));
        Self { name: name.into(), place: place.into(), text, experiment, keys }
    }

    /// Its file; `None` where it is built in.
    pub fn path(&self) -> Option<PathBuf> {
        (self.place != BUILT_IN_PLACE).then(|| PathBuf::from(&self.place))
    }
}

/// Reads `dir/*.toml` and the built-in experiments; a file hides the built-in one of its name.
/// Sorted by name, but quickstart first.
pub fn load(dir: &Path) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .map(|listing| listing.filter_map(|e| e.ok().map(|e| e.path())).collect())
        .unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        entries.push(Entry::new(&name, &path.display().to_string(), text, Experiment::load(&path)));
    }
    for (name, text) in BUILT_IN {
        if entries.iter().all(|e| e.name != name) {
            entries.push(Entry::new(
                name,
                BUILT_IN_PLACE,
                text.into(),
                Experiment::from_str(text, Path::new(&format!("{name}.toml"))),
            ));
        }
    }
    entries.sort_by_key(|e| (e.name != "quickstart", e.name.clone()));
    entries
}
