//! Batches: many simulated runs as the rows of one Parquet file.
//!
//! The `record` column holds each row's whole record as JSON, for views of one row. Every other column is one number
//! or word of the record, for commands that scan all rows and for other tools.
//!
//! ```text
//! batches/BATCH.parquet          a whole batch, in row groups of 4096 rows
//! batches/BATCH.parts/N.parquet  finished rows of a batch that is still being written
//! batches/BATCH.parts/lock       held by the writer
//! ```
//!
//! A batch whose writer was killed keeps its parts. They are read like any other batch, and the next sweep merges
//! them into one file. Latencies of single steps are not stored: about 500 numbers per row, and simulating the row
//! again reproduces them exactly.

mod files;
mod read;
mod seal;
mod write;

use files::{COLUMNS_SINCE, LOCK, SEAL_KEY, VERSION, VERSION_KEY, is_part, parts};
pub(super) use files::{PARTS, ROWS, files};
pub use read::BatchSummary;
pub(super) use read::{keys, records, rows_of, summary, whole};
pub use write::BatchWriter;
pub(super) use write::seal_abandoned;
