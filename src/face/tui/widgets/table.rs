//! Tables, drawn by ratatui from the visible rows only. Columns that do not fit are dropped: the least
//! important first, or, in a table that scrolls sideways, those before and after the visible ones.

use std::borrow::Cow;

use ratatui::layout::{Constraint, Flex};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, StatefulWidget, Table, TableState};

use crate::face::tui::prelude::*;
use base::text::without_middle;

#[derive(Clone, Debug)]
pub struct TableColumn {
    pub title: Cow<'static, str>,
    pub width: u16,
    /// True for right alignment (numbers).
    pub right: bool,
    /// Drop priority: higher values are dropped first; 0 is never dropped.
    pub spare: u8,
    /// Maximum extra width if there is room.
    pub grows: u16,
}

impl TableColumn {
    pub const fn text(title: &'static str, width: u16, spare: u8) -> Self {
        Self { title: Cow::Borrowed(title), width, right: false, spare, grows: 0 }
    }

    pub const fn number(title: &'static str, width: u16, spare: u8) -> Self {
        Self { title: Cow::Borrowed(title), width, right: true, spare, grows: 0 }
    }

    pub const fn growing(mut self, grows: u16) -> Self {
        self.grows = grows;
        self
    }

    pub fn marked(mut self, mark: &str) -> Self {
        self.title.to_mut().push_str(mark);
        self
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TableRows<'a> {
    pub list: &'a List,
    pub len: usize,
    /// Number of droppable columns scrolled off on the left; `None` disables scrolling and drops the
    /// least important columns.
    pub scrolled: Option<usize>,
}

impl<'a> TableRows<'a> {
    /// Rows of a table without sideways scrolling.
    pub fn new(list: &'a List, len: usize) -> Self {
        Self { list, len, scrolled: None }
    }
}

/// Draws header and rows; `cell` renders (row, column, width).
pub fn draw(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    columns: &[TableColumn],
    rows: TableRows<'_>,
    mut cell: impl FnMut(usize, usize, u16) -> Line<'static>,
) {
    let TableRows { list, len, scrolled } = rows;
    let places = lay_out(columns, area, scrolled).places;
    let aligned = |line: Line<'static>, column: &TableColumn| {
        if column.right { line.right_aligned() } else { line }
    };
    let title = |place: &ColumnPosition| {
        let column = &columns[place.column];
        aligned(Line::raw(cut(&column.title, place.width)), column)
    };
    let fitted = |line: Line<'static>, column: &TableColumn, width: u16| {
        let line = match &line.spans[..] {
            // growing columns hold names
            [span] if line.width() > width.into() => {
                let text = match column.grows {
                    0 => cut(&span.content, width),
                    _ => without_middle(&span.content, width.into()),
                };
                Line::from(Span::styled(text, span.style))
            }
            _ => line,
        };
        aligned(line, column)
    };
    let header = Row::new(places.iter().map(title)).style(theme.style(Role::Title));
    let body = list.rows(len, cut_top(area, 1).1).map(|(row, _)| {
        Row::new(places.iter().map(|place| {
            fitted(cell(row, place.column, place.width), &columns[place.column], place.width)
        }))
    });
    let body: Vec<Row<'_>> = body.collect();
    let widths = places.iter().map(|place| Constraint::Length(place.width));
    let table =
        Table::new(body, widths).header(header).flex(Flex::Start).row_highlight_style(selected(theme));
    let selected = list.selected.checked_sub(list.offset).filter(|_| list.selected < len);
    table.render(area, buf, &mut TableState::new().with_selected(selected));
    let Some(place) = rows_out_of_view(list, len, area) else { return };
    // at the right end of the header, or where the titles leave no room, of the line above it (below the tabs), else after
    // the first title
    let (_, end) = cut_left(cut_top(area, 1).0, area.width.saturating_sub(place.width() as u16));
    let above = Rect { y: end.y.saturating_sub(1).max(1).min(end.y), ..end };
    let is_free = |row: &Rect| {
        row.intersection(buf.area).positions().all(|at| matches!(buf[at].symbol(), " " | "─"))
    };
    let first = places.first().map_or(0, |first| {
        let title = &columns[first.column].title;
        cut(title, first.width).width() as u16
    });
    let after_title = Rect { x: (area.x + first).min(end.x), ..end };
    if let Some(row) = [end, above, after_title].into_iter().find(is_free) {
        put(buf, row, row.x, row.y, &place, theme.style(Role::Dim));
    }
}

/// Number of rows above and below a table of this area: ` ↑3 ↓11`; `None` if all are visible.
pub fn rows_out_of_view(list: &List, len: usize, area: Rect) -> Option<String> {
    let below = len.saturating_sub(list.offset + usize::from(area.height.saturating_sub(1)));
    match (list.offset, below) {
        (0, 0) => None,
        (above, 0) => Some(format!(" ↑{above}")),
        (0, below) => Some(format!(" ↓{below}")),
        (above, below) => Some(format!(" ↑{above} ↓{below}")),
    }
}

/// Draws a table of a few rows, none of which can be selected.
pub fn draw_all(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    columns: &[TableColumn],
    len: usize,
    mut text: impl FnMut(usize, usize) -> String,
) {
    let none = List { selected: usize::MAX, offset: 0 };
    let style = theme.style(Role::Text);
    draw(buf, area, theme, columns, TableRows::new(&none, len), |row, column, _| {
        cell((text(row, column), style))
    });
}

pub fn cell((text, style): (String, Style)) -> Line<'static> {
    Line::from(Span::styled(text, style))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnPosition {
    pub column: usize,
    pub x: u16,
    pub width: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLayout {
    pub places: Vec<ColumnPosition>,
    pub left: usize,
    pub right: usize,
}

impl TableLayout {
    /// Describes the hidden columns by the keys that show them: `← 2, → 3 more columns`, in a narrow window `← 2 → 3
    /// cols`; empty if all are visible.
    pub fn words_in(&self, width: u16) -> String {
        let is_narrow = width < 80;
        let more = |n: usize| counted(n, if is_narrow { "col" } else { "more column" });
        match (self.left, self.right) {
            (0, 0) => String::new(),
            (0, n) => format!("  → {} ", more(n)),
            (n, 0) => format!("  ← {} ", more(n)),
            (a, b) => format!("  ← {a}{} → {} ", if is_narrow { "" } else { "," }, more(b)),
        }
    }
}

/// Lays out columns. Text in the last one gets the remaining width.
pub fn lay_out(columns: &[TableColumn], area: Rect, scrolled: Option<usize>) -> TableLayout {
    let (shown, left, right) = match scrolled {
        Some(scrolled) => scrolled_to(columns, area.width, scrolled),
        None => (fitting(columns, area.width), 0, 0),
    };
    let needed: u16 = shown.iter().map(|i| columns[*i].width + 1).sum();
    let mut extra = area.width.saturating_add(1).saturating_sub(needed);
    let mut x = area.x;
    let mut places = Vec::with_capacity(shown.len());
    for column in &shown {
        let (spec, room) = (&columns[*column], area.right().saturating_sub(x));
        let more = spec.grows.min(extra);
        extra -= more;
        let is_last = Some(column) == shown.last() && !spec.right;
        let width = if is_last { room } else { (spec.width + more).min(room) };
        places.push(ColumnPosition { column: *column, x, width });
        x = x.saturating_add(width + 1);
    }
    TableLayout { places, left, right }
}

/// Visible columns with `scrolled` droppable ones scrolled off (at most until the last one is visible),
/// and the number hidden on each side.
fn scrolled_to(columns: &[TableColumn], width: u16, scrolled: usize) -> (Vec<usize>, usize, usize) {
    let (fixed, loose): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|column| columns[*column].spare == 0);
    let needed = |of: &[usize]| of.iter().map(|column| columns[*column].width + 1).sum::<u16>();
    let room = width.saturating_add(1).saturating_sub(needed(&fixed));
    // leftmost scroll position that shows the last column
    let last = (0..loose.len()).find(|from| needed(&loose[*from..]) <= room);
    let last = last.unwrap_or(loose.len().saturating_sub(1));
    let left = scrolled.min(last);
    let fits = (left..=loose.len()).rev().find(|to| needed(&loose[left..*to]) <= room).unwrap_or(left);
    // a window too narrow for any column shows one, cut, unless it has others or that pushes a fixed one off
    let least = usize::from(left > 0 || fixed.len() < 2 && loose.get(left) > fixed.last());
    let to = fits.max(left + least).min(loose.len());
    let mut shown = fixed;
    shown.extend(&loose[left..to]);
    shown.sort_unstable();
    (shown, left, loose.len() - to)
}

fn fitting(columns: &[TableColumn], width: u16) -> Vec<usize> {
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
        let columns = [
            TableColumn::text("a", 10, 0),
            TableColumn::text("b", 10, 2),
            TableColumn::number("c", 10, 1),
        ];
        assert_eq!(fitting(&columns, 40), [0, 1, 2]);
        assert_eq!(fitting(&columns, 25), [0, 2]);
        assert_eq!(fitting(&columns, 5), [0]);
    }

    #[test]
    fn a_scrolled_table_keeps_its_fixed_columns_and_shows_each_of_the_others() {
        let mut columns = vec![TableColumn::text("cell", 10, 0)];
        columns.extend(vec![TableColumn::number("n", 9, 1); 6]);
        let at = |scrolled| scrolled_to(&columns, 40, scrolled);
        assert_eq!(at(0), (vec![0, 1, 2, 3], 0, 3));
        assert_eq!(at(1), (vec![0, 2, 3, 4], 1, 2));
        assert_eq!(at(9), (vec![0, 4, 5, 6], 3, 0), "not beyond the last");
        let words = |width| lay_out(&columns, Rect::new(0, 0, width, 9), Some(1)).words_in(80);
        assert_eq!(words(40), "  ← 1, → 2 more columns ");
        assert_eq!(words(90), "", "nothing to scroll");
        let narrow = lay_out(&columns, Rect::new(0, 0, 40, 9), Some(1)).words_in(60);
        assert_eq!(narrow, "  ← 1 → 2 cols ");
        assert_eq!(scrolled_to(&columns, 12, 0).0, [0, 1], "cut rather than none");
        columns[3].spare = 0;
        assert_eq!(scrolled_to(&columns, 22, 0), (vec![0, 3], 0, 5), "none before a fixed one");
        (columns[3].spare, columns[1].spare) = (1, 0);
        assert_eq!(scrolled_to(&columns, 25, 0), (vec![0, 1], 0, 5), "no cut number behind others");
    }
}
