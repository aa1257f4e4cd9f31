//! Batches: many simulated runs as the rows of one Parquet file.
//!
//! The `record` column holds each row's whole record as JSON, for whoever looks at one row. Every other
//! column is one number or word of it, for verbs that look at all rows and for other tools.
//!
//! ```text
//! batches/BATCH.parquet          a whole batch, in row groups of some thousand rows
//! batches/BATCH.parts/N.parquet  what is finished of a batch that is still written
//! batches/BATCH.parts/lock       held by whoever writes it
//! ```
//!
//! A batch that is killed while it is written keeps its parts: they are read like any other batch, and
//! the next sweep makes them one file. What a simulation's single steps took is not stored: 500
//! numbers a row that simulating the row again gives to the last digit.

mod columns;
mod read;
mod seal;
mod write;

pub use read::BatchSummary;
pub(super) use read::{keys, records, rows_of, summary, whole};
pub use write::BatchWriter;
pub(super) use write::seal_abandoned;

use std::path::{Path, PathBuf};

/// Version of the batch format. 1: no columns for `status`' reason, overlap times and the rest of what
/// a record without its environment needs.
const VERSION: u32 = 2;
const VERSION_KEY: &str = "ladderscope.batch.version";
const SEAL_KEY: &str = "ladderscope.batch.seal";

/// Rows of a row group: few enough that one row is read at once, enough to compress well.
pub(super) const ROWS: usize = 4096;

/// How the directory of a batch's parts ends.
pub(super) const PARTS: &str = ".parts";

/// Files that hold a batch's rows, in order; none where there is no such batch. `dir` is where batches
/// lie.
pub(super) fn files(dir: &Path, batch: &str) -> Vec<PathBuf> {
    let whole = dir.join(format!("{batch}.parquet"));
    if whole.exists() {
        return vec![whole];
    }
    parts(&dir.join(format!("{batch}{PARTS}")))
}

/// Parts in a directory of parts, in order.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut parts: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "parquet")).collect();
    parts.retain(|path| path.file_stem().is_some_and(|stem| super::id::is_id(&stem.to_string_lossy())));
    parts.sort_unstable();
    parts
}
