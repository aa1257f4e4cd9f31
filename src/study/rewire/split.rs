//! Steps in a sequence of gaps, the kernels before each collective of a rank.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Range;

/// Maximum period of the layers' kernels, in all-reduces: full attention or experts in every eighth layer.
const LONGEST: usize = 16;

/// Share of gaps above which they repeat with a period: separates layers from kernels without an order. Chosen, not
/// measured: low enough for layers of another kind among the others, high enough that gaps which are equal by chance have
/// no period.
const REPEATS: f64 = 0.6;

/// Factor by which a rare gap occurs less than the most common one: separates what occurs once a step, or in a few layers,
/// from what occurs in each layer. Chosen so that the gap between steps is rare from four layers on; steps of fewer layers
/// are found by its kernels.
const RARE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapPattern {
    /// Every gap equals the previous one: one all-reduce per layer, or attention and MLP look alike.
    One,
    Two,
    Nothing,
}

/// Length of a run of rare gaps, in all-reduces, that is a step of another kind: separates a prefill among decode steps
/// from the rare gaps at the start of a step. Chosen as two layers, the fewest of a model.
const OTHER_STEP: usize = 4;

/// Splits a sequence of gaps into steps, as ranges of all-reduces. The first step starts at the first gap.
///
/// Gaps are rare where a step starts, but also in layers of another kind: dense ones before the experts, full attention
/// in every fourth layer. A step starts at a rare gap that `extends` a common one (kernels of the head and the embedding
/// precede the layer's), or where the layers' period breaks (the embedding has an all-reduce of its own). Models of up to
/// three layers have no rare gaps; their steps start at the only gap that `starts_step`, given the trace's first gap and
/// whether anything but the gap's kernels says so: it occurs at most once in two layers, or the layers are asked for.
/// Next to rare gaps, as those of a prefill, only its kernels count.
pub(super) fn split_steps(
    gaps: &[u64],
    is_asked: bool,
    extends: impl Fn(u64, u64) -> bool,
    is_longer: impl Fn(u64, u64) -> bool,
    starts_step: impl Fn(u64, u64, bool) -> bool,
) -> Vec<Range<usize>> {
    let counts = counts(gaps.iter().copied());
    // the most common gap occurs in almost every layer
    let Some(usual) = most_common(gaps.iter().copied()) else { return Vec::new() };
    let most = counts[&usual];
    let is_rare = |gap: &u64| RARE * counts[gap] <= most;
    let common: Vec<u64> = counts.keys().filter(|gap| !is_rare(gap)).copied().collect();
    let rare = counts.keys().filter(|gap| is_rare(gap)).copied();
    let extended: HashSet<u64> =
        rare.filter(|gap| common.iter().any(|common| extends(*gap, *common))).collect();
    // adjacent rare gaps start the same step
    let runs: Vec<Range<usize>> = (1..gaps.len())
        .filter(|at| is_rare(&gaps[*at]))
        .collect::<Vec<_>>()
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| run[0]..run[run.len() - 1] + 1)
        .collect();
    let places: Vec<usize> = (0..gaps.len()).filter(|at| gaps[*at] == usual).collect();
    let period = most_common(places.windows(2).map(|pair| pair[1] - pair[0])).unwrap_or(1);
    let mut broken: Option<usize> = None;
    let has_start = |run: &&Range<usize>| {
        let after = places.partition_point(|at| *at < run.start);
        let (before, next) = (after.checked_sub(1).map(|at| places[at]), places.get(after));
        // only the first run between two usual gaps breaks the period
        let breaks = match (before, next) {
            (Some(before), Some(next)) => {
                !(next - before).is_multiple_of(period) && broken.replace(before) != Some(before)
            }
            // before the first usual gap, or after the last
            _ => run.len() > 1,
        };
        // the first gap starts a step with the rare ones after it
        let is_first = run.start == 1;
        let extends = gaps[(*run).clone()].iter().any(|gap| extended.contains(gap));
        !is_first && (breaks || extends || run.len() >= OTHER_STEP)
    };
    // layers of another kind at the end of a step, or at its start, are adjacent to its first gap
    let rarest = |run: &Range<usize>| run.clone().min_by_key(|at| counts[&gaps[*at]]);
    let mut begins: Vec<usize> = runs.iter().filter(has_start).filter_map(rarest).collect();
    if begins.is_empty() {
        // kernels of the head make a gap longer, also where those of the first layer differ from the others'
        let is_long = |gap: &u64| common.iter().all(|common| is_longer(*gap, *common));
        let long = runs.iter().filter(|run| gaps[(*run).clone()].iter().any(is_long));
        begins.extend(long.filter(|run| run.start > 1).filter_map(rarest));
    }
    // a step has at least two all-reduces
    let mut starts = counts.iter().filter(|(gap, count)| {
        let is_likely = begins.is_empty() && (is_asked || 2 * **count <= most);
        gaps.get(1) != Some(*gap) && starts_step(**gap, gaps[0], is_likely)
    });
    let only = starts.next().filter(|_| starts.next().is_none()).map(|(gap, _)| *gap);
    let usual_start = most_common(begins.iter().map(|at| gaps[*at]));
    // also within a run, after a step of another kind
    let is_start = |at: &usize| [only, usual_start].contains(&Some(gaps[*at]));
    begins.extend((1..gaps.len()).filter(is_start));
    begins.sort_unstable();
    begins.dedup();
    begins.insert(0, 0);
    let ends = begins.iter().copied().skip(1).chain([gaps.len()]);
    let parts: Vec<Range<usize>> = begins.iter().copied().zip(ends).map(|(from, to)| from..to).collect();
    join_parts(with_drafts(parts).into_iter())
}

/// Joins parts of less than two layers to the steps before them if most steps have one: a layer that predicts further
/// tokens (MTP) begins with an embedding and ends with a head, as a step does.
fn with_drafts(parts: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let is_short = |part: &Range<usize>| part.len() < OTHER_STEP;
    let short = parts.iter().filter(|part| is_short(part)).count();
    if short == parts.len() || 2 * short < parts.len() - short {
        return parts;
    }
    let mut steps: Vec<Range<usize>> = Vec::new();
    for part in parts {
        match steps.last_mut() {
            Some(last) if is_short(&part) => last.end = part.end,
            _ => steps.push(part),
        }
    }
    steps
}

/// Minimum number of kernels of the head, sampling and embedding: separates the gap between two steps from a layer's gap in
/// which one kernel more runs. Chosen as the fewest that a step can have there.
pub(super) const HEAD: usize = 2;

/// True if `gap` has more kernels than `common` and ends with the same ones; the first norm of a step differs.
pub(super) fn extends(gap: &[usize], common: &[usize]) -> bool {
    let same = gap.iter().rev().zip(common.iter().rev()).take_while(|(a, b)| a == b).count();
    gap.len() > common.len() && same > 0 && same + 1 >= common.len()
}

fn counts<T: Eq + Hash>(values: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts
}

/// Most common of some values, the largest of several.
pub(super) fn most_common<T: Copy + Eq + Hash + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    counts(values).into_iter().max_by_key(|(value, count)| (*count, *value)).map(|(value, _)| value)
}

/// Joins adjacent parts that together have a step's usual length: a gap is also rare if a kernel is missing.
fn join_parts(parts: impl Iterator<Item = Range<usize>> + Clone) -> Vec<Range<usize>> {
    let usual = usual_length(&parts.clone().collect::<Vec<_>>());
    let mut steps: Vec<Range<usize>> = Vec::new();
    for part in parts {
        match steps.last_mut() {
            Some(last) if last.len() + part.len() == usual => last.end = part.end,
            _ => steps.push(part),
        }
    }
    steps
}

pub(super) fn repeat(gaps: &[u64]) -> GapPattern {
    // the first gap has kernels of the head and the embedding
    let gaps = gaps.get(1..).unwrap_or_default();
    let share = |period: usize| {
        let pairs = gaps.len().saturating_sub(period);
        let same = gaps.iter().zip(gaps.iter().skip(period)).filter(|(a, b)| a == b).count();
        if pairs == 0 { 0.0 } else { same as f64 / pairs as f64 }
    };
    if share(1) > REPEATS {
        return GapPattern::One;
    }
    match (2..=LONGEST).step_by(2).any(|period| share(period) > REPEATS) {
        true => GapPattern::Two,
        false => GapPattern::Nothing,
    }
}

/// Most common number of all-reduces per step; the largest of several. 0 without steps.
pub(super) fn usual_length(steps: &[Range<usize>]) -> usize {
    most_common(steps.iter().map(ExactSizeIterator::len)).unwrap_or(0)
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

    /// True if a gap of the model above has the kernels of another and those of the head.
    fn starts(gap: u64, common: u64) -> bool {
        gap == 901 && common < 20
    }

    fn steps_in(gaps: &[u64]) -> Vec<Range<usize>> {
        split_steps(gaps, false, starts, starts, |gap, first, is_likely| {
            is_likely && (gap, first) == (901, 900)
        })
    }

    proptest! {
        /// Every `sparse`th layer has full attention, the first `dense` have no experts.
        #[test]
        fn layers_of_other_kinds_start_no_step(
            count in 3usize..6, layers in 16usize..90, embedding: bool, sparse in 2usize..9, dense in 0usize..4,
        ) {
            let mut gaps = gaps(count, layers, embedding, 1);
            let each = 2 * layers + usize::from(embedding);
            for step in gaps.chunks_mut(each) {
                let attention = usize::from(embedding);
                for layer in 0..layers {
                    if layer % sparse == sparse - 1 {
                        step[attention + 2 * layer] = 30;
                    }
                    if layer < dense {
                        step[attention + 2 * layer + 1] = 40;
                    }
                }
            }
            let found = steps_in(&gaps);
            prop_assert_eq!(&found, &(0..count).map(|at| at * each..(at + 1) * each).collect::<Vec<_>>());
            prop_assert_eq!(repeat(&gaps[found[0].clone()]), GapPattern::Two);
        }

        #[test]
        fn steps_and_layers_are_found(count in 1usize..6, layers in 6usize..90, embedding: bool, kinds in 1u64..3) {
            let gaps = gaps(count, layers, embedding, kinds);
            let each = 2 * layers + usize::from(embedding);
            let found = steps_in(&gaps);
            prop_assert_eq!(&found, &(0..count).map(|at| at * each..(at + 1) * each).collect::<Vec<_>>());
            prop_assert_eq!(usual_length(&found), each);
            prop_assert_eq!(repeat(&gaps[found[0].clone()]), GapPattern::Two);
        }

        #[test]
        fn any_sequence_is_cut_into_steps_without_a_rest(gaps in prop::collection::vec(0u64..6, 0..80)) {
            let found = steps_in(&gaps);
            let mut next = 0;
            for step in &found {
                prop_assert_eq!(step.start, next);
                prop_assert!(step.end > step.start);
                next = step.end;
            }
            prop_assert_eq!(next, gaps.len());
            repeat(&gaps);
            usual_length(&found);
        }
    }

    /// Each step ends with a layer of its own embedding and head, which predicts another token.
    #[test]
    fn a_layer_that_predicts_another_token_belongs_to_its_step() {
        let mut gaps = Vec::new();
        for step in 0..5 {
            gaps.extend(self::gaps(1, 16, false, 1));
            gaps.extend([901, 20]);
            assert_eq!(gaps.len(), 34 * (step + 1));
        }
        let found = steps_in(&gaps);
        assert_eq!(found, (0..5).map(|at| 34 * at..34 * (at + 1)).collect::<Vec<_>>());
    }

    #[test]
    fn layers_of_another_kind_at_the_end_of_a_step_belong_to_it() {
        let mut gaps = gaps(6, 27, false, 1);
        for step in gaps.chunks_mut(54) {
            for layer in [0, 1, 2, 26] {
                step[2 * layer + 1] = 40;
            }
        }
        assert_eq!(steps_in(&gaps), (0..6).map(|at| 54 * at..54 * (at + 1)).collect::<Vec<_>>());
    }

    #[test]
    fn the_step_after_a_prefill_is_one_of_its_own() {
        let mut gaps = gaps(6, 16, false, 1);
        gaps[96..128].iter_mut().for_each(|gap| *gap += 2_000);
        assert_eq!(steps_in(&gaps), (0..6).map(|at| 32 * at..32 * (at + 1)).collect::<Vec<_>>());
    }

    /// The trace begins with a step, whose first gap lacks the head of the step before.
    #[test]
    fn steps_of_two_layers_are_found() {
        for layers in 2..4 {
            let mut gaps = gaps(6, layers, false, 1);
            gaps[0] = 900;
            let found = steps_in(&gaps);
            let each = 2 * layers;
            assert_eq!(found, (0..6).map(|at| each * at..each * (at + 1)).collect::<Vec<_>>());
            assert_eq!(repeat(&gaps[found[1].clone()]), GapPattern::Two);
        }
    }

    /// Only the prefill has rare gaps; the kernels of the embedding tell where the other steps start.
    #[test]
    fn steps_of_two_layers_are_found_beside_a_prefill() {
        let mut gaps = gaps(6, 2, false, 1);
        gaps[0] = 900;
        gaps[8..12].iter_mut().for_each(|gap| *gap += 2_000);
        let found =
            split_steps(&gaps, false, starts, starts, |gap, first, _| (gap, first) == (901, 900));
        assert_eq!(found, (0..6).map(|at| 4 * at..4 * (at + 1)).collect::<Vec<_>>());
    }

    /// Without gaps like those between steps, everything is one step.
    #[test]
    fn a_single_step_is_not_cut_at_layers_of_another_kind() {
        let mut gaps = gaps(1, 24, false, 1);
        (3..24).step_by(4).for_each(|layer| gaps[2 * layer] = 30);
        assert_eq!(steps_in(&gaps), vec![0..48]);
    }

    #[test]
    fn one_all_reduce_a_layer_and_none_that_repeat_are_told_apart() {
        assert_eq!(repeat(&[7; 32]), GapPattern::One);
        assert_eq!(repeat(&(0..32).collect::<Vec<_>>()), GapPattern::Nothing);
        assert_eq!(repeat(&[1]), GapPattern::Nothing);
    }

    #[test]
    fn a_missing_kernel_does_not_split_a_step() {
        let whole = gaps(4, 8, true, 1);
        let wanted = steps_in(&whole);
        for at in 19..32 {
            let mut gaps = whole.clone();
            gaps[at] = 777;
            assert_eq!(steps_in(&gaps), wanted, "gap {at}");
        }
    }

    #[test]
    fn a_step_that_was_cut_off_is_not_usual() {
        let mut gaps = gaps(3, 8, false, 1);
        gaps.truncate(2 * 16 + 5);
        let found = steps_in(&gaps);
        assert_eq!((found.len(), usual_length(&found)), (3, 16));
    }
}
