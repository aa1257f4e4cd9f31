//! Operations by name, as a table with sorting, filtering, and jumping to the longest execution.

use ratatui::text::Line;

use super::super::Act;
use super::{note, which};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::Timeline;
use crate::face::tui::screens::timeline::state::View;
use crate::face::tui::screens::timeline::state::table::{Column, Operations};
use crate::face::tui::widgets::shade::{self, Mark, Shares};
use crate::face::tui::widgets::table::{self, Rows};
use base::text::fitting_name;
use study::analysis::{LaneTotal, NameRow, totals_of};

/// Rows below the table: the lane totals, and the full name of the selected operation if requested.
pub fn beneath(table: &Operations, rows: Rect) -> u16 {
    let name = table.row().filter(|_| table.whole).map(|(row, _)| row.name.as_str());
    let lines = name.map_or(0, |name| whole(name, rows).len() as u16) + u16::from(table.row().is_some());
    // the table keeps at least one row
    lines.min(rows.height.saturating_sub(1))
}

fn whole(name: &str, rows: Rect) -> Vec<String> {
    wrap(name, usize::from(rows.width.saturating_sub(2)))
}

pub fn draw(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
    view: &View,
    table: &Operations,
    cx: &Context,
) {
    let theme = cx.theme;
    let now = table.counted.as_ref().is_some_and(|counted| counted.is_of(table.scope, view));
    let part = match &table.counted {
        Some(counted) if now => counted.part.label(),
        _ => table.scope.part(view).label(),
    };
    let trace = which(view);
    let many = match now {
        true => counted(table.order.len(), "operation"),
        false => "counting…".into(),
    };
    // counts cover all ranks, times are the mean over ranks
    let over = match view.pane().index.ranks.len() {
        0 | 1 => String::new(),
        ranks => format!(" a rank, counts of all {ranks}"),
    };
    let title = format!("where the time went, in us{over}: {trace}{part} · {many}");
    let inner = frame(buf, area, &title, theme);
    let typed = table.filter.typing || !table.filter.value().is_empty();
    if typed {
        let width = (table.filter.value().width() as u16 + 11).min(area.width / 2);
        let top = Rect { x: area.right().saturating_sub(width + 1), width, height: 1, ..area };
        put(buf, top, top.x, top.y, &" ".repeat(usize::from(width)), theme.style(Role::Text));
        table.filter.draw(buf, Rect { x: top.x + 1, ..top }, theme, "");
    }
    let columns = columns(table);
    let shown = Rect { height: rows.bottom().saturating_sub(inner.y), ..inner };
    let rows_of = table.counted.as_ref().map_or(&[][..], |counted| &counted.table.rows);
    let list = Rows::new(&table.list, table.order.len());
    table::draw(buf, shown, theme, &columns, list, |row, column, width| {
        let Some(row) = rows_of.get(table.order[row]) else { return Line::default() };
        let text = match column {
            0 => row.count.to_string(),
            1 => digits(row.total_us),
            2 => digits(row.mean_us),
            3 => digits(row.max_us),
            4 => format!("{:.1}", row.share_pct),
            5 if row.lane == "comm" => digits(row.exposed_us),
            5 => String::new(),
            6 => {
                let (mark, role) = mark(row);
                return table::cell((mark.to_owned(), theme.style(role)));
            }
            _ => fitting_name(&row.name, width.into()),
        };
        Line::from(text)
    });
    let name = table.row().filter(|_| table.whole).map(|(row, _)| whole(&row.name, rows));
    let under = Rect { y: rows.bottom(), height: inner.bottom().saturating_sub(rows.bottom()), ..rows };
    let words = name.unwrap_or_default().into_iter().map(|words| (words, Role::Key));
    for (at, (words, role)) in words.chain(totals(table).map(|words| (words, Role::Dim))).enumerate() {
        line(buf, under, at as u16, &[(" ", theme.style(Role::Text)), (&words, theme.style(role))]);
    }
    let key = |act| cx.key::<Timeline>(act);
    let keys = format!(
        " Enter longest  {} part  {} sort  {} filter  {} name ",
        key(Act::Operations),
        key(Act::SortNext),
        key(Act::Search),
        key(Act::WholeName)
    );
    note(buf, area, &keys, theme);
}

/// Mark of an operation; for collectives, it shows the exposed share as in the lanes.
fn mark(row: &NameRow) -> Mark {
    match row.lane {
        "comm" => {
            let exposed = if row.total_us > 0.0 { row.exposed_us / row.total_us } else { 0.0 };
            let shares = Shares { comm: 1.0, exposed, ..Shares::default() };
            shade::comm(shares).unwrap_or(("▓", Role::Comm))
        }
        "memory" | "other" => ("▬", Role::Series(2)),
        _ => ("█", Role::Series(0)),
    }
}

/// Lane totals of the shown operations; `None` if none is shown.
fn totals(table: &Operations) -> Option<String> {
    let rows = &table.counted.as_ref()?.table.rows;
    let lane = |lane: LaneTotal| {
        let exposed = match lane.lane {
            "comm" => format!(", exposed {}", digits(lane.exposed_us)),
            _ => String::new(),
        };
        format!("{} {} ({:.0}%){exposed}", lane.lane, digits(lane.total_us), lane.share_pct)
    };
    let lanes: Vec<String> =
        totals_of(table.order.iter().filter_map(|at| rows.get(*at))).into_iter().map(lane).collect();
    (!lanes.is_empty()).then(|| format!("in all: {}", lanes.join("  ")))
}

fn columns(table: &Operations) -> Vec<table::Column> {
    let mut columns: Vec<table::Column> = Column::ALL
        .iter()
        .zip([6, 7, 6, 6, 7, 8, 8])
        .map(|(column, width)| {
            let numbers = table::Column::number(column.title(), width, 0);
            let shown =
                if *column == Column::Name { table::Column::text("operation", 8, 0) } else { numbers };
            let mark = match (table.column == *column, table.reverse) {
                (true, false) => "▾",
                (true, true) => "▴",
                _ => "",
            };
            shown.marked(mark)
        })
        .collect();
    columns.insert(6, table::Column::text("", 1, 0));
    columns
}
