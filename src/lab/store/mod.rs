//! Runs on disk: atomic, versioned, found again.
//!
//! ```text
//! runs/ID/spec.json              what was asked for, by which process; written before anything starts
//! runs/ID/record.json            the run's record; a run is finished when this exists
//! runs/ID/trace.parquet          its trace
//! runs/ID/log.txt                what its process wrote to standard error
//! runs/batches/BATCH.parquet     simulated runs, a row each
//! runs/batches/BATCH.parts/      what is finished of a batch that is still written
//! runs/records.cache             records as they were last read, for quick listing; may be deleted at any time
//! runs/annotations.jsonl         tags, notes and deleted rows of batches: a line an edit
//! runs/evaluations/KEY.jsonl     what architectures lose on windows of texts: a line a window
//! runs/baselines/NAME.json      runs that later ones are held against, whole
//! runs/evaluations/texts.jsonl   which models were evaluated on which texts: a line an evaluation
//! runs/conversions/KEY.json      what converting layers of a checkpoint costs on a text and gives on a target
//! runs/trainings/ID/             what `adapt` trains: checkpoint, curve, the model that it ends with
//! runs/trainings/finished.jsonl  trainings that came to their end: a line each
//! runs/.trash/ID/                deleted runs, until the trash is emptied
//! runs/.ladderscope/             what is not finished, by the process that writes it; claims/CELL-ROUND: which
//!                                process runs a cell just now
//! runs/.slurm/NAME/              what a sweep submitted to Slurm, and what its tasks wrote
//! ```
//!
//! The directories are the truth. Every file gets its name when it is written, so
//! whatever exists is whole. Nothing in the directory is followed if it is a link. An `index.jsonl` of earlier versions is left alone: nothing reads it.

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
