//! `ladderscope record` of a run on the software device: the driver loads the recorder, CUPTI's records come from the
//! device's schedule, and the device's own log is the truth.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::device::{Device, device};
use crate::support::{Place, finish_within};

/// Name, device, start and end of work, sorted; times from the first on.
type Work = Vec<(String, u64, i64, i64)>;

fn from_first(mut work: Work) -> Work {
    let first = work.iter().map(|one| one.2).min().unwrap_or(0);
    for one in &mut work {
        (one.2, one.3) = (one.2 - first, one.3 - first);
    }
    work.sort();
    work
}

/// Message sizes of collectives on each device, sorted: the larger of what a rank reads and writes.
type Messages = BTreeMap<u64, Vec<u64>>;

struct Recorded {
    /// Kernels of the run as the device logged them, and as the trace has them.
    logged: Work,
    found: Work,
    /// NCCL's messages, as the device logged them.
    messages: Messages,
    trace: trace::Trace,
}

/// Records a run with this version of CUPTI and NCCL.
fn recorded(device: &Device, version: &str, nccl: &str, more: &[&str]) -> Recorded {
    let place = Place::new();
    let log = place.path().join("log");
    let cell = "run --backend cuda --model tiny --dtype f32 --tp 2 --prompt-tokens 4 --output-tokens 6 --samples 1 \
                --warmup 0 --recorder off";
    // host times are the device's, as on a real machine
    let clock = format!("LD_PRELOAD={}", device.file("lib/libclock.so").display());
    let mut arguments = vec!["record", "--name", "r", "--", "env", &clock, crate::BINARY];
    arguments.extend(cell.split_whitespace());
    arguments.extend(more);
    let mut command = device.command(&place, &arguments);
    command.env("LADDERSCOPE_CUPTI", device.file("lib/libcupti.so.13"));
    command.env("XDG_CACHE_HOME", place.path().join("cache")).env_remove("XDG_RUNTIME_DIR");
    command.envs([
        ("FAKE_CUDA_DEVICES", "2"),
        ("FAKE_CUPTI_RECORDS", "1"),
        ("FAKE_CUPTI_VERSION", version),
        ("FAKE_NCCL_VERSION", nccl),
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
    let names: BTreeSet<String> = found.iter().map(|one| one.0.clone()).collect();
    let text = std::fs::read_to_string(&log).expect("the device's log");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let mut kernels: BTreeMap<&str, bool> = BTreeMap::new();
    // by thread: the probe of NCCL before the run is a process of its own
    let mut threads: BTreeMap<u64, (Work, Messages)> = BTreeMap::new();
    for line in &lines {
        let name = line["name"].as_str().unwrap_or_default();
        if let Some(kind) = line["kind"].as_str() {
            kernels.insert(name, kind == "kernel" || kind == "library");
        } else if line["call"] == "ran" && kernels.get(name) == Some(&true) {
            let number = |key: &str| line[key].as_i64().expect("a number");
            let device = line["device"].as_u64().expect("a device");
            let thread = threads.entry(line["thread"].as_u64().expect("a thread")).or_default();
            thread.0.push((name.to_owned(), device, number("start"), number("end")));
            if name.starts_with("nccl") {
                let bytes = |key: &str| line[key].as_array().and_then(|all| all[1].as_u64());
                let message = bytes("reads").max(bytes("writes")).expect("ranges");
                thread.1.entry(device).or_default().push(message);
            }
        }
    }
    let (mut logged, mut messages) = (Work::new(), Messages::new());
    for (work, sizes) in threads.into_values().filter(|(work, _)| work.len() > 20) {
        logged.extend(work);
        for (device, sizes) in sizes {
            messages.entry(device).or_default().extend(sizes);
        }
    }
    messages.values_mut().for_each(|sizes| sizes.sort_unstable());
    assert!(names.len() > 5, "{names:?}");
    Recorded { logged: from_first(logged), found: from_first(found), messages, trace }
}

/// Every kernel of both devices, eager and in graphs, with the device's own times to the nanosecond, and every
/// collective with its bytes, group and algorithm, whichever interface NCCL's version has. The run's probes of NCCL are
/// processes of their own, and no ranks.
#[test]
fn a_recorded_run_has_the_devices_own_times_and_messages() {
    for (version, nccl, more) in [
        ("130000", "22703", &[][..]),
        ("18", "22304", &["--no-graph"]),
        ("130400", "22907", &[]),
        ("28", "22504", &["--sequence-parallel", "--batch", "2"]),
    ] {
        let Recorded { logged, found, messages, trace } = recorded(device!(), version, nccl, more);
        assert!(logged.len() > 100, "{}", logged.len());
        assert_eq!(logged.len(), found.len(), "CUPTI {version}");
        let differ = logged.iter().zip(&found).find(|(logged, found)| logged != found);
        assert_eq!(differ, None, "CUPTI {version}");
        assert_eq!(trace.meta.ranks, 2);
        assert_eq!(trace.meta.recorder, "cupti-injection");
        // the run's NVTX ranges are host ranges of the same trace
        assert!(!trace.ranges.is_empty());
        let mut told = Messages::new();
        for span in &trace.spans {
            let operation = &trace.operations[span.operation as usize];
            if !operation.name.starts_with("nccl") {
                continue;
            }
            let info =
                operation.collective.as_ref().unwrap_or_else(|| panic!("NCCL {nccl}: {operation:?}"));
            assert_eq!(
                (info.algorithm.as_str(), info.protocol.as_str(), info.channels),
                ("RING", "LL", Some(2)),
                "NCCL {nccl}"
            );
            // before 2.25 neither NVTX nor the plugin says how large a communicator is
            let group = info.group.map(|at| trace.meta.groups[at as usize].size);
            assert_eq!(group, (nccl >= "22500").then_some(2), "NCCL {nccl}");
            let device = trace.meta.streams[usize::from(span.stream)].device.expect("a device");
            let bytes = info.message_bytes.unwrap_or_else(|| panic!("NCCL {nccl}: {info:?}"));
            told.entry(device as u64).or_default().push(bytes);
        }
        told.values_mut().for_each(|sizes| sizes.sort_unstable());
        assert!(messages.values().all(|sizes| sizes.len() > 10), "{messages:?}");
        assert_eq!(told, messages, "NCCL {nccl}");
    }
}
