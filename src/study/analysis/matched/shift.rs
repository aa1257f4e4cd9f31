//! Alignment of two sequences that may begin at different elements: the steps of two profiles, or the sends of a rank and
//! the receives of its peer.
//!
//! The ends of a collective on two ranks are as far apart as the clocks, so under the true shift the difference of ends
//! is the same for all elements. Under another shift it varies with the length of the steps. If all steps are equally
//! long, every shift looks the same; then clocks that agree decide, or else the recorded numbers.

use std::collections::BTreeSet;

use rayon::prelude::*;

use base::statistics::median;
use trace::Span;

/// Minimum number of elements with a counterpart for ends alone to contradict numbers.
const LEAST_PAIRS: usize = 3;
/// Changes of the difference of ends below it (ns) are noise.
const LEAST_JITTER: f64 = 1_000.0;
/// Maximum number of elements by which shifts are found and compared, evenly spread over the sequence.
const SHIFTED: usize = 4;
const COMPARED: usize = 64;

/// Element of a sequence: the collectives of a step, a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SequenceElement {
    /// Step, or position in the sequence.
    pub number: i64,
    /// Number of collectives.
    pub count: u32,
    /// Sequence number of the last one; [`Span::NO_SEQUENCE`] if unknown.
    pub sequence: u32,
    /// End of the last one (ns).
    pub end_ns: i64,
}

/// Evidence for a shift other than the ends themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShiftEvidence {
    /// True if equal times of the two ranks are about the same moment.
    pub clocks_agree: bool,
    /// True if equal numbers mean the same element, unless ends contradict it.
    pub is_numbered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    shift: i64,
    /// Number of elements with a counterpart.
    pairs: usize,
    /// Median difference of their ends (ns).
    apart_ns: f64,
    /// Median change of the difference from one pair to the next (ns): the drift of clocks hardly changes it.
    jitter_ns: f64,
}

impl Candidate {
    /// `None` if no element has a counterpart.
    fn new(a: &[SequenceElement], b: &[SequenceElement], shift: i64) -> Option<Self> {
        let difference = |element: &SequenceElement| {
            let at = a.binary_search_by_key(&(element.number + shift), |other| other.number).ok()?;
            let other = a[at];
            let numbers = [other.sequence, element.sequence];
            let is_same = other.count == element.count
                && (numbers[0] == numbers[1] || numbers.contains(&Span::NO_SEQUENCE));
            is_same.then(|| other.end_ns.saturating_sub(element.end_ns) as f64)
        };
        let apart: Vec<f64> = b.iter().filter_map(difference).collect();
        let changes: Vec<f64> = apart.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        Some(Self {
            shift,
            pairs: apart.len(),
            apart_ns: median(&apart)?,
            jitter_ns: median(&changes).unwrap_or(0.0),
        })
    }
}

/// Largest distance of ends (in distances of elements) at which clocks that agree decide, without and against numbers:
/// clocks of hosts may be off by more than a step.
const NEAR: f64 = 0.5;
const VERY_NEAR: f64 = 0.05;

/// Number to add to the numbers of `b` so that equal numbers mean the same element of both sequences, which ascend by
/// number. `None` if nothing decides.
pub(super) fn shift(
    a: &[SequenceElement],
    b: &[SequenceElement],
    evidence: ShiftEvidence,
) -> Option<i64> {
    let ShiftEvidence { clocks_agree, is_numbered } = evidence;
    let sample = |most: usize| b.iter().step_by(b.len().div_ceil(most).max(1));
    let compared: Vec<SequenceElement> = sample(COMPARED).copied().collect();
    let distance = distance(a, b);
    let is_within = |candidate: &Candidate, part: f64| candidate.apart_ns.abs() <= part * distance;
    let meets = |candidate: &Candidate| clocks_agree && is_within(candidate, VERY_NEAR);
    if Candidate::new(a, &compared, 0).is_some_and(|unshifted| meets(&unshifted)) {
        return Some(0);
    }
    let shifts = sample(SHIFTED).flat_map(|b| a.iter().map(move |a| a.number - b.number));
    let shifts: BTreeSet<i64> = shifts.chain([0]).collect();
    let candidates: Vec<Candidate> =
        shifts.into_par_iter().filter_map(|shift| Candidate::new(a, &compared, shift)).collect();
    let most = candidates.iter().map(|candidate| candidate.pairs).max().unwrap_or(0);
    if most == 0 {
        return Some(0);
    }
    let is_wide = |candidate: &Candidate| 2 * candidate.pairs >= most;
    let jitters = candidates.iter().filter(|other| is_wide(other)).map(|other| other.jitter_ns);
    let least = jitters.fold(f64::INFINITY, f64::min);
    let is_likely = |candidate: &Candidate| {
        let times = if candidate.shift == 0 { 4.0 } else { 2.0 };
        candidate.jitter_ns <= (times * least).max(LEAST_JITTER)
    };
    let mut likely: Vec<Candidate> = candidates.into_iter().filter(is_likely).collect();
    let is_unshifted = |candidate: &Candidate| candidate.shift == 0;
    if clocks_agree {
        let by_time = |one: &&Candidate, other: &&Candidate| {
            let times = one.apart_ns.abs().total_cmp(&other.apart_ns.abs());
            times.then(one.shift.abs().cmp(&other.shift.abs()))
        };
        let part = if is_numbered && likely.iter().any(is_unshifted) { VERY_NEAR } else { NEAR };
        let nearest = likely.iter().min_by(by_time).filter(|nearest| is_within(nearest, part));
        if let Some(nearest) = nearest {
            return Some(nearest.shift);
        }
    }
    likely.retain(is_wide);
    let is_only = likely.len() == 1;
    match likely.first() {
        _ if likely.iter().any(is_unshifted) && (is_numbered || is_only) => Some(0),
        _ if is_numbered && most < LEAST_PAIRS => Some(0),
        Some(only) if is_only && most >= LEAST_PAIRS => Some(only.shift),
        _ => None,
    }
}

/// Median time between the ends of neighbours, in the denser sequence (ns); 0 if neither has two elements.
fn distance(a: &[SequenceElement], b: &[SequenceElement]) -> f64 {
    let of = |elements: &[SequenceElement]| {
        let times = elements.windows(2).map(|pair| pair[1].end_ns.saturating_sub(pair[0].end_ns) as f64);
        median(&times.collect::<Vec<_>>())
    };
    [of(a), of(b)].into_iter().flatten().reduce(f64::min).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREEING: ShiftEvidence = ShiftEvidence { clocks_agree: true, is_numbered: false };
    const NUMBERED: ShiftEvidence = ShiftEvidence { clocks_agree: false, is_numbered: true };
    const NOTHING: ShiftEvidence = ShiftEvidence { clocks_agree: false, is_numbered: false };

    /// Steps numbered from `first`, with these ends (us).
    fn steps(first: i64, ends: impl IntoIterator<Item = i64>) -> Vec<SequenceElement> {
        let element = |(number, end): (i64, i64)| SequenceElement {
            number,
            count: 8,
            sequence: Span::NO_SEQUENCE,
            end_ns: 1000 * end,
        };
        (first..).zip(ends).map(element).collect()
    }

    /// Ends of equal steps of 1400 us.
    fn even(steps: std::ops::Range<i64>) -> impl Iterator<Item = i64> {
        steps.map(|step| 1400 * (step + 1))
    }

    /// Ends of steps that differ by up to 66 us.
    fn uneven(steps: std::ops::Range<i64>) -> impl Iterator<Item = i64> {
        steps.map(|step| 1400 * (step + 1) + 7 * (step * step * 37 % 11))
    }

    #[test]
    fn equal_steps_are_told_apart_by_clocks_only() {
        let (all, late) = (steps(0, even(0..8)), steps(0, even(1..8)));
        assert_eq!(shift(&all, &late, AGREEING), Some(1));
        assert_eq!(shift(&late, &all, AGREEING), Some(-1));
        assert_eq!(shift(&all, &all, AGREEING), Some(0));
        assert_eq!(shift(&all, &late, NOTHING), None);
        assert_eq!(shift(&all, &late, NUMBERED), Some(0));
        // recordings that share only two of their steps
        let later = steps(0, even(6..14));
        assert_eq!(shift(&all, &later, AGREEING), Some(6));
    }

    #[test]
    fn steps_of_different_lengths_are_told_apart_by_their_ends() {
        let all = steps(0, uneven(0..12));
        // a clock that is 5 s ahead, and counts from another step
        let ahead = |from: i64, first: i64| steps(first, uneven(from..12).map(|end| end + 5_000_000));
        for evidence in [AGREEING, NUMBERED, NOTHING] {
            assert_eq!(shift(&all, &ahead(0, 0), evidence), Some(0), "{evidence:?}");
            assert_eq!(shift(&all, &ahead(0, 100), evidence), Some(-100), "{evidence:?}");
            assert_eq!(shift(&all, &ahead(3, 0), evidence), Some(3), "{evidence:?}");
        }
    }

    #[test]
    fn numbers_hold_against_hosts_whose_clocks_are_off_by_a_step() {
        let all = steps(3, even(0..8));
        let off = |us: i64| steps(3, even(0..8).map(|end| end + us));
        let both = ShiftEvidence { clocks_agree: true, is_numbered: true };
        // 400 us from a whole step: the clocks are off
        assert_eq!(shift(&all, &off(1800), both), Some(0));
        assert_eq!(shift(&all, &off(1410), both), Some(1), "the numbers are");
    }

    #[test]
    fn sequence_numbers_and_counts_of_collectives_decide_first() {
        let numbered = |from: i64| -> Vec<SequenceElement> {
            let of_step = |mut step: SequenceElement| {
                step.sequence = (100 + step.number + from) as u32;
                step
            };
            steps(0, even(from..8)).into_iter().map(of_step).collect()
        };
        assert_eq!(shift(&numbered(0), &numbered(2), NOTHING), Some(2));
        // a step with other collectives has no counterpart
        let mut cut = steps(0, even(0..3));
        cut[0].count = 5;
        assert_eq!(shift(&steps(0, even(0..3)), &cut, NUMBERED), Some(0));
        assert_eq!(shift(&[], &cut, NOTHING), Some(0));
    }

    #[test]
    fn two_steps_are_too_few_to_contradict_their_numbers() {
        let (a, b) = (steps(0, [1000, 2000]), steps(1, [1000, 2000]));
        assert_eq!(shift(&a, &b, NUMBERED), Some(0));
        assert_eq!(shift(&a, &b, NOTHING), None);
        assert_eq!(shift(&a, &b, AGREEING), Some(-1));
    }

    #[test]
    fn thousands_of_steps_are_aligned_by_a_sample() {
        let (all, late) = (steps(0, uneven(0..2_000)), steps(0, uneven(7..2_000)));
        assert_eq!(shift(&all, &late, AGREEING), Some(7));
    }
}
