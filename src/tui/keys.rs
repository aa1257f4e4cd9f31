//! Keys that go to an overlay or into a text being typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tui_input::{Input, InputRequest};

use super::export;
use super::message::Effect;
use super::palette;
use super::state::{Overlay, Purpose, State};
use super::update::{act, agree, open_path, type_into_palette};

/// Lines that a page key scrolls.
const PAGE: usize = 10;

/// A key while an overlay lies on top.
pub fn in_overlay(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    if key.code == KeyCode::Esc {
        state.overlays.pop();
        return Vec::new();
    }
    let screen = state.screen;
    match state.overlays.last_mut() {
        Some(Overlay::Confirm(question)) => {
            let question = *question;
            match key.code {
                KeyCode::Char('y' | 'Y') | KeyCode::Enter => {
                    state.overlays.pop();
                    return agree(state, question);
                }
                KeyCode::Char('n' | 'N' | 'q') => {
                    state.overlays.pop();
                }
                _ => {}
            }
        }
        Some(Overlay::Help { scroll } | Overlay::Text { scroll, .. }) => match key.code {
            KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *scroll += 1,
            KeyCode::PageUp => *scroll = scroll.saturating_sub(PAGE),
            KeyCode::PageDown | KeyCode::Char(' ') => *scroll += PAGE,
            KeyCode::Home => *scroll = 0,
            KeyCode::End | KeyCode::Char('G') => *scroll = usize::MAX / 2,
            KeyCode::Char('q' | '?') => {
                state.overlays.pop();
                return Vec::new();
            }
            _ => {}
        },
        Some(Overlay::Palette { input, selected }) => match key.code {
            KeyCode::Enter if let Some(open) = palette::path(&state.keys, screen, input.value()) => {
                state.overlays.pop();
                return open_path(state, &open.path, open.beneath);
            }
            KeyCode::Enter => {
                let action = palette::matches(&state.keys, screen, input.value())
                    .get(*selected)
                    .map(|bound| bound.binding.action);
                state.overlays.pop();
                return action.map_or_else(Vec::new, |action| act(state, action));
            }
            KeyCode::Up => *selected = selected.saturating_sub(1),
            KeyCode::Down => *selected += 1,
            _ => {
                if type_into(input, key) {
                    *selected = 0;
                }
            }
        },
        Some(Overlay::Prompt(prompt)) => match key.code {
            KeyCode::Enter => {
                let (purpose, text) = (prompt.purpose, prompt.input.value().to_string());
                return answer(state, purpose, &text);
            }
            _ => {
                if type_into(&mut prompt.input, key) {
                    prompt.error = None;
                }
            }
        },
        None => {}
    }
    Vec::new()
}

/// What was typed at a prompt: the prompt is closed where it can be used, else it says why not.
fn answer(state: &mut State, purpose: Purpose, text: &str) -> Vec<Effect> {
    let done = match purpose {
        Purpose::Export | Purpose::Picture => export::to(state, purpose, text),
        Purpose::Timeline(what) => super::screens::timeline::typed(state, what, text),
        Purpose::ParetoOverlay => super::screens::pareto::read_overlay(state, text),
        Purpose::TagRuns | Purpose::NoteRuns => super::screens::runs::annotate(state, purpose, text),
    };
    match done {
        Ok(effects) => {
            state.overlays.retain(|o| !matches!(o, Overlay::Prompt(_)));
            effects
        }
        Err(why) => {
            if let Some(Overlay::Prompt(prompt)) = state.overlays.last_mut() {
                prompt.error = Some(why);
            }
            Vec::new()
        }
    }
}

/// Keeps scrolling and selections within what there is.
pub fn bound(state: &mut State) {
    let screen = state.screen;
    let rows = super::widgets::overlay::text_rows(state.size);
    match state.overlays.last_mut() {
        Some(Overlay::Help { scroll }) => {
            let lines = super::widgets::overlay::help_lines(&state.keys, screen).len();
            *scroll = (*scroll).min(lines.saturating_sub(rows));
        }
        Some(Overlay::Text { scroll, lines, .. }) => {
            *scroll = (*scroll).min(lines.len().saturating_sub(rows))
        }
        Some(Overlay::Palette { input, selected }) => {
            let found = palette::matches(&state.keys, screen, input.value()).len();
            *selected = (*selected).min(found.saturating_sub(1));
        }
        _ => {}
    }
}

/// Text that was pasted: into what is being typed, if anything is. A path that is dropped on the
/// window arrives like that, too, and is put into the palette, where Enter opens it.
pub fn paste(state: &mut State, text: &str) -> Vec<Effect> {
    match state.overlays.last_mut() {
        Some(Overlay::Palette { input, selected }) => {
            *selected = 0;
            paste_into(input, text);
        }
        Some(Overlay::Prompt(prompt)) => paste_into(&mut prompt.input, text),
        None => {
            if let Some(effects) = state.screen.page().paste(state, text) {
                return effects;
            }
            let text: String = printable(text).collect();
            if palette::looks_like_path(&text) {
                type_into_palette(state, &format!("{}{text}", palette::OPEN));
            }
        }
        _ => {}
    }
    Vec::new()
}

/// The first line of pasted text, without control characters.
fn printable(text: &str) -> impl Iterator<Item = char> {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control())
}

/// Puts pasted text into a line of text.
pub fn paste_into(input: &mut Input, text: &str) {
    for c in printable(text) {
        input.handle(InputRequest::InsertChar(c));
    }
}

/// Edits a line of text; true where its content may have changed.
pub fn type_into(input: &mut Input, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let request = match key.code {
        KeyCode::Char('u') if control => InputRequest::DeleteLine,
        KeyCode::Char('w') if control => InputRequest::DeletePrevWord,
        KeyCode::Char('a') if control => InputRequest::GoToStart,
        KeyCode::Char('e') if control => InputRequest::GoToEnd,
        KeyCode::Char(c) if !control => InputRequest::InsertChar(c),
        KeyCode::Backspace => InputRequest::DeletePrevChar,
        KeyCode::Delete => InputRequest::DeleteNextChar,
        KeyCode::Left => InputRequest::GoToPrevChar,
        KeyCode::Right => InputRequest::GoToNextChar,
        KeyCode::Home => InputRequest::GoToStart,
        KeyCode::End => InputRequest::GoToEnd,
        _ => return false,
    };
    input.handle(request).is_some_and(|change| change.value)
}
