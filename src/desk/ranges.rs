//! Filter of a recording by NVTX range: keeps the work that ranges of a name launched.

use std::collections::HashMap;

use base::error::{Error, Result};
use trace::{Range, Span, Trace};

/// True if a name fits a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, pattern)) = pattern.split_once('*') else { return pattern == name };
    let (middle, last) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for piece in middle.split('*') {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Drops work that was launched outside the ranges whose names fit the pattern, and ranges outside of them.
///
/// # Errors
///
/// Returns an error if no range has the name, or nothing was launched in them.
pub fn keep_launched_in(trace: &mut Trace, pattern: &str) -> Result<()> {
    let is_named: Vec<bool> = trace.meta.range_names.iter().map(|name| matches(pattern, name)).collect();
    // start and end of the outermost ranges of the name, by rank and thread, in order
    let mut outermost: HashMap<(u32, u16), Vec<(i64, i64)>> = HashMap::new();
    for range in trace.ranges.iter().filter(|range| !range.on_device) {
        if is_named.get(range.name as usize).copied().unwrap_or(false) {
            let list = outermost.entry((range.rank, range.thread)).or_default();
            if list.last().is_none_or(|last| range.end_ns > last.1) {
                list.push((range.start_ns, range.end_ns));
            }
        }
    }
    if outermost.is_empty() {
        let mut names: Vec<&str> = trace.meta.range_names.iter().map(String::as_str).collect();
        names.truncate(8);
        return Err(Error::input_help(
            format!("no recorded range is named '{pattern}'"),
            format!("recorded names: {}", names.join(", ")),
        ));
    }
    let is_inside = |range: &Range| {
        outermost.get(&(range.rank, range.thread)).is_some_and(|list| {
            let after = list.partition_point(|(start, _)| *start <= range.start_ns);
            after.checked_sub(1).is_some_and(|at| range.end_ns <= list[at].1)
        })
    };
    let ranges = std::mem::take(&mut trace.ranges);
    // new index of each range; `None` if it is dropped
    let mut indices = vec![None; ranges.len()];
    for (at, range) in ranges.into_iter().enumerate().filter(|(_, range)| is_inside(range)) {
        indices[at] = Some(trace.ranges.len() as u32);
        trace.ranges.push(range);
    }
    let index = |span: &Span| indices.get(span.launched.range as usize).copied().flatten();
    let had_work = !trace.spans.is_empty();
    trace.spans.retain_mut(|span| {
        let kept = index(span);
        span.launched.range = kept.unwrap_or(span.launched.range);
        kept.is_some()
    });
    if had_work && trace.spans.is_empty() {
        return Err(Error::input(format!(
            "nothing was launched on a GPU within ranges named '{pattern}'"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
    use trace::testing::{span, trace};

    #[test]
    fn work_outside_of_the_named_ranges_is_dropped() {
        let range = |name, start_ns, end_ns| Range {
            rank: 0,
            on_device: false,
            thread: 0,
            depth: 0,
            name,
            start_ns,
            end_ns,
        };
        let launched_in = |range| {
            let mut span = span(0, Lane::Compute, 0, 10);
            span.launched.range = range;
            span
        };
        let recorded = || {
            let mut trace = trace(vec![launched_in(0), launched_in(1), launched_in(2)]);
            trace.meta.range_names = vec!["prefill".into(), "decode 1".into(), "layer".into()];
            trace.ranges = vec![range(0, 0, 50), range(1, 100, 200), range(2, 120, 150)];
            trace
        };
        let mut kept = recorded();
        keep_launched_in(&mut kept, "decode*").unwrap();
        assert_eq!(kept.ranges, recorded().ranges[1..]);
        let ranges: Vec<u32> = kept.spans.iter().map(|span| span.launched.range).collect();
        assert_eq!(ranges, [0, 1], "renumbered");
        let error = keep_launched_in(&mut recorded(), "train").unwrap_err();
        assert!(error.to_string().contains("no recorded range is named 'train'"), "{error}");
    }

    #[test]
    fn stars_match_any_text() {
        for (pattern, name, fits) in [
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
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
