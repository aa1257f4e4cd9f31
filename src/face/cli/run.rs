//! `ladderscope run`: runs one cell through the same path as a sweep.

use std::path::PathBuf;

use super::app::exit_status;
use super::output::{self, FormatArgs, OutputFormat};
use super::progress::SweepProgress;
use super::running::{OnHangUp, TimeoutArgs, run_on_all_ranks};
use super::{record_table, show, stderr};
use base::error::{Error, Result};
use lab::store::Store;
use lab::sweep::Cell;
use run::{Feasibility, GridContext, Resolve};
use table::{CellOptions, Record, Status};

/// Arguments of `ladderscope run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub cell: CellOptions,
    /// Number of times to run the cell, each in a fresh process if it is measured
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    pub timeout: TimeoutArgs,
    /// Also write the trace of the last sample: Chrome JSON (.json, .json.gz, .json.zst), .csv, else Parquet
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Runs the cell and prints its record. On ranks above 0 of a launcher, takes part in the run.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let shared = GridContext::default();
    let resolve = || {
        let (spec, note) = args.cell.resolve_with(&shared)?;
        Ok((vec![spec.clone()], (spec, note)))
    };
    let timeout = args.timeout.duration();
    run_on_all_ranks(timeout, dir, OnHangUp::Cancel, resolve, |runner, (spec, note)| {
        note.iter().for_each(|note| stderr::note(note));
        let cells = [Cell { spec, feasibility: Feasibility::Runs }];
        let mut progress = SweepProgress::new(&cells, args.rounds);
        let mut on_event = |event| progress.event(&event);
        let trace = args.trace.as_deref();
        let ended = runner.cell(&cells[0].spec, &shared, args.rounds, trace, &mut on_event);
        progress.finish();
        print(&ended?, &runner.store, args.output.format)
    })
}

/// Prints the record with its warnings, and the reason why it has no numbers. Returns the exit status.
fn print(record: &Record, store: &Store, format: OutputFormat) -> Result<u8> {
    record.warnings.iter().for_each(|warning| stderr::warn(warning));
    let csv = || record_table::csv(std::slice::from_ref(record));
    output::print(format, &output::without_samples(record), csv, || show::text(record, store))?;
    let code = match record.status {
        Status::Ok => 0,
        Status::Failed => 1,
        Status::Oom | Status::Skipped => exit_status::INVALID,
        Status::Interrupted | Status::Running => exit_status::INTERRUPTED,
    };
    if let (true, Some(reason)) = (code != 0, &record.reason) {
        let reason = format!("{}: {reason}", record.status.as_str());
        match format {
            OutputFormat::Json => stderr::print_error(&Error::failed(reason)),
            OutputFormat::Csv => stderr::line(&reason),
            // the printed record contains the reason
            OutputFormat::Table => {}
        }
    }
    Ok(code)
}
