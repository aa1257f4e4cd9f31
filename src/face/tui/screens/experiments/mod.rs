//! Screen 1: list of experiments, sweep forecast of the selected one, and its grid, edited in place.

mod draft;
mod draw;
mod list;
mod running;
pub mod state;
mod typing;

use crossterm::event::{KeyCode, KeyEvent};
use jiff::Timestamp;

use self::draft::{Draft, RowKind, check};
pub use self::draft::{history, is_edited};
use self::state::ExperimentEntry;
pub use self::state::Experiments;
use self::typing::{EditTarget, Save};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::texts::TextView;
use crate::face::tui::widgets::wrap::wrap_long_words;
use lab::sweep::edit::ExperimentEdit;
use lab::sweep::{Experiment, SweepSelection};
use table::options::value;
use table::render::csv;

const NOTHING_SELECTED: &str = "no experiment is selected";

const DROPPED: &str = "the key before was dropped: it waited for the experiments to load";

/// Built-in sweep of the paper's 70B figures.
const PAPER: &str = "paper-70b";

acts! {
    Run: "run", "r", "run it, or queue it while a sweep runs", Some("run"), "start launch sweep execute";
    RunAll: "run-all", "R", "run all cells again, stored ones too", None, "rerun restart repeat";
    Paper: "paper", "p", "run the paper's 70B sweep (simulated)", None, "llama 70b arxiv ladder";
    Choose: "choose", "Enter", "run it, or show its stored result; in the grid: edit", None;
    Right: "grid", "Right l", "enter the grid; inside: next value", Some("edit"), "change values";
    Left: "back", "Left h", "previous value; on a name: back to the list", Some("back");
    AddValue: "add-value", "a", "add values to the axis", Some("add value") => "add";
    AddAxis: "add-axis", "A", "add an axis: option, NCCL variable, profile value", Some("add axis") => "axis", "option parameter environment nccl";
    Remove: "remove", "D Delete", "remove the value; on a name: the axis or setting", Some("remove") => "del", "delete rm";
    MoveLeft: "move-left", "<", "move the value to the left", None;
    MoveRight: "move-right", ">", "move the value to the right", None;
    Undo: "undo", "u", "undo the last edit", Some("undo"), "revert back";
    Redo: "redo", "ctrl-r", "redo", None;
    Save: "save", "ctrl-s", "save the experiment file (keeps comments)", Some("save"), "write";
    SaveAs: "save-as", "W", "save under another name", None, "rename copy";
    Duplicate: "duplicate", "c", "copy the experiment to a new file", None, "new clone";
    ShowFile: "show-file", "e", "show the experiment file with your edits", Some("file"), "toml source edit";
}

impl Acts for Experiments {
    type Act = Act;

    fn why_not(&self, act: Act, cx: &Context) -> Option<&'static str> {
        let draft = self.draft().filter(|draft| draft.broken.is_none());
        let kind = draft.and_then(Draft::row).map(|row| row.kind);
        let (is_possible, why_not) = match act {
            Act::Undo => (draft.is_some_and(|draft| draft.revisions.can_undo()), NOTHING_TO_UNDO),
            // the files are only read while the screen is shown
            _ if cx.tab != Tab::Experiments => return None,
            Act::Left => (self.editing, "only in the grid"),
            // until the files are read, any key is kept for later
            _ if self.entries.is_none() => return None,
            Act::AddValue => (kind == Some(RowKind::Axis), "only on an axis"),
            Act::Remove => {
                (kind.is_some_and(|kind| kind != RowKind::Default), "only on an axis or setting")
            }
            Act::Right if self.editing => (false, "in the grid already"),
            Act::Right | Act::AddAxis if self.selected().is_some() => {
                (draft.is_some(), "the file is broken")
            }
            _ => (self.selected().is_some(), NOTHING_SELECTED),
        };
        (!is_possible).then_some(why_not)
    }

    fn hint(&self, act: Act, _cx: &Context) -> Option<HintWords> {
        let draft = self.draft().filter(|_| self.editing && act == Act::Choose)?;
        Some(HintWords::new(match (draft.row()?.kind, draft.column) {
            (RowKind::Axis, 0) => "edit list",
            _ => "edit value",
        }))
    }

    fn act(&mut self, act: Act, cx: &mut Context) {
        let Some(entry) = self.selected().cloned() else {
            match self.entries {
                None if act == Act::Paper => self.run_paper(cx),
                None => self.early = Some(act),
                Some(_) => cx.inform(NOTHING_SELECTED),
            }
            return;
        };
        let editing = self.editing;
        match act {
            Act::ShowFile => {
                let text = self.draft().map_or(entry.text.as_str(), |d| d.revisions.text());
                let text = text.replace('\t', "    ");
                let title = format!("{} ({})", entry.name, entry.place);
                cx.lay(TextView::new(title, move |width| {
                    let rows = |line: &str| match line.width() <= width {
                        true => vec![line.to_owned()],
                        false => wrap_long_words(line, width),
                    };
                    text.lines().flat_map(rows).map(|row| vec![(row, Role::Text)]).collect()
                }));
            }
            Act::Choose if !editing => self.open(cx),
            Act::Run => self.run(SweepSelection::Missing, cx),
            Act::RunAll => self.run(SweepSelection::Again(Timestamp::now()), cx),
            Act::Paper => self.run_paper(cx),
            Act::Right if !editing => match self.draft().and_then(|draft| draft.broken.clone()) {
                Some(why) => cx.inform(format!("cannot edit here: {why}")),
                None => self.editing = true,
            },
            Act::Left if !editing => {}
            Act::Save => self.save(cx),
            Act::SaveAs | Act::Duplicate => {
                let moves = act == Act::SaveAs;
                let name = if moves { entry.name } else { format!("{}-copy", entry.name) };
                typing::ask_name(self, &name, moves, cx);
            }
            _ => {
                // grid edits move the focus into the grid
                self.editing = true;
                if let Err(why) = self.edit(act, cx) {
                    cx.inform(why);
                }
            }
        }
    }
}

impl Experiments {
    /// Reads the files. At startup: the names, then the selected experiment with its forecast, then each of the others,
    /// which have thousands of cells to plan: only once this screen is visible, since that takes all cores for seconds.
    fn read(&self, cx: &mut Context) {
        if self.entries.is_some() {
            return self.read_all(cx);
        }
        let dir = cx.experiments.clone();
        let names = move |_: &_| Ok(state::names(&dir));
        cx.follow("names", &self.readings, names, |screen: &mut Self, names, cx| {
            screen.list_names(cx.ok_or_fail(names).unwrap_or_default());
            match screen.wanted_ahead() {
                Some(_) => screen.read_ahead(cx),
                None => screen.read_all(cx),
            }
        });
    }

    fn read_ahead(&self, cx: &mut Context) {
        let (Some(name), dir) = (self.wanted_ahead().cloned(), cx.experiments.clone()) else { return };
        let key = name.clone();
        let load = move |_: &_| Ok(state::load_one(&dir, &name));
        cx.want("ahead", &key, load, |screen: &mut Self, entry, cx| {
            match cx.ok_or_fail(entry).flatten() {
                Some(entry) => screen.set_ahead(entry, cx.stored.as_deref()),
                None => screen.read_all(cx),
            }
            if cx.tab == Tab::Experiments {
                screen.act_early(cx);
            }
        });
    }

    /// Reads the files that are not read yet, each by itself, so that the counts of small grids do not wait for large ones.
    fn read_rest(&mut self, cx: &mut Context) {
        if self.entries.is_some() {
            return;
        }
        let Some(name) = self.next_unread().cloned() else {
            self.set_loaded(cx.stored.as_deref());
            return self.act_early(cx);
        };
        let (dir, key) = (cx.experiments.clone(), name.clone());
        let load = move |_: &_| Ok(state::load_one(&dir, &name));
        cx.follow("rest", &key, load, |screen: &mut Self, entry, cx| {
            match cx.ok_or_fail(entry).flatten() {
                Some(entry) => {
                    screen.set_ahead(entry, cx.stored.as_deref());
                    screen.read_rest(cx);
                }
                None => screen.read_all(cx),
            }
        });
    }

    /// Reads all files, one read at a time: requests during a read are merged into a single further read.
    fn read_all(&self, cx: &mut Context) {
        let dir = cx.experiments.clone();
        let load = move |_: &_| state::load(&dir);
        cx.follow("files", &self.readings, load, |screen: &mut Self, entries, cx| {
            if let Some(entries) = cx.ok_or_fail(entries) {
                screen.set(entries, cx.stored.as_deref());
                screen.act_early(cx);
            }
        });
    }

    /// Performs the act of a key that was pressed before its experiment was loaded.
    fn act_early(&mut self, cx: &mut Context) {
        if self.selected().is_none() {
            return;
        }
        let (early, later) = (self.early.take(), std::mem::take(&mut self.later));
        match early {
            Some(act) if cx.tab == Tab::Experiments => {
                self.ensure_draft();
                self.act(act, cx);
                cx.early = later;
            }
            Some(_) => cx.inform(DROPPED),
            None => {}
        }
    }

    /// Holds a key behind an earlier one that waits for its experiment; Escape, and leaving the screen, drop them all.
    /// After an act that asks for text, a number is no key of a screen.
    fn hold(&mut self, key: KeyEvent, cx: &mut Context) -> bool {
        const ASKS_FOR_TEXT: [Act; 3] = [Act::AddValue, Act::AddAxis, Act::SaveAs];
        let is_text = self.early.is_some_and(|act| ASKS_FOR_TEXT.contains(&act));
        let action = cx.keys.lookup(cx.tab, &key).filter(|_| !is_text);
        let is_dropped = key.code == KeyCode::Esc || action.is_some_and(Action::leaves_screen);
        match is_dropped {
            true => {
                (self.early, self.later) = (None, Vec::new());
                cx.inform(DROPPED);
            }
            false => self.later.push(key),
        }
        !is_dropped
    }
}

impl Screen for Experiments {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn list(&mut self, body: Rect) -> Option<ScreenList<'_>> {
        let areas = self.areas(body);
        let (len, area) = (self.len(), inside(areas.list));
        Some(ScreenList { len, area, rows: areas.rows, list: &mut self.list })
    }

    fn input(&mut self, input: ScreenInput<'_>, cx: &mut Context) -> bool {
        match input {
            ScreenInput::Key(key) if self.early.is_some() => return self.hold(key, cx),
            ScreenInput::Step(rows) if self.editing => self.move_in_grid(rows),
            ScreenInput::Mouse(body, event) => return self.point(body, event, cx),
            ScreenInput::Close => {
                self.leave_grid();
                self.early = None;
                self.later.clear();
            }
            _ => return false,
        }
        true
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        self.notice();
        if let Some(stored) = &cx.stored {
            self.is_first_use = stored.records.is_empty();
        }
        if self.readings > 0 {
            self.read(cx);
            self.read_ahead(cx);
        }
        // the others compete for the cores with the forecast that is shown, which needs the stored runs
        let has_runs = cx.stored.is_some() || cx.notice.as_ref().is_some_and(|notice| notice.error);
        if has_runs && self.draft().is_some_and(Draft::is_checked) {
            self.read_rest(cx);
        }
        // a sweep keeps storing runs; refresh the forecast only while it is visible
        if let Some((serial, name, path, text)) = self.wanted_check() {
            let (stored, load) = (cx.stored.clone(), cx.load);
            cx.want(
                "check",
                &serial,
                move |stop| {
                    Ok(check(serial, &text, &path, stored.as_deref(), load(), &|| stop.is_asked()))
                },
                move |screen: &mut Self, checked, cx| {
                    if let (Some(checked), Some(draft)) =
                        (cx.ok_or_fail(checked), screen.drafts.get_mut(&name))
                    {
                        draft.learn(checked);
                    }
                },
            );
        }
        let editor = inside(self.areas(body).editor);
        let height = usize::from(draw::parts(self, editor, cx).rows.height);
        if let Some(draft) = self.draft_mut() {
            draft.bound();
            draw::fit(draft, height);
        }
    }

    fn react(&mut self, news: &News, cx: &mut Context) {
        match news {
            News::Reload => {
                self.readings += 1;
                self.read(cx);
            }
            News::Runs { now, before } if !now.has_runs_of(before.as_ref()) => {
                self.match_stored(Some(now));
            }
            News::Runs { .. } => {}
            News::Discard => self.discard = true,
        }
    }

    fn status(&self, _cx: &Context) -> ScreenStatus {
        let text = "Experiments marked * have unsaved edits. Quit and lose them?";
        ScreenStatus {
            unsaved: (!self.discard && !self.edited().is_empty()).then_some(text),
            experiment: self.shown(),
            ..ScreenStatus::default()
        }
    }

    fn has_content(&self) -> bool {
        self.entries.is_none() || self.selected().is_some()
    }

    fn notes(&self, body: Rect, cx: &Context) -> Vec<ScreenNote> {
        draw::notes(self, self.areas(body).editor, cx)
    }

    fn finds(&self, _cx: &Context) -> Vec<Find> {
        let find = |(name, question): (&String, &str)| {
            let (name, about) = (name.clone(), format!("experiment  {question}"));
            Find::new(name.clone(), about, move |screen: &mut Self, _| {
                screen.show(&name);
            })
        };
        let read = |entry: &'_ ExperimentEntry| {
            let question = entry.experiment.as_ref().ok().and_then(|e| e.question.as_deref());
            find((&entry.name, question.unwrap_or_default()))
        };
        match &self.entries {
            Some(entries) => entries.iter().map(read).collect(),
            None => self.names.iter().map(|(name, question)| find((name, question))).collect(),
        }
    }

    fn command(&self) -> Result<Command, &'static str> {
        let entry = self.selected().ok_or(NO_COMMAND)?;
        let file = entry.path().map_or_else(|| entry.name.clone(), |path| path.display().to_string());
        // a command runs the saved version
        let edits = self.draft().and_then(Draft::unsaved);
        let beyond = edits.map(|edit| format!("your unsaved edits ({edit})"));
        Ok(Command { words: vec!["sweep".into(), file], beyond: beyond.into_iter().collect() })
    }

    fn export(&self, kind: FileKind, _cx: &Context) -> Result<Option<Export>, String> {
        if kind != FileKind::Csv {
            return Ok(None);
        }
        let draft = self.draft().ok_or(NOTHING_SELECTED)?;
        let experiment = draft.experiment()?;
        Ok(Some(Export::new(move |path| base::atomic::write(path, cells_csv(&experiment).as_bytes()))))
    }
}

struct ExperimentAreas {
    welcome: Rect,
    /// Frame included.
    list: Rect,
    /// Rows of an item of the list: its name, and its question if there is room.
    rows: u16,
    /// Frame included.
    editor: Rect,
}

impl Experiments {
    fn areas(&self, body: Rect) -> ExperimentAreas {
        let welcome = match body.height {
            22.. if !self.is_first_use => 2,
            20.. if !self.is_first_use => 1,
            _ if !self.is_first_use => 0,
            30.. if body.width >= 120 => 3,
            20.. if (list::LADDER_COLUMNS..120).contains(&body.width) => 4,
            18.. if body.width < 120 => 3,
            13.. => 2,
            _ => 0,
        };
        let (welcome, rest) = cut_top(body, welcome);
        let height = usize::from(rest.height);
        // names alone say little: in a wide window, questions are worth scrolling for the last quarter
        let least = if rest.width >= 120 { 3 * self.len() / 2 + 2 } else { 2 * self.len() + 2 };
        let has_questions = rest.width >= 100 && height >= least;
        let (rows, width) = match has_questions {
            true if height >= 3 * self.len() + 2 => (3, (rest.width * 2 / 5).min(72)),
            // a question has one row
            true if rest.width >= 160 => (2, (rest.width / 2).min(100)),
            true => (3, rest.width * 2 / 5),
            false => (1, (rest.width / 4).clamp(26, 40)),
        };
        let (list, editor) = cut_left(rest, width);
        ExperimentAreas { welcome, list, rows, editor }
    }

    fn move_in_grid(&mut self, rows: isize) {
        if let Some(draft) = self.draft_mut() {
            draft.list.move_by(rows, draft.rows.len());
            draft.bound();
        }
    }

    /// Moves the focus back to the list, and the grid to its first row, which [`draw::fit`] then shows.
    fn leave_grid(&mut self) {
        if std::mem::take(&mut self.editing)
            && let Some(draft) = self.draft_mut()
        {
            (draft.list.selected, draft.column) = (0, 0);
        }
    }

    fn point(&mut self, body: Rect, event: Pointer, cx: &mut Context) -> bool {
        let ExperimentAreas { list: left, editor: right, .. } = self.areas(body);
        if left.contains(event.at) {
            if event.kind == PointerKind::Click {
                self.leave_grid();
            }
            return false;
        }
        match event.kind {
            PointerKind::Wheel(notches) if right.contains(event.at) => self.move_in_grid(notches),
            PointerKind::Click | PointerKind::DoubleClick => {
                let Some((row, column)) = draw::hit(self, right, event.at, cx) else { return false };
                self.editing = true;
                let Some(draft) = self.draft_mut() else { return false };
                (draft.list.selected, draft.column) = (row, column);
                draft.bound();
                if event.kind == PointerKind::DoubleClick {
                    self.act(Act::Choose, cx);
                }
            }
            _ => {}
        }
        true
    }

    /// Performs a grid act; returns the reason if it cannot.
    fn edit(&mut self, act: Act, cx: &mut Context) -> Result<(), String> {
        let spec = self.spec().cloned();
        let (add_axis, add_value) = (cx.key::<Self>(Act::AddAxis), cx.key::<Self>(Act::AddValue));
        let draft = self.draft_mut().ok_or(NOTHING_SELECTED)?;
        if let Some(broken) = &draft.broken {
            return Err(format!("cannot edit here: {broken}"));
        }
        match act {
            Act::Undo | Act::Redo => {
                let (word, did) = if act == Act::Undo { ("undo", "undid") } else { ("redo", "redid") };
                let before = draft.rows.clone();
                if !draft.travel(act == Act::Undo) {
                    return Err(format!("nothing to {word}"));
                }
                let now = draft.difference(&before);
                cx.inform(format!("{did} an edit: {now}"));
                return Ok(());
            }
            Act::AddAxis => {
                let axes = draft.rows.iter().filter(|row| row.kind == RowKind::Axis);
                let varied: Vec<String> = axes.map(|row| row.name.clone()).collect();
                typing::pick_axis(spec.as_ref(), &varied, cx);
                return Ok(());
            }
            _ => {}
        }
        let row =
            draft.row().cloned().ok_or_else(|| format!("the grid is empty: {add_axis} adds an axis"))?;
        let (name, count, column) = (row.name.clone(), row.values.len(), draft.column);
        // column 0 is the name
        let value = column.checked_sub(1);
        let (what, text) = match (act, row.kind, value) {
            (Act::Left, _, None) => {
                self.leave_grid();
                return Ok(());
            }
            (Act::Left, _, Some(previous)) => {
                draft.column = previous;
                return Ok(());
            }
            (Act::Right, ..) => {
                draft.column = (column + 1).min(count);
                return Ok(());
            }
            (Act::Choose, RowKind::Default, _) if name == "question" => {
                (EditTarget::Setting, String::new())
            }
            (Act::Choose, RowKind::Setting | RowKind::Default, _) => {
                (EditTarget::Setting, row.values.join(" "))
            }
            (Act::Choose, RowKind::Axis, Some(index)) => {
                (EditTarget::Value(index), row.values.get(index).cloned().unwrap_or_default())
            }
            (Act::Choose, RowKind::Axis, None) => (EditTarget::Values, row.values.join(" ")),
            (Act::AddValue, RowKind::Axis, _) => {
                (EditTarget::NewValue(if column == 0 { count } else { column }), String::new())
            }
            (Act::Remove, RowKind::Default, _) => {
                return Err(format!("{name} is at its default already"));
            }
            (Act::Remove, RowKind::Axis, Some(index)) if count > 1 => {
                return self.take_edits(
                    &[ExperimentEdit::Remove { axis: name.clone(), index }],
                    &name,
                    column,
                );
            }
            (Act::Remove, RowKind::Axis, Some(_)) => {
                return Err(format!(
                    "an axis needs a value: {add_value} adds one; on its name, the same key removes the axis"
                ));
            }
            (Act::Remove, ..) => {
                return self.take_edits(&[ExperimentEdit::Drop { name: name.clone() }], &name, column);
            }
            (Act::MoveLeft | Act::MoveRight, RowKind::Axis, _) => {
                let from = value.ok_or("select a value to move it")?;
                let to = if act == Act::MoveLeft {
                    from.saturating_sub(1)
                } else {
                    (from + 1).min(count - 1)
                };
                return self.take_edits(
                    &[ExperimentEdit::Move { axis: name.clone(), from, to }],
                    &name,
                    to + 1,
                );
            }
            (Act::AddValue | Act::MoveLeft | Act::MoveRight, ..) => {
                return Err(format!("{name} is the same for all cells: {add_axis} makes an axis of it"));
            }
            _ => return Ok(()),
        };
        typing::ask(self, name, what, text, spec.as_ref(), cx);
        Ok(())
    }

    /// Applies edits, then selects a column of the named row.
    fn take_edits(&mut self, edits: &[ExperimentEdit], name: &str, column: usize) -> Result<(), String> {
        let draft = self.draft_mut().ok_or(NOTHING_SELECTED)?;
        draft.edit(edits)?;
        draft.select(name, column);
        self.discard = false;
        Ok(())
    }

    /// Selects the experiment of this name; false if there is none.
    fn show(&mut self, name: &str) -> bool {
        let at = match &self.entries {
            Some(entries) => entries.iter().position(|entry| entry.name == name),
            None => self.names.iter().position(|(known, _)| known == name),
        };
        (self.list.selected, self.editing) = (at.unwrap_or(self.list.selected), false);
        at.is_some()
    }

    fn save(&mut self, cx: &mut Context) {
        let Some(entry) = self.selected().cloned() else { return };
        let Some(draft) = self.draft() else { return };
        let Some(path) = entry.path() else {
            // a built-in has no file; the new file takes the edits, whatever its name
            return typing::ask_name(self, &entry.name, true, cx);
        };
        if !draft.revisions.is_edited() {
            cx.inform("nothing to save: no edits");
            return;
        }
        let save = Save {
            from: entry.name,
            path,
            text: draft.revisions.text().to_owned(),
            expected: Some(draft.revisions.saved().to_owned()),
            overwrite: false,
            moves: false,
        };
        if let Err(why) = Self::write(save, cx) {
            cx.inform(why);
        }
    }

    /// Writes a file. One at a time, because a newer question would drop the older one.
    fn write(save: Save, cx: &mut Context) -> Result<(), String> {
        if cx.is_under_way::<Self>("save") {
            return Err("still writing a file".into());
        }
        let asked = save.clone();
        let work = move |_: &_| typing::write(&asked);
        cx.ask("save", work, |screen: &mut Self, written, cx| {
            if let Some(is_written) = cx.ok_or_fail(written) {
                screen.saved(save, is_written, cx);
            }
        });
        Ok(())
    }

    /// Handles the end of a write; nothing is written if the file changed on disk since it was read.
    fn saved(&mut self, save: Save, is_written: bool, cx: &mut Context) {
        match is_written {
            true => {
                let name = save.name();
                let same = name == save.from;
                if let Some(draft) = self.drafts.get_mut(&save.from) {
                    if same {
                        draft.revisions.wrote(save.text.clone());
                    } else if save.moves && !same {
                        self.drafts.remove(&save.from);
                    }
                }
                self.want(name);
                cx.inform(format!("wrote {}", save.path.display()));
                self.react(&News::Reload, cx);
            }
            false => {
                let text = "The file exists already, or was changed since it was read. Overwrite it?";
                cx.confirm(text, move |_: &mut Self, cx| {
                    if let Err(why) = Self::write(Save { overwrite: true, ..save }, cx) {
                        cx.inform(why);
                    }
                });
            }
        }
    }
}

/// Cells with the values of the axes, and the reason of those that cannot run.
fn cells_csv(experiment: &Experiment) -> String {
    let axes = experiment.axes.iter().map(String::as_str);
    let header = ["cell"].into_iter().chain(axes).chain(["backend", "provenance", "verdict", "reason"]);
    let rows = experiment.cells.iter().enumerate().map(|(index, cell)| {
        let spec = &cell.spec;
        let obstacle = cell.feasibility.obstacle();
        let (verdict, reason) = obstacle.map_or(("runs", ""), |(status, why)| (status.as_str(), why));
        let axes =
            experiment.axes.iter().map(|axis| value(spec, axis).unwrap_or("-".into()).into_owned());
        let last = [spec.backend.as_str(), spec.provenance().as_str(), verdict, reason];
        [index.to_string()].into_iter().chain(axes).chain(last.map(str::to_owned))
    });
    csv(header, rows)
}
