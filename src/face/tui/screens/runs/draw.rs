//! Drawing of screen 3, the stored runs.

use ratatui::text::{self, Span};

use super::columns::{self, RunColumn};
use super::details::{cut_details, draw_details};
use super::layout::RunsLayout;
use super::state::{self, Grouping, RunListLine, Runs};
use super::{Act, header};
use crate::face::tui::format::{cut_front, cut_middle};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table::{self, TableRows};
use ::table::Record;
use study::analysis::{RunTable, RunTableColumn};

/// Marks behind the status of a run: its cell's rounds vary widely, or its samples do.
pub const NOISY: &str = "!";
pub const UNSTEADY: &str = "~";
/// Mark of a run that a newer repetition replaces.
pub const REPLACED: &str = "«";

/// Texts of a frame that the help repeats in full if they are cut.
#[derive(Debug, Default)]
struct DrawnTexts {
    /// The longest text of the second row, and true if there is no room for it.
    order: (String, bool),
    /// Values of the selected run that the window does not show whole: `link native`.
    cut_values: Vec<String>,
}

pub fn draw(buf: &mut Buffer, body: Rect, runs: &Runs, cx: &Context) {
    draw_texts(buf, body, runs, cx);
}

fn draw_texts(buf: &mut Buffer, body: Rect, runs: &Runs, cx: &Context) -> DrawnTexts {
    let (theme, mut texts) = (cx.theme, DrawnTexts::default());
    let Some(stored) = &cx.stored else {
        empty(buf, body, "reading the runs directory…", theme);
        return texts;
    };
    if stored.records.is_empty() && stored.damaged.is_empty() {
        let text = format!("no runs yet in {}: {}", cx.dir.display(), cx.keys.to_first_run());
        empty(buf, body, &text, theme);
        return texts;
    }
    let layout = runs.layout(body, &stored.table);
    let rows = header::draw_top(buf, runs, cx, stored, &layout);
    if runs.lines.is_empty() {
        empty(buf, layout.areas.table, &nothing(runs, cx), theme);
    } else {
        draw_table(buf, theme, runs, stored, &layout);
        draw_order_marks(buf, theme, runs, &stored.table, &layout);
        draw_groups(buf, theme, runs, &stored.table, layout.areas.table);
        texts.order = header::draw_order(buf, runs, cx, &stored.table, &layout, &rows);
        match runs.shows_detail(body.width) {
            true => draw_details(buf, layout.areas.details, cx, runs, stored),
            false => texts.cut_values = draw_hidden(buf, theme, runs, stored, &layout),
        }
    }
    runs.filter.draw_offers(buf, rows.filter, body, theme);
    texts
}

/// Reason no run is shown, and the keys that show runs again.
fn nothing(runs: &Runs, cx: &Context) -> String {
    let why = match (&runs.nothing, runs.filter.experiment()) {
        (Some(why), _) => why.clone(),
        (None, _) if runs.has_rounds && runs.grouping != Grouping::Runs => {
            let key = cx.key::<Runs>(Act::Group);
            format!("no cell's pooled result matches the filter; {key} tests single rounds")
        }
        (None, Some(name)) => format!("no run of {name} matches the filter"),
        (None, None) => "no run matches the filter".to_owned(),
    };
    let [close, filter, marked] =
        [cx.keys.label(Action::Close), cx.key::<Runs>(Act::Filter), cx.key::<Runs>(Act::OnlyMarked)];
    let all = match runs.filter.experiment() {
        Some(_) => format!(", {} shows all runs", cx.keys.label(Action::Scope)),
        None => String::new(),
    };
    match (runs.only_marked, runs.filter.value().trim().is_empty()) {
        (true, true) => format!("{why}\n{marked} shows all runs"),
        (true, false) => format!("{why}\n{marked} shows all runs, {filter} changes the filter"),
        (false, _) => format!("{why}\n{close} clears the filter, {filter} changes it{all}"),
    }
}

/// Texts that the window cuts: the order with the options in which the shown runs differ, and the details of the selected
/// run, or its values that the table hides.
pub fn notes(runs: &Runs, body: Rect, cx: &Context) -> Vec<ScreenNote> {
    let Some(stored) = cx.stored.as_ref().filter(|_| !runs.lines.is_empty()) else { return Vec::new() };
    let DrawnTexts { order: (order, is_cut), cut_values } =
        draw_texts(&mut Buffer::empty(body), body, runs, cx);
    let mut notes = vec![ScreenNote::new(order, is_cut)];
    let Some(record) = runs.described(stored) else { return notes };
    let (heading, lines) = match runs.shows_detail(body.width) {
        true => ("details of", cut_details(record, &stored.annotations, runs.areas(body).details)),
        false => ("also of", cut_values),
    };
    if !lines.is_empty() {
        let name = runs.described_name(record);
        notes.push(ScreenNote::new(format!("{heading} {name}:\n{}", lines.join("\n")), true));
    }
    notes
}

fn draw_table(buf: &mut Buffer, theme: Theme, runs: &Runs, stored: &Snapshot, layout: &RunsLayout) {
    let rows = TableRows { scrolled: Some(runs.scroll), ..TableRows::new(&runs.list, runs.lines.len()) };
    table::draw(buf, layout.areas.table, theme, &layout.specs, rows, |row, column, width| {
        let mut line = cell(runs, stored, runs.lines[row], &layout.columns[column], width, theme);
        if column == 0 {
            line.spans.splice(0..0, status(runs, stored, runs.lines[row], theme));
        }
        line
    });
}

/// Draws the direction of sorted columns whose titles have no room for it.
fn draw_order_marks(buf: &mut Buffer, theme: Theme, runs: &Runs, table: &RunTable, layout: &RunsLayout) {
    let area = layout.areas.table;
    for place in &layout.shown.places {
        let column = &table.columns()[layout.columns[place.column].column];
        let spec = &layout.specs[place.column];
        if let Some(mark) = columns::mark_behind(runs, column, spec) {
            let x = mark_position(buf, area, spec.title.trim_start(), place.x + place.width);
            put(buf, area, x, area.y, mark, theme.style(Role::Title));
        }
    }
}

/// Place of a mark behind a title or before it; if it would touch another title there, in a blank or over the last letter.
fn mark_position(buf: &Buffer, area: Rect, title: &str, behind: u16) -> u16 {
    let is_blank =
        |x: u16| x >= area.right() || buf.cell((x, area.y)).is_none_or(|cell| cell.symbol() == " ");
    let before = behind.saturating_sub(title.width() as u16 + 1);
    if behind < area.right() && is_blank(behind) && is_blank(behind + 1) {
        behind
    } else if is_blank(before) && is_blank(before.saturating_sub(1)) {
        before
    } else {
        behind.saturating_sub(title.rfind(' ').map_or(1, |at| title[at..].width() as u16))
    }
}

/// Draws the lines above groups: their value, and their number of runs by status.
fn draw_groups(buf: &mut Buffer, theme: Theme, runs: &Runs, table: &RunTable, area: Rect) {
    let group = runs.group(table).and_then(|at| table.columns().get(at));
    for (index, y) in runs.list.rows(runs.lines.len(), cut_top(area, 1).1) {
        let RunListLine::Group { row, count, running, bad } = runs.lines[index] else { continue };
        let value = group.map_or(String::new(), |column| {
            let bin = runs.bin.and_then(|width| {
                let low = (state::number(column, row)? / width).floor() * width;
                let unit = column.field.unit;
                Some(format!("{} to {}", unit.cell(low), unit.cell(low + width)))
            });
            let value = bin.unwrap_or_else(|| columns::cell_text(column, row as usize));
            format!("{} {}", column.field.title, if value.is_empty() { "-" } else { &value })
        });
        let part = |count: u32, what| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let rest = part(running, "running") + &part(bad, "not ok");
        let text = format!("── {value} ── {}{rest} ", counted(count as usize, "run"));
        let fill = usize::from(area.width).saturating_sub(text.width());
        let role = if index == runs.list.selected { Role::Selected } else { Role::Title };
        put(buf, area, area.x, y, &format!("{text}{}", "─".repeat(fill)), theme.style(role));
    }
}

/// Prefix of the first column: mark, status (for a cell, its fold arrow), and a sign if rounds or samples vary widely.
fn status(runs: &Runs, stored: &Snapshot, line: RunListLine, theme: Theme) -> Vec<Span<'static>> {
    let record = |row: u32| &stored.records[row as usize];
    let (rows, state) = match &line {
        RunListLine::Run(row) => {
            let status = record(*row).status;
            (std::slice::from_ref(row), Span::styled(status.glyph(), theme.status(status)))
        }
        RunListLine::Cell(at) => {
            let cell = &runs.cells[*at as usize];
            let fold = if cell.is_unfolded { "▾" } else { "▸" };
            (cell.rows.as_slice(), Span::styled(fold, theme.style(Role::Title)))
        }
        RunListLine::Group { .. } => return Vec::new(),
    };
    let any = |is: &dyn Fn(&Record) -> bool| rows.iter().any(|row| is(record(*row)));
    let mark = if any(&|run| runs.marked.contains(&run.run)) { "●" } else { " " };
    let is_replaced = matches!(line, RunListLine::Run(row) if runs.replaced.contains(&record(row).run));
    let unsteady = match any(&|run| runs.noisy.contains_key(&run.run)) {
        _ if is_replaced => REPLACED,
        true => NOISY,
        false if any(&state::is_unsteady) => UNSTEADY,
        false => " ",
    };
    vec![
        Span::styled(mark, theme.style(Role::Key)),
        state,
        Span::styled(unsteady, theme.style(Role::Warn)),
    ]
}

fn cell(
    runs: &Runs,
    stored: &Snapshot,
    line: RunListLine,
    column: &RunColumn,
    width: u16,
    theme: Theme,
) -> text::Line<'static> {
    let Some(record) = runs.record_of(line, stored) else { return text::Line::default() };
    let spec = &stored.table.columns()[column.column];
    let (text, mut spans) = (cut_cell_text(runs, record, spec, line, width), Vec::new());
    // the line of the cell above names the options of its rounds
    let is_round = |row| runs.cells.iter().any(|cell| cell.is_unfolded && cell.rows.contains(&row));
    let is_replaced = matches!(line, RunListLine::Run(_)) && runs.replaced.contains(&record.run);
    let style = match &*column.name {
        "run" => theme.style(Role::Dim),
        "status" => theme.status(record.status),
        state::PROVENANCE => theme.provenance(record.provenance),
        "architecture" if matches!(line, RunListLine::Run(row) if is_round(row)) => {
            theme.style(Role::Dim)
        }
        _ if is_replaced => theme.style(Role::Dim),
        "tags" => theme.style(Role::Key),
        _ => theme.style(Role::Text),
    };
    let found = style.add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
    let mut at = 0;
    for letters in runs.bound.highlight(column.column, spec, &text) {
        if let (Some(before), Some(part)) = (text.get(at..letters.start), text.get(letters.clone())) {
            spans.push(Span::styled(before.to_owned(), style));
            spans.push(Span::styled(part.to_owned(), found));
            at = letters.end;
        }
    }
    spans.push(Span::styled(text[at..].to_owned(), style));
    text::Line::from(spans)
}

/// Text of a line in a column.
pub(super) fn text_of(runs: &Runs, line: RunListLine, column: &RunTableColumn) -> String {
    match line {
        RunListLine::Run(row) => columns::cell_text(column, row as usize),
        RunListLine::Cell(at) => runs.cells[at as usize].text(column),
        RunListLine::Group { .. } => String::new(),
    }
}

/// Text of a line in a column, shortened to this width.
fn cut_cell_text(
    runs: &Runs,
    record: &Record,
    column: &RunTableColumn,
    line: RunListLine,
    width: u16,
) -> String {
    let text = text_of(runs, line, column);
    match &*column.field.name {
        "run" => cut_middle(&text, width),
        "architecture" => cut(&text, width.saturating_sub(state::STATUS)),
        // cut at the front: the value follows the name
        state::SETTING => cut_front(&text, width),
        state::PROVENANCE if columns::longest(runs, column) > width.into() => {
            columns::short_provenance(record.provenance).to_owned()
        }
        _ => cut(&text, width),
    }
}

/// Values of the selected run with their column names: those that distinguish it from a run that looks the same, and those
/// that the table cuts or hides.
fn hidden_values<'a>(runs: &Runs, stored: &'a Snapshot, layout: &RunsLayout) -> Vec<(&'a str, String)> {
    let line = runs.lines.get(runs.list.selected).copied();
    let Some((line, record)) = line.and_then(|line| Some((line, runs.record_of(line, stored)?))) else {
        return Vec::new();
    };
    let unseen = runs.unseen.iter().map(|column| (None, *column));
    let chosen = layout.columns.iter().enumerate().map(|(at, column)| (Some(at), column.column));
    let hidden = |(at, column): (Option<usize>, usize)| {
        let spec = stored.table.columns().get(column)?;
        let text = text_of(runs, line, spec);
        // a wide window may have a column of it
        let at = at.or_else(|| layout.columns.iter().position(|shown| shown.column == column));
        let is_whole = |place: &table::ColumnPosition| {
            Some(place.column) == at && cut_cell_text(runs, record, spec, line, place.width) == text
        };
        let is_shown = text.is_empty() || text == "-" || layout.shown.places.iter().any(is_whole);
        (!is_shown).then(|| match line {
            // a count, not the number of a round
            RunListLine::Cell(_) if spec.field.name == state::ROUND => ("rounds", text),
            _ => (columns::name(spec), text),
        })
    };
    unseen.chain(chosen).filter_map(hidden).collect()
}

/// Draws [`hidden_values`], uncut as long as there is room. Returns the cut ones with their column names.
fn draw_hidden(
    buf: &mut Buffer,
    theme: Theme,
    runs: &Runs,
    stored: &Snapshot,
    layout: &RunsLayout,
) -> Vec<String> {
    let area = layout.areas.details;
    let (mut x, mut y, mut cut_values) = (area.x + 1, area.y, Vec::new());
    for (name, text) in hidden_values(runs, stored, layout) {
        let needed = (name.width() + 1 + text.width()) as u16;
        if x + needed > area.right() && x > area.x + 1 && y + 1 < area.bottom() {
            (x, y) = (area.x + 1, y + 1);
        }
        if x + needed > area.right() || area.is_empty() {
            cut_values.push(format!("{name} {text}"));
        }
        x = put(buf, area, x, y, name, theme.style(Role::Dim)) + 1;
        let room = area.right().saturating_sub(x);
        x = put(buf, area, x, y, &cut(&text, room), theme.style(Role::Text)) + 2;
    }
    if !cut_values.is_empty() {
        put(buf, area, area.right().saturating_sub(1), y, "…", theme.style(Role::Dim));
    }
    cut_values
}

impl Runs {
    /// Record of a run's line, or of the run that represents a cell.
    fn record_of<'a>(&self, line: RunListLine, stored: &'a Snapshot) -> Option<&'a Record> {
        let row = match line {
            RunListLine::Run(row) => row,
            RunListLine::Cell(at) => self.cells.get(at as usize)?.row,
            RunListLine::Group { .. } => return None,
        };
        stored.records.get(row as usize)
    }
}
