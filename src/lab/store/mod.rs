//! Runs on disk: atomic and versioned.
//!
//! ```text
//! runs/ID/spec.json              requested cell and its process; written before the run starts
//! runs/ID/record.json            record of the run; a run is finished when this exists
//! runs/ID/trace.parquet          trace of the run
//! runs/ID/log.txt                standard error of the run's process
//! runs/batches/BATCH.parquet     simulated runs, one per row
//! runs/batches/BATCH.parts/      finished rows of a batch that is still being written
//! runs/records.cache             cached records for fast listing; may be deleted at any time
//! runs/annotations.jsonl         tags, notes and deleted rows of batches, one edit per line
//! runs/evaluations/KEY.jsonl     quality loss of an architecture, one line per window of a text
//! runs/evaluations/texts.jsonl   evaluated models and texts, one line per evaluation
//! runs/baselines/NAME.json       whole records of runs to compare later ones with
//! runs/conversions/KEY.json      quality cost and speedup of converting layers of a checkpoint
//! runs/trainings/ID/             results of `adapt`: checkpoint, curve, final model
//! runs/trainings/finished.jsonl  finished trainings, one per line
//! runs/.trash/ID/                deleted runs, until the trash is emptied
//! runs/.ladderscope/             unfinished files, by process; claims/CELL-ROUND: process that runs a cell
//! runs/.slurm/NAME/              jobs that a sweep submitted to Slurm, and the output of their tasks
//! ```
//!
//! The directories are authoritative. A file gets its name once it is complete, so no file is ever partial. Symbolic
//! links are never followed. The `index.jsonl` of earlier versions is ignored.

mod annotations;
mod baselines;
mod batch;
mod batches;
mod claims;
mod conversions;
mod directory;
mod evaluated;
mod evaluations;
mod finished;
mod id;
mod leftovers;
mod lookup;
mod process;
mod record_cache;
mod shared_lines;
mod trainings;
mod trash;
mod watch;

pub use annotations::{Annotation, Annotations, Edit};
pub use baselines::Baseline;
pub use batch::{BatchSummary, BatchWriter};
pub use claims::Claimed;
pub use directory::{Listing, RunDir, Store};
pub use evaluations::{Evaluation, EvaluationFile, window_key};
pub use finished::{Ended, Finished};
pub use trainings::TrainingFolder;
pub use trash::{Emptied, Trash};

#[cfg(test)]
mod annotation_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::spec as sample_spec;
