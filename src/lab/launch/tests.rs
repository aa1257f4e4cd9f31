//! The parent's side against processes that misbehave: shell scripts in the child's place.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::launch::{Cancel, Executor, ExecutorEvent, RunRequest};
use crate::store::{Store, sample_spec};
use run::{Outcome, RunEvent};
use table::{Instrumented, Overlap, Record, Sample, Spec, Status};

/// A script in the child's place. Another process writes it: a file that this one had open for writing
/// could not be executed while some other test forks.
fn script(dir: &Path, body: &str) -> PathBuf {
    let path = dir.join("child.sh");
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod +x \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{body}\n").as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    path
}

struct Scene {
    dir: tempfile::TempDir,
    store: Store,
    executor: ProcessExecutor,
    cancel: Cancel,
}

fn scene(body: &str) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("runs"));
    let binary = script(dir.path(), body);
    let executor =
        ProcessExecutor { binary, silence: Duration::from_secs(60), ..ProcessExecutor::new().unwrap() };
    Scene { dir, store, executor, cancel: Cancel::default() }
}

impl Scene {
    fn run_with(&self, spec: &Spec, mut on: impl FnMut(&ExecutorEvent)) -> Record {
        let request = RunRequest {
            spec,
            cell: 3,
            round: 1,
            experiment: Some("test"),
            store: &self.store,
            cancel: &self.cancel,
        };
        let record = self.executor.run(&request, &mut |event| on(&event));
        // whatever happened, it is stored as it was told
        assert_eq!(self.store.get(&record.run).unwrap(), record);
        assert_eq!((record.round, record.experiment.as_deref()), (1, Some("test")));
        record
    }

    fn run(&self) -> Record {
        self.run_with(&sample_spec("ladder"), |_| ())
    }
}

fn reason(record: &Record) -> &str {
    record.reason.as_deref().unwrap()
}

fn end_event() -> String {
    let overlap =
        Overlap { comm_ms: 2.0, exposed_comm_ms: 1.0, overlap_pct: Some(50.0), ..Default::default() };
    let sample = |overlap| Sample { prefill_ms: 1.0, decode_ms: 3.0, steps_ms: vec![1.0; 3], overlap };
    let outcome = Outcome {
        samples: vec![sample(None), sample(Some(overlap))],
        memory_bytes_per_rank: 1000,
        plan_hashes: vec![],
        environment: [("threads".to_owned(), serde_json::json!(2))].into(),
        instrumented: Some(Box::new(Instrumented {
            recorder: "stamps".into(),
            steps_ms: vec![1.25; 4],
            overlap: Some(Overlap { overlap_pct: Some(75.0), ..overlap }),
            ..Default::default()
        })),
    };
    serde_json::to_string(&RunEvent::End { outcome }).unwrap()
}

#[test]
fn a_result_becomes_a_record_and_garbage_a_warning() {
    let body = format!(
        "read request; echo \"$request\" > \"$(dirname \"$0\")/request\"\n\
         echo '{{\"event\":\"phase\",\"name\":\"loading weights\"}}'; echo not an event; echo to the log >&2\n\
         printf x > \"$(dirname \"$0\")/runs/$(ls \"$(dirname \"$0\")/runs\" | head -1)/trace.parquet\"\n\
         echo '{}'",
        end_event()
    );
    let mut scene = scene(&body);
    scene.executor.trace_copy = Some(scene.dir.path().join("copies/trace.parquet"));
    let mut heard = Vec::new();
    let record = scene.run_with(&sample_spec("ladder"), |event| heard.push(event.clone()));
    assert_eq!((record.status, record.reason.as_deref()), (Status::Ok, None), "{record:?}");
    assert_eq!(record.samples.len(), 2);
    assert_eq!(record.metrics.as_ref().unwrap().memory_bytes_per_rank, 1000);
    // the timed pass alone has an overlap, and what it cost is found out here
    assert_eq!(record.overlap.unwrap().overlap_pct, Some(75.0));
    let timed = record.instrumented.as_ref().unwrap();
    assert_eq!((timed.overhead, timed.tpot_ms), (Some(1.25), 1.25));
    assert_eq!(record.environment["threads"], 2);
    for said in ["'not an event'", "steps took 1.25 x as long while 'stamps' timed their operations"] {
        assert!(
            record.warnings.iter().any(|warning| warning.contains(said)),
            "{said}: {:?}",
            record.warnings
        );
    }
    assert_eq!(record.trace, Some(format!("{}/trace.parquet", record.run)));
    assert_eq!(std::fs::read(scene.dir.path().join("copies/trace.parquet")).unwrap(), b"x");
    let log = scene.store.dir().join(&record.run).join("log.txt");
    assert!(std::fs::read_to_string(log).unwrap().contains("to the log\n"));
    assert!(matches!(&heard[0], ExecutorEvent::Started(id) if *id == record.run));
    assert!(heard.iter().any(|e| matches!(e, ExecutorEvent::Log(line) if line == "to the log")));
    let request = std::fs::read_to_string(scene.dir.path().join("request")).unwrap();
    let request: Request = serde_json::from_str(&request).unwrap();
    assert_eq!((request.run, request.spec), (record.run, sample_spec("ladder")));
}

#[test]
fn how_a_process_died_is_the_reason_with_its_last_words() {
    let record = scene("for i in $(seq 30); do echo line $i >&2; done; kill -9 $$").run();
    assert_eq!(record.status, Status::Failed);
    assert!(reason(&record).starts_with("killed by signal 9 (SIGKILL; out of memory?)"), "{record:?}");
    assert!(reason(&record).ends_with("line 29\nline 30"), "{record:?}");
    assert!(!reason(&record).contains("line 20\n"), "only the last lines: {record:?}");
    assert!(record.environment.contains_key("host"));
    let record = scene("exit 7").run();
    assert_eq!(reason(&record), "its process ended with exit status 7 and no result");
    let record = scene("true").run();
    assert_eq!((record.status, reason(&record)), (Status::Failed, "its process ended without a result"));
}

#[test]
fn an_error_event_is_the_reason() {
    let record =
        scene("echo '{\"event\":\"error\",\"message\":\"no such tensor\",\"code\":2}'; exit 2").run();
    assert_eq!((record.status, reason(&record)), (Status::Failed, "no such tensor"));
}

#[test]
fn a_binary_that_is_not_there_is_a_failed_run() {
    let mut scene = scene("true");
    scene.executor.binary = scene.dir.path().join("nowhere");
    let record = scene.run();
    assert_eq!(record.status, Status::Failed);
    assert!(reason(&record).contains("nowhere"), "{record:?}");
}

#[test]
fn a_silent_process_is_ended_with_its_children() {
    let mut scene = scene("sleep 600 & echo $! > \"$(dirname \"$0\")/grandchild\"; sleep 600");
    scene.executor.silence = Duration::from_millis(300);
    let record = scene.run();
    assert_eq!(record.status, Status::Failed);
    assert!(reason(&record).starts_with("no sign of life"), "{record:?}");
    let pid = std::fs::read_to_string(scene.dir.path().join("grandchild")).unwrap();
    assert_gone(pid.trim());
}

#[test]
fn what_a_process_started_does_not_outlive_it() {
    let scene = scene("sleep 600 & echo $! > \"$(dirname \"$0\")/grandchild\"; exit 3");
    assert_eq!(scene.run().status, Status::Failed);
    let pid = std::fs::read_to_string(scene.dir.path().join("grandchild")).unwrap();
    assert_gone(pid.trim());
}

fn assert_gone(pid: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Err(_) => return,
            // killed, and not yet collected by whoever inherited it
            Ok(stat) if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) => return,
            Ok(stat) => assert!(Instant::now() < until, "still there: {stat}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn cancelling_ends_even_a_process_that_does_not_want_to() {
    let scene = scene("trap '' TERM; echo ready >&2; while true; do sleep 0.1; done");
    let cancel = scene.cancel.clone();
    let record = scene.run_with(&sample_spec("ladder"), |event| {
        if matches!(event, ExecutorEvent::Log(line) if line == "ready") {
            cancel.cell(3);
        }
    });
    assert_eq!((record.status, reason(&record)), (Status::Interrupted, "cancelled while it ran"));
    assert!(scene.store.finished().unwrap().is_empty(), "it will be run again");
}

#[test]
fn what_is_said_after_being_asked_to_end_is_still_heard() {
    let body =
        "trap 'echo last words >&2; exit 0' TERM; echo ready >&2; while true; do sleep 0.05; done";
    let scene = scene(body);
    let cancel = scene.cancel.clone();
    let mut lines = Vec::new();
    let record = scene.run_with(&sample_spec("ladder"), |event| {
        if let ExecutorEvent::Log(line) = event {
            lines.push(line.clone());
            cancel.all();
        }
    });
    assert_eq!(record.status, Status::Interrupted);
    // the shell may add a word about the command that it waited for
    assert_eq!((lines[0].as_str(), lines[lines.len() - 1].as_str()), ("ready", "last words"));
}

#[test]
fn variables_of_the_cell_reach_its_process() {
    let scene = scene("echo \"$NCCL_ALGO $NCCL_P2P_DISABLE\" >&2; exit 1");
    let mut spec = sample_spec("ladder");
    spec.env.insert("NCCL_ALGO".into(), "Ring".into());
    spec.p2p = table::P2p::Off;
    assert!(reason(&scene.run_with(&spec, |_| ())).ends_with("\nRing "));
    spec.backend = table::Backend::Cuda;
    assert!(reason(&scene.run_with(&spec, |_| ())).ends_with("\nRing 1"));
}

/// NCCL that writes down what it chooses takes time for it: nothing is timed then.
#[test]
fn nccl_writes_nothing_down_where_something_is_timed() {
    let scene = scene("echo \"$NCCL_DEBUG $NCCL_DEBUG_FILE $NCCL_NVLS_ENABLE\" >&2; exit 1");
    let mut spec = sample_spec("ladder");
    (spec.backend, spec.tp, spec.link) = (table::Backend::Cuda, 2, table::Link::Native);
    assert!(reason(&scene.run_with(&spec, |_| ())).ends_with("\n  "));
    spec.nvls = table::Nvls::Off;
    assert!(reason(&scene.run_with(&spec, |_| ())).ends_with("\n  0"));
    spec.env.insert("NCCL_DEBUG".into(), "WARN".into());
    assert!(reason(&scene.run_with(&spec, |_| ())).ends_with("\nWARN  0"), "but where the user asks");
}

#[test]
fn a_process_that_does_not_exit_after_its_result_is_killed() {
    let body = format!("echo '{}'; sleep 600", end_event());
    let mut scene = scene(&body);
    scene.executor.exit_timeout = Duration::from_millis(200);
    let record = scene.run();
    assert_eq!(record.status, Status::Ok, "its result counts: {record:?}");
    assert!(record.warnings.iter().any(|w| w.starts_with("after its result, killed by")), "{record:?}");
}
