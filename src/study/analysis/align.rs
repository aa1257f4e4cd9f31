//! Alignment of the steps of two traces: for `diff`, and for timelines one above the other.

use std::collections::{BTreeMap, BTreeSet};

use plan::Phase;
use trace::NO_STEP;
use trace::overlap::StepKey;

/// Steps of two traces that do the same work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepAlignment {
    /// Indices into the two lists of steps, in order of the first.
    pub pairs: Vec<(usize, usize)>,
    /// True if steps are paired by their order because the traces number them differently.
    pub by_order: bool,
}

impl StepAlignment {
    /// Pairs steps of the same kind of work (phase, batch): those of one number (preferably of one sample) if the traces
    /// share at least half of the numbers of the shorter one, else in order.
    pub fn of<K: Clone + Ord>(a: &[(StepKey, K)], b: &[(StepKey, K)]) -> Self {
        let mut numbers: BTreeMap<(u32, &K), Vec<usize>> = BTreeMap::new();
        for (at, (key, kind)) in b.iter().enumerate().filter(|(_, (key, _))| key.step != NO_STEP) {
            numbers.entry((key.step, kind)).or_default().push(at);
        }
        let like = |(key, kind): &(StepKey, K)| {
            let same = numbers.get(&(key.step, kind))?;
            same.iter().copied().find(|at| b[*at].0.sample == key.sample).or(same.first().copied())
        };
        let numbered = a.iter().enumerate().filter_map(|(at, step)| Some((at, like(step)?)));
        let pairs: Vec<(usize, usize)> = numbered.collect();
        let (of_a, of_b) = (distinct(a), distinct(b));
        let common = of_a.intersection(&of_b).count();
        if !pairs.is_empty() && 2 * common >= of_a.len().min(of_b.len()) {
            return Self { pairs, by_order: false };
        }
        let mut left: BTreeMap<&K, Vec<usize>> = BTreeMap::new();
        for (at, (_, kind)) in b.iter().enumerate().rev() {
            left.entry(kind).or_default().push(at);
        }
        let next = |(at, (_, kind)): (usize, &(StepKey, K))| Some((at, left.get_mut(kind)?.pop()?));
        Self { pairs: a.iter().enumerate().filter_map(next).collect(), by_order: true }
    }

    /// Alignment of steps by their keys alone.
    pub fn of_keys(a: impl Iterator<Item = StepKey>, b: impl Iterator<Item = StepKey>) -> Self {
        let kinds = |key: StepKey| (key, key.phase);
        Self::of(&a.map(kinds).collect::<Vec<_>>(), &b.map(kinds).collect::<Vec<(StepKey, Phase)>>())
    }

    /// Step of the other trace: of the second for a step of the first, and the other way round.
    pub fn partner(&self, of_first: bool, at: usize) -> Option<usize> {
        let mut pairs = self.pairs.iter();
        match of_first {
            true => pairs.find(|pair| pair.0 == at).map(|pair| pair.1),
            false => pairs.find(|pair| pair.1 == at).map(|pair| pair.0),
        }
    }
}

/// Step numbers, by kind of work.
fn distinct<K: Ord>(steps: &[(StepKey, K)]) -> BTreeSet<(u32, &K)> {
    steps.iter().map(|(key, kind)| (key.step, kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: &[u32]) -> Vec<StepKey> {
        let key = |step: &u32| StepKey { sample: 0, phase: Phase::Decode, step: *step };
        numbers.iter().map(key).collect()
    }

    fn aligned(a: &[u32], b: &[u32]) -> StepAlignment {
        StepAlignment::of_keys(keys(a).into_iter(), keys(b).into_iter())
    }

    #[test]
    fn steps_are_paired_by_number_where_the_traces_share_them_else_in_order() {
        let by_number = aligned(&[0, 1, 2, 3], &[2, 3, 4, 5]);
        assert_eq!((by_number.pairs.as_slice(), by_number.by_order), (&[(2, 0), (3, 1)][..], false));
        assert_eq!((by_number.partner(true, 3), by_number.partner(false, 0)), (Some(1), Some(2)));
        assert_eq!(by_number.partner(true, 0), None);
        let by_order = aligned(&[3, 4, 5, 6], &[6, 7, 8, 9]);
        assert_eq!(by_order.pairs, [(0, 0), (1, 1), (2, 2), (3, 3)]);
        assert!(by_order.by_order, "one number in common is chance");
        assert!(aligned(&[1], &[]).pairs.is_empty());
    }

    #[test]
    fn steps_of_another_kind_are_never_paired() {
        let of = |kinds: &[&'static str]| -> Vec<(StepKey, &'static str)> {
            keys(&[0, 1, 2, 3]).into_iter().zip(kinds.iter().copied()).collect()
        };
        let a = of(&["decode", "prefill", "decode", "decode"]);
        let b = of(&["prefill", "decode", "decode", "mixed"]);
        let aligned = StepAlignment::of(&a, &b);
        assert!(aligned.pairs.iter().all(|(x, y)| a[*x].1 == b[*y].1), "{aligned:?}");
        assert!(!aligned.pairs.is_empty());
    }
}
