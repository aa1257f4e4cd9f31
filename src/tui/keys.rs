//! Keys that go to an overlay or into a text being typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tui_input::{Input, InputRequest};

use super::message::Effect;
use super::palette;
use super::state::{Overlay, State};
use super::update::{act, agree, is_searching, open_path};

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
            KeyCode::Enter if let Some(open) = palette::path(screen, input.value()) => {
                state.overlays.pop();
                return open_path(state, &open.path, open.beneath);
            }
            KeyCode::Enter => {
                let action = palette::matches(screen, input.value()).get(*selected).map(|b| b.action);
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
        None => {}
    }
    Vec::new()
}

/// Keeps scrolling and selections within what there is.
pub fn bound(state: &mut State) {
    let screen = state.screen;
    let rows = super::widgets::overlay::text_rows(state.size);
    match state.overlays.last_mut() {
        Some(Overlay::Help { scroll }) => {
            let lines = super::widgets::overlay::help_lines(screen).len();
            *scroll = (*scroll).min(lines.saturating_sub(rows));
        }
        Some(Overlay::Text { scroll, lines, .. }) => {
            *scroll = (*scroll).min(lines.len().saturating_sub(rows))
        }
        Some(Overlay::Palette { input, selected }) => {
            *selected = (*selected).min(palette::matches(screen, input.value()).len().saturating_sub(1));
        }
        _ => {}
    }
}

/// A key while the filter of the runs is typed.
pub fn in_filter(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    match key.code {
        KeyCode::Enter | KeyCode::Down | KeyCode::Tab => state.runs.typing = false,
        KeyCode::Esc => {
            state.runs.typing = false;
            state.runs.filter.reset();
            refilter(state);
        }
        _ => {
            if type_into(&mut state.runs.filter, key) {
                refilter(state);
            }
        }
    }
    Vec::new()
}

/// A key while a search of the timeline is typed.
pub fn in_search(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let Some(view) = &mut state.timeline.view else { return Vec::new() };
    match key.code {
        KeyCode::Enter => {
            view.search.typing = false;
            view.go_to_found();
        }
        KeyCode::Down | KeyCode::Tab => view.search.typing = false,
        KeyCode::Esc => view.forget_search(),
        _ => {
            if type_into(&mut view.search.input, key) {
                return search(state);
            }
        }
    }
    Vec::new()
}

/// Searches every trace that is open for what is typed now.
fn search(state: &mut State) -> Vec<Effect> {
    let request = state.timeline.request;
    let Some(view) = &mut state.timeline.view else { return Vec::new() };
    view.search.serial += 1;
    let (serial, query) = (view.search.serial, view.search.input.value().to_string());
    let search = |(pane, shown): (usize, &super::state::timeline::Pane)| Effect::Search {
        request,
        pane,
        serial,
        index: shown.index.clone(),
        query: query.clone(),
    };
    view.panes.iter().enumerate().map(search).collect()
}

/// Text that was pasted: into what is being typed, if anything is. A path that is dropped on the
/// window arrives like that, too, and is put into the palette, where Enter opens it.
pub fn paste(state: &mut State, text: &str) -> Vec<Effect> {
    let line: Vec<char> =
        text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    let searching = state.screen == super::action::Screen::Timeline && is_searching(state);
    match state.overlays.last_mut() {
        Some(Overlay::Palette { input, selected }) => {
            *selected = 0;
            for c in line {
                input.handle(InputRequest::InsertChar(c));
            }
        }
        None if state.runs.typing => {
            for c in line {
                state.runs.filter.handle(InputRequest::InsertChar(c));
            }
            refilter(state);
        }
        None if searching => {
            if let Some(view) = &mut state.timeline.view {
                for c in line {
                    view.search.input.handle(InputRequest::InsertChar(c));
                }
            }
            return search(state);
        }
        None => {
            let text: String = line.into_iter().collect();
            if palette::looks_like_path(&text) {
                let input = Input::new(format!("{}{text}", palette::OPEN));
                state.overlays.push(Overlay::Palette { input, selected: 0 });
            }
        }
        _ => {}
    }
    Vec::new()
}

fn refilter(state: &mut State) {
    let stored = state.stored.clone();
    state.runs.arrange(stored.as_deref());
}

/// Edits a line of text; true where its content may have changed.
fn type_into(input: &mut Input, key: KeyEvent) -> bool {
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
