//! Assigns the ranges of one host thread to rows in which they nest.
//!
//! Pushed ranges of one NVTX domain nest; ranges of different domains, and ranges started and ended
//! explicitly, may overlap. A range that does not nest in a row goes to the next.

const MOST_ROWS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub row: usize,
    pub depth: u16,
}

/// Slots of intervals sorted by (start, longest first); `None` if no row is left.
pub(super) fn nest(intervals: impl Iterator<Item = (i64, i64)>) -> Vec<Option<Slot>> {
    // ends of the open intervals of each row, innermost last
    let mut rows: Vec<Vec<i64>> = Vec::new();
    intervals
        .map(|(start, end)| {
            for (row, open) in rows.iter_mut().enumerate() {
                while open.last().is_some_and(|last| *last <= start) {
                    open.pop();
                }
                if open.last().is_none_or(|last| end <= *last) {
                    let depth = u16::try_from(open.len()).ok()?;
                    open.push(end);
                    return Some(Slot { row, depth });
                }
            }
            if rows.len() == MOST_ROWS {
                return None;
            }
            rows.push(vec![end]);
            Some(Slot { row: rows.len() - 1, depth: 0 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crossing_ranges_get_rows_of_their_own() {
        let slots = nest([(0, 10), (1, 5), (2, 7), (6, 9)].into_iter());
        let found: Vec<_> = slots.into_iter().flatten().map(|slot| (slot.row, slot.depth)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (1, 0), (0, 1)]);
    }

    proptest! {
        #[test]
        fn in_a_row_ranges_nest_and_depth_counts_what_holds_them(
            mut ranges in prop::collection::vec((0i64..40, 1i64..20), 0..30),
        ) {
            for range in &mut ranges {
                range.1 += range.0;
            }
            ranges.sort_by_key(|range| (range.0, std::cmp::Reverse(range.1)));
            let slots = nest(ranges.iter().copied());
            for (i, a) in ranges.iter().enumerate() {
                let slot = slots[i].expect("few rows");
                let holders = (0..i).filter(|j| {
                    slots[*j].is_some_and(|other| other.row == slot.row) && ranges[*j].1 > a.0
                });
                let mut count = 0;
                for j in holders {
                    prop_assert!(ranges[j].1 >= a.1, "{:?} crosses {:?}", ranges[j], a);
                    count += 1;
                }
                prop_assert_eq!(count, slot.depth);
            }
        }
    }
}
