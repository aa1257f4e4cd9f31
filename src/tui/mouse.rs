//! The mouse: clicks on tabs and rows, the wheel scrolls lists and zooms timelines.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::action::Screen;
use super::layout;
use super::message::Effect;
use super::state::{List, Overlay, State};
use super::update::step;

/// Rows that one notch of the wheel scrolls.
const NOTCH: isize = 3;

/// Does what a mouse event asks.
pub fn handle(state: &mut State, event: MouseEvent) -> Vec<Effect> {
    let at = Position::new(event.column, event.row);
    match event.kind {
        MouseEventKind::ScrollUp => wheel(state, at, -1),
        MouseEventKind::ScrollDown => wheel(state, at, 1),
        MouseEventKind::Down(MouseButton::Left) => {
            click(state, at);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn wheel(state: &mut State, at: Position, notches: isize) -> Vec<Effect> {
    if let Some(Overlay::Help { scroll } | Overlay::Text { scroll, .. }) = state.overlays.last_mut() {
        *scroll = scroll.saturating_add_signed(notches * NOTCH);
        return Vec::new();
    }
    if !state.overlays.is_empty() {
        return Vec::new();
    }
    if state.screen != Screen::Timeline {
        return step(state, notches * NOTCH);
    }
    if let Some((_, _, area)) = strip_at(state, at)
        && let Some(view) = &mut state.timeline.view
    {
        let time = view.window.time(usize::from(at.x - area.x), usize::from(area.width));
        view.zoom_at(time, if notches < 0 { 0.8 } else { 1.25 });
    }
    Vec::new()
}

fn click(state: &mut State, at: Position) {
    let Some(regions) = layout::regions(state.size) else { return };
    if !state.overlays.is_empty() {
        return;
    }
    if regions.tabs.contains(at) {
        if let Some((screen, ..)) = layout::tabs().find(|(_, x, width)| (*x..x + width).contains(&at.x))
        {
            state.screen = screen;
        }
        return;
    }
    if let Some(area) = layout::list(state) {
        let stored = state.runs.order.len();
        match state.screen {
            Screen::Experiments => {
                let len = state.experiments.len();
                select(&mut state.experiments.list, len, area, at);
            }
            Screen::Live => select(&mut state.live.list, state.live.cells.len(), area, at),
            Screen::Runs => {
                state.runs.typing = false;
                select(&mut state.runs.list, stored, area, at);
            }
            Screen::Compare => {
                let len = state.compare.pairs().len();
                select(&mut state.compare.list, len, area, at);
            }
            Screen::Timeline | Screen::Pareto => {}
        }
    }
    match state.screen {
        Screen::Timeline => {
            let Some((pane, line, area)) = strip_at(state, at) else { return };
            if let Some(view) = &mut state.timeline.view {
                let time = view.window.time(usize::from(at.x - area.x), usize::from(area.width));
                view.point_at(pane, line, time);
            }
        }
        Screen::Pareto => super::screens::pareto::click(state, regions.body, at),
        _ => {}
    }
}

/// The pane and the line of the timeline at a place of the window, and where the pane's lines are.
fn strip_at(state: &State, at: Position) -> Option<(usize, usize, Rect)> {
    let areas = layout::open_timeline(state)?;
    let view = state.timeline.view.as_ref()?;
    areas.panes.iter().zip(&view.panes).enumerate().find_map(|(i, (areas, pane))| {
        let (_, area) = layout::cut_left(areas.lines, layout::LANE_LABEL);
        let line = pane.first_line + usize::from(at.y.saturating_sub(area.y));
        area.contains(at).then_some((i, line, area))
    })
}

fn select(list: &mut List, len: usize, area: Rect, at: Position) {
    if area.contains(at) {
        let row = list.offset + usize::from(at.y - area.y);
        if row < len {
            list.selected = row;
        }
    }
}
