//! `ladderscope sweep FILE.toml`: runs an experiment's cells, resuming where an interrupted sweep stopped.

use std::path::PathBuf;

use super::interrupt::{self, INTERRUPTED};
use super::output::{self, Format, FormatArgs};
use super::progress::Progress;
use super::{record_table, report};
use crate::error::{Error, Result};
use crate::launch::ProcessExecutor;
use crate::store::{Record, Status, Store};
use crate::sweep::{self, Cancel, Experiment};

/// Exit status when some cells failed and the others are stored.
const SOME_FAILED: u8 = 3;

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The experiment file, or the name of a built-in one (see `ladderscope experiments`)
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Run every cell again, finished ones included
    #[arg(long)]
    pub again: bool,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Runs the experiment and prints one record a cell, in file order.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let experiment = Experiment::open(&args.file)?;
    if let Some(question) = &experiment.question {
        report::note(&format!("{}: {question}", experiment.name));
    }
    for note in experiment.notes()? {
        report::note(&note);
    }
    let store = Store::open(dir);
    let executor = ProcessExecutor::new()?;
    let cancel = Cancel::default();
    interrupt::cancel_on_signals(&cancel)?;
    let mut progress = Progress::new(&experiment.cells, experiment.rounds);
    let outcome = sweep::execute(&experiment, &store, &executor, args.again, &cancel, &mut |event| {
        progress.event(&event)
    });
    progress.finish();
    let outcome = outcome?;
    print(&outcome.cells, args.output.format)?;
    let count = |status| outcome.cells.iter().filter(|record| record.status == status).count();
    report::line(&format!(
        "{}: {} ok, {} failed, {} skipped, {} oom, {} interrupted; stored in {}",
        experiment.name,
        count(Status::Ok),
        count(Status::Failed),
        count(Status::Skipped),
        count(Status::Oom),
        count(Status::Interrupted),
        store.dir().display()
    ));
    Ok(if outcome.interrupted || cancel.is_all() {
        report::print(&Error::Interrupted);
        report::line(&format!(
            "  to go on: ladderscope sweep {} --dir {}",
            args.file.display(),
            store.dir().display()
        ));
        INTERRUPTED
    } else if outcome.failed > 0 {
        SOME_FAILED
    } else {
        0
    })
}

fn print(records: &[Record], format: Format) -> Result<()> {
    match format {
        Format::Table => output::emit(&record_table::narrow(records).table()),
        Format::Csv => output::emit(&record_table::csv(records)?),
        Format::Json => records
            .iter()
            .try_for_each(|record| output::json_line(&record_table::contract_object(record))),
    }
}
