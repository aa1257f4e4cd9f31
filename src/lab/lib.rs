//! Stored runs, runs as child processes, and sweeps over experiment files.

pub mod launch;
mod outcome;
pub mod slurm;
pub mod store;
pub mod sweep;
