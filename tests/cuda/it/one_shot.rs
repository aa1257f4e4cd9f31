//! `run --collective one-shot` and `fused` on the software device: ranks that read each other's memory in decode steps.

use std::time::Instant;

use serde_json::Value;

use crate::device::{Device, device};
use crate::support::{Done, Place, number};

const CELL: [&str; 17] = [
    "run",
    "--backend",
    "cuda",
    "--model",
    "tiny",
    "--dtype",
    "f32",
    "--batch",
    "3",
    "--prompt-tokens",
    "4",
    "--output-tokens",
    "6",
    "--samples",
    "2",
    "--format",
    "json",
];

fn run(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    let all: Vec<&str> = CELL.iter().chain(["--timeout", "30"].iter()).chain(more).copied().collect();
    device.run(place, &all, variables)
}

/// A record of a run that went well.
#[track_caller]
fn record(device: &Device, tp: &str, [architecture, collective, recorder]: [&str; 3]) -> Value {
    let options = ["--tp", tp, "--architecture", architecture, "--collective", collective];
    let options = [&options[..], &["--recorder", recorder]].concat();
    let record = run(device, &Place::new(), &options, &[("FAKE_CUDA_DEVICES", tp)]).exits(0).json();
    assert_eq!(record["status"], "ok", "{record}");
    assert_ne!(record["environment"]["computed"]["ranks_agree"], false, "{record}");
    record
}

#[test]
fn tokens_are_those_of_nccl_in_every_way_to_sum() {
    let device = device!();
    for (tp, architecture) in
        [("2", "standard"), ("4", "ladder"), ("2", "parallel+ladder"), ("2", "delayed:2")]
    {
        let tokens = |collective: &str| {
            let record = record(device, tp, [architecture, collective, "off"]);
            let environment = &record["environment"];
            let said = environment["collective"].as_str().unwrap_or_default();
            match collective {
                "nccl" => assert_eq!(said, "nccl"),
                other => assert_eq!(said, format!("{other}; prefill: nccl")),
            }
            environment["computed"]["tokens"].clone()
        };
        let wanted = tokens("nccl");
        assert!(wanted.is_string() || wanted.is_number(), "{wanted}");
        assert_eq!([tokens("one-shot"), tokens("fused")], [wanted.clone(), wanted], "{architecture}");
    }
}

#[test]
fn ladder_hides_them_and_fused_ones_of_standard_are_computation() {
    let device = device!();
    let hidden = |architecture: &str, collective: &str| {
        let record = record(device, "2", [architecture, collective, "stamps"]);
        (number(&record["overlap"]["comm_ms"]), record["overlap"]["overlap_pct"].as_f64())
    };
    let (standard, ladder) = (hidden("standard", "one-shot"), hidden("ladder", "one-shot"));
    assert!(standard.0 > 0.0 && ladder.0 > 0.0, "{standard:?} {ladder:?}");
    assert!(standard.1 < Some(1.0) && ladder.1 > Some(80.0), "{standard:?} {ladder:?}");
    assert_eq!(hidden("standard", "fused"), (0.0, None));
    let fused = hidden("ladder", "fused");
    assert!(fused.0 > 0.0 && fused.1 > Some(80.0), "{fused:?}");
}

#[test]
fn what_cannot_be_is_said_before_it_runs_or_with_the_gpus_that_lack_it() {
    let device = device!();
    let two = [("FAKE_CUDA_DEVICES", "2")];
    let one_shot = ["--tp", "2", "--collective", "one-shot"];
    let with =
        |more: &[&'static str]| -> Vec<&'static str> { one_shot.iter().chain(more).copied().collect() };
    for (more, why) in [
        (["--p2p", "off"], "needs P2P, because it reads the memory of other ranks"),
        (["--link", "emulated:alpha_us=5,gb_s=100"], "an emulated link runs one rank"),
        (["--comm-dtype", "f8"], "messages in 8 bits"),
        (["--collective", "two-shot"], "has no two-shot all-reduce"),
    ] {
        let options =
            if more[0] == "--collective" { vec!["--tp", "2", more[0], more[1]] } else { with(&more) };
        let done = run(device, &Place::new(), &options, &two).exits(2);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains(why), "no {why:?} in {said}");
    }
    let nowhere = [two[0], ("FAKE_CUDA_P2P", "0")];
    let record = run(device, &Place::new(), &one_shot, &nowhere).exits(1).json();
    let reason = record["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("GPU 0 does not reach the memory of GPU 1"), "{reason}");
}

/// A rank whose kernels wait for one that stands still ends within the time-out.
#[test]
fn a_rank_that_stands_still_ends_the_run() {
    let device = device!();
    let options =
        ["--tp", "2", "--architecture", "ladder", "--collective", "one-shot", "--timeout", "10"];
    let began = Instant::now();
    let variables = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_HANG", "one_shot_sum:40")];
    let all: Vec<&str> = CELL.iter().chain(&options).copied().collect();
    let record = device.run(&Place::new(), &all, &variables).exits(1).json();
    assert_eq!(record["status"], "failed", "{record}");
    let reason = record["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("no progress for") || reason.contains("did not end"), "{reason}");
    assert!(began.elapsed().as_secs() < 90, "{:?}", began.elapsed());
}
