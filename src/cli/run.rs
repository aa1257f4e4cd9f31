//! `ladderscope run`: one cell, through the same path as a sweep's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::interrupt::{self, INTERRUPTED};
use super::output::{self, Format, FormatArgs};
use super::patience::Patience;
use super::progress::Progress;
use super::{record_table, report, show};
use crate::backend::{self, Job};
use crate::error::{Error, Result};
use crate::launch::{self, Leader, ProcessExecutor};
use crate::spec::{Backend, Spec};
use crate::store::{Record, Status, Store};
use crate::sweep::{self, Cancel, Cell, CellOptions, Verdict};
use crate::trace;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub cell: CellOptions,
    /// Times to run the cell, each in a fresh process where it is measured
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    pub patience: Patience,
    /// Also write the trace (of the last sample) there
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Runs the cell and prints its record; as another rank's process of a launcher, takes part in it.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let cancel = Cancel::default();
    interrupt::cancel_on_signals(&cancel)?;
    let timeout = args.patience.timeout();
    launch::lead_or_follow(timeout, &cancel, |leader| lead(args, dir, &cancel, leader))
}

fn lead(args: &Args, dir: PathBuf, cancel: &Cancel, leader: Option<Arc<Leader>>) -> Result<u8> {
    if let Some(path) = &args.trace {
        check_writable(path)?;
    }
    let (spec, note) = args.cell.resolve()?;
    if let Some(note) = note {
        report::note(&note);
    }
    let store = Store::open(dir);
    let executor = ProcessExecutor {
        trace_copy: args.trace.clone(),
        timeout: args.patience.timeout(),
        leader,
        ..ProcessExecutor::new()?
    };
    let cells = [Cell { spec: spec.clone(), verdict: Verdict::Runs }];
    let mut progress = Progress::new(&cells, args.rounds);
    let outcome = sweep::run_one(&spec, args.rounds, &store, &executor, cancel, &mut |event| {
        progress.event(&event)
    });
    progress.finish();
    let mut record = outcome?;
    if let (Some(path), Backend::Sim, Status::Ok) = (&args.trace, spec.backend, record.status) {
        simulate_trace(&spec, &record, path)?;
        record.trace = Some(path.display().to_string());
    }
    for warning in &record.warnings {
        report::warn(warning);
    }
    print(&record, &store, args.output.format)?;
    let code = match record.status {
        Status::Ok => 0,
        Status::Failed => 1,
        Status::Oom | Status::Skipped => 2,
        Status::Interrupted => INTERRUPTED,
    };
    if let (true, Some(reason)) = (code != 0, &record.reason) {
        report::line(&format!("{}: {reason}", record.status.as_str()));
    }
    Ok(code)
}

fn print(record: &Record, store: &Store, format: Format) -> Result<()> {
    match format {
        Format::Json => output::json(&record_table::contract_object(record)),
        Format::Csv => output::emit(&record_table::csv(std::slice::from_ref(record))),
        Format::Table => output::emit(&show::text(record, store)),
    }
}

/// Simulated runs keep no trace of their own: it is made by simulating once more, to the same numbers.
fn simulate_trace(spec: &Spec, record: &Record, path: &Path) -> Result<()> {
    let (_, simulated) = backend::run(&Job::of(spec.clone(), true, false), &mut |_| {})?;
    let mut simulated = simulated.ok_or_else(|| Error::failed("the simulation gave no trace"))?;
    simulated.meta.run = Some(record.run.clone());
    trace::write(path, &simulated)
}

/// Finds out before the run, not after it, that its trace cannot be written.
fn check_writable(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    if path.is_dir() {
        return Err(Error::input(format!(
            "--trace {}: that is a directory; name a file",
            path.display()
        )));
    }
    if !parent.is_dir() {
        return Err(Error::input_help(
            format!("--trace {}: there is no directory {}", path.display(), parent.display()),
            "make it first, or name a file elsewhere",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_could_not_be_written_is_refused_before_the_run() {
        for path in ["/", "/tmp", "/no/such/directory/trace.parquet"] {
            let error = check_writable(Path::new(path)).err();
            assert_eq!(error.map(|e| e.exit_code()), Some(2), "{path}");
        }
        assert!(check_writable(Path::new("trace.parquet")).is_ok());
    }
}
