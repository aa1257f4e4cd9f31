//! Gates: what they are read from, what fails them and what cannot be judged.

use proptest::prelude::*;

use super::*;
use crate::study::analysis::testing::record;

fn gate(text: &str) -> Gate {
    text.parse().unwrap()
}

/// Six samples about a TPOT (ms), in two rounds.
fn runs(name: &str, tpot: f64) -> Vec<Record> {
    let samples = |round: u32| {
        let at = |n: u32| tpot * (1.0 + 0.002 * f64::from(n + 3 * round) - 0.005);
        (0..3).map(|n| (10.0, at(n))).collect::<Vec<_>>()
    };
    (0..2).map(|round| record(&format!("{name}{round}"), |_| (), round, &samples(round))).collect()
}

#[test]
fn a_gate_is_a_measure_a_direction_and_a_limit() {
    let read = gate("tpot<+3%");
    assert_eq!(
        (read.measure.name, read.below, read.limit, read.relative),
        ("tpot_p50_ms", true, 3.0, true)
    );
    let read = gate(" tok/s >= -2 % ");
    assert_eq!(
        (read.measure.name, read.below, read.limit, read.relative),
        ("tokens_per_s", false, -2.0, true)
    );
    assert!(!gate("overlap>-5").relative);
    for (text, said) in [
        ("tpot", "neither < nor >"),
        ("tpott<3%", "tpott"),
        ("tpot<", "no number"),
        ("tpot<inf%", "no number"),
        ("kl<+1%", "no baseline keeps it"),
        ("hidden>-5%", "no baseline keeps it"),
    ] {
        let error = text.parse::<Gate>().unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn what_is_shown_to_be_slower_fails_and_what_may_be_chance_holds() {
    let report = |now: f64| {
        judge(("main", ""), &runs("a", 10.0), &runs("b", now), &[gate("tpot<+3%"), gate("tok/s>-50%")])
    };
    let (same, little, much) = (report(10.0), report(10.35), report(11.0));
    assert!(same.held && !much.held, "{same:?} {much:?}");
    // 3.5 % above, with an interval that reaches down to the limit
    assert!(little.rows[0].change > 3.0 && little.held, "{little:?}");
    assert!(little.rows.iter().all(|row| row.decided_by == "interval" && row.samples == [6, 6]));
    assert_eq!(much.rows.iter().filter(|row| !row.held).count(), 1, "throughput may fall by half");
}

/// Of runs of many nights only the last night's count, and a tail is not judged by the median of samples' tails.
#[test]
fn a_bad_night_after_good_ones_is_seen_and_so_is_a_tail() {
    let at = |name: &str, tpot: f64, created: &str| {
        let mut runs = runs(name, tpot);
        runs.iter_mut().for_each(|run| run.created = created.into());
        runs
    };
    let nights = [at("b", 10.0, "2"), at("c", 10.0, "3"), at("d", 12.0, "4")].concat();
    let judged = judge(("main", ""), &at("a", 10.0, "1"), &nights, &[gate("tpot<+3%")]);
    assert!(!judged.held, "{judged:?}");
    assert_eq!(judged.rows[0].runs, ["d0", "d1"]);
    let slow = |name: &str, last: f64| {
        let mut run = record(name, |_| (), 0, &[(10.0, 10.0); 8]);
        let steps = |ms| vec![ms; run.spec.output_tokens as usize - 1];
        let all: Vec<Vec<f64>> = (0..8).map(|n| steps(if n == 7 { last } else { 10.0 })).collect();
        run.samples.iter_mut().zip(all).for_each(|(sample, steps)| sample.steps_ms = steps);
        run.metrics = metrics(&run.spec, &[&run.samples], 0);
        vec![run]
    };
    let judged = judge(("main", ""), &slow("a", 10.0), &slow("b", 40.0), &[gate("p99<+10%")]);
    assert!(!judged.held && judged.rows[0].decided_by == "change", "{judged:?}");
}

#[test]
fn without_an_interval_the_change_decides() {
    let one = |name, tpot| vec![record(name, |_| (), 0, &[(10.0, tpot)])];
    let judged = judge(("main", ""), &one("a", 10.0), &one("b", 10.35), &[gate("tpot<+3%")]);
    assert!(!judged.held && judged.rows[0].decided_by == "change", "{judged:?}");
    let judged = judge(("main", ""), &one("a", 10.0), &one("b", 10.25), &[gate("tpot<+3%")]);
    assert!(judged.held);
}

#[test]
fn a_cell_without_a_partner_is_named_and_the_baselines_own_runs_are_none() {
    let baseline = runs("a", 10.0);
    let other = record("c", |s| s.batch = 64, 0, &[(1.0, 2.0)]);
    let now: Vec<Record> = baseline.iter().cloned().chain([other]).collect();
    let judged = judge(("main", ""), &baseline, &now, &[gate("tpot<+3%")]);
    assert!(judged.rows.is_empty() && judged.without_partner[0].contains("not run again"), "{judged:?}");
    assert_eq!(judged.not_in_baseline, 1);
    // a measure that was not recorded cannot be held
    let judged = judge(("main", ""), &baseline, &runs("b", 10.0), &[gate("overlap>-1")]);
    assert!(judged.without_partner[0].contains("overlap"), "{judged:?}");
}

#[test]
fn a_share_of_communication_is_not_asked_of_cells_that_have_none() {
    let with = |name: &str, comm_ms: f64| {
        let mut runs = runs(name, 10.0);
        let overlap = crate::table::Overlap {
            comm_ms,
            exposed_comm_ms: 0.0,
            overlap_pct: crate::table::overlap_pct(0.0, comm_ms),
            compute_ms: 1.0,
            idle_ms: 0.0,
            split: None,
        };
        runs.iter_mut().for_each(|run| run.overlap = Some(overlap));
        runs
    };
    let gates = [gate("tpot<+3%"), gate("overlap>-5")];
    let judged = judge(("main", ""), &with("a", 0.0), &with("b", 0.0), &gates);
    assert!(judged.held && judged.without_communication == 1 && judged.rows.len() == 1, "{judged:?}");
    let nothing = judge(("main", ""), &with("a", 0.0), &with("b", 0.0), &gates[1..]);
    assert!(!nothing.held && nothing.rows.is_empty(), "{nothing:?}");
    let judged = judge(("main", ""), &with("a", 1.0), &with("b", 0.0), &gates);
    assert!(!judged.held && judged.without_partner[0].contains("overlap"), "{judged:?}");
}

#[test]
fn runs_of_the_baselines_machine_are_preferred_and_another_machine_is_told() {
    let on = |host: &str, tpot: f64, created: &str| {
        let mut run = record(&format!("{host}{created}"), |_| (), 0, &[(10.0, tpot)]);
        run.environment.insert("host".into(), host.into());
        Record { created: created.into(), ..run }
    };
    let baseline = [on("a", 10.0, "1")];
    let gates = [gate("tpot<+3%")];
    let both = judge(("main", ""), &baseline, &[on("a", 10.1, "2"), on("b", 20.0, "3")], &gates);
    assert!(both.held && both.warnings.is_empty(), "{both:?}");
    let of_both = [on("a", 10.0, "1"), on("b", 50.0, "1")];
    assert!(judge(("main", ""), &of_both, &[on("a", 10.1, "2")], &gates).warnings.is_empty());
    let other = judge(("main", ""), &baseline, &[on("b", 20.0, "3")], &gates);
    assert!(!other.held && other.warnings[0].contains("on a") && other.warnings[0].contains("on b"));
}

proptest! {
    /// A gate that holds at some limit holds at every wider one, and a faster run never fails.
    #[test]
    fn wider_gates_hold_whatever_narrower_ones_do(tpot in 5.0..20.0f64, limit in 0.0..40.0f64, more in 0.0..40.0f64) {
        let held = |limit: f64| {
            judge(("main", ""), &runs("a", 10.0), &runs("b", tpot), &[gate(&format!("tpot<+{limit}%"))]).held
        };
        prop_assert!(!held(limit) || held(limit + more));
        prop_assert!(tpot > 10.0 || held(limit));
    }
}
