//! Any bytes are a trace of the PyTorch profiler or an error: no panic, no event unaccounted for, and
//! the same trace whatever the pieces it was read in.

#![no_main]

use ladderscope::trace::import::kineto::{Options, import_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read = |piece| import_bytes("fuzz", bytes, Options { operators: true, parsers: 0, piece });
    let (Ok(trace), Ok(again)) = (read(64), read(1 << 20)) else { return };
    assert_eq!(trace.spans, again.spans);
    let report = trace.meta.import.expect("imported");
    assert_eq!(report.used.values().sum::<u64>() + report.ignored.values().sum::<u64>(), report.events);
    for span in &trace.spans {
        assert!(span.end_ns >= span.start_ns && span.rank < trace.meta.ranks);
        assert!((span.operation as usize) < trace.operations.len());
        assert!((span.stream as usize) < trace.meta.streams.len());
    }
});
