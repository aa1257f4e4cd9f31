//! Selection and viewport of a list.

use crate::face::tui::prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    pub selected: usize,
    pub offset: usize,
}

impl List {
    /// Moves the selection within `len` rows.
    pub fn move_by(&mut self, by: isize, len: usize) {
        self.selected = self.selected.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Scrolls a text of `len` rows, which has no visible selection.
    pub fn scroll_by(&mut self, by: isize, len: usize) {
        self.offset = self.offset.saturating_add_signed(by).min(len.saturating_sub(1));
        self.selected = self.offset;
    }

    /// Handles a movement key; returns false for other keys.
    pub fn key(&mut self, key: KeyCode, len: usize) -> bool {
        let by = match key {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -10,
            KeyCode::PageDown => 10,
            KeyCode::Home => isize::MIN,
            KeyCode::End => isize::MAX,
            _ => return false,
        };
        self.move_by(by, len);
        true
    }

    /// Visible rows of `len`, each with its window row.
    pub fn rows(&self, len: usize, area: Rect) -> impl Iterator<Item = (usize, u16)> + use<> {
        (self.offset..len).zip(area.y..area.bottom())
    }

    /// Clamps the selection and scrolls it into the `height` visible rows.
    pub fn fit(&mut self, len: usize, height: usize) {
        self.selected = self.selected.min(len.saturating_sub(1));
        let height = height.max(1);
        self.offset = self.offset.clamp((self.selected + 1).saturating_sub(height), self.selected);
        self.offset = self.offset.min(len.saturating_sub(height));
    }
}

pub const PAGE: usize = 10;

/// Handles a scroll key, ignoring the end of the text; returns false for other keys.
pub fn scroll_key(key: KeyCode, scroll: &mut usize) -> bool {
    *scroll = match key {
        KeyCode::Up | KeyCode::Char('k') => scroll.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => *scroll + 1,
        KeyCode::PageUp => scroll.saturating_sub(PAGE),
        KeyCode::PageDown | KeyCode::Char(' ') => *scroll + PAGE,
        KeyCode::Home => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX / 2,
        _ => return false,
    };
    true
}

/// Next or previous element, wrapping around.
pub fn next_of<T: Clone + PartialEq>(all: &[T], current: T, backwards: bool) -> T {
    let at = all.iter().position(|one| *one == current).unwrap_or(0);
    all[(at + if backwards { all.len() - 1 } else { 1 }) % all.len()].clone()
}
