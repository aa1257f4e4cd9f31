//! Metrics and pooling against numbers worked out by hand.

use super::*;
use crate::testing::{record, sim_record, spec};
use base::statistics::LEAST_SAMPLES;

#[test]
fn a_run_on_paper() {
    let run = record("r", |s| s.batch = 3, 0, &[(10.0, 1.0), (20.0, 2.0), (12.0, 3.0)]);
    let m = run.metrics.unwrap();
    // Steps: 4 each of 1, 2 and 3 ms; completions 14, 28, 24 ms.
    assert_eq!((m.prefill_ms, m.decode_ms, m.completion_ms), (12.0, 8.0, 24.0));
    assert_eq!((m.tpot_ms.p50, m.tpot_ms.p90, m.tpot_ms.p99), (2.0, 3.0, 3.0));
    assert_eq!(m.tokens_per_s, 3.0 * 5.0 / 0.024);
    assert_eq!(m.tokens_per_s_per_gpu, m.tokens_per_s / 2.0);
    assert_eq!((m.samples, m.tokens_per_s_ci95, m.tpot_ms_ci95), (3, None, None));
}

#[test]
fn one_token_has_no_steps() {
    let m = record("r", |s| s.output_tokens = 1, 0, &[(10.0, 0.0)]).metrics.unwrap();
    assert_eq!((m.tpot_ms.p50, m.tpot_ms.p99, m.completion_ms), (0.0, 0.0, 10.0));
    assert_eq!(m.tpot_ms_ci95, None);
}

#[test]
fn a_whole_without_steps_is_taken_for_their_mean() {
    let mut run = record("r", |_| (), 0, &[(1.0, 2.0)]);
    Arc::make_mut(&mut run.samples)[0].steps_ms.clear();
    assert_eq!(metrics(&run.spec, &[&run.samples], 0).unwrap().tpot_ms.p50, 2.0);
    assert_eq!(metrics(&run.spec, &[], 0), None);
}

fn six() -> Vec<(f64, f64)> {
    (0..LEAST_SAMPLES).map(|i| (10.0, 1.0 + i as f64 / 100.0)).collect()
}

#[test]
fn measurements_have_intervals_and_simulations_do_not() {
    let measured = record("r", |_| (), 0, &six()).metrics.unwrap();
    let [low, high] = measured.tokens_per_s_ci95.unwrap();
    assert!(low < measured.tokens_per_s && measured.tokens_per_s < high);
    let [low, high] = measured.tpot_ms_ci95.unwrap();
    assert!(low < measured.tpot_ms.p50 && measured.tpot_ms.p50 < high);
    let spec = sim_record("s", |_| (), 1.0, 1.0).spec;
    let samples = record("r", |_| (), 0, &six()).samples;
    assert_eq!(metrics(&spec, &[&samples], 0).unwrap().tokens_per_s_ci95, None);
}

#[test]
fn rounds_are_pooled_in_order_and_failures_give_way() {
    let ladder = |s: &mut Spec| s.architecture = plan::Architecture::Ladder(plan::LayerSet::All);
    let mut failed = record("b1", |_| (), 1, &[(1.0, 1.0)]);
    (failed.status, failed.metrics, failed.reason) = (Status::Failed, None, Some("rank 1 died".into()));
    let mut first = record("a0", |_| (), 0, &[(10.0, 1.0), (10.0, 1.0)]);
    first.overlap = Some(Overlap { comm_ms: 1.0, exposed_comm_ms: 1.0, ..Overlap::default() });
    let mut last = record("a2", |_| (), 2, &[(10.0, 1.1), (10.0, 1.1), (10.0, 1.1)]);
    last.overlap = Some(Overlap { comm_ms: 3.0, exposed_comm_ms: 0.0, ..Overlap::default() });
    last.warnings = vec!["hot".into()];
    let mut alone = record("c0", |s| s.tp = 3, 0, &[(1.0, 1.0)]);
    (alone.status, alone.metrics, alone.reason) =
        (Status::Skipped, None, Some("3 does not divide 8".into()));

    let cells = aggregate(&[first, record("l0", ladder, 0, &[(9.0, 1.0)]), failed, last, alone.clone()]);
    let names: Vec<&str> = cells.iter().map(|r| r.run.as_str()).collect();
    assert_eq!(names, ["a2", "l0", "c0"]);
    assert_eq!(cells[0].runs, ["a0", "a2"]);
    let m = cells[0].metrics.as_ref().unwrap();
    assert_eq!((m.samples, m.tpot_ms.p50, cells[0].samples.len()), (5, 1.1, 5));
    let overlap = cells[0].overlap.unwrap();
    assert_eq!((overlap.comm_ms, overlap.exposed_comm_ms, overlap.overlap_pct), (2.0, 0.5, Some(75.0)));
    assert_eq!(cells[0].warnings, ["hot", "ignoring run b1 (round 1): failed: rank 1 died"]);
    assert_eq!(cells[2], alone, "a skipped cell stays as it is");
}

#[test]
fn machines_are_not_pooled() {
    let on = |run, host: &str| {
        let mut record = record(run, |_| (), 0, &[(1.0, 1.0)]);
        record.environment.insert("host".into(), host.into());
        record
    };
    assert_eq!(aggregate(&[on("a", "x"), on("b", "y"), on("c", "x")]).len(), 2);
}

#[test]
fn stalls_are_said_not_dropped() {
    let stalled = record("r", |_| (), 0, &[(10.0, 1.0), (10.0, 1.0), (90.0, 1.0)]);
    let cell = &aggregate(&[stalled])[0];
    assert_eq!(cell.metrics.as_ref().unwrap().prefill_ms, 10.0);
    assert_eq!(
        cell.warnings,
        [
            "prefill: mean 36.667 ms is far above the median 10.000 ms (3 values); some samples may have stalled"
        ]
    );
}

#[test]
fn aggregating_twice_changes_nothing() {
    let runs = [record("a", |_| (), 0, &six()), record("b", |_| (), 0, &six())];
    let once = aggregate(&runs);
    assert_eq!(aggregate(&once), once);
}

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
