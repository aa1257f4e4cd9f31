//! `doctor` on the software CUDA device: what it finds, and what it says where something is wrong.

use std::path::Path;

use serde_json::Value;

use crate::device::{Device, device};
use crate::support::Place;

/// Doctor's report as JSON with these variables set, without measurements.
fn quick(device: &Device, variables: &[(&str, &str)]) -> Value {
    let arguments = ["doctor", "--quick", "--format", "json"];
    device.run(&Place::new(), &arguments, variables).exits(0).json()
}

/// As [`quick`], with measurements.
fn measured(device: &Device, variables: &[(&str, &str)]) -> Value {
    device.run(&Place::new(), &["doctor", "--format", "json"], variables).exits(0).json()
}

/// Why there is no GPU.
fn problem(report: &Value) -> &str {
    assert_eq!(report["cuda"]["gpus"], serde_json::json!([]), "{report}");
    report["cuda"]["problem"].as_str().expect("a problem")
}

fn backend<'a>(report: &'a Value, name: &str) -> &'a Value {
    let backends = report["backends"].as_array().expect("backends");
    backends.iter().find(|backend| backend["name"] == name).expect("the backend")
}

#[test]
fn a_gpu_is_found_and_measured() {
    let report = measured(device!(), &[("FAKE_CUDA_DEVICES", "1")]);
    let cuda = &report["cuda"];
    assert_eq!(cuda["problem"], Value::Null, "{cuda}");
    let gpus = cuda["gpus"].as_array().expect("GPUs");
    assert_eq!(gpus.len(), 1);
    let gpu = &gpus[0];
    assert_eq!((&gpu["index"], &gpu["compute_capability"]), (&0.into(), &"9.0".into()));
    for (key, problem) in [("read_bandwidth", "read_bandwidth_problem"), ("gemm", "gemm_problem")] {
        assert_eq!(gpu[problem], Value::Null, "{gpu}");
        assert!(gpu[key].is_object(), "{gpu}");
    }
    assert!(gpu["read_bandwidth"]["gb_s"].as_f64().is_some_and(|gb_s| gb_s > 0.0), "{gpu}");
    assert!(gpu["read_bandwidth"]["buffer_bytes"].as_u64().is_some_and(|b| b >= 1 << 20), "{gpu}");
    assert!(gpu["gemm"]["tflops"].as_f64().is_some_and(|tflops| tflops > 0.0), "{gpu}");
    let free = gpu["memory_free_bytes"].as_u64().zip(gpu["memory_bytes"].as_u64());
    assert!(free.is_some_and(|(free, total)| free > 0 && free <= total), "{gpu}");
    assert_eq!(backend(&report, "cuda")["available"], true, "{report}");
}

#[test]
fn four_gpus_have_a_matrix_of_peers() {
    let device = device!();
    let found = quick(device, &[("FAKE_CUDA_DEVICES", "4")]);
    let cuda = &found["cuda"];
    assert_eq!(cuda["gpus"].as_array().map(Vec::len), Some(4));
    for from in 0..4 {
        for to in 0..4 {
            let (reach, peer) = (&cuda["p2p"][from][to], &cuda["peers"][from][to]);
            assert_eq!(peer.is_null(), from == to, "{cuda}");
            assert_eq!(reach, &Value::Bool(peer["access"] == true), "{cuda}");
        }
    }
    let detail = backend(&found, "cuda")["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("TP up to 4"), "{detail}");
    let place = Place::new();
    let variables = [("FAKE_CUDA_DEVICES", "4")];
    let table = device.run(&place, &["doctor", "--quick"], &variables).exits(0).stdout;
    for expected in ["GPU 3", "P2P", "NVRTC", "cuBLASLt", "--quick"] {
        assert!(table.contains(expected), "{expected} is missing in {table}");
    }
    let arguments = ["doctor", "--quick", "--format", "csv"];
    let csv = device.run(&place, &arguments, &variables).exits(0).stdout;
    assert!(csv.contains("\ncuda.gpus.3.read_bandwidth,\n"), "{csv}");
}

#[test]
fn a_driver_without_gpus_says_what_to_check() {
    let report = quick(device!(), &[("FAKE_CUDA_DEVICES", "0")]);
    assert!(problem(&report).contains("CUDA_VISIBLE_DEVICES"), "{report}");
    assert_eq!(backend(&report, "cuda")["available"], false);
}

#[test]
fn a_driver_that_is_too_old_is_told_by_its_version() {
    let report = quick(device!(), &[("FAKE_CUDA_DRIVER_VERSION", "11080")]);
    let problem = problem(&report);
    assert!(
        problem.contains("too old") && problem.contains("11.8") && problem.contains("12.0"),
        "{problem}"
    );
    assert_eq!(report["cuda"]["driver_api"], "11.8");
}

#[test]
fn a_driver_that_lacks_a_function_is_told_by_it() {
    let device = device!();
    let old = device.file("old");
    let report = quick(device, &[("LD_LIBRARY_PATH", old.to_str().expect("UTF-8"))]);
    let problem = problem(&report);
    assert!(problem.contains("too old") && problem.contains("cuLaunchKernelEx"), "{problem}");
}

#[test]
fn a_driver_that_refuses_says_why_and_what_to_do() {
    let device = device!();
    let report = quick(device, &[("FAKE_CUDA_FAIL", "cuInit:1=803")]);
    let problem = problem(&report);
    assert!(problem.contains("803") && problem.contains("restart the machine"), "{problem}");
}

/// Beside one another: one of them waits for most of its time.
#[test]
fn what_is_in_the_way_of_measuring_is_told() {
    let device = device!();
    let all = [
        a_gpu_that_hangs_while_it_is_measured_is_given_up,
        what_cannot_be_measured_says_why,
        a_full_gpu_is_told_with_the_arithmetic,
        a_gpu_that_fails_while_it_is_measured_does_not_end_doctor,
    ];
    std::thread::scope(|scope| {
        for one in all {
            scope.spawn(move || one(device));
        }
    });
}

fn what_cannot_be_measured_says_why(device: &Device) {
    let found = measured(device, &[("LADDERSCOPE_NVRTC", "/no/such/libnvrtc.so.13")]);
    let gpu = &found["cuda"]["gpus"][0];
    let why = gpu["read_bandwidth_problem"].as_str().unwrap_or_default();
    assert!(why.contains("LADDERSCOPE_NVRTC") && why.contains("/no/such"), "{gpu}");
    assert!(gpu["gemm"].is_object(), "{gpu}");
    let cuda = backend(&found, "cuda");
    assert_eq!(cuda["available"], false, "nothing can be decoded without kernels");
    assert!(cuda["detail"].as_str().is_some_and(|detail| detail.contains("NVRTC")), "{cuda}");

    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let found = measured(device, &[("LADDERSCOPE_CUBLASLT", text.to_str().expect("UTF-8"))]);
    let gpu = &found["cuda"]["gpus"][0];
    assert!(gpu["read_bandwidth"].is_object(), "{gpu}");
    let why = gpu["gemm_problem"].as_str().unwrap_or_default();
    assert!(why.contains("LADDERSCOPE_CUBLASLT") && why.contains("Cargo.toml"), "{gpu}");
}

fn a_full_gpu_is_told_with_the_arithmetic(device: &Device) {
    let found = measured(device, &[("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2=2")]);
    let why = found["cuda"]["gpus"][0]["read_bandwidth_problem"].as_str().unwrap_or_default();
    assert!(why.contains("out of memory on GPU 0") && why.contains("GiB"), "{why}");
    assert!(found["cuda"]["gpus"][0]["gemm"].is_object(), "{found}");
}

fn a_gpu_that_fails_while_it_is_measured_does_not_end_doctor(device: &Device) {
    let found = measured(device, &[("FAKE_CUDA_BREAK", "read_bandwidth:2=700")]);
    let why = found["cuda"]["gpus"][0]["read_bandwidth_problem"].as_str().unwrap_or_default();
    assert!(why.contains("700") && why.contains("compute-sanitizer"), "{why}");
}

fn a_gpu_that_hangs_while_it_is_measured_is_given_up(device: &Device) {
    let found = measured(device, &[("FAKE_CUDA_HANG", "read_bandwidth:2")]);
    let gpu = &found["cuda"]["gpus"][0];
    let why = gpu["read_bandwidth_problem"].as_str().unwrap_or_default();
    assert!(why.contains("has not finished its work within 20 s"), "{why}");
    let why = gpu["gemm_problem"].as_str().unwrap_or_default();
    assert!(why.contains("stopped responding"), "{why}");
}

/// Folders in which the driver and a software NVML are found, as a value of `LD_LIBRARY_PATH`.
fn with_nvml(device: &Device) -> String {
    let joined = std::env::join_paths([device.file("driver"), device.file("nvml")]);
    joined.expect("folders without colons").into_string().expect("UTF-8")
}

#[test]
fn nvml_tells_clocks_power_and_links() {
    let device = device!();
    let folders = with_nvml(device);
    let variables = [
        ("LD_LIBRARY_PATH", folders.as_str()),
        ("FAKE_CUDA_DEVICES", "2"),
        ("FAKE_NVML_GPUS", "2"),
        ("FAKE_NVML_LINKS", "18"),
    ];
    let found = quick(device, &variables);
    assert_eq!(found["cuda"]["driver_version"], "580.65.06");
    let state = &found["cuda"]["gpus"][0]["state"];
    for (key, value) in [
        ("sm_clock_mhz", 1200.into()),
        ("sm_clock_max_mhz", 1980.into()),
        ("memory_clock_mhz", 2619.into()),
        ("power_w", 121.5.into()),
        ("power_limit_w", 700.0.into()),
        ("temperature_c", 41.into()),
        ("ecc", true.into()),
        ("ecc_uncorrected", 0.into()),
        ("processes", 2.into()),
        ("throttle_reasons", serde_json::json!(["gpu_idle", "sw_power_cap"])),
        ("mig", Value::Null),
    ] {
        assert_eq!(state[key], value, "{key}: {state}");
    }
    assert_eq!(found["cuda"]["gpus"][1]["state"]["temperature_c"], Value::Null);
    let links = found["cuda"]["gpus"][0]["nvlinks"].as_array().expect("links");
    assert_eq!((links.len(), &links[0]["gb_s"]), (18, &26.562.into()), "{links:?}");
    let place = Place::new();
    let table = device.run(&place, &["doctor", "--quick"], &variables).exits(0).stdout;
    for expected in [
        "driver 580.65.06 for CUDA 13.0, 2 GPUs",
        "SMs at 1200 of 1980 MHz",
        "throttled: sw_power_cap",
        "used by 2 process(es)",
        "18 NVLinks: 1 to GPU 1, 17 to switches, 26.6 GB/s each in one direction",
    ] {
        assert!(table.contains(expected), "{expected} is missing in {table}");
    }
}

#[test]
fn nvml_without_permission_is_told_and_nothing_else_is_lost() {
    let device = device!();
    let folders = with_nvml(device);
    let found = quick(device, &[("LD_LIBRARY_PATH", &folders), ("FAKE_NVML_FAIL", "4")]);
    assert_eq!(found["cuda"]["problem"], Value::Null, "{found}");
    assert_eq!(found["cuda"]["gpus"][0]["state"], Value::Null);
    let libraries = found["cuda"]["libraries"].as_array().expect("libraries");
    let nvml = libraries.iter().find(|library| library["name"] == "NVML").expect("NVML");
    assert!(nvml["problem"].as_str().is_some_and(|why| why.contains("ermission")), "{nvml}");
}

#[test]
fn records_have_clocks_before_and_after_and_warn_of_throttling() {
    let device = device!();
    let folders = with_nvml(device);
    let cell = "run --backend cuda --model tiny --tp 1 --batch 1 --prompt-tokens 8 --output-tokens 4";
    let rest = ["--samples", "1", "--warmup", "1", "--format", "json"];
    let arguments: Vec<&str> = cell.split(' ').chain(rest).collect();
    let variables = [("LD_LIBRARY_PATH", folders.as_str()), ("FAKE_NVML_THROTTLED_MS", "5")];
    let record = device.run(&Place::new(), &arguments, &variables).exits(0).json();
    let environment = &record["environment"];
    assert_eq!(environment["driver"]["version"], "580.65.06", "{environment}");
    for state in [&environment["gpus"][0]["state"], &environment["gpus_after"][0]] {
        assert_eq!((&state["sm_clock_mhz"], &state["memory_clock_mhz"]), (&1200.into(), &2619.into()));
        assert!(state["throttle_reasons"].is_array(), "{state}");
    }
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("GPU of rank 0: clocks were lowered by its power limit for 5 ms"),
        "{warnings}"
    );
}

/// What each check found, by name.
fn found(report: &Value, name: &str) -> String {
    let checks = report["gpus"][0]["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name).expect(name);
    check["found"].as_str().expect("a finding").to_owned()
}

#[test]
fn without_a_gpu_a_check_lists_what_it_would_do() {
    let place = Place::new();
    let mut command = place.command(&["doctor", "--check", "--format", "json"]);
    command.env("LD_LIBRARY_PATH", "/nonexistent");
    let report = crate::support::finish(command).exits(2).json();
    for name in ["products", "graph", "early starts", "bandwidth", "overlap", "link", "stamps", "nccl"] {
        assert_eq!(found(&report, name), "not done", "{report}");
    }
    assert_eq!(report["gpus"][0]["passed"], false);
}

/// A check is remembered for the runs of the same program on the same GPU, and stands in their records.
#[test]
fn a_check_that_passed_makes_runs_verified_and_one_that_failed_does_not() {
    let device = device!();
    let run = |place: &Place, cache: &str| {
        let cell =
            "run --backend cuda --model tiny --prompt-tokens 4 --output-tokens 4 --samples 1 --warmup 0";
        let all: Vec<&str> = cell.split(' ').chain(["--format", "json"]).collect();
        device.run(place, &all, &[("XDG_CACHE_HOME", cache)]).exits(0).json()
    };
    let check = |place: &Place, cache: &str, more: &[(&str, &str)]| {
        let variables = [&[("XDG_CACHE_HOME", cache)], more].concat();
        device.run(place, &["doctor", "--check", "--format", "json"], &variables)
    };
    let place = Place::new();
    let cache = place.path().join("cache").to_string_lossy().into_owned();
    // nothing is known yet, and nothing is to be checked by itself here
    let record = run(&place, &cache);
    assert_eq!(record["verified"], false, "{record}");
    assert!(record["warnings"].to_string().contains("run `ladderscope doctor --check`"), "{record}");

    let report = check(&place, &cache, &[]).exits(0).json();
    for name in ["products", "graph", "overlap", "link", "stamps"] {
        assert_eq!(found(&report, name), "passed", "{report}");
    }
    let record = run(&place, &cache);
    assert_eq!(record["verified"], true, "{record}");
    assert!(!record["warnings"].to_string().contains("unverified"), "{record}");

    // a token of the eager generation is another one
    let spoilt = [("FAKE_CUDA_SPOIL", "sample_greedy:16=4")];
    let report = check(&place, &cache, &spoilt).exits(1).json();
    assert_eq!(found(&report, "graph"), "failed", "{report}");
    let record = run(&place, &cache);
    assert_eq!(record["verified"], false, "{record}");
    assert!(record["warnings"].to_string().contains("failed (graph:"), "{record}");
}
