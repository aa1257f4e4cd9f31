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

use std::collections::BTreeSet;

use super::draft::{Draft, DraftRow, RowKind, name_before_edits};
use super::state::ExperimentEntry;
use super::typing::{EditTarget, InlineEdit};
use super::{Act, Experiments, list};
use crate::face::tui::format::unable_word;
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::result_card::{badge, card_lines, more_keys, result_lines};
use crate::face::tui::widgets::wrap::clauses_in_rows;
use lab::sweep::forecast::Forecast;
use study::answer::{Answer, CardLine};
use table::{Link, Provenance};

pub fn draw(buf: &mut Buffer, body: Rect, experiments: &Experiments, cx: &Context) {
    let theme = cx.theme;
    let areas = experiments.areas(body);
    list::welcome(buf, areas.welcome, experiments, cx);
    list::draw(buf, &areas, experiments, cx);
    let Some(entry) = experiments.selected() else {
        let named = experiments.names.get(experiments.list.selected);
        let title = named.map_or("", |(name, _)| name.as_str());
        let inner = frame(buf, areas.editor, title, theme);
        if experiments.entries.is_none() {
            let question = named.map_or("", |(_, question)| question.as_str());
            let width = usize::from(inner.width.saturating_sub(2));
            let early = experiments.early.map_or("", |_| "your key acts in a moment");
            let words = [question, early].into_iter().flat_map(|text| wrap(text, width));
            let reading = ("reading the grid…".to_owned(), Role::Dim);
            let lines = words.map(|text| (text, Role::Title)).chain([reading]);
            for (row, (text, role)) in (0..).zip(lines) {
                line(buf, inner, row, &[(" ", theme.style(Role::Text)), (&text, theme.style(role))]);
            }
        } else {
            let reload = cx.keys.label(Action::Reload);
            let text = format!("no experiments: write experiments/NAME.toml, then press {reload}");
            empty(buf, inner, &text, theme);
        }
        return;
    };
    let edited = experiments.draft().is_some_and(|draft| draft.revisions.is_edited());
    let title = match (edited, areas.editor.width) {
        (true, ..50) => format!("{}* not saved", entry.name),
        (true, _) => format!("{}* edited, not saved · {}", entry.name, entry.place),
        (false, _) => format!("{} · {}", entry.name, entry.place),
    };
    let inner = frame(buf, areas.editor, &title, theme);
    let checked = experiments.draft().and_then(|draft| draft.checked.as_ref());
    if checked.is_some_and(|checked| !checked.answers.is_empty()) && areas.editor.width >= 40 {
        more_keys(buf, areas.editor, &[], cx);
    }
    let border = Rect { width: areas.editor.width.saturating_sub(2), ..areas.editor };
    folded_notes(buf, cut_bottom(border, 1).1, &notes(experiments, areas.editor, cx), cx);
    draw_editor(buf, inner, experiments, cx, entry);
}

const NAME: usize = 26;

/// Least columns for a value that is typed into the grid, with its mark and cursor.
const LEAST_INPUT: u16 = 8;

pub struct EditorLayout {
    head: Head,
    top: Rect,
    pub rows: Rect,
    bottom: Rect,
}

pub fn parts(experiments: &Experiments, inner: Rect, cx: &Context) -> EditorLayout {
    let wide = usize::from(inner.width.saturating_sub(2));
    let shown = experiments.draft().zip(experiments.selected());
    let forecast =
        shown.map_or(0, |(draft, entry)| forecast_lines(cx, draft, entry, (wide, usize::MAX)).len());
    let head = shown.map_or_else(Head::default, |(draft, _)| {
        // the grid with its headings, and the forecast or the offers of a prompt
        let below = draft.rows.len() + 2 + (forecast + 1).max(LEAST_OFFERS);
        head(draft, wide, inner.height, below)
    });
    let most = match head.room {
        Some(room) => room as u16,
        // while editing in a small window, the grid takes the rows
        None if experiments.editing && inner.height < 20 => 0,
        None if inner.height < LOW && head.has_question => LOW_HEADLINES as u16,
        None if inner.height < LOW => low_rows(inner.height),
        None => inner.height / 2,
    };
    let (top, rest) = cut_top(inner, (head.lines.len() as u16 + 1).min(most));
    // the grid keeps some rows
    let least = if inner.height < LOW { 2 } else { 4 };
    let most = (inner.height * 2 / 5).clamp(8, 18).min(rest.height.saturating_sub(least));
    let bottom = match (typed(experiments, cx), shown) {
        // offers need room
        (Some(_), _) | (_, None) => most,
        (None, Some(_)) if inner.height < LOW => (forecast as u16 + 1).min(most).min(LOW_FORECAST),
        (None, Some(_)) => (forecast as u16 + 1).min(most),
    };
    let (mut rows, mut bottom) = cut_bottom(rest, bottom);
    // in a tall window the forecast follows the grid, with spare rows below both
    let needed = shown.map_or(0, |(draft, _)| draft.rows.len() as u16 + 3).max(least);
    let spare = rows.height.saturating_sub(needed);
    rows.height -= spare;
    (bottom.y, bottom.height) = (bottom.y - spare, bottom.height + spare);
    EditorLayout { head, top, rows, bottom }
}

/// Rows of the editor below which stored results take the place of the question.
const LOW: u16 = 16;

/// Rows of a headline in a low editor, and of the forecast with its rule; the rest is in the notes.
const LOW_HEADLINES: usize = 3;
const LOW_FORECAST: u16 = 4;

/// Rows for the stored results in a low editor: what the forecast and four axes leave.
const fn low_rows(height: u16) -> u16 {
    height.saturating_sub(LOW_FORECAST + 4)
}

/// Rows of the editor from which whole results may have room.
const TALL: u16 = 40;

/// Rows for the offers of a prompt, with their rule.
const LEAST_OFFERS: usize = 9;

/// Caveats of the editor: the cards of stored results, and the forecast.
pub fn notes(experiments: &Experiments, area: Rect, cx: &Context) -> Vec<ScreenNote> {
    let Some((draft, entry)) = experiments.draft().zip(experiments.selected()) else {
        return Vec::new();
    };
    let (inner, parts) = (inside(area), parts(experiments, inside(area), cx));
    let width = usize::from(inner.width.saturating_sub(2));
    // on the screen, a comma and the word for noise may follow the trust
    let bare = |word: &str| word.trim_end_matches(',').to_owned();
    let shown = |lines: Vec<&str>, rows: u16| {
        let rows = lines.into_iter().take(rows.into()).flat_map(str::split_whitespace);
        rows.map(bare).collect::<Vec<String>>()
    };
    let head = parts.head.lines.iter().map(|(text, _)| text.as_str());
    let above = shown(head.collect(), parts.top.height);
    let forecast = forecast_texts(cx, draft, entry);
    let wrapped: Vec<String> = forecast.iter().flat_map(|(text, _)| wrap(text, width)).collect();
    let height = parts.bottom.height.saturating_sub(1);
    let below = shown(wrapped.iter().map(String::as_str).collect(), height);
    let holds = |shown: &[String], text: &str| {
        let words: Vec<String> = text.split_whitespace().map(bare).collect();
        shown.windows(words.len().max(1)).any(|shown| shown == words)
    };
    let answers = draft.checked.iter().flat_map(|checked| &checked.answers);
    let cards = answers.flat_map(card).map(|(_, text)| ScreenNote::new(text, !holds(&above, text)));
    let forecast = forecast.iter().map(|(text, _)| ScreenNote::new(text, !holds(&below, text)));
    let question = question(draft).filter(|_| parts.head.has_question);
    let question = question.map(|text| ScreenNote::new(&text, !holds(&above, &text)));
    question.into_iter().chain(cards).chain(forecast).collect()
}

/// Card of an answer without the scope of its cells, which the grid shows.
fn card(answer: &Answer) -> impl Iterator<Item = (CardLine, &str)> {
    answer.card().map(move |(line, text)| match line {
        CardLine::Basis(_) => (line, answer.trust_and_scope().0),
        _ => (line, text),
    })
}

/// Question of an experiment and its stored results.
#[derive(Debug, Default)]
struct Head {
    lines: Vec<(String, Role)>,
    /// True if the lines begin with the question.
    has_question: bool,
    /// Rows for results with their tables and details, as on screen 2; `None` if they are cards.
    room: Option<usize>,
}

/// Question that the file of the experiment asks.
fn question(draft: &Draft) -> Option<String> {
    let row = draft.rows.iter().find(|row| row.name == "question" && row.kind == RowKind::Setting)?;
    Some(row.values.join(" ")).filter(|question| !question.is_empty())
}

/// Head of an editor of this width and height, in which other parts need `below` rows.
fn head(draft: &Draft, width: usize, height: u16, below: usize) -> Head {
    let answers = draft.checked.iter().flat_map(|checked| &checked.answers);
    let is_answered = answers.clone().next().is_some();
    let role = if is_answered { Role::Text } else { Role::Title };
    let mut lines: Vec<(String, Role)> = Vec::new();
    let question = question(draft).filter(|_| !is_answered || height >= LOW);
    let has_question = question.is_some();
    match question {
        Some(question) if height < LOW => {
            lines = low_lines(CardLine::Headline, &question, width, LOW_HEADLINES);
        }
        question => {
            let rows = question.map(|question| wrap(&question, width)).unwrap_or_default();
            lines.extend(rows.into_iter().map(|text| (text, role)));
        }
    }
    let with = |result: &dyn Fn(&Answer) -> Vec<(String, Role)>| {
        let mut lines = lines.clone();
        for answer in answers.clone() {
            if !lines.is_empty() {
                lines.push((String::new(), Role::Text));
            }
            lines.extend(result(answer));
        }
        lines
    };
    if is_answered && height >= TALL {
        let whole = with(&|answer| result_lines(std::slice::from_ref(answer), width));
        let with_details = with(&|answer| {
            let details = answer.details.iter().map(|text| (CardLine::Bullet, text.as_str()));
            let mut lines = result_lines(std::slice::from_ref(answer), width);
            lines.extend(card_lines(details, width));
            lines
        });
        let room = usize::from(height).saturating_sub(below);
        if let Some(lines) = [with_details, whole].into_iter().find(|lines| lines.len() <= room) {
            return Head { lines, has_question, room: Some(room) };
        }
    }
    let lines = with(&|answer| match height < LOW {
        true => low_card(answer, width, low_rows(height).into()),
        false => whole_card(answer, width),
    });
    Head { lines, has_question, room: None }
}

/// Card of an answer; the trust in noisy results is a row with the word for it, because the warning may be cut off below.
fn whole_card(answer: &Answer, width: usize) -> Vec<(String, Role)> {
    let noisy = answer.noise.as_ref().map(|_| badge(answer.trust_and_scope().0, true, width));
    let lines = card(answer).map(|(line, text)| match (line, &noisy) {
        (CardLine::Basis(_), Some(noisy)) => (line, noisy.as_str()),
        _ => (line, text),
    });
    card_lines(lines, width)
}

/// Card for a low editor: the headline, a row of the warning about noise, the trust, and bullets that fit whole.
fn low_card(answer: &Answer, width: usize, room: usize) -> Vec<(String, Role)> {
    let mut card: Vec<(CardLine, &str)> = card(answer).collect();
    card.sort_by_key(|(line, _)| match line {
        CardLine::Headline => 0,
        CardLine::Noise => 1,
        _ => 2,
    });
    let mut lines = Vec::new();
    for (line, text) in card {
        let most = if line == CardLine::Noise { 1 } else { LOW_HEADLINES };
        lines.extend(low_lines(line, text, width, most.min(room.saturating_sub(lines.len()))));
    }
    lines
}

/// Lines of a text of a card, at most `most`: its first clauses. If these fill too few rows, a headline or a warning is cut
/// after a word instead. A bullet that does not fit whole is left out.
fn low_lines(line: CardLine, text: &str, width: usize, most: usize) -> Vec<(String, Role)> {
    let is_enough = |kept: &&str| match line {
        CardLine::Basis(_) => true,
        CardLine::Headline | CardLine::Noise => *kept == text || 2 * kept.width() > width * most,
        CardLine::Bullet => *kept == text,
    };
    // the mark of a line takes two columns
    let is_marked = matches!(line, CardLine::Noise | CardLine::Bullet);
    let columns = if is_marked { width.saturating_sub(2) } else { width };
    if let Some(kept) = clauses_in_rows(text, (columns, most), &["; ", ", "]).filter(is_enough) {
        return card_lines([(line, kept)], width);
    }
    let words = match line {
        CardLine::Headline | CardLine::Noise => headline_rows(text, width as u16, most).join(" "),
        CardLine::Basis(_) | CardLine::Bullet => String::new(),
    };
    card_lines([(line, words.as_str())], width)
}

/// Rows of a grid from which the axes have a heading; in fewer, they come first.
const HEADED: usize = 6;

fn axes(draft: &Draft) -> usize {
    draft.rows.iter().filter(|row| row.kind == RowKind::Axis).count()
}

/// Rows of the heading above the axes; without axes, it says how to add one.
fn heading_rows(draft: &Draft, height: usize) -> usize {
    usize::from(height >= HEADED || axes(draft) == 0)
}

/// Lines of a grid of this height: rows and headings.
fn grid_lines(draft: &Draft, height: usize) -> usize {
    heading_rows(draft, height) + draft.rows.len() + 1
}

/// Line of a row in a grid of this height, counting headings.
fn line_of(draft: &Draft, row: usize, height: usize) -> usize {
    row + heading_rows(draft, height) + usize::from(row >= axes(draft))
}

/// Scrolls to keep the selected row in view, with the heading if it is the first row.
pub fn fit(draft: &mut Draft, height: usize) {
    let height = height.max(1);
    let (at, lines) = (line_of(draft, draft.list.selected, height), grid_lines(draft, height));
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

/// Columns of values from which the number of those that do not fit has a word.
const WORDED: usize = 24;

/// Columns for the number of values that do not fit, `+2 more`, or `+2` in a narrow row, in values of this width.
const fn more_columns(width: usize) -> usize {
    if width < WORDED { " +12".len() } else { " +12 more".len() }
}

/// Values of a row that fit whole; the one in column `in_view` is among them, cut if it is too wide. Also whether values are
/// hidden on the left, and how many on the right.
fn chips(row: &DraftRow, column: usize, in_view: usize, x: u16, right: u16) -> (Vec<Chip>, bool, usize) {
    let text = |i: usize, value: &String| {
        if i + 1 == column { format!("[{value}]") } else { format!(" {value} ") }
    };
    let texts: Vec<String> = row.values.iter().enumerate().map(|(i, value)| text(i, value)).collect();
    let width = usize::from(right.saturating_sub(x));
    let all: usize = texts.iter().map(|text| text.width()).sum();
    // a last value may end at the edge with its blank
    let is_cut = all > width + 1 && texts.len() > 1;
    let width = if is_cut { width.saturating_sub(more_columns(width)) } else { width };
    let right = x + width as u16;
    let selected = in_view.saturating_sub(1);
    let length = |from: usize| -> usize {
        texts.iter().take(selected + 1).skip(from).map(|text| text.width()).sum()
    };
    let first = (0..selected).find(|first| length(*first) + 2 <= width).unwrap_or(selected);
    let (mut shown, mut at, count) = (Vec::new(), x + u16::from(first > 0) * 2, texts.len());
    for (i, text) in texts.into_iter().enumerate().skip(first) {
        let end = at.saturating_add(text.width() as u16);
        // the blank after a value may be cut
        if end > right + 1 && i > first {
            break;
        }
        shown.push(Chip { column: i + 1, x: at, text });
        at = end;
    }
    let after = count.saturating_sub(first + shown.len());
    (shown, first > 0, after)
}

/// Row and column of the editor at a window position.
pub fn hit(experiments: &Experiments, area: Rect, at: Position, cx: &Context) -> Option<(usize, usize)> {
    let draft = experiments.draft()?;
    let rows = parts(experiments, inside(area), cx).rows;
    if !rows.contains(at) {
        return None;
    }
    let wanted = draft.list.offset + usize::from(at.y - rows.y);
    let height = usize::from(rows.height);
    let row = (0..draft.rows.len()).find(|row| line_of(draft, *row, height) == wanted)?;
    let x = values_x(draft, rows);
    let column = if draft.list.selected == row { draft.column } else { 0 };
    let (shown, ..) = chips(draft.rows.get(row)?, column, column, x, rows.right());
    let on = |chip: &&Chip| (chip.x..chip.x + chip.text.width() as u16).contains(&at.x);
    Some((row, shown.iter().find(on).map_or(0, |chip| chip.column)))
}

fn draw_editor(
    buf: &mut Buffer,
    inner: Rect,
    experiments: &Experiments,
    cx: &Context,
    entry: &ExperimentEntry,
) {
    let parts = parts(experiments, inner, cx);
    let Some(draft) = experiments.draft() else { return };
    let head = &parts.head.lines;
    for (row, (text, role)) in head.iter().take(usize::from(parts.top.height)).enumerate() {
        let style = cx.theme.style(*role);
        let is_last = row + 1 == usize::from(parts.top.height) && row + 1 < head.len();
        let is_cut = is_last && !text.ends_with('…');
        line(
            buf,
            parts.top,
            row as u16,
            &[(" ", style), (text, style), (if is_cut { " …" } else { "" }, style)],
        );
    }
    draw_rows(buf, &parts, experiments, cx, draft);
    draw_bottom(buf, parts.bottom, experiments, cx, draft, entry);
    // on the rule below the grid
    let (above, rows) = (draft.list.offset, usize::from(parts.rows.height));
    let below = grid_lines(draft, rows).saturating_sub(above + rows);
    let ruled = Rect { height: parts.rows.height + 1, ..parts.rows };
    hidden_rows(buf, ruled, above, below, cx.theme);
}

fn draw_rows(
    buf: &mut Buffer,
    parts: &EditorLayout,
    experiments: &Experiments,
    cx: &Context,
    draft: &Draft,
) {
    let (theme, area) = (cx.theme, parts.rows);
    let (axes, height) = (axes(draft), usize::from(area.height));
    let y_of = |at: usize| {
        let row = at.checked_sub(draft.list.offset).filter(|row| *row < height)?;
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
    let top = heading_rows(draft, height);
    if top > 0 {
        heading(buf, 0, "grid", if axes == 0 { &none } else { "" });
    }
    heading(buf, top + axes, "same for all cells", "");
    for (index, row) in draft.rows.iter().enumerate() {
        let Some(y) = y_of(line_of(draft, index, height)) else { continue };
        let area = Rect { y, height: 1, ..area };
        let is_selected = experiments.editing && draft.list.selected == index;
        let is_above = row.name == "question" && parts.head.has_question && !is_selected;
        let above = is_above.then(|| DraftRow { values: vec!["(above)".to_owned()], ..row.clone() });
        draw_row(buf, area, experiments, cx, draft, index, above.as_ref().unwrap_or(row));
    }
}

fn draw_row(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    draft: &Draft,
    index: usize,
    row: &DraftRow,
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
    // a question is a sentence: whole words of it, until it is selected
    if row.name == "question" && row.kind == RowKind::Setting && !selected {
        let room = usize::from(area.right().saturating_sub(x + 1));
        let question = whole_words(&row.values.join(" "), room);
        put(buf, area, x + 1, area.y, &question, theme.style(Role::Dim));
        return;
    }
    let typed = typed(experiments, cx).and_then(|typed| in_place(typed, &row.name));
    // the values next to an empty field are not its content
    let is_new = |typing: &InlineEdit| matches!(typing.what, EditTarget::NewValue(_));
    let mark = if experiments.typing.as_ref().is_some_and(is_new) { " add: ›" } else { "›" };
    // values make room for the text that is typed after them
    let (in_view, right) = match typed {
        Some((from, prompt)) => {
            let room = (prompt.field.value().width() as u16 + 2).max(LEAST_INPUT) + mark.width() as u16;
            (from, area.right().saturating_sub(room).max(x))
        }
        None => (column, area.right()),
    };
    let (shown, before, after) = chips(row, column, in_view, x, right);
    if before {
        put(buf, area, x, area.y, "‹", theme.style(Role::Dim));
    }
    let mut end = x;
    // values do not overlap the typed text, or the number of those that do not fit
    let room = usize::from(right.saturating_sub(x));
    let kept = if after > 0 { more_columns(room) as u16 } else { 0 };
    let values = Rect { width: right.saturating_sub(area.x + kept), ..area };
    for chip in &shown {
        if typed.is_some_and(|(from, _)| chip.column > from) {
            break;
        }
        let style = if chip.column == column { theme.style(Role::Selected) } else { style };
        end = put(buf, values, chip.x, area.y, &chip.text, style);
    }
    if let Some((_, prompt)) = typed {
        let x = put(buf, area, end.min(right), area.y, mark, theme.style(Role::Key));
        let width = area.right().saturating_sub(x);
        prompt.field.draw(buf, Rect { x, width, ..area }, theme);
        return;
    }
    if row.kind == RowKind::Default && row.name != "question" && row.values != ["default"] {
        put(buf, area, end, area.y, "(default)", theme.style(Role::Dim));
    }
    if let [value] = row.values.as_slice()
        && let Ok(Link::Emulated { alpha_us, gb_s }) = value.parse::<Link>()
    {
        let words = format!("({alpha_us} us + bytes/{gb_s} GB/s)");
        if usize::from(area.right().saturating_sub(end)) >= words.width() {
            put(buf, area, end, area.y, &words, theme.style(Role::Dim));
        }
    }
    if after > 0 {
        let more = if room < WORDED { format!("+{after}") } else { format!("+{after} more") };
        let x = area.right().saturating_sub(more.width() as u16);
        put(buf, area, x, area.y, &more, theme.style(Role::Dim));
    }
}

fn typed<'a>(experiments: &'a Experiments, cx: &'a Context) -> Option<(&'a InlineEdit, &'a Prompt)> {
    experiments.typing.as_ref().zip(cx.top::<Prompt>().filter(|prompt| prompt.in_place))
}

/// Prompt of a row, and the number of values shown before it.
fn in_place<'a>((typing, prompt): (&InlineEdit, &'a Prompt), name: &str) -> Option<(usize, &'a Prompt)> {
    let from = match typing.what {
        EditTarget::Value(index) | EditTarget::NewValue(index) => index,
        EditTarget::Values | EditTarget::Setting => 0,
    };
    (typing.name == name).then_some((from, prompt))
}

fn draw_bottom(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    draft: &Draft,
    entry: &ExperimentEntry,
) {
    let theme = cx.theme;
    let rule = "─".repeat(usize::from(area.width));
    line(buf, area, 0, &[(&rule, theme.style(Role::Border))]);
    let (_, area) = cut_top(area, 1);
    let width = usize::from(area.width.saturating_sub(2));
    let (mut lines, mut offers): (Vec<(String, Style)>, _) = (Vec::new(), None);
    if let Some((_, prompt)) = typed(experiments, cx) {
        let (text, role) = match &prompt.error {
            Some(error) => (format!("✘ {error}"), Role::Bad),
            None => (prompt.hint.clone(), Role::Key),
        };
        lines.extend(wrap(&text, width).into_iter().map(|text| (text, theme.style(role))));
        offers = Some(&prompt.field.offers).filter(|offers| !offers.list().is_empty());
    }
    if offers.is_none() {
        let most = usize::from(area.height).saturating_sub(lines.len());
        lines.extend(forecast_lines(cx, draft, entry, (width, most)));
    }
    let height = usize::from(area.height);
    for (row, (text, style)) in lines.iter().take(height).enumerate() {
        line(buf, area, row as u16, &[(" ", *style), (text, *style)]);
    }
    if let Some(offers) = offers {
        offers.draw_rows(buf, cut_top(area, lines.len() as u16).1, theme);
    } else if lines.len() > height {
        let (x, y) = (area.right().saturating_sub(2), area.bottom().saturating_sub(1));
        put(buf, area, x, y, "…", theme.style(Role::Dim));
    }
}

/// [`forecast_texts`], wrapped; a text longer than `most` rows is shortened to its first clauses.
fn forecast_lines(
    cx: &Context,
    draft: &Draft,
    entry: &ExperimentEntry,
    (width, most): (usize, usize),
) -> Vec<(String, Style)> {
    let mut lines = Vec::new();
    for (text, style) in forecast_texts(cx, draft, entry) {
        let rows = (width, most.saturating_sub(lines.len()));
        let kept = clauses_in_rows(&text, rows, &["; ", ": ", ", ", " ("]).unwrap_or(&text);
        lines.extend(wrap(kept, width).into_iter().map(|text| (text, style)));
    }
    lines
}

/// Keys that run the experiment, how long that takes, the provenance of its results, and what cannot run.
fn forecast_texts(cx: &Context, draft: &Draft, entry: &ExperimentEntry) -> Vec<(String, Style)> {
    let theme = cx.theme;
    let error = |error: &str| (format!("✘ {error}"), theme.style(Role::Bad));
    if let Some(broken) = &draft.broken {
        return vec![error(broken)];
    }
    let mut texts: Vec<(String, Style)> = Vec::new();
    let styled = |text: String, role: Role| (text, theme.style(role));
    let is_answered = draft.checked.as_ref().is_some_and(|checked| !checked.answers.is_empty());
    if !draft.is_checked() {
        let what = if is_answered { "result and forecast" } else { "the forecast" };
        texts.push(styled(format!("computing {what}…"), Role::Dim));
    }
    let (experiment, forecast) = match &draft.checked {
        None => (entry.experiment.as_deref().map_err(String::as_str), None),
        Some(checked) => {
            (checked.experiment.as_deref().map_err(String::as_str), checked.forecast.as_ref())
        }
    };
    let experiment = match experiment {
        Ok(experiment) => experiment,
        Err(why) => {
            texts.push(error(why));
            return texts;
        }
    };
    if let Some(forecast) = forecast {
        let is_running =
            cx.sweeps.running.as_ref().is_some_and(|name| name_before_edits(name) == entry.name);
        // an older forecast counts other runs than the list
        let text = match is_running {
            true => Some(running_text(forecast, cx)),
            false => draft.is_checked().then(|| runs_text(forecast, draft, cx)),
        };
        texts.extend(text.map(|text| styled(text, Role::Text)));
    }
    if let Some(noise) = draft.checked.as_ref().and_then(|checked| checked.noise.as_deref()) {
        texts.push(styled(format!("! {noise}"), Role::Warn));
    }
    // stored results name their provenance themselves
    let cells = experiment.cells.iter().filter(|_| !is_answered);
    let provenances: BTreeSet<Provenance> = cells.map(|cell| cell.spec.provenance()).collect();
    for provenance in provenances {
        let text = format!("{provenance} ({})", meaning(provenance));
        texts.push(styled(text, Role::of_provenance(provenance)));
    }
    let basis = forecast.and_then(Forecast::basis);
    texts.extend(basis.map(|text| styled(text, Role::Dim)));
    for note in &experiment.notes {
        texts.push(styled(format!("! {note}"), Role::Warn));
    }
    for unable in forecast.iter().flat_map(|forecast| &forecast.unable) {
        let (glyph, word) = (unable.status.glyph(), unable_word(unable.status));
        let cells = counted(unable.cells, "cell");
        let text = format!("{glyph} {cells} {word}: {} (first: {})", unable.reason, unable.example);
        texts.push((text, theme.status(unable.status)));
    }
    texts
}

fn meaning(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Measured => "on this machine",
        Provenance::EmulatedLink => "runs here",
        Provenance::SharedGpu => "ranks share a GPU",
        Provenance::Simulated => "nothing runs",
    }
}

/// `r: 54 runs (18 cells x 3 rounds), about 1 min 02 s`; `r: resume, 12 of 54 runs left, about 15 s (18 cells)`;
/// `r retries 2 failed of 54 runs, about 3 s (18 cells)`;
/// `40 of 80 runs stored by paper-70b; r runs the other 40, about 15 s (80 cells)`, then the meaning of `shared` in the
/// list.
fn runs_text(forecast: &Forecast, draft: &Draft, cx: &Context) -> String {
    let (run, all) = (cx.key::<Experiments>(Act::Run), cx.key::<Experiments>(Act::RunAll));
    let rounds =
        if forecast.rounds == 1 { String::new() } else { format!(" x {} rounds", forecast.rounds) };
    let unable: usize = forecast.unable.iter().map(|unable| unable.cells).sum();
    let cells = match unable {
        0 => counted(forecast.cells, "cell"),
        unable => format!("{} of {}", forecast.cells - unable, counted(forecast.cells, "cell")),
    };
    let grid = format!("{cells}{rounds}");
    let about = forecast.time().map(|time| format!(", {time}")).unwrap_or_default();
    let counts = draft.stored();
    // a user never ran these, so that nothing is resumed
    let others = draft.checked.as_ref().and_then(|checked| checked.others.as_ref());
    let shared = others.map_or("", |_| "; shared: another experiment has the same cells and ran them");
    let by_others = others.map(|names| match counts.own {
        0 => format!("stored by {names}"),
        _ => format!("stored, {} of them by {names}", counts.done - counts.own),
    });
    let (runs, stored) = (counted(forecast.runs, "run"), forecast.stored);
    match (forecast.left(), by_others) {
        (0, _) if forecast.runs == 0 => "no cell can run".into(),
        (0, by_others) => {
            let stored = by_others.unwrap_or_else(|| "stored".into());
            format!("all {runs} {stored} ({grid}) · {all} runs them again{shared}")
        }
        (left, None) if counts.failed == left => {
            format!("{run} retries {left} failed of {runs}{about} ({grid}) · {all} runs all again")
        }
        _ if stored == 0 => format!("{run}: {runs} ({grid}){about}"),
        (left, None) => {
            let failed = match counts.failed {
                0 => String::new(),
                failed => format!(", {failed} of them failed"),
            };
            format!(
                "{run}: resume, {left} of {runs} left{failed}{about} ({grid}) · {all} runs all again"
            )
        }
        (left, Some(by_others)) => format!(
            "{stored} of {runs} {by_others}; {run} runs the other {left}{about} ({grid}) · {all} runs all again{shared}"
        ),
    }
}

/// Runs of the running sweep. What is left changes with every run, so only the live screen counts it.
fn running_text(forecast: &Forecast, cx: &Context) -> String {
    let live = cx.keys.label(Action::Show(Tab::Live));
    format!(
        "running: {} of {}; {live} shows what is left",
        counted(forecast.runs, "run"),
        counted(forecast.cells, "cell")
    )
}
