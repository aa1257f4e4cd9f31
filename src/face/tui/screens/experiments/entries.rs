//! List of experiments: files in `experiments/` of the current directory, and built-in ones. A broken
//! file is listed with its error.

use std::path::{Path, PathBuf};

use crate::desk::experiments::{self, AtHand, at_hand};
use crate::face::tui::format;
use base::error::Result;
use lab::sweep::Experiment;

const BUILT_IN_PLACE: &str = "built in";

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// Path of the file, or `built in`.
    pub place: String,
    pub text: String,
    /// Parsed experiment, or the load error.
    pub experiment: std::result::Result<Box<Experiment>, String>,
    /// [`table::Spec::key`] of each cell, to match stored runs.
    pub keys: Vec<String>,
}

impl Entry {
    pub fn new(name: &str, place: &str, text: String, experiment: Result<Experiment>) -> Self {
        let keys = experiment
            .as_ref()
            .map(|e| e.cells.iter().map(|c| c.spec.key()).collect())
            .unwrap_or_default();
        let experiment = experiment.map(Box::new).map_err(|e| format::error(&e));
        Self { name: name.into(), place: place.into(), text, experiment, keys }
    }

    /// File path; `None` if built in.
    pub fn path(&self) -> Option<PathBuf> {
        (self.place != BUILT_IN_PLACE).then(|| PathBuf::from(&self.place))
    }
}

/// Loads the available experiments (see [`at_hand`]), sorted by name with quickstart first.
pub fn load(dir: &Path) -> Result<Vec<Entry>> {
    let entry = |found: AtHand| {
        let place = found.path.map_or_else(|| BUILT_IN_PLACE.into(), |path| path.display().to_string());
        Entry::new(&found.name, &place, found.text, found.experiment)
    };
    let mut entries: Vec<Entry> = at_hand(dir)?.into_iter().map(entry).collect();
    entries.sort_by_key(|e| place(&e.name));
    Ok(entries)
}

/// Names of the available experiments in the same order; fast, because nothing is parsed.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = experiments::names(dir).into_iter().map(|offer| offer.text).collect();
    names.sort_by_key(|name| place(name));
    names
}

/// Sort key: quickstart first.
fn place(name: &str) -> (bool, String) {
    (name != "quickstart", name.to_owned())
}
