//! The laboratory: stored runs, runs as child processes, sweeps over experiment files.

pub mod launch;
pub mod slurm;
pub mod store;
pub mod sweep;
