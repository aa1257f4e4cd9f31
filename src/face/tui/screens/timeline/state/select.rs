//! A stretch of time that is selected, two marks, and the numbers of either.

use super::measure::Measured;
use super::view::View;
use crate::face::tui::screens::timeline::state::window::Window;

/// A stretch that was selected, in the window's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The stretch of time that is selected (ns).
    pub window: Window,
    /// What it was begun with (ns): it stays within.
    anchor: (i64, i64),
    /// It goes on to what the cursor is moved to.
    pub extending: bool,
}

/// Names of the marks.
pub const MARKS: [&str; 2] = ["A", "B"];

impl View {
    /// Begins a selection with what is under the cursor, or ends the one that goes on: it stays.
    pub fn toggle_selecting(&mut self) {
        match &mut self.selected {
            Some(selected) if selected.extending => selected.extending = false,
            _ => {
                let anchor = self.interval().unwrap_or((self.time, self.time));
                self.select(anchor, anchor, true);
            }
        }
    }

    /// Moves the cursor along its line and takes what it comes to into the selection.
    pub fn extend(&mut self, by: isize) {
        if !self.selected.is_some_and(|selected| selected.extending) {
            self.toggle_selecting();
        }
        self.move_in_line(by);
        self.extend_to_cursor();
    }

    /// The selection reaches from what it was begun with to what is under the cursor.
    pub fn extend_to_cursor(&mut self) {
        let Some(selected) = self.selected.filter(|selected| selected.extending) else { return };
        let head = self.interval().unwrap_or((self.time, self.time));
        self.select(selected.anchor, head, true);
    }

    /// Selects from one time of the window to another: a drag of the mouse.
    pub fn select_times(&mut self, from: i64, to: i64) {
        self.select((from, from), (to, to), false);
    }

    fn select(&mut self, anchor: (i64, i64), head: (i64, i64), extending: bool) {
        let bounds = self.bounds();
        let (from, to) = (anchor.0.min(head.0), anchor.1.max(head.1));
        let from = from.clamp(bounds.from, bounds.to - 1);
        let window = Window::new(from, to.min(bounds.to));
        self.selected = Some(Selected { window, anchor, extending });
    }

    /// Sets a mark (0: A, 1: B) at the cursor: A where what is under it starts, B where it ends.
    pub fn mark(&mut self, which: usize) {
        let (start, end) = match self.interval() {
            // the pointer may have put it between two operations
            Some((start, end)) if start <= self.time && self.time <= end => (start, end),
            _ => (self.time, self.time),
        };
        if let Some(mark) = self.marks.get_mut(which) {
            *mark = Some(if which == 0 { start } else { end });
        }
    }

    /// Takes the selection away, else the marks; false where there was neither.
    pub fn unselect(&mut self) -> bool {
        if self.selected.take().is_some() {
            return true;
        }
        let marks = std::mem::take(&mut self.marks);
        marks.iter().any(Option::is_some)
    }

    /// From the earlier mark to the later one, where both are set.
    pub fn marked(&self) -> Option<Window> {
        let [Some(a), Some(b)] = self.marks else { return None };
        (a != b).then(|| Window::new(a.min(b), a.max(b)))
    }

    /// The stretch whose numbers are shown, in the window's time: the selection, else what
    /// lies between the marks.
    pub fn stretch(&self) -> Option<Window> {
        self.selected.map(|selected| selected.window).or_else(|| self.marked())
    }

    /// The numbers of a pane's stretch, and whether they are those of the stretch that is shown now.
    pub fn measured(&self, pane: usize) -> Option<(&Measured, bool)> {
        let (pane, stretch) = (self.panes.get(pane)?, self.stretch()?);
        let measured = pane.measured.as_ref()?;
        Some((measured, measured.window == pane.window(stretch)))
    }

    /// Zooms to the selection, else to what lies between the marks; false where there is neither.
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

    /// All times are called by others from now on: what was 0 is `by`.
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

    /// Brings the window, the marks and the selection back within the traces, whose bounds have changed.
    pub(super) fn bound(&mut self) {
        let bounds = self.bounds();
        self.window = self.window.within(bounds);
        self.time = self.time.clamp(bounds.from, bounds.to);
        for mark in self.marks.iter_mut().flatten() {
            *mark = (*mark).clamp(bounds.from, bounds.to);
        }
        if let Some(selected) = &mut self.selected {
            let from = selected.window.from.clamp(bounds.from, bounds.to - 1);
            selected.window = Window::new(from, selected.window.to.clamp(bounds.from, bounds.to));
        }
    }
}
