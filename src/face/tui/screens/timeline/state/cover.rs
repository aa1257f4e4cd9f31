//! A union of intervals that answers "how much of this stretch is covered" in logarithmic time, so
//! that a frame costs the same for a thousand spans and for ten million.

use super::row::{gallop, nearer};
use crate::face::tui::screens::timeline::state::window::Window;

/// Intervals from one sum to the next.
const BLOCK: usize = 8;

/// A union of half-open intervals of time (ns).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// The intervals of the union: disjoint, ascending (ns).
    intervals: Vec<(i64, i64)>,
    /// What all intervals before every [`BLOCK`]th cover together.
    before: Vec<i64>,
}

impl Cover {
    /// The union of intervals given by ascending start; empty ones count for nothing.
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

    /// Of disjoint intervals, ascending, none of them empty.
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

    /// How many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.intervals.capacity() * size_of::<(i64, i64)>() + self.before.capacity() * size_of::<i64>()
    }

    /// The intervals of the union, ascending and disjoint (ns).
    pub fn intervals(&self) -> &[(i64, i64)] {
        &self.intervals
    }

    /// The place of the interval that is nearest to the time.
    pub fn nearest(&self, time: i64) -> usize {
        let next = self.intervals.partition_point(|(start, _)| *start <= time);
        nearer(next, time, |place| self.intervals.get(place).copied())
    }

    /// Nanoseconds covered before the time; `next`: how many intervals start before it.
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

    /// How much of each column of a window is covered (ns).
    pub fn columns(&self, window: Window, columns: usize) -> Vec<i64> {
        let mut next = gallop(&self.intervals, 0, |(start, _)| *start < window.from);
        let mut before = self.sum(next, window.from);
        // as many intervals a column as in the one before, as a rule
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

    /// Nanoseconds covered between two times.
    pub fn between(&self, from: i64, to: i64) -> i64 {
        self.until(to) - self.until(from)
    }

    /// Whether the time is covered.
    #[cfg(test)]
    pub fn contains(&self, time: i64) -> bool {
        let next = self.intervals.partition_point(|(start, _)| *start <= time);
        next.checked_sub(1).is_some_and(|i| time < self.intervals[i].1)
    }
}

/// What disjoint intervals cover together.
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
