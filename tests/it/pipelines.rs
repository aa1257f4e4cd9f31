//! The command line in other people's pipelines: gates against a baseline, runs for notebooks, errors for programs.

use serde_json::Value;

use crate::support::Place;

/// Cells of a simulated grid; `link` is the latency of the link (us).
fn grid(place: &Place, name: &str, batches: &str, link: u32) -> String {
    let file = format!("{name}.toml");
    place.write(
        &file,
        &format!(
            "backend = \"sim\"\nmodel = \"llama-3.2-1b\"\noutput_tokens = 4\n[grid]\narchitecture = [\"standard\", \"ladder\"]\n\
             tp = [2]\nbatch = {batches}\n[links]\non = \"emulated:alpha_us={link},gb_s=100\"\n"
        ),
    );
    file
}

#[test]
fn a_gate_holds_fails_and_says_what_it_cannot_judge() {
    let place = Place::new();
    let file = grid(&place, "grid", "[1, 4]", 10);
    place.run(&["sweep", &file]).exits(0);
    place.run(&["baseline", "set", "main"]).exits(0);
    let listed = place.run(&["baseline", "list", "--format", "json"]).exits(0).json();
    assert_eq!((listed[0]["name"].as_str(), listed[0]["cells"].as_u64()), (Some("main"), Some(4)));

    // nothing was run since: no partner
    let gate = ["compare", "--baseline", "main", "--gate", "tpot<+3%", "--format", "json"];
    let done = place.run(&gate).exits(2);
    assert_eq!(done.json()["without_partner"].as_array().map(Vec::len), Some(4));
    assert!(done.stderr.contains("no verdict for 4 cells"), "{}", done.stderr);

    // the same numbers again: it holds, by rows with keys that stay the same
    place.run(&["sweep", &file, "--again", "--baseline", "main", "--gate", "tpot<+3%"]).exits(0);
    let held = place.run(&gate).exits(0).json();
    assert_eq!((held["held"].as_bool(), held["rows"].as_array().map(Vec::len)), (Some(true), Some(4)));
    let row = &held["rows"][0];
    assert_eq!((row["change"].as_f64(), row["provenance"].as_str()), (Some(0.0), Some("simulated")));
    assert_eq!(row["decided_by"], "change");
    // what a filter leaves out is not missed
    let some = place.run(&[&gate[..], &["--filter", "arch:ladder"]].concat()).exits(0).json();
    assert_eq!(some["rows"].as_array().map(Vec::len), Some(2), "{some}");

    // a baseline is a file that goes elsewhere, and a stricter gate fails: nothing is faster by 1 %
    let elsewhere = Place::new();
    let file = grid(&elsewhere, "grid", "[1, 4]", 10);
    let baseline = place.path().join("runs/baselines/main.json");
    let baseline = baseline.to_str().unwrap_or_default();
    let done = elsewhere.run(&["sweep", &file, "--baseline", baseline, "--gate", "tpot<-1%"]).exits(4);
    assert!(done.stdout.contains("violated") && done.stderr.contains("4 of 4"), "{done:?}");
    let keys = |value: &Value| -> Vec<String> {
        let rows = value["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["key"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let there = elsewhere
        .run(&[
            "compare",
            "--baseline",
            baseline,
            "--gate",
            "tpot<+3%",
            "--gate",
            "tok/s>-1%",
            "--format",
            "json",
        ])
        .exits(0)
        .json();
    assert_eq!(there["rows"].as_array().map(Vec::len), Some(8), "each gate of each cell");
    assert!(keys(&held).iter().all(|key| keys(&there).contains(key)));

    place.run(&["baseline", "delete", "main"]).exits(0);
    let gone = place.run(&["compare", "--baseline", "main", "--gate", "tpot<3%"]).exits(2);
    assert!(gone.stderr.contains("no baseline 'main'"), "{}", gone.stderr);
    for (wrong, said) in [("tpot3%", "neither < nor >"), ("tpo<3%", "tpot")] {
        let done = place.run(&["compare", "--baseline", "main", "--gate", wrong]).exits(2);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    assert!(place.run(&["compare", "--gate", "tpot<3%"]).exits(2).stderr.contains("--baseline"));
}

#[test]
fn a_sweep_is_judged_by_its_own_cells_and_told_before_it_runs_what_cannot_be() {
    let place = Place::new();
    let file = grid(&place, "grid", "[1, 4]", 10);
    let other = grid(&place, "other", "[2]", 10);
    let gates = ["--gate", "tok/s>-1%", "--format", "json"];
    let asked = |file: &str, more: &[&str]| place.run(&[&["sweep", file], more, &gates].concat());
    let unknown = asked(&file, &["--baseline", "mian"]).exits(2);
    assert!(unknown.stderr.contains("mian") && unknown.stdout.is_empty(), "{unknown:?}");
    assert!(!place.path().join("runs/batches").exists(), "nothing was run");
    for file in [&file, &other] {
        place.run(&["sweep", file]).exits(0);
    }
    place.run(&["baseline", "set", "main"]).exits(0);
    asked(&other, &["--again", "--baseline", "main"]).exits(0);
    // the link is slower now under the same name: another cell, which the baseline does not have
    grid(&place, "grid", "[1, 4]", 50);
    let slower = asked(&file, &["--baseline", "main"]).exits(2);
    assert!(slower.stderr.contains("contains no cell of grid"), "{}", slower.stderr);
    // an exit status of 4 comes with an error for programs, the last line
    grid(&place, "grid", "[1, 4]", 10);
    let stricter = ["sweep", "grid.toml", "--again", "--baseline", "main", "--gate", "tpot<-1%"];
    let done = place.run(&[&stricter[..], &["--format", "json"]].concat()).exits(4);
    let last: Value =
        serde_json::from_str(done.stderr.lines().last().unwrap_or_default()).expect("JSON");
    assert!(last["error"].as_str().is_some_and(|text| text.contains("4 of 4")), "{last}");
}

#[test]
fn runs_are_exported_with_the_filter_that_chose_them() {
    let place = Place::new();
    let file = grid(&place, "grid", "[1, 4]", 10);
    place.run(&["sweep", &file]).exits(0);
    let done = place.run(&["export", "a/runs.parquet", "--filter", "arch:ladder"]).exits(0);
    assert!(done.stderr.contains("2 of 4 runs"), "{}", done.stderr);
    let bytes = std::fs::read(place.path().join("a/runs.parquet")).expect("the file");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let done = place.run(&["export", "runs.csv"]).exits(2);
    assert!(done.stderr.contains(".parquet") && !place.path().join("runs.csv").exists());
}

#[test]
fn errors_are_json_where_results_are() {
    let place = Place::new();
    let error = |arguments: &[&str]| -> Value {
        let done = place.run(arguments).exits(2);
        let last = done.stderr.lines().last().unwrap_or_default().to_owned();
        serde_json::from_str(&last).unwrap_or_else(|e| panic!("{e}: {last}"))
    };
    let unknown = error(&["run", "--model", "tinny", "--format", "json"]);
    assert!(unknown["error"].as_str().is_some_and(|text| text.contains("tinny")), "{unknown}");
    assert!(unknown["help"].as_str().is_some_and(|text| text.contains("tiny")), "{unknown}");
    let argument = error(&["runs", "--format=json", "--nonsense"]);
    assert!(argument["error"].as_str().is_some_and(|text| text.contains("--nonsense")), "{argument}");
    place.write("x.toml", "backend = \"sim\"\nmodel = \"tiny\"\n[grid]\ntpp = [1]\n");
    let in_file = error(&["sweep", "x.toml", "--format", "json"]);
    assert!(in_file["error"].as_str().is_some_and(|text| text.contains("x.toml:4:1")), "{in_file}");
    // for people it stays as it was
    assert!(place.run(&["run", "--model", "tinny"]).exits(2).stderr.starts_with("error: "));
}
