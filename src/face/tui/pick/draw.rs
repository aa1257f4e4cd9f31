//! Layout and drawing of a picker.

use super::Pick;
use super::search::PickSearch;
use crate::face::tui::overlay::whole_body;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::wrap_long_words;

/// Longest description that is aligned to the right edge.
const SHORT: u16 = 12;

/// Names narrower than this leave room for a description column.
const SHORT_NAMES: u16 = 28;

/// Begins the description of files that cannot be opened.
const REFUSED: &str = "cannot be opened";

/// Name and description of a match, shortened to the width of the list.
struct FittedLine {
    name: String,
    about: String,
    /// Column of the description.
    column: u16,
    /// Whole text if a part is cut.
    whole: Option<String>,
}

impl Pick {
    pub(super) fn draw_popup(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let area = popup(buf, self.area(cx), &self.title, theme);
        let x = put(buf, area, area.x, area.y, "› ", theme.style(Role::Key));
        let typed =
            Rect { x, width: area.right().saturating_sub(x), height: 1.min(area.height), ..area };
        self.field.draw(buf, typed, theme);
        for (y, text) in (area.y + 1..).zip(self.error_rows(area)) {
            put(buf, area, area.x + 1, y, &text, theme.style(Role::Bad));
        }
        let list = self.list_area(area);
        let meanings = self.meanings_rows(area.width);
        for (y, text) in (list.y.saturating_sub(meanings.len() as u16)..list.y).zip(&meanings) {
            put(buf, area, area.x + 1, y, text, theme.style(Role::Dim));
        }
        let none = || self.found.is_empty().then(|| (self.nothing().to_owned(), Role::Dim));
        let instead = self.literal().map(|text| (text, Role::Text)).or_else(none);
        if let Some((text, role)) = instead {
            for (y, text) in (list.y..).zip(wrap(&text, usize::from(area.width.saturating_sub(2)))) {
                put(buf, area, area.x + 1, y, &text, theme.style(role));
            }
            return;
        }
        let widths = self.widths();
        let unfolded = self.unfolded(widths, list);
        let further = unfolded.len().saturating_sub(1);
        let rows = usize::from(list.height) - further;
        let first = self.first(list, further);
        let below = self.found.len().saturating_sub(first + rows);
        hidden_rows(buf, self.area(cx).intersection(buf.area), first, below, theme);
        let mut y = list.y;
        for (row, at) in self.found.iter().enumerate().skip(first).take(rows) {
            if row == self.selected && !unfolded.is_empty() {
                for (text, indent) in unfolded.iter().zip([1].into_iter().chain(std::iter::repeat(2))) {
                    put(buf, area, area.x + indent, y, text, theme.style(Role::Text));
                    select(buf, area, y, theme);
                    y += 1;
                }
                continue;
            }
            let Some(line) = self.fitted(*at, widths, list) else { continue };
            let role = if self.is_refused(*at) { Role::Dim } else { Role::Text };
            put(buf, area, area.x + 1, y, &line.name, theme.style(role));
            put(buf, area, line.column, y, &line.about, theme.style(Role::Dim));
            if row == self.selected {
                select(buf, area, y, theme);
            }
            y += 1;
        }
    }

    /// True for a file that is known not to open, and an action that is not possible.
    fn is_refused(&self, at: usize) -> bool {
        match (self.path(), &self.folder) {
            (Some(_), Some((_, entries))) => entries.get(at).is_some_and(|entry| entry.is_refused),
            _ => self.lines.get(at).is_some_and(|line| line.is_off || line.about.starts_with(REFUSED)),
        }
    }

    /// Columns of the widest name and description.
    pub(super) fn widths(&self) -> (u16, u16) {
        let count = match (self.path(), &self.folder) {
            (Some(_), folder) => folder.as_ref().map_or(0, |(_, entries)| entries.len()),
            (None, _) => self.lines.len(),
        };
        let widest = |(names, words): (usize, usize), (name, about): (&str, &str)| {
            (names.max(name.width()), words.max(about.width()))
        };
        let (names, words) = (0..count).filter_map(|at| self.line(at)).fold((0, 0), widest);
        (names as u16, words as u16)
    }

    /// Area of the popup, with its frame.
    pub(super) fn area(&self, cx: &Context) -> Rect {
        let (names, words) = self.widths();
        let width = names.saturating_add(words).saturating_add(6).clamp(66, 120);
        // a list of fixed length gets only the height it needs
        let height = match self.search {
            PickSearch::Letters => (self.lines.len().min(100) as u16 + 4).clamp(7, 18),
            PickSearch::Paths | PickSearch::Runs(_) => 18,
        };
        let body = whole_body(cx);
        let meanings = self.meanings_rows(width.min(body.width).saturating_sub(2)).len();
        centered(body, width, height + meanings.saturating_sub(1) as u16)
    }

    /// Meanings of the marks, wrapped to a popup of this inner width.
    fn meanings_rows(&self, width: u16) -> Vec<String> {
        match self.meanings.is_empty() {
            true => Vec::new(),
            false => wrap(&self.meanings, usize::from(width.saturating_sub(2))),
        }
    }

    /// Error of the last choice, wrapped to a popup with this inner area.
    fn error_rows(&self, area: Rect) -> Vec<String> {
        let mut rows = self.error.as_ref().map_or_else(Vec::new, |error| {
            wrap(&format!("✘ {error}"), usize::from(area.width.saturating_sub(2)))
        });
        rows.truncate(usize::from(area.height / 2));
        rows
    }

    /// Rows of the list: below the text, the error and the meanings, or a blank row in their place.
    pub(super) fn list_area(&self, area: Rect) -> Rect {
        let meanings = self.meanings_rows(area.width).len().max(1);
        cut_top(area, 1 + (self.error_rows(area).len() + meanings) as u16).1
    }

    /// First visible match in a list with this area, with `further` rows of the selected one below its first.
    pub(super) fn first(&self, list: Rect, further: usize) -> usize {
        (self.selected + 1 + further).saturating_sub(list.height.into())
    }

    /// Match at this index cut to a list with this area; `widths` are those of all names and descriptions.
    fn fitted(&self, at: usize, widths: (u16, u16), list: Rect) -> Option<FittedLine> {
        let (names, words) = widths;
        let (name, about) = self.line(at)?;
        let taken = (about.width() as u16).min(list.width / 2);
        let room = list.width.saturating_sub(taken + if taken > 0 { 4 } else { 2 });
        // sentences are cut after a whole word, paths where they end
        let is_sentence = matches!(self.search, PickSearch::Letters);
        let fit = |text: &str, room: u16| match is_sentence {
            true => words_or_cut(text, room),
            false => cut(text, room),
        };
        let shown = fit(name, room);
        // descriptions share a column: to the right of the names, or in the right half of a narrow list
        let beside = list.width.saturating_sub(names.saturating_add(3));
        let widest = words.min(beside.max(list.width / 2));
        let column = list.x + list.width.saturating_sub(widest + 1).max((names + 3).min(30));
        // if others are long, short descriptions such as keys end at the right edge
        let line = self.lines.get(at).filter(|_| self.path().is_none());
        let ends_right = line.is_some_and(|line| line.is_elsewhere || line.is_off);
        let is_short = taken <= SHORT && words > SHORT || ends_right;
        let column = match is_short {
            true => list.right().saturating_sub(taken + 1),
            // a description that is too long for the column begins further left
            false => column.min(list.right().saturating_sub(about.width() as u16 + 1)),
        };
        // descriptions of short names align in one column
        let column =
            if is_sentence && names < SHORT_NAMES { column.max(list.x + names + 3) } else { column };
        let column = column.max(list.x + shown.width() as u16 + 3);
        let described = fit(about, list.right().saturating_sub(column));
        let is_cut = (&*shown, &*described) != (name, about);
        let whole = is_cut.then(|| format!("{name}  {about}"));
        Some(FittedLine { name: shown, about: described, column, whole })
    }

    /// Whole text of the selected match if its line is cut: the rows in place of that line.
    pub(super) fn unfolded(&self, widths: (u16, u16), list: Rect) -> Vec<String> {
        let line = self.found.get(self.selected).and_then(|at| self.fitted(*at, widths, list));
        let Some(whole) = line.and_then(|line| line.whole) else { return Vec::new() };
        let mut rows = wrap_long_words(&whole, usize::from(list.width.saturating_sub(3)));
        rows.truncate(usize::from(list.height));
        rows
    }
}
