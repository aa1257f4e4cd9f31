//! Where things are on the timeline: shared by those who draw and by those who ask what was clicked.

use ratatui::layout::Rect;

use crate::tui::layout::{cut_bottom, cut_top};
use crate::tui::state::State;

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
pub fn areas(body: Rect, panes: usize) -> TimelineAreas {
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

/// The parts of the timeline of what is open; `None` where nothing is.
pub fn open(state: &State, body: Rect) -> Option<TimelineAreas> {
    let panes = state.timeline.view.as_ref()?.panes.len();
    (body.height > 0).then(|| areas(body, panes))
}
