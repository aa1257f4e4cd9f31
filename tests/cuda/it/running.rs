//! `run --backend cuda` on the software device: one rank, ranks over NCCL, one rank over an emulated link;
//! and what becomes of a run whose GPUs or collectives fail: it ends by itself, in time, with a reason.

use std::sync::Once;
use std::time::{Duration, Instant};

use machine::hardware::Profile;
use serde_json::Value;

use crate::device::{Device, device};
use crate::support::{Done, Place, number};

/// Seconds without progress after which a run gives up: where it is to do so, and where it is not.
const TIMEOUT: [&str; 2] = ["10", "300"];
/// A run that is to go well.
pub(crate) fn run(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
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

/// Prefill with 64 rows per expert: the host reads the rows of each between stamped kernels.
#[test]
fn long_prefills_of_mixtures_are_timed() {
    let device = device!();
    let place = Place::new();
    let cell = "run --backend cuda --model mini-moe --dtype bf16 --tp 2 --ep 2 --architecture ladder --batch 2 \
                --prompt-tokens 128 --output-tokens 3 --samples 1 --warmup 0 --format json";
    let arguments: Vec<&str> = cell.split_whitespace().collect();
    let record = device.run(&place, &arguments, &[("FAKE_CUDA_DEVICES", "2")]).exits(0).json();
    assert_eq!(record["status"], "ok", "{record}");
    let path = place.path().join("runs").join(record["trace"].as_str().expect("a trace"));
    let trace = trace::read(&path).expect("a trace");
    let experts = trace.spans.iter().filter(|span| {
        let operation = &trace.operations[span.operation as usize];
        span.phase == plan::Phase::Prefill && operation.kind == trace::OperationKind::Experts
    });
    // five layers with experts on two ranks; products of at least 3 us each
    let times: Vec<i64> = experts.map(|span| span.end_ns - span.start_ns).collect();
    assert_eq!(times.len(), 10, "{times:?}");
    assert!(times.iter().all(|time| *time > 20_000), "{times:?}");
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
    assert!(refused.stdout.contains("cannot be split into 2 micro-batches"), "{}", refused.stdout);
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
        // two channels, as NCCL told in a process of its own: where something is timed it tells nothing
        assert_eq!(record["environment"]["collective_multiprocessors"], 2, "{record}");
        assert_eq!(record["environment"]["nccl_chosen"]["all_reduce"]["512"], "RING LL", "{record}");
        assert!(record["environment"]["nccl_variables"]["NCCL_DEBUG"].is_null(), "{record}");
        (number(&record["overlap"]["comm_ms"]), number(&record["overlap"]["overlap_pct"]))
    };
    // a rank whose thread comes late is waited for, which counts: of a few runs the one that waited least
    let least = |p2p: &str, enough: f64| {
        let runs = (0..4).map(|_| communication(p2p, "ladder"));
        let mut least = (f64::INFINITY, 0.0);
        for run in runs {
            least = if run.0 < least.0 { run } else { least };
            if least.0 < enough {
                break;
            }
        }
        least
    };
    let ((fast, hidden), (slow, _)) = (least("on", 0.14), least("off", 0.52));
    // 24 all-reduces of 5 us, and of 20 us where NCCL_P2P_DISABLE reaches NCCL
    assert!((0.12..0.14).contains(&fast) && (0.48..0.52).contains(&slow), "{fast} {slow}");
    let (_, exposed) = communication("on", "standard");
    assert!(hidden > 80.0 && exposed < 1.0, "ladder hides {hidden} %, standard {exposed} %");
}

/// Ranks that share a GPU compute what ranks on GPUs of their own do; nothing is compared with their times.
#[test]
fn ranks_that_share_a_gpu_are_a_check_and_no_measurement() {
    let device = device!();
    let place = Place::new();
    let shared =
        [("LADDERSCOPE_SHARED_GPU", "1"), ("FAKE_CUDA_DEVICES", "1"), ("FAKE_NCCL_VERSION", "23203")];
    let tokens = |record: &Value| {
        record["environment"]["computed"]["tokens"].as_str().expect("a hash").to_owned()
    };
    let alone = run(device, &place, &["--architecture", "ladder"], &[]).exits(0).json();
    for more in [&[][..], &["--no-graph"], &["--comm-sms", "2"], &["--tp", "4"]] {
        let all: Vec<&str> = TWO.iter().chain(more).copied().collect();
        // of an option that is given twice the last one counts
        let all = if more.first() == Some(&"--tp") {
            vec!["--tp", "4", "--architecture", "ladder"]
        } else {
            all
        };
        let record = run(device, &place, &all, &shared).exits(0).json();
        assert_eq!(record["status"], "ok", "{record}");
        assert_eq!(record["provenance"], "shared-gpu", "{record}");
        assert_eq!(tokens(&record), tokens(&alone), "{more:?}");
        let variables = &record["environment"]["nccl_variables"];
        assert_eq!(variables["NCCL_MULTI_RANK_GPU_ENABLE"], "1", "{record}");
        let blocks = if more.contains(&"--comm-sms") { "1" } else { "8" };
        assert_eq!(variables["NCCL_MAX_CTAS"], blocks, "{record}");
        assert!(
            record["warnings"].to_string().contains("latencies of this run are meaningless"),
            "{record}"
        );
    }
    // also at TP 1, and where the cell sets the variable
    let one = run(device, &Place::new(), &["--architecture", "ladder"], &shared).exits(0).json();
    assert_eq!(one["provenance"], "shared-gpu", "{one}");
    let by_option = [&TWO[..], &["--env", "LADDERSCOPE_SHARED_GPU=1"]].concat();
    let two = [("FAKE_CUDA_DEVICES", "2"), shared[2]];
    let record = run(device, &Place::new(), &by_option, &two).exits(0).json();
    assert_eq!(record["provenance"], "shared-gpu", "{record}");
    let listed = place.run(&["runs", "--format", "json"]).exits(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(5), "{listed}");
    // the one run that counts has nobody to be compared with
    let compared = place.run(&["compare", "--by", "tp", "--format", "json"]).exits(0).json();
    assert_eq!(compared["pairs"], serde_json::json!([]), "{compared}");
    for (refused, why) in [
        (
            &["figure", "pareto", "--filter", "provenance=shared-gpu", "-o", "pareto.svg"][..],
            "no finished runs",
        ),
        (&["report", "--filter", "provenance=shared-gpu", "-o", "report.html"], "no finished runs"),
        (&["figure", "overlap", "last", "-o", "overlap.svg"], "is shared-gpu"),
        (&["calibrate", "--collectives", "last"], "is shared-gpu"),
        (&["rewire", "last"], "is shared-gpu"),
    ] {
        let done = place.run(refused);
        assert!(done.code != 0 && done.stderr.contains(why), "{refused:?}: {done:?}");
    }
}

#[test]
fn ranks_share_no_gpu_by_an_old_nccl_or_by_kernels_of_their_own() {
    let device = device!();
    let shared = [("LADDERSCOPE_SHARED_GPU", "1"), ("FAKE_CUDA_DEVICES", "1")];
    fails(device, &TWO, &shared, &["NCCL 2.27.3", "2.30 or newer is needed"]);
    let fused: Vec<&str> = TWO.iter().chain(&["--collective", "fused"]).copied().collect();
    let newer = [shared[0], shared[1], ("FAKE_NCCL_VERSION", "23203")];
    let refused = run(device, &Place::new(), &fused, &newer).exits(2);
    assert!(format!("{refused:?}").contains("needs a GPU for each rank"), "{refused:?}");
    // the memory of all ranks is on one GPU
    let memory = [newer[0], newer[1], newer[2], ("FAKE_CUDA_MEMORY", "60000000")];
    let refused = run(device, &Place::new(), &["--tp", "4"], &memory).exits(2);
    assert!(format!("{refused:?}").contains("for each of the ranks that share it"), "{refused:?}");
}

/// Without P2P a switch may sum all the same: that is said beside the result, and an option takes it away.
#[test]
fn sums_within_the_switch_are_told_where_p2p_is_off() {
    let device = device!();
    let place = Place::new();
    // what NCCL chose elsewhere is remembered in the shared cache
    let cache = place.path().join("cache").to_string_lossy().into_owned();
    let told = |more: &[&str]| {
        let all: Vec<&str> = ["--tp", "2"].iter().chain(more).copied().collect();
        let variables =
            [("FAKE_CUDA_DEVICES", "2"), ("FAKE_NCCL_NVLS", "1"), ("XDG_CACHE_HOME", &cache)];
        let record = run(device, &place, &all, &variables).exits(0).json();
        record["warnings"].to_string().contains("NCCL sums within NVLink's switch all the same")
    };
    assert!(!told(&[]), "with P2P that is as it should be");
    assert!(told(&["--p2p", "off"]));
    let shown = place.run(&["show", "last"]).exits(0).stdout;
    assert!(shown.contains("--nvls off"), "{shown}");
    assert!(!told(&["--p2p", "off", "--nvls", "off"]));
    // cells with and without it are matched with their like
    let compared = place.run(&["compare", "--by", "p2p", "--format", "json"]).exits(0).json();
    let pairs = compared["pairs"].as_array().cloned().unwrap_or_default();
    assert_eq!(pairs.len(), 1, "{compared}");
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
    assert!(comm >= 0.99 * least && comm < 1.05 * least, "{comm} against {least}");
    assert_eq!(number(&record["overlap"]["overlap_pct"]), 0.0);
}

/// What was measured of a link contains what a launch costs; a message takes what was measured of so many bytes.
#[test]
fn an_emulated_link_takes_the_profiles_own_time_and_no_launch_more() {
    let device = device!();
    let cost = [("FAKE_CUDA_LAUNCH_NS", "4000"), ("FAKE_CUDA_TICK_NS", "250")];
    // events see a collective with its launch, as what was measured of the link does
    let link = ["--tp", "4", "--link", "p2p-off", "--hardware", "h100_sxm"];
    let more = [&link[..], &["--recorder", "events"]].concat();
    let record = run(device, &Place::new(), &more, &cost).exits(0).json();
    let link = &record["environment"]["emulated_link"];
    assert_eq!((&link["profile"], &link["p2p"]), (&"h100_sxm".into(), &"off".into()), "{link}");
    let here = &link["on_this_gpu"];
    assert_eq!(number(&here["tick"]["ns"]), 250.0, "{here}");
    let launch = number(&here["launch_us"]);
    assert!((3.9..4.5).contains(&launch), "{here}");
    let checked = here["checked"].as_array().expect("sizes");
    assert_eq!(checked.len(), 2, "a decode step's and the prefill's: {here}");
    let profile = Profile::load("h100_sxm").expect("built in");
    for size in checked {
        let (target, took) = (number(&size["target_us"]), number(&size["took_us"]));
        let measured = profile.link.p2p_off.alone_us(4, number(&size["bytes"]));
        assert!((target - measured).abs() < 0.001, "{target} against {measured}");
        assert!((took - target).abs() <= 0.3, "{took} against {target}: more than a tick");
    }
    // 24 all-reduces of a decode step's size, each with its launch
    let (comm, target) = (number(&record["overlap"]["comm_ms"]), number(&checked[0]["target_us"]));
    assert!((comm / (24e-3 * target) - 1.0).abs() < 0.02, "{comm} against {target} us");
}

/// Whatever runs beside its kernels, an architecture's are started as another one's: what is compared is the wiring.
#[test]
fn kernels_may_begin_early_in_every_architecture_alike() {
    let device = device!();
    let edges = |architecture: &str, more: &[&str]| {
        let link =
            ["--tp", "4", "--link", "emulated:alpha_us=30,gb_s=1", "--architecture", architecture];
        let all: Vec<&str> = link.iter().chain(more).copied().collect();
        let record = run(device, &Place::new(), &all, &[]).exits(0).json();
        let environment = record["environment"].clone();
        (number(&environment["programmatic_edges"]), environment["multiprocessors_divided"].clone())
    };
    let of = ["standard", "ladder", "upper-bound"].map(|architecture| edges(architecture, &[]).0);
    assert!(of[0] > 5.0, "{of:?}");
    // a kernel that waits for a collective has no such edge, and ladder waits as often as standard
    assert!((of[1] - of[0]).abs() <= 2.0 && of[2] >= of[0], "{of:?}");
    // with multiprocessors of their own for collectives, too
    for architecture in ["standard", "ladder", "upper-bound"] {
        let (own, divided) = edges(architecture, &["--comm-sms", "1"]);
        assert_eq!((number(&divided["compute"]), number(&divided["communication"])), (3.0, 1.0));
        assert_eq!(own, edges(architecture, &[]).0, "{architecture}");
    }
}

/// Graphs keep early starts from drivers for CUDA 12.3 on.
#[test]
fn an_older_driver_has_no_early_starts() {
    let record =
        run(device!(), &Place::new(), &[], &[("FAKE_CUDA_DRIVER_VERSION", "12020")]).exits(0).json();
    let environment = &record["environment"];
    assert_eq!(environment["programmatic_launches"], false, "{environment}");
    assert_eq!(number(&environment["programmatic_edges"]), 0.0, "{environment}");
}

#[test]
fn multiprocessors_that_cannot_be_set_aside_are_told() {
    let device = device!();
    let more = ["--tp", "4", "--link", "emulated:alpha_us=30,gb_s=1", "--comm-sms", "1"];
    fails(device, &more, &[("FAKE_CUDA_GREEN", "0")], &["setting 1 multiprocessors aside"]);
    let all = ["--tp", "4", "--link", "emulated:alpha_us=30,gb_s=1", "--comm-sms", "4"];
    let record = run(device, &Place::new(), &all, &[]).exits(1).json();
    let reason = record["reason"].to_string();
    assert!(reason.contains("4 of 4 multiprocessors for communication leave none"), "{reason}");
}

/// A run that computed something else than it should has no numbers, however fast it was.
#[test]
fn what_was_computed_is_looked_at() {
    let device = device!();
    let record = run(device, &Place::new(), &[], &[]).exits(0).json();
    let computed = &record["environment"]["computed"];
    assert_eq!((number(&computed["generations"]), &computed["ranks_agree"]), (2.0, &Value::Null));
    let gpus = ("FAKE_CUDA_DEVICES", "2");
    let record = run(device, &Place::new(), &TWO, &[gpus]).exits(0).json();
    assert_eq!(record["environment"]["computed"]["ranks_agree"], true, "{record}");
    // of the second generation: a step is tried before the first one
    fails(
        device,
        &[],
        &[("FAKE_CUDA_SPOIL", "sample_greedy:7=4")],
        &["rank 0 chose other tokens than in"],
    );
    // of one rank's first decode step: both ranks try a step, and sample behind the prefill
    let spoilt = [gpus, ("FAKE_CUDA_SPOIL", "sample_greedy:5=4")];
    fails(device, &COUNTED, &spoilt, &["sample 1/2: rank 1 chose other tokens than rank 0"]);
    // 8 all-reduces a step, behind two that are the first ones: of the step that is tried, of the prefill
    let spoilt = [gpus, ("FAKE_NCCL_SPOIL", "1:22=1")];
    fails(device, &COUNTED, &spoilt, &["sample 1/2", "are infinite or NaN"]);
    // ranks that have residuals of their own need not agree, but they do what they did before
    let alone = ["--tp", "2", "--architecture", "upper-bound"];
    run(device, &Place::new(), &alone, &[gpus]).exits(0);
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

/// A run that fails: its options, its variables, and words of the reason.
type Failing<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

/// Runs that fail beside one another, for most of their time is waiting.
fn fail_together(device: &Device, cases: &[Failing<'_>]) {
    std::thread::scope(|scope| {
        for (more, variables, words) in cases {
            scope.spawn(|| fails(device, more, variables, words));
        }
    });
}

const TWO: [&str; 4] = ["--tp", "2", "--architecture", "ladder"];

/// The same, without the steps before the samples in which events around collectives are tried: what fails is counted.
const COUNTED: [&str; 6] = ["--tp", "2", "--architecture", "ladder", "--recorder", "off"];

#[test]
fn what_nccl_notices_in_the_background_ends_the_run() {
    let variables = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_NCCL_ASYNC", "1:5=6")];
    fails(device!(), &TWO, &variables, &["rank 1", "peer has reset the connection"]);
}

/// A rank that never joins, a collective or a kernel that hangs, and a peer that is dead, for which a rank waits in NCCL for
/// ever: the communicator is ended under it.
#[test]
fn what_hangs_ends_the_run_within_its_time_out() {
    let gpus = ("FAKE_CUDA_DEVICES", "2");
    fail_together(
        device!(),
        &[
            (&TWO, &[gpus, ("FAKE_NCCL_ABSENT", "1")], &["joining rank", "within 10 s"]),
            (&TWO, &[gpus, ("FAKE_NCCL_HANG", "1:7")], &["hangs"]),
            // who notices first is a race of two clocks; either names the sample, or the step that was tried before it
            (&COUNTED, &[gpus, ("FAKE_CUDA_HANG", "add_norm:9")], &["capturing a decode step"]),
            (&COUNTED, &[gpus, ("FAKE_CUDA_HANG", "add_norm:40")], &["sample 1/2"]),
            (&[], &[("FAKE_CUDA_HANG", "attend_decode:6")], &["sample 1/2"]),
            // the first sums, and one of the prefill
            (&TWO, &[gpus, ("FAKE_NCCL_WAIT", "1:1")], &["within 10 s"]),
            (&TWO, &[gpus, ("FAKE_NCCL_WAIT", "1:13")], &["within 10 s"]),
        ],
    );
}

/// What NCCL takes of memory with its first sum is there before memory is looked at.
#[test]
fn memory_that_nccl_takes_late_counts_before_anything_is_loaded() {
    let device = device!();
    let memory = |bytes: &'static str| {
        [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_MEMORY", bytes), ("FAKE_NCCL_LAZY", "60000000")]
    };
    let record = run(device, &Place::new(), &TWO, &memory("1000000000")).exits(0).json();
    let took = number(&record["environment"]["nccl_first_sums_bytes"]);
    assert!(took >= 60e6, "{took}");
    fails(device, &TWO, &memory("90000000"), &["out of memory on GPU", "are free"]);
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
