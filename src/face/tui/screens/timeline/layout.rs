//! Where things are on the timeline: shared by those who draw and by those who ask what was clicked.

use super::lists::legend::MARKS;
use super::state::panel::Panel;
use super::{Timeline, info, stretch};
use crate::face::tui::prelude::*;

/// The parts of the timeline.
///
/// ```text
/// | RUN  ladder tp2 ...  [simulated]                     |  header
/// | step 12: overlap 85% ...                             |
/// | whole 1.2 s  ▇▇▇[▇]▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ |  overview of the trace with the cursor
/// | exposed      ╱╱╱[╱]╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱ |
/// |            +0        +10 us     +20 us               |  ticks
/// |            A├── 12.3 us ──┤B                         |  marks, where one is set
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
    /// Marks A and B; empty where none is set.
    pub marks: Rect,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Lines of each trace, from top to bottom.
    pub lines: Vec<usize>,
    /// Whether critical paths are lit.
    pub path: bool,
    /// Whether a mark is set.
    pub marks: bool,
    /// Numbers of a stretch.
    pub stretch: bool,
    /// Rows that what lies at the bottom would take whole, with its frame.
    pub wanted: usize,
    /// A list lies there, which may take so many rows though the lanes would need them.
    pub panel: Option<usize>,
}

/// Where all of that is. What lies at the bottom takes the rows that the lanes leave, up to what it would take
/// whole; a list also takes some of theirs.
pub fn areas(body: Rect, shown: &Shown) -> TimelineAreas {
    let roomy = body.height >= 30;
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
    let least = match (shown.panel, roomy) {
        (Some(most), _) => shown.wanted.max(9).min(most),
        (None, true) => 8,
        (None, false) => 6 + usize::from(panes > 1),
    };
    let (rest, below) = cut_bottom(rest, shown.wanted.min(free).max(least) as u16);
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
            // each as much as it needs, where that can be had, and the last all that is left
            let share = match (needs.get(i), fit) {
                (Some(need), true) if i + 1 < panes => *need as u16,
                _ => left.height.div_ceil((panes - i) as u16),
            };
            let (own, below) = cut_top(left, share);
            left = below;
            let (title, own) = cut_top(own, u16::from(i > 0));
            let (ruler, own) = cut_top(own, 1);
            let (path, lines) = cut_top(own, u16::from(shown.path));
            PaneAreas { title, ruler, path, lines }
        })
        .collect();
    TimelineAreas { header, overview, ticks, marks, panes, info, stretch, panel }
}

/// Columns from which on the numbers of a stretch stand beside what is under the cursor.
const BESIDE: u16 = 110;

/// Timeline lines: columns of the labels on their left.
pub const LANE_LABEL: u16 = 16;

/// The parts of the timeline of what is open; `None` where nothing is.
pub fn open(timeline: &Timeline, body: Rect) -> Option<TimelineAreas> {
    let view = timeline.view.as_ref()?;
    let (stretch, width) = (view.stretch().is_some(), body.width);
    let rows = |lines: &[String], width: u16| info::rows_of(lines, width) + 2;
    let wanted = match &view.panel {
        Some(Panel::Legend(..)) => MARKS.len() + 2,
        Some(Panel::Verdict { lines, .. }) => lines.len().max(1) + 2,
        // a list has a header
        Some(panel) => panel.rows(view.differences.as_deref()) + 3,
        None if stretch && width < BESIDE => rows(&stretch::content(view), width),
        None if stretch => {
            let own = width / 2;
            rows(&info::content(view, own).1, own).max(rows(&stretch::content(view), width - own))
        }
        None => rows(&info::content(view, width).1, width),
    };
    let shown = Shown {
        lines: view.panes.iter().map(|pane| pane.lines.len()).collect(),
        path: view.lit,
        marks: view.marks.iter().any(Option::is_some),
        stretch,
        wanted,
        panel: view.panel.as_ref().map(|panel| match panel {
            // who reads it looks at nothing else
            Panel::Legend(..) | Panel::Verdict { .. } => usize::from(body.height) * 4 / 5,
            _ => usize::from(body.height) * 2 / 5,
        }),
    };
    (body.height > 0).then(|| areas(body, &shown))
}
