//! Input on the experiments screen. Values, lists and settings are edited inline, where Enter accepts
//! and Escape discards; a new axis, its values and file names use overlays. Also
//! saves the file, never over unseen changes.

use std::path::{Path, PathBuf};

use super::draft::said;
use super::{Experiments, NOTHING_SELECTED};
use crate::desk::offers;
use crate::face::tui::prelude::*;
use base::error::Error;
use base::input::InputKind;
use base::offer::Offer;
use lab::sweep::edit::{ExperimentEdit, axis_names, split_values};
use table::options::{ENV_PAIRS, OptionEntry, OptionKind, SET_PAIRS, option, pair};
use table::{CellOptions, Spec};

#[derive(Clone, Debug)]
pub struct InlineEdit {
    pub name: String,
    pub what: EditTarget,
}

#[derive(Clone, Copy, Debug)]
pub enum EditTarget {
    /// Replaces the value at this index of an axis.
    Value(usize),
    /// Inserts one or more values before this index of an axis.
    NewValue(usize),
    Values,
    Setting,
}

/// Opens an inline prompt for part of an axis or setting; `spec` is a sample cell for completions.
pub fn ask(
    experiments: &mut Experiments,
    name: String,
    what: EditTarget,
    text: String,
    spec: Option<&Spec>,
    cx: &mut Context,
) {
    let counts = |option: &OptionEntry| matches!(option.kind, OptionKind::Count | OptionKind::Large);
    let is_number = name.starts_with("set.") || option(&name).is_some_and(counts);
    let how = match what {
        EditTarget::Value(_) | EditTarget::Setting => "",
        EditTarget::NewValue(_) | EditTarget::Values if is_number => {
            ". Values between blanks or commas; 1..64*2 is 1 2 4 8 16 32 64"
        }
        EditTarget::NewValue(_) | EditTarget::Values => ". Values between blanks or commas",
    };
    // an axis has no single current value
    let spec = spec.filter(|_| matches!(what, EditTarget::Setting) || name.starts_with("set."));
    let hint = format!("{name}: {}{how}", offers::about(&name, spec));
    let known = PromptCompletion::Words(offers::axis_values(&name));
    experiments.typing = Some(InlineEdit { name: name.clone(), what });
    let title = name.clone();
    cx.prompt(known, title, hint, text, move |screen: &mut Experiments, typed, _| {
        take(screen, &name, what, typed.trim())
    });
    if let Some(prompt) = cx.top_mut::<Prompt>() {
        prompt.in_place = true;
        // a list is edited, a single value replaced
        prompt.field.proposed &= !matches!(what, EditTarget::Values);
    }
}

/// Parses a variable outside the list (`env.NAME`, `NCCL_*`, `set.KEY`): its axis name and description.
fn variable(typed: &str) -> Option<(String, String)> {
    let typed = typed.trim();
    let variable = typed.strip_prefix("env.").or(typed.starts_with("NCCL_").then_some(typed));
    if let Some(variable) = variable.filter(|name| !name.is_empty()) {
        return Some((format!("env.{variable}"), ENV_PAIRS.help.to_owned()));
    }
    let value = typed.strip_prefix("set.").filter(|key| !key.is_empty())?;
    Some((format!("set.{value}"), SET_PAIRS.help.to_owned()))
}

pub fn pick_axis(spec: Option<&Spec>, varied: &[String], cx: &mut Context) {
    let mut names = axis_names(spec);
    names.retain(|(name, _)| !varied.contains(name));
    let offered = names.clone();
    let literal = |typed: &str, nothing_matches: bool| {
        let (name, about) = variable(typed).filter(|_| nothing_matches)?;
        Some(format!("Enter takes {name}, {about}"))
    };
    let take = move |screen: &mut Experiments, chosen, cx: &mut Context| {
        let axis = match chosen {
            PickResult::Line(at) => offered.get(at).cloned(),
            PickResult::Text(typed) => variable(&typed),
        };
        if let Some((axis, about)) = axis {
            ask_values(screen, axis, &about, cx);
        }
    };
    cx.pick("add an axis: an option, env.NAME, NCCL_NAME or set.KEY", names, literal, take);
}

fn ask_values(experiments: &Experiments, axis: String, about: &str, cx: &mut Context) {
    // a setting that becomes an axis keeps its value
    let rows = experiments.draft().into_iter().flat_map(|draft| &draft.rows);
    let start = rows.filter(|row| row.name == axis).map(|row| row.values.join(" ") + " ").next();
    let known = experiments.spec().map(|spec| offers::about(&axis, Some(spec)));
    let about = known.unwrap_or_else(|| about.to_owned());
    let hint = format!("{about}. Separate values with spaces or commas");
    let title = format!("values of {axis}");
    let completing = PromptCompletion::Words(offers::axis_values(&axis));
    let start = start.unwrap_or_default();
    cx.prompt(completing, title, hint, start, move |screen: &mut Experiments, typed, _| {
        let edit = ExperimentEdit::AddAxis { axis: axis.clone(), values: values(&axis, typed.trim())? };
        take_valid(screen, &[edit], &axis, 1)
    });
}

/// Prompts for a file name to write the experiment to. `moves`: the edits move to the new file. Existing
/// names are offered as completions, so that a new name can start from one.
pub fn ask_name(experiments: &Experiments, name: &str, moves: bool, cx: &mut Context) {
    let known = experiments.entries.iter().flatten();
    let known =
        PromptCompletion::Words(known.map(|entry| Offer::new(&entry.name, &entry.place)).collect());
    let title = if moves { "save as" } else { "copy to" };
    let hint = "a name; the file goes to experiments/NAME.toml";
    cx.prompt(known, title, hint, name, move |screen: &mut Experiments, typed, cx| {
        Experiments::write(save_as(screen, &cx.experiments, typed.trim(), moves)?, cx)
    });
}

/// Converts typed text into edits and applies them; returns the reason if a value is invalid.
fn take(experiments: &mut Experiments, name: &str, what: EditTarget, text: &str) -> Result<(), String> {
    let (edits, column) = match what {
        EditTarget::Setting => {
            if text.is_empty() {
                return Err("empty; to restore the default, remove the setting".into());
            }
            check_value(name, text)?;
            (vec![ExperimentEdit::Set { name: name.to_owned(), value: text.to_owned() }], 1)
        }
        EditTarget::Value(index) => {
            let mut values = values(name, text)?.into_iter();
            let axis = name.to_owned();
            let first = values.next().map(|value| ExperimentEdit::Replace { axis, index, value });
            let more = values.enumerate().map(|(i, value)| insert(name, index + 1 + i, value));
            (first.into_iter().chain(more).collect(), index + 1)
        }
        EditTarget::NewValue(index) => {
            let row =
                experiments.draft().and_then(|draft| draft.rows.iter().find(|row| row.name == name));
            let mut known: Vec<String> = row.map_or_else(Vec::new, |row| row.values.clone());
            let (mut edits, mut at) = (Vec::new(), index);
            for value in values(name, text)? {
                at = place_in_order(&known, &value).unwrap_or(at).min(known.len());
                known.insert(at, value.clone());
                edits.push(insert(name, at, value));
                at += 1;
            }
            (edits, at)
        }
        EditTarget::Values => {
            (vec![ExperimentEdit::Values { axis: name.to_owned(), values: values(name, text)? }], 0)
        }
    };
    take_valid(experiments, &edits, name, column)
}

/// Applies edits of typed values unless they break the experiment; the prompt then keeps the text to be corrected.
fn take_valid(
    experiments: &mut Experiments,
    edits: &[ExperimentEdit],
    name: &str,
    column: usize,
) -> Result<(), String> {
    experiments.draft().ok_or(NOTHING_SELECTED)?.check_edits(edits)?;
    experiments.take_edits(edits, name, column)
}

/// Returns an error that names the value, the option and what it accepts.
fn check_value(name: &str, value: &str) -> Result<(), String> {
    if option(name).is_none() && pair(name).is_none() {
        return Ok(());
    }
    CellOptions::default().set_option(name, value).map_err(|error| said(&error))
}

/// Index at which a number keeps an axis of ascending numbers in order; `None` on other axes.
fn place_in_order(known: &[String], value: &str) -> Option<usize> {
    let value: f64 = value.parse().ok()?;
    let known = known.iter().map(|known| known.parse()).collect::<Result<Vec<f64>, _>>().ok()?;
    known.is_sorted().then(|| known.partition_point(|known| *known <= value))
}

fn values(axis: &str, text: &str) -> Result<Vec<String>, String> {
    let values = split_values(axis, text);
    if values.is_empty() {
        return Err("an axis needs at least one value".into());
    }
    values.iter().try_for_each(|value| check_value(axis, value))?;
    Ok(values)
}

fn insert(axis: &str, index: usize, value: String) -> ExperimentEdit {
    ExperimentEdit::Insert { axis: axis.to_owned(), index, value }
}

fn save_as(experiments: &Experiments, dir: &Path, typed: &str, moves: bool) -> Result<Save, String> {
    let name = typed.strip_suffix(".toml").unwrap_or(typed).trim();
    let fine = |c: char| !c.is_control() && c != '/' && c != '\\';
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fine) {
        return Err(format!("'{typed}': use letters, digits, '-' and '_'"));
    }
    let entry = experiments.selected().ok_or(NOTHING_SELECTED)?;
    let draft = experiments.draft().ok_or(NOTHING_SELECTED)?;
    Ok(Save {
        from: entry.name.clone(),
        path: dir.join(format!("{name}.toml")),
        text: draft.revisions.text().to_owned(),
        expected: None,
        overwrite: false,
        moves,
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    pub from: String,
    pub path: PathBuf,
    pub text: String,
    /// File contents at the last read; `None` if there was no file.
    pub expected: Option<String>,
    /// True to overwrite the file whatever it contains.
    pub overwrite: bool,
    /// True if the edits move to the new file and the source entry reverts to its saved text.
    pub moves: bool,
}

impl Save {
    /// Entry name of the target file.
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Writes the file atomically. Returns false if nothing was written because the file changed since it was read, or a new file
/// already exists.
pub fn write(save: &Save) -> base::error::Result<bool> {
    let path = &save.path;
    let there = path.exists().then(|| InputKind::EXPERIMENT.bytes(path)).transpose()?;
    // a file deleted in the meantime is written again
    let as_read = match (&there, &save.expected) {
        (None, _) => true,
        (Some(there), Some(expected)) => there == expected.as_bytes() || there == save.text.as_bytes(),
        (Some(there), None) => there == save.text.as_bytes(),
    };
    if !as_read && !save.overwrite {
        return Ok(false);
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Error::io(parent))?;
    }
    base::atomic::write(path, save.text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_since_it_was_read_is_not_overwritten_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("experiments/mine.toml");
        let mut save = Save {
            from: "mine".into(),
            path: path.clone(),
            text: "# new\n".into(),
            expected: None,
            overwrite: false,
            moves: false,
        };
        assert!(write(&save).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# new\n");
        // somebody edits it
        std::fs::write(&path, "# theirs\n").unwrap();
        (save.text, save.expected) = ("# mine\n".into(), Some("# new\n".into()));
        assert!(!write(&save).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# theirs\n");
        save.overwrite = true;
        assert!(write(&save).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# mine\n");
        // a new file never takes the place of another
        let other = Save { expected: None, overwrite: false, text: "# other\n".into(), ..save.clone() };
        assert!(!write(&other).unwrap());
        // a directory in the way is said
        let blocked = Save { path: dir.path().to_path_buf(), overwrite: true, ..save };
        assert!(write(&blocked).is_err());
    }
}
