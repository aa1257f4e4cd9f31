//! Where things are on the screen: shared by those who draw and by those who ask what was clicked.
//!
//! ```text
//! | 1 experiments  2 live  3 runs ...            ▶ 3/12 |   tabs
//! |                                                     |
//! |                     the screen                      |   body
//! |                                                     |
//! | Enter run  e file  ...         ? help  : palette    |   footer
//! ```

use ratatui::layout::Rect;

use super::action::Screen;
use super::state::State;

/// The smallest window that shows the workbench.
pub const SMALLEST: (u16, u16) = (80, 24);

/// The parts of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// The row of tabs.
    pub tabs: Rect,
    /// The screen.
    pub body: Rect,
    /// Key hints.
    pub footer: Rect,
}

/// The parts of a window of this size; `None` where it is too small.
pub fn regions(size: (u16, u16)) -> Option<Regions> {
    let (width, height) = size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return None;
    }
    Some(Regions {
        tabs: Rect::new(0, 0, width, 1),
        body: Rect::new(0, 1, width, height - 2),
        footer: Rect::new(0, height - 1, width, 1),
    })
}

/// Each tab's first column and width.
pub fn tabs() -> impl Iterator<Item = (Screen, u16, u16)> {
    let mut x = 0;
    Screen::ALL.into_iter().map(move |screen| {
        // ` 1 experiments `
        let width = screen.title().len() as u16 + 4;
        let at = x;
        x += width;
        (screen, at, width)
    })
}

/// Cuts `rows` rows off the top: (them, the rest).
pub fn cut_top(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let top = Rect { height: rows, ..area };
    (top, Rect { y: area.y + rows, height: area.height - rows, ..area })
}

/// Cuts `rows` rows off the bottom: (the rest, them).
pub fn cut_bottom(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    cut_top(area, area.height - rows)
}

/// Cuts `columns` columns off the left: (them, the rest).
pub fn cut_left(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    let left = Rect { width: columns, ..area };
    (left, Rect { x: area.x + columns, width: area.width - columns, ..area })
}

/// The inside of a frame.
pub fn inside(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// Experiments: (the list with its frame, the details with theirs).
pub fn experiments(body: Rect) -> (Rect, Rect) {
    cut_left(body, (body.width / 4).clamp(24, 40))
}

/// Live: (overall progress, the table with its header, the log with its frame).
pub fn live(body: Rect) -> (Rect, Rect, Rect) {
    let (top, rest) = cut_top(body, 2);
    let (table, log) = cut_bottom(rest, (body.height / 4).clamp(5, 12));
    (top, table, log)
}

/// Runs: (summary and filter, the table with its header, the details with their frame).
pub fn runs(body: Rect, detail: bool) -> (Rect, Rect, Rect) {
    let (top, rest) = cut_top(body, 1);
    let (table, details) = match detail {
        false => cut_bottom(rest, 0),
        true if body.width >= 150 => cut_left(rest, body.width - 60),
        true => cut_bottom(rest, rest.height / 2),
    };
    (top, table, details)
}

/// The parts of the timeline.
///
/// ```text
/// | RUN  ladder tp2 ...  [simulated]                     |  header
/// | step 12: overlap 85% ...                             |
/// |            +0        +10 us     +20 us               |  ticks
/// |            ├step 12─────────────▼─────┤step 13       |  ruler of the first trace
/// | ▾ r0 exp.    ╱╱                                      |  its lines
/// | RUN  standard tp2 ...  [simulated]                   |  title of the second
/// |            ├step 12───────────────────────┤          |  its ruler
/// | ▾ r0 exp.    ╱╱                                      |  its lines
/// | ╭ decode/L12/mlp/down ─────────────────────────────╮ |  info
/// ```
#[derive(Clone, Debug)]
pub struct TimelineAreas {
    /// What is open, and the window.
    pub header: Rect,
    /// Labels of the time axis.
    pub ticks: Rect,
    /// Of each trace.
    pub panes: Vec<PaneAreas>,
    /// What is under the cursor, with its frame.
    pub info: Rect,
}

/// The parts of one trace of the timeline.
#[derive(Clone, Copy, Debug)]
pub struct PaneAreas {
    /// Its title; empty for the first, whose title is in the header.
    pub title: Rect,
    /// Its steps.
    pub ruler: Rect,
    /// Its lines, with their labels.
    pub lines: Rect,
}

/// Timeline, of one or two traces.
pub fn timeline(body: Rect, panes: usize) -> TimelineAreas {
    let (header, rest) = cut_top(body, 2);
    let (ticks, rest) = cut_top(rest, 1);
    let (rest, info) = cut_bottom(rest, if panes > 1 { 7 } else { 6 });
    let panes = panes.max(1) as u16;
    let mut left = rest;
    let panes = (0..panes)
        .map(|i| {
            let share = left.height.div_ceil(panes - i);
            let (own, below) = cut_top(left, share);
            left = below;
            let (title, own) = cut_top(own, u16::from(i > 0));
            let (ruler, lines) = cut_top(own, 1);
            PaneAreas { title, ruler, lines }
        })
        .collect();
    TimelineAreas { header, ticks, panes, info }
}

/// Timeline lines: columns of the labels on their left.
pub const LANE_LABEL: u16 = 16;

/// Pareto: (header with legend, the plot, the selected point).
pub fn pareto(body: Rect) -> (Rect, Rect, Rect) {
    let (header, rest) = cut_top(body, 2);
    let (plot, info) = cut_bottom(rest, 2);
    (header, plot, info)
}

/// Compare: (title, the table with its header, the selected pair, the flags with their frame).
pub fn compare(body: Rect, flags: usize) -> (Rect, Rect, Rect, Rect) {
    let (title, rest) = cut_top(body, 2);
    let rows = if flags == 0 { 0 } else { (flags + 2).min(usize::from(body.height / 3)) as u16 };
    let (rest, flags) = cut_bottom(rest, rows);
    let (table, pair) = cut_bottom(rest, 2);
    (title, table, pair, flags)
}

/// The rows of the current screen's list, without its header; `None` where it has none.
pub fn list(state: &State) -> Option<Rect> {
    let body = regions(state.size)?.body;
    Some(match state.screen {
        Screen::Experiments => inside(experiments(body).0),
        Screen::Live => cut_top(live(body).1, 1).1,
        Screen::Runs => cut_top(runs(body, state.runs.detail).1, 1).1,
        Screen::Compare => cut_top(compare(body, state.compare.flags().len()).1, 1).1,
        Screen::Timeline | Screen::Pareto => return None,
    })
}

/// The parts of the timeline of what is open; `None` where nothing is.
pub fn open_timeline(state: &State) -> Option<TimelineAreas> {
    let body = regions(state.size)?.body;
    Some(timeline(body, state.timeline.view.as_ref()?.panes.len()))
}

/// The middle of an area, at most as large as it.
pub fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
