//! Messages at the bottom of the window: errors, and notes that the next key removes; the key hints stay visible.

use ratatui::widgets::{Clear, Widget};

use super::context::Notice;
use super::keymap::Action;
use super::prelude::*;
use super::widgets::wrap::wrap_long_words;

/// Draws an error between the body and the footer.
pub fn draw_error(buf: &mut Buffer, area: Rect, cx: &Context, notice: &Notice) {
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

/// Columns of the footer that a message beside the key hints leaves to them.
const LEAST_HINTS: u16 = 30;

/// Part of the footer for the key hints: a short message shares the row with them, a longer one is above it.
pub fn hints_area(footer: Rect, cx: &Context) -> Rect {
    let Some(notice) = cx.notice.as_ref().filter(|notice| !notice.error) else { return footer };
    match &note_lines(&notice.text, footer.width.saturating_sub(LEAST_HINTS))[..] {
        [only] => cut_left(footer, only.width() as u16 + 2).1,
        _ => footer,
    }
}

/// Draws a message to the left of the key hints; a long one over the last rows of the body.
pub fn draw_note(buf: &mut Buffer, footer: Rect, cx: &Context, notice: &Notice) {
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
    let area = match footer.width - hints_area(footer, cx).width {
        0 => Rect { y: footer.y.saturating_sub(rows), height: rows, ..footer },
        width => cut_left(footer, width).0,
    };
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
