//! The importer on exports of known content, and on broken ones.

mod broken;
mod generate;

use generate::{Export, global};

use super::import;
use crate::import::input::InputFile;
use crate::import::tests::{assert_accounted, import_report, refusal_of, warned};
use crate::overlap::Selection;
use crate::rules::Rules;
use crate::{NO_STEP, Trace, TraceStream};
use plan::Lane;

fn imported(export: &Export) -> Trace {
    import(&[InputFile::from_path(&export.path)]).expect("imports")
}

fn refused(export: &Export) -> String {
    refusal_of(import(&[InputFile::from_path(&export.path)]))
}

#[test]
fn a_rank_is_a_process_and_device_and_streams_are_kept() {
    let mut export = Export::new();
    for (process, device, stream, start) in
        [(20, 1, 7, 50), (10, 1, 7, 10), (10, 0, 7, 20), (10, 0, 9, 30)]
    {
        export.kernel("k", (process, device, stream), 0, (start, start + 5));
    }
    let trace = imported(&export);
    assert_accounted(&trace);
    assert_eq!(trace.meta.ranks, 3);
    let ids: Vec<_> = trace.meta.streams.iter().map(|s| (s.rank, s.process, s.device, s.id)).collect();
    assert_eq!(
        ids,
        [
            (0, Some(10), Some(0), 7),
            (0, Some(10), Some(0), 9),
            (1, Some(10), Some(1), 7),
            (2, Some(20), Some(1), 7)
        ]
    );
    let spans: Vec<_> = trace.spans.iter().map(|s| (s.rank, s.stream, s.start_ns, s.end_ns)).collect();
    assert_eq!(spans, [(0, 0, 20, 25), (0, 1, 30, 35), (1, 2, 10, 15), (2, 3, 50, 55)]);
    assert_eq!(trace.operations.len(), 1, "one kernel, whichever of its strings named it");
}

/// NCCL in a context of its own, whose stream has the number of the stream with the products.
#[test]
fn streams_of_two_contexts_with_one_number_are_two_streams() {
    let mut export = Export::new();
    for (stream, start, context) in [(7, 0, 1), (7, 40, 2), (9, 60, 2), (7, 100, 1)] {
        export.kernel("k", (1, 0, stream), 0, (start, start + 90));
        export.sql(&format!(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET contextId = {context} WHERE start = {start}"
        ));
    }
    // on stream 9, of which there is one
    export.sql(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (200, 250, 0, 9, 0, {0}, 1, 1, 2)",
        global(1)
    ));
    let trace = imported(&export);
    assert_accounted(&trace);
    let labels: Vec<String> = trace.meta.streams.iter().map(TraceStream::label).collect();
    assert_eq!(labels, ["stream 7 (context 1)", "stream 7 (context 2)", "stream 9"]);
    let spans: Vec<_> = trace.spans.iter().map(|span| (span.start_ns, span.stream)).collect();
    assert_eq!(spans, [(0, 0), (40, 1), (60, 2), (100, 0), (200, 2)]);
    assert_eq!(trace.meta.ranks, 1, "a context is no rank");
}

#[test]
fn overlap_of_an_import_is_exact_by_the_rules() {
    let mut export = Export::new();
    export.kernel("void gemm_kernel<1>(int)", (1, 0, 7), 0, (1000, 4000));
    export.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", (1, 0, 8), 0, (3000, 6001));
    export.kernel("void vllm::cross_device_reduce_1stage<half, 8>()", (1, 0, 7), 0, (7000, 7500));
    export.kernel("void tiny()", (1, 0, 7), 0, (9000, 9000));
    export.sql(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (6000, 6500, 0, 7, 0, {0}, 1, 1, 2);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (500, 600, 0, 7, 0, {0}, 2)",
        global(1)
    ));
    let unclassified = imported(&export);
    assert_accounted(&unclassified);
    let names: Vec<_> =
        unclassified.operations.iter().map(|o| (o.name.as_str(), o.kind.as_str())).collect();
    assert!(names.contains(&("Memcpy HtoD (Pinned -> Device)", "memcpy")), "{names:?}");
    assert!(names.contains(&("Memset (Device)", "memset")), "{names:?}");
    for (rules, comm_us, compute_us) in [("default", 3.501, 3.0), ("nccl-name", 3.001, 3.5)] {
        let mut trace = unclassified.clone();
        Rules::load(rules).expect("built in").classify(&mut trace);
        let rank = &crate::overlap::overlap(&trace, &Selection::default()).ranks[0];
        assert_eq!((rank.comm_us, rank.compute_us, rank.memory_us), (comm_us, compute_us, 0.6));
        assert_eq!((rank.overlap_us, rank.busy_us, rank.span_us), (1.0, 6.1, 8.5));
    }
}

#[test]
fn a_kernel_is_ready_when_its_own_process_had_launched_it() {
    let mut export = Export::new();
    for process in [1, 2] {
        export.kernel("k", (process, 0, 7), 5, (100 * process, 100 * process + 50));
        export.launch((process, process), 5, (10 * process, 10 * process + 6));
        // a driver call within the runtime call
        export.launch((process, process), 5, (10 * process + 1, 10 * process + 4));
    }
    export.launch((1, 1), 6, (90, 130)); // returns after its kernel began
    export.kernel("late", (1, 0, 7), 6, (120, 125));
    export.launch((1, 1), 7, (1, 2)); // launched nothing
    export.kernel("unknown", (1, 0, 7), 99, (400, 401));
    let trace = imported(&export);
    assert_accounted(&trace);
    let ready: Vec<_> = trace.spans.iter().map(|span| (span.rank, span.ready_ns)).collect();
    assert_eq!(ready, [(0, 16), (0, 119), (0, 400), (1, 26)]);
    let report = import_report(&trace);
    assert_eq!((report.used["launch"], report.ignored["host call that launched nothing"]), (5, 1));
    assert!(warned(&trace, "1 GPU events have no launch record"));
}

#[test]
fn steps_follow_the_launch_not_the_execution() {
    let mut export = Export::new();
    export.range((1, 1), "decode step 3", (0, Some(100)));
    export.range((1, 1), "decode step 4", (100, Some(200)));
    export.range((1, 1), "iteration 9", (0, Some(500)));
    for (correlation, launched, start) in [(1, 50, 150), (2, 150, 250), (3, 300, 310)] {
        export.launch((1, 1), correlation, (launched, launched + 2));
        export.kernel("k", (1, 0, 7), correlation, (start, start + 10));
    }
    let trace = imported(&export);
    assert_accounted(&trace);
    let mut steps: Vec<_> = trace.spans.iter().map(|span| (span.start_ns, span.step)).collect();
    steps.sort_unstable();
    assert_eq!(steps, [(150, 3), (250, 4), (310, NO_STEP)]);
    assert!(warned(&trace, "using the 2 ranges named 'decode step N' as steps; not 'iteration N'"));
    assert!(warned(&trace, "1 of 3 GPU events were launched outside"));
}

#[test]
fn steps_whose_numbers_start_again_are_of_another_sample() {
    let mut export = Export::new();
    for (at, name) in (0..).zip(["decode step 0", "decode step 1", "decode step 0", "decode step 1"]) {
        export.range((1, 1), name, (100 * at, Some(100 * at + 100)));
        export.launch((1, 1), at + 1, (100 * at + 10, 100 * at + 12));
        export.kernel("k", (1, 0, 7), at + 1, (100 * at + 20, 100 * at + 30));
    }
    let trace = imported(&export);
    assert_accounted(&trace);
    let steps: Vec<_> = trace.spans.iter().map(|span| (span.start_ns, span.sample, span.step)).collect();
    assert_eq!(steps, [(20, 0, 0), (120, 0, 1), (220, 1, 0), (320, 1, 1)]);
}

#[test]
fn ranges_have_names_from_text_or_registered_strings_and_nest() {
    let mut export = Export::new();
    let id = export.string("ncclAllReduce");
    export.range((1, 5), "outer", (0, Some(100)));
    export.range((1, 5), "aten::mm, seq = 3, op_id = 12", (10, Some(50)));
    export.range((1, 5), "aten::mm, op_id = 13", (60, None));
    export.range((2, 5), "elsewhere", (0, Some(1)));
    export.sql(&format!(
        "INSERT INTO NVTX_EVENTS VALUES (20, 30, 59, NULL, {0}, {id}, 1);
         INSERT INTO NVTX_EVENTS VALUES (90, 110, 60, 'started by hand', {0}, NULL, 0);
         INSERT INTO NVTX_EVENTS VALUES (40, NULL, 34, 'a mark', {0}, NULL, 0);
         INSERT INTO NVTX_EVENTS VALUES (40, 41, 59, NULL, {0}, 77, 0);
         INSERT INTO NVTX_EVENTS VALUES (40, 41, 59, 'of nobody', NULL, NULL, 0);
         INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'NCCL', {0}, NULL, 1)",
        global(1) + 5
    ));
    export.kernel("k", (1, 0, 7), 0, (0, 80));
    let trace = imported(&export);
    assert_accounted(&trace);
    let ranges: Vec<_> = trace
        .ranges
        .iter()
        .map(|r| {
            (trace.meta.range_names[r.name as usize].as_str(), r.thread, r.depth, r.start_ns, r.end_ns)
        })
        .collect();
    assert_eq!(
        ranges,
        [
            ("outer", 0, 0, 0, 100),
            ("aten::mm", 0, 1, 10, 50),
            ("ncclAllReduce", 0, 2, 20, 30),
            ("aten::mm", 0, 1, 60, 80),
            ("started by hand", 1, 0, 90, 110),
        ]
    );
    let ignored = &import_report(&trace).ignored;
    for (reason, count) in [
        ("NVTX mark", 1),
        ("NVTX event that is no range", 1),
        ("range without a name", 1),
        ("range of no thread", 1),
        ("range of a process without GPU work", 1),
    ] {
        assert_eq!(ignored.get(reason), Some(&count), "{reason}");
    }
    assert!(warned(&trace, "1 ranges were never ended"));
}

#[test]
fn threads_of_a_process_with_several_devices_belong_to_the_device_they_launch_to() {
    let mut export = Export::new();
    for (thread, device) in [(1, 0), (2, 1)] {
        export.range((1, thread), &format!("thread {thread}"), (0, Some(10)));
        for k in 0..3 {
            let correlation = thread * 10 + k;
            export.launch((1, thread), correlation, (k, k + 1));
            // each thread launches once to the other device
            let device = if k == 0 { 1 - device } else { device };
            export.kernel("k", (1, device, 7), correlation, (20 + k, 21 + k));
        }
    }
    let trace = imported(&export);
    let of: Vec<_> = trace
        .ranges
        .iter()
        .map(|r| (r.rank, trace.meta.range_names[r.name as usize].as_str()))
        .collect();
    assert_eq!(of, [(0, "thread 1"), (1, "thread 2")]);
    assert!(warned(&trace, "process 1 drives several devices"));
}

#[test]
fn graph_nodes_count_and_whole_graphs_are_shown_but_count_for_nothing() {
    let mut export = Export::new();
    export.kernel("node", (1, 0, 7), 4, (100, 110));
    export.kernel("node", (1, 0, 7), 4, (110, 120));
    export.sql("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = 8");
    export.launch((1, 1), 4, (50, 105)); // returns after the first node began
    export.sql(&format!(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER, \
         streamId INTEGER, correlationId INTEGER, globalPid INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (200, 300, 0, 3, 7, 9, {})",
        global(1)
    ));
    let trace = imported(&export);
    assert_accounted(&trace);
    assert!(trace.spans.len() == 2 && trace.spans.iter().all(|span| span.ready_ns == 99));
    assert_eq!(trace.meta.range_names, ["CUDA graph 3"]);
    assert_eq!((trace.ranges[0].start_ns, trace.ranges[0].end_ns), (200, 300));
    assert!(warned(&trace, "2 kernels are nodes of CUDA graphs"));
    assert!(warned(&trace, "--cuda-graph-trace=node"));
}

#[test]
fn what_makes_no_sense_is_counted_and_the_rest_is_used() {
    let mut export = Export::new();
    export.kernel("good", (1, 0, 7), 0, (0, 5));
    for time in [(10, 5), (i64::MIN, i64::MAX), (i64::MAX, i64::MAX), (0, i64::MAX)] {
        export.kernel("bad", (1, 0, 7), 0, time);
    }
    export.kernel("no string", (1, 0, 7), i64::MIN, (6, 7));
    export.sql(&format!(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = -5, shortName = NULL WHERE start = 6;
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (NULL, 9, 0, 1, 7, 0, {0}, 1, 1, NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x', 9.5, 0, 1, 7, 0, {0}, 1, 1, NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (8, 9, NULL, 1, 7, 0, {0}, 1, 1, NULL)",
        global(1)
    ));
    let trace = imported(&export);
    assert_accounted(&trace);
    assert_eq!(trace.spans.len(), 2);
    let ignored = &import_report(&trace).ignored;
    for (reason, count) in [
        ("kernel with an end before its start", 1),
        ("kernel beyond any clock", 3),
        ("kernel without a start or end", 2),
        ("kernel without a device or stream", 1),
    ] {
        assert_eq!(ignored.get(reason), Some(&count), "{reason}");
    }
    assert!(warned(&trace, "1 kernel without a device or stream ignored: "));
    assert!(warned(&trace, "1 of 2 kernels (17 % of their time) have no name: table StringIds"));
}

#[test]
fn old_and_lean_exports_open_and_say_what_they_lack() {
    let mut export = Export::without_tables();
    export.sql(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (START INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, \
         shortName INTEGER);
         CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
    );
    let id = export.string("ncclKernel_x");
    export.sql(&format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, {id})"));
    let mut trace = imported(&export);
    assert_accounted(&trace);
    assert_eq!((trace.meta.ranks, trace.meta.streams[0].process), (1, None));
    Rules::default().classify(&mut trace);
    assert_eq!(trace.spans[0].lane, Lane::Comm);
    assert!(
        warned(&trace, "no table CUPTI_ACTIVITY_KIND_RUNTIME") && warned(&trace, "no table NVTX_EVENTS")
    );
}

#[test]
fn what_is_no_export_is_refused_in_words() {
    let empty = Export::new();
    assert!(refused(&empty).contains("no kernel, copy or fill in it"));

    let none = Export::without_tables();
    none.sql("CREATE TABLE a (b); DROP TABLE a");
    assert!(refused(&none).contains("without tables"));

    let other = Export::without_tables();
    other.sql("CREATE TABLE customers (name TEXT)");
    assert!(refused(&other).contains("no export of Nsight Systems; it has customers"));

    let schema = Export::without_tables();
    schema.sql("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, end INTEGER, deviceId INTEGER)");
    assert!(refused(&schema).contains("has no column start, streamId, demangledName"));

    let cpu = Export::without_tables();
    cpu.sql("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)");
    assert!(refused(&cpu).contains("without any CUDA activity"));

    // a view could run anything, for ever
    let view = Export::without_tables();
    view.sql(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
         SELECT i AS start, i AS end, 0 AS deviceId, 7 AS streamId, 1 AS shortName FROM n;
         CREATE TABLE t (x)",
    );
    assert!(refused(&view).contains("no export of Nsight Systems"));
}

#[test]
fn several_files_are_counted_on_as_ranks_by_their_hosts_clocks() {
    let mut exports = [Export::new(), Export::new()];
    for (export, began) in exports.iter_mut().zip([5_000, 4_000]) {
        export.kernel("shared", (1, 0, 7), 0, (10, 20));
        export.kernel(&format!("own {began}"), (1, 0, 8), 0, (30, 40));
        export.range((1, 1), "range", (0, Some(9)));
        export.sql(&format!(
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
             INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({began})"
        ));
    }
    let trace =
        import(&exports.each_ref().map(|export| InputFile::from_path(&export.path))).expect("imports");
    assert_accounted(&trace);
    assert_eq!((trace.meta.ranks, trace.operations.len(), trace.meta.range_names.len()), (2, 3, 1));
    let spans: Vec<_> = trace
        .spans
        .iter()
        .map(|s| (s.rank, s.stream, s.start_ns, trace.operations[s.operation as usize].name.as_str()))
        .collect();
    assert_eq!(
        spans,
        [(0, 0, 1010, "shared"), (0, 1, 1030, "own 5000"), (1, 2, 10, "shared"), (1, 3, 30, "own 4000")]
    );
    assert_eq!(
        trace.ranges.iter().map(|r| (r.rank, r.start_ns)).collect::<Vec<_>>(),
        [(0, 1000), (1, 0)]
    );
    assert_eq!(trace.meta.import.as_ref().map(|report| report.files.len()), Some(2));
    assert!(warned(&trace, "wall clocks"));
}

/// An export of a process on a host with a kernel, and its session's start.
fn recorded(process: i64, host: &str, start: i64, began: i64) -> Export {
    let mut export = Export::new();
    export.kernel("k", (process, 0, 7), 0, (start, start + 100));
    export.sql(&format!(
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
         INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({began});
         CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
         INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', '{host}')"
    ));
    export
}

const NOW: i64 = 1_763_000_000_000_000_000;

#[test]
fn recordings_of_one_process_are_no_ranks() {
    let open = |a: Export, b: Export| {
        import(&[a, b].each_ref().map(|export| InputFile::from_path(&export.path)))
    };
    let again = NOW + 60_000_000_000;
    let refused = open(recorded(7, "a", 50, NOW), recorded(7, "a", 50, again)).unwrap_err().to_string();
    assert!(refused.contains("record one process, one after the other"), "{refused}");
    // other processes, containers with the same process id, hosts without names
    for (a, b) in [
        (recorded(7, "a", 50, NOW), recorded(8, "a", 50, again)),
        (recorded(1, "a", 50, NOW), recorded(1, "b", 50, again)),
        (recorded(1, "", 50, NOW), recorded(1, "", 50, again)),
    ] {
        assert_eq!(open(a, b).expect("two ranks").meta.ranks, 2);
    }
}

#[test]
fn times_on_the_wall_clock_are_not_moved_to_it_again() {
    // both kernels start 1 ms after NOW; one session began 3 s before the other
    let began = [NOW - 3_000_000_000, NOW];
    let start = NOW + 1_000_000;
    for normalized in [[true, true], [true, false], [false, true], [false, false]] {
        let exports: Vec<Export> = (0..2)
            .map(|at| {
                let zero = if normalized[at] { 0 } else { began[at] };
                recorded(7 + at as i64, "a", start - zero, began[at])
            })
            .collect();
        let inputs: Vec<InputFile> =
            exports.iter().map(|export| InputFile::from_path(&export.path)).collect();
        let trace = import(&inputs).expect("imports");
        assert_eq!(trace.spans[0].start_ns, trace.spans[1].start_ns, "{normalized:?}");
    }
}

#[test]
fn the_environment_is_what_the_file_says_and_no_variables() {
    let mut export = Export::new();
    export.kernel("k", (1, 0, 7), 0, (0, 1));
    export.sql(
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
         INSERT INTO TARGET_INFO_GPU VALUES (1, 'B'), (0, 'A');
         CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
         INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'h'), ('DeviceEnvironment', 'TOKEN=secret')",
    );
    let environment = imported(&export).meta.environment;
    assert_eq!(
        environment.get("gpus"),
        Some(&serde_json::json!([
            { "index": 0, "name": "A" }, { "index": 1, "name": "B" }
        ]))
    );
    assert_eq!(environment.get("host"), Some(&"h".into()));
    assert!(!format!("{environment:?}").contains("secret"));
}

#[test]
fn a_kernel_tells_its_grid_its_call_and_the_range_around_it() {
    let mut export = Export::new();
    export.sql("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN gridX INTEGER");
    for column in ["gridY", "gridZ", "blockX", "blockY", "blockZ"] {
        export.sql(&format!("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN {column} INTEGER"));
    }
    for (name, correlation, time) in [("gemm", 5, (100, 150)), ("alone", 0, (200, 250))] {
        let id = export.string(name);
        export.sql(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, {correlation}, {}, {id}, {id}, NULL, 8, 2, 1, 128, 1, 1)",
            time.0, time.1, global(10)
        ));
    }
    export.sql("INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000')");
    export.launch((10, 3), 5, (80, 90));
    export.launch((10, 3), 6, (60, 70));
    export.range((10, 3), "step", (0, Some(500)));
    export.range((10, 3), "aten::mm, seq = 4, op_id = 9", (75, Some(95)));
    export.range((10, 4), "another thread", (79, Some(95)));
    let trace = imported(&export);
    let told = |at: usize| crate::import::kernel(&trace, at).unwrap().expect("it is there");
    let gemm = told(0);
    assert_eq!((gemm.grid, gemm.block, gemm.correlation), (Some([8, 2, 1]), Some([128, 1, 1]), Some(5)));
    assert_eq!(gemm.call.as_deref(), Some("cudaLaunchKernel_v7000"));
    assert_eq!(gemm.operator.as_deref(), Some("aten::mm"));
    let alone = told(1);
    assert_eq!((alone.grid, alone.call, alone.operator), (Some([8, 2, 1]), None, None));
}

/// Four kernels on a stream and a longer one on another, a millisecond apart, each launched 50 us before (ns).
fn export() -> Export {
    let mut export = Export::new();
    for at in 1..=4 {
        let start = 1_000_000 * at;
        export.launch((1, 1), 2 * at, (start - 50_000, start - 48_000));
        export.kernel("gemm", (1, 0, 7), 2 * at, (start, start + 100_000));
        export.kernel("ncclDevKernel", (1, 0, 20), 0, (start + 50_000, start + 300_000));
    }
    export
}

#[test]
fn records_with_impossible_times_are_named_and_left_out() {
    let good = imported(&export()).spans;
    let year = 365 * 24 * 3_600_000_000_000;
    for (time, launched, said) in [
        ((0, 4_600_000), Some(4_500_000), "ignored: bad at 0 us for 4600 us"),
        ((1_150_000, 4_600_000), None, "1 kernel containing later work of its stream ignored: bad"),
        (
            (5_100_000, 5_000_000),
            Some(5_000_000),
            "1 kernel with an end before its start ignored: bad at 5100 us",
        ),
        ((200_000, 210_000), Some(4_500_000), "1 kernel starting long before its launch ignored: bad"),
        (
            (5 * year, 5 * year + 10),
            None,
            "1 kernel more than a day away from the other events ignored: bad",
        ),
        ((4_700_000, 5 * year), None, "1 kernel lasting longer than a day ignored: bad"),
        ((4_700_000, i64::MAX), None, "1 kernel beyond any clock ignored: bad"),
    ] {
        let mut export = export();
        export.kernel("bad", (1, 0, 7), 99, time);
        if let Some(launched) = launched {
            export.launch((1, 1), 99, (launched, launched + 500));
        }
        let trace = imported(&export);
        assert_accounted(&trace);
        assert_eq!(trace.spans, good, "{time:?}");
        assert!(warned(&trace, said), "{time:?}: {:?}", trace.meta.import);
    }
}

#[test]
fn correlation_ids_that_come_again_accuse_no_kernel() {
    let mut export = export();
    // launched before the recording, with the id of a later launch
    export.kernel("before", (1, 0, 7), 8, (100_000, 150_000));
    assert_eq!(imported(&export).spans.len(), 9);
    // two launches of one id, each with its kernel
    export.launch((1, 1), 2, (5_000_000, 5_001_000));
    export.kernel("again", (1, 0, 7), 2, (5_050_000, 5_060_000));
    let trace = imported(&export);
    assert_accounted(&trace);
    let again = trace.spans.iter().find(|span| span.start_ns == 5_050_000).expect("it is there");
    assert_eq!((trace.spans.len(), again.ready_ns), (10, 5_001_000));
}

#[test]
fn tables_with_a_suffix_are_read_or_named() {
    let plain = imported(&export());
    for (table, renamed) in [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL_V3"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_RUNTIME_V2"),
        ("StringIds", "StringIds_V2"),
    ] {
        let export = export();
        export.sql(&format!("ALTER TABLE {table} RENAME TO {renamed}"));
        let trace = imported(&export);
        assert_accounted(&trace);
        assert_eq!((&trace.spans, &trace.operations), (&plain.spans, &plain.operations), "{renamed}");
        assert!(warned(&trace, &format!("table {renamed} is read as {table}")));
    }
    let export = export();
    export.sql("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY2 (start INTEGER); CREATE TABLE NVTX_EVENTS_V4 (x INTEGER)");
    let trace = imported(&export);
    assert_eq!(trace.spans, plain.spans);
    for table in ["CUPTI_ACTIVITY_KIND_MEMCPY2", "NVTX_EVENTS_V4"] {
        assert!(warned(&trace, &format!("table {table} is not known and not read")), "{table}");
    }
}

#[test]
fn whole_graphs_without_kernels_are_refused_with_what_to_do() {
    let graphs = format!(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER, \
         streamId INTEGER, correlationId INTEGER, globalPid INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (200, 300, 0, 3, 7, 9, {0}), (400, 500, 0, 3, 7, 10, {0})",
        global(1)
    );
    let only = Export::new();
    only.sql(&graphs);
    // copies beside graphs say nothing of communication either
    for copies in ["", "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0, 7, 1, 1, 1, 1, 2)"] {
        only.sql(copies);
        let said = refused(&only);
        assert!(said.contains("2 graph launches, each recorded as a whole graph"), "{said}");
        assert!(said.contains("--cuda-graph-trace=node"), "{said}");
    }
}

#[test]
fn work_belongs_to_the_range_step_and_operator_that_launched_it() {
    let mut export = Export::new();
    export.sql("INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000')");
    export.range((1, 1), "decode step 3", (0, Some(100)));
    export.range((1, 1), "aten::mm, op_id = 4", (40, Some(60)));
    export.range((1, 1), "decode step 4", (100, Some(200)));
    for (correlation, launched, start) in [(1, 50, 1150), (2, 150, 1250), (3, 300, 1310)] {
        export.launch((1, 1), correlation, (launched, launched + 2));
        export.kernel("k", (1, 0, 7), correlation, (start, start + 10));
    }
    export.kernel("before", (1, 0, 7), 77, (20, 30));
    let trace = imported(&export);
    assert_accounted(&trace);
    let name = |at: u32| trace.meta.range_names.get(at as usize).map_or("", String::as_str);
    let range = |at: u32| trace.ranges.get(at as usize).map_or("", |range| name(range.name));
    let mut found: Vec<_> = (trace.spans.iter())
        .map(|s| (s.start_ns, s.step, range(s.launched.range), name(s.launched.operator)))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            (20, NO_STEP, "", ""),
            (1150, 3, "aten::mm", "aten::mm"),
            (1250, 4, "decode step 4", "cudaLaunchKernel"),
            (1310, NO_STEP, "", "cudaLaunchKernel"),
        ]
    );
}
