//! One of the traces shown: where its time lies in the window's, its lines, its cursor.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::index::{Line, StepKey, TraceIndex};
use super::measure::Measured;
use super::overview::Overview;
use super::path::CriticalPath;
use super::search::Matches;
use crate::face::tui::screens::timeline::state::window::Window;
use plan::Phase;
use study::analysis::LaneTotal;
use study::verdict::Verdict;
use trace::Span;
use trace::import::Kernel;

/// What an overlap is of: a step, or (`None`) all decode steps.
pub type OverlapOf = Option<StepKey>;

/// A trace and how it is shown.
#[derive(Debug)]
pub struct Pane {
    /// The trace that the pane shows, indexed for drawing.
    pub index: Arc<TraceIndex>,
    /// The trace's time (ns) at the window's time 0.
    pub origin: i64,
    /// The step that is aligned with the other trace's, an index into the steps.
    pub aligned: Option<usize>,
    /// Lines that can be scrolled to.
    pub lines: Vec<Line>,
    /// Ranks that did the same are shown once.
    pub folded: bool,
    /// Of each rank, whether it is collapsed.
    collapsed: Vec<bool>,
    /// The cursor's line, an index into the lines.
    pub line: usize,
    /// The cursor's place on its line.
    pub place: usize,
    /// The first line shown.
    pub first_line: usize,
    /// Overlap (%) of parts, once computed.
    pub overlap: BTreeMap<OverlapOf, Option<f64>>,
    /// What the search found here.
    pub matches: Option<Matches>,
    /// What of the trace a search finds took together, by lane; and which search.
    pub totals: Option<(String, Vec<LaneTotal>)>,
    /// What the imported files know of a span (its place in the trace), or why that cannot be read.
    pub kernel: Option<(usize, Result<Option<Kernel>, String>)>,
    /// What the simulator predicts, for the run above it, and not a run: on what it was simulated.
    pub ghost: Option<String>,
    /// How much of it is exposed communication, why, and what would help.
    pub verdict: Option<Arc<Verdict>>,
    /// The whole trace in a row.
    pub overview: Option<Overview>,
    /// Numbers of a stretch: of the one that is wanted, or of the one that was wanted before.
    pub measured: Option<Measured>,
    /// The critical path of a step: of the one that is wanted, or of the one that was wanted before.
    pub path: Option<CriticalPath>,
}

impl Pane {
    /// A trace with its cursor on the first row.
    pub fn new(index: Arc<TraceIndex>) -> Self {
        let collapsed = vec![false; index.ranks.len()];
        let mut pane = Self {
            index,
            origin: 0,
            aligned: None,
            lines: Vec::new(),
            folded: true,
            collapsed,
            line: 0,
            place: 0,
            first_line: 0,
            overlap: BTreeMap::new(),
            matches: None,
            totals: None,
            kernel: None,
            ghost: None,
            verdict: None,
            overview: None,
            measured: None,
            path: None,
        };
        pane.list_lines();
        pane.line = pane.lines.iter().position(|l| matches!(l, Line::Row(_))).unwrap_or(0);
        pane
    }

    fn list_lines(&mut self) {
        let mut lines = self.index.lines(|rank| self.collapsed[rank]);
        lines.retain(|line| !self.hides(*line));
        self.lines = lines;
    }

    /// Whether a line is of a rank that is not shown, because another one did the same.
    pub fn hides(&self, line: Line) -> bool {
        let rank = self.index.ranks.get(self.index.rank_of(line));
        self.folded && rank.is_some_and(|rank| rank.same_as.is_some())
    }

    /// Shows ranks that did the same once, or each of them; false where all ranks differ.
    pub fn toggle_fold(&mut self) -> bool {
        let (line, place) = (self.current(), self.place);
        // also where it changes nothing: two traces are folded alike
        self.folded = !self.folded;
        if self.index.ranks.iter().all(|rank| rank.same_as.is_none()) {
            return false;
        }
        self.list_lines();
        if let Some(line) = line {
            self.go_to(line, place);
        }
        true
    }

    /// A time of the window, in the trace's own.
    pub fn own(&self, time: i64) -> i64 {
        time.saturating_add(self.origin)
    }

    /// Index in the trace of the span under the cursor.
    pub fn span_index(&self) -> Option<usize> {
        self.index.span_index(self.current()?, self.place)
    }

    /// The place of a decode step (or the prefill) of the same number, of the same sample where
    /// the trace has that.
    pub fn step_like(&self, key: StepKey) -> Option<usize> {
        let like = |s: &StepKey| (s.phase, s.step) == (key.phase, key.step);
        let steps = || self.index.steps.iter().enumerate().filter(move |(_, s)| like(&s.key));
        let same = steps().find(|(_, s)| s.key.sample == key.sample);
        same.or_else(|| steps().next()).map(|(at, _)| at)
    }

    /// The step under the cursor (see [`Self::step`]), by its key.
    pub fn step_key(&self, time: i64, focus: bool) -> Option<StepKey> {
        self.step(time, focus).and_then(|at| self.index.steps.get(at)).map(|step| step.key)
    }

    /// The line under the cursor.
    pub fn current(&self) -> Option<Line> {
        self.lines.get(self.line).copied()
    }

    /// The span under the cursor, where the cursor is on a row of spans.
    pub fn span(&self) -> Option<&Span> {
        match self.current()? {
            Line::Row(row) => self.index.span(row, self.place),
            _ => None,
        }
    }

    /// Start and end (ns of the trace) of what is under the cursor.
    pub fn interval(&self) -> Option<(i64, i64)> {
        self.index.interval(self.current()?, self.place)
    }

    /// The window in the trace's own time.
    pub fn window(&self, window: Window) -> Window {
        Window::new(window.from.saturating_add(self.origin), window.to.saturating_add(self.origin))
    }

    /// The trace's extent in the window's time.
    pub fn bounds(&self) -> Window {
        let bounds = self.index.bounds;
        Window::new(bounds.from.saturating_sub(self.origin), bounds.to.saturating_sub(self.origin))
    }

    /// The step under the cursor, an index into the trace's steps; `time` is the window's. Where keys
    /// go to another trace (no `focus`), the time alone counts.
    pub fn step(&self, time: i64, focus: bool) -> Option<usize> {
        let own = self.own(time);
        match self.span().or_else(|| self.exposed_collective(own)).filter(|_| focus) {
            Some(span) => self.index.step_of(span),
            None => self.index.step_at(own),
        }
    }

    /// The collective of the exposed stretch under the cursor, where the time (the trace's own) lies in that.
    fn exposed_collective(&self, time: i64) -> Option<&Span> {
        let Line::Rank(rank) = self.current()? else { return None };
        let stretch = self.interval().filter(|(start, end)| *start <= time && time <= *end)?;
        self.index.trace.spans.get(self.index.collective(rank, stretch)?)
    }

    /// The part whose overlap the header needs and does not know.
    pub fn wanted(&self, time: i64, focus: bool) -> Option<OverlapOf> {
        let wanted = [self.step_key(time, focus).map(Some), Some(None)];
        wanted.into_iter().flatten().find(|part| !self.overlap.contains_key(part))
    }

    /// The next or previous decode step from the one under the cursor.
    pub fn neighbour_step(&self, time: i64, forwards: bool) -> Option<usize> {
        let decode = |i: &usize| self.index.steps[*i].key.phase == Phase::Decode;
        let here = self.step(time, true);
        let to = match (here, forwards) {
            (None, _) => (0..self.index.steps.len()).find(decode),
            (Some(here), true) => (here + 1..self.index.steps.len()).find(decode),
            (Some(here), false) => (0..here).rev().find(decode),
        };
        to.or(here)
    }

    /// Puts the cursor on what its line shows at a time of the window.
    pub fn point_at(&mut self, time: i64) {
        if let Some(line) = self.current() {
            self.place = self.index.nearest(line, time.saturating_add(self.origin));
        }
    }

    /// Puts the cursor on the first span of its row at or after a time of the window.
    pub fn point_from(&mut self, time: i64) {
        match self.current() {
            Some(Line::Row(row)) => {
                let time = time.saturating_add(self.origin);
                self.place = self.index.rows[row].from(self.index.spans(), time);
            }
            _ => self.point_at(time),
        }
    }

    /// Puts the cursor on the first span of its row that belongs to a step (an index into the steps), or
    /// near its start: ranks are not all in the same step at one time.
    pub fn point_in_step(&mut self, step: usize) {
        const FAR: usize = 4_096;
        let Some(step) = self.index.steps.get(step).copied() else { return };
        self.point_from(step.window.from.saturating_sub(self.origin));
        if let Some(Line::Row(row)) = self.current() {
            let last = self.index.len(Line::Row(row)).min(self.place.saturating_add(FAR));
            let of_step = |place: &usize| {
                self.index.span(row, *place).is_some_and(|span| StepKey::of(span) == step.key)
            };
            if let Some(place) = (self.place..last).find(of_step) {
                self.place = place;
            }
        }
    }

    /// Goes to a line, opening its rank where that is collapsed; of a rank that is not shown, to the same line
    /// of the one that did the same.
    pub fn go_to(&mut self, line: Line, place: usize) {
        let line = if self.hides(line) { self.index.alike_line(line) } else { line };
        let rank = self.index.rank_of(line);
        if self.collapsed.get(rank) == Some(&true) {
            self.set_collapsed(|i| i == rank, false);
        }
        if let Some(at) = self.lines.iter().position(|l| *l == line) {
            (self.line, self.place) = (at, place);
        }
    }

    /// Whether a rank is collapsed.
    pub fn is_collapsed(&self, rank: usize) -> bool {
        self.collapsed.get(rank).copied().unwrap_or(false)
    }

    /// Collapses the cursor's rank, or opens it; true where the cursor had to leave its line.
    pub fn toggle_rank(&mut self) -> bool {
        let Some(line) = self.current() else { return false };
        let rank = self.index.rank_of(line);
        let to = !self.is_collapsed(rank);
        self.set_collapsed(|i| i == rank, to)
    }

    /// Collapses all ranks, or opens all where all are collapsed; true where the cursor had
    /// to leave its line.
    pub fn toggle_all(&mut self) -> bool {
        let to = self.collapsed.contains(&false);
        self.set_collapsed(|_| true, to)
    }

    fn set_collapsed(&mut self, which: impl Fn(usize) -> bool, to: bool) -> bool {
        let before = self.current();
        for (rank, collapsed) in self.collapsed.iter_mut().enumerate() {
            if which(rank) {
                *collapsed = to;
            }
        }
        self.list_lines();
        let at = |line: Line| self.lines.iter().position(|l| *l == line);
        let Some(line) = before else { return false };
        let kept = at(line);
        self.line = kept.or_else(|| at(Line::Rank(self.index.rank_of(line)))).unwrap_or(0);
        kept.is_none()
    }

    /// Makes the cursor's line one of the `lines` shown, and its rank's first line, too, where it can.
    pub fn scroll_to_cursor(&mut self, lines: usize) {
        let lines = lines.max(1);
        self.first_line = self.first_line.clamp((self.line + 1).saturating_sub(lines), self.line);
        self.first_line = self.first_line.min(self.lines.len().saturating_sub(lines));
    }
}
