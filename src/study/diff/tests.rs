//! Traces whose difference is known.

use super::*;
use crate::analysis::{Gate, GateOutcome};
use plan::Lane;
use table::Provenance;
use trace::testing::{span, trace};
use trace::{ImportReport, LaunchSite, Span, Trace};

/// Steps of two ranks: compute of `compute` ns, then an all-reduce of `reduce` ns, then 100 ns of idle time.
fn of_steps(numbers: std::ops::Range<u32>, times: impl Fn(u32) -> (i64, i64)) -> Trace {
    let (mut spans, mut at) = (Vec::new(), 0);
    for step in numbers {
        let (compute, reduce) = times(step);
        for rank in 0..2 {
            let [first, second] = [Lane::Compute, Lane::Comm];
            spans.push(Span { step, ..span(rank, first, at, at + compute) });
            spans.push(Span { step, ..span(rank, second, at + compute, at + compute + reduce) });
            // the next layer's work ends the step after a gap
            let after = at + compute + reduce + 100;
            spans.push(Span { step, operation: 2, ..span(rank, first, after, after + 50) });
        }
        at += compute + reduce + 1_000;
    }
    spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
    let mut trace = trace(spans);
    trace.meta.provenance = Provenance::Measured;
    trace
}

fn diff(a: &Trace, b: &Trace) -> TraceDiff {
    trace_diff([(a, "before"), (b, "after")]).unwrap()
}

fn gates(diff: &TraceDiff, texts: &[&str]) -> Vec<GateOutcome> {
    let gates: Vec<Gate> = texts.iter().map(|text| text.parse().unwrap()).collect();
    judge_diff(diff, &gates).unwrap().rows.iter().map(|row| row.outcome).collect()
}

#[test]
fn the_parts_add_up_and_the_all_reduce_that_grew_explains_the_change() {
    let (a, b) = (of_steps(0..10, |_| (1_000, 400)), of_steps(0..10, |_| (1_000, 900)));
    let diff = diff(&a, &b);
    // the last step has no next one
    assert_eq!((diff.pairs, diff.paired_by, diff.leaves_out_last), (9, StepPairing::Number, true));
    assert!((diff.a.step_us - 2.4).abs() < 1e-9 && (diff.b.step_us - 2.9).abs() < 1e-9);
    let sum: f64 = diff.parts.iter().map(|part| part.delta_us).sum();
    assert!((sum - 0.5).abs() < 1e-9, "{:?}", diff.parts);
    assert_eq!(diff.parts[0].part, "exposed communication");
    assert!((diff.parts[0].explains_pct.unwrap() - 100.0).abs() < 1e-6);
    let first = &diff.operations[0];
    assert_eq!((first.name.as_str(), first.lane), ("decode/L*/mlp/reduce", "comm"));
    assert!((first.delaying_us - 0.5).abs() < 1e-9 && first.a.unwrap().count == 1.0);
    assert!((diff.layers[0].delta_us - 0.5).abs() < 1e-9);
    assert!(diff.headline.contains("20.8 % [20.8, 20.8] slower"), "{}", diff.headline);
    assert!(diff.headline.contains("exposed communication explains 100 % of it"), "{}", diff.headline);
    let back = super::trace_diff([(&b, "before"), (&a, "after")]).unwrap();
    assert!(back.headline.contains("faster"), "{}", back.headline);
}

/// The second trace goes on with steps that are ten times as long.
#[test]
fn layers_are_compared_over_the_paired_steps() {
    let a = of_steps(0..10, |_| (1_000, 400));
    let b = of_steps(0..30, |step| if step < 10 { (1_200, 400) } else { (10_000, 4_000) });
    let diff = diff(&a, &b);
    assert_eq!(diff.pairs, 9);
    let layer = &diff.layers[0];
    assert!((layer.a_compute_us - 1.05).abs() < 1e-9, "{layer:?}");
    assert!((layer.b_compute_us - 1.25).abs() < 1e-9, "{layer:?}");
    assert!((layer.delta_us - 0.2).abs() < 1e-9, "{layer:?}");
}

#[test]
fn operations_outside_of_layers_have_a_row() {
    let of = |compute| {
        let mut trace = of_steps(0..10, |_| (compute, 400));
        trace.operations[0].layer = None;
        trace
    };
    let diff = diff(&of(1_000), &of(1_500));
    assert_eq!(diff.layers.iter().map(|row| row.layer).collect::<Vec<_>>(), [Some(0), None]);
    assert!(diff.layers[0].delta_us.abs() < 1e-9, "{:?}", diff.layers);
    assert!((diff.layers[1].delta_us - 0.5).abs() < 1e-9, "{:?}", diff.layers);
}

/// The first operation of a simulated step starts after the host's time for the step.
#[test]
fn a_slower_simulated_host_is_idle_time_of_the_step() {
    let with_host = |host: i64| {
        let spans = (0..6).map(|step| {
            let at = i64::from(step) * (1_000 + host) + host;
            Span { step, ..span(0, Lane::Compute, at, at + 1_000) }
        });
        trace(spans.collect())
    };
    let diff = diff(&with_host(500), &with_host(3_000));
    assert!(
        diff.headline.contains("slower") && !diff.headline.contains("No clear"),
        "{}",
        diff.headline
    );
    let idle = &diff.parts[0];
    // the first step has none before it, so its host's time is unknown
    assert_eq!((idle.part, idle.a_us, idle.b_us), ("idle", 0.4, 2.4));
    assert_eq!(gates(&diff, &["tpot<+5%", "idle<+5%"]), [GateOutcome::Violated; 2]);
}

#[test]
fn steps_with_other_numbers_are_paired_in_order_and_equal_traces_do_not_differ() {
    let (a, b) = (of_steps(0..8, |_| (1_000, 400)), of_steps(20..28, |_| (1_000, 400)));
    let diff = diff(&a, &b);
    assert_eq!((diff.pairs, diff.paired_by, diff.is_changed()), (7, StepPairing::Order, false));
    assert!(diff.headline.starts_with("No clear change"), "{}", diff.headline);
    assert!(diff.operations.iter().all(|one| one.delta_us == 0.0));
}

#[test]
fn a_gate_holds_is_violated_or_is_undecided() {
    let noisy =
        |extra: i64| of_steps(0..12, move |step| (1_000 + extra + 300 * i64::from(step % 3), 400));
    let apart = diff(&noisy(0), &noisy(100));
    let [low, high] = apart.change_pct_ci95.unwrap();
    assert!(low < high);
    let limit = |pct: f64| format!("tpot<{pct:+.2}%");
    let texts = [limit(high + 1.0), limit(low - 1.0)];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(gates(&apart, &texts), [GateOutcome::Holds, GateOutcome::Violated]);
    // the steps do not pair, so the change of their mean is uncertain
    let shuffled =
        diff(&noisy(0), &of_steps(0..12, |step| (1_050 + 300 * i64::from(step * 7 % 4), 400)));
    let [low, high] = shuffled.change_pct_ci95.unwrap();
    assert_eq!(gates(&shuffled, &[&limit((low + high) / 2.0)]), [GateOutcome::Undecided]);
    let report = judge_diff(&apart, &["exposed_comm_ms<+0.001".parse().unwrap()]).unwrap();
    assert!(report.held && report.rows[0].change.abs() < 1e-9);
    let wrong = judge_diff(&apart, &["memory<+3%".parse().unwrap()]).unwrap_err();
    assert_eq!(wrong.exit_code(), 2);
}

/// Steps of a trace whose first kernel has another name and takes 320 us instead of 240 us.
fn renamed() -> Trace {
    let mut trace = of_steps(0..10, |_| (320_000, 4_000));
    trace.operations[0].name = "decode/L0/mlp/other".into();
    trace
}

#[test]
fn a_kernel_in_the_place_of_another_is_named_with_it() {
    let diff = diff(&of_steps(0..10, |_| (240_000, 4_000)), &renamed());
    assert_eq!(diff.parts[0].part, "compute");
    assert!((diff.parts[0].delta_us - 80.0).abs() < 1e-9, "{:?}", diff.parts);
    assert!(
        diff.headline.ends_with(
            "compute explains 100 % of it, most in decode/L*/mlp/other instead of decode/L*/mlp/down (+80.0 us)"
        ),
        "{}",
        diff.headline
    );
}

/// Another kernel is new beside the renamed one, so its place does not tell which one it replaces.
#[test]
fn a_kernel_that_changed_by_more_than_the_step_is_named_with_one_that_offsets_it() {
    let mut after = renamed();
    let attends: Vec<Span> = after.spans.iter().filter(|span| span.operation == 2).copied().collect();
    after.spans.extend(attends.into_iter().map(|attend| Span {
        operation: 3,
        start_ns: attend.start_ns - 80,
        end_ns: attend.start_ns - 40,
        ..attend
    }));
    after.spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
    let diff = diff(&of_steps(0..10, |_| (240_000, 4_000)), &after);
    assert!(
        diff.headline.ends_with(
            "most in decode/L*/mlp/other (+320 us, -240 us of decode/L*/mlp/down, which is gone)"
        ),
        "{}",
        diff.headline
    );
}

/// Steps in which one kernel runs under two operators, the second time for so much longer (ns).
fn of_two_places(long: i64) -> Trace {
    let mut trace = of_steps(0..6, move |_| (1_000, 400));
    trace.meta.spec = None;
    trace.meta.import = Some(ImportReport::default());
    trace.meta.range_names = vec!["aten::mm".into(), "aten::add".into(), "c10d::allreduce_".into()];
    let ops = trace.operations.clone();
    trace.operations = ops.into_iter().map(|o| trace::OperationInfo { layer: None, ..o }).collect();
    for span in &mut trace.spans {
        let operator = match (span.lane, span.operation) {
            (Lane::Comm, _) => 2,
            (_, 2) => 1,
            _ => 0,
        };
        span.launched = LaunchSite { operator, ..LaunchSite::UNKNOWN };
        if operator == 1 {
            // the same kernel as before, elsewhere
            (span.operation, span.end_ns) = (0, span.end_ns + long);
        }
    }
    trace
}

#[test]
fn a_kernel_whose_operator_is_rarely_missing_is_still_two_operations() {
    let without = |count: usize| {
        let mut trace = of_two_places(30);
        let (kernels, reduces): (Vec<_>, Vec<_>) =
            trace.spans.iter_mut().partition(|span| span.lane == Lane::Compute);
        let without = kernels.into_iter().take(count).chain(reduces);
        without.for_each(|span| span.launched = LaunchSite::UNKNOWN);
        diff(&of_two_places(0), &trace)
    };
    let has_places =
        |diff: &TraceDiff| diff.operations.iter().any(|one| one.name.contains(" in aten::"));
    // of 24 kernels
    let rare = without(2);
    assert!(rare.by_operator && has_places(&rare), "{:?}", rare.operations);
    let often = without(3);
    assert!(!often.by_operator && !has_places(&often), "{:?}", often.operations);
}

#[test]
fn a_kernel_in_two_places_is_two_operations_where_both_traces_tell_them_apart() {
    let diff = diff(&of_two_places(0), &of_two_places(30));
    assert!(diff.by_operator);
    let named = |name: &str| diff.operations.iter().find(|one| one.name.contains(name)).unwrap();
    assert!((named("in aten::add").delta_us - 0.03).abs() < 1e-9, "{:?}", diff.operations);
    assert_eq!(named("in aten::mm").delta_us, 0.0);
}

/// One engine with CUDA graphs, and without: there, a kernel of each step is launched outside of the step's range.
#[test]
fn gaps_and_kernels_outside_of_steps_count_and_kernels_match_across_launch_calls() {
    let launched = |call: &str, is_outside: bool| {
        let mut trace = of_steps(0..8, |_| (1_000, 400));
        trace.meta.spec = None;
        trace.meta.import = Some(ImportReport::default());
        trace.meta.range_names = vec![call.into()];
        let lasts: Vec<Span> = trace.spans.iter().filter(|span| span.operation == 2).copied().collect();
        trace.spans.extend(lasts.into_iter().map(|last| Span {
            step: if is_outside { trace::NO_STEP } else { last.step },
            operation: 3,
            start_ns: last.end_ns + 200,
            end_ns: last.end_ns + 230,
            ..last
        }));
        let launched = LaunchSite { operator: 0, ..LaunchSite::UNKNOWN };
        trace.spans.iter_mut().for_each(|span| span.launched = launched);
        trace.spans.sort_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
        trace
    };
    let diff = diff(&launched("cudaGraphLaunch", false), &launched("cudaLaunchKernel", true));
    assert_eq!((diff.pairs, diff.is_changed(), diff.by_operator), (7, false, false));
    let part = |name: &str| {
        let part = diff.parts.iter().find(|part| part.part == name).unwrap();
        [part.a_us, part.b_us].map(|us| (1e3 * us).round())
    };
    // the step of 2,400 ns, wherever its last kernel was launched
    assert_eq!(part("compute"), [1_080.0; 2]);
    assert_eq!(part("exposed communication"), [400.0; 2]);
    assert_eq!(part("idle"), [300.0; 2]);
    assert_eq!(part("gap to the next step"), [620.0; 2]);
    assert_eq!([diff.a.outside_us, diff.b.outside_us].map(|us| (1e3 * us).round()), [0.0, 30.0]);
    assert!(diff.warnings[0].starts_with("after: kernels of "), "{:?}", diff.warnings);
    let sum: f64 = diff.parts.iter().map(|part| part.b_us).sum();
    assert!((sum - diff.b.step_us).abs() < 1e-9 && (diff.b.step_us - 2.4).abs() < 1e-9);
    for operation in &diff.operations {
        assert!(operation.delta_us.abs() < 1e-9 && !operation.name.contains("cuda"), "{operation:?}");
    }
}

#[test]
fn traces_without_a_step_in_common_say_what_they_have() {
    let mut other = of_steps(0..3, |_| (1_000, 400));
    other.spans.iter_mut().for_each(|span| span.phase = plan::Phase::Prefill);
    let a = of_steps(0..3, |_| (1_000, 400));
    let error = trace_diff([(&a, "before"), (&other, "after")]).unwrap_err();
    assert!(error.to_string().contains("3 steps (decode) against 3 steps (prefill)"), "{error}");
}

#[test]
fn steps_of_unknown_work_are_compared_with_decode_steps() {
    let diff = diff(&of_steps(0..6, |_| (300_000, 100_000)), &without_markers(6));
    assert_eq!(diff.pairs, 5);
    let warned = |text: &str| diff.warnings.iter().any(|warning| warning.contains(text));
    assert!(warned("after: step names do not say what the steps do"), "{:?}", diff.warnings);
}

#[test]
fn a_step_that_alone_explains_the_change_is_named() {
    let a = of_steps(0..7, |_| (1_000, 400));
    let b = of_steps(0..7, |step| (if step == 2 { 10_000 } else { 1_000 }, 400));
    let of_step = "step 2 (+375.0 %) alone explains most of the change; the other 5 pairs: +0.0 %";
    assert!(
        diff(&a, &b).warnings.iter().any(|warning| warning == of_step),
        "{:?}",
        diff(&a, &b).warnings
    );
    let all = of_steps(0..7, |step| (2_000 + 100 * i64::from(step), 400));
    assert!(!diff(&a, &all).warnings.iter().any(|warning| warning.contains("alone")));
    // changes that cancel out are no less than the one that remains
    let mixed = of_steps(0..4, |step| (1_000 + [300, -200, 150, 0][step as usize], 400));
    let before = of_steps(0..4, |_| (1_000, 400));
    assert!(!diff(&before, &mixed).warnings.iter().any(|warning| warning.contains("alone")));
}

/// Steps of six layers on two ranks, of another program: 400 us each, in step 0 as importers put work without markers.
fn without_markers(steps: i64) -> Trace {
    let names = ["attention", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "mlp", "head", "embedding"];
    let step = [(4, 10)].into_iter().chain([(0, 20), (1, 5), (2, 30), (1, 5)].repeat(6));
    let step: Vec<(u32, i64)> = step.chain([(3, 10), (3, 5)]).collect();
    let mut spans = Vec::new();
    for rank in 0..2 {
        for at in 0..steps {
            let mut start = 400_000 * at;
            for (operation, us) in &step {
                let lane = if *operation == 1 { Lane::Comm } else { Lane::Compute };
                let end = start + 1_000 * us;
                spans.push(Span { operation: *operation, step: 0, ..span(rank, lane, start, end) });
                start = end;
            }
        }
    }
    let mut trace = trace(spans);
    trace.meta.provenance = Provenance::Measured;
    (trace.meta.spec, trace.meta.import) = (None, Some(ImportReport::default()));
    trace.operations =
        names.map(|name| trace::OperationInfo::imported(name.to_owned(), "kernel")).to_vec();
    trace::rules::Rules::default().classify(&mut trace);
    trace
}

#[test]
fn steps_without_markers_are_found_before_they_are_compared() {
    let diff = diff(&without_markers(6), &without_markers(7));
    assert_eq!((diff.pairs, diff.paired_by), (5, StepPairing::Number));
    assert!((diff.a.step_us - 400.0).abs() < 1e-9, "{}", diff.headline);
    assert!(diff.change_pct.abs() < 1e-9, "{}", diff.headline);
}

#[test]
fn a_prediction_is_checked_against_the_measured_change() {
    let diff = diff(&of_steps(0..10, |_| (1_000, 400)), &of_steps(0..10, |_| (1_000, 200)));
    let row = |architecture: &str, speedup: f64| PredictedRow {
        label: architecture.into(),
        architecture: architecture.into(),
        step_us: 2.4 / speedup,
        speedup,
    };
    let rows = vec![row("ladder", 2.4 / 2.2), row("parallel", 1.0)];
    let prediction = StoredPrediction::new("p", "rewire", "before".into(), "h100".into(), rows);
    let of_ladder = checked(&prediction, &diff, Some("ladder"), "now").unwrap();
    assert_eq!(of_ladder.len(), 1);
    assert!(of_ladder[0].error_pct.abs() < 1e-9, "{of_ladder:?}");
    let all = checked(&prediction, &diff, None, "now").unwrap();
    // it predicted 2.4 us, and 2.2 us were measured
    assert!((all[1].error_pct - 100.0 * (2.4 / 2.2 - 1.0)).abs() < 1e-6, "{all:?}");
    let missing = checked(&prediction, &diff, Some("desync:2"), "now").unwrap_err();
    assert!(missing.to_string().contains("no row of desync:2"), "{missing}");
}
