//! Steps of imported traces: prefills beside decodes, numbers that start again or leave some out.

use super::profile_events::{self, annotation, kernel, launch};
use super::trace_report;
use plan::Phase;
use trace::Trace;
use trace::overlap::Selection;

/// Imports steps of one rank, given by name, compute time and gap to the next one (us). Each launches a kernel and an
/// all-reduce after it, which takes 40 % as long.
fn imported(steps: &[(&str, u32, u32)]) -> Trace {
    let mut events: Vec<String> = Vec::new();
    let mut at = 1_000;
    for (name, compute, gap) in steps {
        let (call, comm) = (at - 18, compute * 2 / 5);
        events.extend([
            annotation(name, 1, at - 20, 10),
            launch("cudaGraphLaunch", call, 1),
            kernel("gemm", 7, at, *compute, call),
            kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 9, at + compute, comm, call),
        ]);
        at += compute + comm + gap;
    }
    profile_events::imported(&events)
}

/// Sample, phase, number and latency (us) of each step, in order of time; true if the next one is recorded.
fn steps(trace: &Trace) -> Vec<(u32, &'static str, u32, f64, bool)> {
    let steps = trace_report(trace, &Selection::default()).steps;
    steps
        .iter()
        .map(|step| (step.sample, step.phase, step.step, step.duration_us, step.time.until_next))
        .collect()
}

#[test]
fn prefills_and_decodes_are_told_apart_though_their_numbers_are_equal() {
    let trace = imported(&[
        ("prefill step 0", 500, 30),
        ("decode step 0", 100, 30),
        ("prefill step 1", 500, 30),
        ("decode step 1", 100, 30),
    ]);
    assert_eq!(
        steps(&trace),
        [
            (0, "prefill", 0, 730.0, true),
            (0, "decode", 0, 170.0, true),
            (0, "prefill", 1, 730.0, true),
            (0, "decode", 1, 140.0, false),
        ]
    );
    assert_eq!(Selection::default_of(&trace).phase, Some(Phase::Decode));
    for (phase, exposed_us) in [(Phase::Prefill, 400.0), (Phase::Decode, 80.0)] {
        let selection = Selection { phase: Some(phase), ..Selection::default() };
        let report = trace_report(&trace, &selection);
        assert_eq!(report.overlap.all.exposed_comm_us, exposed_us, "{phase:?}");
        assert_eq!(report.collectives[0].executed.count, 2, "{phase:?}");
    }
}

#[test]
fn two_requests_with_the_same_numbers_are_two_samples() {
    let trace = imported(&[
        ("decode step 0", 100, 30),
        ("decode step 1", 100, 5_000),
        ("decode step 0", 100, 30),
        ("decode step 1", 100, 30),
    ]);
    let expected = [(0, 0, 170.0), (0, 1, 140.0), (1, 0, 170.0), (1, 1, 140.0)];
    let found: Vec<_> = steps(&trace).into_iter().map(|step| (step.0, step.2, step.3)).collect();
    assert_eq!(found, expected);
    assert_eq!(trace_report(&trace, &Selection::default_of(&trace)).overlap.all.exposed_comm_us, 160.0);
}

#[test]
fn a_step_before_a_skipped_number_ends_where_the_next_recorded_one_begins() {
    let name = |number: u32| format!("[Executor] _forward_step {number}: 0 ctx reqs, 8 gen reqs");
    let names = [10, 11, 13].map(name);
    let list: Vec<(&str, u32, u32)> = names.iter().map(|name| (name.as_str(), 100, 30)).collect();
    let found: Vec<_> =
        steps(&imported(&list)).into_iter().map(|step| (step.2, step.3, step.4)).collect();
    assert_eq!(found, [(10, 170.0, true), (11, 170.0, true), (13, 140.0, false)]);
}
