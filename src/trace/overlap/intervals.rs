//! Unions, intersections and differences of half-open intervals in integer nanoseconds: exact, and in
//! one pass over sorted intervals. All overlap numbers are based on these functions.

/// Half-open interval: (start, end) with the end excluded.
pub type TimeInterval = (i64, i64);

/// Union as sorted, disjoint and non-adjacent intervals. Drops empty and reversed ones.
pub fn union(intervals: impl IntoIterator<Item = TimeInterval>) -> Vec<TimeInterval> {
    let mut builder = UnionBuilder::default();
    intervals.into_iter().for_each(|interval| builder.add(interval));
    builder.finish()
}

/// Union builder for intervals that are mostly ordered by start, as the spans of a lane. Merges ordered
/// intervals immediately; stores late ones separately and sorts them at the end.
#[derive(Clone, Debug, Default)]
pub struct UnionBuilder {
    merged: Vec<TimeInterval>,
    late: Vec<TimeInterval>,
}

impl UnionBuilder {
    /// Adds an interval; ignores empty and reversed ones.
    #[inline]
    pub fn add(&mut self, (start, end): TimeInterval) {
        if end <= start {
            return;
        }
        match self.merged.last_mut() {
            Some(last) if start > last.1 => self.merged.push((start, end)),
            Some(last) if start >= last.0 => last.1 = last.1.max(end),
            Some(_) => self.late.push((start, end)),
            None => self.merged.push((start, end)),
        }
    }

    pub fn append(&mut self, other: Self) {
        if self.merged.is_empty() && self.late.is_empty() {
            *self = other;
            return;
        }
        let intervals = other.merged.into_iter().chain(other.late);
        self.merged.reserve(intervals.size_hint().0);
        intervals.for_each(|interval| self.add(interval));
    }

    pub fn finish(mut self) -> Vec<TimeInterval> {
        if self.late.is_empty() {
            return self.merged;
        }
        // Stable sort, because it merges existing ascending runs: late intervals mostly form such runs
        // (a later step of another stream).
        self.late.sort();
        let mut late = Self::default();
        std::mem::take(&mut self.late).into_iter().for_each(|interval| late.add(interval));
        merge(&[&self.merged, &late.merged])
    }
}

/// Union of several unions; inputs and result are sorted and disjoint.
pub fn merge(unions: &[&[TimeInterval]]) -> Vec<TimeInterval> {
    let mut rest: Vec<&[TimeInterval]> = unions.iter().copied().filter(|u| !u.is_empty()).collect();
    if let [only] = rest[..] {
        return only.to_vec();
    }
    let mut builder = UnionBuilder::default();
    while let Some(next) = (0..rest.len()).min_by_key(|&i| rest[i][0].0) {
        builder.add(rest[next][0]);
        rest[next] = &rest[next][1..];
        if rest[next].is_empty() {
            rest.swap_remove(next);
        }
    }
    builder.merged
}

/// Total length of disjoint intervals (ns).
pub fn length(intervals: &[TimeInterval]) -> i64 {
    // Disjoint, so the sum overflows only if a single difference does.
    intervals.iter().fold(0, |sum: i64, (start, end)| sum.saturating_add(end.saturating_sub(*start)))
}

/// Length of the intersection of two unions (ns), without materializing it.
pub fn common_length(a: &[TimeInterval], b: &[TimeInterval]) -> i64 {
    // binary search for the start, because one is often a small part of the other
    let first = |of: &[TimeInterval], other: &[TimeInterval]| {
        other.first().map_or(0, |other| of.partition_point(|interval| interval.1 <= other.0))
    };
    let (mut i, mut j, mut sum) = (first(a, b), first(b, a), 0i64);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        sum = sum.saturating_add(x.1.min(y.1).saturating_sub(x.0.max(y.0)).max(0));
        if x.1 < y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    sum
}

/// Parts of the union `a` outside of the union `b`, as a union.
pub fn difference(a: &[TimeInterval], b: &[TimeInterval]) -> Vec<TimeInterval> {
    let mut rest = Vec::new();
    let mut j = 0;
    for &(mut start, end) in a {
        while b.get(j).is_some_and(|y| y.1 <= start) {
            j += 1;
        }
        // `j` stays: the last interval of `b` may extend into the next of `a`
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

/// Clips an interval to `bounds`; `None` if nothing remains. An empty interval within the bounds
/// remains, because it has a position in time.
pub fn clip(interval: TimeInterval, bounds: TimeInterval) -> Option<TimeInterval> {
    let (start, end) = interval;
    let inside = if start == end {
        bounds.0 <= start && start < bounds.1
    } else {
        start < bounds.1 && end > bounds.0
    };
    inside.then(|| (start.max(bounds.0), end.min(bounds.1)))
}

/// Clips an interval to each of sorted, disjoint `parts` that it reaches, in order. An empty interval where two parts meet
/// is in the second one. `cursor` caches the position of the last search; start with 0.
#[inline]
pub fn pieces<'p>(
    parts: &'p [TimeInterval],
    interval: TimeInterval,
    cursor: &mut usize,
) -> impl Iterator<Item = TimeInterval> + use<'p> {
    *cursor = seek(parts, *cursor, |part| part.1 <= interval.0);
    parts[*cursor..].iter().map_while(move |part| clip(interval, *part))
}

/// Number of intervals per prefix sum in [`Coverage`].
const BLOCK: usize = 16;

/// Index for the covered length of any interval: O(log n) per lookup, O(1) for ordered lookups.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    union: Vec<TimeInterval>,
    /// Length of the union before every [`BLOCK`]-th of its intervals.
    before: Vec<i64>,
}

impl Coverage {
    pub fn new(mut union: Vec<TimeInterval>) -> Self {
        union.shrink_to_fit();
        let mut sum = 0i64;
        let before = union
            .chunks(BLOCK)
            .map(|block| {
                let here = sum;
                sum = sum.saturating_add(length(block));
                here
            })
            .collect();
        Self { union, before }
    }

    pub fn union(&self) -> &[TimeInterval] {
        &self.union
    }

    /// Memory of the index (bytes).
    pub fn bytes(&self) -> usize {
        self.union.capacity() * size_of::<TimeInterval>() + self.before.capacity() * size_of::<i64>()
    }

    /// Covered lengths between consecutive ascending times (ns), one less than there are times.
    pub fn between(&self, mut times: impl Iterator<Item = i64>) -> Vec<i64> {
        let (mut from, mut cursor) = (times.next().unwrap_or(0), 0);
        times
            .map(|to| self.within_with_cursor((std::mem::replace(&mut from, to), to), &mut cursor))
            .collect()
    }

    /// Covered length of an interval (ns).
    pub fn within(&self, interval: TimeInterval) -> i64 {
        self.within_with_cursor(interval, &mut 0)
    }

    /// Length of the union before `time` (ns); `cursor` is the position of the last search.
    fn until(&self, time: i64, cursor: &mut usize) -> i64 {
        *cursor = seek(&self.union, *cursor, |(start, _)| *start < time);
        match *cursor {
            0 => 0,
            n => {
                let (block, last) = ((n - 1) / BLOCK, self.union[n - 1]);
                let whole = length(&self.union[block * BLOCK..n - 1]);
                self.before[block] + whole + time.min(last.1).saturating_sub(last.0)
            }
        }
    }

    /// Like [`Self::within`], for ordered lookups: `cursor` caches the position of the last search; start with 0.
    pub fn within_with_cursor(&self, interval: TimeInterval, cursor: &mut usize) -> i64 {
        if interval.1 <= interval.0 {
            return 0;
        }
        let before = self.until(interval.0, cursor);
        let mut end = *cursor;
        self.until(interval.1, &mut end) - before
    }
}

/// Like `partition_point`, but cheap if the result is within a few places after `cursor`.
#[inline]
pub fn seek<T>(items: &[T], cursor: usize, before: impl Fn(&T) -> bool) -> usize {
    const STEPS: usize = 8;
    let cursor = cursor.min(items.len());
    if cursor > 0 && !before(&items[cursor - 1]) {
        return items[..cursor - 1].partition_point(before);
    }
    for (at, item) in items.iter().enumerate().skip(cursor).take(STEPS) {
        if !before(item) {
            return at;
        }
    }
    let from = (cursor + STEPS).min(items.len());
    from + items[from..].partition_point(before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: i64 = 60;

    fn intervals() -> impl Strategy<Value = Vec<TimeInterval>> {
        prop::collection::vec((0..END, 0..END), 0..12)
    }

    /// One flag a nanosecond.
    fn grid(intervals: &[TimeInterval]) -> Vec<bool> {
        (0..END).map(|t| intervals.iter().any(|(start, end)| *start <= t && t < *end)).collect()
    }

    fn is_union(intervals: &[TimeInterval]) -> bool {
        intervals.iter().all(|(s, e)| s < e) && intervals.windows(2).all(|w| w[0].1 < w[1].0)
    }

    #[test]
    fn touching_intervals_become_one() {
        assert_eq!(union([(5, 9), (0, 5), (3, 3), (8, 2)]), [(0, 9)]);
    }

    #[test]
    fn an_empty_interval_keeps_its_place_only_within_bounds() {
        assert_eq!(clip((5, 5), (5, 6)), Some((5, 5)));
        assert_eq!(clip((6, 6), (5, 6)), None);
        assert_eq!(clip((0, 5), (5, 6)), None);
        assert_eq!(clip((0, 9), (5, 6)), Some((5, 6)));
        let of = |interval| pieces(&[(0, 5), (5, 6), (8, 9)], interval, &mut 0).collect::<Vec<_>>();
        assert_eq!(of((5, 5)), [(5, 5)], "once, though two parts meet there");
        assert_eq!(of((6, 6)), []);
        assert_eq!(of((3, 20)), [(3, 5), (5, 6), (8, 9)]);
    }

    proptest! {
        #[test]
        fn set_operations_agree_with_a_grid(a in intervals(), b in intervals()) {
            let (ga, gb) = (grid(&a), grid(&b));
            let (ua, ub) = (union(a), union(b));
            prop_assert!(is_union(&ua));
            prop_assert_eq!(grid(&ua), ga.clone());
            prop_assert_eq!(length(&ua), ga.iter().filter(|x| **x).count() as i64);
            let either: Vec<bool> = ga.iter().zip(&gb).map(|(x, y)| *x || *y).collect();
            prop_assert_eq!(grid(&merge(&[&ua, &ub, &[]])), either);
            prop_assert!(is_union(&merge(&[&ua, &ub])));
            prop_assert_eq!(common_length(&ua, &ub), ga.iter().zip(&gb).filter(|(x, y)| **x && **y).count() as i64);
            let mut cursor = 0;
            let common: Vec<TimeInterval> = ua.iter().flat_map(|one| pieces(&ub, *one, &mut cursor)).collect();
            prop_assert_eq!(length(&common), common_length(&ua, &ub));
            prop_assert_eq!(common, difference(&ua, &difference(&ua, &ub)));
            let rest = difference(&ua, &ub);
            prop_assert!(is_union(&rest));
            prop_assert_eq!(grid(&rest), ga.iter().zip(&gb).map(|(x, y)| *x && !*y).collect::<Vec<_>>());
        }

        #[test]
        fn coverage_agrees_with_a_grid(
            short in prop::collection::vec((0..400i64, 1..5i64), 0..120), from in 0..400i64, to in 0..400i64
        ) {
            let union = union(short.into_iter().map(|(start, length)| (start, start + length)));
            let within = |t: &i64| union.iter().any(|(start, end)| start <= t && t < end);
            let expected = (from..to).filter(within).count() as i64;
            let coverage = Coverage::new(union.clone());
            for cursor in 0..union.len() + 2 {
                prop_assert_eq!(coverage.within_with_cursor((from, to), &mut { cursor }), expected, "from {}", cursor);
            }
        }

        #[test]
        fn a_place_is_found_from_every_other(
            mut list in prop::collection::vec(0i64..60, 0..60),
            value in 0i64..60,
            cursor in 0usize..70,
        ) {
            list.sort_unstable();
            let found = seek(&list, cursor, |item| *item <= value);
            prop_assert_eq!(found, list.partition_point(|item| *item <= value));
        }

        #[test]
        fn builders_put_together_are_one_builder(a in intervals(), b in intervals()) {
            let build = |intervals: &[TimeInterval]| {
                let mut builder = UnionBuilder::default();
                intervals.iter().for_each(|interval| builder.add(*interval));
                builder
            };
            let (mut left, whole) = (build(&a), union([&a[..], &b[..]].concat()));
            left.append(build(&b));
            prop_assert_eq!(left.finish(), whole);
        }
    }
}
