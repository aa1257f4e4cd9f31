//! Screen 4: timeline of a trace's lanes.

mod act;
mod ask;
mod draw;
mod files;
mod header;
mod info;
pub mod layout;
mod lists;
pub mod state;
mod stretch;
#[cfg(test)]
mod tests;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::face::tui::context::{Context, Opening, Request};
use crate::face::tui::keymap::{Action, acts};
use crate::face::tui::regions::cut_left;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{
    Acts, Command, Export, FileKind, Find, Hints, NO_COMMAND, NOTHING_TO_UNDO, OwnEdits, Screen,
    ScreenInput, ScreenNote, ScreenStatus,
};
use crate::face::tui::update::page_rows;
use crate::face::tui::widgets::field::FilterKeyEffect;
pub use lists::{LEGEND_MARKS, in_theme};
pub use state::Timeline;
use state::TimelineView;
use state::levels::TimelineLevel;
use state::panel::TimelinePanel;
use study::analysis::NameRow;

const NO_TRACE: &str = "no trace is open";

acts! {
    Verdict: "verdict", "V", "verdict: exposed communication, its cause, and the gain of each remedy", Some("verdict") => "why", "summary diagnosis why";
    Operations: "operations", "O", "operations by total time; again: switch between trace, step, selection, search", Some("ops"), "kernels gemm attention table";
    WhatIf: "what-if-traced", "w", "what-if: gain of ladder and others for the step under the cursor, with sliders", Some("what-if"), "predict simulate slider link";
    Stretches: "exposed", "E", "longest exposed collectives in decode; again: in prefill, everything, the step, the selection", Some("exposed") => "exp", "communication collectives allreduce";
    ZoomIn: "zoom-in", "+ =", "zoom in at the cursor", Some("zoom");
    ZoomOut: "zoom-out", "-", "zoom out at the cursor", None;
    ZoomSpan: "zoom-to-operation", "z", "zoom to the operation under the cursor", None;
    StepHere: "fit-step", "Z", "fit the step under the cursor; again: the next step", Some("step");
    Search: "search", "/", "search operation names; in a table: filter it", Some("search") => "find", "find filter";
    Legend: "legend", "L", "legend of marks and colours", Some("legend"), "colors colours key symbols";
    GoTo: "go-to", "t", "go to a time, interval, step or operation", Some("go to") => "go", "jump seek";
    SpanPrevious: "previous-operation", "Left", "previous operation in this lane", None;
    SpanNext: "next-operation", "Right", "next operation in this lane", None;
    StepNext: "next-step", "]", "fit the next decode step", None;
    StepPrevious: "previous-step", "[", "fit the previous decode step", None;
    MatchNext: "next-match", "n", "next match of the search; without one, next shorter call of the list gone to", None;
    MatchPrevious: "previous-match", "N", "previous match of the search; without one, next longer call", None;
    FitAll: "fit-all", "f", "fit the whole trace", None, "reset zoom";
    Undo: "undo", "u", "undo zooms, pans and jumps", None, "revert back";
    Redo: "redo", "ctrl-r", "redo", None;
    PanLeft: "pan-left", "h", "pan left", None;
    PanRight: "pan-right", "l", "pan right", None;
    Select: "select", "v", "start or end a selection; it follows the cursor", None, "measure range interval";
    ExtendNext: "extend-next", "shift-Right", "extend the selection to the next operation", None;
    ExtendPrevious: "extend-previous", "shift-Left", "extend the selection to the previous operation", None;
    MarkA: "mark-a", "(", "set mark A at the start of this operation", None;
    MarkB: "mark-b", ")", "set mark B at the end of this operation", None;
    SortNext: "sort-next", "s >", "sort the table below the lanes by the next column", None;
    SortPrevious: "sort-previous", "S <", "sort the table below the lanes by the previous column", None;
    SortReverse: "sort-reverse", "I", "reverse the order of the table", None;
    WholeName: "whole-name", "W", "show the full or the short name of the operation", None;
    LookUp: "look-up", "i", "look up a kernel's grid, block and operator in large imported files too", None;
    CopyName: "copy-name", "K", "copy the full name of the operation", None;
    CopyNumbers: "copy-numbers", "y", "copy the numbers of the selection, between A and B, or of the operation", None, "yank";
    Path: "critical-path", "p", "highlight the critical path of the step", None, "bottleneck";
    PathNext: "path-next", ".", "next operation on the critical path", None;
    PathPrevious: "path-previous", ",", "previous operation on the critical path", None;
    WaitedFor: "waited-for", "d", "go to the operation that this one waited for", None, "dependency stream";
    WaitingFor: "waiting-for", "D", "go to the operation that waited for this one", None;
    Dependencies: "dependencies", "e", "list dependencies in both directions", None;
    Back: "back", "Backspace", "go back along the dependencies followed", None;
    ToggleRank: "toggle-rank", "Enter", "go to the list's entry; without a list: zoom to the selection, or fold the rank", None;
    ToggleRanks: "toggle-ranks", "C", "fold or unfold all ranks", None;
    FoldRanks: "fold-ranks", "F", "fold or unfold ranks with the same timeline", None, "gpus collapse";
    TypeBeneath: "open-beneath", "b", "open a second run or trace below", None, "beside side diff second compare";
    Ghost: "predict", "P", "show a prediction below: another architecture, or the simulation of this run", None, "simulate ghost what-if ladder";
    Compare: "compare-operations", "c", "list differences by operation; again: sort by time or by exposure", None, "diff versus";
    SwitchTrace: "switch-trace", "J", "go to the other trace", None;
    AlignHere: "align-here", "a", "align both traces at the step under the cursor", None;
    FollowSteps: "follow-steps", "A", "keep both traces aligned at the step under the cursor (on or off)", None;
    ShiftNext: "align-next", "}", "align with the lower trace's next step", None;
    ShiftPrevious: "align-previous", "{", "align with the lower trace's previous step", None;
    CloseBeneath: "close-beneath", "X", "close the lower trace", None;
}

impl Acts for Timeline {
    type Act = Act;

    fn act(&mut self, act: Act, cx: &mut Context) {
        act::act(self, act, cx);
    }

    fn why_not(&self, act: Act, _cx: &Context) -> Option<&'static str> {
        match (&self.view, act) {
            (None, Act::Undo) => Some(NOTHING_TO_UNDO),
            (None, _) => Some(NO_TRACE),
            (Some(view), Act::WhatIf) if !act::can_rewire(view) => Some("no all-reduce to rewire"),
            (Some(_), _) => None,
        }
    }
}

impl Screen for Timeline {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn input(&mut self, input: ScreenInput<'_>, cx: &mut Context) -> bool {
        if self.view.is_some() && matches!(input, ScreenInput::Key(_) | ScreenInput::Mouse(..)) {
            self.opened_from = None;
        }
        match (input, &mut self.view) {
            (ScreenInput::Mouse(body, event), _) => return layout::point(self, body, event).is_some(),
            (ScreenInput::Key(key), _) if self.loading.is_some() => return self.hold(key, cx),
            (_, None) => return false,
            (ScreenInput::Key(key), Some(view)) => return typed(view, key, cx),
            (ScreenInput::Paste(text), Some(view)) => return pasted(view, text, cx),
            (ScreenInput::Step(rows), Some(view)) => step(view, rows),
            (ScreenInput::Page(pages), Some(_)) => {
                let Some(areas) = layout::open(self, cx.body()) else { return false };
                let Some(view) = &mut self.view else { return false };
                let area = match view.panel {
                    Some(_) => Some(lists::rows(areas.panel, view)),
                    None => areas.panes.get(view.focus).map(|pane| pane.lines),
                };
                step(view, pages * area.map_or(4, |area| page_rows(usize::from(area.height))));
            }
            (ScreenInput::Close, Some(view)) => close(view, cx),
            (ScreenInput::Narrow, Some(_)) => return false,
        }
        true
    }

    fn own_edits(&self) -> Option<OwnEdits> {
        Some(OwnEdits { count: self.view.as_ref().map_or(0, TimelineView::edits), are_views: true })
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        if let Some(kept) = self.kept.take() {
            self.open_kept(kept, cx);
        }
        // without the format before the file's name
        let title = |view: &TimelineView| {
            view.panes[0].index.title.rsplit("  ").next().unwrap_or_default().to_owned()
        };
        cx.open_trace = self.view.as_ref().map(title);
        let Some(areas) = layout::open(self, body) else { return };
        let Some(view) = &mut self.view else { return };
        let rows = usize::from(lists::rows(areas.panel, view).height);
        view.settle(rows);
        // rows may have been hidden
        let Some(areas) = layout::open(self, body) else { return };
        let Some(view) = &mut self.view else { return };
        let blank = layout::blank_rows(view, &areas);
        if let [pane] = &mut view.panes[..]
            && pane.use_spare_rows(blank)
        {
            pane.point_at(view.time);
        }
        for (pane, areas) in view.panes.iter_mut().zip(areas.panes) {
            pane.scroll_to_cursor(usize::from(areas.lines.height));
        }
        let (_, lanes) = cut_left(areas.overview, layout::LANE_LABEL);
        ask::follow(view, usize::from(lanes.width), cx);
    }

    fn serve(&mut self, request: Request, cx: &mut Context) -> Option<Request> {
        match request {
            Request::OpenRuns { runs, opening } => self.open_runs(&runs, opening, cx),
            Request::OpenRecord(record) => self.open_records(vec![*record], Opening::Alone(None), cx),
            Request::OpenPath(path, opening) => self.open_path(path, opening, cx),
            Request::WhatIfOpenTrace { asked } => act::what_if(self, asked, cx),
            other => return Some(other),
        }
        None
    }

    fn status(&self, _cx: &Context) -> ScreenStatus {
        const SEARCH: Hints = &[("Enter", "next match (then n, N)"), ("Esc", "end the search")];
        const FILTER: Hints = &[("Enter", "keep"), ("Esc", "drop")];
        const LEGEND: Hints = &[("↑ ↓", "scroll"), ("Esc", "close")];
        let hints = self.view.as_ref().and_then(|view| match &view.panel {
            Some(TimelinePanel::Operations(table)) if table.filter.typing => Some(FILTER),
            Some(TimelinePanel::Legend(..)) if !view.search.line.typing => Some(LEGEND),
            _ => view.search.line.typing.then_some(SEARCH),
        });
        let level = self.view.as_ref().and_then(|view| view.levels.last());
        ScreenStatus { hints, closes: level.map(|level| level.hint()), ..ScreenStatus::default() }
    }

    fn finds(&self, _cx: &Context) -> Vec<Find> {
        let Some(view) = &self.view else { return Vec::new() };
        let Some(counted) = &view.docked.counted else { return Vec::new() };
        let (pane, table) = (counted.pane, &counted.table);
        let room = 2 * lists::SHORT_NAME as u16;
        let all = (0..table.rows.len()).collect();
        let names = lists::distinct_names(&table.rows, &view.docked.suffixes, all, room);
        let find = |((row, span), name): ((&NameRow, &usize), String)| {
            let (about, span) = (format!("operation  {}", lists::time_of(row.total_us)), *span);
            let find = Find::new(name, about, move |timeline: &mut Self, _| {
                if let Some(view) = &mut timeline.view {
                    view.jump_closely(pane, span);
                }
            });
            // namespaces and template arguments are words, too
            find.also(row.name.replace(|c: char| !c.is_alphanumeric() && c != '_', " "))
        };
        table.rows.iter().zip(&table.longest).zip(names).map(find).collect()
    }

    fn notes(&self, body: Rect, _cx: &Context) -> Vec<ScreenNote> {
        let Some((view, areas)) = self.view.as_ref().zip(layout::open(self, body)) else {
            return Vec::new();
        };
        let notes = [lists::differences_note(view, body.width), info::note(view, areas.info)];
        notes.into_iter().flatten().collect()
    }

    fn has_content(&self) -> bool {
        self.view.is_some()
    }

    fn nothing_to_export(&self) -> &'static str {
        NO_TRACE
    }

    fn command(&self) -> Result<Command, &'static str> {
        let view = self.view.as_ref().ok_or(NO_COMMAND)?;
        let words = files::command(view).ok_or(NO_COMMAND)?;
        Ok(Command { words, beyond: files::beyond_command(view) })
    }

    fn export(&self, kind: FileKind, _cx: &Context) -> Result<Option<Export>, String> {
        match &self.view {
            Some(view) => files::export(view, kind).map(Some),
            None => Ok(None),
        }
    }
}

impl Timeline {
    /// Holds a key for the trace that is being opened; returns false for keys that need no trace.
    fn hold(&mut self, key: KeyEvent, cx: &Context) -> bool {
        let typing = |held: &KeyEvent| matches!(held.code, KeyCode::Char('/' | 't'));
        let held = match (key.code, cx.keys.lookup(cx.tab, &key)) {
            (KeyCode::Esc, _) => {
                self.early.clear();
                false
            }
            // one Enter too many for the picker, which would fold the rank under the cursor
            (KeyCode::Enter, _) if self.early.is_empty() => return true,
            (_, Some(action)) => {
                is_of_trace(action)
                    || self.early.iter().any(typing) && matches!(key.code, KeyCode::Char(_))
                    || !self.early.is_empty() && !action.leaves_screen()
            }
            (_, None) => !self.early.is_empty(),
        };
        if held {
            self.early.push(key);
        }
        held
    }
}

/// True for actions that need an open trace.
fn is_of_trace(action: Action) -> bool {
    matches!(
        action,
        Action::On(Tab::Timeline, _)
            | Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::First
            | Action::Last
    )
}

/// Moves by rows in the list below the lanes if one is open, else by lines.
fn step(view: &mut TimelineView, rows: isize) {
    match &mut view.panel {
        Some(panel) => panel.move_by(rows, panel.rows(view.differences.as_deref())),
        None => view.move_line(rows),
    }
}

/// Sends a key to the active input line; false if none is active.
fn typed(view: &mut TimelineView, key: KeyEvent, cx: &mut Context) -> bool {
    if let Some(operations) = view.operations()
        && let Some(typed) = operations.filter.key(key)
    {
        if typed == FilterKeyEffect::Changed {
            operations.arrange();
        }
        return true;
    }
    match (view.search.line.key(key), key.code) {
        (None, _) => return false,
        (Some(FilterKeyEffect::Changed), KeyCode::Esc) => ask::end_search(view, cx),
        (Some(FilterKeyEffect::Changed), _) => ask::search(view, cx),
        (Some(FilterKeyEffect::Kept), KeyCode::Enter) => view.go_to_found(),
        _ => {}
    }
    true
}

fn pasted(view: &mut TimelineView, text: &str, cx: &mut Context) -> bool {
    if let Some(operations) = view.operations()
        && operations.filter.paste(text)
    {
        operations.arrange();
        return true;
    }
    let typing = view.search.line.paste(text);
    if typing {
        ask::search(view, cx);
    }
    typing
}

/// Closes the level opened last. A table first clears its filter; closing the legend shows the list below it again.
fn close(view: &mut TimelineView, cx: &mut Context) {
    let Some(level) = view.levels.last().copied() else { return };
    match level {
        TimelineLevel::Lower => view.remove(),
        TimelineLevel::Path => view.lit = false,
        TimelineLevel::Search => ask::end_search(view, cx),
        TimelineLevel::Selection => view.unselect(),
        TimelineLevel::Panel => {
            if let Some(operations) = view.operations()
                && operations.filter.drop_text()
            {
                operations.arrange();
            } else {
                view.panel = view.panel.take().and_then(TimelinePanel::covered);
            }
        }
    }
}
