//! List of the operations that one waited for, and of those that waited for it.

use ratatui::text::Line;

use super::brief;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::TraceIndex;
use crate::face::tui::widgets::table::{self, TableColumn, TableRows};
use study::analysis::{Dependencies, Dependency, PathReason};

const DEPENDENCY_COLUMNS: [TableColumn; 5] = [
    TableColumn::text("", 10, 0),
    TableColumn::text("why", 23, 2),
    TableColumn::text("rank", 5, 1),
    TableColumn::number("took", 10, 0),
    TableColumn::text("operation", 22, 0),
];

pub fn draw_dependencies(
    buf: &mut Buffer,
    area: Rect,
    index: &TraceIndex,
    (span, dependencies, list): (usize, &Dependencies, &List),
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
        TableRows::new(list, edges.len()),
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
                _ => brief(index.name(other), width.into()),
            })
        },
    );
}

fn why(why: PathReason, before: bool) -> &'static str {
    match (why, before) {
        (PathReason::Result, true) => "for its result",
        (PathReason::Result, false) => "which needs the result",
        (PathReason::Lane, true) => "for the lane",
        (PathReason::Lane, false) => "which needs the lane",
        (PathReason::Peer, true) => "for this peer to arrive",
        (PathReason::Peer, false) => "a peer that was there",
        (PathReason::Last, _) => "",
    }
}
