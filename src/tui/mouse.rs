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
    if let (Some(area), Some(view)) = (layout::lanes(state), &mut state.timeline.view)
        && area.contains(at)
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
            if let (Some(area), Some(view)) = (layout::lanes(state), &mut state.timeline.view)
                && area.contains(at)
            {
                let line = usize::from(at.y - area.y);
                let rank = view.first_rank + line / usize::from(layout::RANK_ROWS);
                // the third row of a rank shows its exposed communication
                let lane = (line % usize::from(layout::RANK_ROWS)).min(1);
                let time = view.window.time(usize::from(at.x - area.x), usize::from(area.width));
                view.point_at(rank * 2 + lane, time);
            }
        }
        Screen::Pareto => super::screens::pareto::click(state, regions.body, at),
        _ => {}
    }
}

fn select(list: &mut List, len: usize, area: Rect, at: Position) {
    if area.contains(at) {
        let row = list.offset + usize::from(at.y - area.y);
        if row < len {
            list.selected = row;
        }
    }
}
