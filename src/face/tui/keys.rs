//! Keys that go to an overlay or into a text being typed.

use crossterm::event::{KeyCode, KeyEvent};

use super::context::{Context, Opening};
use super::conversions;
use super::opener::looks_like_path;
use super::overlay::Overlay;
use super::state::State;
use super::trainings;
use super::widgets::field::first_line;
use super::widgets::list::{PAGE, scroll_key};

/// A key while an overlay lies on top.
pub fn in_overlay(state: &mut State, key: KeyEvent) {
    let cx = &mut state.cx;
    if let Some(Overlay::Help { scroll, search }) = cx.overlays.last_mut() {
        let before = search.value().to_owned();
        let dropped = key.code == KeyCode::Esc && search.drop_text();
        if dropped || search.key(key).is_some() {
            *scroll = if search.value() == before { *scroll } else { 0 };
            return;
        }
        if key.code == KeyCode::Char('/') {
            search.typing = true;
            return;
        }
    }
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
        Some(Overlay::Help { scroll, .. } | Overlay::Text { scroll, .. }) => match key.code {
            code if scroll_key(code, scroll) => {}
            KeyCode::Char('q' | '?') => drop(cx.overlays.pop()),
            _ => {}
        },
        Some(Overlay::Pick(pick)) => match key.code {
            KeyCode::Enter => choose(state),
            KeyCode::Up => pick.selected = pick.selected.saturating_sub(1),
            KeyCode::Down => pick.selected += 1,
            KeyCode::PageUp => pick.selected = pick.selected.saturating_sub(PAGE),
            KeyCode::PageDown => pick.selected += PAGE,
            KeyCode::Tab => pick.complete(),
            _ if pick.field.key(key) => pick.selected = 0,
            _ => {}
        },
        Some(Overlay::Prompt(prompt)) => match key.code {
            KeyCode::Enter => answer(state),
            key if prompt.offers.key(key, &mut prompt.field).is_some() => prompt.error = None,
            _ if prompt.field.key(key) => prompt.error = None,
            _ => {}
        },
        Some(Overlay::Conversions(_)) => conversions::key(cx, key),
        Some(Overlay::Trainings(_)) => trainings::key(cx, key),
        Some(Overlay::Picture { .. }) => match key.code {
            KeyCode::Enter | KeyCode::Char('q') => drop(cx.overlays.pop()),
            _ => {}
        },
        None => {}
    }
}

/// What was typed at a prompt: the prompt is closed where it can be used, else it says why not.
fn answer(state: &mut State) {
    let Some(Overlay::Prompt(mut prompt)) = state.cx.overlays.pop() else { return };
    match (prompt.take)(state, prompt.field.value()) {
        Ok(()) => {
            prompt.field.keep();
            state.cx.past.insert(prompt.title, prompt.field.past);
        }
        Err(why) => {
            prompt.error = Some(why);
            state.cx.overlays.push(Overlay::Prompt(prompt));
        }
    }
}

/// What was chosen from a list: the list stays where nothing was.
fn choose(state: &mut State) {
    let Some(Overlay::Pick(mut pick)) = state.cx.overlays.pop() else { return };
    match pick.chosen() {
        Some(chosen) => pick.take(state, chosen),
        None => state.cx.choose(pick),
    }
}

/// Keeps scrolling and selections within what there is.
pub fn bound(cx: &mut Context) {
    let (rows, body) = (super::widgets::overlay::text_rows(cx.size), cx.body());
    match cx.overlays.last_mut() {
        Some(Overlay::Help { scroll, search }) => {
            let lines =
                super::widgets::overlay::help_rows(&cx.keys, cx.tab, search.value(), cx.size).len();
            // the line that is searched for takes one
            let searched = usize::from(search.typing || !search.value().is_empty());
            *scroll = (*scroll).min(lines.saturating_sub(rows.saturating_sub(searched)));
        }
        Some(Overlay::Text { scroll, lines, .. }) => {
            *scroll = (*scroll).min(lines.len().saturating_sub(rows))
        }
        Some(Overlay::Conversions(shown)) => shown.fit(body),
        Some(Overlay::Trainings(shown)) => shown.fit(body),
        Some(Overlay::Pick(pick)) => {
            pick.selected = pick.selected.min(pick.found().len().saturating_sub(1));
        }
        _ => {}
    }
}

/// Text that was pasted: into what is being typed, if anything is. A path that is dropped on the
/// window arrives like that, too, and is put into the list of files, where Enter opens it.
pub fn paste(state: &mut State, text: &str) {
    match state.cx.overlays.last_mut() {
        Some(Overlay::Pick(pick)) => {
            pick.selected = 0;
            pick.field.paste(text);
        }
        Some(Overlay::Prompt(prompt)) => prompt.field.paste(text),
        Some(Overlay::Help { search, .. }) => _ = search.paste(text),
        None => {
            let (screen, cx) = state.split(state.cx.tab);
            if screen.filter().is_some_and(|filter| filter.paste(text)) {
                return screen.narrow(cx);
            }
            if screen.paste(text, cx) {
                return;
            }
            let text: String = first_line(text).collect();
            if looks_like_path(&text) {
                cx.pick_file(&text, Opening::Alone(None));
            }
        }
        _ => {}
    }
}
