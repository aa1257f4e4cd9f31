//! Synthetic traces for tests and benchmarks, here and in dependent crates.

pub mod kineto;

use crate::{OperationInfo, Span, Trace, TraceMeta};
use plan::Lane;
use table::Provenance;
use table::testing::spec;

/// A decode span of operation 0 (a matmul) on the compute lane, or 1 (an all-reduce) on the comm lane.
pub fn span(rank: u32, lane: Lane, start_ns: i64, end_ns: i64) -> Span {
    let operation = lane as u32;
    Span { rank, lane, operation, ready_ns: start_ns, start_ns, end_ns, ..Span::EMPTY }
}

fn operation(name: &str, kind: &str, lane: Lane) -> OperationInfo {
    OperationInfo {
        module: name.split('/').next().unwrap_or_default().into(),
        layer: Some(0),
        lane,
        ..OperationInfo::imported(format!("decode/L0/{name}"), kind)
    }
}

/// A simulated trace of these spans, with operations 0 to 4: matmul, all_reduce, attend, add_norm,
/// silu_mul.
pub fn trace(spans: Vec<Span>) -> Trace {
    let ranks = spans.iter().map(|s| s.rank + 1).max().unwrap_or(0);
    let operations = vec![
        operation("mlp/down", "matmul", Lane::Compute),
        operation("mlp/reduce", "all_reduce", Lane::Comm),
        operation("attn/attend", "attend", Lane::Compute),
        operation("attn/norm", "add_norm", Lane::Compute),
        operation("mlp/silu", "silu_mul", Lane::Compute),
    ];
    let meta = TraceMeta {
        spec: Some(spec()),
        clock: "virtual".into(),
        recorder: "sim".into(),
        ..TraceMeta::new(Provenance::Simulated, ranks)
    };
    Trace { meta, operations, spans, ranges: Vec::new() }
}
