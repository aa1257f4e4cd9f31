//! The trace file: Parquet, written by Polars as a stream and renamed into place when complete.
//!
//! Columns are defined in [`columns`]. The footer has these entries: `ladderscope.version`,
//! `ladderscope.meta` and `ladderscope.operations` (JSON); `ladderscope.groups`: content type, rows,
//! bytes and SHA-256 of each row group, which are contiguous from offset 0; `ladderscope.seal`: SHA-256
//! of the footer itself. A damaged trace is therefore an error, never a wrong number, and Polars parses
//! only what was written. Readers refuse traces in an older format.

mod columns;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use polars_core::prelude::PolarsError;
use serde::{Deserialize, Serialize};

use super::{FORMAT_VERSION, Trace};
use base::checksum::Checksum;
use base::error::{Error, Result};

pub use read::{check, read, read_file, read_meta};
pub use write::TraceWriter;

const VERSION: &str = "ladderscope.version";
const META: &str = "ladderscope.meta";
const OPERATIONS: &str = "ladderscope.operations";
const GROUPS: &str = "ladderscope.groups";
const SEAL: &str = "ladderscope.seal";

/// Covers the footer and the 8 bytes after it.
const CHECKSUM: Checksum = Checksum { mark: "ladderscope.footer.sha256=", zeroed: true };

const MAGIC: &[u8] = b"PAR1";
/// Size of the footer's length field and the magic number after it.
const TAIL: u64 = 8;

/// Writes a whole trace in the native format. Returns an error if a step of [`TraceWriter`] fails.
pub fn write(path: &Path, trace: &Trace) -> Result<()> {
    let mut writer = TraceWriter::create(path, &trace.meta, &trace.operations)?;
    writer.write(&trace.spans)?;
    writer.write_ranges(&trace.ranges)?;
    writer.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Holds {
    Spans,
    Ranges,
}

/// Entry of the footer's table of row groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    holds: Holds,
    rows: u64,
    bytes: u64,
    sha256: String,
}

#[derive(Debug)]
enum Problem {
    Io(std::io::Error),
    Foreign(String),
    Damaged(String),
    Older(u32),
    Newer(u32, String),
}

type Read<T> = std::result::Result<T, Problem>;

impl Problem {
    fn in_file(self, path: &Path) -> Error {
        let shown = path.display();
        match self {
            Self::Io(error) => Error::io(path)(error),
            Self::Foreign(what) => Error::input_help(
                format!("{shown}: not a Ladderscope trace: {what}"),
                "a trace is what `run --trace FILE` writes; others can be imported with `ladderscope trace convert IN OUT`",
            ),
            Self::Damaged(what) => Error::input_help(
                format!("{shown}: damaged trace: {what}"),
                "record it again, or copy it again from where it was whole",
            ),
            Self::Older(version) => Error::input_help(
                format!(
                    "{shown}: trace format {version} is older than {FORMAT_VERSION} and no longer read"
                ),
                "record it again: traces of that format were never part of a release",
            ),
            Self::Newer(version, what) => Error::input_help(
                format!(
                    "{shown}: trace format {version} is newer than {FORMAT_VERSION}, which this version reads: {what}"
                ),
                "read it with the version of ladderscope that wrote it",
            ),
        }
    }
}

impl From<PolarsError> for Problem {
    fn from(error: PolarsError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<String> for Problem {
    fn from(what: String) -> Self {
        Self::Damaged(what)
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
