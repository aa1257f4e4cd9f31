//! The software CUDA device keeps the rules of the real driver that tests rely on (`device/rules.cpp`).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::device::{Device, device};

/// Runs one of the checks; standard output.
fn rules(device: &Device, what: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(device.file("rules"))
        .arg(what)
        .envs(device.variables())
        .env("RULES_MODULE", device.file("copy.so"))
        .env("RULES_OTHER", device.file("other.so"))
        .envs(variables.iter().copied())
        .output()
        .expect("the checks run");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {} {problem}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn memory_has_ends_and_the_device_has_so_much_of_it() {
    rules(device!(), "memories", &[]);
}

/// What a check prints, over orders of execution.
fn over_seeds(device: &Device, what: &str) -> BTreeSet<String> {
    (1..=20).map(|seed: u32| rules(device, what, &[("FAKE_CUDA_SEED", &seed.to_string())])).collect()
}

#[test]
fn work_that_nothing_orders_runs_in_either_order() {
    let device = device!();
    assert_eq!(over_seeds(device, "race"), ["1\n", "2\n"].map(String::from).into());
    assert_eq!(over_seeds(device, "ordered"), ["2\n".to_owned()].into());
}

#[test]
fn a_synchronous_copy_does_not_wait_for_other_streams() {
    let both = ["4294967295\n", "5\n"].map(String::from).into();
    assert_eq!(over_seeds(device!(), "synchronous"), both);
}

#[test]
fn captures_become_graphs_or_say_which_rule_was_broken() {
    rules(device!(), "capture", &[]);
}

#[test]
fn events_tell_times_of_a_virtual_clock() {
    rules(device!(), "times", &[]);
}

#[test]
fn kernels_run_within_their_limits_and_their_memory() {
    rules(device!(), "launches", &[]);
}

#[test]
fn images_that_are_none_or_for_others_are_refused() {
    rules(device!(), "images", &[]);
}

#[test]
fn faults_happen_where_they_were_asked_for() {
    let variables = [("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2=2"), ("FAKE_CUDA_HANG", "fill:2")];
    rules(device!(), "faults", &variables);
}

#[test]
fn the_log_tells_what_was_enqueued_and_what_ran() {
    let log = tempfile::NamedTempFile::new().unwrap();
    rules(device!(), "capture", &[("FAKE_CUDA_LOG", log.path().to_str().unwrap())]);
    let calls = calls(log.path());
    for call in ["alloc", "node", "graph_launch", "record", "wait", "ran", "sync", "error"] {
        assert!(calls.contains(call), "no {call} among {calls:?}");
    }
}

fn calls(log: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).expect(line);
            value["call"].as_str().expect(line).to_owned()
        })
        .collect()
}
