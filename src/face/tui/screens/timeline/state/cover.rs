//! Union of intervals with logarithmic queries for covered time, so that the cost of a frame does not
//! depend on the number of spans.

use super::row::{gallop, nearer};
use crate::face::tui::screens::timeline::state::window::Window;

/// Intervals per prefix sum.
const BLOCK: usize = 8;

/// Union of half-open time intervals (ns).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Disjoint ascending intervals (ns).
    intervals: Vec<(i64, i64)>,
    /// Time covered before each block of [`BLOCK`] intervals (ns).
    before: Vec<i64>,
}

impl Cover {
    /// Builds the union of intervals sorted by start; empty ones are ignored.
    pub fn of(sorted: impl Iterator<Item = (i64, i64)>) -> Self {
        let mut intervals: Vec<(i64, i64)> = Vec::new();
        for (start, end) in sorted.filter(|(start, end)| start < end) {
            match intervals.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => intervals.push((start, end)),
            }
        }
        Self::disjoint(intervals)
    }

    /// Builds a cover from disjoint, ascending, non-empty intervals.
    pub fn disjoint(mut intervals: Vec<(i64, i64)>) -> Self {
        intervals.shrink_to_fit();
        let mut sum = 0i64;
        let before = intervals
            .chunks(BLOCK)
            .map(|block| {
                let so_far = sum;
                sum = sum.saturating_add(length(block));
                so_far
            })
            .collect();
        Self { intervals, before }
    }

    pub fn bytes(&self) -> usize {
        self.intervals.capacity() * size_of::<(i64, i64)>() + self.before.capacity() * size_of::<i64>()
    }

    pub fn intervals(&self) -> &[(i64, i64)] {
        &self.intervals
    }

    pub fn nearest(&self, time: i64) -> usize {
        let next = self.intervals.partition_point(|(start, _)| *start <= time);
        nearer(next, time, |place| self.intervals.get(place).copied())
    }

    /// Time (ns) covered before `time`; `next` is the number of intervals that start before it.
    fn sum(&self, next: usize, time: i64) -> i64 {
        let Some(last) = next.checked_sub(1) else { return 0 };
        let first = last / BLOCK * BLOCK;
        let (start, end) = self.intervals[last];
        self.before[last / BLOCK]
            .saturating_add(length(&self.intervals[first..last]))
            .saturating_add(end.min(time).saturating_sub(start))
    }

    fn until(&self, time: i64) -> i64 {
        self.sum(self.intervals.partition_point(|(start, _)| *start < time), time)
    }

    /// Time (ns) covered in each column of a window.
    pub fn columns(&self, window: Window, columns: usize) -> Vec<i64> {
        let mut next = gallop(&self.intervals, 0, |(start, _)| *start < window.from);
        let mut before = self.sum(next, window.from);
        // guess: as many intervals per column as in the previous one
        let mut advance = 0;
        (0..columns)
            .map(|column| {
                let time = window.time(column + 1, columns);
                let found = gallop(&self.intervals, next + advance, |(start, _)| *start < time);
                advance = found.saturating_sub(next);
                next = found;
                let sum = self.sum(next, time);
                sum.saturating_sub(std::mem::replace(&mut before, sum))
            })
            .collect()
    }

    /// Time (ns) covered between two times.
    pub fn between(&self, from: i64, to: i64) -> i64 {
        self.until(to) - self.until(from)
    }

    #[cfg(test)]
    pub fn contains(&self, time: i64) -> bool {
        let next = self.intervals.partition_point(|(start, _)| *start <= time);
        next.checked_sub(1).is_some_and(|i| time < self.intervals[i].1)
    }
}

fn length(intervals: &[(i64, i64)]) -> i64 {
    intervals.iter().fold(0, |sum, (start, end)| end.saturating_sub(*start).saturating_add(sum))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use trace::overlap::intervals::difference;

    fn intervals() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec((0i64..200, 0i64..30), 0..20).prop_map(|mut list| {
            list.sort_unstable();
            list.into_iter().map(|(start, width)| (start, start + width)).collect()
        })
    }

    proptest! {
        #[test]
        fn it_agrees_with_counting(a in intervals(), b in intervals(), from in 0i64..250, width in 0i64..100) {
            let inside = |list: &[(i64, i64)], t: i64| list.iter().any(|(s, e)| *s <= t && t < *e);
            let (x, y) = (Cover::of(a.iter().copied()), Cover::of(b.iter().copied()));
            let rest = Cover::of(difference(x.intervals(), y.intervals()).into_iter());
            let times = from..from + width;
            let count = times.clone().filter(|t| inside(&a, *t)).count() as i64;
            prop_assert_eq!(x.between(from, from + width), count);
            let window = Window::new(from, from + width);
            for (column, covered) in x.columns(window, 7).into_iter().enumerate() {
                prop_assert_eq!(covered, x.between(window.time(column, 7), window.time(column + 1, 7)));
            }
            for t in times {
                prop_assert_eq!(x.contains(t), inside(&a, t));
                prop_assert_eq!(rest.contains(t), inside(&a, t) && !inside(&b, t));
            }
        }
    }
}
