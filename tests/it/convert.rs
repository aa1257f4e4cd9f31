//! `trace convert`: files that other programs open, and what is said of them.

use std::path::Path;

use serde_json::Value;

use crate::support::{Done, Place};

/// A directory with a simulated trace of 2 ranks in it, `t.parquet`.
fn place() -> Place {
    let place = Place::new();
    let arguments = "run --backend sim --model tiny --architecture ladder --tp 2 --prompt-tokens 8 \
                     --output-tokens 4 --trace t.parquet";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    place.run(&arguments).exits(0);
    place
}

fn convert(place: &Place, more: &[&str]) -> Done {
    place.run(&[&["trace", "convert"], more].concat())
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn to_chrome_json_with_its_provenance_and_a_report() {
    let place = place();
    let report = convert(&place, &["t.parquet", "t.json", "--format", "json"]).exits(0).json();
    let file: Value = serde_json::from_slice(&read(&place.path().join("t.json"))).unwrap();
    assert_eq!(file["ladderscope"]["provenance"], "simulated");
    let events = file["traceEvents"].as_array().unwrap();
    let kernels = events.iter().filter(|event| event["cat"] == "kernel").count();
    assert!(kernels > 100);
    assert_eq!(report["written"]["spans"], kernels);
    assert_eq!(report["read"]["used"]["span"], kernels);
    assert_eq!(report["provenance"], "simulated");
    assert_eq!(report["written"]["files"][0]["file"], "t.json");
    let table = convert(&place, &["t.parquet", "t.csv"]).exits(0).stdout;
    assert!(table.contains("simulated") && table.contains(&kernels.to_string()), "{table}");
    let csv = String::from_utf8(read(&place.path().join("t.csv"))).unwrap();
    assert_eq!(csv.lines().count(), kernels + 1);
}

#[test]
fn a_runs_trace_has_the_format_of_its_name_and_keeps_its_provenance() {
    let place = Place::new();
    let cpu = "cpu --link emulated:alpha_us=300,gb_s=1";
    for (backend, provenance) in [("sim", "simulated"), (cpu, "emulated-link")] {
        let names: [(&str, &[u8]); 3] =
            [("t.json", b"{\n"), ("t.json.zst", b"\x28\xb5\x2f\xfd"), ("t.trace", b"PAR1")];
        for (name, begins) in names {
            let run = format!(
                "run --model tiny --tp 2 --prompt-tokens 4 --output-tokens 4 --samples 1 --trace {name} --backend {backend}"
            );
            place.run(&run.split(' ').collect::<Vec<_>>()).exits(0);
            assert!(read(&place.path().join(name)).starts_with(begins), "{name}");
            let overlap = place.run(&["overlap", name, "--format", "json"]).exits(0).json();
            assert_eq!(overlap["provenance"], provenance, "{name}");
        }
    }
}

#[test]
fn a_stored_run_is_converted_by_its_name() {
    let place = place();
    let of = |name: &str, out: &str| {
        let report = convert(&place, &[name, out, "--format", "json"]).exits(0).json();
        (report["written"]["spans"].clone(), report["provenance"].clone())
    };
    assert_eq!(of("last", "run.json"), of("t.parquet", "file.json"));
    let refused = convert(&place, &["lats", "no.json"]).exits(2);
    assert!(refused.stderr.contains("lats") && !place.path().join("no.json").exists(), "{refused:?}");
}

/// One file of all ranks says the same of each as a file a rank does: ranges stay with their rank.
#[test]
fn ranges_of_one_file_are_those_of_a_file_a_rank() {
    let place = place();
    convert(&place, &["t.parquet", "t.json"]).exits(0);
    convert(&place, &["t.parquet", "ranks/"]).exits(0);
    for by in ["range", "layer"] {
        let of = |source| place.run(&["overlap", source, "--by", by, "--format", "csv"]).exits(0).stdout;
        let (one, each) = (of("t.json"), of("ranks"));
        assert!(one.lines().count() > 1, "{by}: {one}");
        assert_eq!(one, each, "{by}");
    }
}

#[test]
fn to_parquet_and_the_overlap_is_the_same() {
    let place = place();
    convert(&place, &["t.parquet", "u.parquet"]).exits(0);
    let overlap = |file| place.run(&["overlap", file, "--format", "json"]).exits(0).json();
    assert_eq!(overlap("t.parquet"), overlap("u.parquet"));
}

#[test]
fn to_a_file_a_rank() {
    let place = place();
    for (directory, more) in [("slash/", None), ("named", Some("--per-rank"))] {
        let arguments = [Some("t.parquet"), Some(directory), more];
        let arguments: Vec<&str> = arguments.into_iter().flatten().collect();
        convert(&place, &arguments).exits(0);
        for rank in ["rank-0.json.gz", "rank-1.json.gz"] {
            let bytes = read(&place.path().join(directory).join(rank));
            assert!(bytes.starts_with(&[0x1f, 0x8b]), "gzip");
        }
    }
    let again = convert(&place, &["t.parquet", "named"]).exits(2);
    assert!(again.stderr.contains("rank-0.json.gz") && again.stderr.contains("--force"), "{again:?}");
}

#[test]
fn nothing_is_replaced_unless_asked_and_nothing_is_started_that_must_fail() {
    let place = place();
    place.write("there.json", "precious");
    let refused = convert(&place, &["t.parquet", "there.json"]).exits(2);
    assert!(refused.stderr.contains("there.json") && refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(read(&place.path().join("there.json")), b"precious");
    convert(&place, &["t.parquet", "there.json", "--force"]).exits(0);
    assert!(read(&place.path().join("there.json")).starts_with(b"{"));
    for (out, said) in [
        ("t.doc", ".parquet"),
        ("no/t.json", "no such directory: no"),
        ("there.json/", "not a directory"),
    ] {
        let refused = convert(&place, &["t.parquet", out]).exits(2);
        assert!(refused.stderr.contains(said), "{out}: {refused:?}");
    }
    let missing = convert(&place, &["no.parquet", "u.json"]).exits(2);
    assert!(missing.stderr.contains("no.parquet"), "{missing:?}");
    place.write("broken.parquet", "PAR1 and so on PAR1");
    let broken = convert(&place, &["broken.parquet", "u.json"]).exits(2);
    assert!(broken.stderr.contains("broken.parquet"), "{broken:?}");
    let left: Vec<String> = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.') || name.starts_with('u'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A run with pipeline stages and its export: the same idle time, spent on waiting for the other stage.
#[test]
fn stages_wait_for_each_other_in_an_export_too() {
    let place = Place::new();
    for (backend, tp) in [("sim", 2), ("sim", 1), ("cpu --link emulated:alpha_us=2000,gb_s=1", 1)] {
        let run = format!(
            "run --model tiny --architecture ladder --tp {tp} --pp 2 --batch 2 --prompt-tokens 8 --output-tokens 6 \
             --samples 1 --trace t.parquet --backend {backend}"
        );
        place.run(&run.split(' ').collect::<Vec<_>>()).exits(0);
        convert(&place, &["t.parquet", "t.json", "--force"]).exits(0);
        let ranks = format!("ranks-{}-{tp}/", &backend[..3]);
        convert(&place, &["t.parquet", &ranks]).exits(0);
        let overlap =
            |file| place.run(&["overlap", file, "--phase", "all", "--format", "json"]).exits(0).json();
        let own = overlap("t.parquet");
        for file in ["t.json", &ranks] {
            let export = overlap(file);
            let idle = |report: &Value, key: &str| -> Vec<i64> {
                let ranks = report["idle"].as_array().unwrap().iter();
                ranks.map(|rank| rank[key].as_i64().unwrap()).collect()
            };
            let what = format!("{backend}, TP {tp}, {file}");
            assert_eq!(idle(&export, "idle_ns"), idle(&own, "idle_ns"), "{what}");
            assert_eq!(export["verdict"]["stages"], own["verdict"]["stages"], "{what}");
            assert_eq!(own["verdict"]["stages"]["pp"], 2);
            for report in [&own, &export] {
                let sentences = report["verdict"]["sentences"].to_string();
                assert!(sentences.contains("The 2 pipeline stages are idle"), "{what}: {sentences}");
                assert!(
                    !sentences.contains("launch") && !sentences.contains("host"),
                    "{what}: {sentences}"
                );
                let shares =
                    ["host_ns", "communication_ns"].map(|key| idle(report, key).iter().sum::<i64>());
                assert!(shares[0] * 10 < shares[1], "{what}: {shares:?}");
            }
            if backend == "sim" {
                for key in ["host_ns", "communication_ns"] {
                    assert_eq!(idle(&export, key), idle(&own, key), "{what}");
                }
            }
        }
    }
}
