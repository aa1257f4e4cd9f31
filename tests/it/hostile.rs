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
    symlink(&outside, runs.join("index.jsonl")).expect("a link");
    let began = std::time::Instant::now();
    let done = place.run(&["runs"]).exits(0);
    assert!(done.stderr.contains("record.json: is a named pipe"), "{done:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "it waited for the pipe");
    assert_eq!(std::fs::read_to_string(&outside).expect("it is there"), "mine");
}

#[test]
fn a_runs_directory_keeps_the_files_of_others() {
    let place = Place::new();
    let foreign =
        [".tmp-mine", ".trace-mine", "batches/.tmp-mine", "batches/x.parts/notes", ".ladderscope/mine"];
    let hour = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for name in foreign.iter().copied().chain([".tmp-folder/deep/mine"]) {
        let path = place.write(name, "mine");
        let file = std::fs::File::options().write(true).open(&path).expect("it is there");
        file.set_modified(hour).expect("it gets older");
    }
    let outside = place.write("elsewhere/lock", "");
    let parts = place.path().join("batches/20261121-043012-sim-bbbbbb.parts");
    symlink(place.path().join("elsewhere"), &parts).expect("a link");
    let cpu = [
        "run",
        "--dir",
        ".",
        "--backend",
        "cpu",
        "--model",
        "tiny",
        "--samples",
        "1",
        "--prompt-tokens",
        "2",
    ];
    for arguments in [&["run", "--dir", ".", "--backend", "sim"][..], &cpu, &["runs", "--dir", "."]] {
        place.run(arguments).exits(0);
    }
    for name in foreign.iter().copied().chain([".tmp-folder/deep/mine"]) {
        assert_eq!(std::fs::read_to_string(place.path().join(name)).expect(name), "mine");
    }
    assert_eq!(names(&place, "elsewhere"), ["lock"], "nothing is made behind a link");
    assert!(outside.exists() && parts.is_symlink());
    assert_eq!(names(&place, ".ladderscope"), ["mine"], "nothing of ours is left");
}

#[test]
fn without_a_home_ranks_meet_only_with_a_secret_that_was_given() {
    let place = Place::new();
    let start = |secret: Option<&str>| {
        let mut command = place.command(&["run", "--backend", "sim", "--timeout", "2"]);
        // what is no absolute path is no home
        command.env("HOME", "nowhere").env_remove("XDG_STATE_HOME");
        for (name, value) in
            [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "127.0.0.1")]
        {
            command.env(name, value);
        }
        command.env("LADDERSCOPE_PORT", run::testing::port().to_string());
        command.envs(secret.map(|secret| ("LADDERSCOPE_SECRET", secret)));
        crate::support::finish(command)
    };
    let done = start(None).exits(2);
    assert!(done.stderr.contains("LADDERSCOPE_SECRET"), "{done:?}");
    let done = start(Some("a secret that all ranks of this job have")).exits(1);
    assert!(done.stderr.contains("rank 1 did not find rank 0"), "{done:?}");
}

#[test]
fn a_spreadsheet_and_a_terminal_get_no_commands() {
    let place = Place::new();
    let id = place.run(&["run", "--backend", "sim", "--format", "json"]).exits(0).json();
    let id = id["run"].as_str().expect("an id").to_owned();
    place.run(&["runs", "note", "=cmd|' /C calc'!A0 \u{9b}2J\u{202e}", &id]).exits(0);
    let csv = ["runs", "--all", "--format", "csv"];
    assert!(place.run(&csv).exits(0).stdout.contains("'=cmd|"));
    let raw = place.run(&[&csv[..], &["--raw"]].concat()).exits(0).stdout;
    assert!(raw.contains("=cmd|") && !raw.contains("'=cmd|"), "{raw}");
    let json = place.run(&["runs", "--all", "--format", "json"]).exits(0).stdout;
    assert!(json.contains("\\u009b2J\\u202e") && !json.contains(['\u{9b}', '\u{202e}']), "{json}");
    let name = "=1+\u{1b}[31m\u{9b}kernel";
    let event = serde_json::json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0,
        "args": {"device": 0, "stream": 7}});
    place.write("trace.json", &serde_json::json!({"traceEvents": [event]}).to_string());
    place.run(&["trace", "convert", "trace.json", "trace.csv"]).exits(0);
    let text = std::fs::read_to_string(place.path().join("trace.csv")).expect("a file");
    assert!(text.contains("'=1+�[31m�kernel") && !text.contains(['\u{1b}', '\u{9b}']), "{text}");
}

#[test]
fn a_full_disk_fails_whatever_is_printed() {
    let place = Place::new();
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["help", "run"],
        &["run", "--help"],
        &["man"],
        &["completions", "bash"],
        &["models"],
        &["schema", "record"],
        &["hardware", "--format", "json"],
        &["experiments", "--format", "csv"],
        &["runs", "--format", "json"],
    ] {
        let mut command = place.command(arguments);
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        command.stdout(full).stderr(std::process::Stdio::piped());
        let done = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("standard output"), "{arguments:?}: {said}");
    }
}

/// Named pipes are named, and no verb waits for one; kernels without any duration have no overlap.
#[test]
fn pipes_and_empty_durations_are_named() {
    let place = Place::new();
    let pipe = |name: &str| {
        let path = place.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).expect("a pipe");
    };
    pipe("pipe.json");
    pipe("pipe.toml");
    std::fs::create_dir(place.path().join("model")).expect("a directory");
    pipe("model/config.json");
    for arguments in [
        &["overlap", "pipe.json"][..],
        &["timeline", "pipe.json", "--export", "x.svg"],
        &["rewire", "pipe.json"],
        &["run", "--backend", "sim", "--model", "./pipe.json"],
        &["run", "--backend", "sim", "--model", "./model"],
        &["run", "--backend", "sim", "--hardware", "pipe.toml"],
        &["generate", "--weights", "pipe.json", "--prompt", "x"],
        &["generate", "--weights", "model", "--prompt", "x"],
        &["evaluate", "--weights", "pipe.json", "--text", "x"],
    ] {
        let done = place.run(arguments).exits(2);
        assert!(done.stderr.contains("is a named pipe"), "{arguments:?}: {done:?}");
    }
    let kernel = |at: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "ts": {at}, "dur": 0, "args": {{"stream": 7}}}}"#
        )
    };
    place.write("none.json", &format!("[{}, {}]", kernel(1), kernel(5)));
    let done = place.run(&["overlap", "none.json"]).exits(2);
    assert!(done.stderr.contains("2 GPU events selected, all of zero duration"), "{done:?}");
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
    assert!(names(&place, "runs/.ladderscope/claims").is_empty(), "no claim is left");
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
