//! A sweep that is interrupted, killed, or loses a run: what is finished is never lost, and the next
//! sweep goes on where it stopped.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Started, is_alive, send, wait_for};

/// Three cells of about a second each: 8 all-reduces a step that take 4 ms, 16 steps, 2 samples.
pub const SLOW: &str = "\
backend = \"cpu\"
link = \"emulated:alpha_us=4000,gb_s=10\"
[model]
name = \"tiny\"
[workload]
prompt_tokens = 2
output_tokens = 17
samples = 2
warmup = 0
rounds = 1
[grid]
tp = [2]
batch = [1, 2, 3]
";

fn slow_sweep() -> (Place, Started) {
    let place = Place::new();
    place.write("slow.toml", SLOW);
    let sweep = place.start(&["sweep", "slow.toml", "--format", "json"]);
    (place, sweep)
}

fn finished(place: &Place) -> Vec<Value> {
    let runs = place.run(&["runs", "--status", "ok", "--format", "json"]).exits(0).json();
    runs.as_array().cloned().unwrap_or_default()
}

/// Waits until the first cell is finished and the process of another runs; that process.
fn second_run(place: &Place, sweep: &Started) -> u32 {
    wait_for("the first run to be stored", || (!finished(place).is_empty()).then_some(()));
    wait_for("the next run's process", || sweep.children().first().copied())
}

/// Sweeps again, to the end; the runs that were finished before are part of the result.
fn goes_on(place: &Place, before: &[Value]) {
    let cells = place.run(&["sweep", "slow.toml", "--format", "json"]).exits(0).json_lines();
    let batches: Vec<_> = cells.iter().map(|cell| cell["spec"]["batch"].as_u64()).collect();
    assert_eq!(batches, [Some(1), Some(2), Some(3)]);
    assert!(cells.iter().all(|cell| cell["status"] == "ok"), "{cells:?}");
    let after: Vec<Value> = finished(place).iter().map(|run| run["run"].clone()).collect();
    assert_eq!(after.len(), 3, "each cell was finished once: {after:?}");
    for run in before {
        assert!(after.contains(&run["run"]), "{} was lost", run["run"]);
    }
}

#[test]
fn an_interrupted_sweep_exits_130_and_goes_on_later() {
    let (place, sweep) = slow_sweep();
    let run = second_run(&place, &sweep);
    sweep.signal(Signal::INT);
    let done = sweep.wait().exits(130);
    assert!(done.stderr.contains("interrupted"), "{done:?}");
    wait_for("the run's process to end", || (!is_alive(run)).then_some(()));
    let before = finished(&place);
    assert!(!before.is_empty(), "what was done is stored");
    goes_on(&place, &before);
}

#[test]
fn a_sweep_killed_outright_loses_no_finished_run() {
    let (place, sweep) = slow_sweep();
    let run = second_run(&place, &sweep);
    let before = finished(&place);
    sweep.signal(Signal::KILL);
    assert_eq!(sweep.wait().code, -1);
    // Nobody is left to end the run's process: it must see to that itself.
    wait_for("the orphaned run to end", || (!is_alive(run)).then_some(()));
    let all = place.run(&["runs", "--format", "json"]).exits(0).json();
    let interrupted =
        all.as_array().is_some_and(|all| all.iter().any(|run| run["status"] == "interrupted"));
    assert!(interrupted, "the run that was under way is known: {all}");
    goes_on(&place, &before);
}

#[test]
fn a_run_that_dies_fails_alone() {
    let (place, sweep) = slow_sweep();
    send(second_run(&place, &sweep), Signal::KILL);
    let cells = sweep.wait().exits(3).json_lines();
    let status = |status: &str| cells.iter().filter(|cell| cell["status"] == status).count();
    assert_eq!((status("ok"), status("failed")), (2, 1), "{cells:?}");
    let failed = cells.iter().find(|cell| cell["status"] == "failed").cloned().unwrap_or_default();
    let reason = failed["reason"].as_str().unwrap_or_default().to_lowercase();
    assert!(reason.contains("signal") || reason.contains("kill"), "{reason}");
    assert!(failed["metrics"].is_null(), "{failed}");
    goes_on(&place, &[]);
}
