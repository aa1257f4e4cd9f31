//! Differences of two traces by operation, as a list and as CSV.

use std::collections::BTreeSet;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::note;
use crate::face::tui::format::{digits, ns};
use crate::face::tui::screens::timeline::state::View;
use crate::face::tui::screens::timeline::state::panel::{DifferenceRow, difference_rows};
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::list::List;
use crate::face::tui::widgets::paint::{frame, line, put};
use crate::plan::Lane;
use crate::study::analysis::{OperationDifference, OperationDifferences, Share};
use crate::table::Provenance;
use crate::table::render::{Shown, Sourced, Table};

/// Draws what took how much longer in the lower trace than in the upper one: all layers of an operation as
/// a row, the layers beneath it where it is open.
pub fn draw(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
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
        true => (format!(" {}", a.label()), format!(" {}", b.label())),
        false => (String::new(), String::new()),
    };
    let less = match &report.recorders {
        Some([upper, lower]) => format!("not compared ({upper}, {lower})"),
        None => plus(exposed.1 - exposed.0, time),
    };
    let title = format!(
        "upper{a} {}, lower{b} {}: {}; exposed {}, {}: {less}{moment}",
        time(took.0),
        time(took.1),
        plus(took.1 - took.0, time),
        time(exposed.0),
        time(exposed.1),
    );
    let inner = frame(buf, area, &title, theme);
    let columns = if wide {
        "   upper exp.   lower exp.    upper wait   lower wait"
    } else {
        "  upper exp. lower exp."
    };
    let header =
        format!(" {:>10} {:>10} {:>10}{columns}    operation", "upper us", "lower us", "change us");
    line(buf, inner, 0, &[(&header, theme.style(Role::Dim))]);
    let order = if by_exposed && report.recorders.is_none() {
        " Enter: layers; by exposed "
    } else {
        " Enter: layers; by time "
    };
    note(buf, area, order, theme);
    let shown = difference_rows(report, by_exposed, open);
    for (row, y) in list.rows(shown.len(), rows) {
        let (group, mark) = match shown[row] {
            DifferenceRow::Group(at) => (&report.groups[at], "    "),
            DifferenceRow::Family(at) => {
                let family = &report.families[at];
                let mark = match (family.groups.len(), open.contains(&family.sum.name)) {
                    (..=1, _) => "  ",
                    (_, true) => "▾ ",
                    (_, false) => "▸ ",
                };
                (&family.sum, mark)
            }
        };
        let role = match (row == list.selected, group.lane) {
            (true, _) => Role::Selected,
            (false, Lane::Comm) => Role::Comm,
            (false, Lane::Compute) => Role::Text,
        };
        put(buf, rows, rows.x, y, &difference(group, mark, wide), theme.style(role));
    }
}

fn difference(group: &OperationDifference, mark: &str, wide: bool) -> String {
    let us = |share: &Option<Share>, get: fn(&Share) -> f64| {
        share.as_ref().map_or("-".into(), |share| digits(get(share)))
    };
    let exposed = |share: &Option<Share>| match group.lane {
        Lane::Comm => us(share, |s| s.exposed_us),
        Lane::Compute => String::new(),
    };
    let waits = |share: &Option<Share>| match group.lane {
        Lane::Comm => us(share, |s| s.peer_wait_us),
        Lane::Compute => String::new(),
    };
    let (a, b) = (&group.a, &group.b);
    let more = match wide {
        true => format!("{:>13} {:>12} {:>13} {:>12}", exposed(a), exposed(b), waits(a), waits(b)),
        false => format!("{:>12} {:>10}", exposed(a), exposed(b)),
    };
    format!(
        " {:>10} {:>10} {:>10}{more}  {mark}{}",
        us(a, |s| s.us),
        us(b, |s| s.us),
        signed(group.delta_us),
        without_phase(&group.name)
    )
}

/// Both steps are of one phase, as a rule: its name tells nothing.
fn without_phase(name: &str) -> String {
    name.replace("decode/", "").replace("prefill/", "")
}

fn signed(us: f64) -> String {
    plus(us, digits)
}

fn plus(us: f64, written: fn(f64) -> String) -> String {
    format!("{}{}", if us > 0.0 { "+" } else { "" }, written(us))
}

/// Microseconds in the unit that suits them.
fn time(us: f64) -> String {
    ns((us * 1e3).round() as i64)
}

/// The differences as CSV.
pub fn csv(report: &OperationDifferences, provenance: [Provenance; 2]) -> String {
    let (steps, [upper, lower]) = ((report.steps.0.label(), report.steps.1.label()), provenance);
    let number =
        |share: &Option<Share>, get: fn(&Share) -> f64| Shown::number(share.as_ref().map(get), 3);
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
