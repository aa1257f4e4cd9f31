//! Window drawing: tabs, the screen, the footer, overlays. Only reads the state.

use ratatui::widgets::{Clear, Widget};

use super::action::Action;
use super::context::Notice;
use super::keymap::Key;
use super::layout::{SMALLEST, regions, tabs};
use super::prelude::*;
use super::widgets::paint;

pub fn draw(buf: &mut Buffer, state: &State) {
    draw_without_overlays(buf, state);
    if regions(&state.cx).is_none() {
        return;
    }
    for top in &state.cx.overlays {
        top.draw(buf, &state.cx);
    }
    // the footer shows the keys of the top overlay
    if let Some(top) = state.cx.overlays.last()
        && state.cx.notice.as_ref().is_none_or(|notice| notice.error)
        && let Some(regions) = regions(&state.cx)
    {
        draw_taken(buf, regions.footer, state.cx.theme, top.hints());
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
    match &state.cx.notice {
        Some(notice) if notice.error => {
            failure(buf, regions.notice, &state.cx, notice);
            draw_footer(buf, regions.footer, state);
        }
        Some(notice) => note(buf, regions.footer, &state.cx, notice),
        None => draw_footer(buf, regions.footer, state),
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
    match state.screen(state.cx.tab).status(&state.cx).hints {
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
    let screen = || state.screen(state.cx.tab).status(&state.cx).hints;
    let taking = state.cx.overlays.last().map(|top| top.hints()).or_else(screen);
    let hints = taking.map_or_else(|| possible(area, state), |hints| taken(area, hints));
    hints.into_iter().find(|hint| (hint.x..hint.x + hint.width()).contains(&x))
}

fn taken(area: Rect, hints: Hints) -> Vec<FooterHint> {
    let mut x = area.x + 1;
    let hint = |(label, words): &(&str, &'static str)| {
        let key = label.split_whitespace().next().and_then(Key::labelled);
        let click = key.map_or(FooterClick::Nothing, |key| FooterClick::Press(key.event()));
        let hint = FooterHint { x, label: (*label).to_owned(), words, click };
        x += hint.width() + 2;
        hint
    };
    hints.iter().map(hint).collect()
}

/// Hints of currently possible actions, as many as fit; global hints on the right are never dropped.
fn possible(area: Rect, state: &State) -> Vec<FooterHint> {
    let cx = &state.cx;
    let can = |action| match action {
        Action::On(tab, at) => state.screen(tab).is_possible(at),
        _ => true,
    };
    let hints = |own: bool| {
        let usable = cx.keys.all().iter().filter(|b| b.holds_on(cx.tab) && can(b.action));
        usable.filter_map(move |b| {
            let action = b.action;
            let global = matches!(action, Action::Help | Action::Palette | Action::Quit);
            let first = b.keys.iter().find(|k| !global || !cx.keys.is_taken(cx.tab, **k))?;
            let words = b.row.hint.filter(|_| global != own)?;
            Some(FooterHint { x: 0, label: first.label(), words, click: FooterClick::Act(action) })
        })
    };
    let right: Vec<FooterHint> = hints(false).collect();
    let limit = area.right().saturating_sub(right.iter().map(|hint| hint.width() + 2).sum());
    let mut all = Vec::new();
    let mut x = area.x + 1;
    for hint in hints(true) {
        if x + hint.width() + 2 > limit {
            break;
        }
        all.push(FooterHint { x, ..hint });
        x += all.last().map_or(0, FooterHint::width) + 2;
    }
    let mut x = limit;
    for hint in right {
        all.push(FooterHint { x, ..hint });
        x += all.last().map_or(0, FooterHint::width) + 2;
    }
    all
}

fn failure(buf: &mut Buffer, area: Rect, cx: &Context, notice: &Notice) {
    let theme = cx.theme;
    let (bad, text) = (theme.style(Role::Bad), theme.style(Role::Text));
    let close = format!("  {} closes this", cx.keys.label(Action::Close));
    line(buf, area, 0, &[("✘ it failed", bad), (&close, theme.style(Role::Dim))]);
    let lines = wrap(&notice.text, usize::from(area.width.saturating_sub(2)));
    let rows = usize::from(area.height.saturating_sub(1));
    for (row, words) in lines.iter().take(rows).enumerate() {
        // the rest is in the message history
        let more = if row + 1 == rows && lines.len() > rows { " …" } else { "" };
        line(buf, area, row as u16 + 1, &[("  ", text), (words, text), (more, text)]);
    }
}

/// Draws a message in place of the key hints, on one line.
fn note(buf: &mut Buffer, area: Rect, cx: &Context, notice: &Notice) {
    let text = notice.text.lines().collect::<Vec<_>>().join("  ");
    let title = cx.theme.style(Role::Title);
    buf.set_style(area, cx.theme.style(Role::Text));
    line(buf, area, 0, &[(" ", title), (&cut(&text, area.width.saturating_sub(4)), title)]);
}
