//! The command itself: its verbs, and what becomes of their results and errors.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::{output, report};
use crate::base::error::{Error, Result};

/// How much of tensor-parallel decoding time is exposed communication, and which architecture hides it?
///
/// Ladderscope runs decoding of several architectures, records what every rank's compute lane and
/// communication lane did, and lets you look at it. Without a verb it opens the workbench.
#[derive(Debug, Parser)]
#[command(name = "ladderscope", version, max_term_width = 100, after_help = EXIT_STATUS)]
struct Cli {
    /// Where runs are stored
    #[arg(long, global = true, display_order = 900, value_name = "RUNS_DIR", default_value = "runs")]
    dir: PathBuf,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const EXIT_STATUS: &str = "Exit status: 0 done, 1 failed, 2 the input was wrong or the cell cannot run, \
3 some cells of a sweep failed, 130 interrupted (what was done is stored).";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run an experiment's cells; resume where an interrupted sweep stopped
    Sweep(super::sweep::Args),
    /// Run one cell
    Run(Box<super::run::Args>),
    /// List stored runs
    Runs(super::runs::Args),
    /// One run: spec, metrics with intervals, overlap, breakdown by module and kind
    Show(super::show::Args),
    /// The workbench opened at a trace, or a figure of it
    Timeline(super::timeline::Args),
    /// Overlap and breakdown of a trace, per rank and in all
    Overlap(super::overlap::Args),
    /// The frontier of completion latency against per-GPU throughput
    Pareto(super::pareto::Args),
    /// Matched pairs of runs: ratios and their intervals
    Compare(super::compare::Args),
    /// A simulated cell with another link: numbers, and up to where communication stays hidden
    Whatif(Box<super::whatif::Args>),
    /// A figure fit for a paper: pareto, throughput, improvement, overlap, p2p
    Figure(super::figure::Args),
    /// One self-contained HTML page of runs: figures, tables, where the numbers come from
    Report(super::page::Args),
    /// Import and export traces
    Trace(super::trace::Args),
    /// Tokens from a checkpoint, any architecture, any TP
    Generate(Box<super::generate::Args>),
    /// Fit the free constants of a software stack and its links to measured runs
    Calibrate(super::calibrate::Args),
    /// Built-in model shapes
    Models(output::FormatArgs),
    /// Built-in hardware profiles
    Hardware(super::hardware::Args),
    /// Experiment files at hand
    Experiments(output::FormatArgs),
    /// What this machine can do: memory bandwidth, timers, driver, GPUs, NCCL, terminal
    Doctor(super::doctor::Args),
    /// A settings file for the workbench: theme, colours, keys, mouse
    Config(super::config::Args),
    /// JSON schema of a kind of file
    Schema(super::schema::Args),
    /// Completion script for a shell
    Completions(super::completions::Args),
    /// Execute the job on standard input (what a run's process does)
    #[command(name = "__run", hide = true)]
    Child,
}

/// Parses the arguments, runs the verb, prints errors; the process's exit status (docs/files-and-formats.md).
pub fn main() -> ExitCode {
    // A bug must look like one to the user, and exit as "it failed", not as Rust's 101.
    std::panic::set_hook(Box::new(report::panicked));
    match std::panic::catch_unwind(parse_and_dispatch) {
        Ok(code) => code,
        Err(_) => ExitCode::from(1),
    }
}

fn parse_and_dispatch() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(report::usage(&error)),
    };
    if matches!(cli.verb, Some(Verb::Child)) {
        return crate::lab::launch::child_main();
    }
    match dispatch(cli) {
        Ok(code) => leave(code),
        Err(error) if output::is_broken_pipe(&error) => leave(0),
        Err(error) => {
            report::print(&error);
            leave(error.exit_code())
        }
    }
}

/// The exit status; ends the process at once where a GPU's work hangs, since the driver would wait for it.
fn leave(code: u8) -> ExitCode {
    if crate::machine::driver::any_abandoned() {
        let _ = std::io::stdout().flush();
        signal_hook::low_level::exit(code.into());
    }
    ExitCode::from(code)
}

fn dispatch(cli: Cli) -> Result<u8> {
    let dir = cli.dir;
    if dir.exists() && !dir.is_dir() {
        return Err(Error::input_help(
            format!("--dir {}: not a directory", dir.display()),
            "name the directory that holds runs, or one to be made",
        ));
    }
    match cli.verb {
        None => super::summary::workbench_or_summary(dir),
        Some(Verb::Sweep(args)) => super::sweep::run(&args, dir),
        Some(Verb::Run(args)) => super::run::run(&args, dir),
        Some(Verb::Runs(args)) => super::runs::run(&args, dir),
        Some(Verb::Show(args)) => super::show::run(&args, dir),
        Some(Verb::Timeline(args)) => super::timeline::run(&args, dir),
        Some(Verb::Overlap(args)) => super::overlap::run(&args, dir),
        Some(Verb::Pareto(args)) => super::pareto::run(&args, dir),
        Some(Verb::Compare(args)) => super::compare::run(&args, dir),
        Some(Verb::Whatif(args)) => super::whatif::run(&args),
        Some(Verb::Figure(args)) => super::figure::run(&args, dir),
        Some(Verb::Report(args)) => super::page::run(&args, dir),
        Some(Verb::Trace(args)) => super::trace::run(&args),
        Some(Verb::Generate(args)) => super::generate::run(&args),
        Some(Verb::Calibrate(args)) => super::calibrate::run(&args, dir),
        Some(Verb::Models(args)) => super::models::run(&args),
        Some(Verb::Hardware(args)) => super::hardware::run(&args),
        Some(Verb::Experiments(args)) => super::experiments::run(&args),
        Some(Verb::Doctor(args)) => super::doctor::run(&args, &dir),
        Some(Verb::Config(args)) => super::config::run(&args),
        Some(Verb::Schema(args)) => super::schema::run(&args),
        Some(Verb::Completions(args)) => super::completions::run(&args, &mut Cli::command()),
        Some(Verb::Child) => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_runs_directory_may_come_before_or_after_the_verb() -> Result<(), clap::Error> {
        for arguments in [["ladderscope", "--dir", "d", "runs"], ["ladderscope", "runs", "--dir", "d"]] {
            assert_eq!(Cli::try_parse_from(arguments)?.dir, PathBuf::from("d"));
        }
        Ok(())
    }
}
