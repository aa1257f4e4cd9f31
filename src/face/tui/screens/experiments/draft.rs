//! An experiment while it is looked at and edited: its text with undo, the rows of its editor, and what
//! checking the text said.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use super::state::Stored;
use crate::face::tui::widgets::list::List;
use base::hash;
use lab::sweep::Experiment;
use lab::sweep::edit::{Edit, EntryKind, Outline, Revisions};
use lab::sweep::forecast::Forecast;
use study::answer::Answer;
use table::options::value;

/// Settings that are shown even where the text leaves them to their defaults.
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

/// An experiment's text in the editor.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Names the text in errors; relative paths in it start there.
    pub path: PathBuf,
    /// The text and its past.
    pub revisions: Revisions,
    /// The rows of the editor.
    pub rows: Vec<Row>,
    /// Why the text cannot be edited here: it is no TOML.
    pub broken: Option<String>,
    /// The rows, which of them is selected, and which are shown.
    pub list: List,
    /// The selected column: 0 is the name, values follow.
    pub column: usize,
    /// What checking the text said last.
    pub checked: Option<Checked>,
    /// The last experiment that the text was while it was right: what defaults are.
    right: Option<Arc<Experiment>>,
    /// The check that is under way, or was the last; 0: none of the text as it is.
    pub serial: u64,
    /// It is to be checked again: the text, or the stored runs, have changed since.
    pub stale: bool,
    /// What checking said is of the text as it is.
    current: bool,
    /// Stored runs have changed while a check was under way.
    again: bool,
}

/// A row of the editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The setting's or axis's name.
    pub name: String,
    /// Whether it is a setting, an axis or something to be added.
    pub kind: RowKind,
    /// The values as they stand in the file.
    pub values: Vec<String>,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// An axis of the grid.
    Axis,
    /// A setting, the same for all cells, that the text gives.
    Setting,
    /// A setting, the same for all cells, that the text leaves at its default.
    Default,
}

/// What checking a text said.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The number of the check, to match its answer.
    pub serial: u64,
    /// The experiment; else what is wrong, with line and column.
    pub experiment: Result<Arc<Experiment>, String>,
    /// What a sweep of it would do.
    pub forecast: Option<Forecast>,
    /// What its stored runs answer.
    pub answers: Vec<Answer>,
    /// What should be known of it before it is run.
    pub note: Option<String>,
}

/// What stands behind the name of an experiment whose edits were run and not saved, before
/// what tells these edits from others.
const EDITED: &str = "-edited-";

/// The name under which runs of an edited text that nobody saved are stored: `NAME-edited-3f2a91`. The same text has
/// the same name, so that its runs are found again; other edits have another.
pub fn edited_name(name: &str, text: &str) -> String {
    format!("{name}{EDITED}{}", &hash::short_key(text)[..6])
}

/// The name of the experiment whose edits were run under this name: the name itself where none were.
pub fn name_before_edits(name: &str) -> &str {
    let is_mark = |mark: &str| mark.len() == 6 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.rsplit_once(EDITED) {
        Some((before, mark)) if is_mark(mark) => before,
        _ => name,
    }
}

impl Draft {
    /// A draft of an experiment's text, which `path` names in errors; it waits to be checked.
    pub fn new(text: String, path: PathBuf) -> Self {
        let mut draft = Self { path, revisions: Revisions::new(text), stale: true, ..Self::default() };
        draft.refresh();
        draft
    }

    /// What is stored of the runs of the edited text; nothing until that is checked.
    pub fn stored(&self) -> Stored {
        let forecast = self.checked.as_ref().filter(|_| self.current).and_then(|c| c.forecast.as_ref());
        forecast.map_or_else(Stored::default, |f| Stored { runs: f.runs, done: f.stored })
    }

    /// Whether what is shown of the check is of the text as it is.
    pub fn is_checked(&self) -> bool {
        !self.stale && self.checked.as_ref().is_some_and(|checked| checked.serial == self.serial)
    }

    /// The experiment as it is edited, once it is checked and right; else why it cannot be run.
    pub fn experiment(&self) -> Result<Arc<Experiment>, String> {
        match &self.checked {
            Some(checked) if self.current => checked.experiment.clone(),
            _ => Err("the edited experiment is still being checked".into()),
        }
    }

    /// Takes edits; whether the text changed.
    pub fn edit(&mut self, edits: &[Edit]) -> Result<bool, String> {
        let changed = self.revisions.edit(&self.path, edits).map_err(|error| error.to_string())?;
        if changed {
            self.refresh();
        }
        Ok(changed)
    }

    /// Takes up a text that was edited before.
    pub fn take_up(&mut self, text: String) {
        self.revisions.replace(text);
        self.refresh();
    }

    /// Undoes an edit, or does it again; whether there was one.
    pub fn travel(&mut self, back: bool) -> bool {
        let done = if back { self.revisions.undo() } else { self.revisions.redo() };
        if done {
            self.refresh();
        }
        done
    }

    /// The text was read again.
    pub fn reread(&mut self, text: String) {
        if self.revisions.saved() != text {
            self.revisions.reread(text);
            self.refresh();
        }
    }

    /// Takes the answer to a check.
    pub fn learn(&mut self, checked: Checked) {
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

    /// The row that is selected.
    pub fn row(&self) -> Option<&Row> {
        self.rows.get(self.list.selected)
    }

    /// Selects a row by its name, and one of its columns.
    pub fn select(&mut self, name: &str, column: usize) {
        if let Some(at) = self.rows.iter().position(|row| row.name == name) {
            self.list.selected = at;
            self.column = column;
        }
        self.bound();
    }

    /// Keeps the selection within what there is.
    pub fn bound(&mut self) {
        self.list.selected = self.list.selected.min(self.rows.len().saturating_sub(1));
        let columns = self.row().map_or(0, |row| row.values.len());
        self.column = self.column.min(columns);
    }

    /// Stored runs have changed: what a sweep would do is forecast anew, once a check that is under way
    /// has ended. Whether the text can be run does not depend on them.
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
        self.fill_rows();
    }

    fn fill_rows(&mut self) {
        let outline = match Outline::of(self.revisions.text(), &self.path) {
            Ok(outline) => outline,
            Err(error) => {
                (self.broken, self.rows) = (Some(error.to_string()), Vec::new());
                return;
            }
        };
        self.broken = None;
        let row = |kind| {
            move |entry: &lab::sweep::edit::Entry| Row {
                name: entry.name.clone(),
                kind,
                values: entry.values.clone(),
            }
        };
        let name = self.row().map(|row| row.name.clone());
        let mut rows: Vec<Row> = outline.axes().map(row(RowKind::Axis)).collect();
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
            rows.push(Row { name: default.to_owned(), kind: RowKind::Default, values });
        }
        rows.extend(settings(true).map(row(RowKind::Setting)));
        if outline.get("question").is_none() {
            let values = vec!["(what this experiment asks)".to_owned()];
            rows.push(Row { name: "question".to_owned(), kind: RowKind::Default, values });
        }
        self.rows = rows;
        if let Some(name) = name {
            self.select(&name, self.column);
        }
        self.bound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_have_names_of_their_own_from_which_the_experiments_is_told() {
        let (a, b) = (edited_name("p2p", "tp = [2]"), edited_name("p2p", "tp = [4]"));
        assert_ne!(a, b);
        assert_eq!(a, edited_name("p2p", "tp = [2]"), "found again");
        assert_eq!((name_before_edits(&a), name_before_edits(&b)), ("p2p", "p2p"));
        // an experiment may have such a name itself
        assert_eq!(name_before_edits("my-edited-sweep"), "my-edited-sweep");
        assert_eq!(name_before_edits(&edited_name("my-edited-sweep", "")), "my-edited-sweep");
    }
}
