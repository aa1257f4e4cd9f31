//! Screen 4: what the lanes of a trace did.

mod draw;
mod export;
mod info;
pub mod layout;
mod lists;
mod overview;
pub mod state;
mod stretch;
#[cfg(test)]
mod tests;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::tui::action::{Action, Binding, bind};
use crate::tui::keys::{paste_into, type_into};
use crate::tui::layout::cut_left;
use crate::tui::message::{Effect, TraceSource};
use crate::tui::page::{Export, FileKind};
use crate::tui::page::{Page, Pointer, PointerKind, body_of};
use crate::tui::palette;
use crate::tui::state::State;
use crate::tui::state::{Overlay, Prompt, Purpose};
use crate::tui::update::type_into_palette;
use state::ask::Prediction;
use state::panel::Panel;
use state::target::{FORMS, Target};
use state::{Ask, Pane, View};
use tui_input::Input;

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
    on("toggle-rank", "Enter Space", Act::ToggleRank, "zoom to the selection; else collapse or open the rank", Some("rank")),
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
        point(state, body, event).map(|()| Vec::new())
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

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        export::remember(state.timeline.view.as_ref()?)
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        let Some((sources, window)) = export::recall(kept) else { return Vec::new() };
        let request = state.timeline.request(sources.join(" and "), false);
        state.timeline.opens_at = window;
        let sources = sources.into_iter().map(|source| TraceSource::Path(source.into())).collect();
        vec![Effect::OpenTraces { request, sources }]
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        match &state.timeline.view {
            Some(view) => export::export(view, kind).map(Some),
            None => Ok(None),
        }
    }
}

/// Does what the mouse asks; `None` where nothing of the timeline is there.
fn point(state: &mut State, body: Rect, event: Pointer) -> Option<()> {
    let areas = layout::open(state, body)?;
    let (at, kind) = (event.at, event.kind);
    let pressed = match kind {
        PointerKind::Drag(from) | PointerKind::Drop(from) => from,
        _ => at,
    };
    let (_, whole) = cut_left(areas.overview, layout::LANE_LABEL);
    if whole.contains(pressed) {
        let view = state.timeline.view.as_mut()?;
        match kind {
            PointerKind::Wheel(notches) => view.pan(0.25 * notches as f64),
            PointerKind::WheelSideways(notches) => view.pan(0.1 * notches as f64),
            PointerKind::Drag(_) | PointerKind::Click | PointerKind::DoubleClick => {
                let column = usize::from(at.x.clamp(whole.x, whole.right() - 1) - whole.x);
                let pane = overview::pane_of(view, whole.height, pressed.y - whole.y);
                view.center_at(pane, column, usize::from(whole.width), kind == PointerKind::Click);
            }
            PointerKind::Drop(_) => {}
        }
        return Some(());
    }
    let list = lists::rows(areas.panel);
    if list.contains(pressed) {
        let view = state.timeline.view.as_mut()?;
        let differences = view.differences.clone();
        let panel = view.panel.as_mut()?;
        let row = panel.list().offset + usize::from(pressed.y - list.y);
        let len = panel.rows(differences.as_deref());
        match kind {
            PointerKind::Wheel(notches) => panel.list().move_by(3 * notches, len),
            PointerKind::Click | PointerKind::DoubleClick if row < len => {
                panel.list().selected = row;
                if kind == PointerKind::DoubleClick {
                    view.go_to_row();
                }
            }
            _ => {}
        }
        return Some(());
    }
    let (pane, line, area) = strip_at(state, pressed)?;
    let view = state.timeline.view.as_mut()?;
    let columns = usize::from(area.width);
    let column = |at: Position| usize::from(at.x.clamp(area.x, area.right() - 1) - area.x);
    let time = view.window.time(column(at), columns);
    match kind {
        PointerKind::Click if event.shift => view.select_times(view.time.min(time), view.time.max(time)),
        PointerKind::Click => {
            view.selected = None;
            view.point_at(pane, line, time);
        }
        PointerKind::DoubleClick => {
            view.point_at(pane, line, time);
            view.zoom_span();
        }
        PointerKind::Drag(from) | PointerKind::Drop(from) => {
            let (a, b) = (column(from), column(at));
            // both columns whole
            let times = [a.min(b), a.max(b) + 1].map(|column| view.window.time(column, columns));
            view.select_times(times[0], times[1]);
        }
        PointerKind::Wheel(notches) if event.shift => view.pan(0.1 * notches as f64),
        PointerKind::Wheel(notches) => view.zoom_at(time, if notches < 0 { 0.8 } else { 1.25 }),
        PointerKind::WheelSideways(notches) => view.pan(0.1 * notches as f64),
    }
    Some(())
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
    let Some(view) = &mut state.timeline.view else {
        state.inform("no trace is open");
        return Vec::new();
    };
    match act {
        Act::TypeBeneath => type_into_palette(state, palette::BENEATH),
        Act::GoTo => ask(state, Typed::Target, "go to", FORMS, String::new()),
        Act::Ghost if view.has_ghost() => {
            view.remove();
        }
        Act::Ghost => match proposed(view) {
            Ok((text, hint)) => ask(state, Typed::Ghost, "simulate this run on", &hint, text),
            Err(why) => state.inform(why),
        },
        Act::CopyNumbers => match stretch::text(view) {
            Some(text) => {
                state.inform(format!("copied: {text}"));
                return vec![Effect::Copy(text)];
            }
            None => state.inform("no numbers yet: select something, or set marks A and B"),
        },
        act => {
            let told = on_view(view, act);
            if let Err(why) = told
                && !why.is_empty()
            {
                state.inform(why);
            }
        }
    }
    Vec::new()
}

/// Asks for a line.
fn ask(state: &mut State, what: Typed, title: &str, hint: &str, text: String) {
    state.overlays.push(Overlay::Prompt(Prompt {
        title: title.into(),
        hint: hint.into(),
        input: Input::new(text),
        error: None,
        purpose: Purpose::Timeline(what),
    }));
}

/// What a run is simulated on unless another thing is typed, and why.
fn proposed(view: &View) -> Result<(String, String), String> {
    let Some(spec) = &view.panes[0].index.trace.meta.spec else {
        return Err("an imported trace does not tell what was run: nothing can be predicted".into());
    };
    let on = Prediction::proposed(spec, 0);
    let why = match on.hardware == spec.hardware {
        true => "the run's own hardware".into(),
        false => format!("'{}', on which it ran, has no profile: this one stands in", spec.hardware),
    };
    let hint =
        format!("a hardware profile and a stack, names or files. Proposed: {why}. Enter simulates");
    Ok((format!("{} {}", on.hardware, on.stack), hint))
}

/// Does what a typed line asks for; why that cannot be.
pub fn typed(state: &mut State, what: Typed, text: &str) -> Result<Vec<Effect>, String> {
    let Some(view) = &mut state.timeline.view else { return Err("no trace is open".into()) };
    match what {
        Typed::Target => match view.go(Target::parse(text)?)? {
            true => Ok(search(state)),
            false => Ok(Vec::new()),
        },
        Typed::Ghost => {
            let pane = &view.panes[0];
            let step = pane.step_key(view.time, view.focus == 0).map_or(0, |key| key.step);
            let on = Prediction::parse(text, step)?;
            let ask = Ask::Predict(pane.index.clone(), on);
            view.predicting = true;
            Ok(vec![Effect::Timeline(Box::new(ask))])
        }
    }
}

/// What is done to the traces that are open; why, where nothing was done.
fn on_view(view: &mut View, act: Act) -> Result<(), String> {
    let done = |done: bool, why: &str| if done { Ok(()) } else { Err(why.to_string()) };
    match act {
        Act::SpanPrevious => view.move_in_line(-1),
        Act::SpanNext => view.move_in_line(1),
        Act::ExtendPrevious => view.extend(-1),
        Act::ExtendNext => view.extend(1),
        Act::ZoomIn => view.zoom(0.5),
        Act::ZoomOut => view.zoom(2.0),
        Act::PanLeft => view.pan(-0.5),
        Act::PanRight => view.pan(0.5),
        Act::StepNext => view.fit_neighbour(true),
        Act::StepPrevious => view.fit_neighbour(false),
        Act::FitAll => view.fit_all(),
        Act::ZoomSpan => view.zoom_span(),
        Act::Undo => return done(view.undo(), "nothing to undo"),
        Act::Redo => return done(view.redo(), "nothing to redo"),
        Act::Search => view.search.typing = true,
        Act::MatchNext | Act::MatchPrevious => {
            let found = view.go_to_match(act == Act::MatchNext);
            return done(found, "nothing was found: a search is for parts of names");
        }
        Act::Select => view.toggle_selecting(),
        Act::MarkA => view.mark(0),
        Act::MarkB => view.mark(1),
        Act::Path => {
            view.lit = !view.lit;
            if view.lit && !crate::analysis::knows_dependencies(&view.pane().index.trace) {
                view.lit = false;
                return Err("an imported trace does not tell what waited for what".into());
            }
        }
        Act::PathNext | Act::PathPrevious => return view.walk_path(act == Act::PathNext),
        Act::WaitedFor | Act::WaitingFor => return view.follow_link(act == Act::WaitingFor),
        Act::Links => return view.list_links(),
        Act::Back => return done(view.back(), "no dependency was followed: there is no way back"),
        Act::ToggleRank if view.panel.is_some() => view.go_to_row(),
        Act::ToggleRank if view.selected.is_some() => return done(view.zoom_stretch(), ""),
        Act::ToggleRank => view.toggle_rank(),
        Act::ToggleRanks => view.toggle_all(),
        _ if view.panes.len() < 2 => {
            return Err("only one trace is open: open another beneath it first".into());
        }
        Act::SwitchTrace => view.switch(),
        Act::AlignHere => return view.align_here(),
        Act::FollowSteps => {
            view.follows = !view.follows;
            if view.follows {
                return view.align_here();
            }
        }
        Act::Compare => {
            view.steps_to_compare()?;
            let shown = |by_exposed| Some(Panel::Differences { list: Default::default(), by_exposed });
            view.panel = match view.panel {
                Some(Panel::Differences { by_exposed: false, .. }) => shown(true),
                Some(Panel::Differences { .. }) => None,
                _ => shown(false),
            };
        }
        Act::ShiftNext | Act::ShiftPrevious => {
            view.follows = false;
            let by = if act == Act::ShiftNext { 1 } else { -1 };
            return done(view.shift(by), "the lower trace has no further step");
        }
        Act::CloseBeneath => return done(view.remove(), ""),
        // asked for a line, or done before
        Act::TypeBeneath | Act::GoTo | Act::Ghost | Act::CopyNumbers => {}
    }
    Ok(())
}
