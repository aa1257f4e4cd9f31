//! `ladderscope record` of a run on the software device: the driver loads the recorder, CUPTI's records come from the
//! device's schedule, and the device's own log is the truth.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::device::{Device, device};
use crate::support::{Place, finish_within};

/// Name, device, start and end of work, sorted; times before the last end.
type Work = Vec<(String, u64, i64, i64)>;

/// The last kernel is always one of the run, the first may be one of the probe before it.
fn before_last(mut work: Work) -> Work {
    let last = work.iter().map(|one| one.3).max().unwrap_or(0);
    for one in &mut work {
        (one.2, one.3) = (one.2 - last, one.3 - last);
    }
    work.sort();
    work
}

/// Records a run; returns what the device logged of it, what the trace has, and how many kernels the probe ran.
fn recorded(device: &Device, version: &str, more: &[&str]) -> (Work, Work, usize, trace::Trace) {
    let place = Place::new();
    let log = place.path().join("log");
    let cell = "run --backend cuda --model tiny --dtype f32 --tp 2 --prompt-tokens 4 --output-tokens 6 --samples 1 \
                --warmup 0 --recorder off";
    let mut arguments = vec!["record", "--name", "r", "--", crate::BINARY];
    arguments.extend(cell.split_whitespace());
    arguments.extend(more);
    let mut command = device.command(&place, &arguments);
    command.env("LADDERSCOPE_CUPTI", device.file("lib/libcupti.so.13"));
    command.env("XDG_CACHE_HOME", place.path().join("cache")).env_remove("XDG_RUNTIME_DIR");
    command.envs([
        ("FAKE_CUDA_DEVICES", "2"),
        ("FAKE_CUPTI_RECORDS", "1"),
        ("FAKE_CUPTI_VERSION", version),
    ]);
    command.env("FAKE_CUDA_LOG", &log);
    let done = finish_within(std::time::Duration::from_secs(500), command).exits(0);
    let path = place.path().join("runs/recordings/r/trace.parquet");
    let trace = trace::read(&path).unwrap_or_else(|error| panic!("{error}: {}", done.stderr));
    let mut found = Work::new();
    for span in &trace.spans {
        let operation = &trace.operations[span.operation as usize];
        if !operation.name.starts_with("Mem") {
            let of = &trace.meta.streams[usize::from(span.stream)];
            let device = of.device.unwrap_or(-1) as u64;
            found.push((operation.name.clone(), device, span.start_ns, span.end_ns));
        }
    }
    let names: std::collections::BTreeSet<String> = found.iter().map(|one| one.0.clone()).collect();
    let text = std::fs::read_to_string(&log).expect("the device's log");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let mut kernels: BTreeMap<&str, bool> = BTreeMap::new();
    // by thread: the probe of NCCL before the run is a process of its own, which ends without exit handlers
    let mut threads: BTreeMap<u64, Work> = BTreeMap::new();
    for line in &lines {
        let name = line["name"].as_str().unwrap_or_default();
        if let Some(kind) = line["kind"].as_str() {
            kernels.insert(name, kind == "kernel" || kind == "library");
        } else if line["call"] == "ran" && kernels.get(name) == Some(&true) {
            let time = |key: &str| line[key].as_i64().expect("a time");
            let device = line["device"].as_u64().expect("a device");
            let thread = threads.entry(line["thread"].as_u64().expect("a thread")).or_default();
            thread.push((name.to_owned(), device, time("start"), time("end")));
        }
    }
    let (run, probe): (Vec<Work>, Vec<Work>) = threads.into_values().partition(|work| work.len() > 20);
    let (run, probe): (Work, usize) = (run.concat(), probe.iter().map(Vec::len).sum());
    assert!(names.len() > 5, "{names:?}");
    (before_last(run), before_last(found), probe, trace)
}

/// Every kernel of both devices, eager and in graphs, with the device's own times to the nanosecond.
#[test]
fn a_recorded_run_has_the_devices_own_times() {
    for (version, more) in [("130000", &[][..]), ("18", &["--no-graph"]), ("130400", &[])] {
        let (logged, found, probe, trace) = recorded(device!(), version, more);
        assert!(logged.len() > 100, "{}", logged.len());
        let lost = logged.iter().find(|work| found.binary_search(work).is_err());
        assert_eq!(lost, None, "CUPTI {version}");
        // the probe may end before its kernels are written
        assert!(found.len() <= logged.len() + probe, "CUPTI {version}");
        // processes of the probe count as ranks if they were recorded
        let probed = found.len() - logged.len();
        assert!((2..=2 + probed).contains(&(trace.meta.ranks as usize)), "CUPTI {version}");
        assert_eq!(trace.meta.recorder, "cupti-injection");
        // the run's NVTX ranges are host ranges of the same trace
        assert!(!trace.ranges.is_empty());
    }
}
