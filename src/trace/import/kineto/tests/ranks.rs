//! Several files, several devices, whose is what.

use std::fs;
use std::path::Path;

use super::super::import_files;
use super::*;
use crate::base::error::Result;
use crate::trace::import::directory;

fn import(dir: &Path) -> Result<Trace> {
    import_files(&directory::look(dir)?.files, Options::default())
}

fn gpu(device: u32, at: u32, category: &str) -> String {
    format!(
        r#""ph": "X", "cat": "{category}", "name": "k", "pid": {device}, "tid": 7, "ts": {at}, "dur": 10, "args": {{"device": {device}, "stream": 7}}"#
    )
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
    assert!(import_report(&trace).warnings.iter().any(|said| said.contains("in order of the files")));
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
    assert_eq!(ranks(&import(dir.path()).unwrap()), [(5, 0), (8, 1)]);
}

#[test]
fn a_device_with_kernels_is_a_rank_where_the_file_names_none() {
    let list =
        [gpu(0, 1, "kernel"), gpu(3, 2, "kernel"), gpu(3, 3, "gpu_memcpy"), gpu(9, 4, "gpu_memcpy")];
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let json = events(&list);
    let trace = read(&json);
    assert_eq!(ranks(&trace), [(1, 0), (2, 1), (3, 1), (4, 0)]);
    assert_eq!(trace.meta.ranks, 2);
    let named =
        format!(r#"{{"distributedInfo": {{"rank": 5, "world_size": 8}}, "traceEvents": {json}}}"#);
    let trace = read(&named);
    assert_eq!(ranks(&trace), [(1, 5), (2, 5), (3, 5), (4, 5)]);
    assert!(import_report(&trace).warnings.iter().any(|said| said.contains("taken as one rank")));
    let only_copies = events(&list[..1].iter().copied().chain([list[3]]).collect::<Vec<_>>());
    assert_eq!(ranks(&read(&only_copies)), [(1, 0), (4, 0)]);
}

#[test]
fn a_missing_file_and_one_that_is_no_json_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("gone.json");
    let error = import_files(&[missing], small()).unwrap_err();
    assert!(error.to_string().contains("gone.json"));
    assert_eq!(error.exit_code(), 2);
    write(dir.path(), "bad.json", "nope");
    let error = import_files(&[dir.path().join("bad.json")], small()).unwrap_err().to_string();
    assert!(error.contains("bad.json: byte 0"), "{error}");
}
