//! What wrong input gets: exit status 2, the value, what would be right, and nothing on standard output.

use crate::support::Place;

/// Exits 2 without output; the message has all of `parts`.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let done = Place::new().run(arguments).exits(2);
    assert_eq!(done.stdout, "", "{done:?}");
    for part in parts {
        assert!(done.stderr.contains(part), "'{part}' is missing in:\n{}", done.stderr);
    }
}

#[test]
fn unknown_values_get_the_nearest_valid_one() {
    refused(
        &["run", "--architecture", "laddr"],
        &["--architecture", "'laddr'", "did you mean 'ladder'"],
    );
    refused(&["run", "--backend", "cpuu"], &["--backend", "'cpuu'", "did you mean 'cpu'"]);
    refused(&["run", "--p2p", "onn"], &["--p2p", "'onn'", "did you mean 'on'"]);
    refused(
        &["run", "--collective", "multimen"],
        &["--collective", "'multimen'", "did you mean 'multimem'"],
    );
    refused(&["run", "--model", "llama-3-70", "--backend", "sim"], &["'llama-3-70'", "llama-3-70b"]);
    refused(&["compare", "--by", "archtecture"], &["'archtecture'", "did you mean 'architecture'"]);
    refused(&["runs", "--sort", "tpot_p50"], &["'tpot_p50'", "did you mean 'tpot_p50_ms'"]);
    refused(&["hardware", "h100_smx"], &["'h100_smx'", "h100_sxm"]);
}

#[test]
fn values_that_make_no_sense_are_named() {
    refused(&["run", "--link", "emulated:alpha_us=20"], &["alpha_us=20", "gb_s"]);
    refused(&["run", "--rounds", "0"], &["--rounds", "0"]);
    refused(&["run", "--batch", "many"], &["--batch", "many"]);
    refused(&["overlap", "last", "--from", "soon"], &["--from", "'soon'", "1.5ms"]);
    refused(&["generate", "--weights", ".", "--prompt", "x", "--temperature", "-1"], &["-1"]);
}

#[test]
fn unknown_verbs_and_options_are_refused() {
    refused(&["swep", "x.toml"], &["swep", "sweep"]);
    refused(&["run", "--tpp", "2"], &["--tpp", "--tp"]);
    refused(&["overlap"], &["RUN|TRACE"]);
}

#[test]
fn a_collective_that_a_backend_lacks_skips_the_cell_with_the_reason() {
    let place = Place::new();
    let cell = ["run", "--backend", "cpu", "--model", "tiny", "--tp", "2", "--collective", "fused"];
    let done = place.run(&[&cell[..], &["--format", "json"]].concat()).exits(2);
    let record = done.json();
    assert_eq!((&record["status"], &record["spec"]["collective"]), (&"skipped".into(), &"fused".into()));
    let reason = record["reason"].as_str().unwrap();
    assert!(reason.contains("the cpu backend has no fused all-reduce"), "{reason}");
    // and `auto` takes the backend that has it
    let auto = ["run", "--model", "tiny", "--tp", "2", "--output-tokens", "4", "--collective", "fused"];
    let done = place.run(&[&auto[..], &["--format", "json"]].concat()).exits(0);
    assert_eq!(done.json()["spec"]["backend"], "sim", "{done:?}");
}

#[test]
fn missing_files_are_named() {
    refused(&["sweep", "no-such.toml"], &["no-such.toml"]);
    refused(&["overlap", "no-such.parquet"], &["no-such.parquet", "no such file"]);
    refused(
        &["generate", "--weights", "no-such-dir", "--prompt", "x"],
        &["no-such-dir", "no such directory"],
    );
    refused(&["pareto", "no/such/dir"], &["no/such/dir", "no such directory"]);
    refused(
        &["run", "--trace", "no/such/t.parquet", "--backend", "sim"],
        &["no/such", "no such directory"],
    );
}

/// A selection of nothing is no trace without communication.
#[test]
fn a_selection_that_takes_nothing_of_a_trace_is_refused() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/cpu-ladder-tp2-600us.parquet");
    refused(&["overlap", trace, "--from", "1000s"], &["no GPU work is selected", "ms long"]);
}

#[test]
fn a_wrong_name_of_an_experiment_is_told_the_nearest() {
    refused(&["sweep", "quickstrat"], &["quickstrat", "did you mean 'quickstart'"]);
}

#[test]
fn a_sweep_of_which_nothing_can_run_does_not_end_well() {
    let place = Place::new();
    let file = |tp: &str| {
        format!(
            "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3-8b\"\n[workload]\n\
             output_tokens = 4\n[grid]\ntp = {tp}\n"
        )
    };
    place.write("none.toml", &file("[3, 5]"));
    let done = place.run(&["sweep", "none.toml"]).exits(3);
    assert!(done.stdout.contains("2 cells cannot run."), "{done:?}");
    assert!(done.stdout.contains("tp3 b1 p2p-on: TP 3 does not divide 32 heads"), "{done:?}");
    place.write("one.toml", &file("[2, 3]"));
    let done = place.run(&["sweep", "one.toml"]).exits(0);
    assert!(done.stdout.contains("1 more cell cannot run."), "{done:?}");
    // finished before: nothing runs now, and nothing is wrong
    place.run(&["sweep", "one.toml"]).exits(0);
}

#[test]
fn a_runs_directory_that_is_a_file_is_refused() {
    let place = Place::new();
    place.write("file", "");
    let done = place.run(&["runs", "--dir", "file"]).exits(2);
    assert!(done.stderr.contains("not a directory"), "{done:?}");
}

#[test]
fn exports_say_which_formats_there_are() {
    refused(&["pareto", "--export", "f.pdf"], &["f.pdf", ".svg, .png, .csv"]);
    refused(&["timeline", "last", "--export", "f.csv"], &["f.csv", ".svg, .png"]);
}

#[test]
fn a_timeline_without_a_terminal_says_how_to_get_one() {
    refused(&["timeline", "last"], &["terminal", "-o"]);
}

#[test]
fn traces_of_other_programs_are_recognised() {
    let place = Place::new();
    place.write("kineto.json", "{\"events\": []}");
    place.write("nsys.sqlite", "SQLite format 3\0 and so on");
    place.write("empty.json", "");
    place.write("notes.txt", "no trace at all");
    for (file, what) in [
        ("kineto.json", "a JSON object without traceEvents"),
        ("nsys.sqlite", "not a readable SQLite database"),
        ("empty.json", "empty"),
        ("notes.txt", "trace"),
    ] {
        let done = place.run(&["overlap", file]).exits(2);
        assert!(done.stderr.contains(file) && done.stderr.contains(what), "{done:?}");
    }
}

#[test]
fn an_experiment_with_a_mistake_shows_the_line() {
    let place = Place::new();
    place.write(
        "wrong.toml",
        "backend = \"sim\"\n[model]\nname = \"tiny\"\n[grid]\narchitecture = [\"standard\", \"laddr\"]\n",
    );
    let done = place.run(&["sweep", "wrong.toml"]).exits(2);
    for part in ["wrong.toml", ":5:", "laddr", "ladder"] {
        assert!(done.stderr.contains(part), "'{part}' is missing in:\n{}", done.stderr);
    }
    assert!(!place.path().join("runs").exists(), "nothing was started");
}
