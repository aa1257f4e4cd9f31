//! Screen 1: which experiments there are, what the selected one would do, and its grid, edited in
//! place.

pub mod check;
pub mod draft;
mod draw;
mod editor;
pub mod save;
pub mod state;
pub mod typing;

use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::draft::{Draft, RowKind};
use self::save::{NotSaved, Save, SaveTo};
use self::typing::{Picker, Typing, What};
use crate::sweep::edit::Edit;
use crate::sweep::{Choice, Experiment, Verdict};
use crate::text::csv_field;
use crate::tui::action::{Action, Binding, Screen, bind};
use crate::tui::layout::{cut_left, inside};
use crate::tui::message::Effect;
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind};
use crate::tui::state::{List, Overlay, Question, State};
use crate::tui::update::ask;

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Run,
    Choose,
    Left,
    Right,
    AddValue,
    AddAxis,
    Remove,
    MoveLeft,
    MoveRight,
    Undo,
    Redo,
    Save,
    SaveAs,
    Duplicate,
    ShowFile,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("run", "r", Action::Experiments(Act::Run), "run the experiment; while a sweep runs, behind it", Some("run")),
    bind("choose", "Enter", Action::Experiments(Act::Choose), "run it; in the grid: type the value, or the list", None),
    bind("grid", "Right l", Action::Experiments(Act::Right), "into the grid; there: next value", Some("edit")),
    bind("back", "Left h", Action::Experiments(Act::Left), "previous value; from a name: back to the list", None),
    bind("add-value", "a", Action::Experiments(Act::AddValue), "add values to the axis", Some("value")),
    bind("add-axis", "A", Action::Experiments(Act::AddAxis), "add an axis: any option, NCCL variable or profile value", Some("axis")),
    bind("remove", "D Delete", Action::Experiments(Act::Remove), "remove the value; on a name: the axis or the setting", Some("remove")),
    bind("move-left", "<", Action::Experiments(Act::MoveLeft), "move the value to the left", None),
    bind("move-right", ">", Action::Experiments(Act::MoveRight), "move the value to the right", None),
    bind("undo", "u", Action::Experiments(Act::Undo), "undo the last edit", Some("undo")),
    bind("redo", "ctrl-r", Action::Experiments(Act::Redo), "do again what was undone", None),
    bind("save", "w", Action::Experiments(Act::Save), "save the experiment's file, comments kept", Some("save")),
    bind("save-as", "W", Action::Experiments(Act::SaveAs), "save under another name", None),
    bind("duplicate", "c", Action::Experiments(Act::Duplicate), "copy the experiment to a new file", None),
    bind("show-file", "e", Action::Experiments(Act::ShowFile), "show the experiment's file, as edited", Some("file")),
];

/// The page.
#[derive(Debug)]
pub struct Experiments;

impl Page for Experiments {
    fn title(&self) -> &'static str {
        "experiments"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((state.experiments.len(), inside(areas(body).0)))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.experiments.list)
    }

    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        let len = state.experiments.len();
        if !state.experiments.editing {
            state.experiments.list.move_by(rows, len);
        } else if let Some(draft) = state.experiments.draft_mut() {
            let len = draft.rows.len();
            draft.list.move_by(rows, len);
            draft.bound();
        }
        Vec::new()
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        typing::key(state, key)
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        typing::paste(state, text)
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        let (left, right) = areas(body);
        if state.experiments.typing.is_some() {
            return Some(Vec::new());
        }
        if left.contains(event.at) {
            if matches!(event.kind, PointerKind::Click) {
                state.experiments.editing = false;
            }
            return None;
        }
        match event.kind {
            PointerKind::Wheel(notches) if right.contains(event.at) => {
                let draft = state.experiments.draft_mut()?;
                let len = draft.rows.len();
                draft.list.move_by(notches, len);
                draft.bound();
            }
            PointerKind::Click | PointerKind::DoubleClick => {
                let (row, column) = editor::hit(state, right, event.at)?;
                state.experiments.editing = true;
                let draft = state.experiments.draft_mut()?;
                (draft.list.selected, draft.column) = (row, column);
                draft.bound();
                if event.kind == PointerKind::DoubleClick {
                    return Some(act(state, Act::Choose));
                }
            }
            _ => {}
        }
        Some(Vec::new())
    }

    fn close(&self, state: &mut State) {
        state.experiments.editing = false;
    }

    fn settle(&self, state: &mut State, body: Rect, effects: &mut Vec<Effect>) {
        let (left, right) = areas(body);
        let len = state.experiments.len();
        state.experiments.list.fit(len, usize::from(inside(left).height));
        // a sweep stores runs all the time: only who looks at the forecast needs a new one
        if state.screen == Screen::Experiments
            && let Some((serial, name, path, text)) = state.experiments.wanted_check()
        {
            let stored = state.stored.clone();
            effects.push(Effect::CheckDraft { serial, name, path, text, stored });
        }
        let height = usize::from(editor::parts(state, inside(right)).rows.height);
        if let Some(draft) = state.experiments.draft_mut() {
            draft.bound();
            editor::fit(draft, height);
        }
    }

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        Some(state.experiments.remember())
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        state.experiments.recall(kept);
        Vec::new()
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        let entry = state.experiments.selected()?;
        // a command would run what is saved
        if state.experiments.draft().is_some_and(|draft| draft.revisions.is_edited()) {
            return None;
        }
        let file = entry.path().map_or_else(|| entry.name.clone(), |path| path.display().to_string());
        Some(vec!["sweep".into(), file])
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        if kind != FileKind::Csv {
            return Ok(None);
        }
        let draft = state.experiments.draft().ok_or("no experiment is selected")?;
        let experiment = draft.experiment()?;
        Ok(Some(Export::new(move |path| {
            crate::store::atomic::write(path, cells_csv(&experiment).as_bytes())
        })))
    }
}

/// (The list with its frame, the editor with its).
fn areas(body: Rect) -> (Rect, Rect) {
    cut_left(body, (body.width / 4).clamp(24, 40))
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let Some(entry) = state.experiments.selected().cloned() else {
        state.inform("no experiment is selected");
        return Vec::new();
    };
    let editing = state.experiments.editing;
    match act {
        Act::ShowFile => {
            let text = state.experiments.draft().map_or(entry.text.as_str(), |d| d.revisions.text());
            let lines = text.lines().map(|l| l.replace('\t', "    ")).collect();
            let title = format!("{} ({})", entry.name, entry.place);
            state.overlays.push(Overlay::Text { title, lines, scroll: 0 });
        }
        Act::Run => return run(state),
        Act::Choose if !editing => return run(state),
        Act::Right if !editing => {
            match state.experiments.draft().and_then(|draft| draft.broken.clone()) {
                Some(why) => state.inform(format!("it cannot be edited here: {why}")),
                None => state.experiments.editing = true,
            }
        }
        Act::Left if !editing => {}
        Act::Save => return save(state),
        Act::SaveAs | Act::Duplicate => {
            let moves = act == Act::SaveAs;
            let name = if moves { entry.name } else { format!("{}-copy", entry.name) };
            state.experiments.typing = Some(Typing::new(What::FileName { moves }, &name));
        }
        _ => {
            // what edits the grid goes into it
            state.experiments.editing = true;
            if let Err(why) = edit(state, act) {
                state.inform(why);
            }
        }
    }
    Vec::new()
}

/// What can be done in the grid; why it was not, where it was not.
fn edit(state: &mut State, act: Act) -> Result<(), String> {
    let spec = state.experiments.draft().and_then(|draft| {
        let checked = draft.checked.as_ref()?.experiment.as_ref().ok()?;
        checked.cells.first().map(|cell| cell.spec.clone())
    });
    let (add_axis, add_value) = (key(state, Act::AddAxis), key(state, Act::AddValue));
    let draft = state.experiments.draft_mut().ok_or("no experiment is selected")?;
    if let Some(broken) = &draft.broken {
        return Err(format!("it cannot be edited here: {broken}"));
    }
    if matches!(act, Act::Undo | Act::Redo) {
        let done = draft.travel(act == Act::Undo);
        let nothing = if act == Act::Undo { "nothing to undo" } else { "nothing to do again" };
        return if done { Ok(()) } else { Err(nothing.into()) };
    }
    if act == Act::AddAxis {
        let axes = draft.rows.iter().filter(|row| row.kind == RowKind::Axis);
        let varied: Vec<String> = axes.map(|row| row.name.clone()).collect();
        let picker = Picker::new(spec.as_ref(), &varied);
        state.experiments.typing = Some(Typing::new(What::Axis(Box::new(picker)), ""));
        return Ok(());
    }
    let row =
        draft.row().cloned().ok_or_else(|| format!("the grid is empty: {add_axis} adds an axis"))?;
    let (name, column) = (row.name.clone(), draft.column);
    let value = column.checked_sub(1);
    let only_axes = || format!("{name} is the same for all cells: {add_axis} makes an axis of it");
    let what = match (act, row.kind) {
        (Act::Left, _) => {
            match value {
                Some(_) => draft.column -= 1,
                None => state.experiments.editing = false,
            }
            return Ok(());
        }
        (Act::Right, _) => {
            draft.column = (column + 1).min(row.values.len());
            return Ok(());
        }
        (Act::Choose, RowKind::Setting) => Typing::new(What::Setting { name }, &row.values.join(" ")),
        (Act::Choose, RowKind::Default) => {
            let start = if name == "question" { String::new() } else { row.values.join(" ") };
            Typing::new(What::Setting { name }, &start)
        }
        (Act::Choose, RowKind::Axis) => match value {
            Some(index) => {
                let old = row.values.get(index).cloned().unwrap_or_default();
                Typing::new(What::Value { axis: name, index }, &old)
            }
            None => Typing::new(What::Values { axis: name }, &row.values.join(" ")),
        },
        (Act::AddValue, RowKind::Axis) => {
            let index = if column == 0 { row.values.len() } else { column };
            Typing::new(What::NewValue { axis: name, index }, "")
        }
        (Act::Remove, RowKind::Default) => return Err(format!("{name} is at its default already")),
        (Act::Remove, RowKind::Axis) if value.is_some() && row.values.len() > 1 => {
            draft.edit(&[Edit::Remove { axis: name, index: column - 1 }])?;
            state.experiments.discard = false;
            return Ok(());
        }
        (Act::Remove, RowKind::Axis) if value.is_some() => {
            return Err(format!(
                "an axis needs a value: {add_value} adds one; on its name, the same key removes the axis"
            ));
        }
        (Act::Remove, _) => {
            draft.edit(&[Edit::Drop { name }])?;
            state.experiments.discard = false;
            return Ok(());
        }
        (Act::MoveLeft | Act::MoveRight, RowKind::Axis) => {
            let from = value.ok_or("select a value to move it")?;
            let to = if act == Act::MoveLeft { from.saturating_sub(1) } else { from + 1 };
            if to < row.values.len() && to != from {
                draft.edit(&[Edit::Move { axis: name, from, to }])?;
                draft.column = to + 1;
                state.experiments.discard = false;
            }
            return Ok(());
        }
        (Act::AddValue | Act::MoveLeft | Act::MoveRight, _) => return Err(only_axes()),
        _ => return Ok(()),
    };
    state.experiments.typing = Some(what);
    Ok(())
}

fn key(state: &State, act: Act) -> String {
    state.keys.label(Action::Experiments(act))
}

/// Starts the selected experiment as it is edited; behind the sweep that runs, if one does.
fn run(state: &mut State) -> Vec<Effect> {
    let Some(entry) = state.experiments.selected() else { return Vec::new() };
    let edited = state.experiments.draft().is_some_and(|draft| draft.revisions.is_edited());
    let experiment = match (edited, &entry.experiment, state.experiments.draft()) {
        (false, Ok(experiment), _) => Ok(Arc::new((**experiment).clone())),
        (false, Err(error), _) => Err(error.clone()),
        (true, _, draft) => draft.map_or_else(|| Err("nothing is selected".into()), Draft::experiment),
    };
    match experiment {
        Ok(experiment) => super::live::start(state, experiment, Choice::Missing),
        Err(error) => {
            state.fail(error);
            Vec::new()
        }
    }
}

fn save(state: &mut State) -> Vec<Effect> {
    let Some(entry) = state.experiments.selected().cloned() else { return Vec::new() };
    let Some(draft) = state.experiments.draft() else { return Vec::new() };
    let Some(path) = entry.path() else {
        // what is built in has no file: the new one, of whatever name, takes the edits
        state.experiments.typing = Some(Typing::new(What::FileName { moves: true }, &entry.name));
        return Vec::new();
    };
    if !draft.revisions.is_edited() {
        state.inform("nothing to save: it is as its file has it");
        return Vec::new();
    }
    vec![Effect::SaveExperiment(Save {
        from: entry.name,
        to: SaveTo::File(path),
        text: draft.revisions.text().to_owned(),
        expected: Some(draft.revisions.saved().to_owned()),
        overwrite: false,
        moves: false,
    })]
}

/// A file was written, or was not.
pub fn saved(
    state: &mut State,
    save: Save,
    result: Result<std::path::PathBuf, NotSaved>,
) -> Vec<Effect> {
    match result {
        Ok(path) => {
            let name = save.name();
            let same = name == save.from;
            if let Some(draft) = state.experiments.drafts.get_mut(&save.from) {
                if same {
                    draft.revisions.wrote(save.text.clone());
                } else if save.moves && !same {
                    state.experiments.drafts.remove(&save.from);
                }
            }
            state.experiments.want(name);
            state.inform(format!("written: {}", path.display()));
            return vec![Effect::LoadExperiments];
        }
        Err(NotSaved::Differs) => {
            state.experiments.unsaved = Some(save);
            ask(state, Question::Overwrite);
        }
        Err(NotSaved::Failed(why)) => state.fail(why),
    }
    Vec::new()
}

/// The user wants the file written over.
pub fn overwrite(state: &mut State) -> Vec<Effect> {
    let save = state.experiments.unsaved.take();
    save.into_iter().map(|save| Effect::SaveExperiment(Save { overwrite: true, ..save })).collect()
}

/// The cells of an experiment as CSV.
fn cells_csv(experiment: &Experiment) -> String {
    let mut text = String::from("cell");
    for axis in
        experiment.axes.iter().map(String::as_str).chain(["backend", "provenance", "verdict", "reason"])
    {
        text.push_str(&format!(",{}", csv_field(axis)));
    }
    text.push('\n');
    for (index, cell) in experiment.cells.iter().enumerate() {
        let (verdict, reason) = match &cell.verdict {
            Verdict::Runs => ("runs", ""),
            Verdict::Skipped(reason) => ("skipped", reason.as_str()),
            Verdict::Oom(reason) => ("oom", reason.as_str()),
        };
        text.push_str(&index.to_string());
        for axis in &experiment.axes {
            text.push_str(&format!(",{}", csv_field(&state::value(&cell.spec, axis))));
        }
        let backend = cell.spec.backend.as_str().to_owned();
        for field in [backend, cell.spec.provenance().to_string(), verdict.to_owned(), reason.to_owned()]
        {
            text.push_str(&format!(",{}", csv_field(&field)));
        }
        text.push('\n');
    }
    text
}

/// Asks before edits are lost; whether there was something to ask.
pub fn ask_before_leaving(state: &mut State) -> bool {
    let unsaved = !state.experiments.discard && !state.experiments.edited().is_empty();
    if unsaved {
        ask(state, Question::QuitUnsaved);
        state.screen = Screen::Experiments;
    }
    unsaved
}
