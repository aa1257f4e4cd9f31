//! A trace file of ladderscope with any damage is read as it was written, or refused.

#![no_main]

use std::io::Write;
use std::sync::LazyLock;

use ladderscope::trace;
use libfuzzer_sys::fuzz_target;

const WHOLE: &[u8] = include_bytes!("../../traces/cpu-ladder-tp2-600us.parquet");

fn read(bytes: &[u8]) -> ladderscope::base::error::Result<trace::Trace> {
    let mut path = tempfile::NamedTempFile::new().expect("a temporary file");
    path.write_all(bytes).expect("written");
    trace::read(path.path())
}

fuzz_target!(|bytes: &[u8]| {
    let mut file = WHOLE.to_vec();
    // three bytes a place, one its value
    for change in bytes.chunks_exact(4) {
        let at = (usize::from(change[0]) << 16) | (usize::from(change[1]) << 8) | usize::from(change[2]);
        let at = at % file.len();
        file[at] = change[3];
    }
    if let Ok(trace) = read(&file) {
        // only Parquet's page index, which nobody reads, has no checksum
        static SPANS: LazyLock<Vec<trace::Span>> =
            LazyLock::new(|| read(WHOLE).expect("the whole file is fine").spans);
        assert_eq!(trace.spans, *SPANS);
    }
});
