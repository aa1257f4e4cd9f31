//! Where things are on the timeline: shared by those who draw and by those who ask what was clicked.

use ratatui::layout::Rect;

use super::Timeline;
use crate::face::tui::layout::{cut_bottom, cut_left, cut_top};

/// The parts of the timeline.
///
/// ```text
/// | RUN  ladder tp2 ...  [simulated]                     |  header
/// | step 12: overlap 85% ...                             |
/// | whole 1.2 s  ▇▇▇[▇]▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ |  overview of the trace with the cursor
/// | exposed      ╱╱╱[╱]╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱ |
/// |            +0        +10 us     +20 us               |  ticks
/// |            ├step 12─────────────▼─────┤step 13       |  ruler of the first trace
/// | critical   ███▓▓▓████                                |  its critical path, where that is lit
/// | ▾ r0 exp.    ╱╱                                      |  its lines
/// | RUN  standard tp2 ...  [simulated]                   |  title of the second
/// |            ├step 12───────────────────────┤          |  its ruler
/// | ▾ r0 exp.    ╱╱                                      |  its lines
/// | ╭ decode/L12/mlp/down ─────╮╭ selection 46 us ───────╮ |  info, and numbers of a stretch
/// ```
///
/// A list takes the place of the info. In narrow windows the numbers of a stretch do.
#[derive(Clone, Debug)]
pub struct TimelineAreas {
    /// What is open, and the window.
    pub header: Rect,
    /// The whole trace: one or two rows, with labels.
    pub overview: Rect,
    /// Labels of the time axis.
    pub ticks: Rect,
    /// The parts of each trace's pane, from top to bottom.
    pub panes: Vec<PaneAreas>,
    /// What is under the cursor, with its frame.
    pub info: Rect,
    /// Numbers of a stretch, with their frame; empty where none is selected.
    pub stretch: Rect,
    /// A list, with its frame; empty where there is none.
    pub panel: Rect,
}

impl TimelineAreas {
    /// What lies at the bottom: info, numbers, or a list.
    pub fn bottom(&self) -> Rect {
        let all = [self.info, self.stretch, self.panel].into_iter();
        all.filter(|area| area.area() > 0).reduce(Rect::union).unwrap_or(self.info)
    }
}

/// The parts of one trace of the timeline.
#[derive(Clone, Copy, Debug)]
pub struct PaneAreas {
    /// Its title; empty for the first, whose title is in the header.
    pub title: Rect,
    /// Where the steps of the trace are named.
    pub ruler: Rect,
    /// The critical path; empty where it is not lit.
    pub path: Rect,
    /// Its lines, with their labels.
    pub lines: Rect,
}

/// What is to be shown besides the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// How many traces are shown.
    pub panes: usize,
    /// Whether critical paths are lit.
    pub path: bool,
    /// Numbers of a stretch.
    pub stretch: bool,
    /// A list, of so many rows.
    pub panel: Option<usize>,
    /// Lines of all traces.
    pub lines: usize,
}

/// Where all of that is.
pub fn areas(body: Rect, shown: Shown) -> TimelineAreas {
    let roomy = body.height >= 30;
    let (header, rest) = cut_top(body, 2);
    let (overview, rest) = cut_top(rest, if roomy { 2 } else { 1 });
    let (ticks, rest) = cut_top(rest, 1);
    let rows = match (shown.panel, roomy) {
        // what the lanes leave, where that is more than its share, and never more than it needs
        (Some(list), _) => {
            let headers = 2 * shown.panes + usize::from(shown.path) * shown.panes;
            let free = usize::from(rest.height).saturating_sub(shown.lines + headers);
            let share = usize::from(body.height) * 2 / 5;
            (list + 3).max(9).min(free.max(share)) as u16
        }
        (None, true) => 8,
        (None, false) => 6 + u16::from(shown.panes > 1),
    };
    let (rest, below) = cut_bottom(rest, rows);
    let nothing = Rect { width: 0, height: 0, ..below };
    let (info, stretch, panel) = match (shown.panel.is_some(), shown.stretch) {
        (true, _) => (nothing, nothing, below),
        (false, true) if body.width >= 110 => {
            let (info, stretch) = cut_left(below, below.width / 2);
            (info, stretch, nothing)
        }
        (false, true) => (nothing, below, nothing),
        (false, false) => (below, nothing, nothing),
    };
    let panes = shown.panes.max(1) as u16;
    let mut left = rest;
    let panes = (0..panes)
        .map(|i| {
            let share = left.height.div_ceil(panes - i);
            let (own, below) = cut_top(left, share);
            left = below;
            let (title, own) = cut_top(own, u16::from(i > 0));
            let (ruler, own) = cut_top(own, 1);
            let (path, lines) = cut_top(own, u16::from(shown.path));
            PaneAreas { title, ruler, path, lines }
        })
        .collect();
    TimelineAreas { header, overview, ticks, panes, info, stretch, panel }
}

/// Timeline lines: columns of the labels on their left.
pub const LANE_LABEL: u16 = 16;

/// The parts of the timeline of what is open; `None` where nothing is.
pub fn open(timeline: &Timeline, body: Rect) -> Option<TimelineAreas> {
    let view = timeline.view.as_ref()?;
    let shown = Shown {
        panes: view.panes.len(),
        path: view.lit,
        stretch: view.stretch().is_some(),
        panel: view.panel.as_ref().map(|panel| panel.rows(view.differences.as_deref())),
        lines: view.panes.iter().map(|pane| pane.lines.len()).sum(),
    };
    (body.height > 0).then(|| areas(body, shown))
}
