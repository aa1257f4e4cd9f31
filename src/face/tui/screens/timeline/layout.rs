//! Timeline layout, shared by drawing and hit testing, and the mouse: clicks, drags and the wheel on lanes, overview and
//! lists.

use super::lists::LEGEND_MARKS;
use super::state::panel::Panel;
use super::state::{Line, Pane};
use super::{Timeline, draw, info, lists};
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
}

impl PaneAreas {
    /// Rows of a line.
    pub fn rows(&self, line: Line) -> u16 {
        if matches!(line, Line::Row(_)) { self.tall } else { 1 }
    }
}

/// Content that determines the layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Lines per trace, from top to bottom.
    pub lines: Vec<usize>,
    /// Lines with spans, per trace.
    pub lanes_of: Vec<usize>,
    /// Rows that the table of the step's operations wants.
    pub docked: usize,
    pub path: bool,
    pub marks: bool,
    pub stretch: bool,
    /// Rows the bottom area needs uncut, frame included.
    pub wanted: usize,
    /// Open list, and the rows it may take from the lanes.
    pub panel: Option<usize>,
}

fn is_roomy(body: Rect) -> bool {
    body.height >= 30
}

/// Computes the layout. The bottom area gets the rows the lanes leave free, up to its own need; a list leaves lanes
/// their full height, unless it would be very short, and may also take rows of lines.
pub fn areas(body: Rect, shown: &Shown) -> TimelineAreas {
    let roomy = is_roomy(body);
    let (header, rest) = cut_top(body, 2);
    let (overview, rest) = cut_top(rest, if roomy { 2 } else { 1 });
    let (ticks, rest) = cut_top(rest, 1);
    let (marks, rest) = cut_top(rest, u16::from(shown.marks));
    let panes = shown.lines.len().max(1);
    // a title for all but the first, a ruler, a path
    let heads = 1 + usize::from(shown.path);
    let needs: Vec<usize> =
        shown.lines.iter().enumerate().map(|(at, lines)| lines + heads + usize::from(at > 0)).collect();
    let free = usize::from(rest.height).saturating_sub(needs.iter().sum());
    let tallest = shown.lanes_of.iter().sum::<usize>() * (TALLEST - 1);
    let least = match (shown.panel, roomy) {
        (Some(most), _) => shown.wanted.min(most),
        (None, true) => 8,
        // two traces keep their lanes; in a very small window one line describes the cursor
        (None, false) if panes > 1 => free.clamp(if body.height < 20 { 1 } else { 6 }, 7),
        (None, false) => 6,
    };
    // what lanes of full height leave
    let beside_lanes = |rows: usize| rows.saturating_sub(tallest).max(MOST_DOCKED + 3).min(rows);
    let most = if shown.panel.is_some() { beside_lanes(free) } else { free };
    let (rest, below) = cut_bottom(rest, shown.wanted.min(most).max(least) as u16);
    let spare = usize::from(rest.height).saturating_sub(needs.iter().sum());
    let most = beside_lanes(spare);
    let docked = if spare >= LEAST_DOCKED { shown.docked.min(most) } else { 0 };
    let lanes: usize = shown.lanes_of.iter().sum();
    let taller = |spare: usize| spare.checked_div(lanes).unwrap_or(0).min(TALLEST - 1);
    // rows that are too few to make all lanes taller
    let left = spare - docked - lanes * taller(spare - docked);
    let docked = if docked > 0 { shown.docked.min(docked + left) } else { 0 };
    let (rest, docked) = cut_bottom(rest, docked as u16);
    let tall = 1 + taller(spare - usize::from(docked.height));
    let needs: Vec<usize> =
        needs.iter().zip(&shown.lanes_of).map(|(need, lanes)| need + lanes * (tall - 1)).collect();
    let nothing = Rect { width: 0, height: 0, ..below };
    let (info, stretch, panel) = match (shown.panel.is_some(), shown.stretch) {
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
    let panes = (0..panes)
        .map(|i| {
            // each pane gets what it needs if possible; the last one takes the rest
            let share = match (needs.get(i), fit) {
                (Some(need), true) if i + 1 < panes => *need as u16,
                _ => left.height.div_ceil((panes - i) as u16),
            };
            let (own, below) = cut_top(left, share);
            left = below;
            let (title, own) = cut_top(own, u16::from(i > 0));
            let (ruler, own) = cut_top(own, 1);
            let (path, lines) = cut_top(own, u16::from(shown.path));
            PaneAreas { title, ruler, path, lines, tall: tall as u16 }
        })
        .collect();
    TimelineAreas { header, overview, ticks, marks, panes, docked, info, stretch, panel }
}

/// Minimum height of the screen for a docked table of operations.
const DOCKS: u16 = 20;

/// Minimum rows of a docked table of operations, frame and header included.
const LEAST_DOCKED: usize = 6;

/// Rows of the docked table, or of a list, for which lanes stay lower than they could be.
const MOST_DOCKED: usize = 10;

/// Rows of a list that is being counted, frame included.
const LEAST_LIST: usize = 9;

/// Maximum rows of a lane.
const TALLEST: usize = 3;

/// Minimum width to show the numbers of a stretch next to the info.
const BESIDE: u16 = 110;

pub const LANE_LABEL: u16 = 16;

/// Layout for the open traces; `None` if none is open.
pub fn open(timeline: &Timeline, body: Rect) -> Option<TimelineAreas> {
    let view = timeline.view.as_ref()?;
    let (stretch, width) = (view.stretch().is_some(), body.width);
    let rows = |lines: &[String], width: u16| info::rows_of(lines, width) + 2;
    let wanted = match &view.panel {
        Some(Panel::Legend(..)) => LEGEND_MARKS.len() + 2,
        Some(Panel::Verdict { lines, .. }) => (lines.len() + 2).max(LEAST_LIST),
        // a list has a header; most models have two collectives a layer
        Some(Panel::Stretches(stretches)) => stretches.order.len().max(2) + 3,
        Some(panel) => (panel.rows(view.differences.as_deref()) + 3).max(LEAST_LIST),
        None if stretch && width < BESIDE => rows(&info::stretch_content(view), width),
        None if stretch => {
            let own = width / 2;
            rows(&info::content(view, own).1, own).max(rows(&info::stretch_content(view), width - own))
        }
        None => rows(&info::content(view, width).1, width),
    };
    let lanes = |pane: &Pane| pane.lines.iter().filter(|line| matches!(line, Line::Row(_))).count();
    let operations = if body.height >= DOCKS { view.docked.order.len() } else { 0 };
    let shown = Shown {
        lines: view.panes.iter().map(|pane| pane.lines.len()).collect(),
        lanes_of: view.panes.iter().map(lanes).collect(),
        docked: if operations > 0 && view.shows_docked() { operations + 3 } else { 0 },
        path: view.lit,
        marks: view.marks.iter().any(Option::is_some),
        stretch,
        wanted,
        panel: view.panel.as_ref().map(|panel| match panel {
            // panels for reading get most of the window
            Panel::Legend(..) | Panel::Verdict { .. } => usize::from(body.height) * 4 / 5,
            // a small window keeps two lanes
            _ if body.height < 20 => usize::from(body.height).saturating_sub(7),
            _ => usize::from(body.height) * 2 / 5,
        }),
    };
    (body.height > 0).then(|| areas(body, &shown))
}

/// Handles a mouse event; `None` if it hits no part of the timeline.
pub fn point(timeline: &mut Timeline, body: Rect, event: Pointer) -> Option<()> {
    let areas = open(timeline, body)?;
    let (at, kind) = (event.at, event.kind);
    let pressed = match kind {
        PointerKind::Drag(from) | PointerKind::Drop(from) => from,
        _ => at,
    };
    let (_, whole) = cut_left(areas.overview, LANE_LABEL);
    if whole.contains(pressed) {
        let view = timeline.view.as_mut()?;
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
    let list = lists::rows(areas.panel, timeline.view.as_ref()?);
    if list.contains(pressed) {
        let view = timeline.view.as_mut()?;
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
    let areas = open(timeline, body)?;
    let view = timeline.view.as_ref()?;
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
