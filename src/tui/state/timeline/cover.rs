//! A union of intervals that answers "how much of this stretch is covered" in logarithmic time, so
//! that a frame costs the same for a thousand spans and for ten million.

/// A union of half-open intervals of time (ns).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Disjoint, ascending.
    intervals: Vec<(i64, i64)>,
    /// What all intervals before each one cover together.
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
        let mut sum = 0;
        let before = intervals
            .iter()
            .map(|(start, end)| {
                let so_far = sum;
                sum += end - start;
                so_far
            })
            .collect();
        Self { intervals, before }
    }

    /// The part of this union that the other does not cover.
    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut next = 0;
        for &(start, end) in &self.intervals {
            let mut at = start;
            while next < other.intervals.len() && other.intervals[next].1 <= at {
                next += 1;
            }
            let mut hole = next;
            while at < end {
                match other.intervals.get(hole) {
                    Some(&(from, to)) if from < end => {
                        rest.push((at, from.max(at)));
                        at = at.max(to);
                        hole += 1;
                    }
                    _ => {
                        rest.push((at, end));
                        at = end;
                    }
                }
            }
        }
        Self::of(rest.into_iter())
    }

    /// Nanoseconds covered before the time.
    fn until(&self, time: i64) -> i64 {
        match self.intervals.partition_point(|(start, _)| *start < time).checked_sub(1) {
            Some(i) => self.before[i] + self.intervals[i].1.min(time) - self.intervals[i].0,
            None => 0,
        }
    }

    /// Nanoseconds covered between two times.
    pub fn between(&self, from: i64, to: i64) -> i64 {
        self.until(to) - self.until(from)
    }

    /// Whether the time is covered.
    pub fn contains(&self, time: i64) -> bool {
        let next = self.intervals.partition_point(|(start, _)| *start <= time);
        next.checked_sub(1).is_some_and(|i| time < self.intervals[i].1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let rest = x.minus(&y);
            let times = from..from + width;
            let count = times.clone().filter(|t| inside(&a, *t)).count() as i64;
            prop_assert_eq!(x.between(from, from + width), count);
            for t in times {
                prop_assert_eq!(x.contains(t), inside(&a, t));
                prop_assert_eq!(rest.contains(t), inside(&a, t) && !inside(&b, t));
            }
        }
    }
}
