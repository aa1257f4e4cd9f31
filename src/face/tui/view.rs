//! Window drawing: tabs, the screen, the footer, messages, overlays. Only reads the state.
//!
//! ```text
//! | 1 experiments  2 live  3 runs ...            ▶ 3/12 |   tabs
//! |                                                     |
//! |                     the screen                      |   body
//! |                                                     |
//! | Enter run  e file  ...         ? help  : palette    |   footer
//! ```

use super::footer;
use super::notice::{draw_error, draw_note, hints_area};
use super::prelude::*;
use super::regions::{SMALLEST, regions};

/// Least columns for the titles of all tabs and the progress of a sweep.
pub const ALL_TITLES: u16 = 80;

pub fn draw(buf: &mut Buffer, state: &State) {
    draw_without_overlays(buf, state);
    let Some(regions) = regions(&state.cx) else { return };
    for top in &state.cx.overlays {
        top.draw(buf, &state.cx);
    }
    if let Some(top) = state.cx.overlays.last() {
        // the footer shows the keys of the top overlay
        let area = hints_area(regions.footer, &state.cx);
        footer::draw_fixed_hints(buf, area, state.cx.theme, top.hints());
    }
    if let Some(notice) = state.cx.notice.as_ref().filter(|notice| !notice.error) {
        draw_note(buf, regions.footer, &state.cx, notice);
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
            put(buf, window, x, top + row as u16, text, state.cx.theme.style(Role::Text));
        }
        return;
    };
    draw_tabs(buf, regions.tabs, state);
    state.screen(state.cx.tab).draw(buf, regions.body, &state.cx);
    footer::draw(buf, regions.footer, state);
    if let Some(notice) = state.cx.notice.as_ref().filter(|notice| notice.error) {
        draw_error(buf, regions.notice, &state.cx, notice);
    }
}

fn draw_tabs(buf: &mut Buffer, area: Rect, state: &State) {
    let theme = state.cx.theme;
    let mut end = area.x;
    for (tab, text, x) in tabs(&state.cx) {
        let role = if tab == state.cx.tab { Role::Selected } else { Role::Text };
        end = put(buf, area, area.x + x, area.y, &text, theme.style(role));
    }
    if let Some(text) = state.screen(Tab::Live).status(&state.cx).badge {
        let x = area.right().saturating_sub(text.width() as u16).max(end);
        put(buf, area, x, area.y, &text, theme.style(Role::Active));
    }
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
