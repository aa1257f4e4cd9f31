//! A table of which only the rows on the screen are made. Columns that do not fit are left out: the least
//! important ones first, or in a table that is scrolled sideways those before and behind the shown ones.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::paint::{put, select};
use crate::base::text::{counted, without_middle};
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
    /// Of the columns that may be left out, how many are scrolled away on the left; `None`: the table is
    /// not scrolled, and the least important columns are left out.
    pub scrolled: Option<usize>,
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
    let Rows { list, len, mark, scrolled } = rows;
    let shown = match scrolled {
        Some(scrolled) => scrolled_to(columns, area.width, scrolled).shown,
        None => fitting(columns, area.width),
    };
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
    // what may grow is a name
    let name = (column.grows > 0).then(|| without_middle(content, at.width.into()));
    let content = name.as_deref().unwrap_or(content);
    let used = content.width().min(usize::from(at.width)) as u16;
    let shift = if column.right { at.width.min(column.width.max(used)) - used } else { 0 };
    put(buf, at, at.x + shift, at.y, content, style);
}

/// The columns of a table that is scrolled sideways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrolled {
    /// Those shown, in their order: all that are never left out, and as many of the others as fit.
    pub shown: Vec<usize>,
    /// How many are left out before those shown.
    pub left: usize,
    /// How many are left out behind them.
    pub right: usize,
}

impl Scrolled {
    /// What is told of the columns left out, apart from what stands before it: `← 2 columns 3 →`; empty
    /// where all are shown.
    pub fn told(&self) -> String {
        told(self.left, self.right)
    }
}

/// What is told of columns that are left out before and behind those shown.
pub fn told(left: usize, right: usize) -> String {
    match (left, right) {
        (0, 0) => String::new(),
        (0, n) => format!("  {} → ", counted(n, "column")),
        (n, 0) => format!("  ← {} ", counted(n, "column")),
        (a, b) => format!("  ← {} {b} → ", counted(a, "column")),
    }
}

/// The columns that a window of so many columns shows, `scrolled` of those that may be left out scrolled away;
/// no more than needed to see the last one.
pub fn scrolled_to(columns: &[Column], width: u16, scrolled: usize) -> Scrolled {
    let (fixed, loose): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|column| columns[*column].spare == 0);
    let needed = |of: &[usize]| of.iter().map(|column| columns[*column].width + 1).sum::<u16>();
    let room = (width + 1).saturating_sub(needed(&fixed));
    // from the right: where the last column is just seen
    let last = (0..loose.len()).find(|from| needed(&loose[*from..]) <= room);
    let last = last.unwrap_or(loose.len().saturating_sub(1));
    let left = scrolled.min(last);
    let fits = (left..=loose.len()).rev().find(|to| needed(&loose[left..*to]) <= room).unwrap_or(left);
    // a window too narrow for any shows the cut one
    let to = fits.max(left + 1).min(loose.len());
    let mut shown = fixed;
    shown.extend(&loose[left..to]);
    shown.sort_unstable();
    Scrolled { shown, left, right: loose.len() - to }
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

    #[test]
    fn a_scrolled_table_keeps_its_fixed_columns_and_shows_each_of_the_others() {
        let mut columns = vec![Column::text("cell", 10, 0)];
        columns.extend([Column::number("n", 9, 1); 6]);
        let at = |scrolled| scrolled_to(&columns, 40, scrolled);
        assert_eq!(at(0), Scrolled { shown: vec![0, 1, 2, 3], left: 0, right: 3 });
        assert_eq!(at(1), Scrolled { shown: vec![0, 2, 3, 4], left: 1, right: 2 });
        assert_eq!(
            at(9),
            Scrolled { shown: vec![0, 4, 5, 6], left: 3, right: 0 },
            "not beyond the last"
        );
        assert_eq!(at(1).told(), "  ← 1 column 2 → ");
        let wide = scrolled_to(&columns, 90, 2);
        assert_eq!((wide.shown.len(), wide.told()), (7, String::new()), "nothing to scroll");
        assert_eq!(scrolled_to(&columns, 12, 0).shown, [0, 1], "cut rather than none");
    }
}
