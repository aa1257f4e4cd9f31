//! Unions, intersections and differences of half-open intervals of integer nanoseconds: exact, in
//! O(n log n). Everything that is said about overlap rests on these few functions.

/// Half-open: from the first nanosecond up to, not including, the second.
pub type Interval = (i64, i64);

/// The union as sorted intervals that neither overlap nor touch. Empty and reversed ones vanish.
pub fn union(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|(start, end)| end > start);
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Total length of disjoint intervals (ns).
pub fn length(intervals: &[Interval]) -> i64 {
    intervals.iter().map(|(start, end)| end - start).sum()
}

/// What lies in both of two unions.
pub fn intersection(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let common = (x.0.max(y.0), x.1.min(y.1));
        if common.0 < common.1 {
            both.push(common);
        }
        if x.1 < y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// What lies in the union `a` and not in the union `b`.
pub fn difference(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut rest = Vec::new();
    let mut j = 0;
    for &(mut start, end) in a {
        while b.get(j).is_some_and(|y| y.1 <= start) {
            j += 1;
        }
        // `j` stays where it is: the last interval of `b` looked at may reach into the next of `a`.
        let mut k = j;
        while let Some(&(from, to)) = b.get(k).filter(|y| y.0 < end) {
            if start < from {
                rest.push((start, from));
            }
            start = start.max(to);
            k += 1;
        }
        if start < end {
            rest.push((start, end));
        }
    }
    rest
}

/// The interval cut to `bounds`; `None` where nothing is left. An empty interval within the bounds
/// stays: it has a place in time though it has no length.
pub fn clip(interval: Interval, bounds: Interval) -> Option<Interval> {
    let (start, end) = interval;
    let inside = if start == end {
        bounds.0 <= start && start < bounds.1
    } else {
        start < bounds.1 && end > bounds.0
    };
    inside.then(|| (start.max(bounds.0), end.min(bounds.1)))
}

/// Answers how much of any interval a union covers, in O(log n) each.
#[derive(Debug)]
pub struct Coverage {
    union: Vec<Interval>,
    /// Length of the union before each of its intervals.
    before: Vec<i64>,
}

impl Coverage {
    /// Of a union.
    pub fn new(union: Vec<Interval>) -> Self {
        let before = union
            .iter()
            .scan(0, |sum, (start, end)| {
                let here = *sum;
                *sum += end - start;
                Some(here)
            })
            .collect();
        Self { union, before }
    }

    /// Nanoseconds of the union that lie before `time`.
    fn until(&self, time: i64) -> i64 {
        match self.union.partition_point(|(start, _)| *start < time) {
            0 => 0,
            n => self.before[n - 1] + time.min(self.union[n - 1].1) - self.union[n - 1].0,
        }
    }

    /// Nanoseconds of `interval` that the union covers.
    pub fn of(&self, interval: Interval) -> i64 {
        if interval.1 <= interval.0 { 0 } else { self.until(interval.1) - self.until(interval.0) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: i64 = 60;

    fn intervals() -> impl Strategy<Value = Vec<Interval>> {
        prop::collection::vec((0..END, 0..END), 0..12)
    }

    /// One flag a nanosecond.
    fn grid(intervals: &[Interval]) -> Vec<bool> {
        (0..END).map(|t| intervals.iter().any(|(start, end)| *start <= t && t < *end)).collect()
    }

    fn is_union(intervals: &[Interval]) -> bool {
        intervals.iter().all(|(s, e)| s < e) && intervals.windows(2).all(|w| w[0].1 < w[1].0)
    }

    #[test]
    fn touching_intervals_become_one() {
        assert_eq!(union(vec![(5, 9), (0, 5), (3, 3), (8, 2)]), [(0, 9)]);
    }

    #[test]
    fn an_empty_interval_keeps_its_place_only_within_bounds() {
        assert_eq!(clip((5, 5), (5, 6)), Some((5, 5)));
        assert_eq!(clip((6, 6), (5, 6)), None);
        assert_eq!(clip((0, 5), (5, 6)), None);
        assert_eq!(clip((0, 9), (5, 6)), Some((5, 6)));
    }

    proptest! {
        #[test]
        fn set_operations_agree_with_a_grid(a in intervals(), b in intervals()) {
            let (ga, gb) = (grid(&a), grid(&b));
            let (ua, ub) = (union(a), union(b));
            prop_assert!(is_union(&ua));
            prop_assert_eq!(grid(&ua), ga.clone());
            prop_assert_eq!(length(&ua), ga.iter().filter(|x| **x).count() as i64);
            let both = intersection(&ua, &ub);
            prop_assert!(is_union(&both) || both.windows(2).all(|w| w[0].1 <= w[1].0));
            prop_assert_eq!(grid(&both), ga.iter().zip(&gb).map(|(x, y)| *x && *y).collect::<Vec<_>>());
            prop_assert_eq!(length(&both), ga.iter().zip(&gb).filter(|(x, y)| **x && **y).count() as i64);
            let rest = difference(&ua, &ub);
            prop_assert!(is_union(&rest));
            prop_assert_eq!(grid(&rest), ga.iter().zip(&gb).map(|(x, y)| *x && !*y).collect::<Vec<_>>());
        }

        #[test]
        fn coverage_agrees_with_a_grid(a in intervals(), from in 0..END, to in 0..END) {
            let grid = grid(&a);
            let expected = (from..to).filter(|t| grid[*t as usize]).count() as i64;
            prop_assert_eq!(Coverage::new(union(a)).of((from, to)), expected);
        }
    }
}
