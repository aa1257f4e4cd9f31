//! A lane of a timeline as a row of characters, an eighth of a column fine. The cost of a row follows
//! its columns, not its spans: each column asks the lane's union of intervals.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};

use super::paint::put;
use crate::plan::Lane;
use crate::trace::Span;
use crate::tui::state::timeline::cover::Cover;
use crate::tui::state::timeline::{Row, TraceIndex};
use crate::tui::state::window::Window;
use crate::tui::theme::{Role, Theme};

/// Eighths of a column, from the left.
const LEFT: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// How a column is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Not at all.
    Empty,
    /// So many eighths (1 to 8) from its left edge.
    FromLeft(u8),
    /// So many eighths (1 to 7) from its right edge.
    FromRight(u8),
}

/// How much of `from..to` is covered, and from which side. What is covered at all is seen: it gets at
/// least an eighth.
pub fn ink(cover: &Cover, from: i64, to: i64) -> Ink {
    let to = to.max(from + 1);
    let covered = cover.between(from, to);
    if covered <= 0 {
        return Ink::Empty;
    }
    let eighths = (covered as f64 / (to - from) as f64 * 8.0).round().clamp(1.0, 8.0) as u8;
    if eighths < 8 && !cover.contains(from) && cover.contains(to - 1) {
        return Ink::FromRight(eighths);
    }
    Ink::FromLeft(eighths)
}

/// Draws what a lane did in the window.
pub fn draw(buf: &mut Buffer, area: Rect, theme: Theme, index: &TraceIndex, row: &Row, window: Window) {
    let area = area.intersection(buf.area);
    let columns = usize::from(area.width);
    if area.is_empty() {
        return;
    }
    let spans = &index.trace.spans;
    for column in 0..columns {
        let (from, to) = (window.time(column, columns), window.time(column + 1, columns));
        let Some(cell) = buf.cell_mut(Position::new(area.x + column as u16, area.y)) else { continue };
        let ink = ink(&row.busy, from, to);
        // an operation without any length must be seen, too
        let ink = match ink {
            Ink::Empty if row.places(spans, from, to).any(|p| starts_in(row, spans, p, from, to)) => {
                Ink::FromLeft(1)
            }
            other => other,
        };
        if ink == Ink::Empty {
            continue;
        }
        let waits = row.waiting.between(from, to) * 2 > row.busy.between(from, to);
        let style = theme.style(role(index, row, from + (to - from) / 2, waits));
        match (ink, row.lane) {
            (_, Lane::Comm) if waits => cell.set_symbol("░").set_style(style),
            (Ink::FromLeft(8), Lane::Comm) => cell.set_symbol("▓").set_style(style),
            (Ink::FromLeft(n), _) => cell.set_symbol(LEFT[usize::from(n)]).set_style(style),
            // the empty part is a block from the left, and the colours change places
            (Ink::FromRight(n), _) => cell
                .set_symbol(LEFT[usize::from(8 - n)])
                .set_style(style.add_modifier(Modifier::REVERSED)),
            (Ink::Empty, _) => cell,
        };
    }
    names(buf, area, theme, index, row, window);
}

fn starts_in(row: &Row, spans: &[Span], place: usize, from: i64, to: i64) -> bool {
    row.span(place).is_some_and(|i| (from..to).contains(&spans[i].start_ns))
}

/// The role of what a lane does at a time.
fn role(index: &TraceIndex, row: &Row, time: i64, waits: bool) -> Role {
    if row.lane == Lane::Comm {
        return if waits { Role::Waiting } else { Role::Comm };
    }
    let spans = &index.trace.spans;
    let span = row.span(row.nearest(spans, time)).map(|i| &spans[i]);
    let module = span.and_then(|s| index.trace.operations.get(s.operation as usize));
    Role::Series(match module.map(|o| o.module.as_str()) {
        Some("attn") => 0,
        Some("mlp") => 1,
        Some("head") => 2,
        _ => 3,
    })
}

/// Names of operations that are wide enough, and a mark where one follows another without a gap.
fn names(buf: &mut Buffer, area: Rect, theme: Theme, index: &TraceIndex, row: &Row, window: Window) {
    let columns = usize::from(area.width);
    let spans = &index.trace.spans;
    let places = row.places(spans, window.from, window.to);
    if places.len() > columns / 4 {
        return;
    }
    for place in places {
        let Some(span) = row.span(place).map(|i| &spans[i]) else { continue };
        let first = window.column(span.start_ns.max(window.from), columns).unwrap_or(0);
        let last = window.column(span.end_ns.min(window.to) - 1, columns).unwrap_or(first);
        if last < first + 3 {
            continue;
        }
        let waits = span.last_arrival_ns > span.start_ns;
        let base = theme.style(role(index, row, span.start_ns, false));
        if span.start_ns > window.from && row.busy.contains(span.start_ns - 1) && !waits {
            put(buf, area, area.x + first as u16, area.y, "▐", base);
        }
        let name = index.trace.operations.get(span.operation as usize).map_or("?", |o| short(&o.name));
        let room = last - first - 1;
        let style: Style = if waits { base } else { base.add_modifier(Modifier::REVERSED) };
        // behind the part that waits, where the name fits there
        let moved = waits.then(|| window.column(span.last_arrival_ns, columns)).flatten();
        let (at, room) = match moved {
            Some(column) if last > column + 1 => (column + 1, last - column - 1),
            _ => (first + 1, room),
        };
        let text: String = name.chars().take(room).collect();
        if text.chars().count() >= 2 {
            put(buf, area, area.x + at as u16, area.y, &text, style);
        }
    }
}

/// `down` of `decode/L12/mlp/down`.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Draws when a rank's communication was exposed: glyphs of its own, so that colour is not alone.
pub fn exposed(buf: &mut Buffer, area: Rect, theme: Theme, cover: &Cover, window: Window) {
    let area = area.intersection(buf.area);
    let columns = usize::from(area.width);
    for column in 0..columns {
        let (from, to) = (window.time(column, columns), window.time(column + 1, columns));
        let symbol = match ink(cover, from, to) {
            Ink::Empty => continue,
            Ink::FromLeft(8) => "━",
            _ => "╍",
        };
        put(buf, area, area.x + column as u16, area.y, symbol, theme.style(Role::Exposed));
    }
}

/// Times (ns since the window's start) at which an axis of so many columns has its ticks.
pub fn ticks(window: Window, columns: usize) -> Vec<i64> {
    let wanted = (columns / 14).max(1) as f64;
    let rough = window.width() as f64 / wanted;
    let power = 10f64.powf(rough.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
    let step = (step as i64).max(1);
    (0..=window.width() / step).map(|i| i * step).take(columns.max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_is_seen_from_the_right_side() {
        let cover = Cover::of([(0, 100), (150, 200), (1000, 1001)].into_iter());
        assert_eq!(ink(&cover, 0, 100), Ink::FromLeft(8));
        assert_eq!(ink(&cover, 50, 150), Ink::FromLeft(4));
        assert_eq!(ink(&cover, 100, 200), Ink::FromRight(4));
        assert_eq!(ink(&cover, 300, 400), Ink::Empty);
        assert_eq!(ink(&cover, 960, 1960), Ink::FromLeft(1), "tiny, and yet there");
    }

    #[test]
    fn ticks_are_round_and_not_crowded() {
        assert_eq!(ticks(Window::new(7, 1007), 70), [0, 200, 400, 600, 800, 1000]);
        assert!(ticks(Window::new(0, i64::MAX), 70).len() <= 6);
    }
}
