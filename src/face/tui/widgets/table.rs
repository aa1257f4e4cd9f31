//! A table of which only the rows on the screen are made. Columns that do not fit are left out, the
//! least important first.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::paint::{put, select};
use crate::face::tui::layout::cut_top;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::list::List;

/// One column of a table of the workbench.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The words in its header.
    pub title: &'static str,
    /// Columns of the window it takes.
    pub width: u16,
    /// Numbers go to the right.
    pub right: bool,
    /// The higher, the sooner it is left out; 0: never.
    pub spare: u8,
    /// How much wider it may get where there is room.
    pub grows: u16,
}

impl Column {
    /// A column of text.
    pub const fn text(title: &'static str, width: u16, spare: u8) -> Self {
        Self { title, width, right: false, spare, grows: 0 }
    }

    /// A column of numbers.
    pub const fn number(title: &'static str, width: u16, spare: u8) -> Self {
        Self { title, width, right: true, spare, grows: 0 }
    }

    /// The column, wider by up to so much where there is room.
    pub const fn growing(self, grows: u16) -> Self {
        Self { grows, ..self }
    }
}

/// Which rows there are, which of them is selected, and the mark of a column (its index,
/// what follows its title).
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The selection and the first row shown.
    pub list: &'a List,
    /// How many rows there are.
    pub len: usize,
    /// What follows a column's title.
    pub mark: Option<(usize, &'a str)>,
}

/// Draws header and rows; `cell` makes the text of (row, column).
/// The last column takes the room that is left.
pub fn draw(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    columns: &[Column],
    rows: Rows<'_>,
    mut cell: impl FnMut(usize, usize) -> (String, Style),
) {
    let Rows { list, len, mark } = rows;
    let shown = fitting(columns, area.width);
    let mut places = Vec::with_capacity(shown.len());
    let mut x = area.x;
    let needed: u16 = shown.iter().map(|i| columns[*i].width + 1).sum();
    let mut extra = (area.width + 1).saturating_sub(needed);
    for (i, column) in shown.iter().enumerate() {
        let room = area.right().saturating_sub(x);
        let more = columns[*column].grows.min(extra);
        extra -= more;
        let wanted = columns[*column].width + more;
        let width = if i + 1 == shown.len() { room } else { wanted.min(room) };
        places.push((*column, x, width));
        x = x.saturating_add(width + 1);
    }
    for &(column, x, width) in &places {
        let spec = &columns[column];
        let title = match mark {
            Some((at, mark)) if at == column => format!("{}{mark}", spec.title),
            _ => spec.title.to_string(),
        };
        text(buf, Rect::new(x, area.y, width, 1), &title, spec, theme.style(Role::Title));
    }
    for (index, y) in list.rows(len, cut_top(area, 1).1) {
        for &(column, x, width) in &places {
            let (content, style) = cell(index, column);
            text(buf, Rect::new(x, y, width, 1), &content, &columns[column], style);
        }
        if index == list.selected {
            select(buf, area, y, theme);
        }
    }
}

fn text(buf: &mut Buffer, at: Rect, content: &str, column: &Column, style: Style) {
    let used = content.width().min(usize::from(at.width)) as u16;
    let shift = if column.right { at.width.min(column.width.max(used)) - used } else { 0 };
    put(buf, at, at.x + shift, at.y, content, style);
}

/// The columns that fit into `width`, in their order.
fn fitting(columns: &[Column], width: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    loop {
        let needed: u16 = shown.iter().map(|i| columns[*i].width + 1).sum();
        let least = shown.iter().copied().max_by_key(|i| columns[*i].spare);
        match least {
            Some(i) if needed > width + 1 && columns[i].spare > 0 => shown.retain(|x| *x != i),
            _ => return shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_columns_go_first() {
        let columns = [Column::text("a", 10, 0), Column::text("b", 10, 2), Column::number("c", 10, 1)];
        assert_eq!(fitting(&columns, 40), [0, 1, 2]);
        assert_eq!(fitting(&columns, 25), [0, 2]);
        assert_eq!(fitting(&columns, 5), [0]);
    }
}
