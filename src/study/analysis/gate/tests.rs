//! Gates: what they are read from, what fails them and what cannot be judged.

use proptest::prelude::*;

use super::*;
use table::testing::record;

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
        ("tpot<", "is not a number"),
        ("tpot<inf%", "is not a number"),
        ("kl<+1%", "cannot be gated"),
        ("gap>-5%", "cannot be gated"),
    ] {
        let error = text.parse::<Gate>().unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn what_is_shown_to_be_slower_is_violated_and_what_may_be_chance_is_undecided() {
    let report = |now: f64| {
        judge(("main", ""), &runs("a", 10.0), &runs("b", now), &[gate("tpot<+3%"), gate("tok/s>-50%")])
    };
    let (same, little, much) = (report(10.0), report(10.35), report(11.0));
    assert!(same.held && !much.held, "{same:?} {much:?}");
    // 3.5 % above, with an interval that reaches down to the limit; throughput may fall by half
    assert_eq!(outcomes(&little), [GateOutcome::Undecided, GateOutcome::Holds]);
    assert!(little.rows[0].change > 3.0 && !little.held, "{little:?}");
    assert!(little.rows.iter().all(|row| row.decided_by == "interval" && row.samples == [6, 6]));
    assert_eq!(outcomes(&much), [GateOutcome::Violated, GateOutcome::Holds]);
    let overall = [&same, &little, &much].map(|report| report.outcome);
    assert_eq!(overall, [GateOutcome::Holds, GateOutcome::Undecided, GateOutcome::Violated]);
}

fn outcomes(report: &GateReport) -> Vec<GateOutcome> {
    report.rows.iter().map(|row| row.outcome).collect()
}

/// Rounds of three samples each, with a TPOT (ms) a round.
fn rounds(name: &str, tpots: &[f64]) -> Vec<Record> {
    let samples = |tpot: f64| [0.99, 1.0, 1.01].map(|factor| (10.0, tpot * factor));
    let round = |(round, tpot): (usize, &f64)| {
        record(&format!("{name}{round}"), |_| (), round as u32, &samples(*tpot))
    };
    tpots.iter().enumerate().map(round).collect()
}

#[test]
fn an_interval_with_the_limit_inside_and_noisy_runs_are_undecided_in_both_directions() {
    let good = rounds("a", &[10.0, 10.0, 10.0]);
    let judged = |now: &[Record], gates: &[&str]| {
        let gates: Vec<Gate> = gates.iter().map(|text| gate(text)).collect();
        judge(("main", ""), &good, now, &gates)
    };
    // slower by half to many times, or not at all: rounds that differ so are noise
    let wild = judged(&rounds("b", &[9.9, 60.0, 340.0]), &["tpot<+3%", "tok/s>-3%", "memory<+0"]);
    let [tpot, rate, memory] = &wild.rows[..] else { panic!("{wild:?}") };
    let by = |row: &GateRow| row.gate.measure.name;
    assert_eq!([tpot, rate, memory].map(by), ["tpot_p50_ms", "tokens_per_s", "memory_bytes_per_rank"]);
    assert!(tpot.change > 100.0, "{tpot:?}");
    assert!(tpot.change_ci95.is_some_and(|[low, high]| low < 3.0 && high > 1000.0), "{tpot:?}");
    assert_eq!([tpot.outcome, rate.outcome], [GateOutcome::Undecided; 2]);
    assert_eq!(memory.outcome, GateOutcome::Holds, "bytes are exact on a busy machine");
    let why = tpot.undecided.as_deref().unwrap_or_default();
    assert!(why.contains("the new run is noisy") && why.contains("9.90 to 340.00 ms"), "{why}");
    // all of it beyond the limit, and yet noise; the same of a noisy baseline
    let slow = judged(&rounds("b", &[20.0, 24.0, 40.0]), &["tpot<+3%"]);
    assert!(slow.rows[0].change_ci95.is_some_and(|[low, _]| low > 3.0), "{slow:?}");
    assert_eq!(outcomes(&slow), [GateOutcome::Undecided]);
    let noisy = judge(("main", ""), &rounds("c", &[5.0, 10.0, 20.0]), &good, &[gate("tpot<+300%")]);
    let why = noisy.rows[0].undecided.as_deref().unwrap_or_default();
    assert!(why.contains("the baseline is noisy"), "{why}");
    // a busy machine spoils quiet rounds, too; predictions have no neighbours
    let mut loaded = rounds("d", &[10.0, 10.0, 10.0]);
    for run in &mut loaded {
        run.environment.insert("load_average".into(), serde_json::json!([64.0, 1.0, 1.0]));
        run.environment.insert("cpu".into(), serde_json::json!({"threads": 2}));
    }
    let busy = judged(&loaded, &["tpot<+30%"]);
    assert!(busy.rows[0].undecided.as_ref().is_some_and(|why| why.contains("load was 64")), "{busy:?}");
}

/// What does no communication cannot be slower than what does, but for noise: both are undecided, other cells not.
#[test]
fn an_upper_bound_slower_than_standard_makes_both_undecided() {
    let run = |name: &str, architecture: &str, tpot: f64| {
        let samples: Vec<(f64, f64)> =
            (0..8).map(|n| (1.0, tpot * (1.0 + 0.001 * f64::from(n)))).collect();
        record(name, |spec| spec.architecture = architecture.parse().unwrap(), 0, &samples)
    };
    let baseline = [run("a", "standard", 10.0), run("b", "ladder", 8.0), run("c", "upper-bound", 7.0)];
    let now = [run("d", "standard", 10.0), run("e", "ladder", 8.0), run("f", "upper-bound", 12.0)];
    let judged = judge(("main", ""), &baseline, &now, &[gate("tpot<+3%")]);
    let of = |architecture: &str| {
        let row = judged.rows.iter().find(|row| row.cell.starts_with(architecture));
        row.map(|row| row.outcome)
    };
    assert_eq!(of("standard"), Some(GateOutcome::Undecided), "{judged:?}");
    assert_eq!(of("upper-bound"), Some(GateOutcome::Undecided));
    assert_eq!(of("ladder"), Some(GateOutcome::Holds));
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
        std::sync::Arc::make_mut(&mut run.samples)
            .iter_mut()
            .zip(all)
            .for_each(|(sample, steps)| sample.steps_ms = steps);
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
    assert!(judged.rows.is_empty() && judged.without_partner[0].contains("no new run"), "{judged:?}");
    assert_eq!(judged.not_in_baseline, 1);
    // a measure that was not recorded cannot be held
    let judged = judge(("main", ""), &baseline, &runs("b", 10.0), &[gate("overlap>-1")]);
    assert!(judged.without_partner[0].contains("overlap"), "{judged:?}");
}

#[test]
fn a_share_of_communication_is_not_asked_of_cells_that_have_none() {
    let with = |name: &str, comm_ms: f64| {
        let mut runs = runs(name, 10.0);
        let overlap = table::Overlap {
            comm_ms,
            exposed_comm_ms: 0.0,
            overlap_pct: table::overlap_pct(0.0, comm_ms),
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
    assert!(!other.held && other.warnings[0].contains("different machines (a, b)"));
}

proptest! {
    /// A gate that holds at some limit holds at every wider one, and a faster run never violates one.
    #[test]
    fn wider_gates_hold_whatever_narrower_ones_do(tpot in 5.0..20.0f64, limit in 0.0..40.0f64, more in 0.0..40.0f64) {
        let outcome = |limit: f64| {
            judge(("main", ""), &runs("a", 10.0), &runs("b", tpot), &[gate(&format!("tpot<+{limit}%"))]).outcome
        };
        prop_assert!(outcome(limit + more) <= outcome(limit));
        prop_assert!(tpot > 10.0 || outcome(limit) != GateOutcome::Violated);
    }
}
