//! Draws the lists beneath the lanes: what a span waited for and what waited for it; what took how much
//! longer in one trace than in the other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::state::panel::Panel;
use super::state::{TraceIndex, View};
use crate::face::tui::format::{digits, ns};
use crate::face::tui::layout::{cut_top, inside};
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::list::List;
use crate::face::tui::widgets::paint::{frame, line, put};
use crate::plan::Lane;
use crate::study::analysis::{
    Dependencies, Dependency, OperationDifference, OperationDifferences, Share, Why,
};
use crate::table::Provenance;
use crate::table::render::{Shown, Table};

/// Rows of lists, without their frame and header.
pub fn rows(area: Rect) -> Rect {
    cut_top(inside(area), 1).1
}

/// Draws the list that lies there.
pub fn draw(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    match &view.panel {
        Some(Panel::Dependencies { span, dependencies, list }) => {
            draw_dependencies(buf, area, &view.pane().index, *span, dependencies, list, theme);
        }
        Some(Panel::Differences { list, by_exposed }) => {
            draw_differences(buf, area, view, list, *by_exposed, theme);
        }
        None => {}
    }
}

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
    let header = format!(" {:<10} {:<26} {:<5} {:>10}  what", "", "why", "rank", "it took");
    line(buf, inner, 0, &[(&header, theme.style(Role::Dim))]);
    let edges = dependencies.before.iter().map(|dependency| (true, dependency));
    let edges: Vec<(bool, &Dependency)> =
        edges.chain(dependencies.after.iter().map(|dependency| (false, dependency))).collect();
    let area = rows(area);
    for (row, y) in list.rows(edges.len(), area) {
        let (before, dependency) = &edges[row];
        let Some(other) = index.trace.spans.get(dependency.span) else { continue };
        let first = row == 0 || row == dependencies.before.len();
        let direction = match (first, before) {
            (true, true) => "waited",
            (true, false) => "awaited by",
            _ => "",
        };
        let text = format!(
            " {direction:<11}{:<26} {:<5} {:>10}  {}",
            why(dependency.why, *before),
            other.rank,
            ns(other.end_ns.saturating_sub(other.start_ns)),
            index.name(other)
        );
        let role = if row == list.selected { Role::Selected } else { Role::Text };
        put(buf, area, area.x, y, &text, theme.style(role));
    }
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

fn draw_differences(
    buf: &mut Buffer,
    area: Rect,
    view: &View,
    list: &List,
    by_exposed: bool,
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
    let (whole, inner) = (area, frame(buf, area, &title, theme));
    let columns = if wide {
        "   upper exp.   lower exp.    upper wait   lower wait"
    } else {
        "  upper exp. lower exp."
    };
    let header = format!(" {:>10} {:>10} {:>10}{columns}  operation", "upper us", "lower us", "less us");
    line(buf, inner, 0, &[(&header, theme.style(Role::Dim))]);
    let area = rows(area);
    let sorted = |row: usize| match by_exposed {
        true => report.by_exposed.get(row).and_then(|at| report.groups.get(*at)),
        false => report.groups.get(row),
    };
    let order = if by_exposed && report.recorders.is_none() { " by exposed " } else { " by time " };
    let x = inner.right().saturating_sub(order.len() as u16 + 1);
    put(buf, whole, x, inner.bottom(), order, theme.style(Role::Dim));
    for (row, y) in list.rows(report.groups.len(), area) {
        let Some(group) = sorted(row) else { break };
        let role = match (row == list.selected, group.lane) {
            (true, _) => Role::Selected,
            (false, Lane::Comm) => Role::Comm,
            (false, Lane::Compute) => Role::Text,
        };
        put(buf, area, area.x, y, &difference(group, wide), theme.style(role));
    }
}

fn difference(group: &OperationDifference, wide: bool) -> String {
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
        " {:>10} {:>10} {:>10}{more}  {}",
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
    .csv()
}
