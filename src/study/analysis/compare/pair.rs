//! Pair of a baseline and a compared cell: ratio, interval, p-value, hidden share.

use super::matching::PooledCell;
use base::statistics::{interval95, median, p_value, resample};
use table::{Provenance, Sample, Spec, completion_ms, hidden_share, steps_ms, tokens_per_s};

#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Pair<'a> {
    pub baseline: &'a PooledCell,
    pub other: &'a PooledCell,
    /// `upper-bound` that matches both; only when architectures are compared.
    pub upper_bound: Option<&'a PooledCell>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Ratio {
    pub speedup: f64,
    pub ci95: Option<[f64; 2]>,
    /// Bootstrap p-value of "the ratio is 1".
    pub p: Option<f64>,
    /// True if the interval excludes 1; between simulations: if the ratio is not 1.
    pub differs: bool,
    /// True if both are simulations, which have no noise.
    pub exact: bool,
}

impl<'a> Pair<'a> {
    pub fn new(baseline: &'a PooledCell, other: &'a PooledCell) -> Self {
        Self { baseline, other, upper_bound: None }
    }

    /// Ratio of tokens/s to the baseline's, from the rounds that both cells share, if any.
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
            // Simulations repeat to the last bit except for the order of sums.
            None => exact && (speedup - 1.0).abs() > 1e-9,
        };
        Ratio { speedup, ci95, p, differs, exact }
    }
}

/// Interval of a cell's hidden share, from `standard`, the cell and `upper-bound` resampled in the same rounds; `None`
/// with few samples or if the gap between the limits may be 0.
pub(super) fn hidden_share_interval(cells: [&PooledCell; 3]) -> Option<[f64; 2]> {
    let [a, b, c] = shared_rounds(cells, |spec, sample| median(&steps_ms(spec, sample)));
    let share = |medians| hidden_share(medians).unwrap_or(f64::NAN);
    resample([&a, &b, &c], share).and_then(interval95)
}

/// One number per sample, by cell and round, for rounds that all cells have. Skips rounds with a sample that has no
/// number.
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
