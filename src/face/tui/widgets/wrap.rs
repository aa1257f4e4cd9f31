//! Text fitted to a width: wrapped, cut after whole words, or as a progress bar.

use unicode_width::UnicodeWidthStr;

use crate::face::tui::format::cut;

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

/// Like [`wrap`], but a word that is wider than a row, such as a path or the name of a kernel, goes on where the row
/// ends.
pub fn wrap_long_words(text: &str, width: usize) -> Vec<String> {
    if text.split_whitespace().all(|word| word.width() <= width) {
        return wrap(text, width);
    }
    let rows_of = |line: &str| {
        let (mut rows, mut row) = (Vec::new(), String::new());
        for word in line.split_inclusive(' ') {
            let columns = word.trim_end().width();
            if columns <= width && row.width() + columns > width {
                rows.push(std::mem::take(&mut row));
            }
            for c in word.chars() {
                match (row.width() < width, c) {
                    (true, _) => row.push(c),
                    // no row begins with a blank
                    (false, ' ') => {}
                    (false, _) => rows.push(std::mem::replace(&mut row, c.to_string())),
                }
            }
        }
        rows.push(row);
        rows.into_iter().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>()
    };
    text.lines().flat_map(rows_of).collect()
}

/// Text cut after a whole word, with an ellipsis; empty if fewer than three words fit.
pub fn whole_words(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let kept = wrap(text, room.saturating_sub(2)).into_iter().next().unwrap_or_default();
    if kept.split_whitespace().count() > 2 { format!("{kept} …") } else { String::new() }
}

/// Longest part of a text that ends before one of `ends`, fits and has no open bracket: the whole text if it fits; `None` if no
/// part does.
pub fn leading_clauses<'a>(text: &'a str, room: usize, ends: &[&str]) -> Option<&'a str> {
    if text.width() <= room {
        return Some(text);
    }
    let count = |text: &str, brackets: [char; 2]| text.matches(brackets).count();
    let is_whole =
        |text: &&str| count(text, ['(', '[']) == count(text, [')', ']']) && text.width() <= room;
    let ends = ends.iter().flat_map(|end| text.match_indices(end));
    let clauses = ends.filter_map(|(at, _)| text.get(..at)).filter(is_whole);
    clauses.max_by_key(|clause| clause.len())
}

/// Like [`leading_clauses`], with an ellipsis in place of what does not fit.
pub fn elided_clauses(text: &str, room: usize, ends: &[&str]) -> Option<String> {
    if text.width() <= room {
        return Some(text.to_owned());
    }
    let kept = leading_clauses(text, room.saturating_sub(" …".width()), ends)?;
    Some(format!("{kept} …"))
}

/// Like [`leading_clauses`], for `most` rows of this many columns.
pub fn clauses_in_rows<'a>(
    text: &'a str,
    (columns, most): (usize, usize),
    ends: &[&str],
) -> Option<&'a str> {
    let mut room = text.width();
    loop {
        let kept = leading_clauses(text, room, ends).filter(|kept| !kept.is_empty())?;
        if wrap(kept, columns).len() <= most {
            return Some(kept);
        }
        room = kept.width().checked_sub(1)?;
    }
}

/// First text that fits, the last if none does.
pub fn first_fitting(texts: &[String], room: u16) -> &str {
    let fits = |text: &&String| text.width() <= room.into();
    texts.iter().find(fits).or(texts.last()).map_or("", String::as_str)
}

/// Joins the clauses that fit, up to the first one that does not.
pub fn join_fitting(clauses: &[String], room: u16) -> String {
    let mut text = clauses.first().cloned().unwrap_or_default();
    for clause in clauses.iter().skip(1) {
        if text.width() + clause.width() > room.into() {
            break;
        }
        text += clause;
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_in_eighths() {
        assert_eq!(bar(0.0, 4), "····");
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!(bar(0.53, 4), "██▏·");
        assert_eq!(bar(7.0, 2), "██");
    }

    #[test]
    fn leading_clauses_are_not_cut_within_brackets() {
        let text = "ladder 1.35x (1.2 at b1, 1.1 at b4), parallel 1.2x";
        let fitting = |room| leading_clauses(text, room, &[", ", " ("]);
        assert_eq!(fitting(60), Some(text));
        assert_eq!(fitting(40), Some("ladder 1.35x (1.2 at b1, 1.1 at b4)"));
        assert_eq!(fitting(30), Some("ladder 1.35x"));
        assert_eq!(fitting(5), None);
    }

    #[test]
    fn wrapping_loses_nothing_and_fits() {
        let lines = wrap("one two three\nfourteenletters", 7);
        assert_eq!(lines, ["one two", "three", "fourtee", "nletter", "s"]);
        assert_eq!(wrap("hides 45 % here", 8), ["hides", "45 %", "here"]);
        let lines = wrap_long_words("at /a/long/path: --sort tpot_p50_ms", 12);
        assert_eq!(lines, ["at /a/long/p", "ath: --sort", "tpot_p50_ms"]);
    }
}
