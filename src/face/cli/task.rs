//! Hidden verb `__task`: runs a Slurm task's cells from `sweep --slurm` into the shared store.

use std::path::PathBuf;

use super::interrupt::{self, INTERRUPTED};
use super::progress::Progress;
use super::report;
use crate::desk::Start;
use base::error::{Error, Result};
use lab::launch::{self, Cancel};
use lab::store::Store;
use lab::sweep::TaskCells;

/// Variable with the task's number, set by Slurm.
const TASK: &str = "SLURM_ARRAY_TASK_ID";

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
    let number = std::env::var(TASK).ok().and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| {
        Error::input_help(
            format!("{TASK} is not set: not a task of a job array"),
            "`ladderscope sweep FILE --slurm OPTIONS` submits job arrays",
        )
    })?;
    let opened = TaskCells::open(&args.file, args.array, number);
    let timeout = opened.as_ref().map_or(run::TIMEOUT, |task| task.timeout);
    let cancel = Cancel::default();
    interrupt::cancel_on_signals(&cancel, true)?;
    let resolve = || {
        opened.map(|task| (task.experiment.cells.iter().map(|cell| cell.spec.clone()).collect(), task))
    };
    launch::on_all_ranks(timeout, &cancel, resolve, |ranks, TaskCells { experiment, choice, .. }| {
        let start = Start { timeout, ranks, ..Start::new(Store::open(dir), cancel.clone()) };
        let mut progress = Progress::new(&experiment.cells, experiment.rounds);
        let outcome = start.experiment(&experiment, choice, &mut |event| progress.event(&event));
        progress.finish();
        if outcome?.interrupted || cancel.is_all() {
            report::print(&Error::Interrupted);
            return Ok(INTERRUPTED);
        }
        Ok(0)
    })
}
