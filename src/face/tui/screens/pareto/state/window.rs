//! The part of the plot that is shown, and the way back from it.

use crate::face::tui::widgets::scatter::Plot;

/// A rectangle of the plot's plane, in the axes' own units; `low <= high` on both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// x from and to.
    pub x: (f64, f64),
    /// y from and to.
    pub y: (f64, f64),
}

/// Windows zoomed into, one in the other; empty: everything is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Zoom {
    stack: Vec<Option<Window>>,
    /// What is shown; `None`: everything.
    pub window: Option<Window>,
}

/// Steps back that are remembered.
const MOST: usize = 64;

/// Beyond this zoom, axes have no digits left to tell places apart.
const NARROWEST: f64 = 1e-9;

impl Zoom {
    /// Shows a window (`None`: everything), and remembers the one before.
    pub fn to(&mut self, window: Option<Window>) {
        if window == self.window {
            return;
        }
        self.stack.push(self.window);
        if self.stack.len() > MOST {
            self.stack.remove(0);
        }
        self.window = window;
    }

    /// The window before; false where there is none.
    pub fn undo(&mut self) -> bool {
        let before = self.stack.pop();
        if let Some(before) = before {
            self.window = before;
        }
        before.is_some()
    }

    /// Everything, and nothing to go back to: the axes are others now.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Zooms by a factor (below 1: in) around a place in shares of the plot (0 to 1).
    pub fn by(&mut self, plot: &Plot, around: (f64, f64), factor: f64) {
        let range = |at: f64| (at - at * factor, at + (1.0 - at) * factor);
        self.show_shares(plot, range(around.0), range(around.1));
    }

    /// Shows a part of the plot, given in shares of it.
    pub fn show_shares(&mut self, plot: &Plot, x: (f64, f64), y: (f64, f64)) {
        let values = |axis: &crate::face::tui::widgets::scatter::Axis, (low, high): (f64, f64)| {
            (axis.value(low), axis.value(high))
        };
        let window = Window { x: values(&plot.x, x), y: values(&plot.y, y) };
        let wide = |(low, high): (f64, f64)| {
            low.is_finite() && high.is_finite() && high - low > NARROWEST * high.abs()
        };
        if wide(window.x) && wide(window.y) {
            self.to(Some(window));
        }
    }
}
