//! `import`: what `experiments/gpu/measure.sh` packed on another machine, from a folder and from an archive.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Place;
use crate::validating::all_reduce_perf;

const H100: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/h100");

/// A kit in `place/results`: two runs of an H100, nccl-tests output of a slow node, a recording.
pub fn kit(place: &Place) -> PathBuf {
    for run in ["20261127-033139-standard-39442a", "20261127-033152-ladder-f104b0"] {
        for file in ["record.json", "spec.json"] {
            let text = std::fs::read_to_string(format!("{H100}/runs/{run}/{file}")).unwrap();
            place.write(&format!("results/runs/{run}/{file}"), &text);
        }
    }
    place.write("results/nccl-tests/tp8-on.txt", &all_reduce_perf(8, 2.0));
    place.write("results/nccl-tests/tp8-off.txt", &all_reduce_perf(8, 5.0));
    place.write(
        "results/kit.json",
        "{\"host\": \"node7\", \"gpus\": [\"NVIDIA H100 80GB HBM3\"], \"parts\": [{\"part\": \"checks\", \
         \"status\": \"failed\", \"why\": \"exit status 1\"}]}",
    );
    let recording = place.path().join("results/recordings/engine");
    std::fs::create_dir_all(&recording).unwrap();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/cpu-ladder-tp2-600us.parquet");
    std::fs::copy(trace, recording.join("trace.parquet")).unwrap();
    place.path().join("results")
}

/// A header of tar and its content, padded to blocks.
fn member(name: &str, kind: u8, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = kind;
    header[157..157 + target.len()].copy_from_slice(target.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The kit as `measure.sh` packs it, with more members.
fn packed(kit: &Path, name: &str, more: &[Vec<u8>]) -> PathBuf {
    let (parent, mut all) = (kit.parent().unwrap(), Vec::new());
    files(kit, &mut all);
    let mut tar: Vec<u8> = Vec::new();
    for path in all {
        let at = path.strip_prefix(parent).unwrap().to_str().unwrap();
        tar.extend(member(at, b'0', "", &std::fs::read(&path).unwrap()));
    }
    tar.extend(more.concat());
    tar.resize(tar.len() + 1024, 0);
    let path = parent.join(name);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    std::fs::write(&path, gzip.finish().unwrap()).unwrap();
    path
}

fn imported(place: &Place, arguments: &[&str]) -> Value {
    place.run(&[&["import", "--format", "json"], arguments].concat()).exits(0).json()
}

/// `docs.rs` compares the table with that of the page.
#[test]
fn the_runs_of_the_h100_are_stored_once() {
    let place = Place::new();
    let first = place.run(&["import", H100]).exits(0);
    assert!(first.stdout.starts_with("Imported 27 runs into runs"), "{first:?}");
    assert!(first.stdout.contains("provenance emulated-link"), "{first:?}");
    assert!(first.stderr.contains("not measured: huge_tp16-b1-p2p-on-ladder (skipped)"), "{first:?}");
    let second = place.run(&["import", H100]).exits(0);
    assert!(
        second.stdout.starts_with("Imported 0 runs into runs; skipped 27 already there"),
        "{second:?}"
    );
    let listed = place.run(&["runs", "--format", "json"]).exits(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(27));
    place.run(&["doctor", "--store", "runs"]).exits(0);
    let csv = place.run(&["import", H100, "--format", "csv"]).exits(0).stdout;
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.starts_with("model,tp,link,options,batch,standard_tpot_ms,ladder_tpot_ms,"), "{csv}");
}

#[test]
fn an_archive_gives_runs_recordings_and_a_profile_with_both_links() {
    let place = Place::new();
    kit(&place);
    let archive = packed(&place.path().join("results"), "results.tar.gz", &[]);
    let archive = archive.to_str().unwrap();
    let told = place.run(&["import", archive]).exits(0);
    assert!(told.stdout.contains("2 runs, 1 recording into runs, from node7 NVIDIA H100"), "{told:?}");
    assert!(told.stdout.contains("P2P off, measured against profile h100_sxm"), "{told:?}");
    assert!(told.stdout.contains(&format!("ladderscope import {archive} -o DIR")), "{told:?}");
    assert!(told.stderr.contains("not measured: checks (failed): exit status 1"), "{told:?}");
    let again = imported(&place, &[archive, "-o", "mine"]);
    assert_eq!(again["runs"]["present"].as_array().map(Vec::len), Some(2));
    assert_eq!(again["recordings"]["present"], serde_json::json!(["engine"]));
    assert_eq!(again["profile"], "mine/h100_sxm.toml");
    let [on, off] = ["on", "off"].map(|p2p| {
        let files = format!("results/nccl-tests/tp8-{p2p}.txt");
        let dir = format!("calibrated-{p2p}");
        let given = ["calibrate", "--collectives", &files, "--p2p", p2p, "-o", &dir];
        place.run(&given).exits(0);
        let text = std::fs::read_to_string(place.path().join(dir).join("h100_sxm.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        table["link"][format!("p2p_{p2p}").as_str()]["tp"]["8"].clone()
    });
    let text = std::fs::read_to_string(place.path().join("mine/h100_sxm.toml")).unwrap();
    let mine: toml::Table = text.parse().unwrap();
    assert_eq!(mine["link"]["p2p_on"]["tp"]["8"], on);
    assert_eq!(mine["link"]["p2p_off"]["tp"]["8"], off);
    place.run(&["overlap", "runs/recordings/engine/trace.parquet"]).exits(0);
    let check = place.run(&["doctor", "--store", "runs", "--format", "json"]).exits(0).json();
    assert_eq!((&check["traces"], &check["foreign"]), (&1.into(), &serde_json::json!([])));
    // nothing of the unpacked archive stays
    let left = std::fs::read_dir(place.path().join("runs/.ladderscope")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn damaged_files_are_named_and_left_out() {
    let place = Place::new();
    let kit = kit(&place);
    let run = place.run(&[
        "run",
        "--model",
        "tiny",
        "--backend",
        "cpu",
        "--tp",
        "2",
        "--prompt-tokens",
        "4",
        "--output-tokens",
        "4",
        "--samples",
        "1",
        "--warmup",
        "0",
        "--dir",
        "results/runs",
        "--format",
        "json",
    ]);
    let id = run.exits(0).json()["run"].as_str().unwrap().to_owned();
    let damage = |path: PathBuf| {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    damage(kit.join(format!("runs/{id}/record.json")));
    damage(kit.join("recordings/engine/trace.parquet"));
    let done = place.run(&["import", "results", "--format", "json"]).exits(1);
    let damaged = done.json()["damaged"].clone();
    let paths: Vec<&str> =
        damaged.as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [&*format!("{id}/record.json"), "recordings/engine/trace.parquet"], "{damaged}");
    assert!(done.stderr.contains(&format!("left out {id}/record.json")), "{done:?}");
    assert_eq!(done.json()["runs"]["runs"].as_array().map(Vec::len), Some(2));
    assert!(!place.path().join("runs").join(&id).exists());
    assert!(!place.path().join("runs/recordings/engine").exists());
    place.run(&["doctor", "--store", "runs"]).exits(0);
}

#[test]
fn hostile_archives_write_only_into_the_store() {
    let place = Place::new();
    let secret = place.write("secret.txt", "secret");
    let kit = kit(&place);
    let run = "results/runs/20261127-033139-standard-39442a";
    let archive = packed(
        &kit,
        "hostile.tar.gz",
        &[
            member("../escaped.txt", b'0', "", b"x"),
            member("results/../../escaped.txt", b'0', "", b"x"),
            member("/tmp/ladderscope-escaped.txt", b'0', "", b"x"),
            member(&format!("{run}/log.txt"), b'2', secret.to_str().unwrap(), b""),
            member("results/runs/link", b'2', "/", b""),
            member("results/runs/link/escaped.txt", b'0', "", b"x"),
        ],
    );
    let done = place.run(&["import", archive.to_str().unwrap(), "--format", "json"]).exits(0);
    let notes = done.json()["notes"].to_string();
    for left_out in ["../escaped.txt", "results/../../escaped.txt", &format!("{run}/log.txt")] {
        assert!(notes.contains(&format!("\"{left_out}: ")), "{left_out}: {notes}");
    }
    assert!(!Path::new("/tmp/ladderscope-escaped.txt").exists() && !Path::new("/escaped.txt").exists());
    let mut all = Vec::new();
    files(place.path(), &mut all);
    assert!(all.iter().all(|path| !path.ends_with("escaped.txt")), "{all:?}");
    assert!(all.iter().all(|path| !path.ends_with("log.txt")), "{all:?}");
}

#[test]
fn other_files_and_folders_are_refused() {
    let place = Place::new();
    place.write("empty/notes.txt", "nothing");
    place.write("text.txt", "nothing");
    for (given, wanted) in [
        ("empty", "no results of measure.sh"),
        ("text.txt", "not a tar archive"),
        ("missing", "missing"),
    ] {
        let done = place.run(&["import", given]).exits(2);
        assert!(done.stderr.contains(wanted), "{done:?}");
        assert!(!place.path().join("runs").exists(), "{given}");
    }
}
