//! Opening: what a file is follows from its content, whatever its name.

mod archives;
mod refused;

use std::io::Read;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{are_ranks, open, open_recording, open_with, unreadable_format};
use crate::rules::Rules;
use crate::{ImportReport, Trace, write};
use base::error::{Error, Result};
use base::text::natural_order;
use table::Provenance;

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    packed(flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()))
}

pub(super) fn xz(bytes: &[u8]) -> Vec<u8> {
    packed(liblzma::read::XzEncoder::new(bytes, 1))
}

pub(super) fn bzip2(bytes: &[u8]) -> Vec<u8> {
    packed(::bzip2::read::BzEncoder::new(bytes, ::bzip2::Compression::fast()))
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ::zstd::encode_all(bytes, 1).expect("packed")
}

fn packed(mut encoder: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.read_to_end(&mut bytes).expect("packed");
    bytes
}

/// A small export of Nsight Systems with one collective.
fn export(path: &Path) {
    let db = Connection::open(path).expect("a database");
    db.execute_batch(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid, demangledName);
         CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         INSERT INTO StringIds VALUES (1, 'ncclDevKernel_AllReduce(x)'), (2, 'void multimem_all_reduce<1>(x)');
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, 16777216, 1), (3, 4, 0, 7, 16777216, 2)",
    )
    .expect("an export");
}

fn refusal(path: &Path) -> String {
    refusal_of(open(path))
}

pub(super) fn refusal_of<T: std::fmt::Debug>(opened: Result<T>) -> String {
    match opened {
        Err(Error::Input { message, help }) => format!("{message} | {}", help.unwrap_or_default()),
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) fn import_report(trace: &Trace) -> &ImportReport {
    trace.meta.import.as_ref().expect("a report")
}

pub(super) fn warned(trace: &Trace, words: &str) -> bool {
    import_report(trace).warnings.iter().any(|said| said.contains(words))
}

/// Every event is either used or ignored.
pub(super) fn assert_accounted(trace: &Trace) {
    let report = import_report(trace);
    let used: u64 = report.used.values().sum();
    let ignored: u64 = report.ignored.values().sum();
    assert_eq!(used + ignored, report.events, "{report:?}");
}

#[test]
fn an_export_opens_plain_or_packed_under_any_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = directory.path().join("trace.json");
    export(&plain);
    let bytes = std::fs::read(&plain).expect("written");
    let [first, second] = ["trace.parquet", "trace"].map(|name| directory.path().join(name));
    std::fs::write(&first, gzip(&bytes)).expect("written");
    std::fs::write(&second, zstd(&bytes)).expect("written");
    for path in [&plain, &first, &second] {
        let (trace, report) = open_with(path, &Rules::default()).expect("opens");
        assert_eq!(trace.spans.len(), 2);
        assert_eq!(report.communication().len(), 2);
        let files = trace.meta.import.expect("a report").files;
        assert_eq!(files, [path.display().to_string()], "the name that was given");
    }
}

#[test]
fn a_recorded_run_over_an_emulated_link_is_not_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    for (kernel, provenance) in
        [("emulated_collective", Provenance::EmulatedLink), ("loopback_sum", Provenance::Measured)]
    {
        let json = format!(
            r#"[{{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 7, "ts": 1, "dur": 2}}]"#
        );
        let sqlite = directory.path().join(format!("{kernel}.sqlite"));
        export(&sqlite);
        let db = Connection::open(&sqlite).expect("a database");
        db.execute("UPDATE StringIds SET value = ?1 WHERE id = 2", [kernel]).expect("renamed");
        drop(db);
        let chrome = directory.path().join(format!("{kernel}.json"));
        std::fs::write(&chrome, json).expect("written");
        for file in [sqlite, chrome] {
            let (trace, report) = open_with(&file, &Rules::default()).expect("opens");
            assert_eq!(trace.meta.provenance, provenance, "{file:?}");
            assert!(report.communication().iter().any(|found| found.name == kernel), "{file:?}");
        }
    }
}

#[test]
fn a_converted_trace_keeps_its_classification_until_other_rules_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let (foreign, own) = (directory.path().join("a"), directory.path().join("b"));
    export(&foreign);
    let kinds = |path: &Path, rules: &str| -> Vec<String> {
        let (trace, _) = open_with(path, &Rules::load(rules).expect("rules")).expect("opens");
        trace.operations.into_iter().map(|operation| operation.kind.to_string()).collect()
    };
    write(&own, &open_with(&foreign, &Rules::load("hta").expect("rules")).expect("opens").0)
        .expect("written");
    assert_eq!(kinds(&foreign, "default"), ["all_reduce", "all_reduce"]);
    assert_eq!(kinds(&own, "default"), ["collective", "kernel"]);
    assert_eq!(kinds(&own, "nccl-name"), ["collective", "kernel"]);
    let rules = directory.path().join("rules.toml");
    std::fs::write(&rules, "extends = \"default\"").expect("written");
    assert_eq!(kinds(&own, &rules.display().to_string()), ["all_reduce", "all_reduce"]);
}

/// The verdict says that whole graphs are not counted.
#[test]
fn a_json_export_keeps_what_its_import_warned_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    export(&at("a.sqlite"));
    let db = Connection::open(at("a.sqlite")).expect("a database");
    db.execute_batch(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE
             (start, end, deviceId, graphId, streamId, correlationId, globalPid);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (5, 6, 0, 3, 7, 9, 16777216)",
    )
    .expect("a graph");
    drop(db);
    let mut reports = Vec::new();
    for (from, to) in [("a.sqlite", "b.json"), ("b.json", "c.json"), ("c.json", "d.json")] {
        let trace = open(&at(from)).expect("opens");
        crate::export::write(&trace, &at(to)).expect("written");
        reports.push(trace.meta.import.expect("a report"));
    }
    for report in &reports {
        let is_on_graphs = |said: &&String| said.contains("CUDA graphs were recorded as a whole");
        assert_eq!(report.warnings.iter().filter(is_on_graphs).count(), 1, "{report:?}");
        assert_eq!(report.used.get("graph launch"), Some(&1), "{report:?}");
    }
    assert_eq!(reports[1].warnings.len(), reports[2].warnings.len(), "none is there twice: {reports:?}");
}

#[test]
fn a_directory_is_its_traces_in_natural_order_and_the_rest_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["rank10.sqlite", "rank2.sqlite"] {
        export(&directory.path().join(name));
    }
    std::fs::write(directory.path().join("notes.txt"), "hello").expect("written");
    std::fs::write(directory.path().join("config.json"), "{\"a\": 1}").expect("written");
    std::fs::write(directory.path().join("empty"), "").expect("written");
    std::fs::create_dir(directory.path().join("below")).expect("made");
    let trace = open(directory.path()).expect("opens");
    let report = trace.meta.import.expect("a report");
    let ranks: Vec<u32> = trace.spans.iter().map(|span| span.rank).collect();
    assert_eq!(ranks, [2, 2, 10, 10]);
    assert!(report.files[0].ends_with("rank2.sqlite") && report.files[1].ends_with("rank10.sqlite"));
    for words in [
        "skipped notes.txt: a file of unknown format",
        "skipped config.json: JSON, but without trace events",
        "skipped empty: the file is empty",
    ] {
        assert!(
            report.warnings.iter().any(|warning| warning == words),
            "{words}: {:?}",
            report.warnings
        );
    }
}

#[test]
fn numbers_in_file_names_count_as_numbers() {
    let mut names = ["r10", "r2", "r02", "r1b", "r1", "r", "", "é1"];
    names.sort_by(|a, b| natural_order(a, b));
    assert_eq!(names, ["", "r", "r1", "r1b", "r02", "r2", "r10", "é1"]);
}

/// A trace of one kernel that starts then (us).
fn profile(path: &Path, start: u32) {
    let json = format!(
        r#"[{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {start}, "dur": 2}}]"#
    );
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    std::fs::write(path, json).expect("written");
}

#[test]
fn one_of_several_recordings_is_opened_by_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    for (step, start) in [(12, 10), (24, 20)] {
        for rank in 0..2 {
            profile(&directory.path().join(format!("worker{rank}_step_{step}.json")), start + rank);
        }
    }
    let starts = |recording| {
        let (trace, _) = open_recording(directory.path(), recording, &Rules::default()).expect("opens");
        assert_eq!(trace.meta.ranks, 2);
        let report = trace.meta.import.expect("a report");
        let note = report.warnings.iter().find(|said| said.contains("2 recordings")).expect("a note");
        assert!(note.contains("'step_12'") && note.contains("'step_24'"), "{note}");
        trace.spans.iter().map(|span| span.start_ns / 1000).collect::<Vec<_>>()
    };
    assert_eq!(starts(None), [20, 21]);
    assert_eq!(starts(Some("step_12")), [10, 11]);
    let refused = |path: &Path, name| refusal_of(open_recording(path, Some(name), &Rules::default()));
    assert!(
        refused(directory.path(), "step_13").contains("newest first: 'step_24' (2 ranks), 'step_12'")
    );
    let file = directory.path().join("worker0_step_12.json");
    assert!(refused(&file, "step_12").contains("a file"), "a file has no recordings");
    for rank in 0..2 {
        std::fs::remove_file(directory.path().join(format!("worker{rank}_step_12.json")))
            .expect("removed");
    }
    assert!(refused(directory.path(), "step_12").contains("all files belong to one recording"));
}

#[test]
fn traces_below_a_directory_are_found_where_none_lies_in_it() {
    let directory = tempfile::tempdir().expect("a directory");
    for (rank, start) in [(0, 1), (1, 2), (10, 3)] {
        profile(&directory.path().join(format!("rank_{rank}/deeper/trace.json")), start);
    }
    std::fs::write(directory.path().join("notes.txt"), "hello").expect("written");
    let trace = open(directory.path()).expect("opens");
    let ranks: Vec<_> = trace.spans.iter().map(|span| (span.start_ns / 1000, span.rank)).collect();
    assert_eq!(ranks, [(1, 0), (2, 1), (3, 10)]);
    assert_eq!(import_report(&trace).ranks_from.as_deref(), Some("ranks from file names"));
    assert!(warned(&trace, "3 of 11 ranks here; no trace of ranks 2-9"));
    profile(&directory.path().join("trace.json"), 7);
    assert_eq!(open(directory.path()).expect("opens").meta.ranks, 1, "nothing below is looked at");
}

#[cfg(unix)]
#[test]
fn a_trace_that_is_there_twice_is_read_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    profile(&path("rank_0.json"), 1);
    profile(&path("rank_1.json"), 1);
    std::os::unix::fs::symlink(path("rank_1.json"), path("latest.json")).expect("linked");
    std::fs::copy(path("rank_0.json"), path("copy of it.json")).expect("copied");
    let plain = std::fs::read(path("rank_1.json")).expect("read");
    std::fs::write(path("rank_1.json.zst"), zstd(&plain)).expect("written");
    let trace = open(directory.path()).expect("opens");
    assert_eq!((trace.meta.ranks, trace.spans.len()), (2, 2), "ranks may do the same");
    for words in ["a link to a file", "the same trace as"] {
        assert!(warned(&trace, words), "{words}: {:?}", import_report(&trace));
    }
}

#[test]
fn exports_of_ranks_have_the_ranks_of_their_names() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["report_rank3.sqlite", "report_rank1.sqlite"] {
        export(&directory.path().join(name));
    }
    let idle = directory.path().join("frontend.sqlite");
    export(&idle);
    let db = Connection::open(&idle).expect("a database");
    db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", []).expect("emptied");
    drop(db);
    let trace = open(directory.path()).expect("opens");
    let mut ranks: Vec<u32> = trace.spans.iter().map(|span| span.rank).collect();
    ranks.dedup();
    assert_eq!((ranks, trace.meta.ranks), (vec![1, 3], 4));
    assert!(trace.meta.streams.iter().all(|stream| [1, 3].contains(&stream.rank)));
    let report = trace.meta.import.expect("a report");
    assert_eq!(report.ranks_from.as_deref(), Some("ranks from file names"));
    assert!(report.warnings.iter().any(|said| said == "ignored frontend.sqlite: no GPU work"));
}

const LLAMA: [&str; 4] = ["gemm", "norm", "attention", "rope"];

/// Traces of different programs, and of different runs of one rank, in one folder.
#[test]
fn a_folder_of_unrelated_traces_is_refused_with_their_names() {
    let profile = |kernels: [&str; 4], top: &str| {
        let event = |(at, name): (usize, &str)| {
            format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {at}, "dur": 1}}"#
            )
        };
        let events: Vec<String> = (1..).zip(kernels).map(event).collect();
        format!(r#"{{{top} "schemaVersion": 1, "traceEvents": [{}]}}"#, events.join(","))
    };
    let folder = |files: &[(&str, String)]| {
        let directory = tempfile::tempdir().expect("a directory");
        files.iter().for_each(|(name, text)| {
            std::fs::write(directory.path().join(name), text).expect("written");
        });
        directory
    };
    let of_two = |second| {
        folder(&[("llama.json", profile(LLAMA, "")), ("resnet.json", profile(second, r#""file": 2,"#))])
    };
    let said = refusal(of_two(["conv", "pool", "bias", "norm"]).path());
    for part in [
        "2 traces of different programs, not the ranks of one job",
        "some share only 25 % of their compute kernels",
        "open one file: llama.json, resnet.json; to open ranks together, name their files rank0, rank1",
    ] {
        assert!(said.contains(part), "'{part}' is missing in {said}");
    }
    // of ranks with other products for other shapes, other communication, or little work
    for second in [
        ["gemm_64", "norm", "attention", "rope"],
        [
            "norm",
            "ncclDevKernel_SendRecv",
            "ncclDevKernel_AllGather_RING_LL",
            "ncclDevKernel_AllReduce_Sum_bf16",
        ],
    ] {
        let trace = open(of_two(second).path()).expect("ranks of one program");
        assert_eq!(trace.meta.ranks, 2);
    }
    let named = [
        ("rank0.json", profile(LLAMA, "")),
        ("rank1.json", profile(["conv", "pool", "bias", "norm"], "")),
    ];
    let trace = open(folder(&named).path()).expect("named as ranks");
    assert!(warned(&trace, "share only 25 %"), "{:?}", import_report(&trace));
    let info = r#""distributedInfo": {"rank": 0, "world_size": 8},"#;
    let runs = folder(&[
        ("eager.json", profile(LLAMA, info)),
        ("graph.json", profile(["gemm", "norm", "attention", "other"], info)),
    ]);
    let said = refusal(runs.path());
    assert!(
        said.contains("2 traces of one rank with different names, not the ranks of one job"),
        "{said}"
    );
    assert!(said.contains("--recording: "), "{said}");
    let apart = tempfile::tempdir().expect("a directory");
    for (directory, last) in [("before", "rope"), ("after", "other")] {
        std::fs::create_dir(apart.path().join(directory)).expect("a directory");
        let file = apart.path().join(directory).join("rank0.json");
        std::fs::write(file, profile(["gemm", "norm", "attention", last], info)).expect("written");
    }
    open(apart.path()).expect("the newest of two recordings in directories of their own");
    let (trace, _) = open_recording(runs.path(), Some("graph"), &Rules::default()).expect("chosen");
    assert!(trace.operations.iter().any(|operation| operation.name == "other"));
}

fn ranks_in(files: &[(&str, &str)]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    for (name, head) in files {
        let event =
            r#"{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}"#;
        let text = format!(r#"{{{head} "traceEvents": [{event}], "file": "{name}"}}"#);
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let files: Vec<PathBuf> = files.iter().map(|(name, _)| dir.path().join(name)).collect();
    are_ranks(&files)
}

#[test]
fn ranks_of_one_job_are_told_from_unrelated_traces() {
    assert!(ranks_in(&[("rank0.json", ""), ("rank1.json", "")]));
    let info = |rank: u32, size: u32| {
        format!(r#""distributedInfo": {{"rank": {rank}, "world_size": {size}}},"#)
    };
    assert!(ranks_in(&[("host_a.json", &info(0, 2)), ("host_b.json", &info(1, 2))]));
    assert!(!ranks_in(&[("vllm.json", ""), ("b200_tp8.json", "")]));
    assert!(!ranks_in(&[("a.json", &info(0, 2)), ("b.json", &info(1, 8))]), "of two jobs");
    assert!(!ranks_in(&[("rank0.json", "")]), "one file");
    assert!(!ranks_in(&[("run_1.json", &info(0, 8)), ("run_2.json", &info(0, 8))]), "both are rank 0");
    let at = |rank: u32, minutes: u64| {
        format!(r#"{} "baseTimeNanoseconds": {},"#, info(rank, 2), minutes * 60_000_000_000)
    };
    let [a, b, c, d] = [(0, 5), (1, 5), (0, 25), (1, 25)].map(|(rank, minutes)| at(rank, minutes));
    let twice =
        [("rank0_1.json", &*a), ("rank1_1.json", &*b), ("rank0_2.json", &*c), ("rank1_2.json", &*d)];
    assert!(ranks_in(&twice), "two recordings of the same ranks");
}

#[test]
fn a_file_that_cannot_be_opened_has_a_format() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        unreadable_format(&dir.path().join(name))
    };
    assert_eq!(file("a.json", br#"{"traceEvents": [{"ph": "X", "ts": 1}]}"#), None);
    assert_eq!(file("a.h5", b"\x89HDF\r\n\x1a\n...."), Some("an HDF5 export of Nsight Systems"));
    assert_eq!(file("notes.txt", b"some words"), None, "not known");
}
