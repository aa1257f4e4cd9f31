//! Window drawing: tabs, the screen, the footer, overlays. Only reads the state.
//! The layout is shared with hit testing.
//!
//! ```text
//! | 1 experiments  2 live  3 runs ...            ▶ 3/12 |   tabs
//! |                                                     |
//! |                     the screen                      |   body
//! |                                                     |
//! | Enter run  e file  ...         ? help  : palette    |   footer
//! ```

use ratatui::widgets::{Clear, Widget};

use super::context::Notice;
use super::key::Key;
use super::keymap::Action;
use super::prelude::*;
use super::widgets::paint;
use super::widgets::wrap::wrap_long_words;

pub fn draw(buf: &mut Buffer, state: &State) {
    draw_without_overlays(buf, state);
    let Some(regions) = regions(&state.cx) else { return };
    for top in &state.cx.overlays {
        top.draw(buf, &state.cx);
    }
    match (&state.cx.notice, state.cx.overlays.last()) {
        (Some(notice), _) if !notice.error => note(buf, regions.footer, &state.cx, notice),
        // the footer shows the keys of the top overlay
        (_, Some(top)) => draw_taken(buf, regions.footer, state.cx.theme, top.hints()),
        (_, None) => {}
    }
}

pub fn draw_without_overlays(buf: &mut Buffer, state: &State) {
    let window = buf.area;
    let size = (window.width, window.height);
    buf.set_style(window, state.cx.theme.style(Role::Text));
    let Some(regions) = regions(&state.cx) else {
        let text = format!(
            "window too small: {}x{} needed, this is {}x{}",
            SMALLEST.0, SMALLEST.1, size.0, size.1
        );
        let lines = wrap(&text, usize::from(window.width));
        let top = window.height.saturating_sub(lines.len() as u16) / 2;
        for (row, text) in lines.iter().enumerate() {
            let x = window.width.saturating_sub(text.width() as u16) / 2;
            paint::put(buf, window, x, top + row as u16, text, state.cx.theme.style(Role::Text));
        }
        return;
    };
    draw_tabs(buf, regions.tabs, state);
    state.screen(state.cx.tab).draw(buf, regions.body, &state.cx);
    draw_footer(buf, regions.footer, state);
    if let Some(notice) = state.cx.notice.as_ref().filter(|notice| notice.error) {
        failure(buf, regions.notice, &state.cx, notice);
    }
}

fn draw_tabs(buf: &mut Buffer, area: Rect, state: &State) {
    let theme = state.cx.theme;
    let mut end = area.x;
    for (tab, text, x) in tabs(&state.cx) {
        let role = if tab == state.cx.tab { Role::Selected } else { Role::Text };
        end = paint::put(buf, area, area.x + x, area.y, &text, theme.style(role));
    }
    if let Some(text) = state.screen(Tab::Live).status(&state.cx).badge {
        let x = area.right().saturating_sub(text.width() as u16).max(end);
        paint::put(buf, area, x, area.y, &text, theme.style(Role::Active));
    }
}

/// Draws only the hints of the element that currently takes all keys.
fn draw_taken(buf: &mut Buffer, area: Rect, theme: Theme, hints: Hints) {
    // also clear the colours of earlier content
    let area = area.intersection(buf.area);
    Clear.render(area, buf);
    buf.set_style(area, theme.style(Role::Text));
    draw_hints(buf, area, theme, &taken(area, hints));
}

fn draw_footer(buf: &mut Buffer, area: Rect, state: &State) {
    let status = state.screen(state.cx.tab).status(&state.cx);
    match status.hints {
        Some(hints) => draw_taken(buf, area, state.cx.theme, hints),
        None => draw_hints(buf, area, state.cx.theme, &possible(area, state)),
    }
}

fn draw_hints(buf: &mut Buffer, area: Rect, theme: Theme, hints: &[FooterHint]) {
    for hint in hints {
        let x = paint::put(buf, area, hint.x, area.y, &hint.label, theme.style(Role::Key));
        paint::put(buf, area, x + 1, area.y, hint.words, theme.style(Role::Dim));
    }
}

/// Hint of the footer: first column, key, meaning, effect of a click.
#[derive(Clone, Debug)]
pub struct FooterHint {
    x: u16,
    label: String,
    words: &'static str,
    pub click: FooterClick,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FooterClick {
    Act(Action),
    Press(KeyEvent),
    /// The hint names no single key.
    Nothing,
}

impl FooterHint {
    fn width(&self) -> u16 {
        (self.label.width() + self.words.width() + 1) as u16
    }
}

/// Hint at a column of the footer; it shows the keys of the top overlay, else of an active input, else of
/// the screen.
pub fn footer_hint(area: Rect, state: &State, x: u16) -> Option<FooterHint> {
    let status = state.screen(state.cx.tab).status(&state.cx);
    let taking = state.cx.overlays.last().map(|top| top.hints()).or(status.hints);
    let hints = taking.map_or_else(|| possible(area, state), |hints| taken(area, hints));
    hints.into_iter().find(|hint| (hint.x..hint.x + hint.width()).contains(&x))
}

fn taken(area: Rect, hints: Hints) -> Vec<FooterHint> {
    let hint = |(label, words): &(&str, &'static str)| {
        let key = label.split_whitespace().next().and_then(Key::labelled);
        let click = key.map_or(FooterClick::Nothing, |key| FooterClick::Press(key.event()));
        FooterHint { x: 0, label: (*label).to_owned(), words, click }
    };
    placed(area.x + 1, hints.iter().map(hint))
}

/// Places hints beside each other from a column on.
fn placed(from: u16, hints: impl IntoIterator<Item = FooterHint>) -> Vec<FooterHint> {
    let mut next = from;
    let place = |hint: FooterHint| {
        let x = next;
        next += hint.width() + 2;
        FooterHint { x, ..hint }
    };
    hints.into_iter().map(place).collect()
}

/// Hints of currently possible actions, as many as fit; global hints on the right are never dropped.
fn possible(area: Rect, state: &State) -> Vec<FooterHint> {
    let cx = &state.cx;
    let can = |action| match action {
        Action::On(tab, at) => state.screen(tab).why_impossible(at, cx).is_none(),
        Action::Export => state.screen(cx.tab).has_content(),
        _ => true,
    };
    let own_hint = |action| match action {
        Action::On(tab, at) => state.screen(tab).own_hint(at, cx),
        _ => None,
    };
    let is_narrow = area.width < ALL_TITLES;
    let hints = |own: bool| {
        let usable = cx.keys.all().iter().filter(|b| b.holds_on(cx.tab) && can(b.action));
        usable.filter_map(move |b| {
            let action = b.action;
            let global = matches!(action, Action::Help | Action::Palette | Action::Quit);
            let first = b.keys.iter().find(|k| !global || !cx.keys.is_taken(cx.tab, **k))?;
            let hint = own_hint(action).or(b.row.hint).filter(|_| global != own)?;
            let words = if is_narrow { hint.short } else { hint.whole };
            let label = match first.label() {
                label if is_narrow && label == "Enter" => "↵".to_owned(),
                label => label,
            };
            let hinted = FooterHint { x: 0, label, words, click: FooterClick::Act(action) };
            (hint != HintWords::HIDDEN).then_some(hinted)
        })
    };
    let right: Vec<FooterHint> = hints(false).collect();
    let of_right: u16 = right.iter().map(|hint| hint.width() + 2).sum();
    // the gap behind the last hint is worth a column where they are few
    let limit = (area.right() + u16::from(is_narrow)).saturating_sub(of_right);
    let mut all = placed(area.x + 1, hints(true));
    let fits = |hint: &FooterHint| hint.x + hint.width() + 2 <= limit;
    all.truncate(all.iter().take_while(|hint| fits(hint)).count());
    all.extend(placed(limit, right));
    all
}

fn failure(buf: &mut Buffer, area: Rect, cx: &Context, notice: &Notice) {
    let theme = cx.theme;
    let (bad, text) = (theme.style(Role::Bad), theme.style(Role::Text));
    let close = format!("  {} closes", cx.keys.label(Action::Close));
    let lines = wrap(&notice.text, usize::from(area.width).saturating_sub(close.width() + 3));
    for (row, words) in lines.iter().take(area.height.into()).enumerate() {
        // the rest is in the message history
        let more =
            if row + 1 == usize::from(area.height) && lines.len() > row + 1 { " …" } else { "" };
        let (mark, style, close) = if row == 0 { ("✘ ", bad, &*close) } else { ("  ", text, "") };
        let pieces = [(mark, bad), (&**words, style), (more, text), (close, theme.style(Role::Dim))];
        line(buf, area, row as u16, &pieces);
    }
}

/// Draws a message in place of the key hints and, if it is long, of the last rows of the body.
fn note(buf: &mut Buffer, footer: Rect, cx: &Context, notice: &Notice) {
    let title = cx.theme.style(Role::Title);
    let mut lines = note_lines(&notice.text, footer.width);
    let most = note_rows(cx.size);
    let rest = match lines.len() > most {
        true => format!(" … {}: all of it", cx.keys.label(Action::Messages)),
        false => String::new(),
    };
    lines.truncate(most);
    if let Some(last) = lines.last_mut().filter(|_| !rest.is_empty()) {
        let room = usize::from(footer.width).saturating_sub(rest.width() + 2);
        *last = wrap(last, room).into_iter().next().unwrap_or_default();
    }
    let rows = lines.len() as u16;
    let area = Rect { y: footer.bottom().saturating_sub(rows), height: rows, ..footer };
    Clear.render(area.intersection(buf.area), buf);
    buf.set_style(area.intersection(buf.area), cx.theme.style(Role::Text));
    for (row, text) in (0..rows).zip(&lines) {
        let rest = if row + 1 == rows { rest.as_str() } else { "" };
        line(buf, area, row, &[(" ", title), (text, title), (rest, cx.theme.style(Role::Dim))]);
    }
}

fn note_lines(text: &str, width: u16) -> Vec<String> {
    wrap_long_words(text, usize::from(width.saturating_sub(2)).max(1))
}

/// Most rows of a message that the next key removes.
fn note_rows(size: (u16, u16)) -> usize {
    usize::from(size.1 / 3).max(1)
}

/// True if a message is shown in full.
pub fn is_note_whole(text: &str, size: (u16, u16)) -> bool {
    note_lines(text, size.0).len() <= note_rows(size)
}

/// Smallest supported window (columns, rows).
pub const SMALLEST: (u16, u16) = (60, 16);

/// Least columns for the titles of all tabs and the progress of a sweep.
const ALL_TITLES: u16 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    pub tabs: Rect,
    pub body: Rect,
    /// Error message; takes rows from the body.
    pub notice: Rect,
    pub footer: Rect,
}

/// Maximum rows of an error, title included.
const NOTICE_ROWS: usize = 6;

/// Computes the areas of the window; `None` if it is too small.
pub fn regions(cx: &Context) -> Option<Regions> {
    let mut regions = regions_of(cx.size)?;
    if let Some(notice) = cx.notice.as_ref().filter(|n| n.error) {
        let lines = wrap(&notice.text, usize::from(regions.body.width.saturating_sub(2))).len();
        let rows = (lines + 1).min(NOTICE_ROWS) as u16;
        (regions.body, regions.notice) = cut_bottom(regions.body, rows);
    }
    Some(regions)
}

/// Computes the areas of a window of this size without an error; `None` if it is too small.
pub fn regions_of(size: (u16, u16)) -> Option<Regions> {
    let (width, height) = size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return None;
    }
    Some(Regions {
        tabs: Rect::new(0, 0, width, 1),
        body: Rect::new(0, 1, width, height - 2),
        notice: Rect::new(0, height - 1, width, 0),
        footer: Rect::new(0, height - 1, width, 1),
    })
}

/// Tabs with their label and first column: `1 experiments`. In a narrow window only the current tab has its whole
/// title, and none while a sweep runs.
pub fn tabs(cx: &Context) -> impl Iterator<Item = (Tab, String, u16)> + use<> {
    // the progress of a sweep needs the columns of a whole title
    let current = Some(cx.tab).filter(|_| cx.sweeps.running.is_none());
    let titles = cx.size.0 >= ALL_TITLES;
    let mut x = 0;
    Tab::ALL.into_iter().map(move |tab| {
        let number = tab as usize + 1;
        let is_whole = titles || Some(tab) == current;
        let label = format!(" {number} {}", if is_whole { tab.title() } else { tab.short_title() });
        let at = x;
        x += label.len() as u16;
        (tab, label, at)
    })
}

/// Splits `rows` rows off the top: (top, rest).
pub fn cut_top(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let top = Rect { height: rows, ..area };
    (top, Rect { y: area.y + rows, height: area.height - rows, ..area })
}

/// Splits `rows` rows off the bottom: (rest, bottom).
pub fn cut_bottom(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    cut_top(area, area.height - rows)
}

/// Splits `columns` columns off the left: (left, rest).
pub fn cut_left(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    let left = Rect { width: columns, ..area };
    (left, Rect { x: area.x + columns, width: area.width - columns, ..area })
}

pub fn inside(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// Centred area of at most this size.
pub fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
