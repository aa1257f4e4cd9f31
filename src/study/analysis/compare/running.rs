//! Ratio of two cells of a running sweep, without an interval, from the rounds that both cells have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::matching::ComparedRounds;
use base::statistics::median;
use table::{Record, completion_ms, tokens_per_s};

/// Tokens/s of a cell relative to its baseline's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioSoFar {
    pub speedup: f64,
    /// Number of rounds behind it.
    pub rounds: usize,
}

/// Ratio of a cell's successful runs, by round, to those of its baseline, from the rounds that a [`super::Comparison`]
/// uses: other rounds would add machine drift. `None` without a shared round, and if too few were measured side by side.
pub fn ratio_so_far(
    baseline: &BTreeMap<u32, Arc<Record>>,
    cell: &BTreeMap<u32, Arc<Record>>,
) -> Option<RatioSoFar> {
    let sides = [cell, baseline];
    let rounds = sides.map(|side| side.keys().copied().collect::<BTreeSet<u32>>());
    let runs = sides.map(|side| side.values().map(|run| &**run));
    let compared = ComparedRounds::of_runs(&rounds, runs);
    if compared.are_too_few() {
        return None;
    }
    let rate = |side: &BTreeMap<u32, Arc<Record>>, round: &u32| {
        let run = side.get(round)?;
        let samples: Vec<f64> = run.samples.iter().map(completion_ms).collect();
        // shortened records have no samples
        let ms = median(&samples).or_else(|| Some(run.metrics.as_ref()?.completion_ms))?;
        Some(tokens_per_s(&run.spec, ms)).filter(|rate| *rate > 0.0)
    };
    let ratios =
        compared.rounds.iter().filter_map(|round| Some(rate(cell, round)? / rate(baseline, round)?));
    let ratios: Vec<f64> = ratios.collect();
    Some(RatioSoFar { speedup: median(&ratios)?, rounds: ratios.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::{Sample, Spec, Status};

    /// Runs of a cell in rounds 0, 1, ... with one sample each, `begun` at these minutes.
    fn runs(completions_ms: &[f64], begun: &[u32]) -> BTreeMap<u32, Arc<Record>> {
        let spec = Spec { batch: 1, output_tokens: 2, ..Spec::default() };
        let run = |(round, (ms, begun)): (u32, (&f64, &u32))| {
            let sample = Sample { prefill_ms: 0.0, decode_ms: *ms, steps_ms: Vec::new(), overlap: None };
            let record = Record {
                round,
                created: format!("2026-01-01T00:{begun:02}:00Z"),
                experiment: Some("p2p".to_owned()),
                samples: Arc::new(vec![sample]),
                ..Record::new(spec.clone(), Status::Ok, None)
            };
            (round, Arc::new(record))
        };
        (0..).zip(completions_ms.iter().zip(begun)).map(run).collect()
    }

    #[track_caller]
    fn is_ratio(sides: [&BTreeMap<u32, Arc<Record>>; 2], speedup: f64, rounds: usize) {
        let ratio = ratio_so_far(sides[0], sides[1]).unwrap();
        assert!((ratio.speedup - speedup).abs() < 1e-9 && ratio.rounds == rounds, "{ratio:?}");
    }

    #[test]
    fn only_rounds_that_both_cells_have_are_compared() {
        // the machine is half as fast in the second round
        let standard = runs(&[10.0, 20.0], &[1, 3]);
        is_ratio([&standard, &runs(&[8.0], &[2])], 1.25, 1);
        is_ratio([&standard, &runs(&[8.0, 16.0], &[2, 4])], 1.25, 2);
        assert_eq!(ratio_so_far(&standard, &BTreeMap::new()), None);
    }

    #[test]
    fn rounds_measured_apart_do_not_count_next_to_others() {
        let standard = runs(&[10.0, 10.0, 20.0, 20.0], &[1, 3, 5, 6]);
        // its third round ran half an hour later
        is_ratio([&standard, &runs(&[8.0, 8.0, 40.0], &[2, 4, 35])], 1.25, 2);
        let standard = runs(&[10.0, 20.0, 20.0], &[1, 3, 4]);
        assert_eq!(ratio_so_far(&standard, &runs(&[8.0, 40.0], &[2, 35])), None, "one side by side");
    }
}
