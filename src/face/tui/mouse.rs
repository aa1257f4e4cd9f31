//! Mouse: pointer events (clicks, drags, wheel) from terminal events, and their routes to the footer, the top overlay, the
//! tabs, or the screen.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::footer::{FooterClick, footer_hint};
use super::prelude::*;
use super::regions::{Regions, regions};
use super::scope;
use super::update::{act, press, step};
use super::view::tabs;

/// Rows that a notch of the wheel scrolls.
const NOTCH: isize = 3;

/// Maximum interval between the clicks of a double click.
const DOUBLE_CLICK_MS: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Press {
    pub at: Position,
    /// Time of the press, in ms since the workbench was opened.
    pub ms: u64,
    /// True if the mouse moved with the button down.
    pub dragged: bool,
}

/// Turns a terminal event into a pointer event and routes it; ignores other buttons and plain moves.
pub fn handle(state: &mut State, event: MouseEvent) {
    let at = Position::new(event.column, event.row);
    let kind = match event.kind {
        MouseEventKind::ScrollUp => PointerKind::Wheel(-1),
        MouseEventKind::ScrollDown => PointerKind::Wheel(1),
        MouseEventKind::ScrollLeft => PointerKind::WheelSideways(-1),
        MouseEventKind::ScrollRight => PointerKind::WheelSideways(1),
        MouseEventKind::Down(MouseButton::Left) => {
            let now = state.cx.now_ms;
            let before = state.cx.press.replace(Press { at, ms: now, dragged: false });
            let again = before.is_some_and(|b| {
                b.at == at && !b.dragged && now.saturating_sub(b.ms) <= DOUBLE_CLICK_MS
            });
            if again { PointerKind::DoubleClick } else { PointerKind::Click }
        }
        MouseEventKind::Drag(MouseButton::Left) => {
            let Some(press) = &mut state.cx.press else { return };
            press.dragged = true;
            PointerKind::Drag(press.at)
        }
        MouseEventKind::Up(MouseButton::Left) => match state.cx.press {
            Some(press) if press.dragged => PointerKind::Drop(press.at),
            _ => return,
        },
        _ => return,
    };
    let shift = event.modifiers.contains(KeyModifiers::SHIFT);
    point(state, Pointer { kind, at, shift });
}

fn point(state: &mut State, event: Pointer) {
    let Some(regions) = regions(&state.cx) else { return };
    if regions.footer.contains(event.at) {
        point_at_footer(state, regions.footer, event);
    } else if !state.cx.overlays.is_empty() {
        point_at_overlay(state, event);
    } else if is_click(event) && regions.tabs.contains(event.at) {
        point_at_tabs(state, event.at);
    } else {
        point_at_screen(state, regions, event);
    }
}

fn is_click(event: Pointer) -> bool {
    matches!(event.kind, PointerKind::Click | PointerKind::DoubleClick)
}

/// A click on a hint does what its key does.
fn point_at_footer(state: &mut State, footer: Rect, event: Pointer) {
    if event.kind != PointerKind::Click {
        return;
    }
    match footer_hint(footer, state, event.at.x).map(|hint| hint.click) {
        Some(FooterClick::Act(action)) => act(state, action),
        Some(FooterClick::Press(key)) => press(state, key),
        Some(FooterClick::Nothing) | None => {}
    }
}

fn point_at_overlay(state: &mut State, event: Pointer) {
    let Some(mut top) = state.cx.overlays.pop() else { return };
    let key = match event.kind {
        PointerKind::Click => top.click(event.at, &state.cx),
        PointerKind::Wheel(notches) => {
            top.scroll(notches * NOTCH);
            None
        }
        _ => None,
    };
    state.cx.overlays.push(top);
    if let Some(code) = key {
        press(state, KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn point_at_tabs(state: &mut State, at: Position) {
    let on = |(_, label, x): &(_, String, u16)| (*x..*x + label.len() as u16).contains(&at.x);
    if let Some((tab, ..)) = tabs(&state.cx).find(on) {
        scope::show_screen(state, tab);
    }
}

fn point_at_screen(state: &mut State, regions: Regions, event: Pointer) {
    let (screen, cx) = state.split(state.cx.tab);
    if is_click(event)
        && regions.body.contains(event.at)
        && screen.filter().is_some_and(|filter| std::mem::take(&mut filter.typing))
    {
        screen.input(ScreenInput::Narrow, cx);
    }
    // a drag that leaves the body still receives its release
    let dragging = matches!(event.kind, PointerKind::Drag(_) | PointerKind::Drop(_));
    let inside = dragging || regions.body.contains(event.at);
    if inside && screen.input(ScreenInput::Mouse(regions.body, event), cx) {
        return;
    }
    match event.kind {
        PointerKind::Wheel(notches) => step(state, notches * NOTCH),
        PointerKind::Click | PointerKind::DoubleClick => point_at_list(state, regions.body, event),
        _ => {}
    }
}

/// Selects the row of the screen's list under the mouse.
fn point_at_list(state: &mut State, body: Rect, event: Pointer) {
    let (screen, cx) = state.split(state.cx.tab);
    let Some(shown) = screen.list(body) else { return };
    let down = event.at.y.saturating_sub(shown.area.y) / shown.rows.max(1);
    let row = shown.list.offset + usize::from(down);
    if !shown.area.contains(event.at) || row >= shown.len {
        return;
    }
    shown.list.selected = row;
    // a double click runs the screen's main action, however Enter is bound
    if event.kind == PointerKind::DoubleClick
        && let Some(action) = cx.keys.main_action(cx.tab)
    {
        act(state, action);
    }
}
