//! Stored runs, runs as child processes, and sweeps over experiment files.

pub mod launch;
pub mod slurm;
pub mod store;
pub mod sweep;
