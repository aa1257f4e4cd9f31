//! Any bytes are an export of Nsight Systems or an error. The first byte chooses how a whole export is
//! damaged by the others, as bytes that are no SQLite file at all are refused at once.

#![no_main]

use std::io::Write;

use ladderscope::trace::import::nsight::import;
use libfuzzer_sys::fuzz_target;

const WHOLE: &[u8] = include_bytes!("../seeds/nsight.sqlite");

fuzz_target!(|bytes: &[u8]| {
    let mut file = WHOLE.to_vec();
    // two bytes a place, one its value
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[at] = change[2];
    }
    let mut path = tempfile::NamedTempFile::new().expect("a temporary file");
    path.write_all(&file).expect("written");
    let Ok(trace) = import(&[path.path().to_path_buf()]) else { return };
    for span in &trace.spans {
        assert!(span.end_ns >= span.start_ns && span.rank < trace.meta.ranks);
        assert!((span.operation as usize) < trace.operations.len());
        assert!((span.stream as usize) < trace.meta.streams.len());
    }
});
