//! Selection of a time interval, two marks and their numbers; steps of two stacked traces to compare, and predictions.

use std::sync::Arc;

use super::align::Anchor;
use super::index::{StepKey, TraceIndex};
use super::measure::MeasuredInterval;
use super::view::TimelineView;
use super::window::TimeWindow;

/// Selected interval, in window time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    pub window: TimeWindow,
    /// Item that the selection started from (ns); always included.
    anchor: (i64, i64),
    /// True while the selection extends to the cursor.
    pub extending: bool,
}

pub const MARKS: [&str; 2] = ["A", "B"];

impl TimelineView {
    /// Starts a selection at the item under the cursor, or finishes the one in progress.
    pub fn toggle_selecting(&mut self) {
        match &mut self.selected {
            Some(selected) if selected.extending => selected.extending = false,
            _ => {
                let anchor = self.interval().unwrap_or((self.time, self.time));
                self.select(anchor, anchor, true);
            }
        }
    }

    /// Moves the cursor along its line and extends the selection to it.
    pub fn extend(&mut self, by: isize) {
        if !self.selected.is_some_and(|selected| selected.extending) {
            self.toggle_selecting();
        }
        self.move_in_line(by);
        self.extend_to_cursor();
    }

    /// Extends the selection in progress to the item under the cursor.
    pub fn extend_to_cursor(&mut self) {
        let Some(selected) = self.selected.filter(|selected| selected.extending) else { return };
        let head = self.interval().unwrap_or((self.time, self.time));
        self.select(selected.anchor, head, true);
    }

    /// Selects between two window times (mouse drag).
    pub fn select_times(&mut self, from: i64, to: i64) {
        self.select((from, from), (to, to), false);
    }

    fn select(&mut self, anchor: (i64, i64), head: (i64, i64), extending: bool) {
        let bounds = self.bounds();
        let (from, to) = (anchor.0.min(head.0), anchor.1.max(head.1));
        let from = from.clamp(bounds.from, bounds.to - 1);
        let window = TimeWindow::new(from, to.min(bounds.to));
        self.selected = Some(Selected { window, anchor, extending });
    }

    /// Sets mark A (0) at the start, or B (1) at the end, of the item under the cursor.
    pub fn mark(&mut self, which: usize) {
        let (start, end) = match self.interval() {
            // a click may have placed the cursor between two operations
            Some((start, end)) if start <= self.time && self.time <= end => (start, end),
            _ => (self.time, self.time),
        };
        if let Some(mark) = self.marks.get_mut(which) {
            *mark = Some(if which == 0 { start } else { end });
        }
    }

    /// Clears the selection, else the marks.
    pub fn unselect(&mut self) {
        if self.selected.take().is_none() {
            self.marks = [None; 2];
        }
    }

    pub fn marked(&self) -> Option<TimeWindow> {
        let [Some(a), Some(b)] = self.marks else { return None };
        (a != b).then(|| TimeWindow::new(a.min(b), a.max(b)))
    }

    /// Interval whose numbers are shown, in window time: the selection, else the one between the marks.
    pub fn stretch(&self) -> Option<TimeWindow> {
        self.selected.map(|selected| selected.window).or_else(|| self.marked())
    }

    /// Numbers of a pane, and true if they belong to the current interval.
    pub fn measured(&self, pane: usize) -> Option<(&MeasuredInterval, bool)> {
        let (pane, stretch) = (self.panes.get(pane)?, self.stretch()?);
        let measured = pane.measured.as_ref()?;
        Some((measured, measured.window == pane.window(stretch)))
    }

    /// Zooms to the selection, else between the marks; false if there is neither.
    pub fn zoom_stretch(&mut self) -> bool {
        match self.stretch() {
            Some(stretch) => {
                if let Some(selected) = &mut self.selected {
                    selected.extending = false;
                }
                self.set(stretch);
                true
            }
            None => false,
        }
    }

    /// Shifts the time origin by `by`.
    pub(super) fn rebase(&mut self, by: i64) {
        self.window = self.window.shifted(by);
        self.time = self.time.saturating_add(by);
        self.history.shift(by);
        for mark in self.marks.iter_mut().flatten() {
            *mark = mark.saturating_add(by);
        }
        if let Some(selected) = &mut self.selected {
            selected.window = selected.window.shifted(by);
            let (from, to) = selected.anchor;
            selected.anchor = (from.saturating_add(by), to.saturating_add(by));
        }
    }

    /// Clamps the window, marks and selection to the traces after their bounds changed.
    pub(super) fn bound(&mut self) {
        let bounds = self.bounds();
        self.window = self.window.within(bounds);
        self.time = self.time.clamp(bounds.from, bounds.to);
        for mark in self.marks.iter_mut().flatten() {
            *mark = (*mark).clamp(bounds.from, bounds.to);
        }
        if let Some(selected) = &mut self.selected {
            let from = selected.window.from.clamp(bounds.from, bounds.to - 1);
            selected.window = TimeWindow::new(from, selected.window.to.clamp(bounds.from, bounds.to));
        }
    }
}

impl TimelineView {
    /// Steps to compare, upper then lower: the one under the cursor and its counterpart in the other trace.
    pub fn steps_to_compare(&self) -> Result<(StepKey, StepKey), String> {
        let (focus, other) = self.pair().ok_or("only one trace is open")?;
        let key = self.panes[focus].step_key(self.time, true);
        let key = key.ok_or("there is no step under the cursor")?;
        let key_of =
            |pane: usize, step: Option<usize>| Some(self.panes[pane].index.steps.get(step?)?.key);
        // steps aligned by hand are compared even if their numbers differ
        let is_aligned = key_of(focus, self.panes[focus].aligned) == Some(key);
        let meant = self.panes[other].aligned.filter(|_| is_aligned);
        let there = key_of(other, meant).or_else(|| key_of(other, self.partner(focus, key)));
        match there {
            Some(there) if focus == 0 => Ok((key, there)),
            Some(there) => Ok((there, key)),
            None => Err(format!("the other trace has no {}", key.label())),
        }
    }

    pub fn compares_now(&self) -> bool {
        let made = self.differences.as_ref().map(|report| report.steps);
        made.is_some() && self.steps_to_compare().ok() == made
    }

    pub fn add_ghost(&mut self, index: Arc<TraceIndex>, on: String) {
        let (window, key) = {
            let pane = &self.panes[0];
            (pane.window(self.window), pane.step_key(self.time, self.focus == 0))
        };
        let (line, place) = (self.panes[0].line, self.panes[0].place);
        self.add(index);
        if let Some(pane) = self.panes.get_mut(1) {
            pane.ghost = Some(on);
        }
        // keep the view, with the prediction of the same step below
        (self.panes[0].line, self.panes[0].place) = (line, place);
        let both = key.and_then(|key| Some((self.panes[0].step_like(key)?, self.partner(0, key)?)));
        if let Some((above, below)) = both {
            (self.panes[0].aligned, self.panes[1].aligned) = (Some(above), Some(below));
            let step = self.panes[0].index.steps[above].window;
            if window.width() >= step.width() / 2 {
                self.anchor = Anchor::Start;
            }
            self.align();
        }
        self.window = window.shifted(self.panes[0].origin.saturating_neg());
        self.follow();
        self.bound();
    }

    pub fn has_ghost(&self) -> bool {
        self.panes.get(1).is_some_and(|pane| pane.ghost.is_some())
    }
}
