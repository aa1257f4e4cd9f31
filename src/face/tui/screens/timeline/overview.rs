//! Draws the whole trace in a row, with the window marked: where to look, and where one is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::layout::LANE_LABEL;
use super::state::overview::Density;
use super::state::{Pane, View};
use crate::face::tui::format::ns;
use crate::face::tui::layout::{cut_left, cut_top};
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::paint::{self, put};

/// Eighths of a row, from below.
const BELOW: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// How much was computed.
    Compute,
    /// Whether communication was hidden.
    Comm,
    /// What was computed, hatched where communication was exposed.
    Both,
}

/// The pane that a row of the overview is of: one trace takes all rows, two take one each
/// where there are two.
pub fn pane_of(view: &View, rows: u16, row: u16) -> usize {
    match view.panes.len() {
        0 | 1 => 0,
        _ if rows < 2 => view.focus.min(1),
        _ => usize::from(row.min(1)),
    }
}

/// Draws the overview's rows with the window that is shown marked in them.
pub fn draw(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    for row in 0..area.height {
        let at = pane_of(view, area.height, row);
        let Some(pane) = view.panes.get(at) else { continue };
        let (line, _) = cut_top(Rect { y: area.y + row, ..area }, 1);
        let part = match (view.panes.len() > 1 || area.height < 2, row) {
            (true, _) => Part::Both,
            (false, 0) => Part::Compute,
            (false, _) => Part::Comm,
        };
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
        let text: String = text.chars().take(usize::from(LANE_LABEL) - 1).collect();
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

fn glyph(density: &Density, part: Part) -> (&'static str, Role) {
    // what is there at all is seen
    let eighths = |share: f32| match share {
        share if share <= 0.0 => 0,
        share => ((share * 8.0).round() as usize).clamp(1, 8),
    };
    let hatched = density.exposed > 0.0 && density.exposed >= density.comm / 2.0;
    match part {
        Part::Both if density.exposed >= 0.125 => ("╱", Role::Exposed),
        Part::Compute | Part::Both => (BELOW[eighths(density.compute)], Role::Series(0)),
        Part::Comm if density.comm <= 0.0 => (" ", Role::Dim),
        Part::Comm if hatched => ("╱", Role::Exposed),
        Part::Comm if density.exposed > 0.0 => ("╌", Role::Exposed),
        Part::Comm => (if density.comm >= 0.5 { "▓" } else { "▒" }, Role::Comm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exposed_has_a_glyph_of_its_own() {
        let glyph = |compute, comm, exposed, part| glyph(&Density { compute, comm, exposed }, part).0;
        assert_eq!(glyph(0.5, 0.3, 0.0, Part::Compute), "▄");
        assert_eq!(glyph(0.001, 0.0, 0.0, Part::Compute), "▁", "tiny, and yet there");
        assert_eq!(glyph(0.9, 0.3, 0.0, Part::Comm), "▒");
        assert_eq!(glyph(0.9, 0.6, 0.0, Part::Comm), "▓");
        assert_eq!(glyph(0.9, 0.3, 0.1, Part::Comm), "╌", "a little of it");
        assert_eq!(glyph(0.9, 0.3, 0.2, Part::Comm), "╱");
        assert_eq!(glyph(0.0, 0.0, 0.0, Part::Comm), " ");
        assert_eq!(glyph(0.8, 0.3, 0.2, Part::Both), "╱");
        assert_eq!(glyph(0.8, 0.3, 0.1, Part::Both), "▆");
    }
}
