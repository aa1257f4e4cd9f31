//! The trace file: Parquet through Polars, streaming, renamed into place when whole.
//!
//! Columns are in [`columns`]. The footer has `ladderscope.version`, `ladderscope.meta` and
//! `ladderscope.operations` (JSON); `ladderscope.groups`: of each row group what it holds, its rows, bytes
//! and SHA-256 ([`groups`]); and `ladderscope.seal`: SHA-256 of the footer itself ([`footer`]). So a
//! damaged trace is an error, and never a wrong number. Traces of a format before the present one are refused.

mod columns;
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
use base::error::Result;

pub use read::{read, read_file, read_meta};
pub use write::TraceWriter;

/// Keys in the footer.
const VERSION: &str = "ladderscope.version";
const META: &str = "ladderscope.meta";
const OPERATIONS: &str = "ladderscope.operations";
const GROUPS: &str = "ladderscope.groups";
const SEAL: &str = "ladderscope.seal";

/// Writes a whole trace to a file in this program's format. Fails where a step of [`TraceWriter`] does.
pub fn write(path: &Path, trace: &Trace) -> Result<()> {
    let mut writer = TraceWriter::create(path, &trace.meta, &trace.operations)?;
    writer.write(&trace.spans)?;
    writer.write_ranges(&trace.ranges)?;
    writer.finish()
}
