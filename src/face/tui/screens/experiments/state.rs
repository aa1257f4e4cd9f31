//! State of screen 1: the experiments, what is known about them, and what is being edited.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::draft::Draft;
use super::entries::Entry;
use super::typing::Typing;
use crate::face::tui::prelude::*;
use run::Feasibility;
use table::Spec;

/// State of the experiments screen.
#[derive(Debug, Default)]
pub struct Experiments {
    /// The experiments, quickstart first; `None` until they are read.
    pub entries: Option<Vec<Entry>>,
    /// The names of the experiments, for as long as they are not read.
    pub names: Vec<String>,
    /// What stored runs say of each entry.
    pub stored: Vec<Stored>,
    /// The rows, which of them is selected, and which are shown.
    pub list: List,
    /// The keys go to the editor of the selected experiment, not to the list.
    pub editing: bool,
    /// Experiments that were looked at, by the name of their entry.
    pub drafts: BTreeMap<String, Draft>,
    /// What is being typed.
    pub typing: Option<Typing>,
    /// The user wants to leave without saving.
    pub discard: bool,
    /// How often the files were to be read.
    pub readings: u64,
    /// The row that was selected when the names were listed.
    listed_at: usize,
    /// The user has selected another one by its name, before the files were read.
    moved: bool,
    /// The entry on which the screen came up, until another was selected: nobody has asked for that one.
    came_up_on: Option<String>,
    /// The entry to select once it was read.
    wanted: Option<String>,
    /// Edits that were not saved when the workbench was left: texts by name, until files are read.
    kept: BTreeMap<String, String>,
    /// Numbers checks, so that old answers are told from new ones.
    serial: u64,
}

/// The selected experiment, and the texts of edits that were not saved, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptExperiments {
    selected: Option<String>,
    edited: BTreeMap<String, String>,
}

impl Kept for Experiments {
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

/// What stored runs say about an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stored {
    /// Runs (cells times rounds) that can be run.
    pub runs: usize,
    /// Of those, how many are stored already.
    pub done: usize,
}

impl Experiments {
    /// The experiment that is selected.
    pub fn selected(&self) -> Option<&Entry> {
        self.entries.as_ref()?.get(self.list.selected)
    }

    /// Takes note of whether the user has selected something, also by its name alone.
    pub fn notice(&mut self) {
        if self.entries.is_none() {
            self.moved |= self.list.selected != self.listed_at;
            let selected = self.names.get(self.list.selected).filter(|_| self.moved);
            self.wanted = selected.or(self.wanted.as_ref()).cloned();
            return;
        }
        if self.selected().is_some_and(|selected| self.came_up_on.as_ref() != Some(&selected.name)) {
            self.came_up_on = None;
        }
    }

    /// The experiment that the user selected, where runs of it are stored.
    pub fn looked_at(&self) -> Option<&str> {
        let stored = self.stored.get(self.list.selected).is_some_and(|stored| stored.done > 0);
        let name = &self.selected()?.name;
        (stored && self.came_up_on.as_ref() != Some(name)).then_some(name)
    }

    /// The selected entry's text in the editor.
    pub fn draft(&self) -> Option<&Draft> {
        self.drafts.get(&self.selected()?.name)
    }

    /// The selected entry's text in the editor, to be changed.
    pub fn draft_mut(&mut self) -> Option<&mut Draft> {
        let name = &self.entries.as_ref()?.get(self.list.selected)?.name;
        self.drafts.get_mut(name)
    }

    /// The first cell of the selected experiment as it is edited, once it is checked and right.
    pub fn spec(&self) -> Option<&Spec> {
        let checked = self.draft()?.checked.as_ref()?.experiment.as_ref().ok()?;
        checked.cells.first().map(|cell| &cell.spec)
    }

    /// How many experiments are listed, by their names alone until their files are read.
    pub fn len(&self) -> usize {
        self.entries.as_ref().map_or(self.names.len(), Vec::len)
    }

    /// Lists experiments by their names until their files are read; what was selected when the workbench was left, or
    /// has been since it began, is selected among them.
    pub fn list_names(&mut self, names: Vec<String>) {
        let wanted = self.wanted.as_ref().and_then(|wanted| names.iter().position(|n| n == wanted));
        if !self.moved {
            self.listed_at = wanted.unwrap_or(0);
            self.list.selected = self.listed_at;
        }
        self.names = names;
    }

    /// Names of experiments with edits that are not saved.
    pub fn edited(&self) -> Vec<&str> {
        let edited = self.drafts.iter().filter(|(_, draft)| draft.revisions.is_edited());
        edited.map(|(name, _)| name.as_str()).collect()
    }

    /// Takes the entries as their files were just read, and what stored runs say of them. The
    /// selection stays on the entry of the same name; edits that were not saved stay, also of an
    /// experiment whose file is gone.
    pub fn set(&mut self, entries: Vec<Entry>, stored: Option<&Snapshot>) {
        let is_first = self.entries.is_none();
        let name = self.wanted.take().or_else(|| self.selected().map(|e| e.name.clone()));
        for entry in &entries {
            if let Some(draft) = self.drafts.get_mut(&entry.name) {
                draft.path = path_of(entry);
                draft.reread(entry.text.clone());
                draft.stale = true;
            }
        }
        // what is edited stays in the list though its file is gone
        let gone = |name: &String| entries.iter().all(|e| e.name != *name);
        self.drafts.retain(|name, draft| !gone(name) || draft.revisions.is_edited());
        let kept: Vec<Entry> = self
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
                entries.push(Entry::new(&name, &place, String::new(), Err(gone)));
            }
            if let Some(entry) = entries.iter().find(|entry| entry.name == name) {
                let mut draft = Draft::new(entry.text.clone(), path_of(entry));
                draft.take_up(text);
                self.drafts.insert(name, draft);
            }
        }
        let at = name.and_then(|name| entries.iter().position(|e| e.name == name));
        self.list.selected = at.unwrap_or(0);
        if is_first && !self.moved {
            self.came_up_on = entries.get(self.list.selected).map(|entry| entry.name.clone());
        }
        self.entries = Some(entries);
        self.match_stored(stored);
    }

    /// Selects the entry of this name once it was read.
    pub fn want(&mut self, name: String) {
        self.wanted = Some(name);
    }

    /// Makes the selected entry's draft; where what is known of it is not of its text as it is, the check
    /// that it needs: its serial, name, path and text.
    pub fn wanted_check(&mut self) -> Option<(u64, String, PathBuf, String)> {
        let entry = self.entries.as_ref()?.get(self.list.selected)?;
        let draft = self
            .drafts
            .entry(entry.name.clone())
            .or_insert_with(|| Draft::new(entry.text.clone(), path_of(entry)));
        if draft.is_checked() {
            return None;
        }
        if std::mem::take(&mut draft.stale) {
            self.serial += 1;
            draft.serial = self.serial;
        }
        let text = draft.revisions.text().to_owned();
        Some((draft.serial, entry.name.clone(), draft.path.clone(), text))
    }

    /// Matches the entries with the stored runs.
    pub fn match_stored(&mut self, snapshot: Option<&Snapshot>) {
        let entries = self.entries.as_deref().unwrap_or_default();
        self.stored = entries.iter().map(|entry| stored(entry, snapshot)).collect();
        for draft in self.drafts.values_mut() {
            draft.renew();
        }
    }
}

/// What names an entry's text in errors.
fn path_of(entry: &Entry) -> PathBuf {
    entry.path().unwrap_or_else(|| Path::new(&format!("{}.toml", entry.name)).to_path_buf())
}

fn stored(entry: &Entry, snapshot: Option<&Snapshot>) -> Stored {
    let Ok(experiment) = &entry.experiment else { return Stored::default() };
    let mut result = Stored::default();
    for (cell, key) in experiment.cells.iter().zip(&entry.keys) {
        if cell.feasibility != Feasibility::Runs {
            continue;
        }
        let known = snapshot.and_then(|s| s.known.get(key));
        result.runs += experiment.rounds as usize;
        result.done += known.map_or(0, |k| k.rounds.range(..experiment.rounds).count());
    }
    result
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
        let names = || vec!["quickstart".to_owned(), "broken".to_owned()];
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

        let mut untouched = Experiments::default();
        untouched.list_names(names());
        untouched.notice();
        untouched.set(fixtures::entries(), None);
        assert_eq!(selected(&untouched), Some("quickstart"), "the first, where nothing was selected");
        assert_eq!(untouched.looked_at(), None, "and nothing opens on it");
    }
}
