//! A baseline and what is compared with it: the ratio, its interval, its p-value, the hidden share.

use super::matching::PooledCell;
use base::statistics::{interval95, median, p_value, resample};
use table::{Provenance, Sample, Spec, completion_ms, hidden_share, steps_ms, tokens_per_s};

/// A baseline and what is compared with it.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Pair<'a> {
    /// The cell with the baseline's value of the axis.
    pub baseline: &'a PooledCell,
    /// The cell that is compared with the baseline.
    pub other: &'a PooledCell,
    /// By architecture: `upper-bound`, matched with both.
    pub upper_bound: Option<&'a PooledCell>,
}

/// A ratio of throughputs and what may be said of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Ratio {
    pub speedup: f64,
    pub ci95: Option<[f64; 2]>,
    /// Bootstrap p-value of "the ratio is 1".
    pub p: Option<f64>,
    /// The interval excludes 1; between simulations: the ratio is not 1.
    pub differs: bool,
    /// Whether it is between simulations, where every difference is one.
    pub exact: bool,
}

impl<'a> Pair<'a> {
    /// A pair of any two cells, without `upper-bound`.
    pub fn new(baseline: &'a PooledCell, other: &'a PooledCell) -> Self {
        Self { baseline, other, upper_bound: None }
    }

    /// Tokens/s of the other cell over the baseline's, from samples of the rounds that both have,
    /// where they share any.
    pub fn ratio(&self) -> Ratio {
        let cells = [self.other, self.baseline];
        let throughput = |cell: &PooledCell, ms| tokens_per_s(&cell.record.spec, ms);
        let [other, baseline] = shared_rounds(cells, |_, sample| Some(completion_ms(sample)));
        let pooled = |rounds: &[Vec<f64>]| median(&rounds.concat());
        let speedup = match (pooled(&other), pooled(&baseline)) {
            (Some(a), Some(b)) => throughput(cells[0], a) / throughput(cells[1], b),
            _ => cells[0].metrics.tokens_per_s / cells[1].metrics.tokens_per_s,
        };
        let simulated = cells.map(|cell| cell.record.provenance == Provenance::Simulated);
        let exact = simulated == [true, true];
        let resampled = if simulated == [false, false] {
            resample([&other, &baseline], |[a, b]| throughput(cells[0], a) / throughput(cells[1], b))
        } else {
            None
        };
        let p = resampled.as_deref().and_then(|ratios| p_value(ratios, 1.0));
        let ci95 = resampled.and_then(interval95);
        let differs = match ci95 {
            Some([low, high]) => low > 1.0 || high < 1.0,
            // Simulations repeat to the last bit but for the order of sums.
            None => exact && (speedup - 1.0).abs() > 1e-9,
        };
        Ratio { speedup, ci95, p, differs, exact }
    }
}

/// The interval of the hidden share of a cell, from `standard`, it and `upper-bound` resampled in the same
/// rounds; `None` with few samples and where the gap between the two limits may be nothing.
pub(super) fn hidden_share_interval(cells: [&PooledCell; 3]) -> Option<[f64; 2]> {
    let [a, b, c] = shared_rounds(cells, |spec, sample| median(&steps_ms(spec, sample)));
    let share = |medians| hidden_share(medians).unwrap_or(f64::NAN);
    resample([&a, &b, &c], share).and_then(interval95)
}

/// One number a sample in the rounds that all cells have, by cell and round. Rounds in which a sample
/// has no such number do not count.
fn shared_rounds<const SIDES: usize>(
    cells: [&PooledCell; SIDES],
    of: impl Fn(&Spec, &Sample) -> Option<f64>,
) -> [Vec<Vec<f64>>; SIDES] {
    let mut by_side = [(); SIDES].map(|()| Vec::new());
    let Some(first) = cells.first() else { return by_side };
    for round in first.rounds.keys() {
        let numbers = cells.map(|cell| -> Option<Vec<f64>> {
            cell.rounds.get(round)?.iter().map(|sample| of(&cell.record.spec, sample)).collect()
        });
        if numbers.iter().all(Option::is_some) {
            for (cell, numbers) in by_side.iter_mut().zip(numbers) {
                cell.extend(numbers);
            }
        }
    }
    by_side
}
