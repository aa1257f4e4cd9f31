//! Small replacements in a text that leave everything else unchanged: comments, order, blanks.

use std::ops::Range;

/// Replacements of ranges that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Splices(Vec<(Range<usize>, String)>);

impl Splices {
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<String>) {
        self.0.push((range, with.into()));
    }

    /// Returns the text with all replacements.
    pub fn apply(mut self, text: &str) -> String {
        self.0.sort_by_key(|(range, _)| (range.start, range.end));
        let (mut result, mut at) = (String::with_capacity(text.len() + 64), 0);
        for (range, with) in self.0 {
            result.push_str(text.get(at..range.start).unwrap_or_default());
            result.push_str(&with);
            at = range.end.max(at);
        }
        result.push_str(text.get(at..).unwrap_or_default());
        result
    }
}

/// Offset of the first byte of the line of `at`.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// Offset of the end of the line of `at`, excluding the newline.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let end = text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |n| at + n);
    // a carriage return belongs to the newline
    if end > at && text.as_bytes().get(end - 1) == Some(&b'\r') { end - 1 } else { end }
}

/// Offset of the line after the line of `at`.
pub(super) fn next_line(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |n| at + n + 1)
}

pub(super) fn indent(text: &str, at: usize) -> &str {
    let line = text.get(line_start(text, at)..).unwrap_or_default();
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

pub(super) fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Offset of the comma in a gap between values (blanks, comments, newlines and at most one comma).
pub(super) fn comma(text: &str, gap: Range<usize>) -> Option<usize> {
    let mut in_comment = false;
    let bytes = text.as_bytes().get(gap.clone())?;
    let found = bytes.iter().position(|byte| {
        match byte {
            b'#' => in_comment = true,
            b'\n' => in_comment = false,
            _ => {}
        }
        *byte == b',' && !in_comment
    });
    found.map(|at| gap.start + at)
}

pub(super) fn comments(text: &str, gap: Range<usize>) -> Vec<&str> {
    let gap = text.get(gap).unwrap_or_default();
    gap.lines().filter_map(|line| line.find('#').map(|at| line[at..].trim_end())).collect()
}
