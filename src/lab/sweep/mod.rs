//! Sweeps: experiment files, the grid of cells, rounds, resume.

pub mod document;
pub mod edit;
mod experiment;
mod file;
pub mod forecast;
mod keys;
mod simulate;
mod slurm;
mod state;

pub use experiment::{Adapt, BUILT_IN, CONTEXT, Evaluate, Experiment, OWN_TEXT, Text};
pub use keys::experiment_schema;
pub use simulate::{simulate_cells, simulate_one};
pub use slurm::{OnSlurm, SlurmOptions, TaskCells, execute_on_slurm};
pub use state::{Cell, Choice, SweepEvent, SweepOutcome, execute, run_one};

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
