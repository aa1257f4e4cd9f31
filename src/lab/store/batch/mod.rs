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
