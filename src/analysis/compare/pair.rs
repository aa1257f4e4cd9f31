//! A baseline and what is compared with it: the ratio, its interval, its p-value, the hidden share.

use super::matching::Arm;
use crate::analysis::metrics::{completion_ms, steps_ms, tokens_per_s};
use crate::analysis::statistics::{interval95, median, p_value, resample};
use crate::spec::{Provenance, Spec};
use crate::store::Sample;

/// A baseline and what is compared with it.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Pair<'a> {
    /// What it is compared with.
    pub baseline: &'a Arm,
    /// It.
    pub other: &'a Arm,
    /// By architecture: `standard`, matched with both.
    pub standard: Option<&'a Arm>,
    /// By architecture: `upper-bound`, matched with both.
    pub upper_bound: Option<&'a Arm>,
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
    /// Any two cells.
    pub fn new(baseline: &'a Arm, other: &'a Arm) -> Self {
        Self { baseline, other, standard: None, upper_bound: None }
    }

    /// Throughput over the baseline's.
    pub fn ratio(&self) -> Ratio {
        let arms = [self.other, self.baseline];
        let throughput = |arm: &Arm, ms| tokens_per_s(&arm.record.spec, ms);
        let [other, baseline] = shared_rounds(arms, |_, sample| Some(completion_ms(sample)));
        let pooled = |rounds: &[Vec<f64>]| median(&rounds.concat());
        let speedup = match (pooled(&other), pooled(&baseline)) {
            (Some(a), Some(b)) => throughput(arms[0], a) / throughput(arms[1], b),
            _ => arms[0].metrics.tokens_per_s / arms[1].metrics.tokens_per_s,
        };
        let simulated = arms.map(|arm| arm.record.provenance == Provenance::Simulated);
        let exact = simulated == [true, true];
        let resampled = if simulated == [false, false] {
            resample([&other, &baseline], |[a, b]| throughput(arms[0], a) / throughput(arms[1], b))
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

    /// (standard - other) / (standard - upper-bound) in TPOT, and its interval.
    pub fn hidden_share(&self) -> (Option<f64>, Option<[f64; 2]>) {
        let (Some(standard), Some(limit)) = (self.standard, self.upper_bound) else {
            return (None, None);
        };
        let arms = [standard, self.other, limit];
        let share = |[standard, it, limit]: [f64; 3]| {
            if standard > limit { (standard - it) / (standard - limit) } else { f64::NAN }
        };
        let value = Some(share(arms.map(|arm| arm.metrics.tpot_ms.p50))).filter(|v| v.is_finite());
        let measured = arms.iter().all(|arm| arm.record.provenance != Provenance::Simulated);
        if value.is_none() || !measured {
            return (value, None);
        }
        let [a, b, c] = shared_rounds(arms, |spec, sample| median(&steps_ms(spec, sample)));
        (value, resample([&a, &b, &c], share).and_then(interval95))
    }
}

/// One number a sample in the rounds that all arms have, by arm and round. Rounds in which a sample
/// has no such number do not count.
fn shared_rounds<const ARMS: usize>(
    arms: [&Arm; ARMS],
    of: impl Fn(&Spec, &Sample) -> Option<f64>,
) -> [Vec<Vec<f64>>; ARMS] {
    let mut by_arm = [(); ARMS].map(|()| Vec::new());
    let Some(first) = arms.first() else { return by_arm };
    for round in first.rounds.keys() {
        let numbers = arms.map(|arm| -> Option<Vec<f64>> {
            arm.rounds.get(round)?.iter().map(|sample| of(&arm.record.spec, sample)).collect()
        });
        if numbers.iter().all(Option::is_some) {
            for (arm, numbers) in by_arm.iter_mut().zip(numbers) {
                arm.extend(numbers);
            }
        }
    }
    by_arm
}
