//! List of the longest exposed stretches: the collective, and what waited for it.

use ratatui::text::Line;

use super::super::Act;
use super::super::draw::seconds;
use super::{brief, note, which};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::Timeline;
use crate::face::tui::screens::timeline::state::View;
use crate::face::tui::screens::timeline::state::panel::Stretches;
use crate::face::tui::widgets::table::{self, Column, Rows};
use base::text::rank_list;
use study::analysis::ExposedStretches;

pub fn draw(buf: &mut Buffer, area: Rect, view: &View, shown: &Stretches, cx: &Context) {
    let theme = cx.theme;
    let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
    let part = shown.scope.part(view).label();
    let told =
        |table: &ExposedStretches| format!(", {} a rank", ns((table.total_us * 1e3).round() as i64));
    let sum = counted
        .filter(|counted| counted.table.count > 0)
        .map_or(String::new(), |counted| told(&counted.table));
    let many = match counted.map(|counted| &counted.table) {
        None => "looking…".into(),
        Some(table) if table.count == 0 => "no communication is exposed".into(),
        Some(table) if (table.longest.len() as u64) < table.count => {
            format!("the {} longest of {}", table.longest.len(), table.count)
        }
        Some(table) if table.count == 1 => "1 stretch".into(),
        Some(table) => format!("{} stretches", table.count),
    };
    let title = format!("exposed communication: {}{part} · {many}{sum}", which(view));
    let inner = frame(buf, area, &title, theme);
    let mut columns = COLUMNS.to_vec();
    columns[4].width = inner.width.saturating_sub(FIXED) / 2;
    let rows = Rows::new(&shown.list, shown.all().len());
    table::draw(buf, inner, theme, &columns, rows, |row, column, width| {
        let stretch = &shown.all()[row];
        Line::from(match column {
            0 => ns(stretch.interval.1.saturating_sub(stretch.interval.0)),
            1 => seconds((stretch.at_us * 1e3).round() as i64, 6),
            2 => stretch.step.label(),
            3 => rank_list(&stretch.ranks),
            4 => brief(&stretch.collective, width.into()),
            _ => brief(stretch.waited.as_deref().unwrap_or("nothing"), width.into()),
        })
    });
    note(buf, area, &format!(" Enter goes there  {} part ", cx.key::<Timeline>(Act::Stretches)), theme);
}

const COLUMNS: [Column; 6] = [
    Column::number("length", 10, 0),
    Column::number("at s", 12, 0),
    Column::text("step", 9, 0),
    Column::text("ranks", 8, 0),
    Column::text("exposed", 0, 0),
    Column::text("what waited", 8, 0),
];

/// Total width of all columns except the two names.
const FIXED: u16 = 44;
