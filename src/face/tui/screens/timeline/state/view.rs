//! State of screen 4: one time window for all open traces, so that they share a scale; one cursor; the search.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::align::{Anchor, CounterpartQuery};
use super::index::{TraceIndex, TraceLine};
use super::levels::TimelineLevel;
use super::pane::Pane;
use super::panel::{OperationScope, OperationsPanel, Stretches, TimelinePanel};
use super::select::Selected;
use super::window::{TimeWindow, VisitedWindow, WindowHistory};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::field::FilterBox;
use plan::Phase;
use study::analysis::{OperationDifferences, StepAlignment};
use trace::overlap::StepKey;

#[derive(Debug, Default)]
pub struct Timeline {
    /// Open traces; `None` until one is opened.
    pub view: Option<TimelineView>,
    /// Description of the traces being loaded.
    pub loading: Option<String>,
    /// Screen to return to if they cannot be opened, unless the user acts on the open trace meanwhile.
    pub opened_from: Option<Tab>,
    /// Keys pressed while they load, for the traces that were asked for.
    pub early: Vec<KeyEvent>,
    /// Traces of the previous session, until the screen is shown.
    pub kept: Option<KeptTimeline>,
}

/// Open traces from top to bottom, and the window. Predictions are not saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptTimeline {
    pub sources: Vec<String>,
    pub rules: Vec<Option<String>>,
    pub recordings: Vec<Option<String>>,
    /// Window (ns since the first trace's first start).
    pub window: Option<(i64, i64)>,
}

impl KeptTimeline {
    /// True if it names one or two traces.
    pub fn is_usable(&self) -> bool {
        (1..=2).contains(&self.sources.len()) && self.sources.iter().all(|source| !source.is_empty())
    }

    fn from_view(view: &TimelineView) -> Option<Self> {
        let indices = || view.panes.iter().filter(|pane| pane.ghost.is_none()).map(|pane| &pane.index);
        let above = &view.panes[0];
        let window = above.window(view.window);
        let since = |time: i64| time.saturating_sub(above.index.zero);
        Some(Self {
            sources: indices().map(|index| index.source()).collect::<Option<_>>()?,
            rules: indices().map(|index| index.rules.clone()).collect(),
            recordings: indices().map(|index| index.recording.clone()).collect(),
            window: Some((since(window.from), since(window.to))),
        })
    }
}

impl PersistentScreen for Timeline {
    type Kept = KeptTimeline;

    fn keep(&self) -> Option<KeptTimeline> {
        self.view.as_ref().map_or_else(|| self.kept.clone(), KeptTimeline::from_view)
    }

    fn restore(&mut self, kept: KeptTimeline, cx: &mut Context) {
        match cx.tab {
            Tab::Timeline => self.open_kept(kept, cx),
            _ => self.kept = Some(kept),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TraceSearch {
    pub line: FilterBox,
    /// True if Enter was pressed before the matches arrived; go to the first one then.
    pub awaited: bool,
    /// True to also zoom to the match.
    pub zoom: bool,
}

/// Columns of an origin's name behind `since` at the axis.
const ORIGIN_LABEL: usize = 9;

/// Zero of the times shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulerOrigin {
    /// In window time (ns).
    pub time: i64,
    /// Such as `step 12`.
    pub label: String,
}

/// Cursor location: pane, line, position on the line.
pub type CursorPosition = (usize, TraceLine, usize);

#[derive(Debug)]
pub struct TimelineView {
    /// Window (ns). With one trace it is in trace time; with two, 0 is the alignment point.
    pub window: TimeWindow,
    pub(super) history: WindowHistory,
    /// Traces from top to bottom; never empty.
    pub panes: Vec<Pane>,
    pub focus: usize,
    /// Cursor (ns of window time), shared by all panes.
    pub time: i64,
    pub search: TraceSearch,
    pub selected: Option<Selected>,
    /// Marks A and B (ns of window time).
    pub marks: [Option<i64>; 2],
    /// True if critical paths are highlighted.
    pub lit: bool,
    /// True to read the imported files for each kernel, however large they are.
    pub looks: bool,
    /// True if the details begin with the full name of an operation.
    pub names_in_full: bool,
    /// True if two traces realign at the step that is looked at.
    pub follows: bool,
    /// Step that is looked at, if the other trace lacks it.
    pub(super) unpaired: Option<StepKey>,
    /// Recorded places to return to, latest last.
    pub(super) trail: Vec<CursorPosition>,
    pub panel: Option<TimelinePanel>,
    /// Levels that are open, in the order in which they were opened.
    pub levels: Vec<TimelineLevel>,
    /// Exposed communication that was left by going to a call; opened again, it shows that call.
    pub left: Option<Stretches>,
    /// Steps of the upper trace with their partners in the lower one.
    pub alignment: StepAlignment,
    /// Operations of the step under the cursor, shown while no list is open.
    pub docked: OperationsPanel,
    /// Operations of the window, shown instead while it is narrower than the step and than the window on opening.
    pub zoomed: OperationsPanel,
    /// Width of the window on opening.
    pub opened_width: i64,
    /// Comparison of the wanted steps, or of the previous ones while a new one is computed.
    pub differences: Option<Arc<OperationDifferences>>,
    /// Place in the steps at which two traces are aligned.
    pub anchor: Anchor,
    /// Span of the other trace (an index) with the operation under the cursor, since the last change.
    pub counterpart: Option<usize>,
    /// Query that `counterpart` answers; cached because a search reads all spans of a step.
    pub(super) counterpart_of: Option<CounterpartQuery>,
}

impl TimelineView {
    /// Opens a trace on two layers of a typical step that show its largest loss, or in full if it has no steps.
    pub fn new(index: Arc<TraceIndex>) -> Self {
        let window = index.bounds;
        let mut view = Self {
            window,
            history: WindowHistory::default(),
            panes: vec![Pane::new(index)],
            focus: 0,
            time: window.from,
            search: TraceSearch::default(),
            selected: None,
            marks: [None; 2],
            lit: false,
            looks: false,
            names_in_full: false,
            follows: false,
            unpaired: None,
            trail: Vec::new(),
            panel: None,
            levels: Vec::new(),
            left: None,
            alignment: StepAlignment::default(),
            docked: OperationsPanel { scope: OperationScope::Step, ..OperationsPanel::default() },
            zoomed: OperationsPanel { scope: OperationScope::Window, ..OperationsPanel::default() },
            opened_width: window.width(),
            differences: None,
            anchor: Anchor::Start,
            counterpart: None,
            counterpart_of: None,
        };
        if let Some(step) = view.pane().index.typical_step {
            view.fit_step(step);
            view.zoom_to_layers(step);
            view.history.clear();
        } else if view.pane().index.trace.meta.import.is_some() {
            view.point_at_exposed();
        }
        view.opened_width = view.window.width();
        view
    }

    /// Window and cursor, to see whether an action moved them.
    pub fn seen(&self) -> (TimeWindow, usize, i64, usize, usize) {
        let pane = self.pane();
        (self.window, self.focus, self.time, pane.line, pane.place)
    }

    /// True if the table of the step's operations may be shown: a text to read and the short list of exposed communication
    /// leave it, other lists replace it.
    pub fn shows_docked(&self) -> bool {
        let is_left = |panel: &TimelinePanel| {
            matches!(
                panel,
                TimelinePanel::Stretches(_) | TimelinePanel::Verdict { .. } | TimelinePanel::Legend(..)
            )
        };
        self.panel.as_ref().is_none_or(is_left)
    }

    /// True if the window shows less than the step under the cursor and than on opening.
    pub fn is_zoomed(&self) -> bool {
        self.zoomed.scope.of_view(self).is_some()
    }

    /// Phase of the step under the cursor; `None` while the whole trace is shown.
    pub fn phase_in_view(&self) -> Option<Phase> {
        let key = self.pane().step_key(self.time, true)?;
        (self.window != self.bounds()).then_some(key.phase)
    }

    /// Docked table of operations: of the window if that shows less than the step, else of the step.
    pub fn docked_table(&self) -> &OperationsPanel {
        if self.is_zoomed() && self.zoomed.counted.is_some() { &self.zoomed } else { &self.docked }
    }

    /// Table of operations, if it is open.
    pub fn operations(&mut self) -> Option<&mut OperationsPanel> {
        if let Some(TimelinePanel::Operations(operations)) = &mut self.panel {
            Some(operations)
        } else {
            None
        }
    }

    pub fn pane(&self) -> &Pane {
        &self.panes[self.focus.min(self.panes.len() - 1)]
    }

    /// Index of the pane whose verdict Enter follows to its cause: the focused one if it has a verdict, else the upper one.
    pub fn judged(&self) -> usize {
        let at = self.focus.min(self.panes.len() - 1);
        if self.panes[at].verdict.is_some() { at } else { 0 }
    }

    pub(super) fn pane_mut(&mut self) -> &mut Pane {
        let last = self.panes.len() - 1;
        &mut self.panes[self.focus.min(last)]
    }

    #[cfg(test)]
    pub fn span(&self) -> Option<&trace::Span> {
        self.pane().span()
    }

    /// Extent of all traces in window time.
    pub fn bounds(&self) -> TimeWindow {
        let all = self.panes.iter().map(Pane::bounds);
        all.reduce(|a, b| TimeWindow::new(a.from.min(b.from), a.to.max(b.to))).unwrap_or(self.window)
    }

    /// Origin of the times shown: the start of the step that is looked at; of the trace if the whole trace is shown, or no
    /// step is.
    pub fn ruler_origin(&self) -> RulerOrigin {
        let pane = self.pane();
        let step = self.step_looked_at(self.focus).filter(|_| self.window != self.bounds());
        let (zero, label) = match step.and_then(|at| pane.index.steps.get(at)) {
            Some(step) => {
                let label = pane.index.step_label(step.key);
                // the ruler has the whole name, `mixed (step 3)` or `prefill (step 3)`
                let is_long = label.width() > ORIGIN_LABEL;
                let label = if is_long { format!("step {}", step.key.step) } else { label };
                (step.window.from, label)
            }
            // ranges of the host may begin before the first work of a GPU
            None if self.bounds().from < pane.index.zero.saturating_sub(pane.origin) => {
                (pane.index.zero, "GPU start".to_owned())
            }
            None => (pane.index.zero, "the start".to_owned()),
        };
        RulerOrigin { time: zero.saturating_sub(pane.origin), label }
    }

    /// Shows a window, clamped to the bounds, and records the current one in the history.
    pub fn set(&mut self, window: TimeWindow) {
        let left = self.visited();
        self.window = window.within(self.bounds());
        self.record(left);
    }

    fn visited(&self) -> VisitedWindow {
        let (window, pane, line) = (self.window, self.focus, self.pane().current());
        VisitedWindow { window, pane, line, time: self.time }
    }

    /// Records in the history the window that a move has left.
    fn record(&mut self, left: VisitedWindow) {
        if left.window != self.window {
            self.history.leave(left);
        }
    }

    /// Makes a move with the cursor one entry of the history. The move must not shift the time origin.
    pub(super) fn as_one_move<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let left = self.visited();
        let history = std::mem::take(&mut self.history);
        let made = make(self);
        self.history = history;
        self.record(left);
        made
    }

    /// Number of windows that [`Self::undo`] can return to.
    pub fn edits(&self) -> usize {
        self.history.edits()
    }

    /// Returns to the previous window; false if there is none.
    pub fn undo(&mut self) -> bool {
        let previous = self.history.undo(self.visited());
        self.back_to(previous)
    }

    /// Returns to the window that was last undone; false if there is none.
    pub fn redo(&mut self) -> bool {
        let next = self.history.redo(self.visited());
        self.back_to(next)
    }

    fn back_to(&mut self, visited: Option<VisitedWindow>) -> bool {
        let Some(VisitedWindow { window, pane, line, time }) = visited else { return false };
        // the bounds may have changed since
        self.window = window.within(self.bounds());
        // a jump took the cursor with it
        if !self.window.contains(self.time) {
            self.focus = pane.min(self.panes.len() - 1);
            let pane = self.pane_mut();
            if let Some(at) = pane.lines.iter().position(|shown| Some(*shown) == line) {
                pane.line = at;
            }
            pane.point_at(time);
            self.follow();
        }
        true
    }

    /// Zoom centre: the cursor if visible, else the middle of the window.
    pub(super) fn focus_time(&self) -> i64 {
        if self.window.contains(self.time) { self.time } else { self.window.middle() }
    }

    /// Zooms around the cursor; a factor below 1 zooms in.
    pub fn zoom(&mut self, factor: f64) {
        self.zoom_at(self.focus_time(), factor);
    }

    pub fn zoom_at(&mut self, at: i64, factor: f64) {
        self.set(self.window.zoomed(at, factor, self.bounds()));
    }

    /// Pans by a fraction of the window.
    pub fn pan(&mut self, share: f64) {
        self.set(self.window.panned(share, self.bounds()));
    }

    /// Centres the window at a column of a trace's overview; `leave` records the current window in the
    /// history, as at the start of a drag.
    pub fn center_at(&mut self, pane: usize, column: usize, columns: usize, leave: bool) {
        let (bounds, width) = (self.bounds(), self.window.width());
        let whole = self.panes.get(pane).map_or(bounds, Pane::bounds);
        let middle = whole.time(column, columns);
        let from = middle.saturating_sub(width / 2);
        let window = TimeWindow::new(from, from.saturating_add(width)).within(bounds);
        match leave {
            true => self.set(window),
            false => self.window = window,
        }
    }

    pub fn fit_all(&mut self) {
        self.set(self.bounds());
    }

    /// Zooms to the item under the cursor, with a margin.
    pub fn zoom_span(&mut self) {
        let Some((start, end)) = self.interval() else { return };
        let margin = (end.saturating_sub(start) / 4).max(1);
        self.set(TimeWindow::new(start.saturating_sub(margin), end.saturating_add(margin)));
    }

    /// Start and end of the item under the cursor, in window time.
    pub(super) fn interval(&self) -> Option<(i64, i64)> {
        let pane = self.pane();
        let (start, end) = pane.interval()?;
        let start = start.saturating_sub(pane.origin);
        Some((start, end.saturating_sub(pane.origin).max(start)))
    }

    /// Updates the cursor time from the focused item, and the other panes' cursors from that time.
    pub(super) fn follow(&mut self) {
        if let Some((start, end)) = self.interval() {
            self.time = start.saturating_add(end.saturating_sub(start) / 2);
        }
        let (time, focus) = (self.time, self.focus);
        for (_, pane) in self.panes.iter_mut().enumerate().filter(|(i, _)| *i != focus) {
            pane.point_at(time);
        }
    }

    /// Scrolls the window as little as needed to show the item under the cursor.
    pub(super) fn show_cursor(&mut self) {
        if let Some((start, end)) = self.interval() {
            self.window = self.window.showing(start, end, self.bounds());
        }
    }

    /// Shows all of the item under the cursor with room on both sides, zooming out only if needed.
    pub(super) fn show_whole(&mut self) {
        if let Some((start, end)) = self.interval() {
            self.window = self.window.around(start, end, self.bounds());
        }
    }

    /// Moves the cursor along its line; the window follows.
    pub fn move_in_line(&mut self, by: isize) {
        let pane = self.pane_mut();
        let Some(line) = pane.current() else { return };
        let len = pane.index.len(line);
        pane.place = pane.place.saturating_add_signed(by).min(len.saturating_sub(1));
        self.follow();
        self.show_cursor();
    }

    /// Moves the cursor to another line at about the same time; past the last line it continues into the
    /// trace below, and vice versa.
    pub fn move_line(&mut self, by: isize) {
        let time = self.focus_time();
        let pane = self.pane();
        let (line, last) = (pane.line, pane.lines.len().saturating_sub(1));
        let leaves = (by > 0 && line == last) || (by < 0 && line == 0);
        if leaves && by.abs() < isize::MAX / 4 {
            let to = self.focus.saturating_add_signed(by.signum()).min(self.panes.len() - 1);
            if to != self.focus {
                self.focus = to;
                let pane = self.pane_mut();
                pane.line = if by > 0 { 0 } else { pane.lines.len().saturating_sub(1) };
            }
        } else {
            self.pane_mut().line = line.saturating_add_signed(by).min(last);
        }
        self.pane_mut().point_at(time);
        self.follow();
    }

    /// Moves the cursor to the item nearest to a window time on a line of a pane.
    pub fn point_at(&mut self, pane: usize, line: usize, time: i64) {
        if self.panes.get(pane).is_some_and(|p| line < p.lines.len()) {
            self.focus = pane;
            let pane = self.pane_mut();
            pane.line = line;
            pane.point_at(time);
            self.follow();
            // keep the pointer's time if no item is under it
            if !self.interval().is_some_and(|(start, end)| start <= time && time < end) {
                self.time = time;
            }
        }
    }

    pub fn fit_neighbour(&mut self, forwards: bool) {
        if let Some(to) = self.pane().neighbour_step(self.time, forwards) {
            self.fit_step(to);
        }
    }

    /// Zooms to the step under the cursor. If it fills the window already, zooms to the next decode step
    /// and moves the cursor to its start.
    pub fn fit_here(&mut self) {
        let pane = self.pane();
        let step = pane.step(self.time, true).and_then(|at| pane.index.steps.get(at));
        let Some(step) = step else { return self.fit_neighbour(true) };
        let window = step.window.shifted(pane.origin.saturating_neg());
        match window.within(self.bounds()) == self.window {
            true => self.fit_neighbour(true),
            false => self.set(window),
        }
    }

    pub(super) fn fit_step(&mut self, step: usize) {
        self.fit_steps(step, step);
    }

    /// Zooms to steps, from the first to the last, and moves the cursor to the first operation of the first in the row.
    pub(super) fn fit_steps(&mut self, first: usize, last: usize) {
        self.align_at_start();
        let pane = self.pane_mut();
        let window = |step: usize| pane.index.steps.get(step).map(|step| step.window);
        let (Some(start), Some(end)) = (window(first), window(last)) else { return };
        let window = TimeWindow::new(start.from.min(end.from), start.to.max(end.to));
        let origin = pane.origin;
        pane.point_in_step(first);
        self.set(window.shifted(origin.saturating_neg()));
        self.time = start.from.saturating_sub(origin);
        self.follow();
    }

    #[cfg(test)]
    pub fn reopen_at_first_step(&mut self) {
        let first = |pane: &Pane| {
            let mut steps = pane.index.steps.iter();
            steps.position(|step| step.key.phase == plan::Phase::Decode)
        };
        match &mut self.panes[..] {
            [pane] => {
                pane.line = pane.first_row();
                if let Some(first) = first(pane) {
                    self.fit_step(first);
                    self.history.clear();
                }
            }
            panes => {
                panes.iter_mut().for_each(|pane| pane.aligned = first(pane));
                self.anchor = Anchor::Start;
                let widths = self.panes.iter();
                let widths = widths.filter_map(|p| Some(p.index.steps.get(p.aligned?)?.window.width()));
                self.show_aligned(widths.max());
            }
        }
    }

    /// Zooms to the window to open a step on, with the cursor at its span, else at a collective in the middle, else at the
    /// first operation.
    fn zoom_to_layers(&mut self, step: usize) {
        let pane = self.pane_mut();
        let Some((window, span)) = pane.index.opening(step) else { return };
        let quarter = window.width() / 4;
        let middle = (window.from.saturating_add(quarter), window.to.saturating_sub(quarter));
        let starts_inside = |span: &usize| pane.index.trace.spans[*span].start_ns >= window.from;
        let span = span.or_else(|| pane.index.collective(0, middle).filter(starts_inside));
        let window = window.shifted(pane.origin.saturating_neg());
        match span.and_then(|span| pane.index.find(span)) {
            Some((line, place)) => pane.go_to(line, place),
            None => {
                pane.prefer_busy_row(window);
                pane.point_from(window.from);
            }
        }
        self.set(window);
        self.follow();
    }

    /// Moves the cursor to the longest exposed collective of a typical step.
    fn point_at_exposed(&mut self) {
        let index = &self.pane().index;
        let longest = index.typical_exposed();
        let span = longest.and_then(|(rank, stretch)| index.collective(rank, stretch));
        if let Some((line, place)) = span.and_then(|span| index.find(span)) {
            self.pane_mut().go_to(line, place);
            self.follow();
        }
    }

    /// Called after every change: extends the selection, realigns steps, hides idle rows of ranges, notes open levels, and
    /// fits the list below the lanes to its `rows` visible rows.
    pub fn settle(&mut self, rows: usize) {
        self.extend_to_cursor();
        self.follow_steps();
        for pane in &mut self.panes {
            if pane.hide_idle_ranges(self.window) {
                pane.point_at(self.time);
            }
        }
        self.note_levels();
        self.refresh_dependencies();
        if let Some(panel) = &mut self.panel {
            let len = panel.rows(self.differences.as_deref());
            panel.list().fit(len, rows);
        }
    }

    pub fn toggle_rank(&mut self) {
        let time = self.time;
        let pane = self.pane_mut();
        if pane.toggle_rank() {
            pane.point_at(time);
        }
    }

    pub fn toggle_all(&mut self) {
        let time = self.time;
        for pane in &mut self.panes {
            if pane.toggle_all() {
                pane.point_at(time);
            }
        }
    }

    /// Toggles folding of identical ranks; false if all ranks differ.
    pub fn toggle_fold(&mut self) -> bool {
        let folded = self.pane().folded;
        let mut any = false;
        for pane in self.panes.iter_mut().filter(|pane| pane.folded == folded) {
            any |= pane.toggle_fold();
        }
        any
    }

    /// Indices of panes whose identical ranks were stored once.
    pub fn folded(&self) -> Vec<Arc<TraceIndex>> {
        let stored_once = self.panes.iter().filter(|pane| !pane.index.folded.is_empty());
        stored_once.map(|pane| Arc::clone(&pane.index)).collect()
    }

    /// Replaces the first index of each pair by the second, which has the spans of all ranks.
    pub fn unfold(&mut self, pairs: Vec<[Arc<TraceIndex>; 2]>) {
        for [from, to] in pairs {
            for pane in self.panes.iter_mut().filter(|pane| Arc::ptr_eq(&pane.index, &from)) {
                pane.unfold(Arc::clone(&to));
            }
        }
        // numbers of spans have changed
        (self.docked.counted, self.zoomed.counted) = (None, None);
        (self.differences, self.left) = (None, None);
        self.forget_counterpart();
        self.trail.clear();
        self.panel = self.panel.take().filter(|panel| matches!(panel, TimelinePanel::Legend(_, None)));
    }

    /// Span of a pane to look up in the imported files; `None` if they are gone, or too large to read on
    /// every cursor step.
    pub fn looked_up(&self, pane: usize) -> Option<usize> {
        /// Maximum file size to read on every cursor step, in bytes.
        const LARGEST: u64 = 32 << 20;
        let pane = self.panes.get(pane)?;
        pane.index.files.filter(|bytes| self.looks || *bytes <= LARGEST)?;
        pane.span_index()
    }
}
