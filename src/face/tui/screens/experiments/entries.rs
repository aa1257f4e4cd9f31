//! The experiments that can be chosen: files in `experiments/` of the current directory, and those
//! built in. A broken file is an entry too, with its error.

use std::path::{Path, PathBuf};

use crate::desk::experiments::{self, AtHand, at_hand};
use crate::face::tui::format;
use base::error::Result;
use lab::sweep::Experiment;

/// The place of an entry that has no file.
const BUILT_IN_PLACE: &str = "built in";

/// An experiment, or why it is none.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name of the experiment: the file's, without its extension.
    pub name: String,
    /// Where it lies: a path, or `built in`.
    pub place: String,
    /// The text of the experiment's file.
    pub text: String,
    /// The experiment, or what is wrong with the file.
    pub experiment: std::result::Result<Box<Experiment>, String>,
    /// [`table::Spec::key`] of each cell, to match stored runs.
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

/// The experiments at hand (see [`at_hand`]), sorted by name, but quickstart first.
pub fn load(dir: &Path) -> Result<Vec<Entry>> {
    let entry = |found: AtHand| {
        let place = found.path.map_or_else(|| BUILT_IN_PLACE.into(), |path| path.display().to_string());
        Entry::new(&found.name, &place, found.text, found.experiment)
    };
    let mut entries: Vec<Entry> = at_hand(dir)?.into_iter().map(entry).collect();
    entries.sort_by_key(|e| place(&e.name));
    Ok(entries)
}

/// The names of the experiments at hand in that order: they are known before any of them is planned.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = experiments::names(dir).into_iter().map(|offer| offer.text).collect();
    names.sort_by_key(|name| place(name));
    names
}

/// By what experiments are sorted: the first to be run stands first.
fn place(name: &str) -> (bool, String) {
    (name != "quickstart", name.to_owned())
}
