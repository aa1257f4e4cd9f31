//! The scripts that measure on a GPU (`experiments/gpu`) run to their end on the software device, with a
//! model that is worth no measuring.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::device::{Device, TIMED, device};
use crate::support::{Done, Place, finish, finish_within};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/gpu").join(name)
}

/// Whether there are the interpreters that the scripts need.
fn interpreters() -> bool {
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if there("bash") && there("python3") {
        return true;
    }
    let required = std::env::var_os("LADDERSCOPE_REQUIRE_TOOLCHAIN").is_some_and(|v| v == "1");
    assert!(!required, "bash and python3 are needed to measure");
    eprintln!("skipped: measuring needs bash and python3");
    false
}

fn measure(device: &Device, place: &Place, more: &[&str]) -> Done {
    measure_with(device, place, more, &[TIMED])
}

fn measure_with(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    let cell = device.command(place, &[]);
    let binary = cell.get_program();
    let mut command = Command::new("bash");
    command.current_dir(place.path());
    for (name, value) in cell.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.envs(variables.iter().copied());
    command.arg(script("measure.sh")).arg(binary).arg(place.path().join("results"));
    command.args([
        "--model",
        "tiny",
        "--large",
        "tiny",
        "--huge",
        "tiny",
        "--large-tp",
        "2",
        "--huge-tp",
        "4",
    ]);
    command.args([
        "--prompt",
        "4",
        "--output",
        "12",
        "--samples",
        "2",
        "--dtype",
        "f32",
        "--batches",
        "1",
    ]);
    command.args(["--links", "p2p-off", "--no-torch"]).args(more);
    // a dozen runs, which the budget bounds
    finish_within(Duration::from_secs(600), command)
}

fn summary(place: &Place) -> Value {
    let text = std::fs::read_to_string(place.path().join("results/summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn measuring_leaves_every_part_a_summary_and_traces_to_keep() {
    let device = device!();
    if !interpreters() {
        return;
    }
    let place = Place::new();
    let parts = "decode,large_tp2,prefill,timing-cupti,tuning,trace";
    let done = measure(device, &place, &["--budget", "500", "--parts", parts]).exits(0);
    for wanted in ["decode batch 1", "gap tiny TP 2 b1 p2p-off", "prefill", "emulated-link"] {
        assert!(done.stdout.contains(wanted), "{wanted}: {done:?}");
    }
    let said = summary(&place);
    let cells = said["cells"].as_array().expect("cells");
    let architectures: Vec<&str> = cells.iter().filter_map(|c| c["architecture"].as_str()).collect();
    assert_eq!(architectures, ["ladder", "parallel", "standard", "upper-bound"], "{said}");
    for cell in cells {
        assert_eq!(cell["provenance"], "emulated-link");
        assert!(cell["simulated"]["tpot_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{cell}");
    }
    let of =
        |name: &str| said["targets"].as_array().expect("targets").iter().find(|t| t["target"] == name);
    let closed = of("gap tiny TP 2 b1 p2p-off").expect("the gap that ladder closes");
    assert!(closed["value"].as_f64().is_some_and(|share| share > 0.0 && share <= 1.0), "{closed}");
    let overhead = of("timing batch 1").expect("the cost of timing");
    assert!(overhead["value"].as_f64().is_some_and(|ratio| ratio > 0.5), "{overhead}");
    for without in [
        "b1-PROGRAMMATIC",
        "b1-PREFETCH",
        "b1-PRODUCTS-own",
        "b1-PRODUCTS-library",
        "ladder-SMS_FOR_COMM",
    ] {
        let ratio = of(&format!("tuning-{without}")).expect("what it is worth");
        assert!(ratio["value"].as_f64().is_some_and(|ratio| ratio > 0.5), "{ratio}");
    }
    // what failed says why, and nothing else is lost by it
    let failed: Vec<&Value> =
        said["parts"].as_array().expect("parts").iter().filter(|p| p["status"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{said}");
    assert_eq!(failed[0]["part"], "timing-cupti");
    assert!(failed[0]["why"].as_str().is_some_and(|why| why.contains("CUPTI")), "{failed:?}");

    // what is there is not measured again
    let before = std::fs::read(place.path().join("results/parts/decode-b1.json")).expect("a part");
    let again = measure(device, &place, &["--budget", "0", "--parts", "decode,huge_tp4"]).exits(0);
    assert!(again.stderr.contains("huge_tp4-b1-p2p-off-standard: skipped"), "{again:?}");
    assert!(!again.stderr.contains("decode-b1"), "{again:?}");
    let after = std::fs::read(place.path().join("results/parts/decode-b1.json")).expect("a part");
    assert_eq!(before, after);

    // traces, with an entry each that fits them
    let binary = device.command(&place, &[]).get_program().to_owned();
    let mut collect = Command::new("python3");
    collect.arg(script("collect.py")).args(["results", "kept"]).arg(binary).current_dir(place.path());
    finish(collect).exits(0);
    let manifest = std::fs::read_to_string(place.path().join("kept/MANIFEST.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let kept = manifest["trace"].as_array().expect("entries");
    assert_eq!(kept.len(), 2);
    for entry in kept {
        let path = place.path().join("kept").join(entry["file"].as_str().expect("a file"));
        let meta = trace::read(&path).expect("a trace").meta;
        assert_eq!(entry["recorder"].as_str(), Some(meta.recorder.as_str()));
        assert_eq!(entry["provenance"].as_str(), Some("emulated-link"));
    }
}

/// A node of GPUs, in one command: what it leaves is a directory of runs.
#[test]
fn a_node_is_measured_over_nccl_with_and_without_p2p_and_the_switch() {
    let device = device!();
    if !interpreters() {
        return;
    }
    let place = Place::new();
    // so many that eight can be set aside
    let gpus = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_MULTIPROCESSORS", "12")];
    let more = ["--gpus", "2", "--budget", "500", "--parts", "node_tp2"];
    measure_with(device, &place, &more, &gpus).exits(0);
    let mut settings: Vec<String> = Vec::new();
    let runs = place.run(&["runs", "--dir", "results/runs", "--format", "json"]).exits(0).json();
    for record in runs.as_array().expect("runs") {
        let spec = &record["spec"];
        assert_eq!(record["status"], "ok", "{record}");
        let nvls = spec["nvls"].as_str().unwrap_or("on");
        settings.push(format!(
            "{} {nvls} {}",
            spec["p2p"].as_str().unwrap_or("?"),
            spec["architecture"]
        ));
    }
    for wanted in ["on on", "off off", "off on", "on off"] {
        let of = settings.iter().filter(|setting| setting.starts_with(wanted)).count();
        assert!(of >= 4, "{wanted}: {settings:?}");
    }
    place.run(&["report", "--dir", "results/runs", "-o", "report.html"]).exits(0);

    // packed, it is read on another machine
    place.run(&["import", "results.tar.gz", "--dir", "elsewhere"]).exits(0);
    let copied = place.run(&["runs", "--dir", "elsewhere", "--format", "json"]).exits(0).json();
    assert_eq!(copied, runs);
}

#[test]
fn wrong_options_are_refused_and_the_comparison_with_pytorch_is_python() {
    if !interpreters() {
        return;
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(script("measure.sh")).args(arguments);
        finish(command)
    };
    let wrong = run(&["/bin/true", "/nowhere/results", "--bugdet", "3"]).exits(2);
    assert!(wrong.stderr.contains("unknown option '--bugdet'"), "{wrong:?}");
    assert!(
        run(&["/bin/true", "/nowhere/results", "--budget"]).exits(2).stderr.contains("needs a value")
    );
    assert!(run(&["/etc/passwd", "/nowhere/results"]).exits(2).stderr.contains("is no program"));
    let mut parse = Command::new("python3");
    parse
        .args(["-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"])
        .arg(script("torch_decode.py"));
    finish(parse).exits(0);
}
