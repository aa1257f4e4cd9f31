//! The trace file: Parquet, written by Polars as a stream and renamed into place when complete.
//!
//! Columns are defined in [`columns`]. The footer has these entries: `ladderscope.version`,
//! `ladderscope.meta` and `ladderscope.operations` (JSON); `ladderscope.groups`: content type, rows,
//! bytes and SHA-256 of each row group; `ladderscope.seal`: SHA-256 of the footer itself
//! ([`footer`]). A damaged trace is therefore an error, never a wrong number. Readers refuse traces in
//! an older format.

mod columns;
mod footer;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use super::Trace;
use base::error::Result;

pub use read::{read, read_file, read_meta};
pub use write::TraceWriter;

const VERSION: &str = "ladderscope.version";
const META: &str = "ladderscope.meta";
const OPERATIONS: &str = "ladderscope.operations";
const GROUPS: &str = "ladderscope.groups";
const SEAL: &str = "ladderscope.seal";

/// Writes a whole trace in the native format. Returns an error if a step of [`TraceWriter`] fails.
pub fn write(path: &Path, trace: &Trace) -> Result<()> {
    let mut writer = TraceWriter::create(path, &trace.meta, &trace.operations)?;
    writer.write(&trace.spans)?;
    writer.write_ranges(&trace.ranges)?;
    writer.finish()
}
