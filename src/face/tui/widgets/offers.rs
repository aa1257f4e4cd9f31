//! Completion popup below an input line: ↑ ↓ choose, Tab inserts the choice.

use std::ops::Range;

use crate::face::tui::prelude::*;
use base::offer::{Completion, Offer};

pub const MOST: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    completion: Completion,
    chosen: usize,
}

impl Offers {
    /// Sets the completions of a line, keeping the choice if they are unchanged. Clears them if the only
    /// one is typed already.
    pub fn set(&mut self, mut completion: Completion, line: &str) {
        let typed = line.get(completion.replaces.clone()).unwrap_or_default();
        if matches!(completion.offers.as_slice(), [only] if only.text == typed) {
            completion.offers.clear();
        }
        if completion != self.completion {
            (self.completion, self.chosen) = (completion, 0);
        }
    }

    /// Offers, best first.
    pub fn list(&self) -> &[Offer] {
        &self.completion.offers
    }

    /// Chooses the next or previous offer, wrapping around; false if there is none.
    pub fn choose(&mut self, next: bool) -> bool {
        let count = self.completion.offers.len();
        if count > 0 {
            self.chosen = (self.chosen + if next { 1 } else { count - 1 }) % count;
        }
        count > 0
    }

    /// Chosen text, and the byte range of the line that it replaces.
    pub fn chosen(&self) -> Option<(Range<usize>, String)> {
        let offer = self.completion.offers.get(self.chosen)?;
        Some((self.completion.replaces.clone(), offer.text.clone()))
    }

    /// Draws the offers below a position, or above it if there is no room, within an area.
    pub fn draw(&self, buf: &mut Buffer, at: Position, within: Rect, theme: Theme) {
        let offers = self.list();
        if offers.is_empty() {
            return;
        }
        let text = offers.iter().map(|offer| offer.text.width()).max().unwrap_or(0).min(36);
        let about = offers.iter().map(|offer| offer.about.width()).max().unwrap_or(0).min(44);
        let width = ((text + about + 6) as u16).min(within.width);
        let rows = offers.len().min(MOST) as u16 + 2;
        let x = at.x.min(within.right().saturating_sub(width));
        let below = within.bottom().saturating_sub(at.y + 1);
        let y = if below >= rows.min(5) { at.y + 1 } else { at.y.saturating_sub(rows) };
        let area = Rect::new(x, y, width, rows).intersection(within);
        let inner = popup(buf, area, "", theme);
        self.draw_rows(buf, inner, theme);
    }

    pub fn draw_rows(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let offers = self.list();
        let height = usize::from(area.height);
        let first = (self.chosen + 1).saturating_sub(height);
        let texts = offers.iter().map(|offer| offer.text.width()).max().unwrap_or(0) as u16;
        let words = offers.iter().map(|offer| offer.about.width()).max().unwrap_or(0) as u16;
        // descriptions share one column, on the right if there is room
        let column = (area.x + texts + 3).max(area.right().saturating_sub(words + 1).min(area.x + 36));
        for (row, (index, offer)) in offers.iter().enumerate().skip(first).take(height).enumerate() {
            let y = area.y + row as u16;
            let end = put(buf, area, area.x + 1, y, &offer.text, theme.style(Role::Text));
            put(buf, area, column.max(end + 2), y, &offer.about, theme.style(Role::Dim));
            if index == self.chosen {
                select(buf, area, y, theme);
            }
        }
    }
}
