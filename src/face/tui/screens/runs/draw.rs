//! Drawing screen 3.
//!
//! ```text
//! |  12 of 40 runs, 2 marked   filter: arch:ladder tpot<5      |
//! | ● ✔ run   provenance  architecture  tp batch p2p  TPOT ↓1  |
//! | ╭ details ───────────────────────────────────────────────╮ |
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::columns::{self, Shown};
use super::state::{Line, Runs};
use crate::base::text::counted;
use crate::desk;
use crate::face::tui::context::Context;
use crate::face::tui::format::cut;
use crate::face::tui::layout::cut_top;
use crate::face::tui::snapshot::Snapshot;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::paint::{empty, frame, line, put, select, wrap};
use crate::face::tui::widgets::table::told;
use crate::lab::store::Annotations;
use crate::table::Record;

/// Draws the screen into its part of the window.
pub fn draw(buf: &mut Buffer, body: Rect, runs: &Runs, cx: &Context) {
    let theme = cx.theme;
    let Some(stored) = &cx.stored else {
        empty(buf, body, "reading the runs directory…", theme);
        return;
    };
    if stored.records.is_empty() && stored.damaged.is_empty() {
        let text = format!("no runs yet in {}: {}", cx.dir.display(), cx.keys.to_first_run());
        empty(buf, body, &text, theme);
        return;
    }
    let (top, area, details) = runs.areas(body);
    let shown = columns::lay_out(runs, &stored.table, area);
    // a list that is longer than the window says where in it one is
    let rows = usize::from(area.height.saturating_sub(1));
    let place = (runs.lines.len() > rows).then_some(runs.list.selected + 1);
    draw_top(buf, top, runs, cx, (stored, place), &shown);
    draw_table(buf, area, theme, runs, stored, &shown);
    if runs.lines.is_empty() {
        let text = match runs.only_marked {
            true => "no marked run matches the filter",
            false => "no run matches the filter: Esc drops it",
        };
        empty(buf, area, text, theme);
    }
    if runs.shows_detail(body.width) {
        draw_details(buf, details, theme, runs, stored);
    }
    runs.filter.draw_offers(buf, top, body, theme);
}

fn draw_top(
    buf: &mut Buffer,
    top: Rect,
    runs: &Runs,
    cx: &Context,
    (stored, place): (&Snapshot, Option<usize>),
    shown: &Shown,
) {
    let theme = cx.theme;
    let mut count = format!(" {} of {}", runs.count, counted(stored.records.len(), "run"));
    count.extend(place.map(|place| format!(", row {place}")));
    if stored.running > 0 {
        count += &format!(", {} ▶ running", stored.running);
    }
    if !runs.marked.is_empty() {
        count += &format!(", {} marked", runs.marked.len());
    }
    if runs.only_marked {
        count += " (only these)";
    }
    let x = put(buf, top, top.x, top.y, &count, theme.style(Role::Title)) + 2;
    // what does not fit is told on the right
    let mut right = top.right();
    let hidden = told(shown.left, shown.right);
    if top.width > 60 {
        right = right.saturating_sub(hidden.width() as u16);
        put(buf, top, right, top.y, &hidden, theme.style(Role::Dim));
    }
    let rest = Rect { x, width: right.saturating_sub(x), ..top };
    let x = runs.filter.draw(buf, rest, theme, "");
    if let (None, false, Some(first)) = (&runs.filter.wrong, runs.filter.typing, stored.damaged.first())
    {
        let note = format!("✘ {} unreadable: {first}", stored.damaged.len());
        put(buf, rest, x, top.y, &note, theme.style(Role::Bad));
    }
}

fn draw_table(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    runs: &Runs,
    stored: &Snapshot,
    shown: &Shown,
) {
    let table = &stored.table;
    for place in &shown.places {
        let Some(column) = table.columns().get(place.column) else { continue };
        let mark = match place.sorted {
            Some((key, down)) => {
                let number = if key > 0 { (key + 1).to_string() } else { String::new() };
                format!("{}{number}", if down { "↓" } else { "↑" })
            }
            None => String::new(),
        };
        let indent = if column.field.name == "run" { "    " } else { "" };
        let title = format!("{indent}{}{mark}", column.field.title);
        let shift = match column.field.unit.is_number() {
            true => place.width.saturating_sub(title.width() as u16),
            false => 0,
        };
        let cell = Rect::new(place.x, area.y, place.width + 1, 1);
        put(buf, cell, place.x + shift, area.y, &title, theme.style(Role::Title));
    }
    let group = runs.group(table);
    for (index, y) in runs.list.rows(runs.lines.len(), cut_top(area, 1).1) {
        match &runs.lines[index] {
            Line::Run(row) => draw_run(buf, y, theme, runs, stored, shown, *row as usize),
            Line::Group { row, count, running, bad } => {
                let column = group.and_then(|at| table.columns().get(at));
                let value = column.map_or(String::new(), |column| {
                    let value = columns::content(column, *row as usize);
                    format!("{} {}", column.field.title, if value.is_empty() { "-" } else { &value })
                });
                let part = |count: u32, what| match count {
                    0 => String::new(),
                    count => format!(", {count} {what}"),
                };
                let rest = part(*running, "running") + &part(*bad, "not ok");
                let runs = if *count == 1 { "run" } else { "runs" };
                let text = format!("── {value} ── {count} {runs}{rest} ");
                let fill = usize::from(area.width).saturating_sub(text.width());
                let text = format!("{text}{}", "─".repeat(fill));
                put(buf, area, area.x, y, &text, theme.style(Role::Title));
            }
        }
        if index == runs.list.selected {
            select(buf, area, y, theme);
        }
    }
}

fn draw_run(
    buf: &mut Buffer,
    y: u16,
    theme: Theme,
    runs: &Runs,
    stored: &Snapshot,
    shown: &Shown,
    row: usize,
) {
    let Some(record) = stored.records.get(row) else { return };
    for place in &shown.places {
        let Some(column) = stored.table.columns().get(place.column) else { continue };
        let cell = Rect::new(place.x, y, place.width, 1);
        let text = columns::content(column, row);
        let mut x = place.x;
        let style = match column.field.name.as_ref() {
            "run" => {
                let mark = if runs.marked.contains(&record.run) { "● " } else { "  " };
                let style = theme.status(record.status);
                x = put(buf, cell, x, y, mark, theme.style(Role::Key));
                x = put(buf, cell, x, y, &format!("{} ", record.status.glyph()), style);
                style
            }
            "status" => theme.status(record.status),
            "provenance" => theme.provenance(record.provenance),
            "tags" => theme.style(Role::Key),
            _ => theme.style(Role::Text),
        };
        if column.field.unit.is_number() {
            x += place.width.saturating_sub(text.width() as u16);
        }
        let room = cell.right().saturating_sub(x);
        let fitting = match &*column.field.name {
            "run" => cut_middle(&text, room),
            // what sets runs apart is a value, behind its name
            "setting" => cut_front(&text, room),
            _ => cut(&text, room),
        };
        let end = put(buf, cell, x, y, &fitting, style);
        // letters that the filter found
        for found in runs.bound.highlight(place.column, column, &fitting) {
            let text = &fitting;
            let before = text.get(..found.start).unwrap_or_default().width() as u16;
            let width = text.get(found).unwrap_or_default().width() as u16;
            let letters = Rect::new(x + before, y, width, 1);
            let letters = letters.intersection(Rect::new(x, y, end.saturating_sub(x), 1));
            buf.set_style(letters, Style::new().add_modifier(Modifier::UNDERLINED | Modifier::BOLD));
        }
    }
}

/// The end of a text that is too wide.
fn cut_front(text: &str, width: u16) -> String {
    let (width, letters) = (usize::from(width), text.chars().count());
    if letters <= width || width < 2 {
        return cut(text, width as u16);
    }
    let end: String = text.chars().skip(letters + 1 - width).collect();
    format!("…{end}")
}

/// The end of an id tells runs of one second, and rows of a batch, apart.
pub(super) fn cut_middle(id: &str, width: u16) -> String {
    const END: usize = 9;
    let (width, letters) = (usize::from(width), id.chars().count());
    if letters <= width || width < END + 4 {
        return cut(id, width as u16);
    }
    let begin: String = id.chars().take(width - END - 1).collect();
    let end: String = id.chars().skip(letters - END).collect();
    format!("{begin}…{end}")
}

fn draw_details(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    runs: &Runs,
    stored: &std::sync::Arc<Snapshot>,
) {
    let record = runs.selected(Some(stored));
    let title = record.map_or("details", |r| r.run.as_str());
    let inner = frame(buf, area, title, theme);
    let Some(record) = record else { return };
    let whole = runs.whole.as_deref().filter(|whole| whole.run == record.run).unwrap_or(record);
    let lines = words(whole, &stored.annotations, inner);
    let height = usize::from(inner.height);
    let fitting = if lines.len() > height { height.saturating_sub(1) } else { height };
    for (row, text) in lines.iter().take(fitting).enumerate() {
        line(buf, inner, row as u16, &[(text, theme.style(Role::Text))]);
    }
    if lines.len() > height && height > 0 {
        let more = counted(lines.len() - fitting, "more line");
        let told = format!("… {more}: ladderscope show {}", record.run);
        line(buf, inner, fitting as u16, &[(&told, theme.style(Role::Dim))]);
    }
}

/// A run in words: a line each where all of them have room, else a paragraph a section.
fn words(record: &Record, annotations: &Annotations, area: Rect) -> Vec<String> {
    let head = format!("{} {}   {}", record.status.glyph(), record.status.as_str(), record.provenance);
    let sections = desk::describe(record, annotations.of(&record.run));
    let wrapped = |joint: &str| -> Vec<String> {
        let paragraphs = sections.iter().map(|section| {
            let line = |(about, says): &(String, String)| format!("{about}: {says}");
            section.lines.iter().map(line).collect::<Vec<_>>().join(joint)
        });
        let all = std::iter::once(format!("{head}   {}", record.spec.label())).chain(paragraphs);
        all.flat_map(|paragraph| wrap(&paragraph, usize::from(area.width).max(8))).collect()
    };
    let lines = wrapped("\n");
    if lines.len() <= usize::from(area.height) { lines } else { wrapped(" · ") }
}
