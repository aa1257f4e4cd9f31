//! Screen 2: the sweep that runs, or ran last.
//!
//! ```text
//! | quickstart  ██████▌·····  7/12  elapsed 1:02  left 0:40 |
//! |   cell          round  samples   tok/s  TPOT  elapsed   |
//! | ▶ ladder tp2 …   1/3  ███··· 3/6  ...                   |
//! | ╭ log of ladder tp2 … ────────────────────────────────╮ |
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::tui::format::{clock, digits};
use crate::tui::screens::live::state::{CellState, Live, LiveCell};
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::paint::{bar, empty, frame, line, wrap};
use crate::tui::widgets::table::{self, Column, Rows};

const COLUMNS: [Column; 8] = [
    Column::text("  cell", 30, 0).growing(10),
    Column::number("round", 5, 5),
    Column::text("samples", 10, 3),
    Column::number("tok/s", 7, 1),
    Column::number("TPOT ms", 7, 1),
    Column::number("elapsed", 7, 4),
    Column::text("provenance", 13, 2),
    Column::text("note", 12, 6),
];

/// Draws the screen.
pub fn draw(buf: &mut Buffer, body: Rect, state: &State) {
    let (theme, live) = (state.theme, &state.live);
    let Some(name) = &live.experiment else {
        empty(buf, body, "no sweep yet: press 1, Enter runs the selected experiment", theme);
        return;
    };
    let (top, area, log) = super::areas(body);
    header(buf, top, state, name);
    let rows = Rows { list: &live.list, len: live.cells.len(), mark: None };
    table::draw(buf, area, theme, &COLUMNS, rows, |row, column| {
        live.cells
            .get(row)
            .map_or_else(Default::default, |cell| content(live, cell, column, state.now_ms, theme))
    });
    let Some(cell) = live.log_cell() else { return };
    let inner = frame(buf, log, &format!("{} {}", cell.state.word(), cell.spec.label()), theme);
    let rows = usize::from(inner.height);
    let mut lines: Vec<String> = Vec::new();
    for text in cell.log.iter().rev().take(rows).rev().chain([&cell.note]).filter(|l| !l.is_empty()) {
        lines.extend(wrap(text, usize::from(inner.width)));
    }
    for (row, text) in lines.iter().skip(lines.len().saturating_sub(rows)).enumerate() {
        line(buf, inner, row as u16, &[(text, theme.style(Role::Text))]);
    }
}

fn header(buf: &mut Buffer, area: Rect, state: &State, name: &str) {
    let (theme, live) = (state.theme, &state.live);
    let progress = live.progress(state.now_ms);
    let until = live.ended.map_or(state.now_ms, |(at, _)| at);
    let elapsed = clock(until.saturating_sub(live.started_ms));
    let (word, role) = match live.ended {
        None if live.cancelling => ("■ being cancelled", Role::Warn),
        None => ("▶ running", Role::Active),
        Some((_, ended)) if ended.interrupted => ("◼ interrupted; what was done is stored", Role::Warn),
        Some((_, ended)) if ended.failed > 0 => ("✘ ended, with failures", Role::Bad),
        Some(_) => ("✔ done", Role::Good),
    };
    let bar = bar(progress.fraction, usize::from(area.width / 4));
    let mut numbers = format!("  {}/{} runs  elapsed {elapsed}", progress.done, progress.total);
    if let Some(cell) = live.cells.iter().find(|c| c.state == CellState::Running) {
        numbers.push_str(&format!("  round {}/{}", cell.round + 1, live.rounds));
    }
    if let Some(left) = progress.left_ms {
        numbers.push_str(&format!("  left about {}", clock(left)));
    }
    let (title, text) = (theme.style(Role::Title), theme.style(Role::Text));
    line(buf, area, 0, &[(" ", text), (name, title), ("  ", text), (word, theme.style(role))]);
    line(buf, area, 1, &[(" ", text), (&bar, theme.style(Role::Active)), (&numbers, text)]);
}

fn content(live: &Live, cell: &LiveCell, column: usize, now_ms: u64, theme: Theme) -> (String, Style) {
    let text = theme.style(Role::Text);
    let number = |value: Option<f64>| (value.map_or("-".into(), digits), text);
    match column {
        0 => {
            let style = match cell.state {
                CellState::Queued => theme.style(Role::Dim),
                CellState::Running => theme.style(Role::Active),
                CellState::Done(status) => theme.status(status),
            };
            (format!("{} {}", cell.state.glyph(), cell.spec.label()), style)
        }
        1 => (format!("{}/{}", cell.round + 1, live.rounds), text),
        2 => {
            let (done, of) = cell.samples;
            let share = if of == 0 { 0.0 } else { f64::from(done) / f64::from(of) };
            (format!("{} {done}/{of}", bar(share, 4)), text)
        }
        3 => number(cell.tokens_per_s),
        4 => number(cell.tpot_ms),
        5 => {
            let since = cell.since_ms.map(|since| now_ms.saturating_sub(since));
            (since.or(cell.took_ms).map_or("-".into(), clock), text)
        }
        6 => {
            let provenance = cell.spec.provenance();
            (provenance.to_string(), theme.provenance(provenance))
        }
        _ => (cell.note.clone(), theme.style(Role::Dim)),
    }
}
