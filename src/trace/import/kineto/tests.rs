//! The importer against generated traces with known answers, and against everything else.

mod collectives;
mod odd;
mod ranks;
mod shapes;
mod sites;
mod times;
mod truth;

use std::fmt::Display;

use super::{KinetoOptions, import_bytes};
use crate::Trace;
use crate::import::tests::{assert_accounted, import_report, warned};
use crate::testing::kineto::{Generated, Shape, Style, TrueSpan, generate};
use base::error::Error;

/// Small pieces, so that small traces cross their borders; one thread, so that tests are quick.
fn small() -> KinetoOptions {
    KinetoOptions { parsers: 0, piece: 700 }
}

fn read(json: &str) -> Trace {
    import_bytes("t.json", json.as_bytes(), small()).unwrap()
}

fn message(bytes: &[u8]) -> String {
    match import_bytes("t.json", bytes, small()) {
        Err(error @ Error::Input { .. }) => error.to_string(),
        other => panic!("expected an error of the input, got {other:?}"),
    }
}

/// An array of events, the keys of each given.
fn events(list: &[impl AsRef<str>]) -> String {
    let events: Vec<String> = list.iter().map(|keys| format!("{{{}}}", keys.as_ref())).collect();
    format!("[{}]", events.join(",\n"))
}

/// Keys of a complete event, with the body of its arguments.
fn complete(
    [category, name]: [&str; 2],
    (pid, tid): (impl Display, impl Display),
    (ts, dur): (impl Display, impl Display),
    args: &str,
) -> String {
    format!(
        r#""ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": {ts}, "dur": {dur}, "args": {{{args}}}"#
    )
}

/// An event of process 1 of the host.
fn host(category: &str, name: &str, tid: u32, time: (u32, u32)) -> String {
    complete([category, name], (1, tid), time, "")
}

/// A launch of process 1.
fn call(name: &str, tid: u32, time: (u32, u32), correlation: u32) -> String {
    complete(["cuda_runtime", name], (1, tid), time, &format!(r#""correlation": {correlation}"#))
}

/// An event of stream 7, with arguments after its own.
fn on_stream(category: &str, name: &str, time: (impl Display, impl Display), more: &str) -> String {
    complete([category, name], (0, 7), time, &format!(r#""device": 0, "stream": 7{more}"#))
}

/// A kernel with these keys besides its name and category.
fn kernel(keys: &str) -> String {
    events(&[&format!(r#""ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, {keys}"#)])
}

fn generated(style: Style) -> Generated {
    generate(Shape::default(), style)
}

/// The spans as the generator would describe them, in its order of time.
fn described(trace: &Trace) -> Vec<TrueSpan> {
    let mut spans: Vec<TrueSpan> = trace
        .spans
        .iter()
        .map(|span| {
            let operation = &trace.operations[span.operation as usize];
            TrueSpan {
                step: span.step,
                start_ns: span.start_ns,
                end_ns: span.end_ns,
                ready_ns: span.ready_ns,
                stream: trace.meta.streams[span.stream as usize].id,
                name: operation.name.clone(),
                kind: match operation.kind.as_str() {
                    "kernel" => "kernel",
                    "memcpy" => "memcpy",
                    "memset" => "memset",
                    other => panic!("unknown kind {other}"),
                },
            }
        })
        .collect();
    spans.sort();
    spans
}

fn truth(generated: &Generated) -> Vec<TrueSpan> {
    let mut spans: Vec<TrueSpan> = generated.spans.iter().map(|(_, span)| span.clone()).collect();
    spans.sort();
    spans
}
