//! The instrumented arm on the software device: what is in the trace, and what the record says of it.

use serde_json::Value;

use plan::{Lane, Phase};
use trace::Trace;

use crate::device::{Device, device};
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

const LINK: [&str; 4] = ["--tp", "4", "--link", "emulated:alpha_us=12,gb_s=50"];

/// Modules of the compute stream and every collective, in each step, of a graph or not; and what that took.
#[test]
fn events_time_modules_and_collectives_of_every_step_and_their_cost_is_in_the_record() {
    let device = device!();
    let all: Vec<u32> = (0..19).collect();
    for more in [&[][..], &["--no-graph"]] {
        let place = Place::new();
        let more = [&["--tp", "1", "--recorder", "events"], more].concat();
        let record = run(device, &place, &more, &[("FAKE_CUDA_EVENT_NS", "2000")]).exits(0).json();
        let trace = trace::read(&place.path().join("trace.parquet")).expect("a trace");
        is_whole(&trace, 1, &all);
        assert_eq!(trace.meta.recorder, "cuda events around modules");
        assert_eq!(record["environment"]["recorder"], "cuda events around modules");
        let names: Vec<&str> =
            trace.operations.iter().map(|operation| operation.name.as_str()).collect();
        assert!(names.contains(&"decode/L2/mlp") && names.contains(&"prefill/L0/attn"), "{names:?}");
        assert_eq!(
            record["environment"]["decode"],
            if more.contains(&"--no-graph") { "eager" } else { "graph" }
        );
        let timed = &record["instrumented"];
        let overhead = timed["overhead"].as_f64().expect("an overhead");
        assert!((1.005..20.0).contains(&overhead), "{timed}");
        assert!(
            timed["tpot_ms"].as_f64().is_some_and(|ms| ms > 0.0) && timed.get("steps_ms").is_none(),
            "{timed}"
        );
        assert_eq!(
            (&record["provenance"], &record["overlap"]["comm_ms"]),
            (&"measured".into(), &0.0.into())
        );
        let run = record["run"].as_str().expect("an id");
        let shown = device.run(&place, &["show", run], &[]).exits(0).stdout;
        assert!(shown.contains("cuda events around modules, 1."), "{shown}");
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The comm stream's own times, in the steps that are timed; where collectives have no stream of their own, why not.
#[test]
fn events_stand_around_collectives_that_have_a_stream_of_their_own() {
    let device = device!();
    let of = |architecture: &str, more: &[&str], variables: &[(&str, &str)]| {
        let more = [&LINK, &["--architecture", architecture][..], more].concat();
        run(device, &Place::new(), &more, variables).exits(0).json()["environment"].clone()
    };
    let ladder = of("ladder", &[], &[]);
    let events = &ladder["collective_events"];
    assert_eq!(events["in_samples"], true, "{events}");
    let [collective] = &events["last_steps"].as_array().expect("kinds")[..] else { panic!("{events}") };
    assert_eq!(
        (&collective["kind"], &collective["bytes"], &collective["a_step"]),
        (&"all_reduce".into(), &256.into(), &8.into())
    );
    // what the link takes for the message, with its launch or without
    let link = &ladder["emulated_link"]["on_this_gpu"];
    let (target, launch) = (number(&link["checked"][0]["target_us"]), number(&link["launch_us"]));
    let us = number(&collective["us"]);
    assert!((target - launch - 0.1..target + 0.5).contains(&us), "{events} {link}");
    // what kernels say of the very same step
    let [both] = &ladder["timing"]["collectives"].as_array().expect("kinds")[..] else {
        panic!("{ladder}")
    };
    let (by_events, by_stamps) = (number(&both["events_us"]), number(&both["recorder_us"]));
    assert!((by_events - by_stamps - number(&both["difference_us"])).abs() < 0.5, "{both}");
    assert!((0.0..1.0).contains(&number(&both["difference_us"])), "{both}");
    // no kernel begins later for them
    let off = of("ladder", &["--recorder", "off"], &[]);
    assert!(off["collective_events"].is_null());
    assert_eq!(ladder["programmatic_edges"], off["programmatic_edges"]);
    let graph = |environment: &Value| number(&environment["graph_nodes"]);
    assert_eq!(graph(&ladder), graph(&off) + 16.0, "two events for each of eight");

    let standard = of("standard", &[], &[]);
    let why = standard["collective_events"]["why"].as_str().expect("why not");
    assert!(why.contains("on the compute stream"), "{why}");
    assert_eq!(standard["timing"]["collectives"], Value::Array(Vec::new()));

    // where they are to be seen in a step, samples go without
    let slow = of("ladder", &[], &[("FAKE_CUDA_EVENT_NS", "9000")]);
    let events = &slow["collective_events"];
    assert_eq!(
        (&events["in_samples"], &events["last_steps"]),
        (&false.into(), &Value::Array(Vec::new()))
    );
    assert!(number(&events["step_us_with"]) > 1.005 * number(&events["step_us_without"]), "{events}");
    assert!(events["why"].as_str().is_some_and(|why| why.contains("longer with them")), "{events}");
    assert_eq!(slow["graph_nodes"], off["graph_nodes"]);
    // and the timed generation, which they would make longer, too
    assert_eq!(slow["timing"]["collectives"], Value::Array(Vec::new()));
}

/// Ranks decide together, and each kind of collective is told apart.
#[test]
fn ranks_over_nccl_have_their_streams_own_times() {
    let device = device!();
    let environment =
        traced(device, &["--tp", "2", "--architecture", "ladder"]).0["environment"].clone();
    let events = &environment["collective_events"];
    assert_eq!(events["in_samples"], true, "{events}");
    assert!(number(&events["last_steps"][0]["us"]) > 0.0, "{events}");
    let both = &environment["timing"]["collectives"][0];
    // NCCL stands between two kernels that stamp, and those between the events
    assert!(number(&both["difference_us"]) >= 0.0 && number(&both["a_step"]) == 8.0, "{both}");
}

/// A clock that ticks too rarely for short kernels is told of, with what would time them.
#[test]
fn a_coarse_clock_asks_for_cupti() {
    let device = device!();
    let (coarse, cupti) = (("FAKE_CUDA_TICK_NS", "4096"), device.file("lib/libcupti.so.13"));
    let there =
        [coarse, ("FAKE_CUDA_DEVICES", "2"), ("LADDERSCOPE_CUPTI", cupti.to_str().expect("a path"))];
    for tp in ["1", "2"] {
        let record = run(device, &Place::new(), &["--tp", tp], &there).exits(0).json();
        assert_eq!(record["environment"]["recorder"], "cupti", "{record}");
        assert_eq!(record["environment"]["cupti"], 130_000);
        let warnings = record["warnings"].to_string();
        assert!(
            warnings.contains("ticks every 4.1 us") && warnings.contains("CUPTI timed the operations"),
            "{warnings}"
        );
    }
    let nowhere = [("FAKE_CUDA_TICK_NS", "4096"), ("LADDERSCOPE_CUPTI", "/nowhere/libcupti.so")];
    let record = run(device, &Place::new(), &["--tp", "1"], &nowhere).exits(0).json();
    assert_eq!(record["environment"]["recorder"], "stamps");
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("ticks every 4.1 us") && warnings.contains("CUPTI cannot time them"),
        "{warnings}"
    );
}

#[test]
fn ranks_over_nccl_and_over_an_emulated_link_are_timed_on_both_lanes() {
    let device = device!();
    let (record, trace) =
        traced(device, &["--tp", "2", "--architecture", "ladder", "--recorder", "events"]);
    is_whole(&trace, 2, &(0..19).collect::<Vec<_>>());
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
    is_whole(&trace, 1, &(0..19).collect::<Vec<_>>());
    assert_eq!(record["provenance"], "emulated-link");
    // every all-reduce takes what the link says
    let comm: Vec<_> = trace.spans.iter().filter(|s| s.lane == Lane::Comm).collect();
    assert!(comm.iter().all(|s| s.last_arrival_ns == s.start_ns));
    let lengths: Vec<i64> = comm.iter().map(|s| s.end_ns - s.start_ns).collect();
    assert!(!lengths.is_empty() && lengths.iter().all(|ns| *ns >= 39_000), "{lengths:?}");
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
    let overlap = |recorder: &[&str]| {
        let more = [&LINK, &["--architecture", "ladder"][..], recorder].concat();
        let record = traced(device, &more).0;
        ["comm_ms", "exposed_comm_ms", "compute_ms"]
            .map(|key| record["overlap"][key].as_f64().expect("a time"))
    };
    let (stamps, events) = (overlap(&[]), overlap(&["--recorder", "events"]));
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
