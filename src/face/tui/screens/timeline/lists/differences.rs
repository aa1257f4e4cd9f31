//! Table of the time differences between two traces, by operation.

use std::collections::BTreeSet;

use super::{note, time_of};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::header::names;
use crate::face::tui::screens::timeline::state::View;
use crate::face::tui::screens::timeline::state::panel::{DifferenceRow, difference_rows};
use crate::face::tui::widgets::table::{self, Column, Rows};
use ::table::Provenance;
use ::table::render::{Shown, Sourced, Table};
use plan::Lane;
use study::analysis::{OperationDifference, OperationDifferences, OperationShare};

/// Draws the time differences between the lower and the upper trace. One row sums all layers of an
/// operation; expanded rows list the layers below.
pub fn draw_differences(
    buf: &mut Buffer,
    area: Rect,
    view: &View,
    (list, by_exposed, open): (&List, bool, &BTreeSet<String>),
    theme: Theme,
) {
    let Some(report) = &view.differences else {
        let inner = frame(buf, area, "differences by operation", theme);
        put(buf, inner, inner.x + 1, inner.y, "comparing…", theme.style(Role::Dim));
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
    let words = format!("{change}; Enter: layers; {order} ");
    let mut notes = vec![format!(" us; exp.: exposed; {words}"), format!(" {words}")];
    if by_exposed && area.width < 70 {
        notes.insert(1, format!(" exp.: exposed; {change} "));
    }
    note(buf, area, first_fitting(&notes, area.width.saturating_sub(4)), theme);
    let shown = difference_rows(report, by_exposed, open);
    // the name keeps its room
    let picked: &[usize] = match (area.width, by_exposed) {
        _ if wide => &[0, 1, 2, 3, 4, 5, 6, NAME],
        (70.., _) => &[0, 1, 2, 3, 4, NAME],
        (_, false) => &[0, 1, 2, NAME],
        (_, true) => &[3, 4, EXPOSED_CHANGE, NAME],
    };
    let mut columns: Vec<Column> = picked.iter().map(|at| DIFFERENCE_COLUMNS[*at].clone()).collect();
    for column in &mut columns {
        let named = [("upper", &upper), ("lower", &lower)].into_iter().find_map(|(place, name)| {
            Some(format!("{} {}", cut(name, 8), column.title.strip_prefix(place)?.trim_start()))
        });
        if let Some(title) = named {
            // a gap to the column before, if names keep their room
            column.width = column.width.max(title.width() as u16 + u16::from(wide));
            column.title = title.into();
        }
    }
    if picked.contains(&EXPOSED_CHANGE) {
        // the unit once, as the name needs the room
        let titles = [format!("exp. us: {}", cut(&upper, 8)), cut(&lower, 9), "change".to_owned()];
        for (column, title) in columns.iter_mut().zip(titles) {
            column.width = (title.width() as u16).max(8);
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
            table::cell((difference(group, mark, picked[column]), theme.style(role)))
        },
    );
}

const DIFFERENCE_COLUMNS: [Column; 9] = [
    Column::number("upper us", 10, 0),
    Column::number("lower us", 10, 0),
    Column::number("change us", 10, 0),
    Column::number("upper exp.", 10, 0),
    Column::number("lower exp.", 10, 0),
    Column::number("upper wait", 12, 0),
    Column::number("lower wait", 12, 0),
    Column::number("change", 8, 0),
    Column::text("  operation", 8, 0),
];

/// Column of the names.
const NAME: usize = 8;

/// Column of the change of exposed communication, for narrow windows, which show nothing else of it.
const EXPOSED_CHANGE: usize = 7;

/// Cell text of a row in a column of [`DIFFERENCE_COLUMNS`].
fn difference(group: &OperationDifference, mark: &str, column: usize) -> String {
    let us = |share: &Option<OperationShare>, get: fn(&OperationShare) -> f64| {
        share.as_ref().map_or("-".into(), |share| digits(get(share)))
    };
    let (a, b) = (&group.a, &group.b);
    match column {
        NAME => format!("{mark:<2}{}", without_phase(&group.name)),
        0 => us(a, |s| s.us),
        1 => us(b, |s| s.us),
        2 => signed(group.delta_us),
        _ if group.lane == Lane::Compute => String::new(),
        3 => us(a, |s| s.exposed_us),
        4 => us(b, |s| s.exposed_us),
        5 => us(a, |s| s.peer_wait_us),
        EXPOSED_CHANGE => {
            let exposed = |share: &Option<OperationShare>| share.as_ref().map_or(0.0, |s| s.exposed_us);
            signed(exposed(b) - exposed(a))
        }
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
