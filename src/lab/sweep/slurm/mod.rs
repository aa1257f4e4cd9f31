//! Sweeps on a Slurm cluster: cells become tasks of job arrays (`tasks`), which are submitted unless they are queued
//! already (`submit`); all nodes share the store, and the submitter follows the results in it (`follow`).

mod follow;
mod options;
mod tasks;

pub use follow::{OnSlurm, execute_on_slurm};
pub use options::SlurmOptions;
pub use tasks::TaskCells;
