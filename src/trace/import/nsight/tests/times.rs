//! Impossible times, tables with other names, whole graphs, and where work was launched.

use super::*;

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
        accounted(&trace);
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
    accounted(&trace);
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
        accounted(&trace);
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
    accounted(&trace);
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
