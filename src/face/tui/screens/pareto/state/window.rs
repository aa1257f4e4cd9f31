//! Zoom window of the plot and its history.

use crate::face::tui::widgets::scatter::Plot;

/// Rectangle in axis units; `low <= high` on both axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoomWindow {
    pub x: (f64, f64),
    pub y: (f64, f64),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Zoom {
    stack: Vec<Option<ZoomWindow>>,
    undone: Vec<Option<ZoomWindow>>,
    /// Current window; `None` shows everything.
    pub window: Option<ZoomWindow>,
}

/// Zoom limit; below this relative width, axis labels run out of digits.
const NARROWEST: f64 = 1e-9;

impl Zoom {
    /// Shows a window (`None`: everything) and pushes the previous one to the history.
    pub fn to(&mut self, window: Option<ZoomWindow>) {
        if window == self.window {
            return;
        }
        self.undone.clear();
        self.stack.push(self.window);
        self.window = window;
    }

    /// Number of windows that [`Self::undo`] can return to.
    pub fn edits(&self) -> usize {
        self.stack.len()
    }

    pub fn undo(&mut self) -> bool {
        let Some(window) = self.stack.pop() else { return false };
        self.undone.push(std::mem::replace(&mut self.window, window));
        true
    }

    pub fn redo(&mut self) -> bool {
        let Some(window) = self.undone.pop() else { return false };
        self.stack.push(std::mem::replace(&mut self.window, window));
        true
    }

    /// Resets the zoom and its history after the axes changed.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Zooms by a factor (below 1 zooms in) around a position given in fractions of the plot.
    pub fn by(&mut self, plot: &Plot, around: (f64, f64), factor: f64) {
        let range = |at: f64| (at - at * factor, at + (1.0 - at) * factor);
        self.show_shares(plot, range(around.0), range(around.1));
    }

    pub fn show_shares(&mut self, plot: &Plot, x: (f64, f64), y: (f64, f64)) {
        let values =
            |axis: &study::plot::ValueAxis, (low, high): (f64, f64)| (axis.value(low), axis.value(high));
        let window = ZoomWindow { x: values(&plot.x, x), y: values(&plot.y, y) };
        let wide = |(low, high): (f64, f64)| {
            low.is_finite() && high.is_finite() && high - low > NARROWEST * high.abs()
        };
        if wide(window.x) && wide(window.y) {
            self.to(Some(window));
        }
    }
}
