//! Screen 1: the list of experiments and the editor of the selected one.
//!
//! ```text
//! | ╭ experiments ─────╮ ╭ quickstart* ─────────────────────╮ |
//! | │ ▶ quickstart* 3/9 │ │ question                         │ |
//! | │   paper-70b  0/48 │ │ grid   tp  [2]  4   8            │ |
//! | │                   │ │ same for all cells  ...          │ |
//! | │                   │ │ ── what a sweep does ──────────  │ |
//! | ╰───────────────────╯ ╰──────────────────────────────────╯ |
//! ```

use super::draft::{Draft, Row, RowKind, name_before_edits};
use super::state::Entry;
use super::typing::{Typing, What};
use super::{Act, Experiments, areas};
use crate::face::tui::action::Action;
use crate::face::tui::format::clock;
use crate::face::tui::prelude::*;
use lab::sweep::Experiment;
use lab::sweep::forecast::Forecast;
use table::Provenance;

pub fn draw(buf: &mut Buffer, body: Rect, experiments: &Experiments, cx: &Context) {
    let theme = cx.theme;
    let (left, right) = areas(body);
    let list = frame(buf, left, "experiments", theme);
    for (row, y) in experiments.list.rows(experiments.len(), list) {
        match &experiments.entries {
            None => {
                let name = format!("… {}", experiments.names[row]);
                put(buf, list, list.x, y, &name, theme.style(Role::Dim));
            }
            Some(entries) => {
                draw_entry(buf, Rect { y, height: 1, ..list }, experiments, cx, row, &entries[row]);
            }
        }
        if row == experiments.list.selected {
            select(buf, list, y, theme);
        }
    }
    let Some(entry) = experiments.selected() else {
        let inner = frame(buf, right, "", theme);
        if experiments.entries.is_none() {
            empty(buf, inner, "planning the cells of the experiments…", theme);
        } else {
            let reload = cx.keys.label(Action::Reload);
            let text =
                format!("no experiments: write one to experiments/NAME.toml, then press {reload}");
            empty(buf, inner, &text, theme);
        }
        return;
    };
    let edited = experiments.draft().is_some_and(|draft| draft.revisions.is_edited());
    let mark = if edited { "* edited, not saved" } else { "" };
    let inner = frame(buf, right, &format!("{}{mark} · {}", entry.name, entry.place), theme);
    draw_editor(buf, inner, experiments, cx, entry);
}

/// `▶ quickstart*   3/9`: state, name, edit mark, stored runs.
fn draw_entry(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    row: usize,
    entry: &Entry,
) {
    let theme = cx.theme;
    let draft = experiments.drafts.get(&entry.name);
    let is_this = |name: &String| name_before_edits(name) == entry.name;
    let running = cx.sweeps.running.as_ref().is_some_and(is_this);
    let queued = cx.sweeps.queued.iter().any(is_this);
    let broken = match draft.and_then(|draft| draft.checked.as_ref()) {
        Some(checked) => checked.experiment.is_err(),
        None => entry.experiment.is_err(),
    };
    let (glyph, role) = match () {
        () if running => ("▶ ", Role::Active),
        () if queued => ("… ", Role::Active),
        () if broken => ("✘ ", Role::Bad),
        () => ("  ", Role::Text),
    };
    let star = if draft.is_some_and(|draft| draft.revisions.is_edited()) { "*" } else { "" };
    let stored = match draft.filter(|draft| draft.revisions.is_edited()) {
        // counts for the file's cells do not apply to edited ones
        Some(draft) => draft.stored(),
        None => experiments.stored.get(row).copied().unwrap_or_default(),
    };
    let counts =
        if stored.runs > 0 { format!("{}/{}", stored.done, stored.runs) } else { String::new() };
    let right = area.right().saturating_sub(counts.width() as u16);
    let name = Rect { width: area.width.saturating_sub(counts.width() as u16 + 1), ..area };
    let x = put(buf, name, area.x, area.y, glyph, theme.style(role));
    let x = put(buf, name, x, area.y, &entry.name, theme.style(role));
    put(buf, name, x, area.y, star, theme.style(Role::Warn));
    let done = stored.runs > 0 && stored.done >= stored.runs;
    let role = if done { Role::Good } else { Role::Dim };
    put(buf, area, right, area.y, &counts, theme.style(role));
}

const NAME: usize = 26;

pub struct Parts {
    top: Rect,
    pub rows: Rect,
    bottom: Rect,
}

pub fn parts(experiments: &Experiments, inner: Rect) -> Parts {
    let wide = inner.width.saturating_sub(2);
    let question = experiments.draft().map_or(0, |draft| question(draft, wide).len());
    let (top, rest) = cut_top(inner, (question as u16 + 1).min(inner.height / 4));
    let (rows, bottom) = cut_bottom(rest, (inner.height * 2 / 5).clamp(8, 18));
    Parts { top, rows, bottom }
}

fn question(draft: &Draft, width: u16) -> Vec<String> {
    let row = draft.rows.iter().find(|row| row.name == "question" && row.kind == RowKind::Setting);
    row.map(|row| wrap(&row.values.join(" "), usize::from(width))).unwrap_or_default()
}

/// Line of a row, counting headings.
fn line_of(draft: &Draft, row: usize) -> usize {
    let axes = draft.rows.iter().filter(|row| row.kind == RowKind::Axis).count();
    row + 1 + usize::from(row >= axes)
}

/// Scrolls to keep the selected row in view, with the heading if it is the first row.
pub fn fit(draft: &mut Draft, height: usize) {
    let (at, lines) = (line_of(draft, draft.list.selected), draft.rows.len() + 2);
    let height = height.max(1);
    let offset = draft.list.offset.min(at.saturating_sub(1)).max((at + 1).saturating_sub(height));
    draft.list.offset = offset.min(lines.saturating_sub(height));
}

fn values_x(draft: &Draft, area: Rect) -> u16 {
    let widest = draft.rows.iter().map(|row| row.name.width()).max().unwrap_or(0).min(NAME);
    area.x + 2 + widest as u16 + 1
}

struct Chip {
    /// Column of the editor, from 1.
    column: usize,
    x: u16,
    text: String,
}

/// Values of a row that fit, including the selected one. The flags are true if values are cut on the
/// left and on the right.
fn chips(row: &Row, column: usize, x: u16, right: u16) -> (Vec<Chip>, bool, bool) {
    let text = |i: usize, value: &String| {
        if i + 1 == column { format!("[{value}]") } else { format!(" {value} ") }
    };
    let texts: Vec<String> = row.values.iter().enumerate().map(|(i, value)| text(i, value)).collect();
    let width = usize::from(right.saturating_sub(x));
    let mut first = 0;
    let selected = column.saturating_sub(1);
    let length = |from: usize| -> usize {
        texts.iter().take(selected + 1).skip(from).map(|text| text.width()).sum()
    };
    while first < selected && length(first) + 2 > width {
        first += 1;
    }
    let (mut shown, mut at, mut cut) = (Vec::new(), x + u16::from(first > 0) * 2, false);
    for (i, text) in texts.into_iter().enumerate().skip(first) {
        if at >= right {
            cut = true;
            break;
        }
        let end = at.saturating_add(text.width() as u16);
        shown.push(Chip { column: i + 1, x: at, text });
        at = end;
    }
    (shown, first > 0, cut || at > right)
}

/// Row and column of the editor at a window position.
pub fn hit(experiments: &Experiments, area: Rect, at: Position) -> Option<(usize, usize)> {
    let draft = experiments.draft()?;
    let rows = parts(experiments, inside(area)).rows;
    if !rows.contains(at) {
        return None;
    }
    let wanted = draft.list.offset + usize::from(at.y - rows.y);
    let row = (0..draft.rows.len()).find(|row| line_of(draft, *row) == wanted)?;
    let x = values_x(draft, rows);
    let column = if draft.list.selected == row { draft.column } else { 0 };
    let (shown, ..) = chips(draft.rows.get(row)?, column, x, rows.right());
    let on = |chip: &&Chip| (chip.x..chip.x + chip.text.width() as u16).contains(&at.x);
    Some((row, shown.iter().find(on).map_or(0, |chip| chip.column)))
}

fn draw_editor(buf: &mut Buffer, inner: Rect, experiments: &Experiments, cx: &Context, entry: &Entry) {
    let theme = cx.theme;
    let parts = parts(experiments, inner);
    let Some(draft) = experiments.draft() else { return };
    let wide = inner.width.saturating_sub(2);
    for (row, text) in question(draft, wide).iter().take(usize::from(parts.top.height)).enumerate() {
        line(
            buf,
            parts.top,
            row as u16,
            &[(" ", theme.style(Role::Title)), (text, theme.style(Role::Title))],
        );
    }
    draw_rows(buf, parts.rows, experiments, cx, draft);
    draw_bottom(buf, parts.bottom, experiments, cx, draft, entry);
}

fn draw_rows(buf: &mut Buffer, area: Rect, experiments: &Experiments, cx: &Context, draft: &Draft) {
    let theme = cx.theme;
    let axes = draft.rows.iter().filter(|row| row.kind == RowKind::Axis).count();
    let y_of = |at: usize| {
        let row = at.checked_sub(draft.list.offset).filter(|row| *row < usize::from(area.height))?;
        Some(area.y + row as u16)
    };
    let heading = |buf: &mut Buffer, at: usize, text: &str, more: &str| {
        if let Some(y) = y_of(at) {
            let x = put(buf, area, area.x + 1, y, text, theme.style(Role::Title));
            put(buf, area, x + 1, y, more, theme.style(Role::Dim));
        }
    };
    if draft.rows.is_empty() {
        return;
    }
    let none = format!("(one cell; {} adds an axis)", cx.key::<Experiments>(Act::AddAxis));
    heading(buf, 0, "grid", if axes == 0 { &none } else { "" });
    heading(buf, axes + 1, "same for all cells", "");
    for (index, row) in draft.rows.iter().enumerate() {
        if let Some(y) = y_of(line_of(draft, index)) {
            draw_row(buf, Rect { y, height: 1, ..area }, experiments, cx, draft, index, row);
        }
    }
    let lines = draft.rows.len() + 2;
    if draft.list.offset + usize::from(area.height) < lines {
        let y = area.bottom().saturating_sub(1);
        put(buf, area, area.right().saturating_sub(2), y, "↓", theme.style(Role::Dim));
    }
}

fn draw_row(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    draft: &Draft,
    index: usize,
    row: &Row,
) {
    let theme = cx.theme;
    let selected = experiments.editing && draft.list.selected == index;
    let column = if selected { draft.column } else { 0 };
    let role = if row.kind == RowKind::Default { Role::Dim } else { Role::Text };
    let style = theme.style(role);
    if selected {
        put(buf, area, area.x, area.y, "▸", theme.style(Role::Key));
    }
    let x = values_x(draft, area);
    let names = Rect { width: x.saturating_sub(area.x + 1), ..area };
    let on_name = if selected && column == 0 { theme.style(Role::Selected) } else { style };
    put(buf, names, area.x + 2, area.y, &row.name, on_name);
    let (shown, before, after) = chips(row, column, x, area.right());
    if before {
        put(buf, area, x, area.y, "‹", theme.style(Role::Dim));
    }
    let typed = typed(experiments, cx).and_then(|typed| in_place(typed, &row.name));
    let mut end = x;
    for chip in &shown {
        if typed.is_some_and(|(from, _)| chip.column > from) {
            break;
        }
        let style = if chip.column == column { theme.style(Role::Selected) } else { style };
        end = put(buf, area, chip.x, area.y, &chip.text, style);
    }
    if let Some((_, prompt)) = typed {
        let width = area.right().saturating_sub(end + 1);
        put(buf, area, end, area.y, "›", theme.style(Role::Key));
        prompt.field.draw(buf, Rect { x: end + 1, width, ..area }, theme);
        return;
    }
    if row.kind == RowKind::Default && row.name != "question" && row.values != ["default"] {
        put(buf, area, end, area.y, "(default)", theme.style(Role::Dim));
    }
    if after {
        put(buf, area, area.right().saturating_sub(1), area.y, "›", theme.style(Role::Dim));
    }
}

fn typed<'a>(experiments: &'a Experiments, cx: &'a Context) -> Option<(&'a Typing, &'a Prompt)> {
    experiments.typing.as_ref().zip(cx.top::<Prompt>().filter(|prompt| prompt.in_place))
}

/// Prompt of a row, and the number of values shown before it.
fn in_place<'a>((typing, prompt): (&Typing, &'a Prompt), name: &str) -> Option<(usize, &'a Prompt)> {
    let from = match typing.what {
        What::Value(index) | What::NewValue(index) => index,
        What::Values | What::Setting => 0,
    };
    (typing.name == name).then_some((from, prompt))
}

fn draw_bottom(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    draft: &Draft,
    entry: &Entry,
) {
    let theme = cx.theme;
    let title = "─ what a sweep would do ";
    let rule = "─".repeat(usize::from(area.width).saturating_sub(title.width()));
    line(buf, area, 0, &[(title, theme.style(Role::Title)), (&rule, theme.style(Role::Border))]);
    let (_, area) = cut_top(area, 1);
    let width = usize::from(area.width.saturating_sub(2));
    let mut lines: Vec<(String, Style)> = Vec::new();
    if let Some((_, prompt)) = typed(experiments, cx) {
        let (text, role) = match &prompt.error {
            Some(error) => (format!("✘ {error}"), Role::Bad),
            None => (prompt.hint.clone(), Role::Key),
        };
        lines.extend(wrap(&text, width).into_iter().map(|text| (text, theme.style(role))));
        if !prompt.field.offers.list().is_empty() {
            for (row, (text, style)) in lines.iter().enumerate() {
                line(buf, area, row as u16, &[(" ", *style), (text, *style)]);
            }
            let (_, listed) = cut_top(area, lines.len() as u16);
            return prompt.field.offers.draw_rows(buf, listed, theme);
        }
    }
    for (text, style) in said(cx, draft, entry) {
        lines.extend(wrap(&text, width).into_iter().map(|text| (text, style)));
    }
    let height = usize::from(area.height);
    for (row, (text, style)) in lines.iter().take(height).enumerate() {
        line(buf, area, row as u16, &[(" ", *style), (text, *style)]);
    }
    if lines.len() > height {
        let (x, y) = (area.right().saturating_sub(2), area.bottom().saturating_sub(1));
        put(buf, area, x, y, "…", theme.style(Role::Dim));
    }
}

fn said(cx: &Context, draft: &Draft, entry: &Entry) -> Vec<(String, Style)> {
    let theme = cx.theme;
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let mut lines = Vec::new();
    if let Some(broken) = &draft.broken {
        lines.push((format!("✘ {broken}"), theme.style(Role::Bad)));
        return lines;
    }
    if !draft.is_checked() {
        lines.push(("checking…".into(), dim));
    }
    match &draft.checked {
        None => match &entry.experiment {
            Ok(experiment) => lines.extend(provenances(experiment, theme)),
            Err(error) => lines.push((format!("✘ {error}"), theme.style(Role::Bad))),
        },
        Some(checked) => match &checked.experiment {
            Err(error) => lines.push((format!("✘ {error}"), theme.style(Role::Bad))),
            Ok(experiment) => {
                for answer in &checked.answers {
                    lines.push((format!("stored runs answer ({})", answer.basis), dim));
                    lines.extend(answer.told().map(|(sentence, doubts)| {
                        (sentence.to_owned(), if doubts { theme.style(Role::Warn) } else { text })
                    }));
                }
                if let Some(forecast) = &checked.forecast {
                    lines.push((counts(forecast), text));
                    lines.extend(time(forecast).map(|line| (line, text)));
                }
                lines.extend(provenances(experiment, theme));
                lines.extend(
                    experiment.notes.iter().map(|note| (format!("! {note}"), theme.style(Role::Warn))),
                );
                for unable in checked.forecast.iter().flat_map(|forecast| &forecast.unable) {
                    let (glyph, word) = (unable.status.glyph(), unable.status.as_str());
                    let cells = counted(unable.cells, "cell");
                    let first = if unable.cells == 1 { "" } else { "the first, " };
                    let said =
                        format!("{glyph} {cells} {word}: {first}{}: {}", unable.example, unable.reason);
                    lines.push((said, theme.status(unable.status)));
                }
            }
        },
    }
    lines
}

/// `24 cells x 3 rounds, 18 can run: 54 runs, 12 of them stored`.
fn counts(forecast: &Forecast) -> String {
    let unable: usize = forecast.unable.iter().map(|unable| unable.cells).sum();
    let mut text = counted(forecast.cells, "cell");
    if unable > 0 {
        text.push_str(&format!(", {} can run", forecast.cells - unable));
    }
    let rounds = counted(forecast.rounds as usize, "round");
    text.push_str(&format!(" x {rounds} = {}", counted(forecast.runs, "run")));
    match forecast.runs - forecast.stored {
        _ if forecast.stored == 0 => {}
        0 => text.push_str(", all stored: nothing would run"),
        left => text.push_str(&format!(": {} stored, {left} left", forecast.stored)),
    }
    text
}

fn time(forecast: &Forecast) -> Option<String> {
    if forecast.runs == forecast.stored {
        return None;
    }
    let Some(seconds) = forecast.seconds else { return Some("how long it takes is not known".into()) };
    let about = if seconds < 1.0 {
        "under a second".into()
    } else {
        format!("about {}", clock((seconds * 1e3) as u64))
    };
    let bases: Vec<String> = forecast
        .rests_on
        .iter()
        .map(|(basis, runs)| format!("{} ({})", basis.text(), counted(*runs, "run")))
        .collect();
    let rate =
        forecast.cells_per_s.map(|rate| format!("; {} cells/s", digits(rate))).unwrap_or_default();
    Some(format!("takes {about}, predicted from {}{rate}", bases.join(" and ")))
}

fn provenances(experiment: &Experiment, theme: Theme) -> Vec<(String, Style)> {
    let mut all: Vec<Provenance> = experiment.cells.iter().map(|cell| cell.spec.provenance()).collect();
    all.sort_unstable();
    all.dedup();
    let line = |p: Provenance| (format!("results will be: {p}"), theme.provenance(p));
    all.into_iter().map(line).collect()
}
