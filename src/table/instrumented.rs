//! Overhead of timing a run's operations: TPOT of the instrumented pass over TPOT of the plain pass.

use super::metrics::{recorder, steps_ms};
use crate::{Instrumented, Record, Sample, Spec};
use base::statistics::{bootstrap, median};

/// Overhead above which overlap and trace no longer represent the samples.
const DISTURBED: f64 = 1.05;

/// Consecutive steps per bootstrap block.
const BLOCK: usize = 8;

/// Both passes of one run, in decode steps (ms).
struct Round {
    plain: Vec<f64>,
    timed: Vec<f64>,
}

/// Adds the overhead over the undisturbed `samples` to an instrumented pass.
///
/// The interval bootstraps blocks of consecutive steps, because neighboring steps are not independent.
/// It does not cover differences between processes; those need rounds.
pub fn overhead(spec: &Spec, samples: &[Sample], pass: Instrumented) -> Instrumented {
    let plain = samples.iter().flat_map(|sample| steps_ms(spec, sample)).collect();
    let round = Round { plain, timed: pass.steps_ms.clone() };
    with_overhead(pass, &[round])
}

/// Pools the instrumented passes of a cell's runs that used the same recorder as the last run. `None` if
/// the last run has no such pass.
pub(super) fn pooled(last: &Record, runs: &[&Record]) -> Option<Instrumented> {
    let mut pass = last.instrumented.clone()?;
    let alike = runs.iter().filter(|run| recorder(run) == recorder(last));
    let rounds: Vec<Round> = alike
        .filter_map(|run| {
            let timed = run.instrumented.as_ref()?.steps_ms.clone();
            let plain = run.samples.iter().flat_map(|sample| steps_ms(&run.spec, sample)).collect();
            Some(Round { plain, timed })
        })
        .collect();
    pass.steps_ms = rounds.iter().flat_map(|round| &round.timed).copied().collect();
    Some(with_overhead(pass, &rounds))
}

/// Warning if instrumentation slowed the steps by more than 5 %, judged by the interval's lower bound
/// where there is one.
pub fn disturbed(pass: &Instrumented) -> Option<String> {
    let overhead = pass.overhead?;
    let least = pass.overhead_ci95.map_or(overhead, |[low, _]| low);
    (least > DISTURBED).then(|| {
        format!(
            "steps took {overhead:.2} x as long while '{}' timed their operations: overlap and trace are those of the \
             longer steps; another --recorder may cost less",
            pass.recorder
        )
    })
}

fn with_overhead(mut pass: Instrumented, rounds: &[Round]) -> Instrumented {
    let all =
        |of: fn(&Round) -> &Vec<f64>| -> Vec<f64> { rounds.iter().flat_map(of).copied().collect() };
    let (plain, timed) = (median(&all(|r| &r.plain)), median(&all(|r| &r.timed)));
    let blocks = |of: fn(&Round) -> &Vec<f64>| -> Vec<Vec<f64>> {
        let medians = |steps: &[f64]| steps.chunks(BLOCK).filter_map(median).collect();
        rounds.iter().map(|round| medians(of(round))).collect()
    };
    pass.tpot_ms = timed.unwrap_or(0.0);
    pass.overhead =
        plain.zip(timed).filter(|(plain, _)| *plain > 0.0).map(|(plain, timed)| timed / plain);
    pass.overhead_ci95 = pass.overhead.and_then(|_| {
        bootstrap([&blocks(|r| &r.timed), &blocks(|r| &r.plain)], |[timed, plain]| timed / plain)
    });
    pass
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{record, spec};

    fn pass(steps_ms: Vec<f64>) -> Instrumented {
        Instrumented { recorder: "stamps".into(), steps_ms, ..Default::default() }
    }

    fn sample(steps_ms: Vec<f64>) -> Sample {
        Sample { prefill_ms: 1.0, decode_ms: steps_ms.iter().sum(), steps_ms, overlap: None }
    }

    /// Steps that grow with the context and vary a little, `factor` times as long.
    fn steps(factor: f64) -> Vec<f64> {
        (0..200).map(|s| factor * (5.0 + 0.001 * f64::from(s) + 0.02 * f64::from(s * 7 % 5))).collect()
    }

    #[test]
    fn the_overhead_is_the_ratio_of_medians_and_its_interval_holds_it() {
        let spec = spec();
        let found = overhead(&spec, &[sample(steps(1.0)), sample(steps(1.0))], pass(steps(1.03)));
        assert!((found.overhead.unwrap() - 1.03).abs() < 1e-9, "{found:?}");
        let [low, high] = found.overhead_ci95.unwrap();
        assert!(low > 1.02 && low <= 1.03 && (1.03..1.04).contains(&high), "{low}..{high}");
        assert!((found.tpot_ms / 1.03 - median(&steps(1.0)).unwrap()).abs() < 1e-9);
    }

    /// Records of generations that were composed of windows of several replays.
    #[test]
    fn what_composed_passes_left_is_read() {
        let old = r#"{"recorder":"cuda events, rotating K=8","windows":8,"steps_ms":[2.0],"stretch":1.1,"clipped":0.01}"#;
        let read: Instrumented = serde_json::from_str(old).unwrap();
        assert_eq!((read.recorder.as_str(), read.steps_ms), ("cuda events, rotating K=8", vec![2.0]));
    }

    #[test]
    fn a_pass_that_took_far_longer_is_told_and_one_that_may_not_have_is_not() {
        let spec = spec();
        let said = |factor: f64| {
            let samples = [sample(steps(1.0)), sample(steps(1.0))];
            disturbed(&overhead(&spec, &samples, pass(steps(factor))))
        };
        assert_eq!([said(1.0), said(1.04)], [None, None]);
        let text = said(1.21).expect("it is told");
        assert!(text.starts_with("steps took 1.21 x as long while 'stamps' timed"), "{text}");
        let unsure =
            Instrumented { overhead: Some(1.06), overhead_ci95: Some([1.01, 1.12]), ..pass(Vec::new()) };
        assert_eq!(disturbed(&unsure), None);
    }

    #[test]
    fn without_steps_there_is_no_overhead_and_with_few_no_interval() {
        let spec = spec();
        let none = overhead(&spec, &[sample(steps(1.0))], pass(Vec::new()));
        assert_eq!((none.overhead, none.overhead_ci95), (None, None));
        let few = overhead(&spec, &[sample(vec![2.0; 8])], pass(vec![3.0; 8]));
        assert_eq!((few.overhead, few.overhead_ci95), (Some(1.5), None));
    }

    #[test]
    fn rounds_are_paired_and_other_recorders_left_out() {
        let run = |name, recorder: &str, drift: f64, cost: f64| {
            let mut record = record(name, |_| (), 0, &[(0.0, 1.0)]);
            record.environment.insert("recorder".into(), recorder.into());
            record.samples = vec![sample(steps(drift))].into();
            record.instrumented = Some(pass(steps(drift * cost)));
            record
        };
        let runs = [
            run("a", "cuda events around modules", 1.0, 9.0),
            run("b", "stamps", 1.0, 1.02),
            run("c", "stamps", 1.5, 1.02),
        ];
        let found = pooled(&runs[2], &runs.iter().collect::<Vec<_>>()).unwrap();
        let [low, high] = found.overhead_ci95.unwrap();
        assert!(low < 1.03 && high > 1.01 && (found.overhead.unwrap() - 1.02).abs() < 0.01, "{found:?}");
        assert_eq!(found.steps_ms.len(), 400);
        assert_eq!(pooled(&record("d", |_| (), 0, &[(0.0, 1.0)]), &[]), None);
    }
}
