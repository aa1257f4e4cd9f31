//! Sweeps: experiment files, the grid of cells, rounds, resume.

pub mod document;
pub mod edit;
mod event;
mod execute;
mod experiment;
mod file;
pub mod forecast;
mod keys;
mod quality;
mod simulate;
mod slurm;
mod state;

pub use event::{Cell, Choice, SweepEvent, SweepOutcome};
pub use execute::{execute, run_one};
pub use experiment::{BUILT_IN, Experiment};
pub use keys::experiment_schema;
pub use quality::{Adapt, CONTEXT, Evaluate, OWN_TEXT, Text};
pub use simulate::simulate_cells;
pub use slurm::{OnSlurm, SlurmOptions, TaskCells, execute_on_slurm};

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
