//! The trace file: Parquet through Polars, streaming, renamed into place when whole.
//!
//! Columns are in [`columns`]. The footer has `ladderscope.version`, `ladderscope.meta` and
//! `ladderscope.operations` (JSON); `ladderscope.groups`: of each row group what it holds, its rows, bytes
//! and SHA-256 ([`groups`]); and `ladderscope.seal`: SHA-256 of the footer itself ([`footer`]). So a
//! damaged trace is an error, and never a wrong number.
//!
//! Version 1 had no streams and no ranges, and for `groups` one `ladderscope.checksum`: the numbers of bytes
//! before the footer and of spans, and SHA-256 of both texts and of those bytes.

mod columns;
mod contain;
mod decode;
mod encode;
mod footer;
mod groups;
mod head;
mod problem;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use super::Trace;
use crate::error::Result;

pub(crate) use contain::contained;
pub use contain::panic_is_contained;
pub use read::{TraceReader, read, read_meta};
pub use write::TraceWriter;

/// Keys in the footer.
const VERSION: &str = "ladderscope.version";
const META: &str = "ladderscope.meta";
const OPERATIONS: &str = "ladderscope.operations";
const GROUPS: &str = "ladderscope.groups";
const CHECKSUM: &str = "ladderscope.checksum";
const SEAL: &str = "ladderscope.seal";

/// Writes a whole trace.
pub fn write(path: &Path, trace: &Trace) -> Result<()> {
    let mut writer = TraceWriter::create(path, &trace.meta, &trace.operations)?;
    writer.write(&trace.spans)?;
    writer.write_ranges(&trace.ranges)?;
    writer.finish()
}

/// SHA-256 of the footer's texts, to be continued with the bytes before the footer.
fn checksum_of_texts(meta: &str, operations: &str) -> sha2::Sha256 {
    use sha2::Digest;
    // lengths keep one text's end from passing for the other's beginning
    sha2::Sha256::new()
        .chain_update((meta.len() as u64).to_le_bytes())
        .chain_update(meta)
        .chain_update((operations.len() as u64).to_le_bytes())
        .chain_update(operations)
}

fn hex(hash: sha2::Sha256) -> String {
    use sha2::Digest;
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
