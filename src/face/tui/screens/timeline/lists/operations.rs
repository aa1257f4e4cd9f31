//! Table of operations by total time: of a part of the trace, and of the step under the cursor while no list is open.

use std::collections::BTreeMap;

use ratatui::text::Line;

use super::{SHORT_NAME, count, note, outlier_step, part_label, share_of, time_of, which};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::panel::{
    OperationColumn, OperationsPanel, ResolvedScope, ScopedTable,
};
use crate::face::tui::screens::timeline::state::{TimelineView, TraceIndex};
use crate::face::tui::screens::timeline::{Act, Timeline};
use crate::face::tui::widgets::lanes::module_role;
use crate::face::tui::widgets::shade::{self, Shares, StyledGlyph};
use crate::face::tui::widgets::table::{self, TableColumn, TableRows};
use base::text::fitting_name;
use study::analysis::{NameRow, OperationTable, totals_of};

/// Rows below the table: the lane totals, and the full name of the selected operation if requested.
pub fn beneath(table: &OperationsPanel, rows: Rect) -> u16 {
    let name = table.row().filter(|_| table.whole).map(|(row, _)| row.name.as_str());
    let sums = usize::from(table.row().is_some()) * (1 + usize::from(load(table).is_some()));
    let lines = (name.map_or(0, |name| whole(name, rows).len()) + sums) as u16;
    // the table keeps at least one row
    lines.min(rows.height.saturating_sub(1))
}

fn whole(name: &str, rows: Rect) -> Vec<String> {
    wrap(name, usize::from(rows.width.saturating_sub(2)))
}

pub fn draw_operations(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
    view: &TimelineView,
    table: &OperationsPanel,
    cx: &Context,
) {
    let theme = cx.theme;
    let now = table.counted.as_ref().is_some_and(|counted| counted.is_of(table.scope, view));
    let part = match &table.counted {
        Some(counted) if now => counted.part.clone(),
        _ => table.scope.part(view),
    };
    let (part, trace) = (part_label(&part, view), which(view));
    let many = match now {
        true => counted(table.order.len(), "operation"),
        false => "counting…".into(),
    };
    let counted = table.counted.as_ref().filter(|_| now).map(|counted| &*counted.table);
    let per_rank = per_rank(view);
    let clipped = match counted {
        Some(table) if table.is_clipped => format!(" clipped to {part}"),
        _ => String::new(),
    };
    let titles = [
        format!("{trace}{part}: where the time went{per_rank} · {many}{clipped}"),
        format!("{trace}{part} · {many}{clipped}"),
        format!("{trace}{part} · {many}"),
    ];
    let inner = frame(buf, area, first_fitting(&titles, area.width.saturating_sub(4)), theme);
    let typed = table.filter.typing || !table.filter.value().is_empty();
    if typed {
        let width = (table.filter.value().width() as u16 + 11).min(area.width / 2);
        let top = Rect { x: area.right().saturating_sub(width + 1), width, height: 1, ..area };
        put(buf, top, top.x, top.y, &" ".repeat(usize::from(width)), theme.style(Role::Text));
        table.filter.draw(buf, Rect { x: top.x + 1, ..top }, theme, "");
    }
    let area_of_table = Rect { height: rows.bottom().saturating_sub(inner.y), ..inner };
    operation_table(buf, area_of_table, view, table, theme);
    let name = table.row().filter(|_| table.whole).map(|(row, _)| whole(&row.name, rows));
    let under = Rect { y: rows.bottom(), height: inner.bottom().saturating_sub(rows.bottom()), ..rows };
    let words = name.unwrap_or_default().into_iter().map(|words| (words, Role::Key));
    let sums = totals(table, rows.width.saturating_sub(1)).into_iter().chain(load(table));
    for (at, (words, role)) in words.chain(sums.map(|words| (words, Role::Dim))).enumerate() {
        line(buf, under, at as u16, &[(" ", theme.style(Role::Text)), (&words, theme.style(role))]);
    }
    let key = |act| cx.key::<Timeline>(act);
    let [part, sort, filter, name] =
        [Act::Operations, Act::SortNext, Act::Search, Act::WholeName].map(key);
    let keys =
        format!("Enter: go to the longest  {part}: part  {sort}: sort  {filter}: filter  {name}: name");
    note(buf, area, &keys, theme);
}

/// Remark on the averages over ranks; the maximum is no average, and has a title of its own.
fn per_rank(view: &TimelineView) -> &'static str {
    if view.pane().index.rank_count() < 2 { "" } else { " per rank" }
}

fn operation_table(
    buf: &mut Buffer,
    area: Rect,
    view: &TimelineView,
    table: &OperationsPanel,
    theme: Theme,
) {
    let Some(counted) = &table.counted else { return };
    let Some(index) = view.panes.get(counted.pane).map(|pane| &pane.index) else { return };
    let (rows, ranks) = (&counted.table.rows, index.ranks.len().max(1) as u64);
    let list = TableRows::new(&table.list, table.order.len());
    let columns = operation_columns(table, index.rank_count() > 1 && area.width >= 70);
    let visible = || table.order.iter().skip(table.list.offset).take(area.height.into()).copied();
    let mut names: Option<Vec<String>> = None;
    table::draw(buf, area, theme, &columns, list, |row, column, width| {
        let at = table.order[row];
        let Some(row) = rows.get(at) else { return Line::default() };
        let text = match column {
            // as the times: per rank
            0 => count(row.count as f64 / ranks as f64),
            1 => time_of(row.total_us),
            2 => time_of(row.mean_us),
            3 => time_of(row.max_us),
            4 => share_of(row.total_us, counted.table.time_us),
            5 if row.lane == "comm" => time_of(row.exposed_us),
            5 => String::new(),
            6 => {
                let (mark, role) = mark(row, index, counted.table.longest.get(at).copied());
                return table::cell((mark.to_owned(), theme.style(role)));
            }
            _ => {
                let names = names.get_or_insert_with(|| {
                    distinct_names(rows, &table.suffixes, visible().collect(), width)
                });
                match outlier(counted, at, index) {
                    Some(place) => cut(&names[at], width.saturating_sub(place.width() as u16)) + &place,
                    None => names[at].clone(),
                }
            }
        };
        Line::from(text)
    });
    if table.order.is_empty() && !rows.is_empty() && area.height > 1 {
        let words = "no operation has these words in its name";
        put(buf, area, area.x + 1, area.y + 1, words, theme.style(Role::Dim));
    }
}

/// Remark on a row (an index) whose longest execution is an outlier: `, max in step 0`. `None` in a table of one step.
fn outlier(counted: &ScopedTable<OperationTable>, at: usize, index: &TraceIndex) -> Option<String> {
    let (row, span) = (counted.table.rows.get(at)?, *counted.table.longest.get(at)?);
    let is_step = matches!(counted.part, ResolvedScope::Step(_));
    let step = outlier_step(index, span, row.max_us, row.mean_us).filter(|_| !is_step)?;
    Some(format!(", max in {step}"))
}

/// Names of the rows with these indices, shortened to this many columns; empty strings for the other rows. If two shortened
/// names are equal, each ends with the part from which the full names differ.
pub fn distinct_names(rows: &[NameRow], suffixes: &[String], of: Vec<usize>, width: u16) -> Vec<String> {
    let mut shown = vec![String::new(); rows.len()];
    for &at in &of {
        shown[at] = named(&rows[at].name, suffixes.get(at).map_or("", String::as_str), width);
    }
    tell_apart(rows, of, &mut shown, width);
    shown
}

/// Rewrites the shown names of rows (indices) that are equal although their full names differ.
fn tell_apart(rows: &[NameRow], among: Vec<usize>, shown: &mut [String], width: u16) {
    let mut equal: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for at in &among {
        equal.entry(shown[*at].clone()).or_default().push(*at);
    }
    for group in equal.into_values() {
        let first = &rows[group[0]].name;
        let common = |at: &usize| {
            let other = rows[*at].name.chars();
            first.chars().zip(other).take_while(|(a, b)| a == b).count()
        };
        // of the whole group; a name that another one begins with differs in its end
        let prefix = group.iter().skip(1).map(common).min();
        let Some(prefix) = prefix.filter(|_| group.iter().any(|at| rows[*at].name != *first)) else {
            continue;
        };
        for at in &group {
            let third = usize::from(width.saturating_sub(1) / 3);
            let head: String = shown[*at].chars().take(third).take_while(|c| *c != '…').collect();
            let end: String = rows[*at].name.chars().skip(prefix).collect();
            shown[*at] = cut(&format!("{head}…{end}"), width);
        }
        // of three names, two may still be equal
        if among.len() > group.len() || group.iter().any(|at| shown[*at] != shown[group[0]]) {
            tell_apart(rows, group, shown, width);
        }
    }
}

/// Shortened name with the suffix that tells it from others; the suffix leaves the name two thirds of the room.
fn named(name: &str, suffix: &str, width: u16) -> String {
    let width = usize::from(width);
    let room = width.saturating_sub(suffix.width()).max(2 * width / 3);
    cut(&(fitting_name(name, room.min(SHORT_NAME)) + suffix), width as u16)
}

/// Mark of an operation; for collectives, it shows the exposed share as in the lanes.
fn mark(row: &NameRow, index: &TraceIndex, span: Option<usize>) -> StyledGlyph {
    match row.lane {
        "comm" => {
            let exposed = if row.total_us > 0.0 { row.exposed_us / row.total_us } else { 0.0 };
            let shares = Shares { comm: 1.0, exposed, ..Shares::default() };
            shade::comm(shares).unwrap_or(("▓", Role::Comm))
        }
        "memory" | "other" => ("▬", Role::Series(2)),
        _ => ("█", module_role(index, span)),
    }
}

/// Exposed communication and the time of each lane, with shares if they fit: busy time, as `overlap` prints it, or the summed durations of the
/// operations that a filter leaves; `None` if none is shown.
fn totals(table: &OperationsPanel, room: u16) -> Option<String> {
    let counted = &table.counted.as_ref()?.table;
    let (rows, time_us) = (&counted.rows, counted.time_us);
    let mut lanes = totals_of(table.order.iter().filter_map(|at| rows.get(*at)));
    if table.order.len() == rows.len() {
        for lane in &mut lanes {
            let busy = counted.busy_us.iter().find(|(name, _)| *name == lane.lane);
            lane.total_us = busy.map_or(lane.total_us, |(_, us)| *us);
        }
    }
    let words = |with_share: bool| {
        let time = |us: f64| match with_share {
            true => format!("{} ({} %)", time_of(us), share_of(us, time_us)),
            false => time_of(us),
        };
        let comm = lanes.iter().find(|lane| lane.lane == "comm");
        let exposed = comm.map(|comm| format!("exposed {}; ", time(comm.exposed_us)));
        let lanes = lanes.iter().map(|lane| format!("{} {}", lane.lane, time(lane.total_us)));
        let lanes = lanes.collect::<Vec<_>>().join(", ");
        format!("{}of {}: {lanes}", exposed.unwrap_or_default(), time_of(time_us))
    };
    let texts = [words(true), words(false)];
    let text = first_fitting(&texts, room);
    let fitting = leading_clauses(text, room.into(), &[", "]).unwrap_or(text);
    (!lanes.is_empty()).then(|| fitting.to_owned())
}

/// Load of the ranks in a mixture's experts.
fn load(table: &OperationsPanel) -> Option<String> {
    let experts = table.counted.as_ref()?.table.experts.as_ref()?;
    experts.in_words().map(|words| format!("experts: {words}"))
}

/// Draws the operations of the step under the cursor, or of the window if that shows less, without a selected row.
pub fn draw_docked(buf: &mut Buffer, area: Rect, view: &TimelineView, cx: &Context) {
    if area.height == 0 {
        return;
    }
    let table = view.docked_table();
    let key = cx.key::<Timeline>(Act::Operations);
    let part =
        table.counted.as_ref().map_or_else(|| table.scope.part(view), |counted| counted.part.clone());
    let counted = table.counted.as_ref().map(|counted| &*counted.table);
    let of = match part {
        _ if counted.is_some_and(|table| table.is_clipped) => "clipped to",
        ResolvedScope::Window(_) => "in",
        _ => "of",
    };
    let (trace, part) = (which(view), part.label(&view.pane().index));
    let title = format!("operations {of} {trace}{part}{}", per_rank(view));
    let titles = [format!("{title} ({key}: all)"), title];
    let inner = frame(buf, area, first_fitting(&titles, area.width.saturating_sub(4)), cx.theme);
    operation_table(buf, inner, view, table, cx.theme);
}

const OPERATION_COLUMNS: [TableColumn; 8] = [
    TableColumn::number("count", 6, 1),
    TableColumn::number("total", 8, 0),
    TableColumn::number("mean", 8, 3),
    TableColumn::number("max", 8, 2),
    TableColumn::number("% time", 7, 0),
    TableColumn::number("exposed", 8, 0),
    // mark
    TableColumn::text("", 1, 0),
    TableColumn::text("operation", 30, 0),
];

/// In a narrow window, the name and the sorted column keep their room. Of `several` ranks, the total is a mean.
fn operation_columns(table: &OperationsPanel, several: bool) -> [TableColumn; 8] {
    let mut columns = OPERATION_COLUMNS;
    if several {
        columns[1] = TableColumn::number("total/rank", 11, 0);
    }
    for (at, sort) in [0, 1, 2, 3, 4, 5, 7].into_iter().zip(OperationColumn::ALL) {
        let column = &mut columns[at];
        column.title.to_mut().push_str(table.sorted.arrow(sort));
        if sort == table.sorted.column {
            column.spare = 0;
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_suffix_leaves_the_beginning_of_the_name() {
        let name = "Cijk_Alik_Bljk_BBS_BH_MT256x32x64_MI16x16x1_SN";
        let suffix = "‹MT256x32x64 LBSPPB256 WG64 1›";
        assert_eq!(named(name, suffix, 30), "Tensile MT256x32x64‹MT256x32x…");
        assert_eq!(named(name, suffix, 60), format!("Tensile MT256x32x64{suffix}"));
    }
}
