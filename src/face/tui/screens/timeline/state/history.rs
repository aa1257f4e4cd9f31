//! Window history for undo and redo.

use crate::face::tui::screens::timeline::state::window::Window;

const MOST: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    before: Vec<Window>,
    after: Vec<Window>,
}

impl History {
    pub fn leave(&mut self, window: Window) {
        if self.before.len() == MOST {
            self.before.remove(0);
        }
        self.before.push(window);
        self.after.clear();
    }

    /// Returns the previous window, if any.
    pub fn undo(&mut self, shown: Window) -> Option<Window> {
        let window = self.before.pop()?;
        self.after.push(shown);
        Some(window)
    }

    pub fn redo(&mut self, shown: Window) -> Option<Window> {
        let window = self.after.pop()?;
        self.before.push(shown);
        Some(window)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn shift(&mut self, by: i64) {
        for window in self.before.iter_mut().chain(&mut self.after) {
            *window = window.shifted(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_back_and_forth_ends_where_it_began_and_a_new_window_ends_the_way_forward() {
        let window = |from| Window::new(from, from + 10);
        let mut history = History::default();
        assert_eq!(history.undo(window(0)), None);
        history.leave(window(0));
        history.leave(window(1));
        assert_eq!(history.undo(window(2)), Some(window(1)));
        assert_eq!(history.undo(window(1)), Some(window(0)));
        assert_eq!(history.redo(window(0)), Some(window(1)));
        history.leave(window(1));
        assert_eq!(history.redo(window(7)), None);
        for from in 0..300 {
            history.leave(window(from));
        }
        history.shift(5);
        assert_eq!(history.undo(window(0)), Some(window(304)));
        assert_eq!((history.before.len(), history.after.len()), (MOST - 1, 1));
    }
}
