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

/// Row of a chart: a cell with its latency in ms, or a blank between settings.
type ChartRow<'a> = Option<(&'a LiveCell, f64)>;

/// Rows of a chart of at most `room` rows, without its heading; none if the rows are too few. Cells of a setting are
/// together, with a blank row between settings, if that fits; else in grid order.
pub fn bars(live: &Live, room: u16) -> Vec<ChartRow<'_>> {
    if room < LEAST_ROWS {
        return Vec::new();
    }
    let room = usize::from(room - HEAD);
    let cells = live.latencies(room);
    let mut by_setting = cells.clone();
    by_setting.sort_by_key(|(cell, _)| cell.standard);
    let mut spaced: Vec<ChartRow<'_>> = Vec::new();
    for setting in by_setting.chunk_by(|(a, _), (b, _)| a.standard == b.standard) {
        if !spaced.is_empty() {
            spaced.push(None);
        }
        spaced.extend(setting.iter().copied().map(Some));
    }
    if spaced.len() <= room { spaced } else { cells.into_iter().map(Some).collect() }
}

/// Rows of a chart of these bars.
pub fn rows(bars: &[ChartRow<'_>]) -> u16 {
    if bars.is_empty() { 0 } else { HEAD + bars.len() as u16 }
}

/// Draws the bars on a common scale. The end of a bar is the exposed share of its decode steps, in the mark of the lanes.
pub fn draw(buf: &mut Buffer, area: Rect, live: &Live, bars: &[ChartRow<'_>], theme: Theme) {
    if bars.is_empty() {
        return;
    }
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let (mark, role) = shade::exposed(1.0);
    let name = |cell: &LiveCell| draw::marked_title(live, cell, theme);
    let widest = bars.iter().flatten().map(|(cell, _)| name(cell).0.width()).max().unwrap_or(0);
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
    let longest = bars.iter().flatten().map(|(_, ms)| *ms).fold(0.0, f64::max);
    for (row, bar) in (HEAD..).zip(bars) {
        let Some((cell, ms)) = bar else { continue };
        let (name, style) = name(cell);
        let length = ((ms / longest * columns as f64).round() as usize).max(1).min(columns);
        let share = cell.exposed_pct().unwrap_or(0.0) / 100.0;
        let exposed = ((share * length as f64).round() as usize).min(length);
        let ratio = live.ratio_words(cell);
        let numbers = [digits(*ms), percent(cell.exposed_pct()), ratio.unwrap_or_default()];
        let numbers =
            numbers.iter().zip(values).map(|(number, &(_, width))| format!("{number:>width$}"));
        let numbers: String = numbers.collect();
        let pieces = [
            (format!(" {:<widest$} ", cut(&name, widest as u16)), style),
            ("█".repeat(length - exposed), theme.style(Role::Series(0))),
            (mark.repeat(exposed), theme.style(role)),
            (" ".repeat(columns - length) + &numbers, text),
        ];
        draw::pieces(buf, area, row, &pieces);
    }
}
