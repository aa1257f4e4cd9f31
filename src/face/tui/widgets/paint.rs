//! Clipped drawing of text and frames.
//!
//! Result card: headline, badge of trust and bullets of an answer, wrapped to a width; the whole result has a table and
//! details too.

use ratatui::style::Color;
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use study::answer::{Answer, CardLine, SCOPE};

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

/// Number of notes that only the help has, as ` +2 notes: ? `; empty without any.
pub fn notes_hint(notes: &[Note], cx: &Context) -> String {
    match notes.iter().filter(|note| note.is_folded).count() {
        0 => String::new(),
        folded => format!(" +{}: {} ", counted(folded, "note"), cx.keys.label(Action::Help)),
    }
}

/// Writes [`notes_hint`] at the right end of a row; returns the rest of the row.
pub fn folded_notes(buf: &mut Buffer, row: Rect, notes: &[Note], cx: &Context) -> Rect {
    let hint = notes_hint(notes, cx);
    let (rest, place) = cut_left(row, row.width.saturating_sub(hint.width() as u16));
    put(buf, place, place.x, place.y, &hint, cx.theme.style(Role::Key));
    rest
}

/// Writes into the bottom border of a result's frame the keys of the screens that show more of it.
pub fn next_screens(buf: &mut Buffer, area: Rect, cx: &Context) {
    let (mut x, y) = (area.x + 2, area.bottom().saturating_sub(1));
    for tab in [Tab::Compare, Tab::Pareto, Tab::Runs] {
        let key = format!(" {}", cx.keys.label(Action::Show(tab)));
        x = put(buf, area, x, y, &key, cx.theme.style(Role::Key));
        x = put(buf, area, x, y, &format!(" {} ", tab.title()), cx.theme.style(Role::Dim));
    }
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

/// Wraps text to `width` columns, at spaces if possible.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width.max(1))
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    // a number and its percent sign stay together, as do a tie's mark and its words
    let text = text.replace(" %", "\u{a0}%").replace("≈ ", "≈\u{a0}");
    let lines = text.lines().flat_map(|line| textwrap::wrap(line, &options));
    lines.map(|line| line.replace('\u{a0}', " ")).collect()
}

/// Text cut after a whole word, with an ellipsis; empty if fewer than three words fit.
pub fn whole_words(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let kept = wrap(text, room.saturating_sub(2)).into_iter().next().unwrap_or_default();
    if kept.split_whitespace().count() > 2 { format!("{kept} …") } else { String::new() }
}

/// First text that fits, the last if none does.
pub fn first_fitting(texts: &[String], room: u16) -> &str {
    let fits = |text: &&String| text.width() <= room.into();
    texts.iter().find(fits).or(texts.last()).map_or("", String::as_str)
}

/// Rows of a headline, at most `most`; too long a text loses the remark in brackets at its end, then its last words.
pub fn headline_rows(text: &str, width: u16, most: usize) -> Vec<String> {
    let width = usize::from(width.saturating_sub(2));
    let whole = wrap(text, width);
    if whole.len() <= most {
        return whole;
    }
    let remark = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
    let mut rows = wrap(remark.map_or(text, |(text, _)| text), width);
    if rows.len() > most {
        rows.truncate(most);
        if let Some(last) = rows.last_mut() {
            let kept = wrap(last, width.saturating_sub(2)).into_iter().next().unwrap_or_default();
            *last = format!("{kept} …");
        }
    }
    rows
}

/// True if rows have all words of a text.
pub fn is_whole(rows: &[String], text: &str) -> bool {
    rows.iter().flat_map(|row| row.split_whitespace()).eq(text.split_whitespace())
}

pub fn empty(buf: &mut Buffer, area: Rect, text: &str, theme: Theme) {
    let lines = wrap(text, usize::from(area.width.saturating_sub(4)));
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 2;
    for (i, text) in lines.iter().enumerate() {
        let x = area.x + area.width.saturating_sub(text.width() as u16) / 2;
        put(buf, area, x, top.saturating_add(i as u16), text, theme.style(Role::Dim));
    }
}

/// Like [`whole_words`], but cut within the first word rather than empty.
pub fn words_or_cut(text: &str, room: u16) -> String {
    let words = Some(whole_words(text, room.into())).filter(|words| !words.is_empty());
    words.unwrap_or_else(|| cut(text, room))
}

/// Progress bar filled to `fraction`, in eighths of a column.
pub fn bar(fraction: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (fraction.clamp(0.0, 1.0) * (columns * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.push_str(EIGHTHS[eighths % 8]);
    let used = eighths.div_ceil(8);
    text.push_str(&"·".repeat(columns.saturating_sub(used)));
    text
}

/// Wrapped lines of a card with their roles.
pub fn card_lines<'a>(
    card: impl IntoIterator<Item = (CardLine, &'a str)>,
    width: usize,
) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for (line, text) in card {
        let (head, role) = match line {
            CardLine::Headline => ("", Role::Title),
            CardLine::Basis(provenance) => ("", provenance.map_or(Role::Dim, Role::of_provenance)),
            CardLine::Noise => ("! ", Role::Warn),
            CardLine::Bullet => ("• ", Role::Text),
        };
        let blanks = " ".repeat(head.width());
        for (at, words) in wrap(text, width.saturating_sub(head.width())).into_iter().enumerate() {
            lines.push((format!("{}{words}", if at == 0 { head } else { &blanks }), role));
        }
    }
    lines
}

/// Lines of the result: headline, trust and speedups first, so that a low window shows them, then the rest. In a low
/// window the warning about noise is among the rest.
pub fn result_lines(answers: &[Answer], width: usize, is_low: bool) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for answer in answers {
        let (trust, scope) = answer.basis.split_once(SCOPE).unwrap_or((&answer.basis, ""));
        let is_folded = is_low && answer.noise.is_some();
        let trust = format!("{trust}{}", if is_folded { ", noisy (below)" } else { "" });
        let noise = || answer.noise.as_deref().map(|noise| (CardLine::Noise, noise));
        let basis = (CardLine::Basis(answer.provenance), trust.as_str());
        let head = [(CardLine::Headline, answer.headline.as_str()), basis];
        lines.extend(card_lines(head.into_iter().chain(noise().filter(|_| !is_folded)), width));
        let table = answer.table.fitted(width);
        let rule = table.text.lines().position(|line| line.starts_with('─'));
        for (at, line) in table.text.lines().enumerate().filter(|(at, _)| Some(*at) != rule) {
            let role = match rule {
                Some(rule) if at + 1 == rule => Role::Title,
                Some(rule) if at < rule => Role::Dim,
                _ => Role::Text,
            };
            lines.push((line.to_owned(), role));
        }
        let compare = Tab::Compare.title();
        if answer.left_out > 0 {
            let more = counted(answer.left_out, "more row");
            lines.push((format!("… and {more}: screen {compare} has all"), Role::Dim));
        }
        if !table.left_out.is_empty() {
            let columns = table.left_out.join(", ");
            let text = format!("… no room for {columns}: screen {compare} shows them for each pair");
            lines.extend(wrap(&text, width).into_iter().map(|words| (words, Role::Dim)));
        }
        let bullets = answer.bullets.iter().map(|bullet| (CardLine::Bullet, bullet.as_str()));
        lines.extend(card_lines(noise().filter(|_| is_folded).into_iter().chain(bullets), width));
        for text in [scope].into_iter().chain(answer.details.iter().map(String::as_str)) {
            lines.extend(wrap(text, width).into_iter().map(|words| (words, Role::Dim)));
        }
    }
    lines
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

    #[test]
    fn bars_fill_in_eighths() {
        assert_eq!(bar(0.0, 4), "····");
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!(bar(0.53, 4), "██▏·");
        assert_eq!(bar(7.0, 2), "██");
    }

    #[test]
    fn wrapping_loses_nothing_and_fits() {
        let lines = wrap("one two three\nfourteenletters", 7);
        assert_eq!(lines, ["one two", "three", "fourtee", "nletter", "s"]);
        assert_eq!(wrap("hides 45 % here", 8), ["hides", "45 %", "here"]);
    }
}
