//! Sweeps: experiment files, the grid of cells, rounds, resume.

mod built_in;
mod conclude;
mod draft;
pub mod edit;
mod event;
mod execute;
mod experiment;
pub mod forecast;
mod position;
mod quality;
mod schema;
mod simulate;
mod slurm;

pub use built_in::BUILT_IN;
pub use event::{Cell, Choice, SweepEvent, SweepOutcome};
pub use execute::{execute, run_one};
pub use experiment::Experiment;
pub use quality::{Adapt, CONTEXT, Evaluate, OWN_TEXT, Text};
pub use schema::experiment_schema;
pub use simulate::simulate_cells;
pub use slurm::{OnSlurm, SlurmOptions, TaskCells, execute_on_slurm};

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
