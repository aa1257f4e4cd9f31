//! Medians, percentiles, and bootstrap intervals that account for rounds.
//!
//! Machines drift and processes differ, so the samples of a cell come in rounds and are not independent.
//! The bootstrap resamples rounds first, then samples within them; compared sides are resampled in the
//! same rounds (paired by round).

use arithmetic::BootstrapDraws;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Minimum samples per side for an interval.
pub const LEAST_SAMPLES: usize = 6;

pub const RESAMPLES: usize = 2000;

/// Fixed seed of all resampling, so that the same data give the same interval.
const SEED: u64 = 0x6c61_6464_6572;

/// Median; for an even count the mean of the two middle values. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Least and largest of the finite values; `None` without any.
pub fn extent(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |ends, value| {
        let [low, high] = ends.unwrap_or([value; 2]);
        Some([low.min(value), high.max(value)])
    })
}

/// Distinct items among a few, in order of first appearance; compares each with all others.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// Values by key, keys in order of first appearance; compares each key with all others.
pub fn grouped<K: PartialEq, V>(items: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Percentile `p` (0 to 100), linearly interpolated at position `p / 100 x (n - 1)` of the sorted values
/// (NumPy's default, Hyndman and Fan's type 7). `None` without values.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    arithmetic::percentile(&mut values.to_vec(), p)
}

/// 95 % bootstrap interval of a function of the sides' medians: the 2.5th to 97.5th percentile of
/// [`resample`] (percentile method). `None` if that is.
pub fn bootstrap<const SIDES: usize>(
    sides: [&[Vec<f64>]; SIDES],
    statistic: impl Fn([f64; SIDES]) -> f64,
) -> Option<[f64; 2]> {
    resample(sides, statistic).and_then(interval95)
}

/// 95 % interval of a function of the sides' medians in a round: by Student's t over the rounds, of a single round by
/// [`bootstrap`] of its samples. `None` with fewer than [`LEAST_SAMPLES`] samples a side, if sides differ in rounds, and if
/// the function has no finite value in a round.
pub fn interval_over_rounds<const SIDES: usize>(
    sides: [&[Vec<f64>]; SIDES],
    statistic: impl Fn([f64; SIDES]) -> f64,
) -> Option<[f64; 2]> {
    let rounds = sides.first()?.len();
    let is_complete = |side: &&[Vec<f64>]| {
        side.len() == rounds && side.iter().map(Vec::len).sum::<usize>() >= LEAST_SAMPLES
    };
    if !sides.iter().all(is_complete) {
        return None;
    }
    if rounds < 2 {
        return bootstrap(sides, statistic);
    }
    let of_round = |round: usize| {
        Some(statistic(sides.map(|side| median(&side[round]).unwrap_or(f64::NAN))))
            .filter(|value| value.is_finite())
    };
    interval_of_few(&(0..rounds).map(of_round).collect::<Option<Vec<f64>>>()?)
}

/// 95 % bootstrap interval of any function of the drawn pools; see [`resample_pools`].
pub fn bootstrap_pools<S: Copy>(
    sides: &[&[Vec<S>]],
    statistic: impl FnMut(&mut [Vec<S>]) -> f64,
) -> Option<[f64; 2]> {
    resample_pools(sides, statistic).and_then(interval95)
}

/// 95 % bootstrap interval of the mean of independent values, such as windows of a text. `None` for
/// fewer than two values; too narrow for a few.
pub fn bootstrap_mean(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut drawn = || (0..values.len()).map(|_| values[random.usize(..values.len())]).sum::<f64>();
    interval95((0..RESAMPLES).map(|_| drawn() / values.len() as f64).collect())
}

/// 95 % interval of the mean of a few independent, roughly normal values (such as seeds) by Student's t,
/// because a bootstrap would be too narrow. `None` for fewer than two values.
pub fn interval_of_few(values: &[f64]) -> Option<[f64; 2]> {
    let (mean, error, t) = students(values)?;
    let half = error * t.inverse_cdf(0.975);
    Some([mean - half, mean + half])
}

/// Two-sided p-value of "the mean of these values is 0", by Student's t. `None` for fewer than two values.
pub fn p_value_of_few(values: &[f64]) -> Option<f64> {
    let (mean, error, t) = students(values)?;
    match mean == 0.0 {
        true => Some(1.0),
        false => Some(2.0 * t.sf((mean / error).abs())),
    }
}

/// Mean of a few values, its standard error, and the distribution of the mean in units of that error.
fn students(values: &[f64]) -> Option<(f64, f64, StudentsT)> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let freedom = (values.len() - 1) as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((mean, (variance / values.len() as f64).sqrt(), t))
}

/// Values of `statistic`, a function of the sides' medians, for [`RESAMPLES`] resamples; `None` in the
/// cases of [`resample_pools`].
pub fn resample<const SIDES: usize>(
    sides: [&[Vec<f64>]; SIDES],
    statistic: impl Fn([f64; SIDES]) -> f64,
) -> Option<Vec<f64>> {
    let all = sides.map(<[Vec<f64>]>::concat);
    let mut pool = Vec::new();
    draws(&sides, |places| {
        let mut medians = [f64::NAN; SIDES];
        for ((samples, places), median) in all.iter().zip(places).zip(&mut medians) {
            arithmetic::gather(samples, places, &mut pool);
            *median = arithmetic::percentile(&mut pool, 50.0).unwrap_or(f64::NAN);
        }
        statistic(medians)
    })
}

/// Values of `statistic` for [`RESAMPLES`] resamples. It gets the drawn samples of each side and may
/// reorder them; a sample may consist of several numbers.
///
/// A side is a list of rounds, a round a list of samples; round `i` of one side pairs with round `i` of
/// the others. Each resample draws rounds with replacement, the same for all sides, then samples with
/// replacement within each drawn round and side. `None` if a side has fewer than [`LEAST_SAMPLES`]
/// samples in total, if sides differ in rounds, or if any resample has no finite statistic (such as a
/// ratio with denominator 0).
pub fn resample_pools<S: Copy>(
    sides: &[&[Vec<S>]],
    mut statistic: impl FnMut(&mut [Vec<S>]) -> f64,
) -> Option<Vec<f64>> {
    let all: Vec<Vec<S>> = sides.iter().map(|side| side.concat()).collect();
    let mut pools: Vec<Vec<S>> = vec![Vec::new(); sides.len()];
    draws(sides, |places| {
        for ((samples, places), pool) in all.iter().zip(places).zip(&mut pools) {
            pool.clear();
            pool.extend(places.iter().map(|&place| samples[place]));
        }
        statistic(&mut pools)
    })
}

/// Like [`resample_pools`], but `statistic` gets the indices of the drawn samples within each side's
/// concatenated rounds.
fn draws<S>(sides: &[&[Vec<S>]], mut statistic: impl FnMut(&[Vec<usize>]) -> f64) -> Option<Vec<f64>> {
    let rounds = sides.first()?.len();
    let has_enough_samples = |side: &&[Vec<S>]| {
        side.len() == rounds
            && side.iter().all(|round| !round.is_empty())
            && side.iter().map(Vec::len).sum::<usize>() >= LEAST_SAMPLES
    };
    if !sides.iter().all(has_enough_samples) {
        return None;
    }
    let round_starts = |side: &&[Vec<S>]| -> Vec<usize> {
        let ends = side.iter().scan(0, |end, round| {
            *end += round.len();
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    };
    let starts: Vec<Vec<usize>> = sides.iter().map(round_starts).collect();
    let mut draws = BootstrapDraws::new(SEED, rounds);
    let mut places = vec![Vec::new(); sides.len()];
    let mut statistics = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        draws.draw_rounds();
        for (starts, places) in starts.iter().zip(&mut places) {
            draws.draw_samples(starts, places);
        }
        let value = statistic(&places);
        if !value.is_finite() {
            return None;
        }
        statistics.push(value);
    }
    Some(statistics)
}

/// 2.5th to 97.5th percentile; `None` without values.
pub fn interval95(mut statistics: Vec<f64>) -> Option<[f64; 2]> {
    let mut percentile = |p| arithmetic::percentile(&mut statistics, p);
    Some([percentile(2.5)?, percentile(97.5)?])
}

/// Two-sided bootstrap p-value of "the statistic is `null`": twice the share of resamples on the rarer
/// side. The sample itself counts once, so the value is never 0 (Davison and Hinkley 1997, 4.2.5).
/// `None` without resamples.
pub fn p_value(resamples: &[f64], null: f64) -> Option<f64> {
    let share = |count: usize| (count + 1) as f64 / (resamples.len() + 1) as f64;
    let below = resamples.iter().filter(|value| **value <= null).count();
    let above = resamples.iter().filter(|value| **value >= null).count();
    (!resamples.is_empty()).then(|| (2.0 * share(below).min(share(above))).min(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// R: `t.test(c(1, 2, 4))`, and of 30 values at two ends.
    #[test]
    fn intervals_of_a_few_values_are_students() {
        assert_eq!(interval_of_few(&[1.0]), None);
        let [low, high] = interval_of_few(&[1.0, 2.0, 4.0]).unwrap();
        assert!((low + 1.4612).abs() < 1e-3 && (high - 6.1279).abs() < 1e-3, "{low} {high}");
        assert!((p_value_of_few(&[1.0, 2.0, 4.0]).unwrap() - 0.1181).abs() < 1e-3);
        assert_eq!(p_value_of_few(&[-1.0, 1.0]), Some(1.0));
        assert_eq!(p_value_of_few(&[0.5, 0.5, 0.5]), Some(0.0));
        let many: Vec<f64> = (0..30).map(|n| f64::from(n % 2)).collect();
        let [low, high] = interval_of_few(&many).unwrap();
        assert!((high - low - 2.0 * 2.0452 * (0.25 * 30.0 / 29.0 / 30.0f64).sqrt()).abs() < 1e-3);
    }

    #[test]
    fn medians_and_percentiles_on_paper() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(percentile(&[10.0, 20.0, 30.0, 40.0, 50.0], 90.0), Some(46.0));
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
    }

    #[test]
    fn the_extent_ignores_values_that_are_not_finite() {
        assert_eq!(extent([f64::NAN, 2.0, f64::INFINITY, -1.0]), Some([-1.0, 2.0]));
        assert_eq!(extent([f64::NAN]), None);
        assert_eq!(distinct([2, 1, 2, 3, 1]), [2, 1, 3]);
    }

    #[test]
    fn few_samples_have_no_interval() {
        let five = [vec![1.0, 2.0, 3.0], vec![4.0, 5.0]];
        assert_eq!(bootstrap([&five], |[m]| m), None);
        let six = [vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]];
        let [low, high] = bootstrap([&six], |[m]| m).unwrap();
        assert!((1.0..3.5).contains(&low) && (3.5..=6.0).contains(&high), "{low}..{high}");
        assert_eq!(bootstrap([&six[..], &six[..1]], |[a, b]| a / b), None, "rounds do not pair");
    }

    #[test]
    fn intervals_over_rounds_are_students_of_each_rounds_value() {
        let [fast, slow] =
            [1.0, 2.0].map(|by| [1.0, 2.0, 4.0].map(|round: f64| vec![round * by, round * by]).to_vec());
        let difference = |[a, b]: [f64; 2]| a - b;
        assert_eq!(interval_over_rounds([&slow, &fast], difference), interval_of_few(&[1.0, 2.0, 4.0]));
        assert_eq!(interval_over_rounds([&slow, &fast], |[a, b]| a / b), Some([2.0, 2.0]));
        assert_eq!(interval_over_rounds([&slow, &fast], |_| f64::NAN), None);
        assert_eq!(interval_over_rounds([&slow[..2], &fast[..2]], difference), None, "too few samples");
        let single = [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]];
        assert_eq!(interval_over_rounds([&single], |[m]| m), bootstrap([&single], |[m]| m));
    }

    #[test]
    fn a_difference_between_rounds_widens_the_interval() {
        let steady: Vec<Vec<f64>> = vec![vec![10.0, 10.1, 9.9, 10.0]; 3];
        let drifting: Vec<Vec<f64>> =
            [0.0, 2.0, 4.0].iter().map(|by| steady[0].iter().map(|v| v + by).collect()).collect();
        let width =
            |side: &[Vec<f64>]| bootstrap([side], |[m]| m).map(|[low, high]| high - low).unwrap();
        assert!(width(&drifting) > 10.0 * width(&steady));
    }

    #[test]
    fn arms_that_drift_together_have_a_tight_ratio() {
        let drift = |speed: f64| -> Vec<Vec<f64>> {
            [1.0, 1.5, 2.0]
                .iter()
                .map(|by| vec![10.0 * by * speed, 10.1 * by * speed, 9.9 * by * speed])
                .collect()
        };
        let (slow, fast) = (drift(1.25), drift(1.0));
        let [low, high] = bootstrap([&slow, &fast], |[a, b]| a / b).unwrap();
        assert!(low > 1.2 && high < 1.3, "paired rounds cancel the drift: {low}..{high}");
    }

    #[test]
    fn the_interval_of_a_mean_holds_it_and_narrows_with_more_values() {
        assert_eq!(bootstrap_mean(&[3.0]), None);
        assert_eq!(bootstrap_mean(&[2.0, 2.0]), Some([2.0, 2.0]));
        let width = |count: usize| {
            let values: Vec<f64> = (0..count).map(|i| (i % 4) as f64).collect();
            let [low, high] = bootstrap_mean(&values).unwrap();
            assert!(low <= 1.5 && 1.5 <= high, "{low} {high}");
            high - low
        };
        // a hundred times the values, a tenth of the width
        let ratio = width(8) / width(800);
        assert!((7.0..14.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_denominator_that_may_be_nothing_has_no_interval() {
        let side = [vec![1.0, 2.0, 3.0, 1.0, 2.0, 3.0]];
        let gap = |[a, b]: [f64; 2]| if a > b { 1.0 / (a - b) } else { f64::NAN };
        assert_eq!(bootstrap([&side, &side], gap), None);
    }

    proptest! {
        #[test]
        fn percentiles_agree_with_sorting(mut values in prop::collection::vec(-1e6f64..1e6, 1..50), p in 0.0f64..100.0) {
            let value = percentile(&values, p).unwrap();
            values.sort_by(f64::total_cmp);
            let position = p / 100.0 * (values.len() - 1) as f64;
            let (low, high) = (values[position.floor() as usize], values[position.ceil() as usize]);
            prop_assert!((value - (low + (high - low) * position.fract())).abs() < 1e-6);
        }

        #[test]
        fn a_p_value_agrees_with_the_interval(
            rounds in prop::collection::vec(prop::collection::vec(0.5f64..2.0, 3..6), 2..5),
        ) {
            let resamples = resample([&rounds], |[m]| m).unwrap();
            let p = p_value(&resamples, 1.0).unwrap();
            let [low, high] = interval95(resamples).unwrap();
            prop_assert!(p > 0.0 && p <= 1.0);
            // strictly inside the interval lie more than 5% of the resamples on either side, and the
            // other way round but for ties at its ends
            prop_assert!(!(low < 1.0 && 1.0 < high) || p >= 0.049, "{p} {low} {high}");
            prop_assert!(!(low > 1.0 || high < 1.0) || p <= 0.052, "{p} {low} {high}");
        }

        #[test]
        fn intervals_repeat_stay_within_the_data_and_scale_with_it(
            rounds in prop::collection::vec(prop::collection::vec(0.1f64..100.0, 2..5), 3..5),
            scale in 0.5f64..20.0,
        ) {
            let [low, high] = bootstrap([&rounds], |[m]| m).unwrap();
            prop_assert_eq!(bootstrap([&rounds], |[m]| m), Some([low, high]));
            let all: Vec<f64> = rounds.iter().flatten().copied().collect();
            prop_assert!(all.iter().any(|v| *v <= low) && all.iter().any(|v| *v >= high) && low <= high);
            let scaled: Vec<Vec<f64>> =
                rounds.iter().map(|r| r.iter().map(|v| v * scale).collect()).collect();
            let [a, b] = bootstrap([&scaled], |[m]| m).unwrap();
            prop_assert!((a - low * scale).abs() < 1e-6 && (b - high * scale).abs() < 1e-6);
        }
    }
}
