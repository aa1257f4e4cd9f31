//! Named ranges and layers of traces made by hand.

use super::*;
use crate::analysis::trace_report;
use plan::Lane;
use trace::import::kineto;
use trace::overlap::Selection;
use trace::rules::Rules;
use trace::testing::{span, trace};
use trace::{Range, Span, Trace};

fn named(spans: Vec<Span>, ranges: &[(&str, u32, i64, i64)]) -> Trace {
    let mut trace = trace(spans);
    trace.operations.iter_mut().for_each(|operation| operation.layer = None);
    for &(name, rank, start_ns, end_ns) in ranges {
        let names = &mut trace.meta.range_names;
        let at = names.iter().position(|n| n == name).unwrap_or(names.len());
        if at == names.len() {
            names.push(name.into());
        }
        trace.ranges.push(Range {
            rank,
            on_device: false,
            thread: 0,
            depth: 0,
            name: at as u32,
            start_ns,
            end_ns,
        });
    }
    trace
}

#[test]
fn ranges_count_what_the_device_did_in_their_time() {
    let spans = vec![
        span(0, Lane::Compute, 0, 4_000),
        span(0, Lane::Comm, 3_000, 6_000),
        span(1, Lane::Compute, 0, 2_000),
    ];
    // The nested range of the same name counts once, as time; rank 1 has a shorter one.
    let ranges =
        [("forward", 0, 1_000, 8_000), ("forward", 0, 2_000, 3_000), ("forward", 1, 1_000, 2_000)];
    let rows = trace_report(&named(spans, &ranges), &Selection::default()).ranges;
    let row = &rows[0];
    assert_eq!((row.name.as_str(), row.count), ("forward", 3));
    assert_eq!((row.time_us, row.busy_us), (Some(4.0), 3.0), "averaged over two ranks");
    assert_eq!((row.compute_us, row.comm_us, row.exposed_us), (2.0, 1.5, 1.0));
}

#[test]
fn a_window_cuts_ranges_too() {
    let spans = vec![span(0, Lane::Compute, 0, 10_000)];
    let trace = named(spans, &[("a", 0, 1_000, 9_000)]);
    let window = Selection { from_ns: Some(2_000), to_ns: Some(5_000), ..Selection::default() };
    let rows = trace_report(&trace, &window).ranges;
    assert_eq!((rows[0].time_us, rows[0].busy_us), (Some(3.0), 3.0));
}

#[test]
fn a_step_has_the_ranges_of_its_time() {
    let spans =
        vec![span(0, Lane::Compute, 0, 1_000), Span { step: 1, ..span(0, Lane::Compute, 2_000, 3_000) }];
    let mut trace = named(spans, &[("early", 0, 0, 1_500), ("late", 0, 2_500, 4_000)]);
    // a simulated step would begin at the end of the one before
    trace.meta.provenance = table::Provenance::Measured;
    let step = Selection { step: Some(1), ..Selection::default() };
    let rows = trace_report(&trace, &step).ranges;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].name.as_str(), rows[0].time_us, rows[0].busy_us), ("late", Some(0.5), 0.5));
}

#[test]
fn layers_come_from_names_where_operations_do_not_tell() {
    let spans = vec![span(0, Lane::Compute, 0, 3_000), span(0, Lane::Comm, 2_000, 6_000)];
    let ranges =
        [("model.layers.1.mlp", 0, 0, 4_000), ("layers.1.attn", 0, 3_000, 5_000), ("loss", 0, 0, 9_000)];
    let mut trace = named(spans, &ranges);
    let layers = trace_report(&trace, &Selection::default()).layers;
    assert_eq!(layers.len(), 1);
    assert_eq!((layers[0].layer, layers[0].from), (Some(1), "ranges"));
    assert_eq!((layers[0].compute_us, layers[0].comm_us, layers[0].exposed_us), (3.0, 3.0, 2.0));
    // Operations that know better go first.
    trace.operations[1].layer = Some(7);
    let layers = trace_report(&trace, &Selection::default()).layers;
    assert_eq!((layers[0].layer, layers[0].comm_us, layers[0].exposed_us), (Some(7), 4.0, 3.0));
    assert_eq!((layers[1].layer, layers[1].compute_us), (None, 3.0));
}

#[test]
fn names_tell_layers() {
    for (name, layer) in [
        ("model.layers.12.mlp.down_proj", Some(12)),
        ("nn.Module: LlamaDecoderLayer_7", Some(7)),
        ("layer 3", Some(3)),
        ("Layer3", Some(3)),
        ("transformer.h.31.attn", Some(31)),
        ("blocks[4]", Some(4)),
        ("decode/L12/mlp/down", Some(12)),
        ("layer_norm", None),
        ("LayerNorm.layers.5", Some(5)),
        ("aten::native_layer_norm", None),
        ("L/x", None),
        ("layers.99999999999", None),
        ("große Schicht 5", None),
        ("", None),
    ] {
        assert_eq!(layer_of(name), layer, "{name}");
    }
}

/// A trace of PyTorch's profiler with these events.
fn imported(events: &[&str]) -> Trace {
    let json = format!("[{}]", events.join(","));
    let mut trace = kineto::import_bytes("t.json", json.as_bytes(), kineto::Options::default()).unwrap();
    Rules::default().classify(&mut trace);
    trace
}

const ANNOTATED: [&str; 5] = [
    r#"{"ph": "X", "cat": "user_annotation", "name": "optimizer", "pid": 1, "tid": 1, "ts": 1000, "dur": 200}"#,
    r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1100, "dur": 5, "args": {"correlation": 1}}"#,
    r#"{"ph": "X", "cat": "kernel", "name": "before", "pid": 0, "tid": 7, "ts": 1000, "dur": 900, "args": {"stream": 7, "correlation": 2}}"#,
    r#"{"ph": "X", "cat": "gpu_user_annotation", "name": "optimizer", "pid": 0, "tid": 7, "ts": 2000, "dur": 50}"#,
    r#"{"ph": "X", "cat": "kernel", "name": "adam", "pid": 0, "tid": 7, "ts": 2000, "dur": 50, "args": {"stream": 7, "correlation": 1}}"#,
];

#[test]
fn annotations_of_host_and_device_are_two_things() {
    let row = &trace_report(&imported(&ANNOTATED), &Selection::default()).ranges[0];
    assert_eq!((row.count, row.time_us, row.device_us, row.busy_us), (1, Some(200.0), Some(50.0), 50.0));
    // without launches and annotations of the host, as of CUDA graphs recorded as a whole, what ran in the time of the
    // device's annotation counts
    let row = &trace_report(&imported(&ANNOTATED[2..]), &Selection::default()).ranges[0];
    assert_eq!((row.count, row.time_us, row.device_us, row.busy_us), (1, None, Some(50.0), 50.0));
}

#[test]
fn device_time_belongs_to_the_ranges_that_launched_it() {
    let range = |name: &str, ts: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": {dur}}}"#
        )
    };
    let work = |launched: u32, stream: u32, name: &str, start: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1, "ts": {launched}, "dur": 5, "args": {{"correlation": {launched}}}}},
            {{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {start}, "dur": {dur}, "args": {{"stream": {stream}, "correlation": {launched}}}}}"#
        )
    };
    let (first, second) = ("execute_context_0(0)_generation_32(32)", "step[EXTEND bs=4]");
    let trace = imported(
        &[
            range(first, 1000, 200),
            range("layers.3.mlp", 1050, 100),
            work(1100, 7, "gemm", 2000, 500),
            work(1180, 9, "ncclDevKernel_AllReduce", 2300, 400),
            range(second, 2100, 200), // the first one's kernels run in its time
            work(2150, 7, "gemm", 3000, 100),
            work(2900, 7, "gemm", 3200, 70),
        ]
        .each_ref()
        .map(String::as_str),
    );
    let report = trace_report(&trace, &Selection::default());
    let row = |name: &str| {
        let row = report.ranges.iter().find(|row| row.name == name).unwrap();
        (row.time_us, row.device_us, row.busy_us, row.compute_us, row.comm_us, row.exposed_us)
    };
    assert_eq!(row(first), (Some(200.0), None, 700.0, 500.0, 400.0, 200.0));
    assert_eq!(row("layers.3.mlp"), (Some(100.0), None, 500.0, 500.0, 0.0, 0.0));
    assert_eq!(row(second), (Some(200.0), None, 100.0, 100.0, 0.0, 0.0));
    assert_eq!((report.layers[0].layer, report.layers[0].compute_us), (Some(3), 500.0));
    let steps: Vec<_> = (report.steps.iter())
        .map(|step| (step.step, step.name.as_deref(), step.batch, step.compute_us, step.comm_us))
        .collect();
    assert_eq!(
        steps,
        [(0, Some(first), Some(32), 500.0, 400.0), (1, Some(second), Some(4), 100.0, 0.0)]
    );
    let of_step = Selection::of_step(report.steps[1].key);
    let ranges = trace_report(&trace, &of_step).ranges;
    assert_eq!(
        ranges.iter().map(|row| (row.name.as_str(), row.busy_us)).collect::<Vec<_>>(),
        [(second, 100.0)]
    );
    let operators: Vec<_> = (report.operators.iter())
        .map(|row| (row.name.as_str(), row.count, row.total_us, row.comm_us, row.exposed_us))
        .collect();
    assert_eq!(operators, [("cudaGraphLaunch", 4, 1070.0, 400.0, 200.0)]);
}

/// Ranges of one thread that overlap without one being within the other, as of two steps in flight.
#[test]
fn a_range_has_no_launches_after_its_end() {
    let range = |name: &str, ts: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": {dur}}}"#
        )
    };
    let work = |launched: u32, start: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {launched}, "dur": 4, "args": {{"correlation": {launched}}}}},
            {{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": {start}, "dur": {dur}, "args": {{"stream": 7, "correlation": {launched}}}}}"#
        )
    };
    let events = [
        range("A", 0, 100),
        range("B", 50, 100),
        range("C", 120, 80),
        work(10, 1000, 50),
        work(60, 1100, 51),
        work(110, 1200, 52),
        work(130, 1300, 53),
        work(160, 1400, 54),
    ];
    let trace = imported(&events.each_ref().map(String::as_str));
    let report = trace_report(&trace, &Selection::default());
    let mut busy: Vec<_> = report.ranges.iter().map(|row| (row.name.as_str(), row.busy_us)).collect();
    busy.sort_by_key(|row| row.0);
    assert_eq!(busy, [("A", 101.0), ("B", 156.0), ("C", 107.0)]);
}

#[test]
fn work_launched_before_the_profile_belongs_to_no_step_and_no_operator() {
    let events: Vec<String> = (0..2)
        .flat_map(|step| {
            let (at, number) = (1000 + 100 * step, 3 + step);
            [
                format!(r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": {at}, "dur": 100}}"#),
                format!(r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {at}, "dur": 95, "args": {{"stream": 7, "correlation": {}}}}}"#, 1 + step),
                format!(r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {}, "dur": 5, "args": {{"correlation": {number}}}}}"#, at + 50),
                format!(r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {}, "dur": 20}}"#, at + 40),
                format!(r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {}, "dur": 90, "args": {{"stream": 7, "correlation": {number}}}}}"#, at + 200),
            ]
        })
        .collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let report = trace_report(&imported(&events), &Selection::default());
    let steps: Vec<_> =
        report.steps.iter().map(|s| (s.step, s.start_ns, s.end_ns, s.compute_us)).collect();
    assert_eq!(steps, [(0, 200_000, 290_000, 90.0), (1, 300_000, 390_000, 90.0)]);
    let operators: Vec<_> =
        report.operators.iter().map(|row| (row.name.as_str(), row.count, row.total_us)).collect();
    assert_eq!(operators, [("(launch not recorded)", 2, 190.0), ("aten::mm", 2, 180.0)]);
}

/// DistributedDataParallel names its all-reduces on the thread of the backward pass; the step is on the thread that
/// waits for it.
#[test]
fn a_range_has_the_work_of_ranges_on_a_thread_that_it_waits_for() {
    let event = |name: &str, tid: u32, ts: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": {dur}}}"#
        )
    };
    let launch = r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 9, "ts": 1120, "dur": 5, "args": {"correlation": 1}}"#;
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "ts": 2000, "dur": 400, "args": {"stream": 7, "correlation": 1}}"#;
    let comm_of_step = |others: &[String]| {
        let step = event("ProfilerStep#4", 1, 1000, 500);
        let reduce = event("nccl:all_reduce", 9, 1100, 50);
        let mut all = vec![step.as_str(), &reduce, launch, kernel];
        all.extend(others.iter().map(String::as_str));
        let report = trace_report(&imported(&all), &Selection::default());
        let comm = |name: &str| report.ranges.iter().find(|row| row.name == name).unwrap().comm_us;
        assert_eq!(comm("nccl:all_reduce"), 400.0);
        comm("ProfilerStep#4")
    };
    assert_eq!(comm_of_step(&[]), 400.0, "as in the table of steps");
    // the innermost range around it
    let backward = || event("## backward ##", 1, 1050, 300);
    assert_eq!(comm_of_step(&[backward()]), 400.0);
    // which of two threads waits for it is not known
    assert_eq!(comm_of_step(&[event("load batch", 2, 1050, 300)]), 0.0);
    // it outlasts this one
    assert_eq!(comm_of_step(&[event("load batch", 2, 1050, 60)]), 400.0);
}
