//! A bad week: files that mean harm, other people's processes, signals at the wrong moment. What is told as
//! stored is stored, and nothing that a file says runs code or steers a terminal.

use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::Value;

use crate::interruption::SLOW;
use crate::support::{Place, wait_for};

fn stored(place: &Place) -> Vec<Value> {
    let runs = place.run(&["runs", "--status", "ok", "--format", "json"]).exits(0).json();
    runs.as_array().cloned().unwrap_or_default()
}

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path().join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn an_experiment_file_sets_no_variable_that_runs_code() {
    let place = Place::new();
    for (line, part) in [
        ("LD_PRELOAD = \"/tmp/x.so\"", "LD_PRELOAD"),
        ("PATH = \"x\"", "PATH"),
        ("NCCL_NET_PLUGIN = \"x\"", "NCCL_NET_PLUGIN"),
        ("CUDA_INJECTION64_PATH = \"x\"", "CUDA_INJECTION64_PATH"),
        ("NCCL_ALGO = \"/tmp/x\"", "NCCL_ALGO to '/tmp/x', which is a path"),
    ] {
        place.write("x.toml", &format!("backend = \"cpu\"\nmodel = \"tiny\"\n[env]\n{line}\n"));
        let done = place.run(&["sweep", "x.toml"]).exits(2);
        assert!(done.stderr.contains(&format!("a file cannot set env.{part}")), "{done:?}");
        assert!(done.stderr.contains("--env"), "{done:?}");
    }
    assert!(!place.path().join("runs").exists(), "nothing was started");
}

#[test]
fn nothing_that_steers_a_terminal_is_printed() {
    let place = Place::new();
    let run = ["run", "--backend", "sim", "--format", "json"];
    let id = place.run(&run).exits(0).json()["run"].as_str().unwrap_or_default().to_owned();
    place.run(&["runs", "note", "red \u{1b}[31m and \u{9b}2J", &id]).exits(0);
    place.write("odd\u{1b}[2J.toml", "question = \"a\\u001b[31mb\"\nbackend = \"cpuu\u{7}\"\n");
    let show = ["show", &id];
    let csv = ["runs", "--all", "--format", "csv"];
    let wrong_name = ["sweep", "no\u{1b}[31m.toml"];
    for arguments in [&show[..], &csv, &["runs", "--all"], &["sweep", "odd\u{1b}[2J.toml"], &wrong_name]
    {
        let done = place.run(arguments);
        let text = done.stdout.clone() + &done.stderr;
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{arguments:?}: {text:?}");
    }
    let csv = place.run(&csv).exits(0).stdout;
    assert!(csv.contains("red \u{fffd}[31m and"), "{csv}");
}

#[test]
fn what_lies_about_in_a_runs_directory_neither_hangs_nor_grows() {
    let place = Place::new();
    place.run(&["run", "--backend", "sim"]).exits(0);
    let runs = place.path().join("runs");
    let line = "{\"version\":1,\"runs\":[\"b:0-49999999\"],\"tag\":[\"x\"]}\n";
    place.write("runs/annotations.jsonl", line);
    std::fs::create_dir(runs.join("20261121-043020-pipe-cccccc")).expect("a directory");
    let pipe = runs.join("20261121-043020-pipe-cccccc/record.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    let outside = place.write("outside", "mine");
    let _ = std::fs::remove_file(runs.join("records.cache"));
    symlink(&outside, runs.join("records.cache")).expect("a link");
    let began = std::time::Instant::now();
    let done = place.run(&["runs"]).exits(0);
    assert!(done.stderr.contains("record.json: is a pipe"), "{done:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "it waited for the pipe");
    assert_eq!(std::fs::read_to_string(&outside).expect("it is there"), "mine");
}

#[test]
fn two_sweeps_of_one_experiment_share_its_cells() {
    let place = Place::new();
    place.write("slow.toml", SLOW);
    let sweep = ["sweep", "slow.toml", "--format", "json"];
    let first = place.start(&sweep);
    wait_for("the first run's process", || first.children().first().copied());
    // it has its first cell for as long as it stands still
    first.signal(Signal::STOP);
    let second = place.start(&sweep);
    wait_for("the other cells", || (stored(&place).len() >= 2).then_some(()));
    first.signal(Signal::CONT);
    let done = [first.wait().exits(0), second.wait().exits(0)];
    for done in &done {
        let cells = done.json_lines();
        assert_eq!(cells.len(), 3, "{done:?}");
        assert!(cells.iter().all(|cell| cell["status"] == "ok"), "{done:?}");
    }
    assert_eq!(stored(&place).len(), 3, "each cell was run once");
    assert!(done[1].stderr.contains("runs this cell just now"), "who had a cell was told: {done:?}");
    assert!(names(&place, "runs/.claims").is_empty(), "no claim is left");
}

#[test]
fn a_terminal_that_goes_away_and_a_quit_leave_records() {
    for signal in [Signal::HUP, Signal::QUIT] {
        let place = Place::new();
        place.write("slow.toml", SLOW);
        let sweep = place.start(&["sweep", "slow.toml", "--format", "json"]);
        wait_for("a run's process", || sweep.children().into_iter().find(has_begun));
        sweep.signal(signal);
        sweep.wait().exits(130);
        let all = place.run(&["runs", "--format", "json"]).exits(0).json();
        let interrupted =
            all.as_array().into_iter().flatten().filter(|run| run["status"] == "interrupted");
        let reasons: Vec<_> = interrupted.map(|run| run["reason"].to_string()).collect();
        assert!(reasons.iter().any(|reason| !reason.contains("without leaving a record")), "{all}");
    }
}

/// Whether a child is the run already: whoever starts a process waits until that has become the new program.
fn has_begun(child: &u32) -> bool {
    let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
    command.windows(5).any(|word| word == b"__run")
}

#[test]
fn a_stopped_process_is_noticed_by_its_silence() {
    let place = Place::new();
    place.write("slow.toml", SLOW);
    let sweep = place.start(&["sweep", "slow.toml", "--format", "json", "--timeout", "2"]);
    let child = wait_for("a run's process", || sweep.children().into_iter().find(has_begun));
    crate::support::send(child, Signal::STOP);
    let cells = sweep.wait().exits(3).json_lines();
    let failed: Vec<_> = cells.iter().filter(|cell| cell["status"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{cells:?}");
}

#[test]
fn a_directory_that_vanishes_or_cannot_be_written_is_told() {
    let place = Place::new();
    place.write("slow.toml", SLOW);
    let sweep = place.start(&["sweep", "slow.toml", "--format", "json"]);
    wait_for("a finished run", || (!stored(&place).is_empty()).then_some(()));
    // at once, as a file system is unmounted: emptied file by file, it could meanwhile get a new one
    std::fs::rename(place.path().join("runs"), place.path().join("gone")).expect("it was there");
    let done = sweep.wait();
    assert!(done.code == 1 || done.code == 3, "{done:?}");
    assert!(
        done.stderr.contains("not there any more") || done.stdout.contains("could not be stored"),
        "{done:?}"
    );
    place.write("file", "");
    let done = place.run(&["sweep", "slow.toml", "--dir", "file/runs"]).exits(2);
    assert!(done.stderr.contains("runs cannot be stored there"), "{done:?}");
}

#[test]
fn input_that_is_no_text_or_no_file_is_the_users_to_mend() {
    let place = Place::new();
    std::fs::write(place.path().join("bad.toml"), b"name = \"\xff\xfe\"\n").expect("a file");
    std::fs::write(place.path().join("bad.csv"), b"a,b\n\xff,1\n").expect("a file");
    std::fs::create_dir(place.path().join("folder.toml")).expect("a directory");
    for arguments in [
        &["run", "--backend", "sim", "--hardware", "bad.toml"][..],
        &["run", "--backend", "sim", "--stack", "bad.toml"],
        &["run", "--backend", "sim", "--hardware", "folder.toml"],
        &["sweep", "folder.toml"],
        &["calibrate", "--data", "bad.csv"],
    ] {
        let done = place.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {done:?}");
    }
    // what nobody named is predicted, not decoded
    place.write("empty.toml", "[grid]\ntp = [2]\n");
    let cells = place.run(&["sweep", "empty.toml", "--format", "json"]).exits(0).json_lines();
    assert!(cells.iter().all(|cell| cell["spec"]["backend"] == "sim"), "{cells:?}");
}
