//! Simulated sweeps of many cells: killed outright and resumed, printed as they come, listed in short,
//! and their rows addressed like runs.

use rustix::process::Signal;

use crate::support::{Place, wait_for};

/// 10,000 cells of the smallest model: more than two segments, some seconds.
fn grid() -> String {
    let numbers = |n: usize| (1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    format!(
        "backend = \"sim\"\nmodel = \"tiny\"\noutput_tokens = 2\n[grid]\nprompt_tokens = [{}]\nbatch = [{}]\n",
        numbers(100),
        numbers(100)
    )
}

fn entries(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path().join("runs/batches")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_simulated_sweep_killed_outright_goes_on_where_its_last_segment_ended() {
    let place = Place::new();
    place.write("grid.toml", &grid());
    let sweep = place.start(&["sweep", "grid.toml", "--format", "csv"]);
    wait_for("the first segment", || (!entries(&place).is_empty()).then_some(()));
    sweep.signal(Signal::KILL);
    sweep.wait();

    let cells = place.run(&["sweep", "grid.toml", "--format", "json"]).exits(0).json_lines();
    let order: Vec<(u64, u64)> = cells
        .iter()
        .map(|cell| {
            assert_eq!(cell["status"], "ok", "{cell}");
            let number = |key: &str| cell["spec"][key].as_u64().unwrap_or_default();
            (number("prompt_tokens"), number("batch"))
        })
        .collect();
    let all: Vec<(u64, u64)> = (1..=100).flat_map(|p| (1..=100).map(move |b| (p, b))).collect();
    assert!(order == all, "every cell once, in file order");
    let left = entries(&place);
    assert!(left.iter().all(|name| name.ends_with(".parquet")), "{left:?}");
    let listed = place.run(&["runs"]).exits(0).stdout;
    let rows = listed.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok());
    assert_eq!(rows.sum::<u32>(), 10_000, "no cell was simulated twice: {listed}");
}

#[test]
fn rows_of_a_batch_are_addressed_like_runs() {
    let place = Place::new();
    place.write(
        "small.toml",
        "backend = \"sim\"\nmodel = \"tiny\"\noutput_tokens = 4\ntp = 2\n[grid]\narchitecture = [\"standard\", \"ladder\", \"upper-bound\"]\nbatch = [1, 2]\n",
    );
    let cells = place.run(&["sweep", "small.toml", "--format", "json"]).exits(0).json_lines();
    let id = cells[3]["run"].as_str().unwrap_or_default().to_owned();
    let (batch, row) = id.split_once(':').unwrap_or_default();
    assert_eq!(row, "3");
    let shown = place.run(&["show", &id, "--format", "json"]).exits(0).json();
    assert_eq!(shown["metrics"], cells[3]["metrics"]);
    assert_eq!(shown["environment"], cells[3]["environment"]);
    let prefix = format!("{}:3", &batch[..batch.len() - 2]);
    assert_eq!(place.run(&["show", &prefix, "--format", "json"]).exits(0).json()["run"], id);
    place.run(&["timeline", &id, "--export", "row.svg"]).exits(0);
    assert!(place.path().join("row.svg").is_file(), "it was simulated again");
    let overlap = place.run(&["overlap", &id, "--format", "json"]).exits(0).json();
    assert_eq!(overlap["ranks"].as_array().map(Vec::len), Some(2));

    let points = place.run(&["pareto", batch, "--format", "json"]).exits(0).json();
    assert_eq!(points.as_array().map(Vec::len), Some(6));
    assert!(points[0]["dominated_by"].is_null() && points[5]["dominated_by"].is_string(), "{points}");
    let table = place.write("mine.csv", "architecture,tpot_ms,tp,tokens_per_s\nmine,0.5,2,1000\n");
    let answer = place.run(&[
        "pareto",
        "--x",
        "tpot",
        "--y",
        "total",
        "--at",
        "--area",
        "--log=x",
        "--overlay",
        "mine.csv",
        "--overlay",
        "published",
        "--format",
        "json",
    ]);
    let answer = answer.exits(0).json();
    assert_eq!(answer["axes"], serde_json::json!({"x": "tpot", "y": "total"}));
    assert_eq!(answer["points"].as_array().map(Vec::len), Some(6));
    assert!(answer["at"][0]["limit"].is_number(), "{}", answer["at"]);
    let area = &answer["area"][0];
    assert_eq!((&area["architecture"], &area["baseline"]), (&"ladder".into(), &"standard".into()));
    assert!(area["gained_pct"].as_f64() > Some(0.0) && area["gained_pct_ci95"].is_null(), "{area}");
    assert_eq!((&area["x_scale"], &area["provenance"]), (&"log".into(), &"simulated".into()));
    assert_eq!(
        (&answer["overlay"][0]["source"], answer["overlay"][0]["tokens_per_s_per_user"].as_f64()),
        (&"mine.csv".into(), Some(2000.0))
    );
    let people =
        place.run(&["pareto", "--at", "1,5", "--area", "--overlay", "mine.csv"]).exits(0).stdout;
    for part in
        ["at most the limit (simulated)", "Frontier area gained over standard", "External points"]
    {
        assert!(people.contains(part), "{part}: {people}");
    }
    std::fs::write(&table, "tp,tpot_ms,tokens_per_s\n2,0.5,many\n").unwrap_or_default();
    let refused = place.run(&["pareto", "--overlay", "mine.csv"]).exits(2);
    assert!(
        refused.stderr.contains("mine.csv:2: tokens_per_s is 'many'; it must be a number above 0"),
        "{refused:?}"
    );
    place.run(&["pareto", "--x", "tpot", "--export", "f.svg"]).exits(0);
    place.run(&["pareto", "--x", "sideways"]).exits(2);
    place.run(&["pareto", "--x", "tpot", "--export", "f.csv"]).exits(0);
    let own = place.run(&["pareto", "--overlay", "f.csv", "--format", "json"]).exits(0).json();
    assert_eq!(own["overlay"].as_array().map(Vec::len), Some(6), "its own tables read back");
    assert_eq!(own["overlay"][0]["source"], "f.csv (simulated)", "and say what they are");

    let compared = place.run(&["compare", "--by", "architecture", "--format", "json"]).exits(0).json();
    assert_eq!(compared["pairs"].as_array().map(Vec::len), Some(4));
    assert!(compared["pairs"][0]["hidden_share"].is_number(), "{compared}");

    let listed = place.run(&["runs", "--format", "json"]).exits(0).json();
    let listed = listed.as_array().cloned().unwrap_or_default();
    assert_eq!(listed.len(), 6);
    assert_eq!(listed[3]["environment"], cells[3]["environment"], "programs get all of it");
    let short = place.run(&["runs"]).exits(0).stdout;
    assert!(short.contains(batch) && !short.contains(&format!("{batch}:3")), "{short}");
    assert!(place.run(&["runs", "--all"]).exits(0).stdout.contains(&id));
    let filtered = place.run(&["runs", "--filter", "architecture=ladder"]).exits(0).stdout;
    assert!(filtered.contains(&format!("{batch}:2")) && !filtered.contains(&format!("{batch}:0")));
}

#[test]
fn a_damaged_batch_is_named_and_the_rest_is_listed() {
    let place = Place::new();
    place.run(&["run", "--backend", "sim", "--model", "tiny"]).exits(0);
    let damaged = place.write("runs/batches/20260101-000000-sim-abcdef.parquet", "PAR1 is all there is");
    let listed = place.run(&["runs"]).exits(0);
    assert!(listed.stderr.contains(&*damaged.file_name().unwrap_or_default().to_string_lossy()));
    assert!(listed.stdout.contains("-sim-"), "{listed:?}");
    let shown = place.run(&["show", "20260101-000000-sim-abcdef:0"]).exits(1);
    assert!(shown.stderr.contains("abcdef.parquet"), "{shown:?}");
    assert!(!shown.stderr.contains("panicked"), "{shown:?}");
    assert_eq!(
        place.run(&["pareto", "--format", "json"]).exits(0).json().as_array().map(Vec::len),
        Some(1)
    );
}

/// What is listed is what the sweep then starts.
#[test]
fn a_dry_run_lists_what_a_sweep_would_start_and_writes_nothing() {
    let place = Place::new();
    place.write(
        "s.toml",
        "backend = \"sim\"\nmodel = \"llama-3.2-1b\"\noutput_tokens = 8\n[grid]\ntp = [2, 3]\nbatch = [1, 4]\n",
    );
    let dry = |more: &str| {
        let words: Vec<&str> = "sweep s.toml --dry-run --format json".split(' ').collect();
        let told = place.run(&[&words[..], &more.split_whitespace().collect::<Vec<_>>()].concat());
        let told = told.exits(0).json();
        (told["runs"].as_u64().unwrap(), told["stored"].as_u64().unwrap(), told["cells"].clone())
    };
    let (runs, stored, cells) = dry("");
    assert_eq!((runs, stored), (2, 0), "{cells}");
    let skipped: Vec<_> =
        cells.as_array().unwrap().iter().filter(|cell| cell["status"] == "skipped").collect();
    assert!(skipped.len() == 2 && skipped[0]["reason"].as_str().unwrap().contains('3'), "{cells}");
    assert!(!place.path().join("runs").exists(), "nothing is written");
    let cells = place.run(&["sweep", "s.toml", "--format", "json"]).exits(0).json_lines();
    assert_eq!(cells.iter().filter(|cell| cell["status"] == "ok").count(), 2);
    assert_eq!((dry("").0, dry("").1), (0, 2), "stored");
    assert_eq!((dry("--again").0, dry("--again").1), (2, 0), "all again");
    let since = dry("--again=2020-01-01T00:00:00Z");
    assert_eq!((since.0, since.1), (0, 2), "a repetition that began before the runs has ended");
}
