//! Cleanup of nccl-tests output: removes colours and the line prefixes of launchers and loggers.
//!
//! Prefixes are learned from the heading, whose lines are known: the text before `#` is a prefix. Rows are
//! then cut after a prefix of the same shape (`[1,0]<stdout>:`, `0:`, `[pod/name/main]`, a time stamp):
//! letters and digits may vary between lines, punctuation may not.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Removes terminal escape sequences and the byte order mark.
pub(super) fn without_escapes(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    if !text.contains('\u{1b}') {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '\u{1b}' {
            plain.push(char);
            continue;
        }
        match chars.next() {
            // a control sequence ends with a letter or one of @[\]^_`{|}~
            Some('[') => drop(chars.by_ref().find(|char| ('@'..='~').contains(char))),
            // a title ends with a bell or an escaped backslash, at the latest at the end of the line
            Some(']') => {
                while chars.peek().is_some_and(|char| *char != '\n') {
                    if matches!(chars.next(), Some('\u{7}' | '\\')) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    plain.into()
}

/// Replaces every run of blanks (spaces, tabs, no-break spaces) by one space, so that tools that change blanks
/// change no meaning. Line numbers stay.
pub(super) fn with_single_blanks(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        for (at, word) in line.split_whitespace().enumerate() {
            lines.push_str(if at > 0 { " " } else { "" });
            lines.push_str(word);
        }
        lines.push('\n');
    }
    lines
}

/// Maximum length of a prefix (bytes).
const LONGEST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Prefixes(BTreeSet<String>);

impl Prefixes {
    pub(super) fn learn(&mut self, prefix: &str) {
        self.0.insert(shape(prefix));
    }

    /// Candidate rows after removing known prefixes, longest prefix first; each starts with a digit.
    pub(super) fn rows<'a>(&self, line: &'a str) -> Vec<&'a str> {
        let mut before = ' ';
        let mut rows = Vec::new();
        for (at, char) in line.char_indices().take_while(|(at, _)| *at <= LONGEST) {
            if char.is_ascii_digit() && !is_word(before) && self.0.contains(&shape(&line[..at])) {
                rows.push(&line[at..]);
            }
            before = char;
        }
        rows.reverse();
        rows
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Shape of a prefix: every word and number becomes `w`, runs of blanks become one, and trailing blanks go.
fn shape(prefix: &str) -> String {
    let mut shape = String::new();
    for char in prefix.trim().chars() {
        let class = match char {
            char if is_word(char) => 'w',
            char if char.is_whitespace() => ' ',
            char => char,
        };
        if !(matches!(class, 'w' | ' ') && shape.ends_with(class)) {
            shape.push(class);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_titles_are_removed() {
        let text = "\u{feff}\u{1b}]0;title\u{7}\u{1b}[32m#  Rank\u{1b}[0m  0\n\u{1b}]open\nnext";
        assert_eq!(without_escapes(text), "#  Rank  0\n\nnext");
        assert!(matches!(without_escapes("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn rows_are_cut_behind_a_prefix_of_the_headings_shape() {
        for (heading, row) in [
            ("[1,0]<stdout>:", "[1,0]<stdout>:   8  2 float"),
            ("[prterun-gpu-a-41@1,0]<stdout>: ", "[prterun-gpu-a-41@1,0]<stdout>: 8  2 float"),
            (" 0: ", " 0:        8  2 float"),
            ("[pod/job-abc-0/main] ", "[pod/job-abc-0/main]   8  2 float"),
            ("[2026-11-27 12:00:00] ", "[2026-11-27 12:00:01]   8  2 float"),
            ("2026-11-27T12:00:00.123Z ", "2026-11-27T12:00:01.7Z 8  2 float"),
            ("Nov 27 12:00:00 ", "Dec 28 12:00:01    8  2 float"),
            ("worker-1  | ", "worker-1  |  8  2 float"),
            ("", "      8  2 float"),
        ] {
            let mut prefixes = Prefixes::default();
            prefixes.learn(heading);
            let rows: Vec<String> =
                prefixes.rows(row).iter().map(|row| row.split_whitespace().collect()).collect();
            assert_eq!(rows, ["82float"], "{heading:?}");
        }
        let mut prefixes = Prefixes::default();
        prefixes.learn("0: ");
        assert!(prefixes.rows("   8  2 float").is_empty());
        assert!(prefixes.rows("[1,1]<stdout>:gpu-a: 8 channels").is_empty());
    }
}
