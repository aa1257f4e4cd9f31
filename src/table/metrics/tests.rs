//! Metrics and pooling against numbers worked out by hand.

use super::*;
use crate::testing::{record, sim_record};
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
