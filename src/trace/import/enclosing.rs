//! Innermost range of a thread around a time, and the order of ranges.

use std::cmp::Reverse;

use rayon::prelude::*;

use crate::Range;
use crate::overlap::intervals::seek;

#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadRange {
    pub(super) thread: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) value: u32,
}

impl ThreadRange {
    pub(super) fn new(range: &Range, value: u32) -> Self {
        let Range { thread, start_ns, end_ns, .. } = *range;
        Self { thread: thread.into(), start_ns, end_ns, value }
    }
}

#[derive(Debug, Default)]
pub(super) struct Enclosing {
    /// Sorted by thread and start, longest first.
    list: Vec<ThreadRange>,
    /// Index of the next range around it on the thread that ends later; `u32::MAX` for none.
    outer: Vec<u32>,
}

impl Enclosing {
    pub(super) fn new(mut list: Vec<ThreadRange>) -> Self {
        list.par_sort_by_key(|range| (range.thread, range.start_ns, Reverse(range.end_ns), range.value));
        let mut outer: Vec<u32> = Vec::with_capacity(list.len());
        let mut open: Vec<u32> = Vec::new();
        let mut thread = None;
        for (at, range) in list.iter().enumerate() {
            if thread.replace(range.thread) != Some(range.thread) {
                open.clear();
            }
            while open.last().is_some_and(|last| list[*last as usize].end_ns <= range.start_ns) {
                open.pop();
            }
            let mut around = open.last().copied().unwrap_or(u32::MAX);
            while list.get(around as usize).is_some_and(|other| other.end_ns <= range.end_ns) {
                around = outer[around as usize];
            }
            outer.push(around);
            open.push(at as u32);
        }
        Self { list, outer }
    }

    /// Value of the innermost range of `thread` around `time`. `cursor` caches the position of the
    /// caller's last search, 0 at first, which makes ascending lookups O(1).
    pub(super) fn innermost(&self, thread: i64, time: i64, cursor: &mut usize) -> Option<u32> {
        let starts = |range: &ThreadRange| (range.thread, range.start_ns) <= (thread, time);
        *cursor = seek(&self.list, *cursor, starts);
        let mut at = cursor.checked_sub(1)?;
        loop {
            let range = self.list[at];
            if range.thread != thread {
                return None;
            }
            if time < range.end_ns {
                return Some(range.value);
            }
            at = *self.outer.get(at).filter(|outer| **outer != u32::MAX)? as usize;
        }
    }
}

/// Sorts ranges. Returns the new index of each.
pub(super) fn sort_ranges<K: Ord>(ranges: &mut [Range], key: impl Fn(&Range) -> K + Sync) -> Vec<u32> {
    let mut numbered: Vec<(u32, Range)> = (0..).zip(ranges.iter().copied()).collect();
    numbered.par_sort_by_key(|(_, range)| key(range));
    let mut sorted = vec![0; ranges.len()];
    for ((range, (before, moved)), at) in ranges.iter_mut().zip(numbered).zip(0..) {
        *range = moved;
        sorted[before as usize] = at;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_innermost_is_the_last_to_start_of_nested_ranges(
            cuts in prop::collection::vec((0i64..40, 0i64..40, 0i64..2), 0..30),
            time in 0i64..40,
            thread in 0i64..2,
            mut cursor in 0usize..40,
        ) {
            // nested: a range that would cross an earlier one is left out
            let mut list: Vec<ThreadRange> = Vec::new();
            for (value, (a, b, thread)) in cuts.into_iter().enumerate() {
                let range = ThreadRange { thread, start_ns: a.min(b), end_ns: a.max(b), value: value as u32 };
                let crosses = |other: &ThreadRange| {
                    let apart = other.end_ns <= range.start_ns || range.end_ns <= other.start_ns;
                    let within = |a: &ThreadRange, b: &ThreadRange| a.start_ns <= b.start_ns && b.end_ns <= a.end_ns;
                    other.thread == thread && !apart && !within(other, &range) && !within(&range, other)
                };
                if range.start_ns < range.end_ns && !list.iter().any(crosses) {
                    list.push(range);
                }
            }
            let around = list.iter().filter(|r| r.thread == thread && r.start_ns <= time && time < r.end_ns);
            let expected = around.min_by_key(|r| (r.end_ns - r.start_ns, Reverse(r.value)));
            let found = Enclosing::new(list.clone()).innermost(thread, time, &mut cursor);
            let length = |value: u32| list.iter().find(|r| r.value == value).map(|r| r.end_ns - r.start_ns);
            prop_assert_eq!(found.and_then(length), expected.map(|r| r.end_ns - r.start_ns));
        }
    }
}
