//! Mouse handling: clicks on tabs and rows, the wheel, drags. The screen handles events in its body.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::layout;
use super::prelude::*;
use super::update::{act, step};

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
    if let Some(top) = state.cx.overlays.last_mut() {
        match event.kind {
            PointerKind::Click if top.closes_on_click() => drop(state.cx.overlays.pop()),
            PointerKind::Wheel(notches) => top.scroll(notches * NOTCH),
            _ => {}
        }
        return;
    }
    let Some(regions) = layout::regions(&state.cx) else { return };
    let clicked = matches!(event.kind, PointerKind::Click | PointerKind::DoubleClick);
    if clicked && regions.tabs.contains(event.at) {
        let on = |(_, x, width): &(_, u16, u16)| (*x..*x + *width).contains(&event.at.x);
        if let Some((tab, ..)) = layout::tabs().find(on) {
            state.cx.tab = tab;
        }
        return;
    }
    let (screen, cx) = state.split(state.cx.tab);
    if clicked
        && regions.body.contains(event.at)
        && screen.filter().is_some_and(|filter| std::mem::take(&mut filter.typing))
    {
        screen.input(Input::Narrow, cx);
    }
    // a drag that leaves the body still receives its release
    let dragging = matches!(event.kind, PointerKind::Drag(_) | PointerKind::Drop(_));
    let inside = dragging || regions.body.contains(event.at);
    if inside && screen.input(Input::Mouse(regions.body, event), cx) {
        return;
    }
    match event.kind {
        PointerKind::Wheel(notches) => step(state, notches * NOTCH),
        PointerKind::Click | PointerKind::DoubleClick => {
            let Some(shown) = screen.list(regions.body) else { return };
            let row = shown.list.offset + usize::from(event.at.y.saturating_sub(shown.area.y));
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
        _ => {}
    }
}
