//! The selection in a list that may be longer than its area.

/// A selection in rows that may not all fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The index of the selected row, from 0.
    pub selected: usize,
    /// The first row shown.
    pub offset: usize,
}

impl List {
    /// Moves the selection, not beyond the ends of `len` rows.
    pub fn move_by(&mut self, by: isize, len: usize) {
        self.selected = self.selected.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Makes the selection exist and be among the `height` rows shown.
    pub fn fit(&mut self, len: usize, height: usize) {
        self.selected = self.selected.min(len.saturating_sub(1));
        let height = height.max(1);
        self.offset = self.offset.clamp((self.selected + 1).saturating_sub(height), self.selected);
        self.offset = self.offset.min(len.saturating_sub(height));
    }
}
