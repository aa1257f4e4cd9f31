//! What a span waited for, and what waited for it, as a list.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::base::text::fitting_name;
use crate::face::tui::format::ns;
use crate::face::tui::screens::timeline::state::TraceIndex;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::list::List;
use crate::face::tui::widgets::paint::{frame, line, put};
use crate::study::analysis::{Dependencies, Dependency, Why};

/// Draws the edges of a span.
pub fn draw(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
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
    let area = rows;
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
            fitting_name(index.name(other), usize::from(area.width).saturating_sub(58))
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
