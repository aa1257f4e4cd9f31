//! Remaining time of a sweep under way: the predicted work of the runs that are left, at the speed of those that ran.

/// Estimates remaining time. Work is in any unit, the same for all runs, such as predicted seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remaining {
    /// Time (seconds) and work at the first finished run, which also computes what the others share.
    first: Option<(f64, f64)>,
}

/// Work that counts as done at the predicted speed, as share of all: the estimate starts at the prediction and follows
/// the runs gradually.
const PRIOR_SHARE: f64 = 0.1;
/// Evidence needed without a prediction: seconds and share of all work.
const LEAST_S: f64 = 2.0;
const LEAST_SHARE: f64 = 0.05;

impl Remaining {
    /// Records that a run has finished at this time (seconds since the start), after this much work.
    pub fn finished(&mut self, elapsed_s: f64, done: f64) {
        self.first.get_or_insert((elapsed_s, done));
    }

    /// Seconds until `left` is done; `is_predicted` if work is in predicted seconds. `None` without enough evidence.
    pub fn seconds(&self, elapsed_s: f64, done: f64, left: f64, is_predicted: bool) -> Option<f64> {
        if left <= 0.0 {
            return None;
        }
        let all = done + left;
        if is_predicted {
            let prior = PRIOR_SHARE * all;
            return Some((elapsed_s + prior) / (done + prior) * left);
        }
        let (begun_s, before) = self.first?;
        let (spent, worked) = (elapsed_s - begun_s, done - before);
        (spent >= LEAST_S && worked >= LEAST_SHARE * all).then(|| spent / worked * left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_starts_at_the_prediction_and_follows_the_runs() {
        let remaining = Remaining::default();
        // 80 s are predicted, and everything takes twice as long
        let at = |done: f64| remaining.seconds(2.0 * done, done, 80.0 - done, true).unwrap();
        assert_eq!(at(0.0), 80.0);
        let (early, half, late) = (at(2.0), at(40.0), at(76.0));
        assert!((80.0..100.0).contains(&early), "no jump after the first seconds: {early}");
        assert!((70.0..80.0).contains(&half), "{half} of 80");
        assert!((7.0..8.0).contains(&late), "{late} of 8");
        assert_eq!(remaining.seconds(160.0, 80.0, 0.0, true), None);
    }

    #[test]
    fn without_a_prediction_the_first_run_and_little_evidence_count_for_nothing() {
        let mut remaining = Remaining::default();
        assert_eq!(remaining.seconds(6.0, 0.0, 72.0, false), None);
        // the first takes 6 s, as it reads tables; each other half a second
        remaining.finished(6.0, 1.0);
        assert_eq!(remaining.seconds(7.0, 3.0, 69.0, false), None, "two runs");
        remaining.finished(9.0, 7.0);
        assert_eq!(remaining.seconds(9.0, 7.0, 65.0, false), Some(32.5));
    }
}
