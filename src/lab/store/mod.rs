//! Runs on disk: the store.
//!
//! 1. A run is a directory, `runs/ID/`: `spec.json` (cell and process, written first), `record.json` (its result; the
//!    run is finished when this exists), `trace.parquet`, `log.txt`.
//! 2. Simulated runs are rows of Parquet segments, `batches/BATCH.parquet`, `BATCH.000001.parquet`, ...; ids `BATCH:ROW`.
//!    A sweep or an import replaces the last segment by longer ones; a damaged segment hides its own rows only.
//! 3. Everything that is added to later is an append-only file of JSON lines: `annotations.jsonl` (tags, notes, deleted
//!    rows), `evaluations/*.jsonl`, `trainings/finished.jsonl`.
//! 4. Everything that is replaced as a whole is a JSON document: `baselines/NAME.json`,
//!    `predictions/NAME.json`, `conversions/KEY.json`.
//! 5. Files and directories get their name once they are complete and synced; a torn line at the end is ignored. What
//!    was reported as done survives kill -9 and full disks at any moment.
//! 6. There is one kind of lock, `flock` on a file: while a line is appended, a training runs, or a cell is claimed
//!    (`.ladderscope/claims/CELL-ROUND`). The system releases it when the process dies.
//! 7. The directories are authoritative. Nothing is cached on disk; a process that lists often keeps what it read until
//!    a file's inode, length or modification time changes.
//! 8. Records, segments and traces carry a SHA-256 of themselves; a file that does not match is named, never shown.
//! 9. Deleted runs move to `.trash/ID/`, deleted rows are marked in `annotations.jsonl`; unfinished files are in
//!    `.ladderscope/`, named after their process, and removed once it is provably gone; nobody else's files are touched.
//! 10. Links are never followed. Older formats are read: records and segments without checksums, `index.jsonl`
//!     and `records.cache` (both ignored).
//!
//! `trainings/ID/` belongs to `adapt`, `.slurm/NAME/` to sweeps on a cluster.

mod annotations;
mod batches;
mod check;
mod claims;
mod copies;
mod directory;
mod documents;
mod evaluations;
mod finished;
mod log;
mod trainings;
mod trash;
mod watch;

pub use annotations::{Annotation, AnnotationEdit, Annotations};
pub use batches::{BatchSummary, BatchWriter};
pub use check::{DamagedFile, StoreCheck};
pub use claims::Claimed;
pub use copies::{CopiedRuns, PROCESSES_FOLDER, RECORDINGS, RecordingCopies};
pub use directory::{Listing, RunDir, Store};
pub use documents::Baseline;
pub use evaluations::{EvaluationFile, EvaluationKey, window_key};
pub use finished::{EndedRuns, Finished};
pub use trainings::TrainingFolder;
pub use trash::{EmptiedTrash, Trash};

#[cfg(test)]
mod annotation_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{ok as sample_record, spec as sample_spec, store as sample_store};
