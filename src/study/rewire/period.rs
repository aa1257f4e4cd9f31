//! Step boundaries in a sequence of all-reduces, and the repetition of layers within a step.
//!
//! The gap before each all-reduce of a Transformer repeats: the same kernels for attention and the same for
//! the MLP in every layer, while the gap between steps (head, sampling, embedding) occurs once per step. Each
//! gap has a signature, a hash of its kernels. A gap with a rare signature starts a step; within a step the
//! signatures repeat with the layers.

use std::collections::HashMap;
use std::ops::Range;

/// Maximum period of the layers' kernels, in all-reduces: two layers, such as one with windowed attention and
/// one without.
const LONGEST: usize = 4;

/// Minimum share of gaps that must repeat for a period to count.
const REPEATS: f64 = 0.6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Every gap equals the previous one: one all-reduce per layer, or attention and MLP look alike.
    One,
    Two,
    Nothing,
}

/// Splits a sequence of gaps into steps, as ranges of all-reduces. The first step starts at the first gap.
pub(super) fn steps(gaps: &[u64]) -> Vec<Range<usize>> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    gaps.iter().for_each(|gap| *counts.entry(*gap).or_default() += 1);
    // count of the most common gap, which occurs in every layer
    let usual = counts.values().copied().max().unwrap_or(0);
    let mut begins: Vec<usize> = Vec::new();
    let mut last_rare: Option<usize> = None;
    for (at, gap) in gaps.iter().enumerate() {
        let is_rare = at == 0 || 4 * counts[gap] <= usual;
        // head and embedding may have gaps of their own: adjacent rare gaps start the same step
        if is_rare && last_rare.is_none_or(|last| at > last + 1) {
            begins.push(at);
        }
        if is_rare {
            last_rare = Some(at);
        }
    }
    let ends = begins.iter().copied().skip(1).chain([gaps.len()]);
    begins.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
}

pub(super) fn repeat(gaps: &[u64]) -> Repeat {
    let share = |period: usize| {
        let pairs = gaps.len().saturating_sub(period);
        let same = gaps.iter().zip(gaps.iter().skip(period)).filter(|(a, b)| a == b).count();
        if pairs == 0 { 0.0 } else { same as f64 / pairs as f64 }
    };
    if share(1) > REPEATS {
        return Repeat::One;
    }
    match (2..=LONGEST).step_by(2).any(|period| share(period) > REPEATS) {
        true => Repeat::Two,
        false => Repeat::Nothing,
    }
}

/// Most common number of all-reduces per step; the largest of several. 0 without steps.
pub(super) fn usual(steps: &[Range<usize>]) -> usize {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    steps.iter().for_each(|step| *counts.entry(step.len()).or_default() += 1);
    counts.into_iter().max_by_key(|(length, count)| (*count, *length)).map_or(0, |(length, _)| length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The gaps of decode steps: `first` (the embedding's, where there is one), attention and MLP in turn, attention of
    /// every second layer of another kind.
    fn gaps(steps: usize, layers: usize, embedding: bool, kinds: u64) -> Vec<u64> {
        let mut gaps = Vec::new();
        for _ in 0..steps {
            if embedding {
                gaps.push(900);
            }
            for layer in 0..layers {
                gaps.push(if layer == 0 { 901 } else { 10 + layer as u64 % kinds });
                gaps.push(20);
            }
        }
        gaps
    }

    proptest! {
        #[test]
        fn steps_and_layers_are_found(count in 1usize..6, layers in 6usize..90, embedding: bool, kinds in 1u64..3) {
            let gaps = gaps(count, layers, embedding, kinds);
            let each = 2 * layers + usize::from(embedding);
            let found = steps(&gaps);
            prop_assert_eq!(&found, &(0..count).map(|at| at * each..(at + 1) * each).collect::<Vec<_>>());
            prop_assert_eq!(usual(&found), each);
            prop_assert_eq!(repeat(&gaps[found[0].clone()]), Repeat::Two);
        }

        #[test]
        fn any_sequence_is_cut_into_steps_without_a_rest(gaps in prop::collection::vec(0u64..6, 0..80)) {
            let found = steps(&gaps);
            let mut next = 0;
            for step in &found {
                prop_assert_eq!(step.start, next);
                prop_assert!(step.end > step.start);
                next = step.end;
            }
            prop_assert_eq!(next, gaps.len());
            repeat(&gaps);
            usual(&found);
        }
    }

    #[test]
    fn one_all_reduce_a_layer_and_none_that_repeat_are_told_apart() {
        assert_eq!(repeat(&[7; 32]), Repeat::One);
        assert_eq!(repeat(&(0..32).collect::<Vec<_>>()), Repeat::Nothing);
        assert_eq!(repeat(&[1]), Repeat::Nothing);
    }

    #[test]
    fn a_step_that_was_cut_off_is_not_usual() {
        let mut gaps = gaps(3, 8, false, 1);
        gaps.truncate(2 * 16 + 5);
        let found = steps(&gaps);
        assert_eq!((found.len(), usual(&found)), (3, 16));
    }
}
