//! Missing, wrong and strange data in single events and files, and packed files, whole and broken.

use super::*;
use crate::NO_STEP;
use crate::import::tests::{gzip, zstd};
use plan::Phase;

/// Start and end of the only span.
fn only(json: &str) -> (i64, i64) {
    let trace = read(json);
    assert_eq!(trace.spans.len(), 1, "{:?}", import_report(&trace));
    (trace.spans[0].start_ns, trace.spans[0].end_ns)
}

#[test]
fn times_are_cut_below_a_nanosecond_and_then_added() {
    assert_eq!(
        only(&kernel(r#""ts": 1365627862757.0649, "dur": 2.0009"#)),
        (1_365_627_862_757_064, 1_365_627_862_759_064)
    );
    assert_eq!(only(&kernel(r#""ts": "12", "dur": "1.5e1""#)), (12_000, 27_000));
    assert_eq!(only(&kernel(r#""dur": 0, "ts": -3"#)), (-3_000, -3_000));
}

#[test]
fn events_without_what_is_needed_are_counted_by_what_lacks() {
    for (keys, why) in [
        (r#""dur": 1"#, "kernel without a start (ts)"),
        (r#""ts": 1"#, "kernel without a duration (dur)"),
        (r#""ts": null, "dur": 1"#, "kernel with a start (ts) that is not a number"),
        (r#""ts": 1, "dur": NaN"#, "kernel with a duration (dur) that is not a number"),
        (r#""ts": 1, "dur": -0.001"#, "kernel with a negative duration (dur)"),
        (r#""ts": 9223372036854775808, "dur": 1"#, "kernel with a time beyond 2^63 ns"),
        (r#""ts": 9223372036854775, "dur": 1"#, "kernel with a time beyond 2^63 ns"),
        (r#""ts": 1, "dur": 1e300"#, "kernel with a time beyond 2^63 ns"),
        (r#""ts": [1], "dur": 1"#, "kernel without a start (ts)"),
    ] {
        let trace = read(&kernel(keys));
        assert_eq!(trace.spans.len(), 0, "{keys}");
        assert_eq!(
            import_report(&trace).ignored.get(why),
            Some(&1),
            "{keys}: {:?}",
            import_report(&trace)
        );
        assert!(warned(&trace, &why[7..]), "{keys}");
        assert_accounted(&trace);
    }
    let nameless = read(&events(&[r#""ph": "X", "cat": "kernel", "ts": 1, "dur": 1"#]));
    assert_eq!(import_report(&nameless).ignored["kernel: no name"], 1);
}

#[test]
fn phases_and_categories_that_are_not_read_are_named() {
    let trace = read(&events(&[
        r#""ph": "E", "ts": 1"#,
        r#""ph": "B", "cat": "user_annotation", "name": "a", "ts": 2"#,
        r#""name": "mem", "ph": "C", "ts": 2"#,
        r#""cat": "ac2g", "ph": "f", "id": 1"#,
        r#""ph": "i", "name": "x", "ts": 3"#,
        r#""ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 2"#,
        r#""ph": "X", "name": "f", "ts": 1, "dur": 2"#,
        r#""name": "f""#,
        r#""ph": "X", "cat": "cuda_runtime", "name": "cudaGetDevice", "ts": 1, "dur": 2, "args": {}"#,
    ]));
    let ignored: Vec<_> =
        import_report(&trace).ignored.iter().map(|(why, n)| format!("{n} {why}")).collect();
    assert_eq!(
        ignored,
        [
            "1 category python_function: Python's stack",
            "1 counters (ph C)",
            "1 event: no category",
            "1 event: no phase (ph)",
            "1 flow arrows (ph s, t, f)",
            "1 instants (ph i, I, R)",
            "1 launch: no correlation",
            "2 unpaired begin or end events (ph B, E)",
        ]
    );
    assert_accounted(&trace);
    let unpaired = "2 unpaired begin or end events (ph B, E) ignored";
    assert!(warned(&trace, "no GPU events") && warned(&trace, unpaired));
}

#[test]
fn begin_and_end_events_of_a_thread_nest() {
    let json = events(&[
        r#""ph": "B", "cat": "user_annotation", "name": "decode step 0", "pid": 1, "tid": 1, "ts": 10"#,
        r#""ph": "B", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 12, "args": {"correlation": 1}"#,
        r#""ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20, "args": {"stream": 7, "correlation": 1}"#,
        r#""ph": "E", "pid": 1, "tid": 1, "ts": 14"#,
        r#""ph": "B", "cat": "python_function", "name": "f", "pid": 1, "tid": 1, "ts": 15"#,
        r#""ph": "E", "pid": 1, "tid": 1, "ts": 16"#,
        r#""ph": "E", "pid": 1, "tid": 1, "ts": 18"#,
        r#""ph": "E", "pid": 0, "tid": 7, "ts": 31.5"#,
        // neither is a pair
        r#""ph": "E", "pid": 0, "tid": 7, "ts": 40"#,
        r#""ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 50, "args": {"stream": 7}"#,
    ]);
    let trace = read(&json);
    let spans: Vec<_> = (trace.spans.iter())
        .map(|span| (span.start_ns, span.end_ns, span.ready_ns, span.step))
        .collect();
    assert_eq!(spans, [(20_000, 31_500, 14_000, 0)]);
    let ranges: Vec<_> = trace.ranges.iter().map(|range| (range.start_ns, range.end_ns)).collect();
    assert_eq!(ranges, [(10_000, 18_000)]);
    let report = import_report(&trace);
    assert_eq!(report.ignored["unpaired begin or end events (ph B, E)"], 2);
    assert_eq!(report.ignored["category python_function: Python's stack"], 1);
    assert_accounted(&trace);
    for (parsers, piece) in [(0, 1), (2, 64), (2, 1 << 20)] {
        let again = import_bytes("t.json", json.as_bytes(), KinetoOptions { parsers, piece }).unwrap();
        assert_eq!(again.spans, trace.spans);
    }
}

#[test]
fn broken_events_are_left_out_with_their_place_and_the_others_read() {
    let json = r#"[{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1},
 {"ph" "X", "cat": "kernel"}, 17, "text", null,
 {"ph": "X", "cat": "kernel", "name": "b", "ts": 5, "dur": 1}]"#;
    let trace = read(json);
    assert_eq!(trace.spans.len(), 2);
    let report = import_report(&trace);
    assert_eq!((report.events, report.ignored["event: broken JSON, or no event"]), (6, 4));
    assert_eq!(
        report.warnings[0],
        "t.json: byte 70: broken JSON, expected :; left out: 4 such elements (39 bytes)"
    );
    assert_eq!(&json[69..71], " \"");
    assert!(report.doubts(crate::Doubted::Missing), "most of it");
    assert_accounted(&trace);
}

#[test]
fn damage_costs_the_same_events_however_the_file_is_cut() {
    let good =
        |at: u32| format!(r#"{{"ph": "X", "cat": "kernel", "name": "a {{", "ts": {at}, "dur": 1}}"#);
    for damage in [r#"{"x": \"y{"}"#, r#"\"{"#, r#"" , "#, "{]", "17 \\", "}{"] {
        let json = format!("[{},{},{damage},{},{}]", good(1), good(2), good(3), good(4));
        let read = |piece| {
            let trace =
                import_bytes("t.json", json.as_bytes(), KinetoOptions { piece, ..small() }).unwrap();
            assert!(trace.spans.len() >= 2, "{damage}");
            trace.spans
        };
        assert_eq!(read(1), read(1 << 20), "{damage}");
    }
}

#[test]
fn objects_that_begin_like_events_are_not_taken_for_them() {
    let one = |at: u32, more: &str| {
        let name = format!("k{at} }}, {{'ph'");
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "ts": {at}, "dur": 1, "args": {{{more}}}}}"#
        )
    };
    let list = r#""list": [{"ph": "X", "cat": "kernel"}, {"ph": "X", "cat": "kernel", "name": "no"}]"#;
    let all: Vec<String> = (0..40).map(|at| one(at, if at % 3 == 0 { list } else { "" })).collect();
    let all = all.join(", ");
    let json = format!(r#"{{"traceEvents": [{all}], "others": [{all}]}}"#);
    for piece in [1, 64, 200, 700, 5000, 1 << 20] {
        for parsers in [0, 2] {
            let trace =
                import_bytes("t.json", json.as_bytes(), KinetoOptions { piece, parsers }).unwrap();
            assert_eq!(trace.spans.len(), 40, "pieces of {piece}");
            assert_eq!(trace.spans[0].end_ns, 1_000);
            assert!(!warned(&trace, "broken"), "pieces of {piece}");
            assert_accounted(&trace);
        }
    }
}

#[test]
fn what_is_no_trace_is_an_error_that_says_why() {
    for (bytes, why) in [
        (&b""[..], "t.json: the file is empty"),
        (b" \n ", "t.json: the file is empty"),
        (b"hello", "t.json: byte 0: found 'h', expected { or ["),
        (b"\xff\xfe{", "t.json: byte 0: found '\\xff', expected { or ["),
        (b"{}", "t.json: a JSON object without traceEvents"),
        (b"{\"a\": 1, \"b\": [1, {}]}", "t.json: a JSON object without traceEvents"),
        (b"{\"traceEvents\": 7}", "t.json: a JSON object without traceEvents"),
        (b"{\"a\" 1}", "t.json: byte 5: expected :"),
        (b"{a: 1}", "t.json: byte 1: expected a key in quotes, or }"),
        (b"{\"a\": 1, \"tra", "t.json: the file ends at byte 13, inside a key"),
        (b"{\"a\": [[1, 2]", "t.json: the file ends at byte 13, inside a value"),
        (b"[1, 2, 3]", "t.json: none of its 3 elements is a trace event with a phase (ph)"),
        (b"[{\"a\": 1}]", "t.json: none of its 1 elements is a trace event with a phase (ph)"),
    ] {
        assert_eq!(message(bytes), why, "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_trace_without_events_and_one_with_more_behind_it_are_warned_of() {
    let trace = read(r#"{"traceEvents": []}"#);
    assert!(import_report(&trace).warnings[0].contains("no GPU events"), "{:?}", import_report(&trace));
    let trace = read("\u{feff}[] {");
    assert_eq!(
        import_report(&trace).warnings[0],
        "t.json: byte 6: the trace is closed, but more follows; not read"
    );
}

#[test]
fn names_that_are_no_utf8_are_shown_and_counted() {
    let mut bytes = kernel(r#""ts": 1, "dur": 1"#).into_bytes();
    let at = bytes.windows(3).position(|part| part == b"\"k\"").unwrap();
    bytes[at + 1] = 0xff;
    let trace = import_bytes("t.json", &bytes, small()).unwrap();
    assert_eq!(trace.operations[0].name, "\u{fffd}");
    assert!(warned(&trace, "invalid UTF-8"));
}

#[test]
fn deep_nesting_is_passed_over() {
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let json = format!(
        r#"{{"deep": {deep}, "traceEvents": {}}}"#,
        kernel(&format!(r#""x": {deep}, "ts": 1, "dur": 1"#))
    );
    assert_eq!(only(&json), (1_000, 2_000));
    let json =
        format!(r#"{{"distributedInfo": {deep}, "traceEvents": {}}}"#, kernel(r#""ts": 1, "dur": 1"#));
    let said = import_report(&read(&json)).warnings.join(" ");
    assert!(said.contains("distributedInfo at the top could not be read"), "{said}");
}

#[test]
fn a_line_without_end_is_given_up_within_bounded_memory() {
    // 4 GB of one string, without a file
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(self.0 < 300 << 20, "read on and on");
            self.0 += buffer.len() as u64;
            buffer.fill(b'a');
            Ok(buffer.len())
        }
    }
    for start in ["{\"", "{\"x\": \"", "[{\"name\": \""] {
        let raw = || std::io::Read::chain(start.as_bytes(), Endless(0));
        let said = match super::super::open::import_as("t.json", raw, super::super::open::read_events) {
            Ok(trace) => import_report(&trace).warnings.join(" "),
            Err(error) => error.to_string(),
        };
        assert!(said.contains("an event or value of more than 64 MiB"), "{start}: {said}");
    }
}

#[test]
fn exported_prefills_are_marked_with_all_but_the_decodes_of_their_step() {
    let step = |n: u32| host("user_annotation", &format!("ProfilerStep#{n}"), 1, (n * 100, 100));
    let launched = |c: u32, name: &str, at: u32| {
        let correlation = format!(r#", "correlation": {c}"#);
        let kernel = on_stream("kernel", name, (at + 5, 10), &correlation);
        [call("cudaLaunchKernel", 9, (at, 1), c), kernel]
    };
    let (prefill, decode) = ("prefill/L0/mlp/down", "decode/L0/mlp/down");
    let list =
        [(1, prefill, 110), (2, "fill", 130), (3, decode, 210), (4, prefill, 310), (5, decode, 330)];
    let kernels = list.iter().flat_map(|(c, name, at)| launched(*c, name, *at));
    let all: Vec<String> = [1, 2, 3].map(step).into_iter().chain(kernels).collect();
    let trace = read(&events(&all));
    let mut seen: Vec<_> = trace.spans.iter().map(|s| (s.start_ns / 1000, s.step, s.phase)).collect();
    seen.sort_unstable();
    let expected = [
        (115, 1, Phase::Prefill),
        (135, 1, Phase::Prefill),
        (215, 2, Phase::Decode),
        (315, 3, Phase::Prefill),
        (335, 3, Phase::Decode),
    ];
    assert_eq!(seen, expected);
    assert!(trace.spans.is_sorted_by_key(|span| (span.phase, span.step, span.rank, span.start_ns)));
}

#[test]
fn kernels_are_ready_when_their_launch_returned_and_of_its_step() {
    let launch = |c: u32, at: u32| call("cudaLaunchKernel", 9, (at, 5), c);
    let gpu = |args: &str, at: u32| on_stream("kernel", "k", (at, 10), args);
    let json = events(&[
        host("user_annotation", "ProfilerStep#4", 1, (0, 100)),
        host("user_annotation", "ProfilerStep#5", 1, (100, 100)),
        launch(1, 90),
        gpu(r#", "correlation": 1"#, 130),
        launch(2, 150),
        gpu(r#", "correlation": 2"#, 152),
        gpu("", 170),
        launch(3, 300),
        gpu(r#", "correlation": 3"#, 310),
        gpu(r#", "correlation": 99"#, 190),
    ]);
    let trace = read(&json);
    let mut seen: Vec<_> =
        trace.spans.iter().map(|span| (span.start_ns, span.step, span.ready_ns)).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            (130_000, 4, 95_000),        // launched in the step before
            (152_000, 5, 151_999),       // started before its launch returned
            (170_000, NO_STEP, 170_000), // no correlation
            (190_000, NO_STEP, 190_000), // a launch that is not in the file
            (310_000, NO_STEP, 305_000), // launched outside all steps
        ]
    );
}

#[test]
fn steps_of_the_device_count_where_the_host_says_nothing() {
    let json = events(&[
        r#""ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#8", "pid": 0, "tid": 7, "ts": 10, "dur": 50"#,
        r#""ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20, "dur": 10, "args": {"device": 0, "stream": 7}"#,
        r#""ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 70, "dur": 10, "args": {"device": 0, "stream": 7}"#,
    ]);
    let steps: Vec<_> = read(&json).spans.iter().map(|span| (span.start_ns, span.step)).collect();
    assert_eq!(steps, [(20_000, 8), (70_000, NO_STEP)]);
}

#[test]
fn old_and_rocm_traces_are_read_too() {
    let json = events(&[
        r#""ph": "X", "cat": "Kernel", "name": "a", "pid": "GPU 0", "tid": "stream 7", "ts": 1, "dur": 2, "args": {"external id": 5}"#,
        r#""ph": "X", "cat": "Memcpy", "name": "Memcpy", "pid": "GPU 0", "tid": "stream 7", "ts": 4, "dur": 2"#,
        r#""ph": "X", "cat": "Runtime", "name": "hipLaunchKernel", "pid": 3, "tid": 3, "ts": 0, "dur": 1, "args": {"external id": 5}"#,
        r#""ph": "X", "cat": "kernel", "name": "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", "pid": 0, "tid": 0, "ts": 8, "dur": 2, "args": {"device": 0, "stream": 0, "correlation": 7}"#,
    ]);
    let trace = read(&json);
    let spans: Vec<_> =
        described(&trace).into_iter().map(|s| (s.name, s.kind, s.stream, s.ready_ns)).collect();
    assert_eq!(
        spans,
        [
            ("a".to_owned(), "kernel", 7, 999), // its launch returned when it started
            ("Memcpy".to_owned(), "memcpy", 7, 4_000),
            ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32".to_owned(), "kernel", 0, 8_000),
        ]
    );
    assert_eq!(import_report(&trace).used["launch"], 1);
}

#[test]
fn a_label_with_broken_arguments_is_counted_once() {
    let label = r#"{"ph": "M", "name": "process_name", "pid": 0, "args": {oops, "name": "python 1"}}"#;
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {"stream": 7}}"#;
    let trace = read(&format!("[{label},{kernel},{kernel}]"));
    assert_eq!(import_report(&trace).ignored.get("metadata (ph M)"), None);
    assert_accounted(&trace);
}

fn json() -> Generated {
    generate(Shape { events: 600, ..Shape::default() }, Style { escaped: true, ..Style::default() })
}

fn spans(bytes: &[u8]) -> Vec<TrueSpan> {
    described(&import_bytes("t.json.gz", bytes, small()).unwrap())
}

#[test]
fn packed_traces_read_as_plain_ones() {
    let generated = json();
    let plain = generated.json.as_bytes();
    let expected = truth(&generated);
    assert_eq!(spans(&gzip(plain)), expected);
    let (first, second) = plain.split_at(plain.len() / 3);
    assert_eq!(spans(&[gzip(first), gzip(second)].concat()), expected);
    assert_eq!(spans(&zstd(plain)), expected);
    assert_eq!(spans(&[zstd(first), zstd(second)].concat()), expected);
}

#[test]
fn a_broken_stream_reads_up_to_the_break() {
    let generated = json();
    let plain = generated.json.as_bytes();
    for (packing, packed) in [("gzip", gzip(plain)), ("zstd", zstd(plain))] {
        for share in [0.5, 0.9, 0.999] {
            let cut = (packed.len() as f64 * share) as usize;
            match import_bytes("t", &packed[..cut], small()) {
                Ok(trace) => {
                    let said = import_report(&trace).warnings.join("\n");
                    assert!(said.contains(&format!("the {packing} stream breaks after")), "{said}");
                    let starts: Vec<_> = truth(&generated).iter().map(|span| span.start_ns).collect();
                    assert!(trace.spans.iter().all(|span| starts.binary_search(&span.start_ns).is_ok()
                        || starts.contains(&span.start_ns)));
                    assert!(trace.spans.len() < starts.len() || share > 0.99);
                }
                Err(error) => assert!(error.to_string().contains(packing), "{error}"),
            }
        }
    }
    let mut flipped = gzip(plain);
    let middle = flipped.len() / 2;
    flipped[middle..middle + 40].fill(0xff);
    match import_bytes("t", &flipped, small()) {
        Ok(trace) => assert!(!import_report(&trace).warnings.is_empty()),
        Err(error) => assert!(error.to_string().contains("gzip"), "{error}"),
    }
}

#[test]
fn a_packed_nothing_is_an_error() {
    assert!(message(&gzip(b"")).contains("the file is empty"));
    assert!(message(&gzip(b"not json")).contains("found 'n'"));
    assert!(message(&[0x1f, 0x8b]).contains("gzip"));
}
