//! Table of the time differences between two traces, by operation.

use std::collections::BTreeSet;

use super::{note, plus, time_of};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::header::names;
use crate::face::tui::screens::timeline::state::TimelineView;
use crate::face::tui::screens::timeline::state::panel::{
    DifferencePanelRow, TimelinePanel, difference_rows,
};
use crate::face::tui::widgets::table::{self, TableColumn, TableRows};
use ::table::Provenance;
use ::table::render::{Shown, Sourced, Table};
use plan::Lane;
use study::analysis::{OperationDifference, OperationDifferences, OperationShare};
use trace::overlap::StepKey;

/// Minimum width for the names of the steps in the title.
const WIDE: u16 = 112;

/// Draws the time differences between the lower and the upper trace. One row sums all layers of an operation; expanded
/// rows list the layers below. The last rows are the rest of the step, and the step.
pub fn draw_differences(
    buf: &mut Buffer,
    area: Rect,
    view: &TimelineView,
    (list, by_exposed, open): (&List, bool, &BTreeSet<String>),
    theme: Theme,
) {
    let Some(report) = &view.differences else {
        let inner = frame(buf, area, "differences by operation", theme);
        put(buf, inner, inner.x + 1, inner.y, "comparing…", theme.style(Role::Dim));
        return;
    };
    let inner = frame(buf, area, &title(view, report, area.width >= WIDE), theme);
    let [upper, lower] = names(view);
    let order = if by_exposed && report.recorders.is_none() { "by exposed" } else { "by time" };
    let (above, below) = (cut(&upper, 16), cut(&lower, 16));
    let words = format!("us; exp: exposed; change: {below} minus {above}; {order}; Enter: layers");
    note(buf, area, &words, theme);
    let shown = difference_rows(report, by_exposed, open);
    // the name keeps its room
    let picked: &[usize] = match (area.width, by_exposed) {
        (118.., _) => &[0, 1, 2, 3, 4, 5, 6, 7, NAME],
        (92.., _) => &[0, 1, 2, 3, 4, 5, NAME],
        (70.., false) => &[0, 1, 2, 5, NAME],
        (70.., true) => &[2, 3, 4, 5, NAME],
        (_, false) => &[0, 1, 2, NAME],
        (_, true) => &[3, 4, 5, NAME],
    };
    let mut columns: Vec<TableColumn> =
        picked.iter().map(|at| DIFFERENCE_COLUMNS[*at].clone()).collect();
    for column in &mut columns {
        for (place, name) in [("upper", &upper), ("lower", &lower)] {
            if let Some(quantity) = column.title.strip_prefix(place) {
                let title = format!("{}{quantity}", cut(name, 8));
                column.width = column.width.max(title.width() as u16);
                column.title = title.into();
                break;
            }
        }
    }
    let [rest, step] = step_rows(report);
    table::draw(
        buf,
        cut_left(inner, 1).1,
        theme,
        &columns,
        TableRows::new(list, shown.len()),
        |row, column, _| {
            let (group, mark) = match shown[row] {
                DifferencePanelRow::Group(at) => (&report.groups[at], "    "),
                DifferencePanelRow::Family(at) => {
                    let family = &report.families[at];
                    let mark = match (family.groups.len(), open.contains(&family.sum.name)) {
                        (..=1, _) => "",
                        (_, true) => "▾ ",
                        (_, false) => "▸ ",
                    };
                    (&family.sum, mark)
                }
                DifferencePanelRow::Rest => (&rest, ""),
                DifferencePanelRow::Step => (&step, ""),
            };
            let role = match (shown[row], group.lane) {
                (DifferencePanelRow::Step, _) => Role::Title,
                (_, Lane::Comm) => Role::Comm,
                (_, Lane::Compute) => Role::Text,
            };
            let text = match picked[column] {
                5 if report.recorders.is_some() => String::new(),
                column => difference(group, mark, column),
            };
            table::cell((text, theme.style(role)))
        },
    );
}

/// Title of the differences with the names of the steps, for the help; it is folded where the frame cuts it.
pub fn differences_note(view: &TimelineView, width: u16) -> Option<ScreenNote> {
    let Some(TimelinePanel::Differences { .. }) = &view.panel else { return None };
    let title = title(view, view.differences.as_ref()?, true);
    let is_folded = width < WIDE || title.width() + 4 > width.into();
    Some(ScreenNote::new(title, is_folded))
}

/// Lengths and exposed communication of both steps, and their changes.
fn title(view: &TimelineView, report: &OperationDifferences, names_steps: bool) -> String {
    let (took, exposed) = (report.lengths_us, report.exposed_us);
    let step = |at: usize, key: StepKey| match names_steps {
        true => format!(" {}", view.step_label(at, key)),
        false => String::new(),
    };
    let change = match &report.recorders {
        Some([upper, lower]) => format!("not compared ({upper}, {lower})"),
        None => plus(exposed.1 - exposed.0, time_of),
    };
    let [upper, lower] = names(view);
    format!(
        "{upper}{} {}, {lower}{} {}: {}; exposed {}, {}: {change}{}",
        step(0, report.steps.0),
        time_of(took.0),
        step(1, report.steps.1),
        time_of(took.1),
        plus(took.1 - took.0, time_of),
        time_of(exposed.0),
        time_of(exposed.1),
        if view.compares_now() { "" } else { "; comparing…" },
    )
}

/// Rows that make the operations add up to the step: the rest, which is idle time minus overlap, and the whole step.
fn step_rows(report: &OperationDifferences) -> [OperationDifference; 2] {
    let sums = |side: fn(&OperationDifference) -> &Option<OperationShare>| {
        let shares = || report.groups.iter().filter_map(move |group| side(group).as_ref());
        let busy_us: f64 = shares().map(|share| share.us).sum();
        (busy_us, shares().filter_map(|share| share.peer_wait_us).reduce(|a, b| a + b))
    };
    let [(busy_a, wait_a), (busy_b, wait_b)] = [sums(|group| &group.a), sums(|group| &group.b)];
    let ((a, b), (exposed_a, exposed_b)) = (report.lengths_us, report.exposed_us);
    let share = |us, exposed_us, peer_wait_us| {
        Some(OperationShare { us, exposed_us, peer_wait_us, ..OperationShare::default() })
    };
    // sums of many durations: whole nanoseconds
    let [rest_a, rest_b] = [a - busy_a, b - busy_b].map(|us| (us * 1e3).round() / 1e3);
    let rest = OperationDifference {
        name: "idle minus overlap".into(),
        lane: Lane::Compute,
        a: share(rest_a, 0.0, None),
        b: share(rest_b, 0.0, None),
        delta_us: rest_b - rest_a,
    };
    let step = OperationDifference {
        name: "whole step".into(),
        lane: Lane::Comm,
        a: share(a, exposed_a, wait_a),
        b: share(b, exposed_b, wait_b),
        delta_us: b - a,
    };
    [rest, step]
}

const DIFFERENCE_COLUMNS: [TableColumn; 9] = [
    TableColumn::number("upper us", 9, 0),
    TableColumn::number("lower us", 9, 0),
    TableColumn::number("change us", 9, 0),
    TableColumn::number("upper exp", 9, 0),
    TableColumn::number("lower exp", 9, 0),
    TableColumn::number("change exp", 10, 0),
    TableColumn::number("upper wait", 10, 0),
    TableColumn::number("lower wait", 10, 0),
    TableColumn::text("  operation", 8, 0),
];

/// Column of the names.
const NAME: usize = 8;

/// Cell text of a row in a column of [`DIFFERENCE_COLUMNS`].
fn difference(group: &OperationDifference, mark: &str, column: usize) -> String {
    let us = |share: &Option<OperationShare>, get: fn(&OperationShare) -> Option<f64>| {
        share.as_ref().and_then(get).map_or("-".into(), digits)
    };
    let (a, b) = (&group.a, &group.b);
    match column {
        NAME => format!("{mark:<2}{}", without_phase(&group.name)),
        0 => us(a, |s| Some(s.us)),
        1 => us(b, |s| Some(s.us)),
        2 => plus(group.delta_us, digits),
        _ if group.lane == Lane::Compute => String::new(),
        3 => us(a, |s| Some(s.exposed_us)),
        4 => us(b, |s| Some(s.exposed_us)),
        5 => plus(group.delta_exposed_us(), digits),
        6 => us(a, |s| s.peer_wait_us),
        _ => us(b, |s| s.peer_wait_us),
    }
}

/// Drops the phase from a name: both steps usually share it.
fn without_phase(name: &str) -> String {
    name.replace("decode/", "").replace("prefill/", "")
}

pub fn differences_csv(report: &OperationDifferences, provenance: [Provenance; 2]) -> String {
    let (steps, [upper, lower]) = ((report.steps.0.label(), report.steps.1.label()), provenance);
    let number = |share: &Option<OperationShare>, get: fn(&OperationShare) -> Option<f64>| {
        Shown::number(share.as_ref().and_then(get), 3)
    };
    Table::from_rows(
        &report.groups,
        &[
            ("operation", &|g: &OperationDifference| Shown::text(&g.name)),
            ("lane", &|g| g.lane.as_str().into()),
            ("upper_provenance", &|_| Shown::text(upper)),
            ("upper_step", &|_| Shown::text(&steps.0)),
            ("upper_us", &|g| number(&g.a, |s| Some(s.us))),
            ("upper_exposed_us", &|g| number(&g.a, |s| Some(s.exposed_us))),
            ("upper_peer_wait_us", &|g| number(&g.a, |s| s.peer_wait_us)),
            ("lower_provenance", &|_| Shown::text(lower)),
            ("lower_step", &|_| Shown::text(&steps.1)),
            ("lower_us", &|g| number(&g.b, |s| Some(s.us))),
            ("lower_exposed_us", &|g| number(&g.b, |s| Some(s.exposed_us))),
            ("lower_peer_wait_us", &|g| number(&g.b, |s| s.peer_wait_us)),
            ("delta_us", &|g| Shown::Number(g.delta_us, 3)),
        ],
    )
    .csv(Sourced::ByRow)
}
