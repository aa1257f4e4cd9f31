//! Chart of the result so far below the details of a cell: a bar of latency for each cell with numbers.

use super::draw;
use super::state::{Live, LiveCell};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::shade;

/// Blank row and heading above the bars.
const HEAD: u16 = 2;

/// Minimum rows for a chart.
const LEAST_ROWS: u16 = 5;

/// Minimum length of the longest bar, in columns. Narrower windows drop the last value.
const LEAST_BAR: usize = 12;

/// Headings and widths of the values next to a bar.
const VALUES: [(&str, usize); 3] = [("ms", 8), ("exposed", 9), ("tok/s vs standard", 19)];

/// Cells with a bar in a chart of at most `room` rows, with their latency in ms; none if the rows are too few.
pub fn cells(live: &Live, room: u16) -> Vec<(&LiveCell, f64)> {
    if room < LEAST_ROWS { Vec::new() } else { live.latencies(usize::from(room - HEAD)) }
}

/// Rows of a chart of these cells.
pub fn rows(cells: &[(&LiveCell, f64)]) -> u16 {
    if cells.is_empty() { 0 } else { HEAD + cells.len() as u16 }
}

/// Draws the bars on a common scale. The end of a bar is the exposed share of its decode steps, in the mark of the lanes.
pub fn draw(buf: &mut Buffer, area: Rect, live: &Live, cells: &[(&LiveCell, f64)], theme: Theme) {
    if cells.is_empty() {
        return;
    }
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let (mark, role) = shade::exposed(1.0);
    let names: Vec<(String, Style)> =
        cells.iter().map(|(cell, _)| draw::marked_title(live, cell, theme)).collect();
    let widest = names.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let widest = widest.min(usize::from(area.width / 3));
    // a blank before and after the name, and at the end of the row
    let room = usize::from(area.width).saturating_sub(widest + 3);
    let width = |values: &[(&str, usize)]| values.iter().map(|(_, width)| width).sum::<usize>();
    let fits_all = room >= width(&VALUES) + LEAST_BAR;
    let values = if fits_all { &VALUES[..] } else { &VALUES[..VALUES.len() - 1] };
    let columns = room.saturating_sub(width(values));
    let so_far = if live.is_running() { " so far" } else { "" };
    let title = format!(" {}{so_far} ({mark} exposed communication)", live.latency());
    let headings: String = values.iter().map(|&(heading, width)| format!("{heading:>width$}")).collect();
    let place = widest + 2 + columns;
    let title = format!("{:<place$}", cut(&title, place as u16));
    line(buf, area, HEAD - 1, &[(&title, theme.style(Role::Title)), (&headings, dim)]);
    let longest = cells.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
    for (row, ((cell, ms), (name, style))) in (HEAD..).zip(cells.iter().zip(&names)) {
        let length = ((ms / longest * columns as f64).round() as usize).max(1).min(columns);
        let share = cell.exposed_pct().unwrap_or(0.0) / 100.0;
        let exposed = ((share * length as f64).round() as usize).min(length);
        let ratio = live
            .beside_standard(cell)
            .map(|(_, ratio)| format!("{:.2}x{}", ratio.speedup, live.of_rounds(ratio)));
        let numbers = [digits(*ms), percent(cell.exposed_pct()), ratio.unwrap_or_default()];
        let numbers =
            numbers.iter().zip(values).map(|(number, &(_, width))| format!("{number:>width$}"));
        let numbers: String = numbers.collect();
        let pieces = [
            (format!(" {:<widest$} ", cut(name, widest as u16)), *style),
            ("█".repeat(length - exposed), theme.style(Role::Series(0))),
            (mark.repeat(exposed), theme.style(role)),
            (" ".repeat(columns - length) + &numbers, text),
        ];
        draw::pieces(buf, area, row, &pieces);
    }
}
