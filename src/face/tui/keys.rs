//! Keys that go to an overlay or into a text being typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tui_input::{Input, InputRequest};

use super::context::{Context, Request};
use super::overlay::Overlay;
use super::palette;
use super::state::State;
use super::update::act;

/// Lines that a page key scrolls.
const PAGE: usize = 10;

/// A key while an overlay lies on top.
pub fn in_overlay(state: &mut State, key: KeyEvent) {
    let cx = &mut state.cx;
    if key.code == KeyCode::Esc {
        cx.overlays.pop();
        return;
    }
    match cx.overlays.last_mut() {
        Some(Overlay::Confirm(_)) => match key.code {
            KeyCode::Char('y' | 'Y') | KeyCode::Enter => {
                if let Some(Overlay::Confirm(question)) = cx.overlays.pop() {
                    (question.yes)(state);
                }
            }
            KeyCode::Char('n' | 'N' | 'q') => drop(cx.overlays.pop()),
            _ => {}
        },
        Some(Overlay::Help { scroll } | Overlay::Text { scroll, .. }) => match key.code {
            KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *scroll += 1,
            KeyCode::PageUp => *scroll = scroll.saturating_sub(PAGE),
            KeyCode::PageDown | KeyCode::Char(' ') => *scroll += PAGE,
            KeyCode::Home => *scroll = 0,
            KeyCode::End | KeyCode::Char('G') => *scroll = usize::MAX / 2,
            KeyCode::Char('q' | '?') => drop(cx.overlays.pop()),
            _ => {}
        },
        Some(Overlay::Palette { input, selected }) => match key.code {
            KeyCode::Enter
                if let Some((path, opening)) = palette::path(&cx.keys, cx.tab, input.value()) =>
            {
                cx.overlays.pop();
                cx.request(Request::OpenPath(path, opening));
            }
            KeyCode::Enter => {
                let found = palette::matches(&cx.keys, cx.tab, input.value());
                let action = found.get(*selected).map(|bound| bound.action);
                cx.overlays.pop();
                if let Some(action) = action {
                    act(state, action);
                }
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
            KeyCode::Enter => answer(state),
            _ => {
                if type_into(&mut prompt.input, key) {
                    prompt.error = None;
                }
            }
        },
        None => {}
    }
}

/// What was typed at a prompt: the prompt is closed where it can be used, else it says why not.
fn answer(state: &mut State) {
    let Some(Overlay::Prompt(mut prompt)) = state.cx.overlays.pop() else { return };
    if let Err(why) = (prompt.take)(state, prompt.input.value()) {
        prompt.error = Some(why);
        state.cx.overlays.push(Overlay::Prompt(prompt));
    }
}

/// Keeps scrolling and selections within what there is.
pub fn bound(cx: &mut Context) {
    let rows = super::widgets::overlay::text_rows(cx.size);
    match cx.overlays.last_mut() {
        Some(Overlay::Help { scroll }) => {
            let lines = super::widgets::overlay::help_lines(&cx.keys, cx.tab).len();
            *scroll = (*scroll).min(lines.saturating_sub(rows));
        }
        Some(Overlay::Text { scroll, lines, .. }) => {
            *scroll = (*scroll).min(lines.len().saturating_sub(rows))
        }
        Some(Overlay::Palette { input, selected }) => {
            let found = palette::matches(&cx.keys, cx.tab, input.value()).len();
            *selected = (*selected).min(found.saturating_sub(1));
        }
        _ => {}
    }
}

/// Text that was pasted: into what is being typed, if anything is. A path that is dropped on the
/// window arrives like that, too, and is put into the palette, where Enter opens it.
pub fn paste(state: &mut State, text: &str) {
    match state.cx.overlays.last_mut() {
        Some(Overlay::Palette { input, selected }) => {
            *selected = 0;
            paste_into(input, text);
        }
        Some(Overlay::Prompt(prompt)) => paste_into(&mut prompt.input, text),
        None => {
            let (screen, cx) = state.split(state.cx.tab);
            if screen.paste(text, cx) {
                return;
            }
            let text: String = printable(text).collect();
            if palette::looks_like_path(&text) {
                cx.type_into_palette(&format!("{}{text}", palette::OPEN));
            }
        }
        _ => {}
    }
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
