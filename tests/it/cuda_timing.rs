//! The instrumented arm on the software device: what is in the trace, and what the record says of it.

use serde_json::Value;

use ladderscope::plan::{Lane, Phase};
use ladderscope::trace::{self, Trace};

use crate::cuda_device::{Device, device};
use crate::support::{Done, Place};

/// Runs a cell on the device; its trace is `trace.parquet` where it has one.
fn run(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    let path = place.path().join("trace.parquet");
    let cell =
        "run --backend cuda --model tiny --dtype f32 --prompt-tokens 4 --output-tokens 20 --samples 2";
    let mut arguments: Vec<&str> =
        cell.split(' ').chain(["--warmup", "0", "--format", "json"]).collect();
    let path = path.to_str().expect("a path");
    if !more.contains(&"off") {
        arguments.extend(["--trace", path]);
    }
    arguments.extend(more);
    device.run(place, &arguments, variables)
}

fn traced(device: &Device, more: &[&str]) -> (Value, Trace) {
    let place = Place::new();
    let record = run(device, &place, more, &[("FAKE_CUDA_DEVICES", "2")]).exits(0).json();
    let trace = trace::read(&place.path().join("trace.parquet")).expect("a trace");
    (record, trace)
}

/// Every rank's step has every operation of its plan, once, in order, each lane one at a time.
#[track_caller]
fn is_whole(trace: &Trace, ranks: u32, decode_steps: &[u32]) {
    let operations: Vec<u32> = (0..trace.operations.len() as u32).collect();
    let of = |phase: Phase, step: u32, rank: u32| {
        trace.spans.iter().filter(move |s| (s.phase, s.step, s.rank) == (phase, step, rank))
    };
    let mut steps: Vec<(Phase, u32)> = vec![(Phase::Prefill, 0)];
    steps.extend(decode_steps.iter().map(|step| (Phase::Decode, *step)));
    let spans =
        steps.iter().flat_map(|(phase, step)| (0..ranks).flat_map(move |r| of(*phase, *step, r)));
    assert_eq!(spans.count(), trace.spans.len(), "no other steps or ranks");
    for (phase, step) in steps {
        for rank in 0..ranks {
            let mut seen: Vec<u32> = of(phase, step, rank).map(|s| s.operation).collect();
            seen.sort_unstable();
            let wanted: Vec<u32> = operations
                .iter()
                .copied()
                .filter(|o| trace.operations[*o as usize].phase == phase)
                .collect();
            assert_eq!(seen, wanted, "{phase:?} {step} of rank {rank}");
            for lane in [Lane::Compute, Lane::Comm] {
                let mut end = i64::MIN;
                for span in of(phase, step, rank).filter(|s| s.lane == lane) {
                    assert!(span.start_ns >= end && span.end_ns >= span.start_ns, "{span:?}");
                    assert!(span.ready_ns <= span.start_ns, "{span:?}");
                    end = span.end_ns;
                }
            }
            // nothing starts before what it reads has ended
            for span in of(phase, step, rank) {
                for before in &trace.operations[span.operation as usize].waits_for {
                    let before = of(phase, step, rank).find(|s| s.operation == *before).expect("a span");
                    assert!(before.end_ns <= span.start_ns, "{before:?} {span:?}");
                }
            }
        }
    }
}

#[test]
fn a_rotation_of_windows_becomes_whole_steps_and_its_cost_is_in_the_record() {
    let device = device!();
    let (record, trace) = traced(device, &["--tp", "1", "--recorder", "events"]);
    // 19 decode steps, eight replays each
    is_whole(&trace, 1, &[0, 8]);
    assert_eq!(trace.meta.recorder, "cuda events, rotating K=8");
    assert_eq!(record["environment"]["recorder"], "cuda events, rotating K=8");
    assert!(trace.meta.clock.contains("composed of 8 consecutive replays"), "{}", trace.meta.clock);
    let timed = &record["instrumented"];
    assert_eq!(timed["windows"], 8);
    let overhead = timed["overhead"].as_f64().expect("an overhead");
    assert!((0.2..20.0).contains(&overhead), "{timed}");
    assert!(
        timed["tpot_ms"].as_f64().is_some_and(|ms| ms > 0.0) && timed.get("steps_ms").is_none(),
        "{timed}"
    );
    assert_eq!(record["provenance"], "measured");
    assert_eq!(record["overlap"]["comm_ms"], 0.0);
    assert!(record["overlap"]["compute_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{record}");
    let timing = &record["environment"]["timing"];
    assert_eq!((&timing["replays_a_step"], &timing["steps"]), (&Value::from(8), &Value::from(2)));
}

#[test]
fn full_coverage_times_every_step_with_or_without_a_graph() {
    let device = device!();
    let full = ["--recorder", "events", "--coverage", "full"];
    for more in [&full[..], &[&full[..], &["--no-graph"]].concat()] {
        let (record, trace) = traced(device, more);
        is_whole(&trace, 1, &(0..19).collect::<Vec<_>>());
        assert_eq!(trace.meta.recorder, "cuda events, full");
        let decode = if more.contains(&"--no-graph") { "eager" } else { "graph" };
        assert_eq!(record["environment"]["decode"], decode);
        assert_eq!(record["instrumented"]["windows"], 1);
    }
}

#[test]
fn a_composed_step_has_the_overlap_of_one_that_was_timed_whole() {
    let device = device!();
    let link = ["--tp", "4", "--link", "emulated:alpha_us=12,gb_s=50", "--architecture", "ladder"];
    // on the device's clock every step is alike, and events between kernels take no time
    let overlap = |coverage: &str| {
        let events = ["--recorder", "events", "--coverage", coverage];
        let more: Vec<&str> = link.into_iter().chain(events).collect();
        let record = traced(device, &more).0;
        ["comm_ms", "exposed_comm_ms", "compute_ms"]
            .map(|key| record["overlap"][key].as_f64().expect("a time"))
    };
    let (rotating, full) = (overlap("rotating"), overlap("full"));
    assert!(full[1] > 0.0 && full[1] < full[0], "some of it is hidden, some not: {full:?}");
    for (composed, whole) in rotating.iter().zip(&full) {
        assert!((composed / whole - 1.0).abs() < 0.02, "{rotating:?} {full:?}");
    }
}

#[test]
fn ranks_over_nccl_and_over_an_emulated_link_are_timed_on_both_lanes() {
    let device = device!();
    let (record, trace) =
        traced(device, &["--tp", "2", "--architecture", "ladder", "--recorder", "events"]);
    is_whole(&trace, 2, &[0, 8]);
    let comm = |trace: &Trace| -> Vec<i64> {
        trace.spans.iter().filter(|s| s.lane == Lane::Comm).map(|s| s.last_arrival_ns).collect()
    };
    assert!(!comm(&trace).is_empty() && comm(&trace).iter().all(|arrival| *arrival == -1));
    assert!(record["overlap"]["comm_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{record}");
    assert_eq!(record["provenance"], "measured");

    let (record, trace) = traced(
        device,
        &[
            "--tp",
            "4",
            "--link",
            "emulated:alpha_us=40,gb_s=50",
            "--architecture",
            "standard",
            "--recorder",
            "events",
        ],
    );
    is_whole(&trace, 1, &[0, 8]);
    assert_eq!(record["provenance"], "emulated-link");
    // every all-reduce takes what the link says, less what timing is taken to have stretched
    let comm: Vec<_> = trace.spans.iter().filter(|s| s.lane == Lane::Comm).collect();
    assert!(comm.iter().all(|s| s.last_arrival_ns == s.start_ns));
    let lengths: Vec<i64> = comm.iter().map(|s| s.end_ns - s.start_ns).collect();
    assert!(!lengths.is_empty() && lengths.iter().all(|ns| *ns >= 36_000), "{lengths:?}");
}

/// Kernels say themselves when they ran: every step is a replay, whole, with the early starts that any step has.
#[test]
fn kernels_say_when_they_ran_in_every_step_of_every_rank() {
    let device = device!();
    let all: Vec<u32> = (0..19).collect();
    for more in
        [&["--tp", "1"][..], &["--tp", "1", "--no-graph"], &["--tp", "2", "--architecture", "ladder"]]
    {
        let (record, trace) = traced(device, more);
        is_whole(&trace, if more.contains(&"2") { 2 } else { 1 }, &all);
        assert_eq!(trace.meta.recorder, "stamps");
        assert!(trace.meta.clock.contains("%globaltimer"), "{}", trace.meta.clock);
        let timing = &record["environment"]["timing"];
        assert!(timing["tick_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{timing}");
        assert!(timing["stamp_us"].as_f64().is_some_and(|us| us > 0.0), "{timing}");
        assert!(record["instrumented"]["overhead"].as_f64().is_some(), "{record}");
    }
}

/// Events between kernels take no time on the device, so both see the same; but events cost kernels their early starts.
#[test]
fn stamps_and_events_agree_where_events_cost_nothing() {
    let device = device!();
    let link = ["--tp", "4", "--link", "emulated:alpha_us=12,gb_s=50", "--architecture", "ladder"];
    let overlap = |recorder: &[&str]| {
        let more: Vec<&str> = link.iter().chain(recorder).copied().collect();
        let record = traced(device, &more).0;
        ["comm_ms", "exposed_comm_ms", "compute_ms"]
            .map(|key| record["overlap"][key].as_f64().expect("a time"))
    };
    let (stamps, events) = (overlap(&[]), overlap(&["--recorder", "events", "--coverage", "full"]));
    assert!(stamps[1] > 0.0 && stamps[1] < stamps[0], "some of it is hidden, some not: {stamps:?}");
    for (stamped, timed) in stamps.iter().zip(&events) {
        // a stamp beside a product takes a little of what is exposed
        assert!((stamped - timed).abs() < 0.02 * timed.max(events[0]), "{stamps:?} {events:?}");
    }
}

#[test]
fn without_a_recorder_there_is_no_trace_and_without_cupti_an_error_that_says_what_to_do() {
    let device = device!();
    let place = Place::new();
    let record = run(device, &place, &["--recorder", "off"], &[]).exits(0).json();
    assert!(record["trace"].is_null() && record["overlap"].is_null(), "{record}");
    assert!(record.get("instrumented").is_none(), "{record}");
    assert_eq!(record["spec"]["recorder"], "off");

    let nowhere = [("LADDERSCOPE_CUPTI", "/nowhere/libcupti.so")];
    let done = run(device, &place, &["--recorder", "cupti"], &nowhere).exits(1);
    let record = done.json();
    let reason = record["reason"].as_str().expect("a reason");
    assert!(reason.contains("CUPTI") && reason.contains("LADDERSCOPE_CUPTI"), "{reason}");
}
