//! Experiment being viewed and edited: its text with undo, the editor rows, and the check in the
//! background: its cells and the forecast of its sweep.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::state::StoredCounts;
use crate::face::tui::context::Snapshot;
use crate::face::tui::widgets::list::List;
use base::checksum;
use base::error::Error;
use lab::sweep::document::{Document, DocumentEntry, EntryKind};
use lab::sweep::edit::{ExperimentEdit, Revisions};
use lab::sweep::forecast::{CellHistory, Forecast, RunHistory, forecast};
use lab::sweep::{Cell, Experiment};
use study::analysis::noise_forecast;
use study::answer::{Answer, MOST_RUNS};
use table::options::value;

/// Settings always shown, even if the text leaves them at their defaults.
const ALWAYS: [&str; 11] = [
    "model",
    "backend",
    "hardware",
    "stack",
    "dtype",
    "prompt_tokens",
    "output_tokens",
    "samples",
    "warmup",
    "rounds",
    "seed",
];

#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// File path, used in errors and to resolve relative paths in the text.
    pub path: PathBuf,
    pub revisions: Revisions,
    /// Hash of the text; distinguishes the runs of different unsaved edits.
    mark: String,
    pub rows: Vec<DraftRow>,
    /// Parse error that makes the text uneditable here.
    pub broken: Option<String>,
    /// Row selection and viewport.
    pub list: List,
    /// Selected column: 0 is the name, values follow.
    pub column: usize,
    pub checked: Option<CheckedDraft>,
    /// Last valid experiment; source of the default values shown.
    right: Option<Arc<Experiment>>,
    /// Number of the current or most recent check; 0 if the current text has none.
    pub serial: u64,
    /// True if the text or the stored runs changed since the check.
    pub stale: bool,
    /// True if the check result belongs to the current text.
    current: bool,
    /// True if stored runs changed during a check.
    again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftRow {
    pub name: String,
    pub kind: RowKind,
    /// Values as written in the file.
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    Axis,
    /// Setting for all cells, given in the text.
    Setting,
    /// Setting for all cells, at its default.
    Default,
}

#[derive(Clone, Debug)]
pub struct CheckedDraft {
    /// Number of the check, to match its answer.
    pub serial: u64,
    /// Experiment, or the error with line and column.
    pub experiment: Result<Arc<Experiment>, String>,
    /// [`table::Spec::key`] of each cell.
    pub keys: Arc<[String]>,
    pub forecast: Option<Forecast>,
    pub answers: Vec<Answer>,
    /// Why results would be noisy if the sweep started now.
    pub noise: Option<String>,
    pub stored: StoredCounts,
    /// Other experiments that ran stored runs of these cells, in words; `None` without any.
    pub others: Option<String>,
}

/// Separator between an experiment's name and the hash of unsaved edits.
const EDITED: &str = "-edited-";

/// Original name of an experiment, without the suffix of unsaved edits.
pub fn name_before_edits(name: &str) -> &str {
    let is_mark = |mark: &str| mark.len() == 6 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.rsplit_once(EDITED) {
        Some((before, mark)) if is_mark(mark) => before,
        _ => name,
    }
}

/// True for the name of unsaved edits.
pub fn is_edited(name: &str) -> bool {
    name_before_edits(name) != name
}

impl Draft {
    /// Creates a draft that waits for a check; `path` names the text in errors.
    pub fn new(text: String, path: PathBuf) -> Self {
        let mut draft = Self { path, revisions: Revisions::new(text), stale: true, ..Self::default() };
        draft.refresh();
        draft
    }

    /// Name for runs of unsaved edits: `NAME-edited-3f2a91`. The suffix is a hash of the text, so the same
    /// edits find their runs again.
    pub fn edited_name(&self, name: &str) -> String {
        format!("{name}{EDITED}{}", self.mark)
    }

    /// Stored run counts of the edited text; zero until it is checked.
    pub fn stored(&self) -> StoredCounts {
        let checked = self.checked.as_ref().filter(|_| self.current);
        checked.map_or_else(StoredCounts::default, |checked| checked.stored)
    }

    /// True if the check result belongs to the current text.
    pub fn is_checked(&self) -> bool {
        !self.stale && self.checked.as_ref().is_some_and(|checked| checked.serial == self.serial)
    }

    /// Edited experiment, once checked and valid; otherwise the reason it cannot run.
    pub fn experiment(&self) -> Result<Arc<Experiment>, String> {
        match &self.checked {
            Some(checked) if self.current => checked.experiment.clone(),
            _ => Err("the edited experiment is still being checked".into()),
        }
    }

    /// Keys of the edited experiment's cells, once checked and valid.
    pub fn cells(&self) -> Option<Arc<[String]>> {
        let checked = self.checked.as_ref().filter(|_| self.current)?;
        checked.experiment.is_ok().then(|| Arc::clone(&checked.keys))
    }

    /// Applies edits; returns true if the text changed.
    pub fn edit(&mut self, edits: &[ExperimentEdit]) -> Result<bool, String> {
        let changed = self.revisions.edit(&self.path, edits).map_err(|error| error.to_string())?;
        if changed {
            self.refresh();
        }
        Ok(changed)
    }

    /// Returns the reason if these edits break a text that is valid now.
    pub fn check_edits(&self, edits: &[ExperimentEdit]) -> Result<(), String> {
        if Experiment::check(self.revisions.text(), &self.path).is_err() {
            return Ok(());
        }
        let mut edited = self.revisions.clone();
        let checked =
            edited.edit(&self.path, edits).and_then(|_| Experiment::check(edited.text(), &self.path));
        let place = format!("{}:", self.path.display());
        // the prompt is the place
        let without_place = |text: String| match text.split_once(": ") {
            Some((before, message)) if before.starts_with(&place) => message.to_owned(),
            _ => text,
        };
        checked.map_err(|error| without_place(said(&error)))
    }

    /// Restores an edited text from an earlier session.
    pub fn take_up(&mut self, text: String) {
        self.revisions.replace(text);
        self.refresh();
    }

    /// Undoes or redoes an edit; returns false if there was none.
    pub fn travel(&mut self, back: bool) -> bool {
        let done = if back { self.revisions.undo() } else { self.revisions.redo() };
        if done {
            self.refresh();
        }
        done
    }

    /// Replaces the saved text after the file was reread.
    pub fn reread(&mut self, text: String) {
        if self.revisions.saved() != text {
            self.revisions.reread(text);
            self.refresh();
        }
    }

    /// First setting that differs from earlier rows, in words: `tp 2 4 8`, `no batch`.
    pub fn difference(&self, before: &[DraftRow]) -> String {
        let of = |rows: &[DraftRow], name: &str| {
            rows.iter().find(|row| row.name == name).map(|row| row.values.clone())
        };
        let changed = |row: &&DraftRow| of(before, &row.name).as_ref() != Some(&row.values);
        if let Some(row) = self.rows.iter().find(changed) {
            return format!("{} {}", row.name, row.values.join(" "));
        }
        match before.iter().find(|row| of(&self.rows, &row.name).is_none()) {
            Some(row) => format!("no {}", row.name),
            None => "the text of the file".to_owned(),
        }
    }

    /// Unsaved edits, in words: the first setting that differs from the saved text; `None` without edits.
    pub fn unsaved(&self) -> Option<String> {
        let is_set = |row: &&DraftRow| row.kind != RowKind::Default;
        let set = |draft: &Self| draft.rows.iter().filter(is_set).cloned().collect::<Vec<DraftRow>>();
        self.revisions.is_edited().then(|| {
            let saved = Self::new(self.revisions.saved().to_owned(), self.path.clone());
            Self { rows: set(self), ..Self::default() }.difference(&set(&saved))
        })
    }

    /// Stores the result of a check, unless it is outdated.
    pub fn learn(&mut self, checked: CheckedDraft) {
        if checked.serial == self.serial {
            if let Ok(experiment) = &checked.experiment {
                self.right = Some(Arc::clone(experiment));
            }
            self.checked = Some(checked);
            self.current = true;
            self.stale |= std::mem::take(&mut self.again);
            self.fill_rows();
        }
    }

    pub fn row(&self) -> Option<&DraftRow> {
        self.rows.get(self.list.selected)
    }

    pub fn select(&mut self, name: &str, column: usize) {
        if let Some(at) = self.rows.iter().position(|row| row.name == name) {
            self.list.selected = at;
            self.column = column;
        }
        self.bound();
    }

    pub fn bound(&mut self) {
        self.list.selected = self.list.selected.min(self.rows.len().saturating_sub(1));
        let columns = self.row().map_or(0, |row| row.values.len());
        self.column = self.column.min(columns);
    }

    /// Requests a new forecast after stored runs changed, once the current check ends. Whether the text
    /// is valid does not depend on the stored runs.
    pub fn renew(&mut self) {
        let under_way = self.checked.as_ref().is_none_or(|checked| checked.serial != self.serial);
        if under_way && !self.stale {
            self.again = true;
        } else {
            self.stale = true;
        }
    }

    fn refresh(&mut self) {
        (self.stale, self.current, self.again, self.serial) = (true, false, false, 0);
        checksum::short_key(self.revisions.text())[..6].clone_into(&mut self.mark);
        self.fill_rows();
    }

    fn fill_rows(&mut self) {
        let outline = match Document::parse(self.revisions.text(), &self.path) {
            Ok(outline) => outline,
            Err(error) => {
                (self.broken, self.rows) = (Some(error.to_string()), Vec::new());
                return;
            }
        };
        self.broken = None;
        let row = |kind| {
            move |entry: &DocumentEntry| DraftRow {
                name: entry.name.clone(),
                kind,
                values: entry.values.clone(),
            }
        };
        let name = self.row().map(|row| row.name.clone());
        let mut rows: Vec<DraftRow> = outline.axes().map(row(RowKind::Axis)).collect();
        let settings = |asked: bool| {
            let is = move |name: &str| (name == "question") == asked;
            outline.entries.iter().filter(move |e| e.kind == EntryKind::Setting && is(&e.name))
        };
        rows.extend(settings(false).map(row(RowKind::Setting)));
        let checked = self.right.as_deref();
        for default in ALWAYS {
            if outline.get(default).is_some() {
                continue;
            }
            let values = match (checked, checked.and_then(|e| e.cells.first())) {
                (Some(experiment), _) if default == "rounds" => vec![experiment.rounds.to_string()],
                (_, Some(cell)) => {
                    vec![value(&cell.spec, default).map_or_else(|| "-".into(), Cow::into_owned)]
                }
                _ => vec!["default".to_owned()],
            };
            rows.push(DraftRow { name: default.to_owned(), kind: RowKind::Default, values });
        }
        rows.extend(settings(true).map(row(RowKind::Setting)));
        if outline.get("question").is_none() {
            let values = vec!["(this experiment's question)".to_owned()];
            rows.push(DraftRow { name: "question".to_owned(), kind: RowKind::Default, values });
        }
        self.rows = rows;
        if let Some(name) = name {
            self.select(&name, self.column);
        }
        self.bound();
    }
}

/// Checks an experiment text and forecasts its sweep. `stop` returns true once the result is no longer
/// needed.
pub fn check(
    serial: u64,
    text: &str,
    path: &Path,
    stored: Option<&Snapshot>,
    load: Option<f64>,
    stop: &dyn Fn() -> bool,
) -> CheckedDraft {
    let experiment = Experiment::from_str(text, path).map(Arc::new).map_err(|error| said(&error));
    let (mut planned, mut answered, mut noise) = (None, Vec::new(), None);
    let (mut counts, mut names) = (StoredCounts::default(), None);
    let mut keys: Arc<[String]> = Arc::default();
    if let Ok(experiment) = &experiment {
        keys = experiment.cells.iter().map(|cell| cell.spec.key()).collect();
        let history = history(&experiment.cells, stored, load);
        planned = forecast(experiment, &history, stop);
        let executed = planned.as_ref().is_some_and(|forecast| forecast.runs > forecast.stored);
        let specs = experiment.cells.iter().map(|cell| &cell.spec);
        noise = load.filter(|_| executed).and_then(|load| noise_forecast(load, specs));
        answered = stored.map(|stored| answers(experiment, &keys, stored)).unwrap_or_default();
        let (found, others) = StoredCounts::new(experiment, &keys, stored);
        (counts, names) = (found, other_experiments(found, &others));
    }
    CheckedDraft {
        serial,
        experiment,
        keys,
        forecast: planned,
        answers: answered,
        noise,
        stored: counts,
        others: names,
    }
}

/// Maximum other experiments that are named.
const MOST_NAMED: usize = 2;

/// Experiments that ran the stored runs of the same cells: `paper-70b`, `moe, p2p and 2 more`.
fn other_experiments(stored: StoredCounts, others: &BTreeSet<&str>) -> Option<String> {
    let named: Vec<&str> = others.iter().take(MOST_NAMED).copied().collect();
    let more = match others.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = match named.is_empty() {
        true => "single runs".to_owned(),
        false => named.join(", ") + &more,
    };
    (stored.done > stored.own).then_some(names)
}

fn answers(experiment: &Experiment, keys: &[String], stored: &Snapshot) -> Vec<Answer> {
    if experiment.cells.len() * experiment.rounds as usize > MOST_RUNS {
        return Vec::new();
    }
    let keys: HashSet<&String> = keys.iter().collect();
    let runs = keys.into_iter().filter_map(|key| stored.cells.get(key)).flatten().copied();
    let mut runs: Vec<usize> = runs.filter(|run| stored.records[*run].metrics.is_some()).collect();
    // in storage order
    runs.sort_unstable();
    Answer::from_records(runs.into_iter().map(|run| stored.records[run].clone()).collect())
}

/// Formats an error with its help; the message already includes the location.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::At { message, help: Some(help), .. } | Error::Input { message, help: Some(help) } => {
            format!("{message}\n{help}")
        }
        other => other.to_string(),
    }
}

/// Stored runs that predict how long these cells take at this load.
pub fn history(cells: &[Cell], stored: Option<&Snapshot>, load: Option<f64>) -> RunHistory {
    let Some(stored) = stored else { return RunHistory { load, ..RunHistory::default() } };
    let past = |key: &str| {
        let known = stored.known.get(key)?;
        Some(CellHistory { rounds: known.rounds.clone(), completion_ms: known.completion_ms })
    };
    RunHistory::new(cells, past, &stored.records, load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_have_names_of_their_own_from_which_the_experiments_is_told() {
        let edited_name =
            |name: &str, text: &str| Draft::new(text.to_owned(), PathBuf::new()).edited_name(name);
        let (a, b) = (edited_name("p2p", "tp = [2]"), edited_name("p2p", "tp = [4]"));
        assert_ne!(a, b);
        assert_eq!(a, edited_name("p2p", "tp = [2]"), "found again");
        assert_eq!((name_before_edits(&a), name_before_edits(&b)), ("p2p", "p2p"));
        // an experiment may have such a name itself
        assert_eq!(name_before_edits("my-edited-sweep"), "my-edited-sweep");
        assert_eq!(name_before_edits(&edited_name("my-edited-sweep", "")), "my-edited-sweep");
    }

    #[test]
    fn a_latency_of_both_links_is_told_before_it_is_run() {
        let text = |p2p: &str| {
            format!(
                "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"tiny\"\n[grid]\np2p = {p2p}\n\
                 \"set.link.alpha_us\" = [5, 20]\n"
            )
        };
        let note = |p2p: &str| {
            let checked = check(1, &text(p2p), Path::new("e.toml"), None, None, &|| false);
            checked.experiment.expect("it can be read").notes.join("; ")
        };
        let both = note("[\"on\", \"off\"]");
        assert!(both.contains("both P2P settings") && both.contains("link.p2p_off.alpha_us"), "{both}");
        assert_eq!(note("[\"on\"]"), "", "there is one link");
    }

    #[test]
    fn what_a_backend_does_not_read_is_told_beside_the_count_of_cells() {
        let text = "backend = \"cpu\"\n[model]\nname = \"tiny\"\n[grid]\nnvls = [\"on\", \"off\"]\n";
        let checked = check(1, text, Path::new("e.toml"), None, None, &|| false);
        let experiment = checked.experiment.expect("it can be read");
        assert_eq!(experiment.cells.len(), 1);
        assert!(experiment.notes.last().is_some_and(|note| note.starts_with("1 of 2 cells")));
    }
}
