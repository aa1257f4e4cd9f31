//! The recorded traces that come with the repository: whole, as the manifest says, and readable.

#[path = "../../benches/made_up/trace.rs"]
mod made_up;

use std::path::Path;

use base::checksum::sha256;
use plan::Lane;
use trace::Span;

#[test]
fn every_trace_is_what_the_manifest_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let manifest: toml::Table =
        std::fs::read_to_string(dir.join("MANIFEST.toml")).unwrap().parse().unwrap();
    let traces = manifest["trace"].as_array().unwrap();
    assert!(!traces.is_empty());
    for trace in traces {
        let text =
            |key: &str| trace[key].as_str().unwrap_or_else(|| panic!("{key} is missing: {trace}"));
        let path = dir.join(text("file"));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(sha256(&bytes), text("sha256"), "{}", path.display());
        for key in ["hardware", "software", "command"] {
            assert!(!text(key).is_empty(), "{key} of {}", path.display());
        }
        let meta = trace::read(&path).unwrap().meta;
        assert_eq!(meta.provenance.as_str(), text("provenance"));

        let overlap = std::process::Command::new(env!("CARGO_BIN_EXE_ladderscope"))
            .args(["overlap", "--format", "json"])
            .arg(&path)
            .output()
            .unwrap();
        let overlap: serde_json::Value = serde_json::from_slice(&overlap.stdout).unwrap();
        let pct = overlap["all"]["overlap_pct"].as_f64().unwrap();
        let wanted = trace["overlap_pct"].as_float().unwrap();
        assert!((pct - wanted).abs() < 0.005, "{}: {pct} is not {wanted}", path.display());
    }
}

#[test]
fn a_trace_without_a_verb_is_opened_and_other_paths_name_the_verbs() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let manifest: toml::Table =
        std::fs::read_to_string(traces.join("MANIFEST.toml")).unwrap().parse().unwrap();
    let path = traces.join(manifest["trace"][0]["file"].as_str().unwrap());
    let path = path.to_str().unwrap();
    let output = |words: &[&str]| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_ladderscope")).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let by_verb = output(&["overlap", path]);
    assert_eq!((by_verb.0, output(&[path]).1), (Some(0), by_verb.1));
    for (words, wanted) in
        [(&["trace", path][..], "ladderscope timeline"), (&["no-such-trace.json"], "no such file")]
    {
        let (code, _, stderr) = output(words);
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(
            code == Some(2) && stderr.contains(wanted) && !stderr.contains("unrecognized"),
            "{stderr}"
        );
    }
}

/// What was measured, file by file.
#[test]
fn every_measurement_is_what_its_sums_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let manifest: toml::Table =
        std::fs::read_to_string(dir.join("MANIFEST.toml")).unwrap().parse().unwrap();
    for measurement in manifest["measurement"].as_array().unwrap() {
        let text = |key: &str| measurement[key].as_str().unwrap_or_else(|| panic!("{key} is missing"));
        let sums = std::fs::read_to_string(dir.join(text("sums"))).unwrap();
        assert_eq!(sha256(sums.as_bytes()), text("sha256"), "{}", text("sums"));
        for line in sums.lines() {
            let (wanted, file) = line.split_once("  ").unwrap();
            let path = dir.join(text("folder")).join(file);
            assert_eq!(sha256(std::fs::read(&path).unwrap()), wanted, "{}", path.display());
        }
    }
}

fn overlap(trace: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ladderscope"));
    command.arg("overlap").arg(trace).args(arguments).output().unwrap()
}

#[test]
fn the_overlap_report_fits_a_terminal_and_has_its_sections() {
    let trace =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join("cpu-standard-tp2-600us.parquet");
    let text = String::from_utf8(overlap(&trace, &[]).stdout).unwrap();
    for section in [
        "Overlap by rank",
        "Idle per rank (mean)",
        "Exposed communication",
        "Steps: ",
        "Critical path of a step",
        "Stragglers: ranks that arrived last",
        "By module and kind",
    ] {
        assert!(text.contains(section), "'{section}' is missing in\n{text}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?} columns in\n{text}");
}

#[test]
fn every_table_of_overlap_is_csv_with_a_row_for_each() {
    let trace =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join("cpu-standard-tp2-600us.parquet");
    let json: serde_json::Value =
        serde_json::from_slice(&overlap(&trace, &["--format", "json"]).stdout).unwrap();
    for (by, key) in
        [("step", "steps"), ("layer", "layers"), ("collective", "collectives"), ("kind", "kinds")]
    {
        let csv = overlap(&trace, &["--by", by, "--format", "csv"]).stdout;
        let lines = String::from_utf8(csv).unwrap().lines().count();
        let rows = json[key].as_array().unwrap().len();
        assert!(rows > 1, "{key}");
        assert_eq!(lines, rows + 1, "--by {by}");
    }
    let exposed = &json["exposed_stretches"];
    let longest = exposed["longest"].as_array().unwrap();
    let csv =
        String::from_utf8(overlap(&trace, &["--by", "exposed", "--format", "csv"]).stdout).unwrap();
    assert_eq!(csv.lines().count(), longest.len() + 1);
    assert!(exposed["count"].as_u64().unwrap() >= longest.len() as u64);
    let lengths: Vec<f64> = longest.iter().map(|s| s["length_us"].as_f64().unwrap()).collect();
    assert!(lengths.windows(2).all(|pair| pair[0] >= pair[1]), "the longest first");
    for key in ["ranks", "at_us", "step", "collective", "waited", "effect"] {
        assert!(longest[0].get(key).is_some(), "{key}: {}", longest[0]);
    }
    let told = String::from_utf8(overlap(&trace, &["--by", "exposed"]).stdout).unwrap();
    assert!(told.contains("its effect on the next operation") && told.contains("all_reduce"), "{told}");
    let none = overlap(&trace, &["--by", "range"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("no NVTX ranges"));
}

#[test]
fn the_file_of_a_trace_counts_against_the_memory_limit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/cpu-ladder-tp2-600us.parquet");
    let rows = 7682 * size_of::<Span>();
    let output = overlap(&path, &["--memory-limit", &(rows + 1).to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("of memory; the limit is 492 kB") && said.contains("--memory-limit"),
        "{said}"
    );
}

#[test]
fn a_big_noisy_trace_comes_back_and_is_small() {
    let trace = made_up::big("llama-3-8b", 4, 300_000);
    assert_eq!(trace.spans.len(), 300_000);
    let key = |s: &Span| (s.sample, s.phase as u8, s.step, s.rank, s.lane as u8, s.start_ns);
    assert!(trace.spans.is_sorted_by_key(key), "ordered like those of a run");
    let waited = |s: &Span| s.lane == Lane::Comm && s.last_arrival_ns > s.start_ns;
    assert!(trace.spans.iter().any(waited), "ranks wait for each other");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.parquet");
    trace::write(&path, &trace).unwrap();
    assert!(trace::read(&path).unwrap() == trace);
    assert!(std::fs::metadata(&path).unwrap().len() < 300_000 * 10);
}

fn rewire(arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ladderscope"));
    command.arg("rewire").args(arguments).output().unwrap()
}

/// Two recorded runs of the same cell: standard, rewired as ladder, takes what ladder itself took.
#[test]
fn a_recorded_run_rewired_takes_what_the_recorded_ladder_took() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let of = |name: &str| dir.join(name).display().to_string();
    let standard = of("cpu-standard-tp2-600us.parquet");
    let output = rewire(&[&standard, "--architecture", "ladder,upper-bound", "--format", "json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((told["layers"].as_u64(), told["ranks"].as_u64()), (Some(12), Some(2)));
    assert_eq!(told["measured"]["speedup"].as_f64(), Some(1.0));
    assert_eq!(
        (&told["provenance"], &told["answers"][0]["provenance"]),
        (&"emulated-link".into(), &"simulated".into())
    );
    let table = String::from_utf8(rewire(&[&standard]).stdout).unwrap();
    assert!(table.contains("as run, emulated-link"), "{table}");
    let error = told["answers"][0]["error"].as_str().unwrap();
    assert!(error.starts_with("3 % mean TPOT error, not fitted: rewired traces on cpu"), "{error}");
    assert!(table.contains(&format!("Error: {error}.")), "{table}");
    let ladder = &told["answers"][0];
    assert_eq!((ladder["architecture"].as_str(), ladder["contended"].is_null()), (Some("ladder"), true));
    let interval = &ladder["alone"]["step_us_95"];
    let [low, high] = [0, 1].map(|at| interval[at].as_f64().unwrap());
    let recorded = overlap(Path::new(&of("cpu-ladder-tp2-600us.parquet")), &["--format", "json"]);
    let recorded: serde_json::Value = serde_json::from_slice(&recorded.stdout).unwrap();
    let steps = recorded["steps"].as_array().unwrap();
    let mut lengths: Vec<f64> = steps.iter().map(|step| step["duration_us"].as_f64().unwrap()).collect();
    lengths.sort_by(f64::total_cmp);
    let median = lengths[lengths.len() / 2];
    assert!(low < median && median < high, "{median} is not within {low} to {high}");
    // the verdict says so first, and says what it rests on
    let text = String::from_utf8(overlap(Path::new(&standard), &[]).stdout).unwrap();
    assert!(text.starts_with("Verdict\n"), "{text}");
    for part in ["exposed communication", "transfer-dominated", "best first"] {
        assert!(text.contains(part), "'{part}' is missing in {text}");
    }
    let ladder = text.lines().find_map(|line| line.trim().strip_suffix("  ladder"));
    let speedup = ladder.and_then(|line| line.split('x').next()?.parse::<f64>().ok());
    assert!(speedup.is_some_and(|speedup| (1.5..1.6).contains(&speedup)), "{text}");
}

#[test]
fn what_cannot_be_rewired_exits_with_2_and_says_why() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let of = |name: &str| dir.join(name).display().to_string();
    let (standard, ladder) = (of("cpu-standard-tp2-600us.parquet"), of("cpu-ladder-tp2-600us.parquet"));
    for (arguments, part) in [
        (vec![ladder.as_str()], "predictions start from a run of standard"),
        (vec![standard.as_str(), "--layers", "80"], "the run has 12"),
        (vec![standard.as_str(), "--architecture", "sync-drop:99"], "the last 99 layers"),
        (vec![standard.as_str(), "--architecture", "laddr"], "ladder"),
        (vec![standard.as_str(), "--architecture", "standard", "--collective", "fused"], "hardware"),
        // ladder succeeds, and nothing with the all-reduce that is asked for
        (vec![standard.as_str(), "--collective", "fused"], "hardware"),
        (vec![standard.as_str(), "--tp", "3"], "--tp 3 contradicts the trace"),
        (vec![standard.as_str(), "--step", "999"], "no step 999"),
    ] {
        let output = rewire(&arguments);
        let told = String::from_utf8_lossy(&output.stderr).replace("\n", " ");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(part), "'{part}' is missing in {told}");
    }
}

/// Every verb that opens a folder opens the recording that is asked for.
#[test]
fn a_recording_is_chosen_by_name_on_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let traces = dir.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    let event = |name: &str, start: u32, length: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {start}, "dur": {length}}}"#
        )
    };
    for (stage, at, length) in [("EXTEND", 1000, 50), ("DECODE", 9000, 20)] {
        for rank in 0..2 {
            let reduce = event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", at + 100, length);
            let events = format!("[{}, {reduce}]", event("gemm", at + rank, 90));
            std::fs::write(traces.join(format!("7-TP-{rank}-{stage}.trace.json")), events).unwrap();
        }
    }
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ladderscope"));
        let output = command.args(arguments).arg("--dir").arg(dir.path()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let folder = traces.to_str().unwrap();
    for (recording, comm_us) in [(None, 20.0), (Some("DECODE"), 20.0), (Some("extend"), 50.0)] {
        let mut arguments = vec!["overlap", folder, "--format", "json"];
        arguments.extend(recording.iter().flat_map(|name| ["--recording", *name]));
        let (code, text, _) = run(&arguments);
        assert_eq!(code, Some(0), "{recording:?}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ranks = json["ranks"].as_array().unwrap();
        assert_eq!(ranks.len(), 2, "{recording:?}");
        assert!(ranks.iter().all(|rank| rank["comm_us"] == comm_us), "{recording:?}: {text}");
        assert_eq!(json["import"]["ranks_from"], "ranks from file names");
        assert!(json["import"]["warnings"].to_string().contains("'DECODE'"), "{text}");
    }
    let (svg, csv) = (dir.path().join("a.svg"), dir.path().join("a.csv"));
    for arguments in [
        vec!["overlap", folder],
        vec!["trace", "convert", folder, csv.to_str().unwrap()],
        vec!["timeline", folder, "--export", svg.to_str().unwrap()],
        vec!["rewire", folder],
        vec!["calibrate", "--hardware", "h100_sxm", "--collectives", folder],
    ] {
        let (code, _, error) = run(&[&arguments[..], &["--recording", "MIXED"]].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(
            error.contains("no recording 'MIXED'") && error.contains("'EXTEND'"),
            "{arguments:?}: {error}"
        );
    }
    let convert = ["trace", "convert", folder, csv.to_str().unwrap(), "--recording", "EXTEND"];
    assert_eq!(run(&convert).0, Some(0));
    assert!(csv.is_file());
}
