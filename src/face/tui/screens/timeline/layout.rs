//! Timeline layout, shared by drawing and hit testing.

use super::lists::legend::MARKS;
use super::state::panel::Panel;
use super::{Timeline, info, stretch};
use crate::face::tui::prelude::*;

/// Areas of the timeline.
///
/// ```text
/// | RUN  ladder tp2 ...  [simulated]                     |  header
/// | step 12: overlap 85% ...                             |
/// | whole 1.2 s  ▇▇▇[▇]▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ |  overview of the trace with the cursor
/// | exposed      ╱╱╱[╱]╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱ |
/// |            +0        +10 us     +20 us               |  ticks
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
}

/// Content that determines the layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Lines per trace, from top to bottom.
    pub lines: Vec<usize>,
    pub path: bool,
    pub marks: bool,
    pub stretch: bool,
    /// Rows the bottom area needs uncut, frame included.
    pub wanted: usize,
    /// Open list, and the rows it may take from the lanes.
    pub panel: Option<usize>,
}

/// Computes the layout. The bottom area gets the rows the lanes leave free, up to its own need; a list
/// may also take some of the lanes' rows.
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
            PaneAreas { title, ruler, path, lines }
        })
        .collect();
    TimelineAreas { header, overview, ticks, marks, panes, info, stretch, panel }
}

/// Minimum width to show the numbers of a stretch next to the info.
const BESIDE: u16 = 110;

pub const LANE_LABEL: u16 = 16;

/// Layout for the open traces; `None` if none is open.
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
            // panels for reading get most of the window
            Panel::Legend(..) | Panel::Verdict { .. } => usize::from(body.height) * 4 / 5,
            _ => usize::from(body.height) * 2 / 5,
        }),
    };
    (body.height > 0).then(|| areas(body, &shown))
}
