//! State of screen 1: files in `experiments/` of the current directory and built-in experiments, their stored runs, and
//! edits. A broken file is listed with its error.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossterm::event::KeyEvent;
use serde::{Deserialize, Serialize};

use super::draft::{Draft, name_before_edits};
use super::typing::InlineEdit;
use crate::desk::experiments::{self, AvailableExperiment, available_experiment, available_experiments};
use crate::face::tui::format;
use crate::face::tui::prelude::*;
use crate::face::tui::scope::ShownExperiment;
use base::error::Result;
use lab::sweep::Experiment;
use plan::Architecture;
use run::Feasibility;
use table::{Spec, Status};

const BUILT_IN_PLACE: &str = "built in";

#[derive(Clone, Debug)]
pub struct ExperimentEntry {
    pub name: String,
    /// Path of the file, or `built in`.
    pub place: String,
    pub text: String,
    /// Parsed experiment, or the load error.
    pub experiment: std::result::Result<Box<Experiment>, String>,
    /// [`table::Spec::key`] of each cell, to match stored runs.
    pub keys: Arc<[String]>,
    /// True if any cell is executed on this machine rather than simulated.
    pub runs_here: bool,
}

impl ExperimentEntry {
    pub fn new(name: &str, place: &str, text: String, experiment: Result<Experiment>) -> Self {
        let cells = experiment.as_ref().map_or(&[][..], |experiment| &experiment.cells);
        let keys = cells.iter().map(|cell| cell.spec.key()).collect();
        let runs_here = cells.iter().any(|cell| !cell.spec.backend.is_simulated());
        let experiment = experiment.map(Box::new).map_err(|e| format::error(&e));
        Self { name: name.into(), place: place.into(), text, experiment, keys, runs_here }
    }

    /// File path; `None` if built in.
    pub fn path(&self) -> Option<PathBuf> {
        (self.place != BUILT_IN_PLACE).then(|| PathBuf::from(&self.place))
    }

    /// Experiment of the file, without edits.
    pub fn shown(&self) -> ShownExperiment {
        let cells = self.experiment.is_ok().then(|| Arc::clone(&self.keys));
        ShownExperiment { name: self.name.clone(), cells }
    }
}

impl From<AvailableExperiment> for ExperimentEntry {
    fn from(found: AvailableExperiment) -> Self {
        let place = found.path.map_or_else(|| BUILT_IN_PLACE.into(), |path| path.display().to_string());
        Self::new(&found.name, &place, found.text, found.experiment)
    }
}

/// Loads the available experiments (see [`available_experiments`]), sorted by name with quickstart first.
pub fn load(dir: &Path) -> Result<Vec<ExperimentEntry>> {
    let mut entries: Vec<ExperimentEntry> =
        available_experiments(dir)?.into_iter().map(ExperimentEntry::from).collect();
    entries.sort_by_key(|e| place(&e.name));
    Ok(entries)
}

/// Loads one experiment; faster than [`load`], which expands every grid.
pub fn load_one(dir: &Path, name: &str) -> Option<ExperimentEntry> {
    available_experiment(dir, name).map(ExperimentEntry::from)
}

/// Names and questions of the available experiments in the same order; fast, because no grid is expanded.
pub fn names(dir: &Path) -> Vec<(String, String)> {
    let named = |name: String| {
        let question = experiments::question(&name).unwrap_or_default();
        (name, question)
    };
    let names = experiments::names(dir).into_iter();
    let mut names: Vec<(String, String)> = names.map(|offer| named(offer.text)).collect();
    names.sort_by_key(|(name, _)| place(name));
    names
}

/// Sort key: quickstart first.
fn place(name: &str) -> (bool, String) {
    (name != "quickstart", name.to_owned())
}

#[derive(Debug, Default)]
pub struct Experiments {
    /// Experiments, quickstart first; `None` until loaded.
    pub entries: Option<Vec<ExperimentEntry>>,
    /// Names and questions, shown until the files are loaded.
    pub names: Vec<(String, String)>,
    /// Experiments that are loaded while others are not, by name.
    ahead: BTreeMap<String, (ExperimentEntry, StoredCounts)>,
    pub stored: Vec<StoredCounts>,
    pub list: List,
    /// True if the editor has keyboard focus rather than the list.
    pub editing: bool,
    pub drafts: BTreeMap<String, Draft>,
    /// Part of the grid that the in-place prompt edits; stale once the prompt is closed.
    pub typing: Option<InlineEdit>,
    /// True if no runs are stored yet.
    pub(super) is_first_use: bool,
    /// True if the user quits without saving.
    pub discard: bool,
    /// Act requested before the files were loaded, performed then.
    pub early: Option<super::Act>,
    /// Keys pressed after that of `early`, which wait for it.
    pub later: Vec<KeyEvent>,
    /// Number of times a read was requested.
    pub readings: u64,
    /// Row selected when the names were listed.
    listed_at: usize,
    /// True if the user moved the selection before the files were loaded.
    moved: bool,
    wanted: Option<String>,
    /// Unsaved edits from the previous session, by name, until the files are loaded.
    kept: BTreeMap<String, String>,
    /// Counter of checks, to tell outdated answers from current ones.
    serial: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptExperiments {
    selected: Option<String>,
    edited: BTreeMap<String, String>,
}

impl PersistentScreen for Experiments {
    type Kept = KeptExperiments;

    fn keep(&self) -> Option<KeptExperiments> {
        let selected = self.wanted.clone().or_else(|| self.selected().map(|entry| entry.name.clone()));
        let mut edited = self.kept.clone();
        let drafts =
            self.drafts.iter().filter(|(_, draft)| draft.revisions.is_edited() && !self.discard);
        edited.extend(drafts.map(|(name, draft)| (name.clone(), draft.revisions.text().to_owned())));
        Some(KeptExperiments { selected, edited })
    }

    fn restore(&mut self, kept: KeptExperiments, _cx: &mut Context) {
        self.wanted = kept.selected;
        self.kept.extend(kept.edited);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoredCounts {
    /// Runs that can be executed (cells times rounds).
    pub runs: usize,
    pub done: usize,
    /// Those of `done` that this experiment ran, the others are of the same cells in other experiments.
    pub own: usize,
    /// Runs without a result that failed when they were run last.
    pub failed: usize,
}

impl StoredCounts {
    /// Counts the stored runs of an experiment; also returns the other experiments whose runs count for it, since their
    /// cells are the same.
    pub fn new<'a>(
        experiment: &Experiment,
        keys: &[String],
        snapshot: Option<&'a Snapshot>,
    ) -> (Self, BTreeSet<&'a str>) {
        let (mut stored, mut others) = (Self::default(), BTreeSet::new());
        let name = name_before_edits(&experiment.name);
        for (cell, key) in experiment.cells.iter().zip(keys) {
            if cell.feasibility != Feasibility::Runs {
                continue;
            }
            stored.runs += experiment.rounds as usize;
            let Some(snapshot) = snapshot else { continue };
            let mut rounds: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
            let mut failed = BTreeSet::new();
            for at in snapshot.cells.get(key).into_iter().flatten() {
                let run = &snapshot.records[*at];
                if run.round >= experiment.rounds {
                    continue;
                }
                match run.status {
                    Status::Failed => _ = failed.insert(run.round),
                    _ => _ = failed.remove(&run.round),
                }
                if run.has_numbers() {
                    let of = run.experiment.as_deref().map(name_before_edits);
                    rounds.entry(run.round).or_default().extend(of);
                }
            }
            stored.done += rounds.len();
            stored.failed += failed.iter().filter(|round| !rounds.contains_key(*round)).count();
            for experiments in rounds.into_values() {
                match experiments.contains(name) {
                    true => stored.own += 1,
                    false => others.extend(experiments),
                }
            }
        }
        (stored, others)
    }

    /// True if no run is left, whichever experiment ran it.
    pub fn is_complete(self) -> bool {
        self.runs > 0 && self.done >= self.runs
    }
}

impl Experiments {
    /// Sets whether the runs directory is empty, until the stored runs are read.
    pub fn set_first_use(&mut self, is_first_use: bool) {
        self.is_first_use = is_first_use;
    }

    pub fn selected(&self) -> Option<&ExperimentEntry> {
        match &self.entries {
            Some(entries) => entries.get(self.list.selected),
            None => self.ahead(self.list.selected).map(|(entry, _)| entry),
        }
    }

    /// Entry of a row that is loaded while others are not, unless it has edits of an earlier session.
    pub fn ahead(&self, row: usize) -> Option<&(ExperimentEntry, StoredCounts)> {
        let name = &self.names.get(row).filter(|_| self.entries.is_none())?.0;
        self.ahead.get(name).filter(|_| !self.kept.contains_key(name))
    }

    /// First experiment that is not loaded yet.
    pub fn next_unread(&self) -> Option<&String> {
        let mut names = self.names.iter().map(|(name, _)| name);
        names.find(|name| !self.ahead.contains_key(*name))
    }

    /// Experiments that are loaded; the others may follow.
    pub fn loaded(&self) -> impl Iterator<Item = &ExperimentEntry> {
        let ahead = self.ahead.values().map(|(entry, _)| entry);
        self.entries.iter().flatten().chain(ahead)
    }

    /// Name to load before all others: the selected one, unless it is loaded or has edits of an earlier session.
    pub fn wanted_ahead(&self) -> Option<&String> {
        let (name, _) = self.names.get(self.list.selected).filter(|_| self.entries.is_none())?;
        (self.ahead(self.list.selected).is_none() && !self.kept.contains_key(name)).then_some(name)
    }

    pub fn set_ahead(&mut self, entry: ExperimentEntry, snapshot: Option<&Snapshot>) {
        if self.entries.is_none() {
            let counts = stored(&entry, snapshot);
            self.ahead.insert(entry.name.clone(), (entry, counts));
        }
    }

    /// Takes the experiments that were loaded one by one as the list.
    pub fn set_loaded(&mut self, snapshot: Option<&Snapshot>) {
        let entry = |(name, _): &(String, String)| Some(self.ahead.get(name)?.0.clone());
        let entries: Vec<ExperimentEntry> = self.names.iter().filter_map(entry).collect();
        self.set(entries, snapshot);
    }

    /// True if no experiment has stored runs, once all are loaded.
    pub fn has_none_stored(&self) -> bool {
        let mut all = self.stored.iter().copied().chain(self.drafts.values().map(Draft::stored));
        self.entries.is_some() && all.all(|stored| stored.done == 0)
    }

    /// True if the file of this name has all its runs stored.
    pub fn is_stored(&self, name: &str) -> bool {
        let at = self.entries.iter().flatten().position(|entry| entry.name == name);
        at.is_some_and(|at| self.stored_of(at).is_complete())
    }

    /// Stored runs of a row's file.
    pub fn stored_of(&self, row: usize) -> StoredCounts {
        let ahead = || self.ahead(row).map(|(_, stored)| *stored);
        self.stored.get(row).copied().or_else(ahead).unwrap_or_default()
    }

    /// Records whether the user has moved the selection before the files are loaded.
    pub fn notice(&mut self) {
        if self.entries.is_none() {
            self.moved |= self.list.selected != self.listed_at;
            let selected = self.names.get(self.list.selected).filter(|_| self.moved);
            self.wanted = selected.map(|(name, _)| name).or(self.wanted.as_ref()).cloned();
        }
    }

    /// Selected experiment with its edits; `None` until its cells are known.
    pub fn shown(&self) -> Option<ShownExperiment> {
        let entry = self.selected()?;
        Some(match self.draft().filter(|draft| draft.revisions.is_edited()) {
            None => entry.shown(),
            Some(draft) => {
                ShownExperiment { name: draft.edited_name(&entry.name), cells: Some(draft.cells()?) }
            }
        })
    }

    pub fn draft(&self) -> Option<&Draft> {
        self.drafts.get(&self.selected()?.name)
    }

    pub fn draft_mut(&mut self) -> Option<&mut Draft> {
        let name = self.selected()?.name.clone();
        self.drafts.get_mut(&name)
    }

    /// First cell of the edited experiment, once checked and valid.
    pub fn spec(&self) -> Option<&Spec> {
        let checked = self.draft()?.checked.as_ref()?.experiment.as_ref().ok()?;
        checked.cells.first().map(|cell| &cell.spec)
    }

    /// Cell of the selected experiment that what-if starts from: one that runs, ladder, the highest TP, in this order; `None`
    /// until the cells are known.
    pub fn typical_cell(&self) -> Option<SelectedRun> {
        let entry = self.selected()?;
        let checked = self.draft().and_then(|draft| draft.checked.as_ref()?.experiment.as_ref().ok());
        let cells = match (checked, &entry.experiment) {
            (Some(experiment), _) => &experiment.cells,
            (None, Ok(experiment)) => &experiment.cells,
            (None, Err(_)) => return None,
        };
        let cell = cells.iter().min_by_key(|cell| {
            let runs = matches!(cell.feasibility, Feasibility::Runs);
            let is_ladder = matches!(cell.spec.architecture, Architecture::Ladder(_));
            (!runs, !is_ladder, Reverse(cell.spec.tp))
        })?;
        Some(SelectedRun { spec: cell.spec.clone(), run: cell.spec.label() })
    }

    pub fn len(&self) -> usize {
        self.entries.as_ref().map_or(self.names.len(), Vec::len)
    }

    /// Lists experiments by name until their files are loaded, selecting the one from the previous
    /// session unless the user has moved the selection.
    pub fn list_names(&mut self, names: Vec<(String, String)>) {
        let wanted = self.wanted.as_ref();
        let wanted = wanted.and_then(|wanted| names.iter().position(|(name, _)| name == wanted));
        if !self.moved {
            self.listed_at = wanted.unwrap_or(0);
            self.list.selected = self.listed_at;
        }
        self.names = names;
    }

    pub fn edited(&self) -> Vec<&str> {
        let edited = self.drafts.iter().filter(|(_, draft)| draft.revisions.is_edited());
        edited.map(|(name, _)| name.as_str()).collect()
    }

    /// Replaces the entries after the files were read. The selection stays on the entry of the same
    /// name; unsaved edits are kept, even if the file is gone.
    pub fn set(&mut self, entries: Vec<ExperimentEntry>, stored: Option<&Snapshot>) {
        let is_first = self.entries.is_none();
        let name = self.wanted.take().or_else(|| self.selected().map(|e| e.name.clone()));
        for entry in &entries {
            if let Some(draft) = self.drafts.get_mut(&entry.name) {
                draft.path = path_of(entry);
                draft.reread(entry.text.clone());
                // the first read brings nothing new of an experiment that was loaded ahead
                draft.stale |= !is_first;
            }
        }
        // keep edited experiments whose file is gone
        let gone = |name: &String| entries.iter().all(|e| e.name != *name);
        self.drafts.retain(|name, draft| !gone(name) || draft.revisions.is_edited());
        let kept: Vec<ExperimentEntry> = self
            .entries
            .take()
            .into_iter()
            .flatten()
            .filter(|entry| gone(&entry.name) && self.drafts.contains_key(&entry.name))
            .collect();
        let mut entries = entries;
        entries.extend(kept);
        for (name, text) in std::mem::take(&mut self.kept) {
            if entries.iter().all(|entry| entry.name != name) {
                let place = format!("experiments/{name}.toml");
                let gone = base::error::Error::input(format!("{place} is gone; its edits are here"));
                entries.push(ExperimentEntry::new(&name, &place, String::new(), Err(gone)));
            }
            if let Some(entry) = entries.iter().find(|entry| entry.name == name) {
                let mut draft = Draft::new(entry.text.clone(), path_of(entry));
                draft.take_up(text);
                self.drafts.insert(name, draft);
            }
        }
        let at = name.and_then(|name| entries.iter().position(|e| e.name == name));
        self.list.selected = at.unwrap_or(0);
        (self.entries, self.ahead) = (Some(entries), BTreeMap::new());
        self.count(stored);
    }

    /// Selects the entry of this name once it is loaded.
    pub fn want(&mut self, name: String) {
        self.wanted = Some(name);
    }

    /// Creates the draft of the selected entry if missing.
    pub fn ensure_draft(&mut self) -> Option<&mut Draft> {
        let entry = self.selected()?.clone();
        let new = || Draft::new(entry.text.clone(), path_of(&entry));
        Some(self.drafts.entry(entry.name.clone()).or_insert_with(new))
    }

    /// If the selected entry needs a check, returns the serial, name, path and text to check.
    pub fn wanted_check(&mut self) -> Option<(u64, String, PathBuf, String)> {
        if self.draft().is_some_and(Draft::is_checked) {
            return None;
        }
        let name = self.selected()?.name.clone();
        let next = self.serial + 1;
        let draft = self.ensure_draft()?;
        let is_new = std::mem::take(&mut draft.stale);
        if is_new {
            draft.serial = next;
        }
        let wanted = (draft.serial, name, draft.path.clone(), draft.revisions.text().to_owned());
        self.serial += u64::from(is_new);
        Some(wanted)
    }

    fn count(&mut self, snapshot: Option<&Snapshot>) {
        let entries = self.entries.as_deref().unwrap_or_default();
        self.stored = entries.iter().map(|entry| stored(entry, snapshot)).collect();
        for (entry, counts) in self.ahead.values_mut() {
            *counts = stored(entry, snapshot);
        }
    }

    pub fn match_stored(&mut self, snapshot: Option<&Snapshot>) {
        self.count(snapshot);
        for draft in self.drafts.values_mut() {
            draft.renew();
        }
    }
}

/// Path that names an entry in errors.
fn path_of(entry: &ExperimentEntry) -> PathBuf {
    entry.path().unwrap_or_else(|| Path::new(&format!("{}.toml", entry.name)).to_path_buf())
}

fn stored(entry: &ExperimentEntry, snapshot: Option<&Snapshot>) -> StoredCounts {
    let experiment = entry.experiment.as_ref().ok();
    experiment.map_or_else(StoredCounts::default, |experiment| {
        StoredCounts::new(experiment, &entry.keys, snapshot).0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::tests::fixtures;

    fn selected(experiments: &Experiments) -> Option<&str> {
        experiments.selected().map(|entry| entry.name.as_str())
    }

    #[test]
    fn what_is_selected_by_its_name_stays_selected_when_the_files_are_read() {
        let names = || ["quickstart", "broken"].map(|name| (name.to_owned(), String::new())).into();
        let mut experiments = Experiments::default();
        experiments.list_names(names());
        assert_eq!((experiments.len(), selected(&experiments)), (2, None), "names alone");
        experiments.list.selected = 1;
        experiments.notice();
        // names that are listed again, in another order, take nothing away from it
        experiments.list_names(names());
        let mut entries = fixtures::entries();
        entries.reverse();
        experiments.set(entries, None);
        assert_eq!((experiments.list.selected, selected(&experiments)), (0, Some("broken")));

        let mut one_by_one = Experiments::default();
        one_by_one.list_names(names());
        for entry in fixtures::entries() {
            assert_eq!(one_by_one.next_unread(), Some(&entry.name));
            one_by_one.set_ahead(entry, None);
        }
        assert_eq!((one_by_one.next_unread(), selected(&one_by_one)), (None, Some("quickstart")));
        one_by_one.set_loaded(None);
        assert_eq!((one_by_one.loaded().count(), selected(&one_by_one)), (2, Some("quickstart")));

        let mut untouched = Experiments::default();
        untouched.list_names(names());
        untouched.notice();
        untouched.set(fixtures::entries(), None);
        assert_eq!(selected(&untouched), Some("quickstart"), "the first, where nothing was selected");
    }
}
