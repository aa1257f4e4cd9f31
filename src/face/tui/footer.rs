//! Footer: keys of the top overlay, of an active input or of the screen, and the effects of clicks on them.

use ratatui::widgets::{Clear, Widget};

use super::key::Key;
use super::keymap::{Action, BoundAction};
use super::notice::hints_area;
use super::prelude::*;
use super::view::ALL_TITLES;

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

/// Draws only the hints of the element that currently takes all keys.
pub fn draw_fixed_hints(buf: &mut Buffer, area: Rect, theme: Theme, hints: Hints) {
    // also clear the colours of earlier content
    let area = area.intersection(buf.area);
    Clear.render(area, buf);
    buf.set_style(area, theme.style(Role::Text));
    draw_hints(buf, area, theme, &fixed_hints(area, hints));
}

pub fn draw(buf: &mut Buffer, area: Rect, state: &State) {
    let area = hints_area(area, &state.cx);
    let status = state.screen(state.cx.tab).status(&state.cx);
    match status.hints {
        Some(hints) => draw_fixed_hints(buf, area, state.cx.theme, hints),
        None => draw_hints(buf, area, state.cx.theme, &screen_hints(area, state)),
    }
}

fn draw_hints(buf: &mut Buffer, area: Rect, theme: Theme, hints: &[FooterHint]) {
    for hint in hints {
        let x = put(buf, area, hint.x, area.y, &hint.label, theme.style(Role::Key));
        put(buf, area, x + 1, area.y, hint.words, theme.style(Role::Dim));
    }
}

/// Hint at a column of the footer; it shows the keys of the top overlay, else of an active input, else of
/// the screen.
pub fn footer_hint(area: Rect, state: &State, x: u16) -> Option<FooterHint> {
    let area = hints_area(area, &state.cx);
    let status = state.screen(state.cx.tab).status(&state.cx);
    let fixed = state.cx.overlays.last().map(|top| top.hints()).or(status.hints);
    let hints = fixed.map_or_else(|| screen_hints(area, state), |hints| fixed_hints(area, hints));
    hints.into_iter().find(|hint| (hint.x..hint.x + hint.width()).contains(&x))
}

fn fixed_hints(area: Rect, hints: Hints) -> Vec<FooterHint> {
    let hint = |(label, words): &(&str, &'static str)| {
        let key = label.split_whitespace().next().and_then(Key::labelled);
        let click = key.map_or(FooterClick::Nothing, |key| FooterClick::Press(key.event()));
        FooterHint { x: 0, label: (*label).to_owned(), words, click }
    };
    laid_out(area.x + 1, hints.iter().map(hint))
}

/// Hints side by side from a column on.
fn laid_out(from: u16, hints: impl IntoIterator<Item = FooterHint>) -> Vec<FooterHint> {
    let mut next = from;
    let place = |hint: FooterHint| {
        let x = next;
        next += hint.width() + 2;
        FooterHint { x, ..hint }
    };
    hints.into_iter().map(place).collect()
}

/// Hints of currently possible actions, as many as fit; global hints on the right are never dropped.
fn screen_hints(area: Rect, state: &State) -> Vec<FooterHint> {
    let is_narrow = area.width < ALL_TITLES;
    let bound = state.cx.keys.all().iter().filter(|bound| bound.holds_on(state.cx.tab));
    let (global, own): (Vec<&BoundAction>, Vec<&BoundAction>) =
        bound.partition(|bound| is_global(bound.action));
    let hint = |bound: &BoundAction| screen_hint(bound, state, is_narrow);
    let global: Vec<FooterHint> = global.into_iter().filter_map(hint).collect();
    let global_width: u16 = global.iter().map(|hint| hint.width() + 2).sum();
    // the gap behind the last hint is worth a column where they are few
    let limit = (area.right() + u16::from(is_narrow)).saturating_sub(global_width);
    let words = |words: HintWords| if is_narrow { words.short } else { words.whole };
    let close = state.screen(state.cx.tab).status(&state.cx).closes.map(|hint| FooterHint {
        x: 0,
        label: state.cx.keys.label(Action::Close),
        words: words(hint),
        click: FooterClick::Act(Action::Close),
    });
    let mut all = laid_out(area.x + 1, close.into_iter().chain(own.into_iter().filter_map(hint)));
    let fits = |hint: &FooterHint| hint.x + hint.width() + 2 <= limit;
    all.truncate(all.iter().take_while(|hint| fits(hint)).count());
    all.extend(laid_out(limit, global));
    all
}

/// True for actions whose hints every screen has at the right end.
fn is_global(action: Action) -> bool {
    matches!(action, Action::Help | Action::Palette | Action::Quit)
}

/// Hint of a binding; `None` if its action is not possible now, or never hinted at.
fn screen_hint(bound: &BoundAction, state: &State, is_narrow: bool) -> Option<FooterHint> {
    let (cx, action) = (&state.cx, bound.action);
    let (is_possible, own_hint) = match action {
        Action::On(tab, at) => {
            let screen = state.screen(tab);
            (screen.why_impossible(at, cx).is_none(), screen.own_hint(at, cx))
        }
        Action::Export => (state.screen(cx.tab).has_content(), None),
        _ => (true, None),
    };
    let hint = own_hint.or(bound.row.hint)?;
    let is_free = |key: &&Key| !is_global(action) || !cx.keys.is_taken(cx.tab, **key);
    let label = bound.keys.iter().find(is_free)?.label();
    let label = if is_narrow && label == "Enter" { "↵".to_owned() } else { label };
    let words = if is_narrow { hint.short } else { hint.whole };
    let footer_hint = FooterHint { x: 0, label, words, click: FooterClick::Act(action) };
    (is_possible && hint != HintWords::HIDDEN).then_some(footer_hint)
}
