//! What is being typed on the page of experiments: values, lists, settings, the name of a new axis, the
//! name of a file. Enter takes it, Escape forgets it.

use crossterm::event::{KeyCode, KeyEvent};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};
use tui_input::Input;

use super::Experiments;
use super::save::{Save, SaveTo};
use crate::face::tui::context::Context;
use crate::face::tui::keys::{paste_into, type_into};
use crate::lab::sweep::edit::{AxisName, Edit, axis_names, split_values};
use crate::table::Spec;
use crate::table::options::PAIRS;

/// A line that is being typed, and what it is for.
#[derive(Clone, Debug)]
pub struct Typing {
    /// The line so far, with its cursor.
    pub input: Input,
    /// What it is for.
    pub what: What,
    /// Why it could not be used.
    pub error: Option<String>,
}

/// What a line is for.
#[derive(Clone, Debug)]
pub enum What {
    /// A value in the place of one of an axis.
    Value {
        /// The name of the axis.
        axis: String,
        /// Which of its values.
        index: usize,
    },
    /// Values more, before the one at `index`.
    NewValue {
        /// The name of the axis.
        axis: String,
        /// Before which of the values it goes, from 0.
        index: usize,
    },
    /// All values of an axis.
    Values {
        /// The name of the axis.
        axis: String,
    },
    /// The value of a setting.
    Setting {
        /// The name of the setting.
        name: String,
    },
    /// Which axis to add.
    Axis(Box<Picker>),
    /// The values of an axis to be added.
    AxisValues {
        /// The name of the axis.
        axis: String,
        /// What it is.
        about: String,
    },
    /// The name of a file.
    FileName {
        /// The edits go with it.
        moves: bool,
    },
}

/// Names to choose an axis from.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    /// All names that an axis can have.
    pub names: Vec<AxisName>,
    /// Those that match what was typed, the best first: indices.
    pub found: Vec<usize>,
    /// The selected one of those.
    pub selected: usize,
}

impl Typing {
    /// A line for `what` that begins as `text`.
    pub fn new(what: What, text: &str) -> Self {
        Self { input: Input::new(text.to_owned()), what, error: None }
    }

    /// What may be typed, in words.
    pub fn hint(&self) -> String {
        match &self.what {
            What::Value { axis, .. } | What::Setting { name: axis } => {
                format!("{axis}: Enter takes it, Esc leaves it as it was")
            }
            What::NewValue { axis, .. } | What::Values { axis } => {
                format!("{axis}: values between blanks or commas; 1..64*2 is 1 2 4 8 16 32 64")
            }
            What::Axis(_) => {
                "type to search; any env.NAME or set.KEY can be typed; Enter takes it".into()
            }
            What::AxisValues { axis, about } => {
                format!("{axis}: {about}; write values between blanks or commas")
            }
            What::FileName { moves: true } => {
                "save as: a name; the file goes to experiments/NAME.toml".into()
            }
            What::FileName { moves: false } => {
                "a copy: a name; the file goes to experiments/NAME.toml".into()
            }
        }
    }
}

impl Picker {
    /// Names to vary that the text does not vary yet.
    pub fn new(spec: Option<&Spec>, varied: &[String]) -> Self {
        let mut names = axis_names(spec);
        names.retain(|name| !varied.contains(&name.name));
        let mut picker = Self { names, ..Self::default() };
        picker.search("");
        picker
    }

    /// Finds the names that match what was typed, the best first.
    fn search(&mut self, query: &str) {
        let query = query.replace([' ', '='], "");
        self.selected = 0;
        if query.is_empty() {
            self.found = (0..self.names.len()).collect();
            return;
        }
        let pattern = Pattern::parse(&query, CaseMatching::Ignore, Normalization::Smart);
        let mut matcher = Matcher::new(Config::DEFAULT);
        let candidates = self.names.iter().enumerate().map(|(at, name)| Candidate(at, &name.name));
        self.found =
            pattern.match_list(candidates, &mut matcher).into_iter().map(|(c, _)| c.0).collect();
        // who types a part of a name means that name
        let typed = query.to_lowercase();
        let names = &self.names;
        let has =
            |at: &usize| names.get(*at).is_some_and(|name| name.name.to_lowercase().contains(&typed));
        self.found.sort_by_key(|at| !has(at));
    }

    /// What Enter takes: the selected name, or the variable that was typed; and what it is.
    pub fn choice(&self, typed: &str) -> Option<(String, String)> {
        if let Some(name) = self.found.get(self.selected).and_then(|at| self.names.get(*at)) {
            return Some((name.name.clone(), name.about.clone()));
        }
        let typed = typed.trim();
        let variable = typed.strip_prefix("env.").or(typed.starts_with("NCCL_").then_some(typed));
        if let Some(variable) = variable.filter(|name| !name.is_empty()) {
            return Some((format!("env.{variable}"), PAIRS[0].help.to_owned()));
        }
        let value = typed.strip_prefix("set.").filter(|key| !key.is_empty())?;
        Some((format!("set.{value}"), PAIRS[1].help.to_owned()))
    }
}

struct Candidate<'a>(usize, &'a str);

impl AsRef<str> for Candidate<'_> {
    fn as_ref(&self) -> &str {
        self.1
    }
}

/// A key while something is typed; `false` where nothing is.
pub fn key(experiments: &mut Experiments, key: KeyEvent, cx: &mut Context) -> bool {
    let Some(typing) = &mut experiments.typing else { return false };
    match key.code {
        KeyCode::Esc => experiments.typing = None,
        KeyCode::Enter => take(experiments, cx),
        KeyCode::Up | KeyCode::Down if let What::Axis(picker) = &mut typing.what => {
            let by = if key.code == KeyCode::Up { -1 } else { 1 };
            let last = picker.found.len().saturating_sub(1);
            picker.selected = picker.selected.saturating_add_signed(by).min(last);
        }
        _ => {
            if type_into(&mut typing.input, key) {
                changed(typing);
            }
        }
    }
    true
}

/// Puts pasted text into what is being typed; whether something was.
pub fn paste(experiments: &mut Experiments, text: &str) -> bool {
    let Some(typing) = &mut experiments.typing else { return false };
    paste_into(&mut typing.input, text);
    changed(typing);
    true
}

fn changed(typing: &mut Typing) {
    typing.error = None;
    if let What::Axis(picker) = &mut typing.what {
        picker.search(typing.input.value());
    }
}

/// Enter: what was typed becomes an edit, or the line says why not.
fn take(experiments: &mut Experiments, cx: &mut Context) {
    let Some(typing) = experiments.typing.take() else { return };
    if let Err(why) = taken(experiments, &typing, cx) {
        experiments.typing = Some(Typing { error: Some(why), ..typing });
    }
}

fn taken(experiments: &mut Experiments, typing: &Typing, cx: &mut Context) -> Result<(), String> {
    let text = typing.input.value().trim().to_owned();
    let (edits, name, column) = match &typing.what {
        What::FileName { moves } => {
            return Experiments::write(save_as(experiments, &text, *moves)?, cx);
        }
        What::Axis(picker) => {
            let (axis, about) = picker
                .choice(&text)
                .ok_or("no such name: an option, env.NAME, NCCL_NAME or set.KEY can be an axis")?;
            let draft = experiments.draft().ok_or("no experiment is selected")?;
            // a setting that becomes an axis begins with its value
            let start = draft.rows.iter().find(|row| row.name == axis).map(|row| row.values.join(" "));
            let what = What::AxisValues { axis, about };
            let start = start.map(|value| format!("{value} ")).unwrap_or_default();
            experiments.typing = Some(Typing::new(what, &start));
            return Ok(());
        }
        What::Setting { name } => {
            if text.is_empty() {
                return Err("nothing was typed; to go back to the default, remove the setting".into());
            }
            (vec![Edit::Set { name: name.clone(), value: text }], name, 1)
        }
        What::Value { axis, index } => {
            let mut values = values(axis, &text)?.into_iter();
            let first =
                values.next().map(|value| Edit::Replace { axis: axis.clone(), index: *index, value });
            let more = values.enumerate().map(|(i, value)| insert(axis, index + 1 + i, value));
            (first.into_iter().chain(more).collect(), axis, index + 1)
        }
        What::NewValue { axis, index } => {
            let values = values(axis, &text)?;
            let last = index + values.len();
            let edits = values.into_iter().enumerate().map(|(i, value)| insert(axis, index + i, value));
            (edits.collect(), axis, last)
        }
        What::Values { axis } => {
            (vec![Edit::Values { axis: axis.clone(), values: values(axis, &text)? }], axis, 0)
        }
        What::AxisValues { axis, .. } => {
            (vec![Edit::AddAxis { axis: axis.clone(), values: values(axis, &text)? }], axis, 1)
        }
    };
    let draft = experiments.draft_mut().ok_or("no experiment is selected")?;
    draft.edit(&edits)?;
    draft.select(name, column);
    experiments.discard = false;
    Ok(())
}

fn values(axis: &str, text: &str) -> Result<Vec<String>, String> {
    let values = split_values(axis, text);
    if values.is_empty() { Err("an axis needs at least one value".into()) } else { Ok(values) }
}

fn insert(axis: &str, index: usize, value: String) -> Edit {
    Edit::Insert { axis: axis.to_owned(), index, value }
}

fn save_as(experiments: &Experiments, typed: &str, moves: bool) -> Result<Save, String> {
    let name = typed.strip_suffix(".toml").unwrap_or(typed).trim();
    let fine = |c: char| !c.is_control() && c != '/' && c != '\\';
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fine) {
        return Err(format!("'{typed}' cannot name a file: letters, digits, '-', '_'"));
    }
    let entry = experiments.selected().ok_or("no experiment is selected")?;
    let draft = experiments.draft().ok_or("no experiment is selected")?;
    Ok(Save {
        from: entry.name.clone(),
        to: SaveTo::Name(name.to_owned()),
        text: draft.revisions.text().to_owned(),
        expected: None,
        overwrite: false,
        moves,
    })
}
