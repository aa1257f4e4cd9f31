//! Drawing of screen 3, the stored runs.

use std::collections::HashSet;

use ratatui::text::{self, Span};

use super::columns::{self, RunColumn};
use super::details::{described, detail_lines, draw_details};
use super::state::{self, PINNED, RunListLine, Runs};
use super::{Act, RunAreas};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::texts::{CheckItem, Checklist, ChecklistUpdate};
use crate::face::tui::widgets::table::{self, TableLayout, TableRows};
use ::table::Record;
use study::analysis::run_list::SCREEN_COLUMNS;
use study::analysis::{RunTable, RunTableColumn};

/// Marks behind the status of a run: its cell's rounds vary widely, or its samples.
const NOISY: &str = "!";
const UNSTEADY: &str = "~";

/// Example that an empty filter shows while it has the focus.
const EXAMPLE: &str = "ladder tp=8 tpot<20";

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
    let RunAreas { top, about, table: area, details } = runs.areas(body);
    let (columns, specs) = columns::columns(runs, &stored.table, area.width);
    let shown = table::lay_out(&specs, area, Some(runs.scroll));
    // a list longer than the window shows the position
    let rows = usize::from(area.height.saturating_sub(1));
    let runs_above = runs.lines.iter().take(runs.list.selected + 1);
    let place = (runs.lines.len() > rows)
        .then(|| runs_above.filter(|line| !matches!(line, RunListLine::Group { .. })).count().max(1));
    let more = match runs.lines.is_empty() {
        true => String::new(),
        false => table::rows_out_of_view(&runs.list, runs.lines.len(), area).unwrap_or_default(),
    };
    // the table writes the number of rows out of view there if its titles take the whole header
    let about = Rect { width: area.width, ..about };
    let (about, end) = cut_left(about, about.width.saturating_sub(more.width() as u16));
    let (filter, rest) = draw_top(buf, (top, about), runs, cx, (stored, place), &shown);
    if runs.lines.is_empty() {
        empty(buf, area, &nothing(runs, cx), theme);
    } else {
        draw_table(buf, area, theme, runs, stored, (&columns, &specs));
        let is_taken = end.intersection(buf.area).positions().any(|at| buf[at].symbol() != " ");
        let rest = if is_taken { rest } else { Rect { width: rest.width + end.width, ..rest } };
        draw_about(buf, rest, cx, runs, (&stored.table, &columns, &shown), filter == about);
        match runs.shows_detail(body.width) {
            true => draw_details(buf, details, cx, runs, stored),
            false => draw_hidden(buf, details, theme, runs, stored, (&columns, &shown)),
        }
    }
    runs.filter.draw_offers(buf, filter, body, theme);
}

/// Reason no run is shown, and the keys that show runs again.
fn nothing(runs: &Runs, cx: &Context) -> String {
    let why = match (&runs.nothing, runs.filter.experiment()) {
        (Some(why), _) => why.clone(),
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

/// Draws the counts, the scope and the filter, which has the second row if the first has no room. Returns the row of the
/// filter, and the rest of the second.
fn draw_top(
    buf: &mut Buffer,
    (top, about): (Rect, Rect),
    runs: &Runs,
    cx: &Context,
    (stored, place): (&Snapshot, Option<usize>),
    shown: &TableLayout,
) -> (Rect, Rect) {
    let theme = cx.theme;
    let mut count = format!(" {} of {}", runs.count, counted(stored.records.len(), "run"));
    let mut states = String::new();
    if stored.running > 0 {
        states += &format!(", {} ▶ running", stored.running);
    }
    for (status, runs) in runs.bad.iter().filter(|_| top.width >= 100) {
        states += &format!(", {runs} {} {}", status.glyph(), status.as_str());
    }
    if !runs.marked.is_empty() {
        states += &format!(", {} marked", runs.marked.len());
        let hidden = runs.hidden_marks(stored);
        if hidden > 0 {
            states += &format!(" ({hidden} not shown)");
        }
    }
    if runs.only_marked {
        states += " (only these)";
    }
    let badge = runs.provenance.map_or_else(String::new, |provenance| format!(" [{provenance}]"));
    // hidden columns are counted on the right
    let hidden = shown.words_in(top.width);
    let taken = states.width() + badge.width() + hidden.width() + 2;
    let is_filtered = runs.filter.typing || !runs.filter.value().is_empty();
    let filter = runs.filter.whole_width(top);
    let is_below = count.width() + taken + filter > top.width.into();
    let is_empty = runs.filter.typing && runs.filter.value().is_empty();
    let example = if is_empty { EXAMPLE } else { "" };
    // the scope and the filter come before the model and the row
    let taken = taken + if is_below { 0 } else { filter + example.width() };
    let model = runs.model.as_ref().map(|model| format!(", {model}"));
    let out_of_scope = (runs.out_of_scope > 0 && !is_filtered).then(|| {
        let key = cx.keys.label(Action::Scope);
        format!(" ({} of other experiments: {key})", runs.out_of_scope)
    });
    for more in [model, place.map(|place| format!(", row {place}")), out_of_scope] {
        let fits = |more: &String| count.width() + more.width() + taken <= top.width.into();
        let more = more.filter(fits);
        count.extend(more);
    }
    count += &states;
    let (first, columns) = cut_left(top, top.width.saturating_sub(hidden.width() as u16));
    // the provenance is cut last
    let room = usize::from(first.width).saturating_sub(badge.width());
    let count = leading_clauses(&count, room, &[", ", " ("]).unwrap_or(&count);
    let mut x = put(buf, top, top.x, top.y, count, theme.style(Role::Title));
    if let Some(provenance) = runs.provenance {
        x = put(buf, top, x, top.y, &badge, theme.provenance(provenance));
    }
    put(buf, columns, columns.x, columns.y, &hidden, theme.style(Role::Dim));
    let row = match is_below {
        true => cut_left(about, 1).1,
        false => cut_left(first, (x + 2).saturating_sub(first.x)).1,
    };
    let x = runs.filter.draw(buf, row, theme, example);
    if let (None, false, Some(first)) = (&runs.filter.wrong, runs.filter.typing, stored.damaged.first())
    {
        let note = format!("✘ {} unreadable: {first}", stored.damaged.len());
        put(buf, row, x, row.y, &note, theme.style(Role::Bad));
    }
    match is_below {
        true => (about, cut_left(about, x.saturating_sub(about.x)).1),
        false => (top, about),
    }
}

/// Texts that the window cuts: the order with the options in which the shown runs differ, and the details of the selected
/// run, or its values that the table hides.
pub fn notes(runs: &Runs, body: Rect, cx: &Context) -> Vec<ScreenNote> {
    let Some(stored) = cx.stored.as_ref().filter(|_| !runs.lines.is_empty()) else { return Vec::new() };
    let mut buf = Buffer::empty(body);
    draw(&mut buf, body, runs, cx);
    let text_of = |row: Rect| row.positions().map(|at| buf[at].symbol()).collect::<String>();
    let rows: Vec<String> = body.rows().map(text_of).collect();
    let is_cut = |text: &str| !rows.iter().any(|row| row.contains(text));
    let areas = runs.areas(body);
    let (columns, specs) = columns::columns(runs, &stored.table, areas.table.width);
    let shown = table::lay_out(&specs, areas.table, Some(runs.scroll));
    let about = about_texts(cx, runs, (&stored.table, &columns, &shown)).swap_remove(0);
    let is_folded = is_cut(&about);
    let mut notes = vec![ScreenNote::new(about, is_folded)];
    let Some(record) = runs.described(stored) else { return notes };
    let (heading, lines) = if runs.shows_detail(body.width) {
        let annotations = &stored.annotations;
        let (lines, _, fitting) = detail_lines(record, annotations, inside(areas.details));
        let described = described(record, annotations).into_iter();
        let described = described.map(|(name, says)| format!("{name}: {says}"));
        ("details of", described.filter(|_| fitting < lines.len()).collect::<Vec<_>>())
    } else {
        let hidden = hidden_values(runs, stored, (&columns, &shown)).into_iter();
        let hidden = hidden.map(|(name, text)| format!("{name} {text}"));
        ("also of", hidden.filter(|text| is_cut(text)).collect())
    };
    if !lines.is_empty() {
        notes.push(ScreenNote::new(format!("{heading} {}:\n{}", record.run, lines.join("\n")), true));
    }
    notes
}

/// Draws the longest of [`about_texts`] that fits. Next to the filter, draws only a text that fits whole.
fn draw_about(
    buf: &mut Buffer,
    area: Rect,
    cx: &Context,
    runs: &Runs,
    table: (&RunTable, &[RunColumn], &TableLayout),
    is_beside_filter: bool,
) {
    let texts = about_texts(cx, runs, table);
    let room = area.width.saturating_sub(2);
    let text = first_fitting(&texts, room);
    if is_beside_filter && text.width() > room.into() {
        return;
    }
    put(buf, area, area.x + 1, area.y, text, cx.theme.style(Role::Dim));
}

/// The order, and the options in which the shown runs differ unseen or that they share; then shorter forms.
fn about_texts(
    cx: &Context,
    runs: &Runs,
    (table, columns, shown): (&RunTable, &[RunColumn], &TableLayout),
) -> Vec<String> {
    let (order, short) = (runs.order_words(table), runs.short_order_words(table));
    let first = runs.marked_order().into_iter().next().map(|(name, _)| name);
    let is_marked = shown.places.iter().any(|place| Some(&columns[place.column].name) == first.as_ref());
    // without a title that marks the order, its words are cut last
    let least = short.split(", ").next().unwrap_or_default().to_owned();
    let hidden = columns::hidden_differences(runs, table, columns, shown);
    let key = cx.key::<Runs>(Act::Columns);
    let mut texts = match hidden.is_empty() {
        true => vec![order, short],
        false => {
            let all = hidden.join(", ");
            let options = counted(hidden.len(), "option");
            let count = format!("differ also in {options}: {key}");
            vec![
                format!("{order}; runs differ also in {all} ({key} adds columns)"),
                format!("{order}; {count}"),
                format!("{short}; {count}"),
                format!("{short}; {options} hidden: {key}"),
                if is_marked { count } else { short },
            ]
        }
    };
    if !is_marked {
        texts.push(least);
    }
    if !runs.shared.is_empty() {
        texts.insert(0, format!("{}; all {}", texts[0], runs.shared.join(", ")));
    }
    // marks are explained before details of the order
    let legends = legends(cx, runs);
    let explained =
        legends.iter().flat_map(|legend| texts.iter().map(move |t| format!("{t}; {legend}")));
    let explained: Vec<String> = explained.chain(legends.last().cloned()).collect();
    texts.splice(0..0, explained);
    texts
}

/// Meanings of the marks that the shown runs have; then shorter. Empty without marks.
fn legends(cx: &Context, runs: &Runs) -> Vec<String> {
    let key = cx.key::<Runs>(Act::Group);
    let noisy = |ratio: f64| {
        let short = format!("{NOISY} rounds differ up to {ratio:.1}x");
        [format!("{NOISY} noisy: rounds of one cell differ up to {ratio:.1}x ({key} pools them)"), short]
    };
    let unsteady = runs.has_unsteady.then(|| format!("{UNSTEADY} samples vary widely"));
    match (runs.noise.map(noisy), unsteady) {
        (Some(noisy), Some(unsteady)) => noisy.map(|noisy| format!("{noisy}; {unsteady}")).into(),
        (Some(noisy), None) => noisy.into(),
        (None, unsteady) => unsteady.into_iter().collect(),
    }
}

fn draw_table(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    runs: &Runs,
    stored: &Snapshot,
    (columns, specs): (&[RunColumn], &[table::TableColumn]),
) {
    let rows = TableRows { scrolled: Some(runs.scroll), ..TableRows::new(&runs.list, runs.lines.len()) };
    table::draw(buf, area, theme, specs, rows, |row, column, width| {
        let mut line = cell(runs, stored, runs.lines[row], &columns[column], width, theme);
        if column == 0 {
            line.spans.splice(0..0, status(runs, stored, runs.lines[row], theme));
        }
        line
    });
    for place in table::lay_out(specs, area, Some(runs.scroll)).places {
        let column = &stored.table.columns()[columns[place.column].column];
        if let Some(mark) = columns::mark_behind(runs, column, &specs[place.column]) {
            // after the title or before it; if it would touch another title there, in a blank or over the last letter
            let behind = place.x + place.width;
            let title = specs[place.column].title.trim_start();
            let before = behind.saturating_sub(title.width() as u16 + 1);
            let is_blank = |x: u16| {
                x >= area.right() || buf.cell((x, area.y)).is_none_or(|cell| cell.symbol() == " ")
            };
            let x = if behind < area.right() && is_blank(behind) && is_blank(behind + 1) {
                behind
            } else if is_blank(before) && is_blank(before.saturating_sub(1)) {
                before
            } else {
                behind.saturating_sub(title.rfind(' ').map_or(1, |at| title[at..].width() as u16))
            };
            put(buf, area, x, area.y, mark, theme.style(Role::Title));
        }
    }
    let group = runs.group(&stored.table).and_then(|at| stored.table.columns().get(at));
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

/// Mark, status (of a cell, whether it is folded), and a sign of rounds or samples that vary widely, before the first
/// column.
fn status(runs: &Runs, stored: &Snapshot, line: RunListLine, theme: Theme) -> Vec<Span<'static>> {
    let record = |row: u32| &stored.records[row as usize];
    let (rows, state) = match line {
        RunListLine::Run(row) => {
            let status = record(row).status;
            (vec![row], Span::styled(status.glyph(), theme.status(status)))
        }
        RunListLine::Cell(at) => {
            let cell = &runs.cells[at as usize];
            let fold = if cell.is_unfolded { "▾" } else { "▸" };
            (cell.rows.clone(), Span::styled(fold, theme.style(Role::Title)))
        }
        RunListLine::Group { .. } => return Vec::new(),
    };
    let any = |is: &dyn Fn(&Record) -> bool| rows.iter().any(|row| is(record(*row)));
    let mark = if any(&|run| runs.marked.contains(&run.run)) { "●" } else { " " };
    let unsteady = match any(&|run| runs.noisy.contains_key(&run.run)) {
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
    let (fitting, mut spans) = (fitting(runs, record, spec, line, width), Vec::new());
    // a round under the line of its cell, which names the options
    let is_round = |row: u32| runs.cells.iter().any(|cell| cell.rows.contains(&row));
    let style = match &*column.name {
        "run" => theme.style(Role::Dim),
        "status" => theme.status(record.status),
        state::PROVENANCE => theme.provenance(record.provenance),
        "architecture" if matches!(line, RunListLine::Run(row) if is_round(row)) => {
            theme.style(Role::Dim)
        }
        "tags" => theme.style(Role::Key),
        _ => theme.style(Role::Text),
    };
    let found = style.add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
    let mut at = 0;
    for letters in runs.bound.highlight(column.column, spec, &fitting) {
        if let (Some(before), Some(part)) =
            (fitting.get(at..letters.start), fitting.get(letters.clone()))
        {
            spans.push(Span::styled(before.to_owned(), style));
            spans.push(Span::styled(part.to_owned(), found));
            at = letters.end;
        }
    }
    spans.push(Span::styled(fitting[at..].to_owned(), style));
    text::Line::from(spans)
}

/// Text of a line in a column.
fn text_of(runs: &Runs, line: RunListLine, column: &RunTableColumn) -> String {
    match line {
        RunListLine::Run(row) => columns::cell_text(column, row as usize),
        RunListLine::Cell(at) => runs.cells[at as usize].text(column),
        RunListLine::Group { .. } => String::new(),
    }
}

/// Text of a line in a column, shortened to this width.
fn fitting(
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
fn hidden_values<'a>(
    runs: &Runs,
    stored: &'a Snapshot,
    (columns, shown): (&[RunColumn], &TableLayout),
) -> Vec<(&'a str, String)> {
    let line = runs.lines.get(runs.list.selected).copied();
    let Some((line, record)) = line.and_then(|line| Some((line, runs.record_of(line, stored)?))) else {
        return Vec::new();
    };
    let unseen = runs.unseen.iter().map(|column| (None, *column));
    let chosen = columns.iter().enumerate().map(|(at, column)| (Some(at), column.column));
    let hidden = |(at, column): (Option<usize>, usize)| {
        let spec = stored.table.columns().get(column)?;
        let text = text_of(runs, line, spec);
        let is_whole = |place: &table::ColumnPosition| {
            Some(place.column) == at && fitting(runs, record, spec, line, place.width) == text
        };
        let is_shown = text.is_empty() || text == "-" || shown.places.iter().any(is_whole);
        (!is_shown).then(|| (columns::name(spec), text))
    };
    unseen.chain(chosen).filter_map(hidden).collect()
}

/// Draws [`hidden_values`], uncut as long as there is room.
fn draw_hidden(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    runs: &Runs,
    stored: &Snapshot,
    table: (&[RunColumn], &TableLayout),
) {
    let (mut x, mut y, mut is_cut) = (area.x + 1, area.y, false);
    for (name, text) in hidden_values(runs, stored, table) {
        let needed = (name.width() + 1 + text.width()) as u16;
        if x + needed > area.right() && x > area.x + 1 && y + 1 < area.bottom() {
            (x, y) = (area.x + 1, y + 1);
        }
        is_cut |= x + needed > area.right();
        x = put(buf, area, x, y, name, theme.style(Role::Dim)) + 1;
        let room = area.right().saturating_sub(x);
        x = put(buf, area, x, y, &cut(&text, room), theme.style(Role::Text)) + 2;
    }
    if is_cut {
        put(buf, area, area.right().saturating_sub(1), y, "…", theme.style(Role::Dim));
    }
}

fn cut_front(text: &str, width: u16) -> String {
    let (width, letters) = (usize::from(width), text.chars().count());
    if letters <= width || width < 2 {
        return cut(text, width as u16);
    }
    let end: String = text.chars().skip(letters + 1 - width).collect();
    format!("…{end}")
}

/// Truncates an id in the middle: its end distinguishes runs of the same second and rows of a batch.
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

struct ColumnChoice {
    names: Vec<String>,
    /// Number of visible columns, which are the first in `names`.
    shown: usize,
    /// Columns whose value all listed runs share.
    same: HashSet<String>,
}

impl ColumnChoice {
    fn items(&self, cx: &Context) -> Vec<CheckItem> {
        let item = |(at, name): (usize, &String)| {
            let (mark, role) = match at < self.shown {
                _ if PINNED.contains(&name.as_str()) => ("[always]", Role::Dim),
                // shown once the runs differ in it
                true if self.same.contains(name) => ("[same]", Role::Text),
                true => ("[x]", Role::Text),
                false => ("[ ]", Role::Dim),
            };
            let about = title_of(name, cx).unwrap_or_default();
            CheckItem { mark: mark.into(), name: name.clone(), about, role }
        };
        self.names.iter().enumerate().map(item).collect()
    }

    /// Handles a key at a column; returns the new selection, or `None` if the key is not handled.
    fn key(&mut self, code: KeyCode, at: usize) -> Option<usize> {
        let Self { names, shown, .. } = self;
        let is_movable = |at: usize| names.get(at).is_some_and(|name| !PINNED.contains(&name.as_str()));
        match code {
            KeyCode::Char(' ') | KeyCode::Enter if is_movable(at) => {
                let name = names.remove(at);
                let off = at < *shown;
                *shown -= usize::from(off);
                names.insert(*shown, name);
                *shown += usize::from(!off);
                // the next column has moved here
                Some(if off { at } else { (at + 1).min(names.len() - 1) })
            }
            KeyCode::Char('J') | KeyCode::Right if at + 1 < *shown && is_movable(at) => {
                names.swap(at, at + 1);
                Some(at + 1)
            }
            KeyCode::Char('K') | KeyCode::Left
                if at < *shown && is_movable(at) && is_movable(at.checked_sub(1)?) =>
            {
                names.swap(at, at - 1);
                Some(at - 1)
            }
            KeyCode::Char('d') => {
                let default =
                    |name: &String| SCREEN_COLUMNS.iter().position(|column| column.name == name);
                names.sort_by_key(|name| default(name).unwrap_or(SCREEN_COLUMNS.len()));
                *shown = names.iter().filter(|name| default(name).is_some()).count();
                Some(at)
            }
            _ => None,
        }
    }
}

impl Runs {
    /// Record of a line: of a cell, of the run that stands for it.
    fn record_of<'a>(&self, line: RunListLine, stored: &'a Snapshot) -> Option<&'a Record> {
        let row = match line {
            RunListLine::Run(row) => row,
            RunListLine::Cell(at) => self.cells.get(at as usize)?.row,
            RunListLine::Group { .. } => return None,
        };
        stored.records.get(row as usize)
    }

    pub(super) fn choose_columns(&self, cx: &mut Context) {
        let Some(stored) = cx.stored.clone() else { return };
        let table = &stored.table;
        let mut names: Vec<String> =
            self.columns.iter().filter(|name| table.find(name).is_some()).cloned().collect();
        let shown = names.len();
        let others = table.shown().map(|column| column.field.name.to_string());
        names.extend(others.filter(|name| !self.columns.contains(name)));
        let mut choice = ColumnChoice { names, shown, same: self.empty.clone() };
        let items = choice.items(cx);
        let hints = &[
            ("Space", "on or off"),
            ("J K", "move"),
            ("d", "default"),
            ("/", "search"),
            ("Esc", "close"),
        ];
        cx.lay(Checklist::new("columns", hints, items, move |runs: &mut Self, code, at, cx| {
            let Some(at) = choice.key(code, at) else { return ChecklistUpdate::Nothing };
            runs.columns = choice.names[..choice.shown].to_vec();
            runs.scroll = 0;
            if let Some(stored) = &cx.stored {
                runs.note_empty(&stored.table);
            }
            ChecklistUpdate::Items(choice.items(cx), at)
        }));
    }
}

fn title_of(name: &str, cx: &Context) -> Option<String> {
    let table = &cx.stored.as_ref()?.table;
    let column = table.columns().get(table.find(name)?)?;
    let (title, short) = (columns::name(column), column.field.short());
    // if the title itself can be typed, the short name adds nothing
    let typed =
        if short == name || column.field.is(title) { String::new() } else { format!("  ({short})") };
    Some(format!("{title}{typed}"))
}
