//! Events with impossible times, and events after broken ones.

use super::*;
use crate::import::input::InputFile;

/// An event of a category with a name, a time and arguments.
fn event(category: &str, name: &str, time: (&str, &str), arguments: &str) -> String {
    format!("{{{}}}", on_stream(category, name, time, arguments))
}

/// Ten kernels of 50 us, 100 us apart, each with its launch 30 us before, from `base` (us) on.
fn good(base: i64) -> Vec<String> {
    let pair = |at: i64| {
        let (launched, start) = ((base + 100 * at - 30).to_string(), (base + 100 * at).to_string());
        let correlation = format!(r#", "correlation": {at}"#);
        [
            event("cuda_runtime", "cudaLaunchKernel", (&launched, "5"), &correlation),
            event("kernel", "good", (&start, "50"), &correlation),
        ]
    };
    (1..=10).flat_map(pair).collect()
}

/// Names, and start and end (us since `base`) of what is left with these events among good ones; and the warnings.
fn left(base: i64, more: &[String]) -> (Vec<(String, i64, i64)>, String) {
    let mut list = good(base);
    for (at, event) in more.iter().enumerate() {
        list.insert((7 * at + 3) % list.len(), event.clone());
    }
    let trace = read(&format!("[{}]", list.join(",\n")));
    assert_accounted(&trace);
    let spans = trace.spans.iter().map(|span| {
        let us = |ns: i64| ns / 1000 - base;
        let name = trace.operations[span.operation as usize].name.clone();
        (name, us(span.start_ns), us(span.end_ns))
    });
    (spans.collect(), import_report(&trace).warnings.join("\n"))
}

/// Microseconds since 1970, and since a machine started.
const BASES: [i64; 2] = [1_615_207_264_505_000, 5_000_000_000];

#[test]
fn events_without_a_plausible_time_are_named_and_left_out() {
    let bad = |base: i64, category: &str, time: (&str, &str), arguments: &str, said: &str| {
        let (spans, warnings) = left(base, &[event(category, "bad", time, arguments)]);
        assert_eq!(spans, left(base, &[]).0, "{category} {time:?}");
        assert!(warnings.contains(said) && warnings.contains("bad"), "{category} {time:?}: {warnings}");
    };
    for base in BASES {
        let within = (base + 150).to_string();
        bad(base, "kernel", ("0", "0"), "", "1 kernel without a time ignored: bad at 0 us");
        bad(base, "kernel", ("0", "50"), "", "without a time");
        bad(base, "kernel", (&within, "-3"), "", "with a negative duration");
        bad(base, "kernel", (&within, "NaN"), "", "that is not a number");
        bad(base, "kernel", (&within, "\"long\""), "", "that is not a number");
        bad(base, "kernel", (&within, "9223372036854775807"), "", "with a time beyond 2^63 ns");
        bad(base, "kernel", (&within, "4000000"), "", "1 kernel containing later work of its stream");
        bad(base, "gpu_memcpy", (&within, "4000000"), "", "1 memcpy containing later work");
        bad(base, "gpu_memset", (&within, "900000000000"), "", "1 memset lasting longer than a day");
        bad(base, "kernel", (&(base + 300_000_000_000).to_string(), "5"), "", "more than a day away");
        bad(base, "user_annotation", ("0", "5"), "", "1 annotation without a time ignored: bad");
        bad(
            base,
            "gpu_user_annotation",
            (&(base + 300_000_000_000).to_string(), "5"),
            "",
            "more than a day away",
        );
        let early =
            event("cuda_runtime", "launch", (&(base + 5000).to_string(), "5"), r#", "correlation": 77"#);
        let kernel = event("kernel", "bad", (&within, "9"), r#", "correlation": 77"#);
        let (spans, warnings) = left(base, &[early, kernel]);
        assert_eq!(spans, left(base, &[]).0);
        assert!(
            warnings.contains("1 kernel starting long before its launch ignored: bad"),
            "{warnings}"
        );
    }
    // milliseconds where microseconds are meant
    bad(BASES[0], "kernel", ("1615207264505", "50"), "", "more than a day away");
}

#[test]
fn unknown_categories_that_look_like_gpu_work_are_named() {
    let of = |category: &str| left(0, &[event(category, "gemm", ("150", "20"), "")]).1;
    for category in ["gpu_kernel", "Concurrent_Kernel", "collective_comm"] {
        let said = format!("1 events of category {category} are not read");
        assert!(of(category).contains(&said), "{category}: {}", of(category));
    }
    assert!(!of("python_function").contains("are not read"));
}

#[test]
fn collectives_are_named_without_their_arguments() {
    let arguments =
        r#", "Collective name": "allreduce", "In msg nelems": 8, "dtype": "BFloat16", "Group size": 2"#;
    for time in [("0", "0"), ("1615207264505150", "4000000")] {
        let (_, warnings) =
            left(BASES[0], &[event("kernel", "ncclDevKernel_AllReduce", time, arguments)]);
        let named = warnings.lines().find(|said| said.contains("ignored: ncclDevKernel_AllReduce at"));
        assert!(named.is_some_and(|said| !said.contains('\u{1f}')), "{warnings}");
    }
}

#[test]
fn the_first_three_are_named_and_all_counted() {
    let zeros: Vec<_> =
        (0..5).map(|at| event("kernel", &format!("zero {at}"), ("0", "0"), "")).collect();
    let (spans, warnings) = left(BASES[0], &zeros);
    assert_eq!(spans.len(), 10);
    assert!(
        warnings.contains("5 kernels without a time ignored: zero") && warnings.contains("and 2 more")
    );
}

#[test]
fn work_that_is_recorded_twice_or_never_ends_counts_once_or_not_at_all() {
    for base in BASES {
        let start = (base + 300).to_string();
        let again = event("kernel", "good", (&start, "50"), r#", "correlation": 3"#);
        let (spans, warnings) = left(base, std::slice::from_ref(&again));
        assert_eq!(spans, left(base, &[]).0);
        assert!(warnings.contains("1 kernel recorded a second time ignored: good"), "{warnings}");
        let other = again.replace("\"correlation\": 3", "\"correlation\": 30");
        assert_eq!(left(base, &[other]).0.len(), 11, "another launch is other work");
        let twice: Vec<String> = good(base);
        assert_eq!(left(base, &twice).0, left(base, &[]).0);

        let last = (base + 1_050).to_string();
        let endless = event("kernel", "endless", (&last, "3600000000"), "");
        let (spans, warnings) = left(base, &[endless]);
        assert_eq!(spans, left(base, &[]).0);
        assert!(
            warnings.contains("1 kernel ending long after everything else ignored: endless"),
            "{warnings}"
        );
    }
}

/// Milliseconds taken for microseconds, within a day of the rest.
#[test]
fn a_time_in_another_unit_is_left_out_within_a_day() {
    let base = BASES[1];
    let stray = event("kernel", "bad", (&(base / 1000).to_string(), "0.05"), "");
    let (spans, warnings) = left(base, &[stray]);
    assert_eq!(spans, left(base, &[]).0);
    assert!(
        warnings.contains("1 kernel in another time unit than the other events ignored: bad"),
        "{warnings}"
    );
    // a thousand times too late, and launched amid the others
    let launch = event("cuda_runtime", "launch", ("500", "5"), r#", "correlation": 3000"#);
    let late = event("kernel", "bad", ("2500000", "9"), r#", "correlation": 3000"#);
    let (spans, warnings) = left(0, &[launch, late]);
    assert_eq!(spans, left(0, &[]).0);
    assert!(
        warnings.contains("starting long after its launch and everything else ignored: bad"),
        "{warnings}"
    );
}

#[test]
fn clocks_that_begin_at_zero_and_odd_but_possible_times_stay() {
    let all = |base: i64, more: &[String]| {
        let (spans, warnings) = left(base, more);
        let works = more.iter().filter(|event| !event.contains("cuda_runtime")).count();
        assert_eq!(spans.len(), 10 + works, "{warnings}");
    };
    all(0, &[event("kernel", "first", ("0", "40"), "")]);
    all(0, &[event("kernel", "first", ("0", "0"), "")]);
    all(30, &[]);
    for base in BASES {
        let at = |us: i64| (base + us).to_string();
        // neighbours that overlap, as programmatic launches do
        all(base, &[event("kernel", "next", (&at(146), "20"), "")]);
        // a kernel beside, on another stream, that lasts as long as all others
        let beside =
            event("kernel", "beside", (&at(0), "900"), "").replace("\"stream\": 7", "\"stream\": 9");
        all(base, &[beside]);
        // a number of a launch that comes again: the first kernel was launched before the profile
        let launch = event("cuda_runtime", "launch", (&at(900), "5"), r#", "correlation": 3000"#);
        let before = event("kernel", "before", (&at(60), "9"), r#", "correlation": 3000"#);
        let own = event("kernel", "own", (&at(960), "9"), r#", "correlation": 3000"#);
        all(base, &[launch, before, own]);
        // skew below a microsecond
        let launch = event("cuda_runtime", "launch", (&at(170), "5"), r#", "correlation": 3000"#);
        let kernel =
            event("kernel", "skewed", (&format!("{}.5", base + 169), "9"), r#", "correlation": 3000"#);
        all(base, &[launch, kernel]);
    }
}

/// A minute of loading before the recording, in a range around everything, and a copy in it.
#[test]
fn ranges_and_work_long_before_the_recording_stay() {
    let base = BASES[1];
    let before = base - 60_000_000;
    let around = event("user_annotation", "run", (&(before - 10).to_string(), "61000000"), "");
    let copy = event("gpu_memcpy", "load", (&before.to_string(), "9"), "");
    let mut list = good(base);
    // no other event says that the host ran at the time
    list.extend([around, copy]);
    let trace = read(&format!("[{}]", list.join(",")));
    assert_eq!((trace.spans.len(), trace.ranges.len()), (11, 1), "{:?}", import_report(&trace).warnings);
}

/// Long kernels at the end of a short recording: an all-reduce that waits for a slower rank.
#[test]
fn a_long_last_kernel_stays() {
    for base in BASES {
        for length in ["25000", "9000000"] {
            let last =
                event("kernel", "ncclDevKernel_AllReduce", (&(base + 1_050).to_string(), length), "");
            let (spans, warnings) = left(base, &[last]);
            assert_eq!(spans.len(), 11, "{warnings}");
        }
    }
}

/// A graph whose launch was before the recording: its branches run beside one another on a stream, and two are equal in
/// whole microseconds.
#[test]
fn kernels_that_share_a_correlation_id_without_a_launch_are_one_graph() {
    for base in BASES {
        let node = |name: &str, at: i64, length: &str, id: i64| {
            event(
                "kernel",
                name,
                (&(base + at).to_string(), length),
                &format!(r#", "correlation": {id}"#),
            )
        };
        let graph = |id: i64| {
            [
                node("long", 2_000, "500", id),
                node("branch", 2_010, "50", id),
                node("branch", 2_010, "50", id),
                node("tail", 2_100, "50", id),
            ]
        };
        let (spans, warnings) = left(base, &graph(3000));
        assert_eq!(spans.len(), 14, "{warnings}");
        assert!(!warnings.contains("contain"), "{warnings}");
        // ids that identify nothing
        for none in [0, -1] {
            let (spans, warnings) = left(base, &graph(none));
            assert_eq!(spans.len(), 12, "{warnings}");
            assert!(
                warnings.contains("1 kernel containing later work of its stream ignored: long"),
                "{warnings}"
            );
            assert!(warnings.contains("1 kernel recorded a second time ignored: branch"), "{warnings}");
        }
    }
}

#[test]
fn one_ranks_file_may_have_a_clock_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (rank, base) in BASES.into_iter().enumerate() {
        let path = directory.path().join(format!("rank{rank}.json"));
        std::fs::write(&path, format!("[{}]", good(base).join(","))).unwrap();
        paths.push(InputFile::from_path(&path));
    }
    let trace = super::super::open::import_files(&paths, None, super::super::open::read_events).unwrap();
    assert_eq!(trace.spans.len(), 20);
}

/// Spans that are read of 200 kernels with a broken event after the hundredth.
fn around(broken: &str, piece: usize) -> (usize, String) {
    let kernel = |at: i64| {
        let name = format!("void gemm<[lambda {{{at}}}]>(float*)");
        event("kernel", &name, (&(100 * at).to_string(), "50"), "")
    };
    let mut list: Vec<String> = (0..200).map(kernel).collect();
    list.insert(100, broken.into());
    let json = format!("{{\"traceEvents\": [\n{}\n], \"traceName\": \"x\"}}", list.join(",\n"));
    let trace = import_bytes("t.json", json.as_bytes(), KinetoOptions { piece, ..small() }).unwrap();
    assert_accounted(&trace);
    (trace.spans.len(), import_report(&trace).warnings.join("\n"))
}

#[test]
fn a_broken_event_costs_itself_alone() {
    for broken in [
        r#"{"name": "    add", "ph": "f", "ts": 102.956, tid": 0, "pid": "CUDA functions", "args": {}}"#,
        r#"{"ph": "X, "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "k, "ts": 1, "dur": 1, "args": {"stream": 7}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"stream: 7}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "C:\temp\", "ts": 1, "dur": 1, "args": {"stream": 7}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"stream": 7}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"stream": 7}}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "k"#,
        r#"{"ph": "X", "cat": "kernel" "#,
    ] {
        for piece in [300, 5_000, 1 << 20] {
            let (spans, warnings) = around(broken, piece);
            // a brace too many leaves the event itself whole
            let whole = usize::from(broken.ends_with("}}}"));
            assert_eq!(spans, 200 + whole, "{broken}, pieces of {piece}: {warnings}");
            assert!(warnings.contains("broken JSON, expected"), "{broken}: {warnings}");
            assert!(warnings.contains("bytes)"), "{broken}: {warnings}");
        }
    }
}

#[test]
fn control_characters_in_names_and_a_cut_file_cost_nothing_else() {
    for name in ["a\nb", "a\u{0}b", "a\tb", r"C:\new"] {
        let odd = event("kernel", name, ("10020", "1"), "");
        assert_eq!(around(&odd, 700).0, 201, "{name}");
    }
    let json = format!("[{}", good(0).join(","));
    let trace = read(&json[..json.len() - 30]);
    assert_eq!(trace.spans.len(), 9);
    assert!(warned(&trace, "inside an event; everything before it was read"));
}
