//! Mouse handling of the timeline: clicks, drags and the wheel on lanes, overview and lists.

use super::{Timeline, layout, lists, overview};
use crate::face::tui::prelude::*;

/// Handles a mouse event; `None` if it hits no part of the timeline.
pub fn point(timeline: &mut Timeline, body: Rect, event: Pointer) -> Option<()> {
    let areas = layout::open(timeline, body)?;
    let (at, kind) = (event.at, event.kind);
    let pressed = match kind {
        PointerKind::Drag(from) | PointerKind::Drop(from) => from,
        _ => at,
    };
    let (_, whole) = cut_left(areas.overview, layout::LANE_LABEL);
    if whole.contains(pressed) {
        let view = timeline.view.as_mut()?;
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
    let list = lists::rows(areas.panel, timeline.view.as_ref()?);
    if list.contains(pressed) {
        let view = timeline.view.as_mut()?;
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
    let (pane, line, area) = strip_at(timeline, body, pressed)?;
    let view = timeline.view.as_mut()?;
    let columns = usize::from(area.width);
    let column = |at: Position| usize::from(at.x.clamp(area.x, area.right() - 1) - area.x);
    let time = view.window.time(column(at), columns);
    match kind {
        PointerKind::Click if event.shift => view.select_times(view.time.min(time), view.time.max(time)),
        // keep a selection that contains the click: a second click zooms to it
        PointerKind::Click => {
            view.selected = view.selected.filter(|selected| selected.window.contains(time));
            view.point_at(pane, line, time);
        }
        PointerKind::DoubleClick if view.selected.is_some() => {
            view.zoom_stretch();
        }
        PointerKind::DoubleClick => {
            view.point_at(pane, line, time);
            view.zoom_span();
        }
        PointerKind::Drag(from) | PointerKind::Drop(from) => {
            let (a, b) = (column(from), column(at));
            // include both columns entirely
            let times = [a.min(b), a.max(b) + 1].map(|column| view.window.time(column, columns));
            view.select_times(times[0], times[1]);
        }
        PointerKind::Wheel(notches) if event.shift => view.pan(0.1 * notches as f64),
        PointerKind::Wheel(notches) => view.zoom_at(time, if notches < 0 { 0.8 } else { 1.25 }),
        PointerKind::WheelSideways(notches) => view.pan(0.1 * notches as f64),
    }
    Some(())
}

fn strip_at(timeline: &Timeline, body: Rect, at: Position) -> Option<(usize, usize, Rect)> {
    let areas = layout::open(timeline, body)?;
    let view = timeline.view.as_ref()?;
    areas.panes.iter().zip(&view.panes).enumerate().find_map(|(i, (areas, pane))| {
        let (_, area) = cut_left(areas.lines, layout::LANE_LABEL);
        let line = pane.first_line + usize::from(at.y.saturating_sub(area.y));
        area.contains(at).then_some((i, line, area))
    })
}
