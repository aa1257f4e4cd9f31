//! Restriction of a recording to work that was launched within NVTX ranges of a name.

use std::collections::HashMap;

use base::error::{Error, Result};
use trace::{Span, Trace};

/// Name of ranges, in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePattern {
    given: String,
    /// Text between the stars.
    pieces: Vec<String>,
}

impl RangePattern {
    pub fn new(given: &str) -> Self {
        Self { given: given.to_owned(), pieces: given.split('*').map(str::to_owned).collect() }
    }

    pub fn matches(&self, name: &str) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            return self.given == name;
        };
        let Some(mut rest) = name.strip_prefix(first.as_str()) else { return false };
        for piece in middle {
            let Some(at) = rest.find(piece.as_str()) else { return false };
            rest = &rest[at + piece.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

/// Drops work that was launched outside the ranges, and ranges outside of them.
///
/// # Errors
///
/// Returns an error if no range has the name, or nothing was launched in them.
pub fn keep_launched_in(trace: &mut Trace, pattern: &RangePattern) -> Result<()> {
    let is_named: Vec<bool> = trace.meta.range_names.iter().map(|name| pattern.matches(name)).collect();
    // outermost ranges of the name, by rank and thread, in order
    let mut within: HashMap<(u32, u16), Vec<(i64, i64)>> = HashMap::new();
    for range in trace.ranges.iter().filter(|range| !range.on_device) {
        if is_named.get(range.name as usize).copied().unwrap_or(false) {
            let list = within.entry((range.rank, range.thread)).or_default();
            if list.last().is_none_or(|last| range.end_ns > last.1) {
                list.push((range.start_ns, range.end_ns));
            }
        }
    }
    if within.is_empty() {
        let mut names: Vec<&str> = trace.meta.range_names.iter().map(String::as_str).collect();
        names.truncate(8);
        return Err(Error::input_help(
            format!("no recorded range is named '{}'", pattern.given),
            format!("recorded names: {}", names.join(", ")),
        ));
    }
    let holds = |rank: u32, thread: u16, start: i64, end: i64| {
        within.get(&(rank, thread)).is_some_and(|list| {
            let after = list.partition_point(|range| range.0 <= start);
            after.checked_sub(1).is_some_and(|at| end <= list[at].1)
        })
    };
    let ranges = std::mem::take(&mut trace.ranges);
    let kept: Vec<bool> = ranges
        .iter()
        .map(|range| holds(range.rank, range.thread, range.start_ns, range.end_ns))
        .collect();
    let mut numbers = vec![None; ranges.len()];
    let mut next = 0;
    for (number, kept) in numbers.iter_mut().zip(&kept) {
        if *kept {
            *number = Some(next);
            next += 1;
        }
    }
    let number = |span: &Span| numbers.get(span.launched.range as usize).copied().flatten();
    let had_work = !trace.spans.is_empty();
    trace.spans.retain(|span| number(span).is_some());
    for span in &mut trace.spans {
        if let Some(at) = numbers.get(span.launched.range as usize).copied().flatten() {
            span.launched.range = at;
        }
    }
    trace.ranges = ranges.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(r, _)| r).collect();
    if had_work && trace.spans.is_empty() {
        return Err(Error::input(format!(
            "nothing was launched on a GPU within ranges named '{}'",
            pattern.given
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, matches) in [
            ("decode", "decode", true),
            ("decode", "decode 1", false),
            ("decode*", "decode 1", true),
            ("*step", "decode step", true),
            ("*step", "decode step 2", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(RangePattern::new(pattern).matches(name), matches, "{pattern} {name}");
        }
    }
}
