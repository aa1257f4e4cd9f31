//! Screen 3: stored runs: found, sorted, marked, tagged, compared, deleted.

mod columns;
mod draw;
mod marked;
mod over;
pub mod state;

use std::collections::HashSet;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tui_input::Input;

use self::over::Over;
use crate::store;
use crate::tui::action::{Action, Binding, bind};
use crate::tui::format;
use crate::tui::keys::{paste_into, type_into};
use crate::tui::layout::{cut_bottom, cut_left, cut_top};
use crate::tui::message::{Effect, Snapshot};
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind};
use crate::tui::state::{List, Overlay, Prompt, Purpose, State};
use crate::tui::update::{open_run, open_runs};

/// More runs than this are not deleted without asking.
const MANY: usize = 3;

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Open,
    OpenBeneath,
    OpenBoth,
    Filter,
    SortNext,
    SortPrevious,
    SortReverse,
    Group,
    Detail,
    Columns,
    ScrollLeft,
    ScrollRight,
    Mark,
    MarkAll,
    MarkNone,
    OnlyMarked,
    SideBySide,
    Tag,
    Note,
    Delete,
    Undo,
    CopyId,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open", "Enter", Action::Runs(Act::Open), "open the run's timeline", Some("timeline")),
    bind("filter", "/", Action::Runs(Act::Filter), "filter: words, arch:ladder, tpot<5, tag:good, -word", Some("filter")),
    bind("mark", "Space", Action::Runs(Act::Mark), "mark the run, or take its mark away", Some("mark")),
    bind("side-by-side", "c", Action::Runs(Act::SideBySide), "compare two marked runs side by side", Some("compare")),
    bind("sort-next", "s >", Action::Runs(Act::SortNext), "sort by the next column", Some("sort")),
    bind("detail", "d", Action::Runs(Act::Detail), "show or hide the run's details", Some("details")),
    bind("tag", "t", Action::Runs(Act::Tag), "tag the marked runs, or the selected one", Some("tag")),
    bind("sort-previous", "S <", Action::Runs(Act::SortPrevious), "sort by the previous column", None),
    bind("sort-reverse", "r", Action::Runs(Act::SortReverse), "reverse the order", Some("reverse")),
    bind("group", "g", Action::Runs(Act::Group), "group by the column that is sorted by, or no more", None),
    bind("columns", "C", Action::Runs(Act::Columns), "choose and order columns", Some("columns")),
    bind("scroll-right", "Right l", Action::Runs(Act::ScrollRight), "show columns further to the right", None),
    bind("scroll-left", "Left h", Action::Runs(Act::ScrollLeft), "show columns further to the left", None),
    bind("note", "n", Action::Runs(Act::Note), "write a note on the marked runs, or the selected one", None),
    bind("delete", "D", Action::Runs(Act::Delete), "delete the marked runs, or the selected one (to the trash)", None),
    bind("undo", "u", Action::Runs(Act::Undo), "bring back what was deleted last", None),
    bind("mark-all", "a", Action::Runs(Act::MarkAll), "mark all runs that are shown", None),
    bind("mark-none", "A", Action::Runs(Act::MarkNone), "take all marks away", None),
    bind("only-marked", "v", Action::Runs(Act::OnlyMarked), "show only marked runs, or all", None),
    bind("open-both", "B", Action::Runs(Act::OpenBoth), "open the timelines of the marked runs under one another", None),
    bind("open-beneath", "b", Action::Runs(Act::OpenBeneath), "open the run's timeline beneath the one shown", None),
    bind("copy-id", "y", Action::Runs(Act::CopyId), "copy the ids of the marked runs, or of the selected one", None),
];

/// The page.
#[derive(Debug)]
pub struct Runs;

impl Page for Runs {
    fn title(&self) -> &'static str {
        "runs"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((state.runs.lines.len(), cut_top(areas(body, state.runs.detail).1, 1).1))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.runs.list)
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        if state.runs.over.is_some() {
            return Some(over::typed(state, key));
        }
        if !state.runs.typing {
            return None;
        }
        let offers = state.runs.completion.offers.len();
        match key.code {
            KeyCode::Enter => stop_typing(state),
            KeyCode::Down if offers > 0 => state.runs.offer = (state.runs.offer + 1) % offers,
            KeyCode::Up if offers > 0 => state.runs.offer = (state.runs.offer + offers - 1) % offers,
            KeyCode::Tab if state.runs.take_offer() => typed_on(state),
            KeyCode::Down | KeyCode::Tab => stop_typing(state),
            KeyCode::Esc => {
                state.runs.filter.reset();
                stop_typing(state);
                arrange(state);
            }
            _ if type_into(&mut state.runs.filter, key) => typed_on(state),
            // the cursor may have moved
            _ => complete(state),
        }
        Some(Vec::new())
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        state.runs.typing.then(|| {
            paste_into(&mut state.runs.filter, text);
            typed_on(state);
            Vec::new()
        })
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        if state.runs.over.is_some() {
            return Some(Vec::new());
        }
        match event.kind {
            PointerKind::Click | PointerKind::DoubleClick => {
                stop_typing(state);
                let table = areas(body, state.runs.detail).1;
                let header = cut_top(table, 1).0;
                if !header.contains(event.at) {
                    return None;
                }
                let stored = state.stored.clone()?;
                let shown = columns::lay_out(&state.runs, &stored.table, table);
                let on = |p: &&columns::Place| (p.x..p.x + p.width + 1).contains(&event.at.x);
                if let Some(place) = shown.places.iter().find(on) {
                    let unit = state::unit(&stored.table, &place.name);
                    state.runs.sort_by(&place.name, unit);
                    arrange(state);
                }
                Some(Vec::new())
            }
            PointerKind::WheelSideways(notches) => {
                scroll(state, notches);
                Some(Vec::new())
            }
            _ => None,
        }
    }

    fn settle(&self, state: &mut State, body: Rect, effects: &mut Vec<Effect>) {
        if let Some((len, area)) = self.list_area(state, body) {
            state.runs.list.fit(len, usize::from(area.height));
        }
        if !state.runs.detail {
            return;
        }
        // rows of batches are listed without their environment
        let Some(record) = state.runs.selected(state.stored.as_ref()) else { return };
        let run = record.run.clone();
        let bare = record.environment.is_empty() && run.contains(':');
        let known = state.runs.whole.as_ref().is_some_and(|whole| whole.run == run);
        if bare && !known && state.runs.wanted.as_ref() != Some(&run) {
            state.runs.wanted = Some(run.clone());
            effects.push(Effect::LoadWhole(run));
        }
    }

    fn close(&self, state: &mut State) {
        if state.runs.detail {
            state.runs.detail = false;
        } else if state.runs.only_marked {
            state.runs.only_marked = false;
            arrange(state);
        } else if !state.runs.filter.value().is_empty() {
            state.runs.filter.reset();
            arrange(state);
        } else {
            state.runs.marked.clear();
        }
    }

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        serde_json::to_value(state.runs.keep()).ok()
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        if let Ok(kept) = serde_json::from_value(kept.clone()) {
            state.runs.take(kept);
            arrange(state);
        }
        Vec::new()
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        Some(state.runs.command())
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        let Some(stored) = state.stored.clone().filter(|_| kind == FileKind::Csv) else {
            return Ok(None);
        };
        let rows: Vec<u32> = state.runs.rows().collect();
        let columns: Vec<usize> =
            state.runs.columns.iter().filter_map(|name| stored.table.find(name)).collect();
        Ok(Some(Export::new(move |path| {
            store::atomic::write(path, stored.table.csv(&rows, &columns).as_bytes())
        })))
    }
}

/// (Summary and filter, the table with its header, the details with their frame).
fn areas(body: Rect, detail: bool) -> (Rect, Rect, Rect) {
    let (top, rest) = cut_top(body, 1);
    let (table, details) = match detail {
        false => cut_bottom(rest, 0),
        true if body.width >= 150 => cut_left(rest, body.width - 60),
        true => cut_bottom(rest, rest.height / 2),
    };
    (top, table, details)
}

/// Chooses and orders anew.
pub fn arrange(state: &mut State) {
    let stored = state.stored.clone();
    state.runs.arrange(stored.as_deref());
}

/// New runs are there instead of those `before`: marks of runs that are gone go with them, the selection
/// stays on its run, or where that is gone at its place.
pub fn learn(state: &mut State, before: Option<&Arc<Snapshot>>) {
    state.runs.deleting.clear();
    let Some(stored) = state.stored.clone() else { return };
    let place = state.runs.list.selected;
    let held = state.runs.selected(before).map(|record| record.run.clone());
    if !state.runs.marked.is_empty() {
        let known: HashSet<&str> = stored.records.iter().map(|record| record.run.as_str()).collect();
        state.runs.marked.retain(|run| known.contains(run));
        state.runs.only_marked &= !state.runs.marked.is_empty();
    }
    state.runs.arrange(Some(&stored));
    if let Some(held) = held {
        state.runs.select(&held, &stored, place);
    }
    complete(state);
}

fn typed_on(state: &mut State) {
    arrange(state);
    complete(state);
}

fn complete(state: &mut State) {
    let stored = state.stored.clone();
    state.runs.complete(stored.as_ref().map(|stored| &stored.table));
}

fn stop_typing(state: &mut State) {
    state.runs.typing = false;
    complete(state);
}

fn scroll(state: &mut State, by: isize) {
    let most = state.runs.columns.len().saturating_sub(state::PINNED.len() + 1);
    state.runs.scroll = state.runs.scroll.saturating_add_signed(by).min(most);
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let stored = state.stored.clone();
    let selected = state.runs.selected(stored.as_ref()).map(|r| r.run.clone());
    match act {
        Act::Filter => {
            state.runs.typing = true;
            complete(state);
        }
        Act::Detail => state.runs.detail = !state.runs.detail,
        Act::Open => return open_run(state, selected),
        Act::OpenBeneath => {
            let beneath = state.timeline.view.is_some();
            return open_runs(state, selected.into_iter().collect(), beneath);
        }
        Act::OpenBoth => return with_two(state, |state, [a, b]| open_runs(state, vec![b, a], false)),
        Act::CopyId => {
            let runs = state.runs.chosen(stored.as_ref());
            if !runs.is_empty() {
                state.inform(format!("copied {}", named(&runs)));
                return vec![Effect::Copy(runs.join("\n"))];
            }
        }
        Act::SortReverse => {
            if let Some((_, down)) = state.runs.sort.first_mut() {
                *down = !*down;
            }
            arrange(state);
        }
        Act::SortNext | Act::SortPrevious => {
            if let Some(stored) = &stored {
                state.runs.sort_by_next(act == Act::SortPrevious, &stored.table);
            }
            arrange(state);
        }
        Act::Group => {
            state.runs.grouped = !state.runs.grouped;
            if state.runs.grouped && state.runs.sort.first().is_none_or(|(name, _)| name == "run") {
                // every run is a group of its own then
                state.runs.sort_by("architecture", crate::analysis::Unit::Text);
            }
            arrange(state);
        }
        Act::Columns => {
            state.runs.over =
                stored.as_ref().map(|stored| Over::columns(&state.runs.columns, &stored.table));
        }
        Act::ScrollLeft => scroll(state, -1),
        Act::ScrollRight => scroll(state, 1),
        Act::Mark => {
            if let Some(run) = selected {
                state.runs.marked.toggle(run);
            }
            let len = state.runs.lines.len();
            state.runs.list.move_by(1, len);
        }
        Act::MarkAll => {
            let records =
                stored.iter().flat_map(|s| state.runs.rows().map(|row| s.records.get(row as usize)));
            let shown: Vec<String> = records.flatten().map(|record| record.run.clone()).collect();
            // behind those that are marked and not shown, in their order
            let seen: HashSet<&str> = shown.iter().map(String::as_str).collect();
            state.runs.marked.retain(|run| !seen.contains(run));
            shown.into_iter().for_each(|run| state.runs.marked.insert(run));
        }
        Act::MarkNone => {
            state.runs.marked.clear();
            if std::mem::take(&mut state.runs.only_marked) {
                arrange(state);
            }
        }
        Act::OnlyMarked => {
            if state.runs.marked.is_empty() && !state.runs.only_marked {
                let key = state.keys.label(Action::Runs(Act::Mark));
                state.inform(format!("no run is marked: {key} marks one"));
            } else {
                state.runs.only_marked = !state.runs.only_marked;
                arrange(state);
            }
        }
        Act::SideBySide => return with_two(state, side_by_side),
        Act::Tag => prompt(state, Purpose::TagRuns),
        Act::Note => prompt(state, Purpose::NoteRuns),
        Act::Delete => {
            let runs = state.runs.chosen(stored.as_ref());
            if runs.len() > MANY {
                state.runs.over = Some(Over::Delete(runs));
            } else if !runs.is_empty() {
                return delete(state, runs);
            }
        }
        Act::Undo => return vec![Effect::RestoreRuns],
    }
    Vec::new()
}

/// Deletes runs; they are gone from the screen at once.
fn delete(state: &mut State, runs: Vec<String>) -> Vec<Effect> {
    let undo = state.keys.label(Action::Runs(Act::Undo));
    state.inform(format!("deleted {}: {undo} brings it back", named(&runs)));
    state.runs.deleting.extend(runs.iter().cloned());
    let gone: HashSet<&str> = runs.iter().map(String::as_str).collect();
    state.runs.marked.retain(|run| !gone.contains(run));
    state.runs.only_marked &= !state.runs.marked.is_empty();
    let at = state.runs.list.selected;
    arrange(state);
    // what followed the deleted run stands in its place
    state.runs.list.selected = at.min(state.runs.lines.len().saturating_sub(1));
    vec![Effect::DeleteRuns(runs)]
}

/// Does something with two runs: the marked ones, or the marked one and the selected one.
fn with_two(state: &mut State, go: impl FnOnce(&mut State, [String; 2]) -> Vec<Effect>) -> Vec<Effect> {
    let selected = state.runs.selected(state.stored.as_ref()).map(|record| record.run.clone());
    let two = match (state.runs.marked.as_slice(), selected) {
        ([a, b], _) => Some([a.clone(), b.clone()]),
        ([a], Some(b)) if *a != b => Some([a.clone(), b]),
        _ => None,
    };
    match two {
        Some(two) => go(state, two),
        None => {
            let key = state.keys.label(Action::Runs(Act::Mark));
            let marked = state.runs.marked.len();
            state.inform(format!("this takes two runs, {marked} are marked: {key} marks one"));
            Vec::new()
        }
    }
}

fn side_by_side(state: &mut State, two: [String; 2]) -> Vec<Effect> {
    let Some(runs) = state.stored.clone() else { return Vec::new() };
    let place = |run: &String| runs.records.iter().position(|record| record.run == *run);
    let (Some(a), Some(b)) = (place(&two[0]), place(&two[1])) else { return Vec::new() };
    state.runs.over = Some(Over::SideBySide { both: None, scroll: 0 });
    vec![Effect::SideBySide { rows: [a, b], runs }]
}

/// Two runs were put beside one another.
pub fn show_side_by_side(state: &mut State, both: Box<crate::analysis::SideBySide>) {
    // unless it was closed meanwhile
    if let Some(Over::SideBySide { both: shown, .. }) = &mut state.runs.over {
        *shown = Some(both);
    }
}

/// Asks for tags or a note.
fn prompt(state: &mut State, purpose: Purpose) {
    let stored = state.stored.clone();
    let runs = state.runs.chosen(stored.as_ref());
    let (Some(stored), [first, ..]) = (stored, runs.as_slice()) else { return };
    let on = named(&runs);
    let (title, hint, text) = match purpose {
        Purpose::NoteRuns => {
            let note = stored.annotations.of(first).map(|a| a.note.clone()).unwrap_or_default();
            let same = runs.iter().all(|run| stored.annotations.of(run).is_none_or(|a| a.note == note));
            let hint = "Enter keeps it with the run, an empty one takes it away, Esc closes";
            (format!("note on {on}"), hint.to_owned(), if same { note } else { String::new() })
        }
        _ => {
            let tags = stored.annotations.tags();
            let mut known: Vec<(&str, usize)> = tags.into_iter().collect();
            known.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let known: Vec<&str> = known.into_iter().take(12).map(|(tag, _)| tag).collect();
            let known = if known.is_empty() { "none yet".into() } else { known.join(" ") };
            let has = stored.annotations.of(first).map(|a| a.tags.clone()).unwrap_or_default();
            let has = has.into_iter().collect::<Vec<_>>().join(" ");
            let has = if has.is_empty() { String::new() } else { format!("; it has: {has}") };
            let hint = format!(
                "words, -word takes one away; Enter keeps them, Esc closes\ntags in use: {known}{has}"
            );
            (format!("tag {on}"), hint, String::new())
        }
    };
    let input = Input::new(text);
    // what the title says is what is meant, whatever is selected by then
    state.runs.annotating = runs;
    state.overlays.push(Overlay::Prompt(Prompt { title, hint, input, error: None, purpose }));
}

/// What was typed as tags or a note, for the runs that are marked or selected.
pub fn annotate(state: &State, purpose: Purpose, text: &str) -> Result<Vec<Effect>, String> {
    let edit = match purpose {
        Purpose::NoteRuns => store::Edit::note(text),
        _ => store::Edit::tags(text).map_err(|error| format::error(&error))?,
    };
    let runs = state.runs.annotating.clone();
    Ok(if edit.is_empty() || runs.is_empty() {
        Vec::new()
    } else {
        vec![Effect::Annotate { runs, edit }]
    })
}

/// One run by its id, several by their number.
fn named(runs: &[String]) -> String {
    match runs {
        [run] => run.clone(),
        runs => format!("{} runs", runs.len()),
    }
}
