//! Timeline layout, shared by drawing and hit testing, and the mouse: clicks, drags and the wheel on lanes, overview and
//! lists.

use super::lists::LEGEND_MARKS;
use super::state::panel::TimelinePanel;
use super::state::{Pane, TimelineView, TraceLine};
use super::{Timeline, draw, info, lists, stretch};
use crate::face::tui::prelude::*;

/// Areas of the timeline.
///
/// ```text
/// | RUN  ladder tp2 ...  [simulated]                     |  header
/// | step 12: overlap 85% ...                             |
/// | whole 1.2 s  ▇▇▇[▇]▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ |  overview of the trace with the cursor
/// | exposed      ╱╱╱[╱]╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱ |
/// | since step 12  0 us      10 us      20 us            |  ticks, and the origin of all times
/// |            A├── 12.3 us ──┤B                         |  marks, if any
/// |            ├step 12─────────────▼─────┤step 13       |  ruler of the first trace
/// | critical   ███▓▓▓████                                |  its critical path, if highlighted
/// | ▾ r0 exp.    ╱╱                                      |  its lines
/// | RUN  standard tp2 ...  [simulated]                   |  title of the second trace
/// |            ├step 12───────────────────────┤          |  its ruler
/// | ▾ r0 exp.    ╱╱                                      |  its lines
/// | ╭ decode/L12/mlp/down ─────╮╭ selection 46 us ───────╮ |  info, and numbers of the selection
/// ```
///
/// A list replaces the info. In narrow windows, the numbers of the selection do.
#[derive(Clone, Debug)]
pub struct TimelineAreas {
    pub header: Rect,
    pub overview: Rect,
    pub ticks: Rect,
    /// Marks A and B; empty if none is set.
    pub marks: Rect,
    pub panes: Vec<PaneAreas>,
    /// Framed table of the step's operations, if the lanes leave room for it.
    pub docked: Rect,
    pub info: Rect,
    /// Framed numbers of the selected stretch; empty if none is selected.
    pub stretch: Rect,
    /// Framed list; empty if none is open.
    pub panel: Rect,
}

impl TimelineAreas {
    pub fn bottom(&self) -> Rect {
        let all = [self.info, self.stretch, self.panel].into_iter();
        all.filter(|area| area.area() > 0).reduce(Rect::union).unwrap_or(self.info)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PaneAreas {
    /// Title; empty for the first trace, whose title is in the header.
    pub title: Rect,
    pub ruler: Rect,
    /// Critical path; empty unless highlighted.
    pub path: Rect,
    pub lines: Rect,
    /// Rows of a lane of spans; more than one only if all lines fit.
    pub tall: u16,
    /// Rows of a lane that keeps from nested ranges what they need of the blank rows; at most `tall`.
    tall_beside_ranges: u16,
}

impl PaneAreas {
    /// Rows of a line.
    pub fn rows(&self, line: TraceLine) -> u16 {
        if matches!(line, TraceLine::Row(_)) { self.tall } else { 1 }
    }
}

/// Layout for the open traces; `None` if none is open.
pub fn open(timeline: &Timeline, body: Rect) -> Option<TimelineAreas> {
    timeline.view.as_ref().filter(|_| body.height > 0).map(|view| areas(body, view))
}

/// Rows that the lines of the only trace leave blank while its window is zoomed in, the lines counted that use them; 0 for
/// two traces.
pub fn blank_rows(view: &TimelineView, areas: &TimelineAreas) -> usize {
    let ([pane], [area]) = (&view.panes[..], &areas.panes[..]) else { return 0 };
    let area = PaneAreas { tall: area.tall_beside_ranges, ..*area };
    let rows: usize = pane.lines.iter().map(|line| usize::from(area.rows(*line))).sum();
    match view.is_zoomed() {
        true => usize::from(area.lines.height).saturating_sub(rows.saturating_sub(pane.spare_lines())),
        false => 0,
    }
}

/// Computes the layout. The bottom area gets the rows the lanes leave free, up to its own need; a list leaves lanes
/// their full height, unless it would be very short, and may also take rows of lines.
fn areas(body: Rect, view: &TimelineView) -> TimelineAreas {
    let (roomy, is_small) = (body.height >= 30, body.height < 20);
    let (header, rest) = cut_top(body, 2);
    let (overview, rest) = cut_top(rest, if roomy { 2 } else { 1 });
    let (ticks, rest) = cut_top(rest, 1);
    let (marks, rest) = cut_top(rest, u16::from(view.marks.iter().any(Option::is_some)));
    // a title for all but the first, a ruler, a path
    let heads = 1 + usize::from(view.lit);
    let need = |(at, pane): (usize, &Pane)| {
        pane.lines.len().saturating_sub(pane.spare_lines()) + heads + usize::from(at > 0)
    };
    let needs: Vec<usize> = view.panes.iter().enumerate().map(need).collect();
    let lanes_of =
        |pane: &Pane| pane.lines.iter().filter(|line| matches!(line, TraceLine::Row(_))).count();
    let lanes: usize = view.panes.iter().map(lanes_of).sum();
    let free = usize::from(rest.height).saturating_sub(needs.iter().sum());
    // what lanes of full height leave
    let beside_lanes =
        |rows: usize| rows.saturating_sub(lanes * (TALLEST - 1)).max(MOST_DOCKED + 3).min(rows);
    let (wanted, height) = (bottom_rows(body, view), usize::from(body.height));
    let (least, most) = match (&view.panel, roomy) {
        // panels for reading get most of the window
        (Some(TimelinePanel::Legend(..) | TimelinePanel::Verdict { .. }), _) => {
            (wanted.min(height * 4 / 5), beside_lanes(free))
        }
        // a small window keeps two lanes
        (Some(_), _) if is_small => (wanted.min(height.saturating_sub(7)), beside_lanes(free)),
        (Some(_), _) => (wanted.min(height * 2 / 5), beside_lanes(free)),
        (None, true) => (8, free),
        // two traces keep their lanes; in a very small window one line describes the cursor
        (None, false) if view.panes.len() > 1 => (free.clamp(if is_small { 1 } else { 6 }, 7), free),
        (None, false) => (6, free),
    };
    let (rest, below) = cut_bottom(rest, wanted.min(most).max(least) as u16);
    let spare = usize::from(rest.height).saturating_sub(needs.iter().sum());
    let operations = if is_small || !view.shows_docked() { 0 } else { view.docked_table().order.len() };
    let wanted = if operations > 0 { operations + 3 } else { 0 };
    let docked = if spare >= LEAST_DOCKED { wanted.min(beside_lanes(spare)) } else { 0 };
    let taller = |spare: usize| spare.checked_div(lanes).unwrap_or(0).min(TALLEST - 1);
    // rows that are too few to make all lanes taller
    let left = spare - docked - lanes * taller(spare - docked);
    let docked = if docked > 0 { wanted.min(docked + left) } else { 0 };
    let (rest, docked) = cut_bottom(rest, docked as u16);
    let tallest = match usize::from(docked.height) {
        whole if whole > 0 && whole == wanted => TALLEST_ABOVE_WHOLE,
        _ => TALLEST,
    };
    let above = spare - usize::from(docked.height);
    let beside_ranges = 1 + above.checked_div(lanes).unwrap_or(0).min(tallest - 1);
    // of a zoomed trace, rows that neither the table nor nested ranges fill
    let blank = match &view.panes[..] {
        [pane] if view.is_zoomed() => {
            above.saturating_sub(lanes * (beside_ranges - 1) + pane.spare_lines())
        }
        _ => 0,
    };
    let more = blank.checked_div(lanes).unwrap_or(0);
    let tall = (beside_ranges + more).min(TALLEST_ZOOMED);
    let needs = needs.iter().zip(&view.panes).map(|(need, pane)| need + lanes_of(pane) * (tall - 1));
    let needs: Vec<usize> = needs.collect();
    let nothing = Rect { width: 0, height: 0, ..below };
    let (info, stretch, panel) = match (view.panel.is_some(), view.stretch().is_some()) {
        (true, _) => (nothing, nothing, below),
        (false, true) if body.width >= BESIDE => {
            let (info, stretch) = cut_left(below, below.width / 2);
            (info, stretch, nothing)
        }
        (false, true) => (nothing, below, nothing),
        (false, false) => (below, nothing, nothing),
    };
    let fit = needs.iter().sum::<usize>() <= usize::from(rest.height);
    let mut left = rest;
    let panes = (0..needs.len())
        .map(|i| {
            // each pane gets what it needs if possible; the last one takes the rest
            let share = match fit && i + 1 < needs.len() {
                true => needs[i] as u16,
                false => left.height.div_ceil((needs.len() - i) as u16),
            };
            let (own, below) = cut_top(left, share);
            left = below;
            let (title, own) = cut_top(own, u16::from(i > 0));
            let (ruler, own) = cut_top(own, 1);
            let (path, lines) = cut_top(own, u16::from(view.lit));
            let [tall, tall_beside_ranges] = [tall, beside_ranges].map(|rows| rows as u16);
            PaneAreas { title, ruler, path, lines, tall, tall_beside_ranges }
        })
        .collect();
    TimelineAreas { header, overview, ticks, marks, panes, docked, info, stretch, panel }
}

/// Rows that the bottom area needs uncut, frame included.
fn bottom_rows(body: Rect, view: &TimelineView) -> usize {
    let (stretch, width) = (view.stretch().is_some(), body.width);
    let rows = |lines: &[String], width: u16| info::rows_of(lines, width) + 2;
    match &view.panel {
        Some(TimelinePanel::Legend(..)) => LEGEND_MARKS.len() + 2,
        Some(TimelinePanel::Verdict { lines, .. }) => (lines.len() + 2).max(LEAST_LIST),
        // a list has a header; most models have two collectives a layer
        Some(TimelinePanel::Stretches(stretches)) => match stretches.counted {
            Some(_) => stretches.order.len().max(1) + 3,
            None => 2 + 3,
        },
        Some(panel) => (panel.rows(view.differences.as_deref()) + 3).max(LEAST_LIST),
        None if stretch && width < BESIDE => rows(&stretch::content(view), width),
        None if stretch => {
            let own = width / 2;
            rows(&info::content(view, own).1, own).max(rows(&stretch::content(view), width - own))
        }
        None => rows(&info::content(view, width).1, width),
    }
}

/// Minimum rows of a docked table of operations, frame and header included.
const LEAST_DOCKED: usize = 6;

/// Rows of the docked table, or of a list, for which lanes stay lower than they could be.
const MOST_DOCKED: usize = 10;

/// Rows of a list that is being counted, frame included.
const LEAST_LIST: usize = 9;

/// Maximum rows of a lane.
const TALLEST: usize = 3;

/// Maximum rows of a lane above a docked table that shows all its operations and needs no more rows.
const TALLEST_ABOVE_WHOLE: usize = 5;

/// Maximum rows of a lane of the only trace while its window is zoomed in.
const TALLEST_ZOOMED: usize = 12;

/// Minimum width to show the numbers of a stretch next to the info.
const BESIDE: u16 = 110;

pub const LANE_LABEL: u16 = 16;

/// Handles a mouse event; `None` if it hits no part of the timeline.
pub fn point(timeline: &mut Timeline, body: Rect, event: Pointer) -> Option<()> {
    let areas = open(timeline, body)?;
    let view = timeline.view.as_mut()?;
    let (at, kind) = (event.at, event.kind);
    let pressed = match kind {
        PointerKind::Drag(from) | PointerKind::Drop(from) => from,
        _ => at,
    };
    let (_, whole) = cut_left(areas.overview, LANE_LABEL);
    if whole.contains(pressed) {
        match kind {
            PointerKind::Wheel(notches) => view.pan(0.25 * notches as f64),
            PointerKind::WheelSideways(notches) => view.pan(0.1 * notches as f64),
            PointerKind::Drag(_) | PointerKind::Click | PointerKind::DoubleClick => {
                let column = usize::from(at.x.clamp(whole.x, whole.right() - 1) - whole.x);
                let pane = draw::overview_pane(view, whole.height, pressed.y - whole.y);
                view.center_at(pane, column, usize::from(whole.width), kind == PointerKind::Click);
            }
            PointerKind::Drop(_) => {}
        }
        return Some(());
    }
    let list = lists::rows(areas.panel, view);
    if list.contains(pressed) {
        let panel = view.panel.as_mut()?;
        let row = panel.list().offset + usize::from(pressed.y - list.y);
        let len = panel.rows(view.differences.as_deref());
        match kind {
            PointerKind::Wheel(notches) => panel.move_by(3 * notches, len),
            PointerKind::Click | PointerKind::DoubleClick if row < len => {
                panel.list().selected = row;
                if kind == PointerKind::DoubleClick {
                    // cannot fail: the row is listed
                    let _ = view.go_to_row();
                }
            }
            _ => {}
        }
        return Some(());
    }
    let (pane, line, area) = strip_at(&areas, view, pressed)?;
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

/// Pane, line and lanes at a position.
fn strip_at(areas: &TimelineAreas, view: &TimelineView, at: Position) -> Option<(usize, usize, Rect)> {
    areas.panes.iter().zip(&view.panes).enumerate().find_map(|(i, (areas, pane))| {
        let (_, area) = cut_left(areas.lines, LANE_LABEL);
        let mut below = area.y;
        let line = pane.lines.iter().skip(pane.first_line).position(|line| {
            below = below.saturating_add(areas.rows(*line));
            at.y < below
        });
        let line = line.map_or(pane.lines.len(), |line| pane.first_line + line);
        area.contains(at).then_some((i, line, area))
    })
}
