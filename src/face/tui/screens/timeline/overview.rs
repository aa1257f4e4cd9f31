//! Overview row of the whole trace, with the current window marked.

use super::layout::LANE_LABEL;
use super::state::overview::Density;
use super::state::{Pane, View};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::paint;
use crate::face::tui::widgets::shade::{self, Mark, Shares};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Computation and exposed communication, as on a collapsed rank.
    All,
    /// Communication, as on a comm lane.
    Comm,
}

/// Pane of an overview row: one trace takes all rows; two traces take one row each if there are two.
pub fn pane_of(view: &View, rows: u16, row: u16) -> usize {
    match view.panes.len() {
        0 | 1 => 0,
        _ if rows < 2 => view.focus.min(1),
        _ => usize::from(row.min(1)),
    }
}

pub fn draw(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    for row in 0..area.height {
        let at = pane_of(view, area.height, row);
        let Some(pane) = view.panes.get(at) else { continue };
        let (line, _) = cut_top(Rect { y: area.y + row, ..area }, 1);
        // a single trace has a second row if there is room
        let part = if view.panes.len() == 1 && row > 0 { Part::Comm } else { Part::All };
        draw_row(buf, line, view, pane, part, theme);
        let (label, _) = cut_left(line, LANE_LABEL);
        let text = match (part, view.panes.len() > 1) {
            (Part::Comm, _) => "  communication".to_string(),
            (_, true) => {
                let which = if at == 0 { "upper" } else { "lower" };
                format!(" {which} {}", ns(pane.index.bounds.width()))
            }
            _ => format!(" all {}", ns(pane.index.bounds.width())),
        };
        let text = cut(&text, LANE_LABEL - 1);
        put(buf, label, label.x, label.y, &text, theme.style(Role::Dim));
    }
}

fn draw_row(buf: &mut Buffer, line: Rect, view: &View, pane: &Pane, part: Part, theme: Theme) {
    let (_, over) = cut_left(line, LANE_LABEL);
    let columns = usize::from(over.width);
    let Some(overview) = pane.overview.as_ref().filter(|o| o.columns.len() == columns) else {
        put(buf, over, over.x, over.y, "…", theme.style(Role::Dim));
        return;
    };
    // first and last column of the window
    let (bounds, window) = (pane.index.bounds, pane.window(view.window));
    let place = |time: i64| bounds.column(time.clamp(bounds.from, bounds.to - 1), columns).unwrap_or(0);
    let (first, last) = (place(window.from), place(window.to - 1));
    for (i, density) in overview.columns.iter().enumerate() {
        let (symbol, role) = glyph(density, part);
        let mut style = theme.style(role);
        if !(first..=last).contains(&i) {
            style = style.add_modifier(Modifier::DIM);
        }
        paint::glyph(buf, over, over.x + i as u16, over.y, symbol, style);
    }
    let key = theme.style(Role::Key);
    if first == last {
        put(buf, over, over.x + first as u16, over.y, "┃", key);
    } else {
        put(buf, over, over.x + first as u16, over.y, "[", key);
        put(buf, over, over.x + last as u16, over.y, "]", key);
    }
}

fn glyph(density: &Density, part: Part) -> Mark {
    let shares = Shares {
        compute: density.compute.into(),
        comm: density.comm.into(),
        exposed: density.exposed.into(),
        ..Shares::default()
    };
    match part {
        Part::All => shade::several(shares)
            .unwrap_or((shade::BELOW[shade::eighths(shares.compute)], Role::Series(0))),
        Part::Comm => shade::comm(shares).unwrap_or((" ", Role::Dim)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exposed_has_a_glyph_of_its_own() {
        let glyph = |compute, comm, exposed, part| glyph(&Density { compute, comm, exposed }, part).0;
        assert_eq!(glyph(0.5, 0.3, 0.0, Part::All), "▄");
        assert_eq!(glyph(0.001, 0.0, 0.0, Part::All), "▁", "tiny, and yet there");
        assert_eq!(glyph(0.0, 0.0, 0.0, Part::All), " ");
        assert_eq!(glyph(0.7, 0.3, 0.25, Part::All), "▖");
        assert_eq!(glyph(0.9, 0.3, 0.0, Part::Comm), "▒");
        assert_eq!(glyph(0.9, 0.6, 0.0, Part::Comm), "▓");
        assert_eq!(glyph(0.5, 0.5, 0.5, Part::Comm), "▚");
        assert_eq!(glyph(0.0, 0.0, 0.0, Part::Comm), " ");
    }
}
