//! Stored runs on the command line: found, tagged, noted, deleted, restored, and all of that killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::support::Place;

/// Simulated runs of three architectures and two TPs as one batch; its id.
fn simulated(place: &Place) -> String {
    place.write(
        "few.toml",
        "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3-8b\"\n\
         [workload]\nprompt_tokens = 64\noutput_tokens = 8\n[grid]\n\
         architecture = [\"standard\", \"ladder\", \"upper-bound\"]\ntp = [2, 4]\n",
    );
    let rows = place.run(&["sweep", "few.toml", "--format", "json"]).exits(0).json_lines();
    let run = rows[0]["run"].as_str().expect("an id").to_owned();
    run.split_once(':').expect("BATCH:ROW").0.to_owned()
}

fn ids(place: &Place, arguments: &[&str]) -> Vec<String> {
    let listed = place.run(&[&["runs", "--format", "json"], arguments].concat()).exits(0).json();
    let runs = listed.as_array().expect("a list").iter();
    runs.filter_map(|run| Some(run["run"].as_str()?.to_owned())).collect()
}

#[test]
fn runs_are_found_sorted_and_shown_in_chosen_columns() {
    let place = Place::new();
    simulated(&place);
    assert_eq!(ids(&place, &["--filter", "upb"]).len(), 2, "letters in order");
    assert_eq!(ids(&place, &["--filter", "-arch:ladder tp:4"]).len(), 2);
    let done =
        place.run(&["runs", "--sort", "arch,tp:desc", "--columns", "arch,tp,gap", "--format", "csv"]);
    let csv = done.exits(0).stdout;
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "architecture,tp,hidden_share,provenance");
    assert!(rows[1].starts_with("ladder,4,0."), "{csv}");
    assert!(rows[3] == "standard,4,0,simulated" && rows[6] == "upper-bound,2,1,simulated", "{csv}");
    let table = place.run(&["runs", "--columns", "run,tpot"]).exits(0).stdout;
    assert!(table.contains("tpot_p50_ms") && !table.contains("architecture"), "{table}");
    for (arguments, wanted) in [
        (["--filter", "arhc:ladder"], "did you mean 'arch'"),
        (["--filter", "tp>many"], "'many' is not a number"),
        (["--columns", "tpp"], "did you mean 'tp'"),
    ] {
        let done = place.run(&[&["runs"], &arguments[..]].concat()).exits(2);
        assert!(done.stderr.contains(wanted), "{done:?}");
    }
}

#[test]
fn one_language_chooses_runs_for_every_verb() {
    let place = Place::new();
    simulated(&place);
    assert_eq!(ids(&place, &["--filter", "tp:2,4 arch:ladder"]).len(), 2);
    assert_eq!(
        ids(&place, &["--filter", "arch:upper_bound"]).len(),
        ids(&place, &["--filter", "upb"]).len()
    );
    let newest = ids(&place, &["--filter", "arch:ladder"]).pop().expect("a run with ladder");
    let shown = place.run(&["show", "--filter", "arch:ladder", "--format", "json"]).exits(0);
    assert_eq!(shown.json()["run"], newest.as_str());
    assert!(shown.stderr.contains("2 of 6 runs, filter arch:ladder"), "{}", shown.stderr);
    assert!(shown.stderr.contains(&format!("the newest of them: {newest}")), "{}", shown.stderr);
    let overlap = place.run(&["overlap", "--filter", "arch:ladder tp:2", "--format", "json"]).exits(0);
    assert_eq!(overlap.json()["ranks"].as_array().map(Vec::len), Some(2));
    place.run(&["timeline", "--filter", "arch:ladder tp:2", "--export", "t.svg"]).exits(0);
    let none = place.run(&["show", "--filter", "arch:parallel tp:64"]).exits(2);
    assert!(none.stderr.contains("no run in runs meets the filter"), "{}", none.stderr);
    place.run(&["show"]).exits(2);
    // what ladder is compared with stays
    let compare = ["compare", "--by", "architecture", "--filter", "arch:ladder", "--format", "json"];
    let pairs = place.run(&compare).exits(0).json()["pairs"].clone();
    let values: Vec<_> = pairs.as_array().into_iter().flatten().map(|pair| &pair["value"]).collect();
    assert!(!values.is_empty() && values.iter().all(|value| *value == "ladder"), "{pairs}");
}

#[test]
fn tags_and_notes_are_kept_shown_and_searched() {
    let place = Place::new();
    let batch = simulated(&place);
    let row = format!("{batch}:1");
    place.run(&["runs", "tag", "good,paper", &row]).exits(0);
    place.run(&["runs", "tag", "-paper", "--filter", "tag:good"]).exits(0);
    place.run(&["runs", "note", "checked by hand", &row]).exits(0);
    let listed = place.run(&["runs", "--tag", "good", "--format", "json"]).exits(0).json();
    assert_eq!(listed[0]["run"], row.as_str());
    assert_eq!(listed[0]["tags"], serde_json::json!(["good"]));
    assert_eq!(listed[0]["note"], "checked by hand");
    let table = place.run(&["runs", "--all", "--columns", "run,tags,note"]).exits(0).stdout;
    assert!(table.contains("checked by hand"), "{table}");
    let shown = place.run(&["show", &row, "--format", "json"]).exits(0).json();
    assert_eq!(shown["note"], "checked by hand");
    assert_eq!(ids(&place, &["--filter", "-tag:*"]).len(), 5);
    let frontier = place.run(&["pareto", "--filter", "tag:good", "--format", "json"]).exits(0).json();
    assert_eq!(frontier.as_array().map(Vec::len), Some(1));
    let done = place.run(&["runs", "tag", "two words", "--filter", "tp:2", "--dir", "runs"]).exits(0);
    assert!(done.stderr.contains("tagged 3 runs"), "{done:?}");
    assert!(place.run(&["runs", "tag", "a\"b", "last"]).exits(2).stderr.contains("cannot be a tag"));
    place.run(&["runs", "tag", "good"]).exits(2);
}

#[test]
fn what_is_deleted_is_in_no_verb_until_it_is_restored() {
    let place = Place::new();
    let batch = simulated(&place);
    let done = place.run(&["runs", "delete", "--filter", "arch:ladder"]).exits(0);
    assert!(done.stderr.contains("moved 2 runs to the trash"), "{done:?}");
    assert_eq!(ids(&place, &[]).len(), 4);
    let trash = place.run(&["runs", "trash", "--format", "json"]).exits(0).json();
    assert_eq!(trash["rows"], serde_json::json!([[batch, 2]]));
    let compared = place.run(&["compare", "--by", "architecture", "--format", "json"]).exits(0).json();
    let pairs = compared["pairs"].as_array().expect("pairs");
    assert!(pairs.iter().all(|pair| pair["value"] != "ladder") && pairs.len() == 2, "{compared}");
    let one = format!("{batch}:2");
    let told = place.run(&["show", &one]).exits(2).stderr;
    assert!(told.contains("is deleted") && told.contains("runs restore"), "{told}");
    place.run(&["runs", "restore", &one]).exits(0);
    assert_eq!(ids(&place, &[]).len(), 5);
    place.run(&["runs", "restore"]).exits(0);
    assert_eq!(ids(&place, &[]).len(), 6);
    assert!(place.run(&["runs", "restore"]).exits(0).stderr.contains("nothing to restore"));
    place.run(&["runs", "delete", &batch]).exits(0);
    assert!(place.run(&["runs", "empty-trash"]).exits(0).stderr.contains("1 batch file"));
    assert_eq!(ids(&place, &[]).len(), 0);
    place.run(&["runs", "restore", &one]).exits(2);
}

#[test]
fn a_batch_comes_back_by_its_name() {
    let place = Place::new();
    let batch = simulated(&place);
    let all = ids(&place, &[]);
    place.run(&["runs", "delete", "--filter", "arch:ladder"]).exits(0);
    place.run(&["runs", "delete", "--filter", "arch:standard"]).exits(0);
    assert_eq!(ids(&place, &[]).len(), 2);
    let done = place.run(&["runs", "restore", &batch]).exits(0);
    assert!(done.stderr.contains("restored 4 runs"), "of both deletions: {done:?}");
    assert_eq!(ids(&place, &[]), all);
    let again = place.run(&["runs", "restore", &batch]).exits(2);
    assert!(again.stderr.contains("is not in the trash"), "{again:?}");
}

#[test]
fn a_directory_is_no_run_to_edit() {
    let place = Place::new();
    simulated(&place);
    let all = ids(&place, &[]);
    // `report runs` means a directory; to delete all that is in it takes more than its name
    for name in ["runs", "./runs", "runs/"] {
        for edit in [&["runs", "delete", name][..], &["runs", "tag", "good", name]] {
            let refused = place.run(edit).exits(2);
            assert!(refused.stderr.contains(&format!("'{name}'")), "{refused:?}");
        }
    }
    assert_eq!(ids(&place, &[]), all);
    assert_eq!(ids(&place, &["--filter", "tag:good"]).len(), 0);
}

#[test]
fn deleting_and_tagging_killed_at_any_moment_loses_no_run() {
    let place = Place::new();
    let batch = simulated(&place);
    for seed in ["1", "2", "3", "4"] {
        place
            .run(&[
                "run",
                "--model",
                "tiny",
                "--backend",
                "cpu",
                "--tp",
                "1",
                "--prompt-tokens",
                "4",
                "--output-tokens",
                "2",
                "--samples",
                "1",
                "--warmup",
                "0",
                "--rounds",
                "1",
                "--seed",
                seed,
            ])
            .exits(0);
    }
    let all = ids(&place, &[]);
    assert_eq!(all.len(), 10);
    for wait in 0..12 {
        let edits: [&[&str]; 2] =
            [&["runs", "delete", "--filter", "tp:1..2"], &["runs", "tag", "t", "--filter", "tp:1..4"]];
        for edit in edits {
            let started = place.start(edit);
            std::thread::sleep(Duration::from_millis(wait * 4));
            started.signal(Signal::KILL);
            started.wait();
        }
        let listed = ids(&place, &[]);
        let trash = place.run(&["runs", "trash", "--format", "json"]).exits(0).json();
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        let rows: u64 =
            trash["rows"].as_array().into_iter().flatten().filter_map(|row| row[1].as_u64()).sum();
        assert_eq!(listed.len() + count(&trash["runs"]) + rows as usize, 10, "{listed:?} {trash}");
        let done = place.run(&["runs"]).exits(0);
        assert!(!done.stderr.contains("warning"), "{done:?}");
        for _ in 0..2 {
            place.run(&["runs", "restore"]).exits(0);
        }
        assert_eq!(ids(&place, &[]), all, "after {} ms; {batch}", wait * 4);
    }
}

#[test]
fn doctor_finds_a_digit_that_was_changed_in_a_store() {
    let place = Place::new();
    simulated(&place);
    let cpu = ["run", "--backend", "cpu", "--model", "tiny", "--samples", "1", "--format", "json"];
    let id = place.run(&cpu).exits(0).json()["run"].as_str().expect("an id").to_owned();
    let check = ["doctor", "--store", "runs", "--format", "json"];
    let clean = place.run(&check).exits(0).json();
    assert_eq!(
        (&clean["runs"], &clean["segments"], &clean["traces"]),
        (&1.into(), &1.into(), &1.into())
    );
    place.write("runs/notes.txt", "mine");
    for name in ["record.json", "trace.parquet"] {
        let path = place.path().join("runs").join(&id).join(name);
        let whole = fs::read(&path).expect("it is stored");
        let at = whole.iter().position(|byte| *byte == b'7').expect("a digit");
        let mut changed = whole.clone();
        changed[at] = b'8';
        fs::write(&path, changed).expect("written");
        let found = place.run(&check).exits(1).json();
        assert_eq!(found["damaged"][0]["path"], format!("{id}/{name}"), "{found}");
        assert_eq!(found["foreign"], serde_json::json!(["notes.txt"]));
        let table = place.run(&["doctor", "--store", "runs"]).exits(1).stdout;
        let line = table.lines().find(|line| line.contains(name)).expect("its line");
        assert_eq!(line.matches("damaged").count(), 1, "{line}");
        if name == "record.json" {
            assert!(place.run(&["runs"]).exits(0).stderr.contains("it was changed after"));
            place.run(&["show", &id]).exits(1);
        }
        fs::write(&path, whole).expect("written");
    }
    place.run(&["doctor", "--store", "nowhere"]).exits(2);
}

/// Every format in which runs were ever stored: a directory of `tests/stores` each, named by the version of its
/// batches, with a run that was tagged and noted, one in the trash, and the two cells of `two.toml`.
#[test]
fn stores_of_every_format_stay_open() {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores");
    let formats = fs::read_dir(&stores).unwrap().map(|entry| entry.unwrap().path());
    let mut formats: Vec<PathBuf> = formats.filter(|path| path.is_dir()).collect();
    formats.sort();
    assert_eq!(formats.len(), 2, "a store a format");
    for format in formats {
        let place = Place::new();
        copy(&format, &place.path().join("runs"));
        assert_eq!(ids(&place, &[]).len(), 3, "{format:?}");
        let noted = ids(&place, &["--filter", "tag:good note:\"a note\" arch:ladder prov:emulated"]);
        assert_eq!(noted.len(), 1, "{format:?}");
        let shown = place.run(&["show", &noted[0], "--format", "json"]).exits(0).json();
        let stored = fs::read(place.path().join("runs").join(&noted[0]).join("record.json")).unwrap();
        let stored: Value = serde_json::from_slice(&stored).unwrap();
        assert_eq!(shown["metrics"], stored["metrics"], "{format:?}");
        let sims = place.run(&[
            "runs",
            "--filter",
            "prov:simulated",
            "--columns",
            "arch,tpot",
            "--format",
            "csv",
        ]);
        let sims = sims.exits(0).stdout;
        assert!(sims.lines().count() == 3 && !sims.contains(",,"), "{format:?}: {sims}");
        place.run(&["runs", "restore"]).exits(0);
        assert_eq!(ids(&place, &[]).len(), 4, "{format:?}");
        // finished cells are found again: nothing is left to do
        let again = place.run(&["sweep", stores.join("two.toml").to_str().unwrap()]).exits(0);
        assert_eq!(ids(&place, &[]).len(), 4, "{format:?}: {again:?}");
    }
}

#[test]
fn what_a_newer_version_stored_is_named_with_its_version_and_left_as_it_is() {
    let place = Place::new();
    let runs = place.path().join("runs");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores/3"), &runs);
    let record = runs.join("20261122-192855-ladder-ecee5d/record.json");
    let newer = fs::read_to_string(&record).unwrap().replace("\"schema\": 1,", "\"schema\": 7,");
    // what this build knows of it is read, and said to be of another format
    fs::write(&record, &newer).unwrap();
    let shown =
        place.run(&["show", "20261122-192855-ladder-ecee5d", "--format", "json"]).exits(0).json();
    let warnings = shown["warnings"].to_string();
    assert!(warnings.contains("record format 7 is newer than this build's 1"), "{warnings}");
    // what it does not know is refused with the format
    let strange = newer.replace("\"emulated-link\"", "\"entangled\"");
    fs::write(&record, &strange).unwrap();
    let listed = place.run(&["runs", "--all", "--columns", "run,tags,note"]);
    let refused = listed.stderr.contains("record.json: record format 7 is newer than this build's 1");
    assert!(refused && listed.stdout.contains(":1"), "the others are there: {listed:?}");
    assert_eq!(fs::read_to_string(&record).unwrap(), strange);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() { copy(&entry, &to) } else { fs::copy(&entry, &to).map(drop).unwrap() }
    }
}
