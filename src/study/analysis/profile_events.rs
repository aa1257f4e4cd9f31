//! Events of PyTorch's profiler as text (times in us), for tests of imported traces.

use trace::Trace;
use trace::import::kineto;
use trace::rules::Rules;

/// Event of the host.
pub(super) fn host_event(category: &str, name: &str, tid: u32, ts: u32, dur: u32) -> String {
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": {dur}}}"#
    )
}

pub(super) fn annotation(name: &str, tid: u32, ts: u32, dur: u32) -> String {
    host_event("user_annotation", name, tid, ts, dur)
}

/// Call of 5 us at a time that is also its number.
pub(super) fn launch(call: &str, at: u32, tid: u32) -> String {
    format!(
        r#"{{"ph": "X", "cat": "cuda_runtime", "name": "{call}", "pid": 1, "tid": {tid}, "ts": {at}, "dur": 5, "args": {{"correlation": {at}}}}}"#
    )
}

/// Kernel that the call of that number launched.
pub(super) fn kernel(name: &str, stream: u32, ts: u32, dur: u32, call: u32) -> String {
    format!(
        r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {ts}, "dur": {dur}, "args": {{"device": 0, "stream": {stream}, "correlation": {call}}}}}"#
    )
}

/// Trace of these events.
pub(super) fn imported(events: &[impl AsRef<str>]) -> Trace {
    let events: Vec<&str> = events.iter().map(|event| event.as_ref()).collect();
    imported_file(&format!("[{}]", events.join(",")))
}

/// Trace of a file with this text.
pub(super) fn imported_file(json: &str) -> Trace {
    let options = kineto::KinetoOptions::default();
    let mut trace = kineto::import_bytes("t.json", json.as_bytes(), options).unwrap();
    Rules::default().classify(&mut trace);
    trace
}
