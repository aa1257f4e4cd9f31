//! Hidden verb `__task`: runs a Slurm task's cells from `sweep --slurm` into the shared store.

use std::path::PathBuf;

use super::app::exit_status;
use super::progress::SweepProgress;
use super::running::{OnHangUp, run_on_all_ranks};
use super::stderr;
use base::error::{Error, Result};
use lab::sweep::TaskCells;

/// Variable with the task's number, set by Slurm.
const TASK_VARIABLE: &str = "SLURM_ARRAY_TASK_ID";

/// Arguments that the batch script passes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with all submitted cells
    file: PathBuf,
    /// Number of this task's array
    array: usize,
}

/// Runs the cells and writes their progress to standard error, which Slurm keeps. Failed runs are stored and do not
/// fail the task.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let number = std::env::var(TASK_VARIABLE).ok().and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| {
        Error::input_help(
            format!("{TASK_VARIABLE} is not set: not a task of a job array"),
            "`ladderscope sweep FILE --slurm OPTIONS` submits job arrays",
        )
    })?;
    let opened = TaskCells::open(&args.file, args.array, number);
    let timeout = opened.as_ref().map_or(run::PROGRESS_TIMEOUT, |task| task.timeout);
    let resolve = || {
        opened.map(|task| (task.experiment.cells.iter().map(|cell| cell.spec.clone()).collect(), task))
    };
    run_on_all_ranks(timeout, dir, OnHangUp::Cancel, resolve, |runner, task| {
        let TaskCells { experiment, choice, .. } = task;
        let mut progress = SweepProgress::new(&experiment.cells, experiment.rounds);
        let outcome = runner.experiment(&experiment, choice, &mut |event| progress.event(&event));
        progress.finish();
        if outcome?.interrupted || runner.cancel.is_all() {
            stderr::print_error(&Error::Interrupted);
            return Ok(exit_status::INTERRUPTED);
        }
        Ok(0)
    })
}
