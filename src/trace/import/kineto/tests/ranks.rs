//! Several files, several devices, whose is what.

use std::fs;
use std::path::Path;

use super::super::open::{import_files, read_events};
use super::*;
use crate::NO_STEP;
use crate::import::directory;
use crate::import::input::InputFile;
use base::error::Result;

fn import(dir: &Path) -> Result<Trace> {
    let found = directory::look(dir)?;
    let files: Vec<InputFile> = found.files.into_iter().map(|(file, _)| file).collect();
    import_files(&files, None, read_events)
}

fn gpu(device: u32, at: u32, category: &str) -> String {
    let args = format!(r#""device": {device}, "stream": 7"#);
    complete([category, "k"], (device, 7), (at, 10), &args)
}

fn ranks(trace: &Trace) -> Vec<(i64, u32)> {
    let mut ranks: Vec<_> = trace.spans.iter().map(|span| (span.start_ns / 1000, span.rank)).collect();
    ranks.sort_unstable();
    ranks
}

fn write(dir: &Path, name: &str, json: &str) {
    fs::write(dir.join(name), json).unwrap();
}

#[test]
fn a_directory_is_a_rank_a_file_by_what_the_files_say() {
    let dir = tempfile::tempdir().unwrap();
    for (name, rank) in [("a.json", 2), ("b.json", 0), ("c.json", 1)] {
        let shape = Shape { rank, seed: u64::from(rank), ..Shape::default() };
        write(dir.path(), name, &generate(shape, Style::default()).json);
    }
    write(dir.path(), "notes.txt", "not a trace");
    let trace = import(dir.path()).unwrap();
    assert_eq!(trace.meta.ranks, 3);
    for rank in 0..3u32 {
        let shape = Shape { rank, seed: u64::from(rank), ..Shape::default() };
        let expected = truth(&generate(shape, Style::default()));
        let mut of_rank = trace.clone();
        of_rank.spans.retain(|span| span.rank == rank);
        assert_eq!(described(&of_rank), expected, "rank {rank}");
        assert!(trace.ranges.iter().any(|range| range.rank == rank));
    }
    assert!(trace.meta.streams.iter().all(|stream| stream.rank < 3));
    assert_eq!(import_report(&trace).files.len(), 3);
}

#[test]
fn names_tell_ranks_where_files_do_not_and_order_where_names_do_not() {
    let one = |at| events(&[&gpu(0, at, "kernel")]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "rank_1.json", &one(5));
    write(dir.path(), "rank_0.json", &one(6));
    write(dir.path(), "rank_10.json", &one(7));
    assert_eq!(ranks(&import(dir.path()).unwrap()), [(5, 1), (6, 0), (7, 10)]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "b.json", &one(5));
    write(dir.path(), "a.json", &one(6));
    let trace = import(dir.path()).unwrap();
    assert_eq!(ranks(&trace), [(5, 1), (6, 0)]);
    assert!(warned(&trace, "in file order"));
}

#[test]
fn exports_keep_the_clock_of_the_trace_that_they_were_made_of() {
    let file = |own: &str| {
        format!(r#"{{"ladderscope": {own}, "traceEvents": {}}}"#, kernel(r#""ts": 1, "dur": 2"#))
    };
    for (own, clocks) in [
        (r#"{"provenance": "simulated", "clock": "virtual", "import": null}"#, 1),
        (r#"{"provenance": "measured", "clock": "virtual", "import": {"files": ["a", "b"]}}"#, 2),
        (
            r#"{"provenance": "measured", "clock": "virtual", "import": {"files": ["a"], "clocks": 3}}"#,
            3,
        ),
    ] {
        let trace = read(&file(own));
        assert_eq!(trace.meta.clock, "virtual");
        assert_eq!(import_report(&trace).clocks, Some(clocks));
    }
    let foreign = read(&kernel(r#""ts": 1, "dur": 2"#));
    assert_eq!(import_report(&foreign).clocks, None);
}

#[test]
fn clocks_of_files_are_tied_by_their_base() {
    let file = |base: &str, at| {
        format!(
            r#"{{"baseTimeNanoseconds": {base}, "traceEvents": {}}}"#,
            events(&[&gpu(0, at, "kernel")])
        )
    };
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "rank0.json", &file("1000000000000", 5));
    write(dir.path(), "rank1.json", &file("1000000003000", 5));
    let trace = import(dir.path()).unwrap();
    assert_eq!(ranks(&trace), [(5, 0), (8, 1)]);
    assert!(import_report(&trace).wall_clock);
    // times since 1970 agree without a base, others may count from anything
    for (at, wall_clock) in [("1700000000000000.0", true), ("5000.0", false)] {
        let file = kernel(&format!(r#""ts": {at}, "dur": 2"#));
        write(dir.path(), "rank0.json", &file);
        write(dir.path(), "rank1.json", &file);
        assert_eq!(import_report(&import(dir.path()).unwrap()).wall_clock, wall_clock, "{at}");
    }
}

/// Two replicas of TP 2: the groups of both are called `2` and list ranks 0 and 1.
#[test]
fn replicas_have_groups_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    for (dp, rank) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let json = format!(
            r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "traceEvents": [
                {{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce(x)", "pid": {rank}, "tid": 20,
                "ts": {}, "dur": 40, "args": {{"stream": 20, "device": {rank}, "Collective name": "allreduce",
                "Group size": 2, "Process Group Name": "2", "Process Group Ranks": "[0, 1]"}}}}]}}"#,
            10 + 2 * dp + rank
        );
        write(dir.path(), &format!("dp{dp}_tp{rank}_rank{rank}.1700000000.pt.trace.json"), &json);
    }
    let trace = import(dir.path()).unwrap();
    assert_eq!(ranks(&trace), [(10, 0), (11, 1), (12, 2), (13, 3)]);
    let groups: Vec<&[u32]> = trace.meta.groups.iter().map(|group| &group.ranks[..]).collect();
    assert_eq!(groups, [[0, 1], [2, 3]]);
    let warnings = &import_report(&trace).warnings;
    assert!(warnings.iter().any(|said| said.starts_with("2 engines")), "{warnings:?}");
}

/// Ranks 2 and 3 of a job of four lie beside the newer ranks of a job of two.
#[test]
fn ranks_of_two_jobs_are_not_put_together() {
    let file = |rank: u32, world: u32, second: u64| {
        format!(
            r#"{{"distributedInfo": {{"rank": {rank}, "world_size": {world}}}, "baseTimeNanoseconds": {}, "traceEvents": {}}}"#,
            second * 1_000_000_000,
            events(&[&gpu(0, 5, "kernel")])
        )
    };
    let dir = tempfile::tempdir().unwrap();
    for (rank, world) in [(0, 2), (1, 2), (2, 4), (3, 4)] {
        write(dir.path(), &format!("rank{rank}.json"), &file(rank, world, 1000));
    }
    let refused = import(dir.path()).unwrap_err().to_string();
    let said = "traces of several jobs: rank0.json is of 2 ranks, rank2.json of 4";
    assert_eq!(refused, said);
    // of the same size, an hour earlier
    let far = |gap: u64| {
        let dir = tempfile::tempdir().unwrap();
        for rank in 0..4 {
            write(
                dir.path(),
                &format!("rank{rank}.json"),
                &file(rank, 4, 9000 - gap * u64::from(rank / 2)),
            );
        }
        let warnings = import_report(&import(dir.path()).unwrap()).warnings.join("\n");
        warnings.contains("was recorded 60 minutes after rank2.json")
    };
    assert!(far(3600) && !far(60));
}

#[test]
fn a_device_with_kernels_is_a_rank_where_the_file_names_none() {
    let list =
        [gpu(0, 1, "kernel"), gpu(3, 2, "kernel"), gpu(3, 3, "gpu_memcpy"), gpu(9, 4, "gpu_memcpy")];
    let json = events(&list);
    let trace = read(&json);
    assert_eq!(ranks(&trace), [(1, 0), (2, 1), (3, 1), (4, 0)]);
    assert_eq!(trace.meta.ranks, 2);
    let named =
        format!(r#"{{"distributedInfo": {{"rank": 5, "world_size": 8}}, "traceEvents": {json}}}"#);
    let trace = read(&named);
    assert_eq!(ranks(&trace), [(1, 5), (2, 5), (3, 5), (4, 5)]);
    assert!(warned(&trace, "count as one rank"));
    let only_copies = events(&[&list[0], &list[3]]);
    assert_eq!(ranks(&read(&only_copies)), [(1, 0), (4, 0)]);
}

#[test]
fn a_missing_file_and_one_that_is_no_json_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("gone.json");
    let error = import_files(&[InputFile::from_path(&missing)], None, read_events).unwrap_err();
    assert!(error.to_string().contains("gone.json"));
    assert_eq!(error.exit_code(), 2);
    write(dir.path(), "bad.json", "nope");
    let error = import_files(&[InputFile::from_path(&dir.path().join("bad.json"))], None, read_events)
        .unwrap_err()
        .to_string();
    assert!(error.contains("bad.json: byte 0"), "{error}");
}

/// A kernel of a merged file, with its launch: the process ids of device and host, the device, the number that links
/// them, start and end of the launch, start of the kernel (us).
struct Launched {
    pids: [&'static str; 2],
    device: u32,
    correlation: u32,
    launch: (u32, u32),
    start: u32,
}

fn merged(list: &[Launched], more: &[String]) -> String {
    let mut keys = more.to_vec();
    for Launched { pids: [gpu, host], device, correlation, launch: (from, to), start } in list {
        let args = format!(r#""correlation": {correlation}"#);
        keys.push(complete(["cuda_runtime", "cudaLaunchKernel"], (host, 1), (from, to - from), &args));
        let args = format!(r#""device": {device}, "stream": 7, {args}"#);
        keys.push(complete(["kernel", "k"], (gpu, 7), (start, 10), &args));
    }
    events(&keys)
}

/// Start, rank and launch of each kernel (us).
fn launches(trace: &Trace) -> Vec<(i64, u32, i64)> {
    let mut all: Vec<_> =
        trace.spans.iter().map(|span| (span.start_ns / 1000, span.rank, span.ready_ns / 1000)).collect();
    all.sort_unstable();
    all
}

#[test]
fn labelled_processes_of_a_merged_file_are_ranks_with_launches_of_their_own() {
    let of = |pids, launch, start| Launched { pids, device: 0, correlation: 1, launch, start };
    // the other rank's launch is nearer in time
    let [a, b] = [
        of([r#""[TP00] 0""#, r#""[TP00] 900""#], (10, 20), 100),
        of([r#""[TP01] 0""#, r#""[TP01] 901""#], (50, 60), 90),
    ];
    let step = complete(["user_annotation", "ProfilerStep#4"], (r#""[TP01] 901""#, 1), (5, 200), "");
    let json = merged(&[a, b], &[step]);
    let trace = read(&json);
    assert_eq!(launches(&trace), [(90, 1, 60), (100, 0, 20)]);
    assert_eq!(trace.meta.ranks, 2);
    let steps: Vec<(u32, u32)> = trace.spans.iter().map(|span| (span.rank, span.step)).collect();
    let expected = [(1, 4), (0, NO_STEP)];
    assert!(expected.iter().all(|of| steps.contains(of)), "a step is of its own rank: {steps:?}");
    assert_eq!(trace.ranges.iter().map(|range| range.rank).collect::<Vec<_>>(), [1]);
    assert_eq!(
        import_report(&trace).ranks_from.as_deref(),
        Some("ranks from labels or communicators of processes")
    );
    // what the first part said of itself stays at the top of a merged file
    let named =
        format!(r#"{{"distributedInfo": {{"rank": 0, "world_size": 2}}, "traceEvents": {json}}}"#);
    assert_eq!(launches(&read(&named)), [(90, 1, 60), (100, 0, 20)]);
}

#[test]
fn names_of_processes_label_them_too() {
    let of = |pids, launch, start| Launched { pids, device: 0, correlation: 1, launch, start };
    let list = [of(["10", "1900"], (10, 20), 100), of(["0", "900"], (50, 60), 90)];
    let names = [(10, 0), (1900, 0), (0, 3), (900, 3)].map(|(pid, rank)| {
        format!(r#""name": "process_name", "ph": "M", "pid": {pid}, "tid": 0, "args": {{"name": "rank {rank}: python"}}"#)
    });
    let trace = read(&merged(&list, &names));
    assert_eq!(launches(&trace), [(90, 3, 60), (100, 0, 20)]);
    assert_accounted(&trace);
}

#[test]
fn processes_of_files_put_together_are_ranks_and_launch_their_own_work() {
    // by prefix; the same device number in two processes; several devices of each of two processes
    for (pids, devices) in [
        ([[r#""0_0""#, r#""0_900""#], [r#""1_0""#, r#""1_901""#]], [0, 0]),
        ([["0", "900"], ["100000", "100901"]], [0, 0]),
        ([["0", "900"], ["1", "800"]], [0, 1]),
    ] {
        let mut list = Vec::new();
        for (rank, pids) in pids.into_iter().enumerate() {
            for correlation in 1..5u32 {
                // rank 1 launches its work late, so that only its own calls come before its kernels
                let from = 100 * correlation + 50 * rank as u32;
                let launch = (from, from + 5);
                list.push(Launched {
                    pids,
                    device: devices[rank],
                    correlation,
                    launch,
                    start: from + 20,
                });
            }
        }
        // rank 0 has calls of its own that rank 1 has not
        for correlation in 5..9 {
            list.push(Launched {
                pids: pids[0],
                device: devices[0],
                correlation,
                launch: (900, 905),
                start: 910,
            });
        }
        let trace = read(&merged(&list, &[]));
        assert_eq!(trace.meta.ranks, 2, "{pids:?}");
        for span in &trace.spans {
            let late = if span.start_ns == 910_000 { 5_000 } else { 15_000 };
            assert_eq!(span.start_ns - span.ready_ns, late, "{pids:?}");
        }
    }
    let pairs = [(0, 0), (0, 1), (7, 0), (7, 1)];
    let list = pairs.map(|(pid, device)| {
        complete(["kernel", "k"], (pid, 7), (1, 1), &format!(r#""device": {device}, "stream": 7"#))
    });
    let trace = read(&events(&list));
    assert_eq!(trace.meta.ranks, 4);
}

#[test]
fn traces_without_gpu_work_and_merged_ones_are_left_out_beside_their_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let one = |at| events(&[&gpu(0, at, "kernel")]);
    write(dir.path(), "x-TP-0.json", &one(5));
    write(dir.path(), "x-TP-1.json", &one(6));
    let host = host("cpu_op", "aten::add", 9, (1, 2));
    write(dir.path(), "host_12.async_llm.json", &events(&[host]));
    let labelled = |label: &str, at: u32| {
        let pid = format!(r#""[{label}] 0""#);
        complete(["kernel", "k"], (pid, 7), (at, 10), r#""device": 0, "stream": 7"#)
    };
    write(dir.path(), "merged-x.json", &events(&[labelled("TP00", 5), labelled("TP01", 6)]));
    let trace = import(dir.path()).unwrap();
    assert_eq!(ranks(&trace), [(5, 0), (6, 1)]);
    for words in
        ["ignored host_12.async_llm.json: no GPU events", "ignored merged-x.json: 2 ranks merged"]
    {
        assert!(warned(&trace, words), "{:?}", import_report(&trace));
    }
}

#[test]
fn ranks_that_only_the_whole_files_show_are_told_apart_as_recordings() {
    let dir = tempfile::tempdir().unwrap();
    let file = |rank: u32, at| {
        let filler = " ".repeat(300 << 10);
        format!(
            r#"{{"traceEvents": {},{filler} "distributedInfo": {{"rank": {rank}, "world_size": 2}}}}"#,
            events(&[&gpu(0, at, "kernel")])
        )
    };
    for (name, rank, at) in [("a", 0, 5), ("b", 0, 205), ("c", 1, 6), ("d", 1, 206)] {
        write(dir.path(), &format!("{name}.json"), &file(rank, at));
    }
    let trace = import(dir.path()).unwrap();
    assert_eq!(ranks(&trace), [(205, 0), (206, 1)]);
    assert!(warned(&trace, "2 recordings of the same ranks"));
}

#[test]
fn communicators_say_the_rank_where_nothing_else_does() {
    let kernel = |pid: u32, rank: u32, group: &str| {
        let args =
            format!(r#""device": 0, "stream": 7, "Rank": {rank}, "Process Group Ranks": "{group}""#);
        complete(["kernel", "ncclDevKernel_AllReduce"], (pid, 7), (pid, 1), &args)
    };
    let trace = |list: &[String]| read(&events(list));
    assert_eq!(ranks(&trace(&[kernel(1, 1, "[2, 3]"), kernel(2, 0, "[2, 3]")])), [(1, 3), (2, 2)]);
    assert_eq!(ranks(&trace(&[kernel(1, 1, "[4, 5, 6]")])), [(1, 5)]);
    // abbreviated, or not of this group
    assert_eq!(ranks(&trace(&[kernel(1, 1, "[4, 5, ...]")])), [(1, 0)]);
    assert_eq!(ranks(&trace(&[kernel(1, 3, "[4, 5, 6]")])), [(1, 0)]);
}

#[test]
fn more_devices_than_any_machine_has_are_refused() {
    let of = |count: u32| {
        let list: Vec<String> = (0..count).map(|device| gpu(device, 5, "kernel")).collect();
        import_bytes("t.json", events(&list).as_bytes(), small())
    };
    assert_eq!(of(40).unwrap().meta.ranks, 40);
    let error = of(5000).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("t.json: kernels of 5000 devices"), "{error}");
}
