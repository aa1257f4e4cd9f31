//! `ladderscope run`: runs one cell through the same path as a sweep.
//!
//! `ladderscope` without a verb: the workbench, or a short summary if there is no terminal.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::output::{self, Format, FormatArgs};
use super::progress::{INTERRUPTED, Progress, TimeoutArgs};
use super::{record_table, report, select, show};
use crate::desk::Start;
use crate::face::tui;
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Store;
use lab::sweep::Cell;
use run::{Feasibility, Resolve, Shared};
use table::{CellOptions, Record, Spec, Status};

/// Arguments of `ladderscope run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub cell: CellOptions,
    /// Number of times to run the cell, each in a fresh process if it is measured
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    pub patience: TimeoutArgs,
    /// Also write the trace of the last sample: Chrome JSON (.json, .json.gz, .json.zst), .csv, else Parquet
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Runs the cell and prints its record. On ranks above 0 of a launcher, takes part in the run.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let shared = Shared::default();
    let resolve = || {
        let (spec, note) = args.cell.resolve_with(&shared)?;
        Ok((vec![spec.clone()], (spec, note)))
    };
    args.patience
        .lead(dir, true, resolve, |start, (spec, note)| lead(args, &start, &shared, &spec, note))
}

fn lead(args: &Args, start: &Start, shared: &Shared, spec: &Spec, note: Option<String>) -> Result<u8> {
    if let Some(note) = note {
        report::note(&note);
    }
    let cells = [Cell { spec: spec.clone(), feasibility: Feasibility::Runs }];
    let mut progress = Progress::new(&cells, args.rounds);
    let ended = start
        .cell(spec, shared, args.rounds, args.trace.as_deref(), &mut |event| progress.event(&event));
    progress.finish();
    let record = ended?;
    for warning in &record.warnings {
        report::warn(warning);
    }
    print(&record, &start.store, args.output.format)?;
    let code = match record.status {
        Status::Ok => 0,
        Status::Failed => 1,
        Status::Oom | Status::Skipped => 2,
        Status::Interrupted | Status::Running => INTERRUPTED,
    };
    if let (true, Some(reason)) = (code != 0, &record.reason) {
        let told = format!("{}: {reason}", record.status.as_str());
        match args.output.format {
            Format::Json => report::print(&Error::failed(told)),
            Format::Csv => report::line(&told),
            // the record says it
            Format::Table => {}
        }
    }
    Ok(code)
}

fn print(record: &Record, store: &Store, format: Format) -> Result<()> {
    let csv = || record_table::csv(std::slice::from_ref(record));
    output::print(format, &record_table::contract_object(record), csv, || show::text(record, store))
}

/// Opens the workbench on a terminal, else prints a short introduction.
pub fn workbench_or_summary(dir: PathBuf) -> Result<u8> {
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        tui::run(tui::Options { dir, ..tui::Options::default() })?;
    } else {
        output::emit(&text(&dir)?)?;
    }
    Ok(0)
}

fn text(dir: &Path) -> Result<String> {
    let records = select::select_runs(&[], dir)?.records;
    let count = |status| records.iter().filter(|record| record.status == status).count();
    let running = match count(Status::Running) {
        0 => String::new(),
        running => format!(", {running} running now"),
    };
    Ok(format!(
        "\
Ladderscope {}: how much of tensor-parallel decoding time is exposed communication,
and which model architecture hides it best, on which hardware?

{} in {} ({} ok{running}). Not a terminal, so the workbench was not opened. Try:

  ladderscope run --model tiny --backend cpu --tp 2 --architecture ladder   run one cell
  ladderscope experiments                                                   experiment files at hand
  ladderscope sweep FILE.toml                                               run an experiment
  ladderscope runs                                                          list stored runs
  ladderscope doctor                                                        what this machine can do
  ladderscope --help                                                        everything else
",
        env!("CARGO_PKG_VERSION"),
        counted(records.len(), "stored run"),
        dir.display(),
        count(Status::Ok),
    ))
}
