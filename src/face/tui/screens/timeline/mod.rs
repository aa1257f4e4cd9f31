//! Screen 4: what the lanes of a trace did.

mod act;
mod ask;
mod draw;
mod export;
mod info;
pub mod layout;
mod lists;
pub mod open;
mod overview;
mod pointer;
pub mod state;
mod stretch;
#[cfg(test)]
mod tests;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::desk;
use crate::face::tui::action::{Binding, bind};
use crate::face::tui::context::{Context, Opening, Request};
use crate::face::tui::layout::cut_left;
use crate::face::tui::screen::{Acts, Command, Export, FileKind, Pointer, Screen};
use crate::face::tui::state::Tab;
use crate::face::tui::widgets::field::Typed;
use crate::lab::store::Store;

pub use state::Timeline;

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    SpanPrevious,
    SpanNext,
    ZoomIn,
    ZoomOut,
    ZoomSpan,
    StepNext,
    StepPrevious,
    Search,
    MatchNext,
    MatchPrevious,
    FitAll,
    Undo,
    PanLeft,
    PanRight,
    ToggleRank,
    ToggleRanks,
    TypeBeneath,
    SwitchTrace,
    ShiftNext,
    ShiftPrevious,
    CloseBeneath,
    GoTo,
    Redo,
    Select,
    ExtendNext,
    ExtendPrevious,
    MarkA,
    MarkB,
    CopyNumbers,
    Path,
    PathNext,
    PathPrevious,
    WaitedFor,
    WaitingFor,
    Dependencies,
    Back,
    AlignHere,
    FollowSteps,
    Compare,
    Ghost,
}

impl Acts for Timeline {
    type Act = Act;

    #[rustfmt::skip]
    const BINDINGS: &'static [Binding<Act>] = &[
        bind("previous-operation", "Left", Act::SpanPrevious, "previous operation of the line", Some("operation")),
        bind("next-operation", "Right", Act::SpanNext, "next operation of the line", None),
        bind("zoom-in", "+ =", Act::ZoomIn, "zoom in at the cursor", Some("zoom")),
        bind("zoom-out", "-", Act::ZoomOut, "zoom out at the cursor", None),
        bind("zoom-to-operation", "z", Act::ZoomSpan, "zoom to the operation under the cursor", Some("zoom to it")),
        bind("next-step", "] s", Act::StepNext, "fit the next decode step", Some("step")),
        bind("previous-step", "[ S", Act::StepPrevious, "fit the previous decode step", None),
        bind("go-to", "t", Act::GoTo, "go to a time, an interval, a step, an operation", Some("go to")),
        bind("search", "/", Act::Search, "search: words of a name", Some("search")),
        bind("next-match", "n", Act::MatchNext, "next match of the search", None),
        bind("previous-match", "N", Act::MatchPrevious, "previous match of the search", None),
        bind("fit-all", "f", Act::FitAll, "fit the whole trace", Some("fit all")),
        bind("undo", "u", Act::Undo, "undo zooming and panning", Some("undo")),
        bind("redo", "U", Act::Redo, "redo what was undone", None),
        bind("pan-left", "h", Act::PanLeft, "pan left", Some("pan")),
        bind("pan-right", "l", Act::PanRight, "pan right", None),
        bind("select", "v", Act::Select, "begin or end a selection: it goes where the cursor goes", Some("select")),
        bind("extend-next", "shift-Right", Act::ExtendNext, "select on to the next operation", None),
        bind("extend-previous", "shift-Left", Act::ExtendPrevious, "select on to the previous operation", None),
        bind("mark-a", "(", Act::MarkA, "set mark A where the operation under the cursor starts", None),
        bind("mark-b", ")", Act::MarkB, "set mark B where the operation under the cursor ends", None),
        bind("copy-numbers", "y", Act::CopyNumbers, "copy the numbers of the selection, or from A to B", None),
        bind("critical-path", "p", Act::Path, "light up the critical path of the step, or not", Some("critical path")),
        bind("path-next", ".", Act::PathNext, "next operation on the critical path", None),
        bind("path-previous", ",", Act::PathPrevious, "previous operation on the critical path", None),
        bind("waited-for", "d", Act::WaitedFor, "go to what held this operation up", Some("waited for")),
        bind("waiting-for", "D", Act::WaitingFor, "go to what waited for this operation", None),
        bind("dependencies", "e", Act::Dependencies, "list what this waited for, and what waited for it", None),
        bind("back", "Backspace", Act::Back, "go back to where that was followed from", None),
        bind("toggle-rank", "Enter Space", Act::ToggleRank, "go where the list says; else zoom to the selection; else collapse or open the rank", Some("rank")),
        bind("toggle-ranks", "C", Act::ToggleRanks, "collapse or open all ranks", None),
        bind("open-beneath", "b", Act::TypeBeneath, "open another trace beneath this one", Some("beneath")),
        bind("predict", "g", Act::Ghost, "simulate what this run should have taken, as a ghost beneath", Some("ghost")),
        bind("compare-operations", "c", Act::Compare, "list differences by operation: by time, then by what was exposed", None),
        bind("switch-trace", "w", Act::SwitchTrace, "go to the other trace", None),
        bind("align-here", "a", Act::AlignHere, "align both traces at the step under the cursor", None),
        bind("follow-steps", "A", Act::FollowSteps, "keep both traces aligned at the step under the cursor, or not", None),
        bind("align-next", "}", Act::ShiftNext, "align the lower trace's next step", None),
        bind("align-previous", "{", Act::ShiftPrevious, "align the lower trace's previous step", None),
        bind("close-beneath", "X", Act::CloseBeneath, "close the lower trace", None),
    ];

    fn act(&mut self, act: Act, cx: &mut Context) {
        act::act(self, act, cx);
    }
}

impl Screen for Timeline {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn step(&mut self, rows: isize, _cx: &mut Context) {
        let Some(view) = &mut self.view else { return };
        let differences = view.differences.clone();
        match &mut view.panel {
            Some(panel) => {
                let len = panel.rows(differences.as_deref());
                panel.list().move_by(rows, len);
            }
            None => view.move_line(rows),
        }
    }

    fn rows_of_a_page(&self, cx: &Context) -> isize {
        let lines = || {
            let areas = layout::open(self, cx.body())?;
            let view = self.view.as_ref()?;
            if view.panel.is_some() {
                return Some(lists::rows(areas.panel));
            }
            areas.panes.get(view.focus).map(|pane| pane.lines)
        };
        lines().map_or(4, |area| isize::from(area.height as i16 - 1).max(1))
    }

    fn typed(&mut self, key: KeyEvent, cx: &mut Context) -> bool {
        let Some(view) = &mut self.view else { return false };
        match (view.search.line.key(key), key.code) {
            (None, _) => return false,
            (Some(Typed::Changed), KeyCode::Esc) => ask::end_search(view, cx),
            (Some(Typed::Changed), _) => ask::search(view, cx),
            (Some(Typed::Kept), KeyCode::Enter) => view.go_to_found(),
            _ => {}
        }
        true
    }

    fn paste(&mut self, text: &str, cx: &mut Context) -> bool {
        let Some(view) = &mut self.view else { return false };
        let typing = view.search.line.paste(text);
        if typing {
            ask::search(view, cx);
        }
        typing
    }

    fn pointer(&mut self, body: Rect, event: Pointer, _cx: &mut Context) -> bool {
        pointer::point(self, body, event).is_some()
    }

    fn close(&mut self, cx: &mut Context) {
        let Some(view) = &mut self.view else { return };
        if view.panel.take().is_some() {
            return;
        }
        if !view.search.line.value().is_empty() {
            ask::end_search(view, cx);
        } else {
            view.unselect();
        }
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        let Some(areas) = layout::open(self, body) else { return };
        let Some(view) = &mut self.view else { return };
        view.settle(usize::from(lists::rows(areas.panel).height));
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
            other => return Some(other),
        }
        None
    }

    fn command(&self) -> Result<Command, &'static str> {
        let nothing = "nothing is shown here that a command could show";
        let view = self.view.as_ref().ok_or(nothing)?;
        let words = export::command(view).ok_or(nothing)?;
        Ok(Command { words, beyond: export::beyond_command(view) })
    }

    fn remember(&self) -> Option<serde_json::Value> {
        export::remember(self.view.as_ref()?)
    }

    fn recall(&mut self, kept: &serde_json::Value, cx: &mut Context) {
        // a trace is read only where somebody looks at it
        let Some((sources, window)) = export::recall(kept).filter(|_| cx.tab == Tab::Timeline) else {
            return;
        };
        let names: Vec<&str> = sources.iter().map(|(source, _)| source.as_str()).collect();
        let what = names.join(" and ");
        let open = |store: &Store| {
            let open = |(source, rules): (String, Option<String>)| {
                desk::open(&source, store, rules.as_deref(), None)
            };
            sources.into_iter().map(open).collect()
        };
        self.open(what, Opening::Alone(window), open, cx);
    }

    fn export(&self, kind: FileKind, _cx: &Context) -> Result<Option<Export>, String> {
        match &self.view {
            Some(view) => export::export(view, kind).map(Some),
            None => Ok(None),
        }
    }
}
