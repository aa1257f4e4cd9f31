//! Proof that NVTX ranges are emitted: a run with an injection library that logs the calls.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

fn build_injection(dir: &Path) -> std::path::PathBuf {
    let library = dir.join("libnvtx_log.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nvtx_log.c");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("a C compiler is needed, as for the build itself").success());
    library
}

#[test]
fn every_operation_and_phase_is_an_nvtx_range_on_its_lane() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("nvtx.log");
    let run = Command::new(env!("CARGO_BIN_EXE_ladderscope"))
        .args(["run", "--backend", "cpu", "--model", "tiny", "--architecture", "ladder", "--tp", "2"])
        .args(["--prompt-tokens", "4", "--output-tokens", "3", "--samples", "1", "--warmup", "0"])
        .args(["--format", "json", "--dir"])
        .arg(dir.path().join("runs"))
        .env("NVTX_INJECTION64_PATH", build_injection(dir.path()))
        .env("LADDERSCOPE_NVTX_LOG", &log)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let text = std::fs::read_to_string(&log).unwrap();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut open: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut under_way: HashSet<&str> = HashSet::new();
    // (name of thread or lane, range) -> how often
    let mut ranges: HashMap<(String, String), usize> = HashMap::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (thread, what) = (words.next().unwrap(), words.next().unwrap());
        match what {
            "name" => {
                names.insert(thread, words.next().unwrap());
            }
            "push" => {
                let name = words.next().unwrap();
                open.entry(thread).or_default().push(name);
                *ranges.entry((names[thread].into(), name.into())).or_default() += 1;
            }
            // a collective is under way on its own lane, which its name begins with
            "start" => {
                let (id, name) = words.next().unwrap().split_once(' ').unwrap();
                let (lane, name) = name.split_once(": ").unwrap();
                assert!(under_way.insert(id), "{id} started twice");
                *ranges.entry((lane.into(), name.into())).or_default() += 1;
            }
            "end" => assert!(under_way.remove(words.next().unwrap()), "end without start"),
            _ => assert!(open.get_mut(thread).and_then(Vec::pop).is_some(), "pop without push"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "ranges left open: {open:?}");
    assert!(under_way.is_empty(), "collectives left under way: {under_way:?}");
    let count =
        |thread: &str, range: &str| ranges.get(&(thread.into(), range.into())).copied().unwrap_or(0);
    for rank in ["rank 0", "rank 1"] {
        let (compute, comm) = (format!("{rank} compute"), format!("{rank} comm"));
        assert_eq!(count(&compute, "prefill"), 1);
        assert_eq!(count(&compute, "decode"), 1);
        assert_eq!(count(&compute, "prefill/L3/mlp/down"), 1);
        // three output tokens: two decode steps
        assert_eq!(count(&compute, "decode/L0/attn/qkv"), 2);
        assert_eq!(count(&compute, "decode/head/sample"), 2);
        assert_eq!(count(&comm, "decode/L0/attn/all_reduce"), 2);
        assert_eq!(count(&compute, "decode/L0/attn/all_reduce"), 0);
    }
}
