//! Clipped drawing of text and frames.

use ratatui::style::Color;
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;

/// Writes text, cut at the area's right edge with an ellipsis, after a whole word if it has several; returns the next
/// column. Cut blanks and rules need no ellipsis.
pub fn put(buf: &mut Buffer, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
    let area = area.intersection(buf.area);
    if !area.contains(Position::new(x, y)) {
        return x;
    }
    let room = area.right() - x;
    if let Some(behind) = put_plain(buf, (x, y), room, text, style) {
        return behind;
    }
    let is_cut = text.len() > room.into() && text.trim_end_matches([' ', '─']).width() > room.into();
    match is_cut {
        true => buf.set_stringn(x, y, words_or_cut(text, room), room.into(), style).0,
        false => buf.set_stringn(x, y, text, room.into(), style).0,
    }
}

/// Fast path for printable ASCII that fits (trailing blanks may be cut), which is most text: one byte
/// per column, no grapheme segmentation. `None` for other text.
fn put_plain(buf: &mut Buffer, at: (u16, u16), room: u16, text: &str, style: Style) -> Option<u16> {
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return None;
    }
    let columns = text.len().min(room.into());
    if !text.as_bytes()[columns..].iter().all(|byte| *byte == b' ') {
        return None;
    }
    let first = buf.index_of(at.0, at.1);
    for (cell, place) in buf.content[first..first + columns].iter_mut().zip(0..) {
        cell.set_symbol(&text[place..=place]).set_style(style);
    }
    // at most the room, which is a `u16`
    Some(at.0 + columns as u16)
}

/// Draws one glyph of width 1, if inside the area. Used for lanes, which draw thousands per frame; skips
/// grapheme segmentation.
pub fn glyph(buf: &mut Buffer, area: Rect, x: u16, y: u16, symbol: &'static str, style: Style) {
    if area.contains(Position::new(x, y))
        && let Some(cell) = buf.cell_mut((x, y))
    {
        cell.set_symbol(symbol).set_style(style);
    }
}

/// Writes segments one after the other into a row of the area.
pub fn line(buf: &mut Buffer, area: Rect, row: u16, pieces: &[(&str, Style)]) {
    let Some(y) = area.y.checked_add(row) else { return };
    let mut x = area.x;
    for (text, style) in pieces {
        // a segment without any room also gets an ellipsis
        if x == area.right() && x > area.x && !text.trim().is_empty() {
            put(buf, area, x - 1, y, "…", *style);
            return;
        }
        x = put(buf, area, x, y, text, *style);
    }
}

/// Highlights a row of the area as selected.
pub fn select(buf: &mut Buffer, area: Rect, y: u16, theme: Theme) {
    let row = Rect { y, height: 1, ..area }.intersection(buf.area);
    buf.set_style(row, selected(theme));
}

/// Style of a selected row: one colour, whatever its cells have.
pub fn selected(theme: Theme) -> Style {
    let plain = Style::new().fg(Color::Reset).remove_modifier(Modifier::DIM);
    plain.patch(theme.style(Role::Text)).patch(theme.style(Role::Selected))
}

/// Writes into the bottom border of a frame that rows are hidden above and below.
pub fn hidden_rows(buf: &mut Buffer, area: Rect, above: usize, below: usize, theme: Theme) {
    let mark =
        |arrow: &str, rows: usize| if rows > 0 { format!(" {arrow} {rows}") } else { String::new() };
    let text = format!("{}{}", mark("↑", above), mark("↓", below));
    if !text.is_empty() {
        let text = format!("{text} more ");
        let x = area.right().saturating_sub(text.width() as u16 + 2).max(area.x);
        put(buf, area, x, area.bottom().saturating_sub(1), &text, theme.style(Role::Key));
    }
}

/// Number of notes that only the help has, as ` +2 notes: ? `; empty without any. The rest of a cut row is no second
/// note: ` ?: whole line `.
pub fn notes_hint(notes: &[ScreenNote], cx: &Context) -> String {
    let key = cx.keys.label(Action::Help);
    let folded: Vec<&ScreenNote> = notes.iter().filter(|note| note.is_folded).collect();
    match folded.as_slice() {
        [] => String::new(),
        [note] if note.is_beside_hint => format!(" {key}: whole line "),
        folded => format!(" +{}: {key} ", counted(folded.len(), "note")),
    }
}

/// Writes [`notes_hint`] at the right end of a row; returns the rest of the row.
pub fn folded_notes(buf: &mut Buffer, row: Rect, notes: &[ScreenNote], cx: &Context) -> Rect {
    let hint = notes_hint(notes, cx);
    let (rest, place) = cut_left(row, row.width.saturating_sub(hint.width() as u16));
    put(buf, place, place.x, place.y, &hint, cx.theme.style(Role::Key));
    rest
}

/// Draws a frame with a title; returns its interior.
pub fn frame(buf: &mut Buffer, area: Rect, title: &str, theme: Theme) -> Rect {
    let area = area.intersection(buf.area);
    if area.width < 2 || area.height < 2 {
        return Rect { width: 0, height: 0, ..area };
    }
    let title = if title.is_empty() {
        String::new()
    } else {
        format!(" {} ", words_or_cut(title, area.width.saturating_sub(4)))
    };
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.style(Role::Border))
        .title(title)
        .title_style(theme.style(Role::Title))
        .render(area, buf);
    inside(area)
}

/// Like [`frame`], after clearing the area to the theme's background.
pub fn popup(buf: &mut Buffer, area: Rect, title: &str, theme: Theme) -> Rect {
    let ground = area.intersection(buf.area);
    Clear.render(ground, buf);
    buf.set_style(ground, theme.style(Role::Text));
    frame(buf, area, title, theme)
}

/// Writes the reason why an area is empty, centered and dim.
pub fn empty(buf: &mut Buffer, area: Rect, text: &str, theme: Theme) {
    let lines = wrap(text, usize::from(area.width.saturating_sub(4)));
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 2;
    for (i, text) in lines.iter().enumerate() {
        let x = area.x + area.width.saturating_sub(text.width() as u16) / 2;
        put(buf, area, x, top.saturating_add(i as u16), text, theme.style(Role::Dim));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_says_so_and_blanks_and_rules_are_no_loss() {
        let shown = |text: &str, width: u16| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 8, 1));
            let end = put(&mut buf, Rect::new(0, 0, width, 1), 0, 0, text, Style::new());
            assert!(end <= width, "{text}: nothing stands beyond the area");
            (0..8).map(|x| buf[(x, 0)].symbol().to_owned()).collect::<String>().trim_end().to_owned()
        };
        assert_eq!(shown("ladder", 6), "ladder");
        assert_eq!(shown("ladder", 5), "ladd…");
        assert_eq!(shown("ladder   ", 6), "ladder", "blanks are no loss");
        assert_eq!(shown("── a ──────", 7), "── a ──", "nor is a rule");
        assert_eq!(shown("a b c defgh", 8), "a b c …", "whole words");
        assert_eq!(shown("日本語", 5), "日 本 …", "a letter of two columns is there or not");
        assert_eq!(shown("日本語", 4), "日 …");
    }

    #[test]
    fn plain_text_is_written_as_any_other() {
        let style = Style::new().add_modifier(ratatui::style::Modifier::BOLD);
        for text in ["", " ", "ladder", "ladder  ", "ladder tp8", "12.9 ms  ~{}!", "\tno", "é"] {
            for (x, width) in [(0, 8), (3, 8), (0, 6), (7, 8)] {
                let whole = Rect::new(0, 0, 8, 2);
                let (mut ours, mut theirs) = (Buffer::empty(whole), Buffer::empty(whole));
                let area = Rect { width, ..whole };
                let end = put(&mut ours, area, x, 1, text, style);
                let room = area.right().saturating_sub(x);
                let text =
                    if text.trim_end().width() > room.into() { cut(text, room) } else { text.into() };
                let other = theirs.set_stringn(x, 1, text, room.into(), style).0;
                assert_eq!((end, ours), (other, theirs));
            }
        }
    }
}
