//! Samples of an imported trace: generations, requests or epochs whose steps have the same numbers.
//!
//! Profilers record the numbers of steps, not the generation. In a sequence of steps in order of time, a sample begins
//! where a number goes back to the first one of its phase or below. If numbers repeat in another way, or while an earlier
//! step is open, they do not tell steps apart; then steps are numbered in order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use plan::Phase;

use crate::overlap::StepKey;
use crate::{NO_STEP, Span};

/// Range of a step, with the number in its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedStep {
    pub(super) process: i64,
    pub(super) thread: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) phase: Phase,
    pub(super) number: u32,
}

impl MarkedStep {
    fn key(&self) -> StepKey {
        StepKey { sample: 0, phase: self.phase, step: self.number }
    }
}

/// Keys of a file's steps, which must be sorted by process and start; true if their numbers do not tell them apart, so
/// that they are numbered in order of time.
pub(super) fn step_keys(steps: &[MarkedStep]) -> (Vec<StepKey>, bool) {
    let sequences = sequences(steps);
    let of_sequence =
        |places: &Vec<usize>| samples(&places.iter().map(|at| steps[*at]).collect::<Vec<_>>());
    let samples: Option<Vec<Vec<u32>>> = sequences.iter().map(of_sequence).collect();
    let mut keys: Vec<StepKey> = steps.iter().map(MarkedStep::key).collect();
    match &samples {
        Some(samples) => {
            for (at, sample) in sequences.iter().flatten().zip(samples.iter().flatten()) {
                keys[*at].sample = *sample;
            }
        }
        None => {
            for places in &sequences {
                let (mut number, mut before) = (0, None);
                for at in places {
                    let marked = steps[*at].key();
                    number += u32::from(before.replace(marked).is_some_and(|before| before != marked));
                    keys[*at].step = number;
                }
            }
        }
    }
    (keys, samples.is_none())
}

/// Indices of the steps that follow each other: those of a process, or of a thread if threads run steps concurrently, as
/// those of several devices do.
fn sequences(steps: &[MarkedStep]) -> Vec<Vec<usize>> {
    let mut sequences: BTreeMap<(i64, i64), Vec<usize>> = BTreeMap::new();
    let mut first = 0;
    for of_process in steps.chunk_by(|a, b| a.process == b.process) {
        // thread and end of the range that ends last
        let mut open: Option<(i64, i64)> = None;
        let mut is_concurrent = false;
        for step in of_process {
            is_concurrent |=
                open.is_some_and(|(thread, end)| thread != step.thread && step.start_ns < end);
            if open.is_none_or(|(_, end)| end < step.end_ns) {
                open = Some((step.thread, step.end_ns));
            }
        }
        for (step, at) in of_process.iter().zip(first..) {
            let thread = if is_concurrent { step.thread } else { 0 };
            sequences.entry((step.process, thread)).or_default().push(at);
        }
        first += of_process.len();
    }
    sequences.into_values().collect()
}

/// Sample of each step of a sequence; `None` if numbers repeat without starting again.
fn samples(steps: &[MarkedStep]) -> Option<Vec<u32>> {
    let mut samples: Vec<u32> = Vec::with_capacity(steps.len());
    // of the current sample: first and last number of each phase, latest end
    let (mut sample, mut numbers, mut end) = (0, [None; 2], i64::MIN);
    let (mut is_regular, mut has_several) = (true, false);
    for (at, step) in steps.iter().enumerate() {
        // several ranges of one step count as one
        let is_same = at > 0 && steps[at - 1].key() == step.key();
        let of_phase: Option<(u32, u32)> = numbers[step.phase as usize];
        if let Some((first, _)) = of_phase.filter(|(_, last)| !is_same && step.number <= *last) {
            is_regular &= step.number <= first && step.start_ns >= end;
            sample += 1;
            (numbers, end) = ([None; 2], i64::MIN);
            // a prefill belongs to the decodes after it
            if step.phase == Phase::Decode {
                let before = steps[..at].iter().zip(&mut samples).rev();
                let prefills = before.take_while(|(before, _)| before.phase == Phase::Prefill);
                prefills.for_each(|(_, of_prefill)| *of_prefill = sample);
            }
        } else {
            has_several |= at > 0 && !is_same;
        }
        let of_phase = numbers[step.phase as usize];
        let first = of_phase.map_or(step.number, |(first, _)| first);
        numbers[step.phase as usize] = Some((first, step.number));
        end = end.max(step.end_ns);
        samples.push(sample);
    }
    if sample == 0 || is_regular && has_several {
        return Some(samples);
    }
    let mut seen = HashSet::new();
    let is_unique = steps
        .chunk_by(|a, b| a.key() == b.key())
        .all(|of_step| seen.insert((of_step[0].phase, of_step[0].number)));
    // numbers that fall, as of diffusion's time steps, are those of one sample
    is_unique.then(|| vec![0; steps.len()])
}

/// Maximum number of samples by which the profile of one rank may begin after another's.
const FARTHEST: u32 = 256;

/// First start (ns) and steps of a sample on one rank.
struct RankSample {
    start_ns: i64,
    steps: BTreeSet<(Phase, u32)>,
}

/// Shifts each rank's samples so that most of their steps match those of the rank with most samples: profiles of ranks may
/// begin in different generations. Work outside of steps joins the sample during which it starts.
pub(super) fn align_samples(spans: &mut [Span]) {
    if spans.iter().all(|span| span.sample == 0) {
        return;
    }
    let mut of_rank: BTreeMap<u32, BTreeMap<u32, RankSample>> = BTreeMap::new();
    for run in spans.chunk_by(|a, b| (a.rank, StepKey::from_span(a)) == (b.rank, StepKey::from_span(b)))
    {
        let (key, start) = (StepKey::from_span(&run[0]), run.iter().map(|span| span.start_ns).min());
        if key.step == NO_STEP {
            continue;
        }
        let sample = of_rank.entry(run[0].rank).or_default().entry(key.sample);
        let sample = sample.or_insert_with(|| RankSample { start_ns: i64::MAX, steps: BTreeSet::new() });
        sample.start_ns = sample.start_ns.min(start.unwrap_or(i64::MAX));
        sample.steps.insert((key.phase, key.step));
    }
    let last = |samples: &BTreeMap<u32, RankSample>| samples.last_key_value().map_or(0, |(at, _)| *at);
    // the first of the ranks with equally many
    let Some(most) = of_rank.values().rev().max_by_key(|samples| last(samples)) else { return };
    let shift = |samples: &BTreeMap<u32, RankSample>| {
        let likeness = |shift: &u32| {
            let pairs = samples.iter().filter_map(|(at, own)| Some((own, most.get(&(at + shift))?)));
            pairs.fold((0, Reverse(0_u64)), |(common, Reverse(apart)), (own, other)| {
                let distance = own.start_ns.abs_diff(other.start_ns);
                (
                    common + own.steps.intersection(&other.steps).count(),
                    Reverse(apart.saturating_add(distance)),
                )
            })
        };
        (0..=(last(most) - last(samples)).min(FARTHEST)).max_by_key(likeness).unwrap_or(0)
    };
    // shift and begins of each rank's samples
    let moves: BTreeMap<u32, (u32, Vec<(i64, u32)>)> = of_rank
        .iter()
        .map(|(rank, samples)| {
            let mut begins: Vec<_> = samples.iter().map(|(at, own)| (own.start_ns, *at)).collect();
            begins.sort_unstable();
            (*rank, (shift(samples), begins))
        })
        .collect();
    for span in spans {
        let Some((shift, begins)) = moves.get(&span.rank) else { continue };
        if span.step == NO_STEP {
            let begun = begins.partition_point(|(start, _)| *start <= span.start_ns);
            span.sample = begins.get(begun.saturating_sub(1)).map_or(0, |(_, at)| *at);
        }
        span.sample += shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of one thread, each of 10 ns; a `p` marks prefills.
    fn sequence(names: &str) -> Vec<MarkedStep> {
        let step = |(at, name): (i64, &str)| MarkedStep {
            process: 1,
            thread: 1,
            start_ns: 10 * at,
            end_ns: 10 * at + 10,
            phase: if name.starts_with('p') { Phase::Prefill } else { Phase::Decode },
            number: name.trim_start_matches('p').parse().unwrap(),
        };
        (0..).zip(names.split(' ')).map(step).collect()
    }

    #[test]
    fn a_sample_begins_where_numbers_start_again() {
        for (names, samples) in [
            ("3 4 5 7", "0000"),
            // several ranges of one step
            ("0 0 1 1", "0000"),
            ("0 1 2 3 0 1 2 3", "00001111"),
            // recorded from within a generation
            ("2 3 0 1 2 3 0 1", "00111122"),
            ("p0 0 1 2 p0 0 1", "0000111"),
            ("p0 0 p0 0", "0011"),
            // prefills and decodes in turn
            ("p0 0 p1 1 p2 2", "000000"),
            // numbers of requests and of their steps
            ("p3 0 1 2 p4 0 1 p5 0", "000011122"),
            // falling numbers, as of diffusion's time steps
            ("9 7 5 3", "0000"),
        ] {
            let (keys, is_renumbered) = step_keys(&sequence(names));
            let found: String = keys.iter().map(|key| key.sample.to_string()).collect();
            assert_eq!((found.as_str(), is_renumbered), (samples, false), "{names}");
            let numbers: Vec<_> = sequence(names).iter().map(|step| step.number).collect();
            assert_eq!(keys.iter().map(|key| key.step).collect::<Vec<_>>(), numbers, "{names}");
        }
    }

    #[test]
    fn numbers_that_repeat_without_starting_again_follow_the_time() {
        let numbers = |steps: &[MarkedStep]| {
            let (keys, is_renumbered) = step_keys(steps);
            let numbers: Vec<_> = keys.iter().map(|key| (key.sample, key.step)).collect();
            (numbers, is_renumbered)
        };
        // forwards and backwards of micro-batches
        let (found, is_renumbered) = numbers(&sequence("0 1 0 2 1 3 2 3"));
        assert!(is_renumbered);
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7].map(|number| (0, number)));
        // a step that is open while numbers start again
        let mut steps = sequence("0 1 0 1");
        steps[1].end_ns = 25;
        let (found, is_renumbered) = numbers(&steps);
        assert!(is_renumbered);
        assert_eq!(found, [0, 1, 2, 3].map(|number| (0, number)));
    }

    #[test]
    fn concurrent_threads_have_samples_of_their_own() {
        let mut steps = sequence("0 1 0 1");
        steps.extend(sequence("0 1 0 1").into_iter().map(|step| MarkedStep {
            thread: 2,
            start_ns: step.start_ns + 5,
            end_ns: step.end_ns + 5,
            ..step
        }));
        steps.sort_by_key(|step| step.start_ns);
        let keys = step_keys(&steps).0;
        let samples: String = keys.iter().map(|key| key.sample.to_string()).collect();
        assert_eq!(samples, "00001111");
        // a thread for each generation
        let mut steps = sequence("0 1 0 1");
        (steps[2].thread, steps[3].thread) = (2, 2);
        let samples: Vec<_> = step_keys(&steps).0.iter().map(|key| key.sample).collect();
        assert_eq!(samples, [0, 0, 1, 1]);
    }

    #[test]
    fn equal_generations_of_all_ranks_are_one_sample() {
        let of = |rank, sample, step, start_ns| Span {
            rank,
            sample,
            step,
            start_ns,
            end_ns: start_ns + 5,
            ..Span::EMPTY
        };
        let mut spans = vec![
            // the profile of rank 0 begins in the generation before
            of(0, 0, 3, 0),
            of(0, 1, 0, 10),
            of(0, 1, 1, 20),
            of(0, 2, 0, 30),
            of(0, 0, NO_STEP, 25),
            of(1, 0, 0, 10),
            of(1, 0, 1, 20),
            of(1, 1, 0, 30),
            of(1, 0, NO_STEP, 35),
        ];
        align_samples(&mut spans);
        let samples: Vec<_> = spans.iter().map(|span| span.sample).collect();
        assert_eq!(samples, [0, 1, 1, 2, 1, 1, 1, 2, 2]);
    }
}
