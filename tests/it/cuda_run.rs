//! `run --backend cuda` on the software device: one rank, ranks over NCCL, one rank over an emulated link;
//! and what becomes of a run whose GPUs or collectives fail: it ends by itself, in time, with a reason.

use std::sync::Once;
use std::time::{Duration, Instant};

use crate::cuda_device::{Device, device};
use crate::support::{Done, Place, number};

/// Seconds without progress after which a run gives up: where it is to do so, and where it is not.
const TIMEOUT: [&str; 2] = ["10", "300"];
/// A run that is to go well.
fn run(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    run_within(TIMEOUT[1], device, place, more, variables)
}

fn run_within(
    timeout: &str,
    device: &Device,
    place: &Place,
    more: &[&str],
    variables: &[(&str, &str)],
) -> Done {
    let cell = ["run", "--backend", "cuda", "--model", "tiny", "--dtype", "f32", "--batch", "2"];
    let sizes = ["--prompt-tokens", "4", "--output-tokens", "4", "--samples", "2", "--warmup", "0"];
    let rest = ["--format", "json", "--timeout", timeout];
    let all: Vec<&str> = cell.iter().chain(&sizes).chain(&rest).chain(more).copied().collect();
    device.run(place, &all, variables)
}

#[test]
fn a_run_on_one_gpu_leaves_a_record_and_a_trace() {
    let device = device!();
    let place = Place::new();
    let record = run(device, &place, &[], &[]).exits(0).json();
    assert_eq!(record["status"], "ok", "{record}");
    assert_eq!(record["metrics"]["samples"], 2);
    let environment = &record["environment"];
    assert_eq!(environment["decode"], "graph", "{environment}");
    assert_eq!(environment["gpu"], "Software CUDA device");
    assert_eq!(environment["compute_capability"], "9.0");
    // four layers of at least five operations
    assert!(number(&environment["graph_nodes"]) >= 20.0, "{environment}");
    // steps of that many kernels of 3 us
    let tpot = number(&record["metrics"]["tpot_ms"]["p50"]);
    assert!(tpot > 0.06 && tpot < 1.0, "{tpot}");
    assert!(place.path().join("runs").join(record["trace"].as_str().unwrap_or_default()).is_file());
    let shown = place.run(&["show", "last"]).exits(0).stdout;
    assert!(shown.contains("TPOT") && shown.contains("matmul"), "{shown}");
}

/// One rank over an emulated link and ranks over NCCL move what the plan says: halves of an all-reduce, 8 bits.
#[test]
fn shares_of_rows_and_messages_in_8_bits_take_their_time() {
    let device = device!();
    let comm_ms = |more: &[&str], variables: &[(&str, &str)]| {
        let place = Place::new();
        let all: Vec<&str> = ["--tp", "2"].iter().chain(more).copied().collect();
        let record = run(device, &place, &all, variables).exits(0).json();
        assert_eq!(record["status"], "ok", "{record}");
        number(&record["overlap"]["comm_ms"])
    };
    // 2 rows of 64 numbers: of 512 bytes a quarter is left, and a scale a row
    let link = ["--link", "emulated:alpha_us=0,gb_s=0.002"];
    let emulated = |more: &[&str]| {
        let all: Vec<&str> = link.iter().chain(more).copied().collect();
        comm_ms(&all, &[])
    };
    let whole = emulated(&[]);
    let eight = emulated(&["--comm-dtype", "int8"]);
    assert!((0.24..0.45).contains(&(eight / whole)), "{eight} of {whole}");
    // two halves, and a gather more behind the last layer's
    let halves = emulated(&["--sequence-parallel"]);
    assert!((0.95..1.3).contains(&(halves / whole)), "{halves} of {whole}");
    for more in [["--sequence-parallel"].as_slice(), &["--comm-dtype", "f8"]] {
        assert!(comm_ms(more, &[("FAKE_CUDA_DEVICES", "2")]) > 0.0);
    }
}

/// Groups of a batch have rows, tokens and a part of the cache of their own; a prompt is divided by its tokens.
#[test]
fn a_batch_is_divided_into_micro_batches() {
    let device = device!();
    let divided = |batch: &str, output: &str| {
        let place = Place::new();
        let cell = ["run", "--backend", "cuda", "--model", "tiny", "--tp", "2", "--micro-batches", "2"];
        let sizes = ["--prompt-tokens", "5", "--samples", "2", "--warmup", "0", "--format", "json"];
        let asked = ["--batch", batch, "--output-tokens", output, "--timeout", TIMEOUT[1]];
        let all: Vec<&str> = cell.iter().chain(&sizes).chain(&asked).copied().collect();
        (device.run(&place, &all, &[("FAKE_CUDA_DEVICES", "2")]), place)
    };
    for (batch, output) in [("3", "4"), ("1", "1")] {
        let (done, place) = divided(batch, output);
        let record = done.exits(0).json();
        assert_eq!(record["status"], "ok", "{record}");
        let names = place.run(&["overlap", "last", "--by", "name", "--phase", "all"]).exits(0).stdout;
        assert!(names.contains("mlp/g0/down") && names.contains("mlp/g1/down"), "{names}");
        if output == "4" {
            // one group's all-reduce is under way while the other computes
            assert!(number(&record["overlap"]["overlap_pct"]) > 50.0, "{record}");
        }
    }
    let (refused, _) = divided("1", "4");
    let refused = refused.exits(2);
    assert!(refused.stdout.contains("cannot be divided into 2 micro-batches"), "{}", refused.stdout);
}

#[test]
fn ranks_on_gpus_of_their_own_sum_by_nccl() {
    let device = device!();
    let place = Place::new();
    let gpus = ("FAKE_CUDA_DEVICES", "2");
    let communication = |p2p: &str, architecture: &str| {
        let options = ["--tp", "2", "--architecture", architecture, "--p2p", p2p];
        let record = run(device, &place, &options, &[gpus]).exits(0).json();
        assert_eq!(record["provenance"], "measured", "{record}");
        assert_eq!(record["environment"]["collective"], "nccl", "{record}");
        assert_eq!(record["environment"]["nccl"], "2.27.3", "{record}");
        (number(&record["overlap"]["comm_ms"]), number(&record["overlap"]["overlap_pct"]))
    };
    let (fast, hidden) = communication("on", "ladder");
    let (slow, _) = communication("off", "ladder");
    // 24 all-reduces of 5 us, and of 20 us where NCCL_P2P_DISABLE reaches NCCL
    assert!((0.12..0.14).contains(&fast) && (0.48..0.52).contains(&slow), "{fast} {slow}");
    let (_, exposed) = communication("on", "standard");
    assert!(hidden > 80.0 && exposed < 1.0, "ladder hides {hidden} %, standard {exposed} %");
}

#[test]
fn one_gpu_runs_a_rank_over_an_emulated_link() {
    let device = device!();
    let place = Place::new();
    let options = ["--tp", "4", "--link", "emulated:alpha_us=30,gb_s=1"];
    let record = run(device, &place, &options, &[]).exits(0).json();
    assert_eq!(record["provenance"], "emulated-link", "{record}");
    assert_eq!(record["environment"]["collective"], "emulated");
    // 3 steps of 8 all-reduces of 2 x 64 numbers: 30 us and 512 bytes at 1 GB/s, and little more
    let comm = number(&record["overlap"]["comm_ms"]);
    let least = 24.0 * (0.030 + 0.000_512);
    assert!(comm >= least && comm < 1.05 * least, "{comm} against {least}");
    assert_eq!(number(&record["overlap"]["overlap_pct"]), 0.0);
}

/// A run that fails as it should: soon, with words.
#[track_caller]
fn fails(device: &Device, more: &[&str], variables: &[(&str, &str)], words: &[&str]) {
    // kernels are compiled once; what is timed is how soon the failure ends the run
    static COMPILED: Once = Once::new();
    COMPILED.call_once(|| {
        run(device, &Place::new(), &[], &[]).exits(0);
        run(device, &Place::new(), &TWO, &[("FAKE_CUDA_DEVICES", "2")]).exits(0);
    });
    let place = Place::new();
    let began = Instant::now();
    let done = run_within(TIMEOUT[0], device, &place, more, variables);
    let record = done.exits(1).json();
    assert_eq!(record["status"], "failed", "{record}");
    let reason = record["reason"].as_str().unwrap_or_default();
    for word in words {
        assert!(reason.contains(word), "no {word:?} in {reason:?}");
    }
    // starting on a busy machine takes its time; hanging takes for ever
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
}

const TWO: [&str; 4] = ["--tp", "2", "--architecture", "ladder"];

#[test]
fn a_rank_that_never_joins_ends_the_run_within_its_time_out() {
    let variables = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_NCCL_ABSENT", "1")];
    fails(device!(), &TWO, &variables, &["joining rank", "within 10 s"]);
}

#[test]
fn what_nccl_notices_in_the_background_ends_the_run() {
    let variables = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_NCCL_ASYNC", "1:5=6")];
    fails(device!(), &TWO, &variables, &["rank 1", "peer has reset the connection"]);
}

#[test]
fn a_collective_or_a_kernel_that_hangs_ends_the_run() {
    let device = device!();
    let gpus = ("FAKE_CUDA_DEVICES", "2");
    fails(device, &TWO, &[gpus, ("FAKE_NCCL_HANG", "1:7")], &["hangs"]);
    // who notices first is a race of two clocks; either names the sample, or the step that was tried before it
    fails(device, &TWO, &[gpus, ("FAKE_CUDA_HANG", "add_norm:9")], &["capturing a decode step"]);
    fails(device, &TWO, &[gpus, ("FAKE_CUDA_HANG", "add_norm:40")], &["sample 1/2"]);
    fails(device, &[], &[("FAKE_CUDA_HANG", "attend_decode:6")], &["sample 1/2"]);
}

#[test]
fn nccl_that_is_missing_or_fails_is_named() {
    let device = device!();
    let gpus = ("FAKE_CUDA_DEVICES", "2");
    fails(device, &TWO, &[gpus, ("LADDERSCOPE_NCCL", "/no/such.so")], &["NCCL", "/no/such.so"]);
    fails(device, &TWO, &[gpus, ("FAKE_NCCL_INIT", "2")], &["unhandled system error"]);
}

#[test]
fn a_gpu_that_fails_under_way_ends_the_run() {
    let device = device!();
    let one =
        |what: &str| fails(device, &[], &[("FAKE_CUDA_BREAK", what)], &["CUDA_ERROR_ILLEGAL_ADDRESS"]);
    one("attend_prefill:3=700");
    one("attend_decode:6=700");
    // memory that runs out while the run allocates
    fails(device, &[], &[("FAKE_CUDA_FAIL", "cuMemAlloc_v2:12=2")], &["memory"]);
}
