//! Screen 4: what the lanes of a trace did.

mod act;
mod draw;
mod export;
mod info;
pub mod layout;
mod lists;
mod overview;
mod pointer;
pub mod state;
mod stretch;
#[cfg(test)]
mod tests;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::{Action, Binding, bind};
use crate::tui::keys::{paste_into, type_into};
use crate::tui::layout::cut_left;
use crate::tui::message::{Effect, TraceSource};
use crate::tui::page::{Export, FileKind, Page, Pointer, body_of};
use crate::tui::state::State;

use act::search;
pub use act::{act, typed};

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
    Links,
    Back,
    AlignHere,
    FollowSteps,
    Compare,
    Ghost,
}

/// What a line that is typed here is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Going somewhere.
    Target,
    /// Simulating what the run should have taken: a hardware profile, and a stack.
    Ghost,
}

const fn on(
    id: &'static str,
    keys: &'static str,
    act: Act,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding {
    bind(id, keys, Action::Timeline(act), name, hint)
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    on("previous-operation", "Left", Act::SpanPrevious, "previous operation of the line", Some("operation")),
    on("next-operation", "Right", Act::SpanNext, "next operation of the line", None),
    on("zoom-in", "+ =", Act::ZoomIn, "zoom in at the cursor", Some("zoom")),
    on("zoom-out", "-", Act::ZoomOut, "zoom out at the cursor", None),
    on("zoom-to-operation", "z", Act::ZoomSpan, "zoom to the operation under the cursor", Some("zoom to it")),
    on("next-step", "] s", Act::StepNext, "fit the next decode step", Some("step")),
    on("previous-step", "[ S", Act::StepPrevious, "fit the previous decode step", None),
    on("go-to", "t", Act::GoTo, "go to a time, an interval, a step, an operation", Some("go to")),
    on("search", "/", Act::Search, "search: words of a name", Some("search")),
    on("next-match", "n", Act::MatchNext, "next match of the search", None),
    on("previous-match", "N", Act::MatchPrevious, "previous match of the search", None),
    on("fit-all", "f", Act::FitAll, "fit the whole trace", Some("fit all")),
    on("undo", "u", Act::Undo, "undo zooming and panning", Some("undo")),
    on("redo", "U", Act::Redo, "redo what was undone", None),
    on("pan-left", "h", Act::PanLeft, "pan left", Some("pan")),
    on("pan-right", "l", Act::PanRight, "pan right", None),
    on("select", "v", Act::Select, "begin or end a selection: it goes where the cursor goes", Some("select")),
    on("extend-next", "shift-Right", Act::ExtendNext, "select on to the next operation", None),
    on("extend-previous", "shift-Left", Act::ExtendPrevious, "select on to the previous operation", None),
    on("mark-a", "(", Act::MarkA, "set mark A where the operation under the cursor starts", None),
    on("mark-b", ")", Act::MarkB, "set mark B where the operation under the cursor ends", None),
    on("copy-numbers", "y", Act::CopyNumbers, "copy the numbers of the selection, or from A to B", None),
    on("critical-path", "p", Act::Path, "light up the critical path of the step, or not", Some("critical path")),
    on("path-next", ".", Act::PathNext, "next operation on the critical path", None),
    on("path-previous", ",", Act::PathPrevious, "previous operation on the critical path", None),
    on("waited-for", "d", Act::WaitedFor, "go to what held this operation up", Some("waited for")),
    on("waiting-for", "D", Act::WaitingFor, "go to what waited for this operation", None),
    on("dependencies", "e", Act::Links, "list what this waited for, and what waited for it", None),
    on("back", "Backspace", Act::Back, "go back to where that was followed from", None),
    on("toggle-rank", "Enter Space", Act::ToggleRank, "go where the list says; else zoom to the selection; else collapse or open the rank", Some("rank")),
    on("toggle-ranks", "C", Act::ToggleRanks, "collapse or open all ranks", None),
    on("open-beneath", "b", Act::TypeBeneath, "open another trace beneath this one", Some("beneath")),
    on("predict", "g", Act::Ghost, "simulate what this run should have taken, as a ghost beneath", Some("ghost")),
    on("compare-operations", "c", Act::Compare, "list differences by operation: by time, then by what was exposed", None),
    on("switch-trace", "w", Act::SwitchTrace, "go to the other trace", None),
    on("align-here", "a", Act::AlignHere, "align both traces at the step under the cursor", None),
    on("follow-steps", "A", Act::FollowSteps, "keep both traces aligned at the step under the cursor, or not", None),
    on("align-next", "}", Act::ShiftNext, "align the lower trace's next step", None),
    on("align-previous", "{", Act::ShiftPrevious, "align the lower trace's previous step", None),
    on("close-beneath", "X", Act::CloseBeneath, "close the lower trace", None),
];

/// The page.
#[derive(Debug)]
pub struct Timeline;

impl Page for Timeline {
    fn title(&self) -> &'static str {
        "timeline"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        let Some(view) = &mut state.timeline.view else { return Vec::new() };
        let differences = view.differences.clone();
        match &mut view.panel {
            Some(panel) => {
                let len = panel.rows(differences.as_deref());
                panel.list().move_by(rows, len);
            }
            None => view.move_line(rows),
        }
        Vec::new()
    }

    fn rows_of_a_page(&self, state: &State) -> isize {
        let lines = || {
            let areas = layout::open(state, body_of(state))?;
            let view = state.timeline.view.as_ref()?;
            if view.panel.is_some() {
                return Some(lists::rows(areas.panel));
            }
            areas.panes.get(view.focus).map(|pane| pane.lines)
        };
        lines().map_or(4, |area| isize::from(area.height as i16 - 1).max(1))
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        let view = state.timeline.view.as_mut().filter(|view| view.search.typing)?;
        match key.code {
            KeyCode::Enter => {
                view.search.typing = false;
                view.go_to_found();
            }
            KeyCode::Down | KeyCode::Tab => view.search.typing = false,
            KeyCode::Esc => view.forget_search(),
            _ if type_into(&mut view.search.input, key) => return Some(search(state)),
            _ => {}
        }
        Some(Vec::new())
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        let view = state.timeline.view.as_mut().filter(|view| view.search.typing)?;
        paste_into(&mut view.search.input, text);
        Some(search(state))
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        pointer::point(state, body, event).map(|()| Vec::new())
    }

    fn close(&self, state: &mut State) {
        let Some(view) = &mut state.timeline.view else { return };
        if view.panel.take().is_some() {
            return;
        }
        if !view.search.input.value().is_empty() {
            view.forget_search();
        } else {
            view.unselect();
        }
    }

    fn settle(&self, state: &mut State, body: Rect, effects: &mut Vec<Effect>) {
        let Some(areas) = layout::open(state, body) else { return };
        let request = state.timeline.request;
        let Some(view) = &mut state.timeline.view else { return };
        let (_, lanes) = cut_left(areas.overview, layout::LANE_LABEL);
        let asks = view.settle(usize::from(lanes.width), usize::from(lists::rows(areas.panel).height));
        effects.extend(asks.into_iter().map(|ask| Effect::Timeline(Box::new(ask))));
        let (time, focus) = (view.time, view.focus);
        for (i, (pane, areas)) in view.panes.iter_mut().zip(areas.panes).enumerate() {
            pane.scroll_to_cursor(usize::from(areas.lines.height));
            // while another trace is on its way, answers for this one would be dropped
            if state.timeline.loading.is_none()
                && let Some(part) = pane.wanted(time, i == focus)
            {
                effects.push(Effect::Analyse { request, pane: i, index: pane.index.clone(), part });
            }
        }
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        export::command(state.timeline.view.as_ref()?)
    }

    fn beyond_command(&self, state: &State) -> Vec<String> {
        state.timeline.view.as_ref().map_or_else(Vec::new, export::beyond_command)
    }

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        export::remember(state.timeline.view.as_ref()?)
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        let Some((sources, window)) = export::recall(kept) else { return Vec::new() };
        let names: Vec<&str> = sources.iter().map(|(source, _)| source.as_str()).collect();
        let request = state.timeline.request(names.join(" and "), false);
        state.timeline.opens_at = window;
        let of = |(source, rules): (String, _)| TraceSource::Path { path: source.into(), rules };
        let sources = sources.into_iter().map(of).collect();
        vec![Effect::OpenTraces { request, sources }]
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        match &state.timeline.view {
            Some(view) => export::export(view, kind).map(Some),
            None => Ok(None),
        }
    }
}
