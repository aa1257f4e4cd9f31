//! Lists below the lanes: dependencies, differences of two traces, operations, exposed stretches, the verdict, the legend.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ratatui::text::Line;

use super::draw::names;
use super::state::panel::{
    DifferenceRow, OperationColumn, Operations, Panel, Part, Stretches, difference_rows,
};
use super::state::{Pane, TraceIndex, View};
use super::{Act, Timeline};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::lanes::module_role;
use crate::face::tui::widgets::shade::{self, Mark, Shares, module};
use crate::face::tui::widgets::table::{self, Column, Rows};
use ::table::Provenance;
use ::table::render::{Shown, Sourced, Table};
use base::text::fitting_name;
use plan::Lane;
use study::analysis::{
    Dependencies, Dependency, ExposedStretches, LaneTotal, NameRow, OperationDifference,
    OperationDifferences, OperationShare, StretchFamily, Why, totals_of,
};
use study::verdict::{Verdict, VerdictPlace};
use trace::overlap::StepKey;
use trace::rules::EXPERTS;
use trace::{NO_STEP, OperationInfo};

/// Rows of the list, without frame, header, and whatever is below a table.
pub fn rows(area: Rect, view: &View) -> Rect {
    let rows = cut_top(inside(area), 1).1;
    match &view.panel {
        Some(Panel::Operations(table)) => cut_bottom(rows, beneath(table, rows)).0,
        Some(Panel::Legend(..) | Panel::Verdict { .. }) => inside(area),
        _ => rows,
    }
}

pub fn draw(buf: &mut Buffer, area: Rect, view: &View, cx: &Context) {
    let (theme, rows) = (cx.theme, rows(area, view));
    match &view.panel {
        Some(Panel::Dependencies { span, dependencies, list }) => {
            draw_dependencies(buf, area, &view.pane().index, *span, dependencies, list, theme);
        }
        Some(Panel::Differences { list, by_exposed, open }) => {
            draw_differences(buf, area, view, (list, *by_exposed, open), theme);
        }
        Some(Panel::Operations(table)) => draw_operations(buf, (area, rows), view, table, cx),
        Some(Panel::Stretches(shown)) => draw_stretches(buf, area, view, shown, cx),
        Some(Panel::Verdict { lines, list }) => {
            draw_verdict(buf, (area, rows), view, (lines, list), theme);
        }
        Some(Panel::Legend(list, _)) => draw_legend(buf, (area, rows), list, theme),
        None => {}
    }
}

/// Shortens a name for a narrow column: drops the phase and abbreviates kernel names.
fn brief(name: &str, room: usize) -> String {
    let name = name.strip_prefix("decode/").or(name.strip_prefix("prefill/")).unwrap_or(name);
    fitting_name(name, room)
}

/// Label of the trace that a list belongs to; empty if only one is open.
fn which(view: &View) -> String {
    let provenance = view.pane().index.provenance();
    match names(view).get(view.focus) {
        _ if view.panes.len() < 2 => String::new(),
        Some(name) if *name != provenance.to_string() => format!("{name} [{provenance}], "),
        _ => format!("[{provenance}], "),
    }
}

/// Part of the trace that a table covers; a trace of prefills alone says so.
fn part_label(part: &Part, view: &View) -> String {
    let verdict = view.pane().verdict.as_ref();
    match (part, verdict.and_then(|verdict| verdict.only_prefill())) {
        (Part::All, Some(only)) => format!("{only}, no decode step"),
        (part, _) => part.label(&view.pane().index),
    }
}

fn note(buf: &mut Buffer, area: Rect, words: &str, theme: Theme) {
    let x = area.right().saturating_sub(words.width() as u16 + 2);
    put(buf, area, x.max(area.x + 1), area.bottom().saturating_sub(1), words, theme.style(Role::Dim));
}

const DEPENDENCY_COLUMNS: [Column; 5] = [
    Column::text("", 10, 0),
    Column::text("why", 26, 0),
    Column::text("rank", 5, 0),
    Column::number("it took", 10, 0),
    Column::text("what", 10, 0),
];

fn draw_dependencies(
    buf: &mut Buffer,
    area: Rect,
    index: &TraceIndex,
    span: usize,
    dependencies: &Dependencies,
    list: &List,
    theme: Theme,
) {
    let own = index.trace.spans.get(span);
    let title = own.map_or("dependencies".into(), |own| format!("dependencies of {}", index.name(own)));
    let inner = frame(buf, area, &title, theme);
    let edges = dependencies.before.iter().map(|dependency| (true, dependency));
    let edges: Vec<(bool, &Dependency)> =
        edges.chain(dependencies.after.iter().map(|dependency| (false, dependency))).collect();
    table::draw(
        buf,
        cut_left(inner, 1).1,
        theme,
        &DEPENDENCY_COLUMNS,
        Rows::new(list, edges.len()),
        |row, column, width| {
            let (before, dependency) = &edges[row];
            let Some(other) = index.trace.spans.get(dependency.span) else { return Line::default() };
            Line::from(match column {
                0 if row == 0 && *before => "waited".to_owned(),
                0 if row == dependencies.before.len() => "awaited by".to_owned(),
                0 => String::new(),
                1 => why(dependency.why, *before).to_owned(),
                2 => other.rank.to_string(),
                3 => ns(other.end_ns.saturating_sub(other.start_ns)),
                _ => fitting_name(index.name(other), width.into()),
            })
        },
    );
}

fn why(why: Why, before: bool) -> &'static str {
    match (why, before) {
        (Why::Result, true) => "for its result",
        (Why::Result, false) => "which needs the result",
        (Why::Lane, true) => "for the lane",
        (Why::Lane, false) => "which needs the lane",
        (Why::Peer, true) => "for this peer to arrive",
        (Why::Peer, false) => "a peer that was there",
        (Why::Last, _) => "",
    }
}

/// Draws the time differences between the lower and the upper trace. One row sums all layers of an
/// operation; expanded rows list the layers below.
fn draw_differences(
    buf: &mut Buffer,
    area: Rect,
    view: &View,
    (list, by_exposed, open): (&List, bool, &BTreeSet<String>),
    theme: Theme,
) {
    let Some(report) = &view.differences else {
        frame(buf, area, "differences by operation: comparing…", theme);
        return;
    };
    let (a, b) = report.steps;
    let moment = if view.compares_now() { "" } else { "; comparing…" };
    let (took, exposed) = (report.lengths_us, report.exposed_us);
    let wide = area.width >= 112;
    let (a, b) = match wide {
        true => [(0, a), (1, b)].map(|(at, key)| format!(" {}", view.step_label(at, key))).into(),
        false => (String::new(), String::new()),
    };
    let less = match &report.recorders {
        Some([upper, lower]) => format!("not compared ({upper}, {lower})"),
        None => plus(exposed.1 - exposed.0, time_of),
    };
    let [upper, lower] = names(view);
    let title = format!(
        "{upper}{a} {}, {lower}{b} {}: {}; exposed {}, {}: {less}{moment}",
        time_of(took.0),
        time_of(took.1),
        plus(took.1 - took.0, time_of),
        time_of(exposed.0),
        time_of(exposed.1),
    );
    let inner = frame(buf, area, &title, theme);
    let order = if by_exposed && report.recorders.is_none() { "by exposed" } else { "by time" };
    let change = format!("change: {} minus {}", cut(&lower, 16), cut(&upper, 16));
    note(buf, area, &format!(" {change}; Enter: layers; {order} "), theme);
    let shown = difference_rows(report, by_exposed, open);
    let mut columns =
        if wide { DIFFERENCE_COLUMNS.to_vec() } else { NARROW_DIFFERENCE_COLUMNS.to_vec() };
    for column in &mut columns {
        let named = [("upper", &upper), ("lower", &lower)].into_iter().find_map(|(place, name)| {
            Some(format!("{} {}", cut(name, 8), column.title.strip_prefix(place)?.trim_start()))
        });
        if let Some(title) = named {
            column.width = column.width.max(title.width() as u16);
            column.title = title.into();
        }
    }
    table::draw(
        buf,
        cut_left(inner, 1).1,
        theme,
        &columns,
        Rows::new(list, shown.len()),
        |row, column, _| {
            let (group, mark) = match shown[row] {
                DifferenceRow::Group(at) => (&report.groups[at], "    "),
                DifferenceRow::Family(at) => {
                    let family = &report.families[at];
                    let mark = match (family.groups.len(), open.contains(&family.sum.name)) {
                        (..=1, _) => "",
                        (_, true) => "▾ ",
                        (_, false) => "▸ ",
                    };
                    (&family.sum, mark)
                }
            };
            let role = if group.lane == Lane::Comm { Role::Comm } else { Role::Text };
            table::cell((difference(group, mark, column, columns.len()), theme.style(role)))
        },
    );
}

const DIFFERENCE_COLUMNS: [Column; 8] = [
    Column::number("upper us", 10, 0),
    Column::number("lower us", 10, 0),
    Column::number("change us", 10, 0),
    Column::number("upper exp.", 12, 0),
    Column::number("lower exp.", 12, 0),
    Column::number("upper wait", 12, 0),
    Column::number("lower wait", 12, 0),
    Column::text("  operation", 8, 0),
];

/// Columns of a window too narrow for waiting times.
const NARROW_DIFFERENCE_COLUMNS: [Column; 6] = [
    Column::number("upper us", 10, 0),
    Column::number("lower us", 10, 0),
    Column::number("change us", 10, 0),
    Column::number("upper exp.", 11, 0),
    Column::number("lower exp.", 10, 0),
    Column::text("  operation", 8, 0),
];

/// Cell text of a row; the last column holds names.
fn difference(group: &OperationDifference, mark: &str, column: usize, columns: usize) -> String {
    let us = |share: &Option<OperationShare>, get: fn(&OperationShare) -> f64| {
        share.as_ref().map_or("-".into(), |share| digits(get(share)))
    };
    let (a, b) = (&group.a, &group.b);
    match column {
        _ if column + 1 == columns => format!("{mark:<2}{}", without_phase(&group.name)),
        0 => us(a, |s| s.us),
        1 => us(b, |s| s.us),
        2 => signed(group.delta_us),
        _ if group.lane == Lane::Compute => String::new(),
        3 => us(a, |s| s.exposed_us),
        4 => us(b, |s| s.exposed_us),
        5 => us(a, |s| s.peer_wait_us),
        _ => us(b, |s| s.peer_wait_us),
    }
}

/// Drops the phase from a name: both steps usually share it.
fn without_phase(name: &str) -> String {
    name.replace("decode/", "").replace("prefill/", "")
}

fn signed(us: f64) -> String {
    plus(us, digits)
}

fn plus(us: f64, written: fn(f64) -> String) -> String {
    format!("{}{}", if us > 0.0 { "+" } else { "" }, written(us))
}

pub fn time_of(us: f64) -> String {
    ns((us * 1e3).round() as i64)
}

pub fn differences_csv(report: &OperationDifferences, provenance: [Provenance; 2]) -> String {
    let (steps, [upper, lower]) = ((report.steps.0.label(), report.steps.1.label()), provenance);
    let number = |share: &Option<OperationShare>, get: fn(&OperationShare) -> f64| {
        Shown::number(share.as_ref().map(get), 3)
    };
    Table::of(
        &report.groups,
        &[
            ("operation", &|g: &OperationDifference| Shown::text(&g.name)),
            ("lane", &|g| g.lane.as_str().into()),
            ("upper_provenance", &|_| Shown::text(upper)),
            ("upper_step", &|_| Shown::text(&steps.0)),
            ("upper_us", &|g| number(&g.a, |s| s.us)),
            ("upper_exposed_us", &|g| number(&g.a, |s| s.exposed_us)),
            ("upper_peer_wait_us", &|g| number(&g.a, |s| s.peer_wait_us)),
            ("lower_provenance", &|_| Shown::text(lower)),
            ("lower_step", &|_| Shown::text(&steps.1)),
            ("lower_us", &|g| number(&g.b, |s| s.us)),
            ("lower_exposed_us", &|g| number(&g.b, |s| s.exposed_us)),
            ("lower_peer_wait_us", &|g| number(&g.b, |s| s.peer_wait_us)),
            ("delta_us", &|g| Shown::Number(g.delta_us, 3)),
        ],
    )
    .csv(Sourced::ByRow)
}

/// Rows below the table: the lane totals, and the full name of the selected operation if requested.
pub fn beneath(table: &Operations, rows: Rect) -> u16 {
    let name = table.row().filter(|_| table.whole).map(|(row, _)| row.name.as_str());
    let sums = usize::from(table.row().is_some()) * (1 + usize::from(load(table).is_some()));
    let lines = (name.map_or(0, |name| whole(name, rows).len()) + sums) as u16;
    // the table keeps at least one row
    lines.min(rows.height.saturating_sub(1))
}

fn whole(name: &str, rows: Rect) -> Vec<String> {
    wrap(name, usize::from(rows.width.saturating_sub(2)))
}

fn draw_operations(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
    view: &View,
    table: &Operations,
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
    let per_rank = per_rank(view);
    let titles = [
        format!("{trace}{part}: where the time went, in us{per_rank} · {many}"),
        format!("{trace}{part}: time in us{per_rank} · {many}"),
        format!("{trace}{part}: us{per_rank} · {many}"),
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
    let keys = ["go to the longest", "longest"].map(|go| {
        format!(
            " Enter: {go}  {}: part  {}: sort  {}: filter  {}: name ",
            key(Act::Operations),
            key(Act::SortNext),
            key(Act::Search),
            key(Act::WholeName)
        )
    });
    let keys = first_fitting(&keys, area.width.saturating_sub(4));
    note(buf, area, keys, theme);
}

fn per_rank(view: &View) -> &'static str {
    if view.pane().index.rank_count() > 1 { " per rank" } else { "" }
}

fn operation_table(buf: &mut Buffer, area: Rect, view: &View, table: &Operations, theme: Theme) {
    let Some(counted) = &table.counted else { return };
    let Some(index) = view.panes.get(counted.pane).map(|pane| &pane.index) else { return };
    let (rows, ranks) = (&counted.table.rows, index.ranks.len().max(1) as u64);
    let list = Rows::new(&table.list, table.order.len());
    table::draw(buf, area, theme, &operation_columns(table), list, |row, column, width| {
        let at = table.order[row];
        let Some(row) = rows.get(at) else { return Line::default() };
        let text = match column {
            // as the times: per rank
            0 => count(row.count as f64 / ranks as f64),
            1 => digits(row.total_us),
            2 => row.mean_us.map_or_else(|| "–".into(), digits),
            3 => digits(row.max_us),
            4 => share_of(row.total_us, counted.table.time_us),
            5 if row.lane == "comm" => digits(row.exposed_us),
            5 => String::new(),
            6 => {
                let (mark, role) = mark(row, index, counted.table.longest.get(at).copied());
                return table::cell((mark.to_owned(), theme.style(role)));
            }
            _ => {
                let suffix = table.suffixes.get(at).map_or("", String::as_str);
                let room = usize::from(width).saturating_sub(suffix.width());
                fitting_name(&row.name, room) + suffix
            }
        };
        Line::from(text)
    });
}

/// Mark of an operation; for collectives, it shows the exposed share as in the lanes.
fn mark(row: &NameRow, index: &TraceIndex, span: Option<usize>) -> Mark {
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

/// Time of each lane, with its share if that fits: busy time, as `overlap` prints it, or the summed durations of the
/// operations that a filter leaves; `None` if none is shown.
fn totals(table: &Operations, room: u16) -> Option<String> {
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
        let lane = |lane: &LaneTotal| {
            let share = match with_share {
                true => format!(" ({} %)", share_of(lane.total_us, time_us)),
                false => String::new(),
            };
            let exposed = match lane.lane {
                "comm" => format!(", exposed {}", time_of(lane.exposed_us)),
                _ => String::new(),
            };
            format!("{} {}{share}{exposed}", lane.lane, time_of(lane.total_us))
        };
        let lanes: Vec<String> = lanes.iter().map(lane).collect();
        format!("of {}: {}", time_of(time_us), lanes.join("  "))
    };
    (!lanes.is_empty()).then(|| first_fitting(&[words(true), words(false)], room).to_owned())
}

/// Share of the time between first start and last end, in percent.
fn share_of(us: f64, time_us: f64) -> String {
    if time_us > 0.0 { format!("{:.1}", 100.0 * us / time_us) } else { String::new() }
}

/// Load of the ranks in a mixture's experts.
fn load(table: &Operations) -> Option<String> {
    let experts = table.counted.as_ref()?.table.experts.as_ref()?;
    experts.in_words().map(|words| format!("experts: {words}"))
}

/// Draws the operations of the step under the cursor, without a selection.
pub fn draw_docked(buf: &mut Buffer, area: Rect, view: &View, cx: &Context) {
    if area.height == 0 {
        return;
    }
    let table = &view.docked;
    let key = cx.key::<Timeline>(Act::Operations);
    let (trace, part) = (which(view), table.scope.part(view).label(&view.pane().index));
    let title = format!("operations of {trace}{part}, in us{} ({key}: all)", per_rank(view));
    let inner = frame(buf, area, &title, cx.theme);
    operation_table(buf, inner, view, table, cx.theme);
}

fn operation_columns(table: &Operations) -> Vec<table::Column> {
    let mut columns: Vec<table::Column> = OperationColumn::ALL
        .iter()
        .zip([6, 7, 6, 6, 7, 8, 8])
        .map(|(column, width)| {
            // in a narrow window, the name keeps its room
            let spare = match column {
                OperationColumn::Mean => 2,
                OperationColumn::Max => 1,
                _ => 0,
            };
            let numbers = table::Column::number(column.title(), width, spare);
            let shown = if *column == OperationColumn::Name {
                table::Column::text("operation", 22, 0)
            } else {
                numbers
            };
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

fn draw_stretches(buf: &mut Buffer, area: Rect, view: &View, shown: &Stretches, cx: &Context) {
    let theme = cx.theme;
    let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
    let part = part_label(&shown.scope.part(view), view);
    let sum = |table: &ExposedStretches| {
        let per_step = table.total_us / table.shares();
        let share = share_of(table.total_us, table.time_us);
        format!("{} of {} ({share} %)", time_of(per_step), time_of(table.time_us / table.shares()))
    };
    let basis = |table: &ExposedStretches| match (view.pane().index.rank_count(), table.steps) {
        (..=1, ..=1) => String::new(),
        (_, ..=1) => " per rank".into(),
        (..=1, steps) => format!(" per step, mean of {steps}"),
        (_, steps) => format!(" per rank and step, mean of {steps} steps"),
    };
    // the number first: a narrow window cuts the end
    let titles = match counted.map(|counted| &counted.table) {
        None => vec![format!("exposed communication: {}{part} · looking…", which(view))],
        Some(table) if table.count == 0 => {
            vec![format!("no communication is exposed: {}{part}", which(view))]
        }
        Some(table) => {
            let sum = sum(table);
            let short = match (view.pane().index.rank_count(), table.steps) {
                (..=1, ..=1) => "",
                (_, ..=1) => " per rank",
                (..=1, _) => " per step",
                (_, _) => " per rank and step",
            };
            vec![
                format!("exposed: {sum}{}, {}{part}", basis(table), which(view)),
                format!("exposed: {sum}{}, {part}", basis(table)),
                format!("{part}: exposed {sum}{short}"),
            ]
        }
    };
    let inner = frame(buf, area, first_fitting(&titles, area.width.saturating_sub(4)), theme);
    // the name of the collective keeps its room
    let shown_columns: &[usize] = match inner.width {
        100.. => &[0, 1, 2, 3, 4, 5, 6],
        70.. => &[0, 1, 2, 3, 4, 5],
        _ => &[0, 1, 3, 5],
    };
    let mut columns: Vec<Column> = shown_columns.iter().map(|at| STRETCH_COLUMNS[*at].clone()).collect();
    if let Some(at) = shown_columns.iter().position(|at| *at == 5)
        && shown.families().iter().any(|family| is_of_layers(&family.collective))
    {
        columns[at].title = format!("collective{OF_LAYERS}").into();
    }
    if let [.., collective, _] = &mut columns[..]
        && inner.width >= 100
    {
        collective.width = inner.width.saturating_sub(FIXED) / 2;
    }
    let (total_us, shares, ranks) = counted.map_or((0.0, 1.0, 1.0), |counted| {
        let table = &counted.table;
        (table.total_us, table.shares(), table.ranks.max(1) as f64)
    });
    let index = &view.pane().index;
    let rows = Rows::new(&shown.list, shown.families().len());
    table::draw(buf, inner, theme, &columns, rows, |row, column, width| {
        let family = &shown.families()[row];
        Line::from(match shown_columns[column] {
            0 => count(family.calls as f64 / ranks / shares),
            1 => time_of(family.total_us / shares),
            2 if total_us > 0.0 => format!("{:.1} %", 100.0 * family.total_us / total_us),
            2 => String::new(),
            3 => time_of(family.total_us * ranks / family.calls.max(1) as f64),
            4 => longest(index, family),
            5 => brief(&family.collective, width.into()),
            _ => brief(family.waited.as_deref().unwrap_or("nothing"), width.into()),
        })
    });
    let selected = shown.families().get(shown.list.selected);
    let gone = shown.gone.filter(|(row, _)| *row == shown.list.selected);
    let key = cx.key::<Timeline>(Act::Stretches);
    let keys = |is_wide: bool| {
        let other = if is_wide { "other phase or step" } else { "other part" };
        let Some(family) = selected else { return format!(" {key}: {other} ") };
        match gone {
            Some((_, at)) => {
                let (at, listed) = (at + 1, family.longest.len());
                format!(
                    " {at} of the {listed} longest of {}; Enter: next; {key}: {other} ",
                    family.count
                )
            }
            None => format!(" Enter: go to the longest; {key}: {other} "),
        }
    };
    let keys = [true, false].map(keys);
    note(buf, area, first_fitting(&keys, area.width.saturating_sub(4)), theme);
}

/// Explains the `L*` in names of operations, behind the column's title.
const OF_LAYERS: &str = " (L*: all layers)";

fn is_of_layers(name: &str) -> bool {
    name.split('/').any(|part| part == "L*")
}

/// Mean of a count; whole numbers without decimals.
fn count(mean: f64) -> String {
    if (mean - mean.round()).abs() < 1e-9 { format!("{mean:.0}") } else { format!("{mean:.1}") }
}

/// Longest stretch with its layer and step, where Enter goes: `61.6 us, L79 step 0`.
fn longest(index: &TraceIndex, family: &StretchFamily) -> String {
    let Some((at, us)) = family.longest.first() else { return String::new() };
    let span = index.trace.spans.get(*at);
    let operation = span.and_then(|span| index.trace.operations.get(span.operation as usize));
    let layer = operation.and_then(|operation| operation.layer).map(|layer| format!("L{layer}"));
    let step = span.map(StepKey::of).filter(|key| key.step != NO_STEP && index.steps.len() > 1);
    let place: Vec<String> = layer.into_iter().chain(step.map(|key| index.step_label(key))).collect();
    match place.is_empty() {
        true => time_of(*us),
        false => format!("{}, {}", time_of(*us), place.join(" ")),
    }
}

const STRETCH_COLUMNS: [Column; 7] = [
    Column::number("calls", 6, 0),
    Column::number("exposed▾", 9, 0),
    Column::number("share", 7, 0),
    Column::number("a call", 9, 0),
    Column::number("longest", 22, 0),
    Column::text("collective", 8, 0),
    Column::text("waiting", 8, 0),
];

/// Total width of all columns except the two names.
const FIXED: u16 = 61;

/// Lines of the verdicts on all open traces, each after the trace's name if there are two; empty until one is known.
/// Tables of remedies are not wrapped.
pub fn verdict_lines(view: &View, cx: &Context) -> Vec<String> {
    let names = names(view);
    let judged = view.panes.iter().enumerate().filter(|(_, pane)| pane.ghost.is_none());
    let lines = |(at, pane): (usize, &Pane)| {
        let Some(verdict) = &pane.verdict else {
            let is_other_known = view.panes.iter().any(|pane| pane.verdict.is_some());
            let pending = is_other_known.then(|| format!("{}: computing the verdict…", names[at]));
            return pending.into_iter().collect();
        };
        let mut lines = sentence_lines(verdict, cx);
        if view.panes.len() > 1 {
            lines
                .insert(0, format!("{} [{}]: {}", names[at], pane.index.provenance(), pane.index.title));
            lines.push(String::new());
        }
        lines
    };
    let mut lines: Vec<String> = judged.flat_map(lines).collect();
    lines.pop_if(|last| last.is_empty());
    lines
}

fn sentence_lines(verdict: &Verdict, cx: &Context) -> Vec<String> {
    let width = usize::from(cx.body().width.saturating_sub(4).max(20));
    let (go, open) = (cx.key::<Timeline>(Act::ToggleRank), cx.keys.label(Action::TypeOpen));
    let sentences = verdict.sentences_for(VerdictPlace::Workbench { go: &go, open: &open });
    let lines = |sentence: &String| match sentence.starts_with("  ") {
        true => vec![cut(sentence, width as u16)],
        false => wrap(sentence, width),
    };
    sentences.iter().flat_map(lines).collect()
}

fn draw_verdict(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
    view: &View,
    (lines, list): (&[String], &List),
    theme: Theme,
) {
    let of = match &view.panes[..] {
        [pane] => format!(" [{}]", pane.index.provenance()),
        _ => String::new(),
    };
    frame(buf, area, &format!("verdict{of}; gains of remedies are simulated"), theme);
    if lines.is_empty() {
        let operations = counted(view.pane().index.trace.spans.len(), "operation");
        let looking = format!("looking at {operations}…");
        put(buf, rows, rows.x + 1, rows.y, &looking, theme.style(Role::Dim));
    }
    for (row, y) in list.rows(lines.len(), rows) {
        put(buf, rows, rows.x + 1, y, &lines[row], theme.style(Role::Text));
    }
    let below = lines.len().saturating_sub(list.offset + usize::from(rows.height));
    hidden_rows(buf, area, list.offset, below, theme);
    if let Some(verdict) = &view.panes[view.judged()].verdict {
        let to = match verdict.longest_gap {
            Some(_) => "the gap",
            None => "the longest exposed communication of a typical step",
        };
        let keys = [to, "the cause"].map(|to| format!(" Enter: go to {to}; V: close "));
        // beside the mark of hidden rows
        let fits = |keys: &&String| keys.width() + 20 <= usize::from(area.width);
        if let Some(keys) = keys.iter().find(fits) {
            put(buf, area, area.x + 2, area.bottom().saturating_sub(1), keys, theme.style(Role::Dim));
        }
    }
}

/// True if an open trace says which operations are attention.
pub fn has_attention(view: &View) -> bool {
    has_operation(view, |one| one.module == "attn")
}

/// Name of the feed-forward part in the short legend: experts in a mixture; `None` if no open trace says.
pub fn feed_forward(view: &View) -> Option<&'static str> {
    let experts = has_operation(view, |one| one.kind == EXPERTS || one.module == "moe");
    match (experts, has_operation(view, |one| one.module == "mlp")) {
        (true, false) => Some(" experts "),
        (true, true) => Some(" MLP, experts "),
        (false, true) => Some(" MLP "),
        (false, false) => None,
    }
}

fn has_operation(view: &View, is_wanted: fn(&OperationInfo) -> bool) -> bool {
    view.panes.iter().flat_map(|pane| &pane.index.trace.operations).any(is_wanted)
}

/// Short legend on the border of the info: marks in the colours of the lanes.
pub const LEGEND: [(&str, Role, &str); 7] = [
    (" █", Role::Series(0), " attention "),
    ("█", Role::Series(1), " MLP "),
    ("█", Role::Series(3), " other "),
    ("▓▒", Role::Comm, " hidden comm "),
    ("▚╱", Role::Exposed, " exposed "),
    ("░╲", Role::Waiting, " waiting "),
    ("▬", Role::Series(2), " copies "),
];

pub const LEGEND_MARKS: [(&str, Role, &str); 22] = [
    ("▂▅█", Role::Series(0), "compute, attention; height: share of the cell"),
    ("▎▋█", Role::Series(1), "compute, MLP or experts; width: its start or end"),
    ("█", Role::Series(2), "compute, head"),
    ("█", Role::Series(3), "compute, all else, and kernels of imported traces"),
    ("▒▓", Role::Comm, "hidden communication: under, over half the cell"),
    ("╌", Role::Exposed, "exposed communication: under 1/8 of the cell"),
    ("▖", Role::Exposed, "exposed communication: about a quarter of it"),
    ("▚", Role::Exposed, "about half of it"),
    ("▜", Role::Exposed, "about three quarters of it"),
    ("╱", Role::Exposed, "all of it"),
    ("░", Role::Waiting, "communication that waits for a peer, hidden"),
    ("╲", Role::Exposed, "communication that waits for a peer, exposed"),
    ("▬", Role::Series(2), "copies and fills: no compute, no communication"),
    ("▸ ▾", Role::Text, "a folded rank, its lanes in one line; an open one"),
    ("=", Role::Text, "ranks with the same timeline, shown once"),
    ("◆", Role::Key, "what the search found"),
    ("▼ ▽", Role::Key, "the cursor; the same time in the other trace"),
    ("┊", Role::Dim, "the time of the cursor"),
    ("A──B", Role::Key, "marks A and B, and the time between them"),
    ("═", Role::Key, "what is selected"),
    ("[ ]", Role::Key, "the window, in the overview of the whole trace"),
    ("├ ╫ ╷", Role::Text, "a named range; several; one without its name"),
];

/// Mark of a legend: modules have distinct full cells in themes without colours for them.
pub fn in_theme(mark: &'static str, role: Role, theme: Theme) -> Cow<'static, str> {
    match mark.strip_suffix('█') {
        Some(part) => format!("{part}{}", module(role, theme)).into(),
        None => mark.into(),
    }
}

fn draw_legend(buf: &mut Buffer, (area, rows): (Rect, Rect), list: &List, theme: Theme) {
    frame(buf, area, "marks and colours, the same at every zoom", theme);
    for (row, y) in list.rows(LEGEND_MARKS.len(), rows) {
        let (mark, role, words) = LEGEND_MARKS[row];
        put(buf, rows, rows.x + 1, y, &in_theme(mark, role, theme), theme.style(role));
        put(buf, rows, rows.x + 8, y, words, theme.style(Role::Text));
    }
}
