//! `ladderscope run`: runs one cell through the same path as a sweep.
//!
//! Running, for all verbs that do: option `--timeout`, ranks that a launcher started, and signals. The first Ctrl-C,
//! SIGTERM, SIGQUIT or SIGHUP stops the work and stores what is done, the second exits at once.

use std::path::PathBuf;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::app::exit_status;
use super::output::{self, Format, FormatArgs};
use super::progress::SweepProgress;
use super::{record_table, show, stderr};
use crate::desk::Runner;
use base::error::{Error, Result};
use lab::launch::{self, Cancel};
use lab::store::Store;
use lab::sweep::Cell;
use run::{Feasibility, Resolve, Shared, TIMEOUT};
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
    pub timeout: TimeoutArgs,
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
    let timeout = args.timeout.duration();
    run_on_all_ranks(timeout, dir, OnHangUp::Cancel, resolve, |runner, (spec, note)| {
        run_cell(args, &runner, &shared, &spec, note)
    })
}

fn run_cell(
    args: &Args,
    runner: &Runner,
    shared: &Shared,
    spec: &Spec,
    note: Option<String>,
) -> Result<u8> {
    if let Some(note) = note {
        stderr::note(&note);
    }
    let cells = [Cell { spec: spec.clone(), feasibility: Feasibility::Runs }];
    let mut progress = SweepProgress::new(&cells, args.rounds);
    let ended = runner
        .cell(spec, shared, args.rounds, args.trace.as_deref(), &mut |event| progress.event(&event));
    progress.finish();
    let record = ended?;
    for warning in &record.warnings {
        stderr::warn(warning);
    }
    print(&record, &runner.store, args.output.format)?;
    let code = match record.status {
        Status::Ok => 0,
        Status::Failed => 1,
        Status::Oom | Status::Skipped => exit_status::INVALID,
        Status::Interrupted | Status::Running => exit_status::INTERRUPTED,
    };
    if let (true, Some(reason)) = (code != 0, &record.reason) {
        let reason = format!("{}: {reason}", record.status.as_str());
        match args.output.format {
            Format::Json => stderr::print_error(&Error::failed(reason)),
            Format::Csv => stderr::line(&reason),
            // the printed record contains the reason
            Format::Table => {}
        }
    }
    Ok(code)
}

fn print(record: &Record, store: &Store, format: Format) -> Result<()> {
    let csv = || record_table::csv(std::slice::from_ref(record));
    output::print(format, &record_table::without_samples(record), csv, || show::text(record, store))
}

/// Effect of a hangup of the terminal (SIGHUP), unless the parent ignores it, as `nohup` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHangUp {
    /// Stop like Ctrl-C.
    Cancel,
    /// End this process at once: the work continues elsewhere.
    Exit,
}

/// Installs handlers of SIGINT, SIGTERM, SIGQUIT and SIGHUP: the first signal cancels the returned handle, the second
/// exits with status 130. The child process of a run ends with this one, and the run stays listed as interrupted.
///
/// # Errors
///
/// Returns an error if the system rejects a handler.
pub fn cancel_on_signals(on_hang_up: OnHangUp) -> Result<Cancel> {
    let mut handled = vec![SIGINT, SIGTERM, SIGQUIT];
    if on_hang_up == OnHangUp::Cancel && !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let mut signals =
        Signals::new(handled).map_err(|e| Error::failed(format!("handling signals: {e}")))?;
    let cancel = Cancel::default();
    let handle = cancel.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_all() {
                    std::process::exit(i32::from(exit_status::INTERRUPTED));
                }
                cancel.all();
                stderr::note("interrupted: ending what runs now (again: stop at once)");
            }
        })
        .map_err(|e| Error::failed(format!("starting a thread: {e}")))?;
    Ok(handle)
}

/// True if the parent set a signal to be ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Timeout option of every verb that runs on GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TimeoutArgs {
    /// Timeout: end a GPU run if any rank makes no progress, or does not start, for this long
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl TimeoutArgs {
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Runs `work` on the store in `dir` with a timeout of GPU runs; signals cancel it. `resolve` returns the cells, which
/// all ranks need, and the input of `work`. Ranks above 0 of a launcher take part in rank 0's runs instead of calling
/// `work`. Returns the exit status.
pub fn run_on_all_ranks<T>(
    timeout: Duration,
    dir: PathBuf,
    on_hang_up: OnHangUp,
    resolve: impl FnOnce() -> Result<(Vec<Spec>, T)>,
    work: impl FnOnce(Runner, T) -> Result<u8>,
) -> Result<u8> {
    let cancel = cancel_on_signals(on_hang_up)?;
    launch::on_all_ranks(timeout, &cancel, resolve, |ranks, resolved| {
        work(Runner { timeout, ranks, ..Runner::new(Store::open(dir), cancel.clone()) }, resolved)
    })
}
