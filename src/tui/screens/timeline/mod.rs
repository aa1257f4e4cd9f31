//! Screen 4: what the lanes of a trace did.

mod draw;
mod info;
pub mod layout;
pub mod state;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::tui::action::{Action, Binding, bind};
use crate::tui::keys::{paste_into, type_into};
use crate::tui::layout::cut_left;
use crate::tui::message::Effect;
use crate::tui::page::{Page, Pointer, PointerKind, body_of};
use crate::tui::palette;
use crate::tui::state::State;
use crate::tui::update::type_into_palette;
use state::{Pane, View};

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
    on("search", "/", Act::Search, "search: words of a name", Some("search")),
    on("next-match", "n", Act::MatchNext, "next match of the search", None),
    on("previous-match", "N", Act::MatchPrevious, "previous match of the search", None),
    on("fit-all", "f", Act::FitAll, "fit the whole trace", Some("fit all")),
    on("undo", "u", Act::Undo, "undo zooming and panning", Some("undo")),
    on("pan-left", "h", Act::PanLeft, "pan left", Some("pan")),
    on("pan-right", "l", Act::PanRight, "pan right", None),
    on("toggle-rank", "Enter Space", Act::ToggleRank, "collapse or open the rank", Some("rank")),
    on("toggle-ranks", "C", Act::ToggleRanks, "collapse or open all ranks", None),
    on("open-beneath", "b", Act::TypeBeneath, "open another trace beneath this one", Some("beneath")),
    on("switch-trace", "w", Act::SwitchTrace, "go to the other trace", None),
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
        if let Some(view) = &mut state.timeline.view {
            view.move_line(rows);
        }
        Vec::new()
    }

    fn rows_of_a_page(&self, state: &State) -> isize {
        let lines = || {
            let areas = layout::open(state, body_of(state))?;
            areas.panes.get(state.timeline.view.as_ref()?.focus).map(|pane| pane.lines)
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

    fn pointer(&self, state: &mut State, _body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        let (pane, line, area) = strip_at(state, event.at)?;
        let view = state.timeline.view.as_mut()?;
        let time = view.window.time(usize::from(event.at.x - area.x), usize::from(area.width));
        match event.kind {
            PointerKind::Click => view.point_at(pane, line, time),
            PointerKind::Wheel(notches) => view.zoom_at(time, if notches < 0 { 0.8 } else { 1.25 }),
            PointerKind::WheelSideways(notches) => view.pan(0.1 * notches as f64),
            PointerKind::DoubleClick | PointerKind::Drag(_) | PointerKind::Drop(_) => {}
        }
        Some(Vec::new())
    }

    fn close(&self, state: &mut State) {
        if let Some(view) = &mut state.timeline.view {
            view.forget_search();
        }
    }

    fn settle(&self, state: &mut State, body: Rect, effects: &mut Vec<Effect>) {
        let Some(areas) = layout::open(state, body) else { return };
        let request = state.timeline.request;
        let Some(view) = &mut state.timeline.view else { return };
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
}

/// The pane and the line at a place of the window, and where the pane's lines are.
fn strip_at(state: &State, at: Position) -> Option<(usize, usize, Rect)> {
    let areas = layout::open(state, body_of(state))?;
    let view = state.timeline.view.as_ref()?;
    areas.panes.iter().zip(&view.panes).enumerate().find_map(|(i, (areas, pane))| {
        let (_, area) = cut_left(areas.lines, layout::LANE_LABEL);
        let line = pane.first_line + usize::from(at.y.saturating_sub(area.y));
        area.contains(at).then_some((i, line, area))
    })
}

/// Searches every trace that is open for what is typed now.
fn search(state: &mut State) -> Vec<Effect> {
    let request = state.timeline.request;
    let Some(view) = &mut state.timeline.view else { return Vec::new() };
    view.search.serial += 1;
    let (serial, query) = (view.search.serial, view.search.input.value().to_string());
    let search = |(pane, shown): (usize, &Pane)| Effect::Search {
        request,
        pane,
        serial,
        index: shown.index.clone(),
        query: query.clone(),
    };
    view.panes.iter().enumerate().map(search).collect()
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    if act == Act::TypeBeneath {
        match state.timeline.view {
            Some(_) => type_into_palette(state, palette::BENEATH),
            None => state.inform("no trace is open"),
        }
        return Vec::new();
    }
    let told = state.timeline.view.as_mut().map_or(Err(""), |view| on_view(view, act));
    if let Err(why) = told
        && !why.is_empty()
    {
        state.inform(why);
    }
    Vec::new()
}

/// What is done to the traces that are open; why, where nothing was done.
fn on_view(view: &mut View, act: Act) -> Result<(), &'static str> {
    let done = |done: bool, why| if done { Ok(()) } else { Err(why) };
    match act {
        Act::SpanPrevious => view.move_in_line(-1),
        Act::SpanNext => view.move_in_line(1),
        Act::ZoomIn => view.zoom(0.5),
        Act::ZoomOut => view.zoom(2.0),
        Act::PanLeft => view.pan(-0.5),
        Act::PanRight => view.pan(0.5),
        Act::StepNext => view.fit_neighbour(true),
        Act::StepPrevious => view.fit_neighbour(false),
        Act::FitAll => view.fit_all(),
        Act::ZoomSpan => view.zoom_span(),
        Act::Undo => return done(view.undo(), "nothing to undo"),
        Act::Search => view.search.typing = true,
        Act::MatchNext | Act::MatchPrevious => {
            let found = view.go_to_match(act == Act::MatchNext);
            return done(found, "nothing was found: a search is for parts of names");
        }
        Act::ToggleRank => view.toggle_rank(),
        Act::ToggleRanks => view.toggle_all(),
        Act::SwitchTrace if view.panes.len() > 1 => view.switch(),
        Act::ShiftNext | Act::ShiftPrevious if view.panes.len() > 1 => {
            let by = if act == Act::ShiftNext { 1 } else { -1 };
            return done(view.shift(by), "the lower trace has no further step");
        }
        Act::CloseBeneath if view.panes.len() > 1 => return done(view.remove(), ""),
        Act::SwitchTrace | Act::ShiftNext | Act::ShiftPrevious | Act::CloseBeneath => {
            return Err("only one trace is open: open another beneath it first");
        }
        Act::TypeBeneath => {}
    }
    Ok(())
}
