//! `ladderscope sweep FILE.toml`: runs an experiment's cells and resumes interrupted sweeps.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::app::exit_status;
use super::gate;
use super::output::{self, FormatArgs, OutputFormat};
use super::progress::SweepProgress;
use super::record_table::RecordPrinter;
use super::running::{OnHangUp, TimeoutArgs, run_on_all_ranks};
use super::stderr;
use super::sweep_dry_run::dry_run;
use crate::desk::{AnswerCollector, RunSelection, Runner};
use base::error::{Error, Result};
use base::text::shell_command;
use lab::store::Baseline;
use lab::sweep::{Experiment, SlurmOptions, SweepEvent, SweepOutcome, SweepSelection};
use run::GridContext;
use study::analysis::filter::Filter;
use study::analysis::{Gate, judge};
use study::answer::{Answer, CardLine};
use table::Status;

/// Arguments of `ladderscope sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiment file, or the name of a built-in one (see `ladderscope experiments`)
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Model for all cells, instead of the file's: a built-in shape or an HF directory
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Only list what would run, what is stored, what cannot run and why, and how long it would take
    #[arg(long, conflicts_with_all = ["baseline", "slurm", "retry_failed"])]
    pub dry_run: bool,
    /// Run every cell again, including finished ones; with a time (RFC 3339), except runs stored since then, which
    /// resumes an interrupted repetition
    #[arg(
        long,
        value_name = "SINCE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = NOW,
        value_parser = start_of_repetition,
    )]
    pub again: Option<Timestamp>,
    /// Rerun failed and interrupted cells only; skip cells that have not run yet
    #[arg(long, conflicts_with = "again")]
    pub retry_failed: bool,
    /// Compare the cells with a baseline from `ladderscope baseline set`, or its file, after the sweep
    #[arg(long, value_name = "BASELINE", requires = "gate")]
    pub baseline: Option<String>,
    /// Allowed change of a metric against the baseline, for example 'tpot<+3%' (repeatable, all must pass); exit
    /// status 4 if a change is significantly larger; undecided if the confidence interval contains the limit or the
    /// runs are noisy
    #[arg(long, value_name = "GATE", requires = "baseline")]
    pub gate: Vec<Gate>,
    /// Exit with status 4 also if a gate is undecided
    #[arg(long, requires = "gate")]
    pub strict: bool,
    /// Run the cells as Slurm job arrays, submitted with these sbatch options: '-p gpu --time 2:00:00'. Nodes,
    /// tasks, CPUs and GPUs follow from TP. Ctrl-C cancels the jobs; running the same command again follows jobs
    /// that are still queued
    #[arg(long, value_name = "SBATCH OPTIONS", allow_hyphen_values = true)]
    pub slurm: Option<SlurmOptions>,
    /// Submit the jobs and exit without waiting for them
    #[arg(long, requires = "slurm", conflicts_with = "gate")]
    pub detach: bool,
    #[command(flatten)]
    pub timeout: TimeoutArgs,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Value of `--again` without one.
const NOW: &str = "now";

/// Reads the start time of a repetition.
fn start_of_repetition(text: &str) -> Result<Timestamp, jiff::Error> {
    if text == NOW { Ok(Timestamp::now()) } else { text.parse() }
}

impl Args {
    fn selection(&self) -> SweepSelection {
        match (self.again, self.retry_failed) {
            (Some(since), _) => SweepSelection::Again(since),
            (_, true) => SweepSelection::Failed,
            _ => SweepSelection::Missing,
        }
    }
}

/// Runs the experiment and prints one record per cell, in file order, as soon as it is available. The answer and the
/// table of records follow at the end; long tables are printed per thousand rows. On ranks above 0 of a launcher, takes
/// part in its runs.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let experiment = || {
        let shared = if args.slurm.is_some() { GridContext::remote() } else { GridContext::default() };
        Experiment::open_on(&args.file, args.model.as_deref(), &shared)
    };
    if args.dry_run {
        return dry_run(&experiment()?, args.selection(), &dir, args.output.format);
    }
    let resolve = || {
        let experiment = experiment()?;
        Ok((experiment.cells.iter().map(|cell| cell.spec.clone()).collect(), experiment))
    };
    // tasks of Slurm outlive the terminal
    let on_hang_up = if args.slurm.is_some() { OnHangUp::Exit } else { OnHangUp::Cancel };
    run_on_all_ranks(args.timeout.duration(), dir, on_hang_up, resolve, |runner, experiment| {
        run_cells(args, &runner, &experiment)
    })
}

fn run_cells(args: &Args, runner: &Runner, experiment: &Experiment) -> Result<u8> {
    // reports baseline errors before anything runs
    let baseline = baseline(args, runner, experiment)?;
    if let Some(question) = &experiment.question {
        stderr::note(&format!("{}: {question}", experiment.name));
    }
    experiment.notes.iter().for_each(|note| stderr::note(note));
    let mut progress = SweepProgress::new(&experiment.cells, experiment.rounds);
    let mut printer = RecordPrinter::new(args.output.format, Some(TABLE_ROWS), Arc::default());
    let mut printed = Ok(());
    // other formats are for programs, which read the records
    let mut answers = (args.output.format == OutputFormat::Table).then(AnswerCollector::default);
    let mut on_event = |event| {
        progress.event(&event);
        answers.iter_mut().for_each(|answers| answers.add(&event));
        if let (SweepEvent::CellDone { record, .. }, Ok(())) = (event, &printed) {
            // if the reader has closed the output, the sweep continues and is stored
            printed = printer.print(*record);
        }
    };
    let outcome = match &args.slurm {
        None => runner.experiment(experiment, args.selection(), &mut on_event).map(Some),
        Some(options) => {
            runner.on_slurm(experiment, args.selection(), options.clone(), args.detach, &mut on_event)
        }
    };
    progress.finish();
    let Some(outcome) = outcome? else {
        stderr::line(&format!("submitted; to wait for the results: {}", command_again(args, runner)));
        return Ok(0);
    };
    printed?;
    for answer in answers.into_iter().flat_map(AnswerCollector::answers) {
        output::emit(&answer_text(&answer, &experiment.name, runner.store.dir()))?;
    }
    let beyond = printer.finish()?;
    if beyond > 0 {
        let filter = format!("experiment={}", experiment.name);
        let dir = runner.store.dir().to_string_lossy();
        let words = ["ladderscope", "runs", "--all", "--filter", &filter, "--dir", &dir];
        output::emit(&format!("... and {beyond} more rows; all: `{}`\n", shell_command(words)))?;
    }
    print_totals(&outcome, experiment, runner);
    if outcome.interrupted || runner.cancel.is_all() {
        stderr::line(&format!("to resume: {}", command_again(args, runner)));
        stderr::print_error(&Error::Interrupted);
        return Ok(exit_status::INTERRUPTED);
    }
    let infeasible = count(&outcome, Status::Skipped) + count(&outcome, Status::Oom);
    if outcome.failed + outcome.unevaluated > 0 || infeasible == experiment.cells.len() {
        return Ok(exit_status::SOME_FAILED);
    }
    match &baseline {
        Some(baseline) => compare_with_baseline(args, runner, experiment, baseline),
        None => Ok(0),
    }
}

fn count(outcome: &SweepOutcome, status: Status) -> usize {
    outcome.cells.get(&status).copied().unwrap_or_default()
}

/// Prints the number of cells by status, and the store.
fn print_totals(outcome: &SweepOutcome, experiment: &Experiment, runner: &Runner) {
    let count = |status| count(outcome, status);
    stderr::line(&format!(
        "{}: {} ok, {} failed, {} skipped, {} oom, {} interrupted; {} {}",
        experiment.name,
        count(Status::Ok),
        count(Status::Failed),
        count(Status::Skipped),
        count(Status::Oom),
        count(Status::Interrupted),
        match (outcome.stored, count(Status::Ok)) {
            (0, 0) => "nothing stored in",
            (0, _) => "already stored in",
            _ => "stored in",
        },
        runner.store.dir().display()
    ));
}

/// Maximum rows of a table for a terminal: of runs, whose result card answers the question, or of planned cells.
pub(super) const TABLE_ROWS: usize = 24;

/// Command that resumes an interrupted sweep.
fn command_again(args: &Args, runner: &Runner) -> String {
    let (file, dir) = (args.file.to_string_lossy(), runner.store.dir().to_string_lossy());
    let mut words = vec!["ladderscope", "sweep", &file, "--dir", &dir];
    let again = args.again.map(|since| format!("--again={since}"));
    words.extend(again.as_deref());
    words.extend(args.model.iter().flat_map(|model| ["--model", model]));
    words.extend(args.baseline.iter().flat_map(|baseline| ["--baseline", baseline]));
    words.extend(args.gate.iter().flat_map(|gate| ["--gate", &gate.text]));
    words.extend(args.strict.then_some("--strict"));
    let options = args.slurm.as_ref().map(|options| shell_command(&options.words));
    words.extend(options.iter().flat_map(|options| ["--slurm", options]));
    shell_command(words)
}

fn cell_keys(experiment: &Experiment) -> HashSet<String> {
    experiment.cells.iter().map(|cell| cell.spec.key()).collect()
}

/// Baseline for the sweep, limited to the experiment's cells.
fn baseline(args: &Args, runner: &Runner, experiment: &Experiment) -> Result<Option<Baseline>> {
    let Some(name) = &args.baseline else { return Ok(None) };
    let mut baseline = runner.store.baseline(name)?;
    let keys = cell_keys(experiment);
    baseline.records.retain(|record| keys.contains(&record.spec.key()));
    if baseline.records.is_empty() {
        return Err(Error::input_help(
            format!("baseline {name} contains no cell of {}", experiment.name),
            format!(
                "set one that does: `ladderscope baseline set {name} --filter experiment:{}`",
                experiment.name
            ),
        ));
    }
    Ok(Some(baseline))
}

/// Judges the cells of the sweep against a baseline. In formats for programs, standard output contains only the
/// records.
fn compare_with_baseline(
    args: &Args,
    runner: &Runner,
    experiment: &Experiment,
    baseline: &Baseline,
) -> Result<u8> {
    let keys = cell_keys(experiment);
    let mut records = RunSelection::all(runner.store.dir())?.records;
    records.retain(|record| record.created >= baseline.created && keys.contains(&record.spec.key()));
    let of_baseline = (baseline.name.as_str(), baseline.created.as_str());
    let report = judge(of_baseline, &baseline.records, &records, &args.gate);
    match args.output.format {
        OutputFormat::Table => gate::print_gates(&report, args.strict, OutputFormat::Table),
        _ => Ok(gate::print_gate_summary(&report, args.strict)),
    }
}

/// Formats an answer for a terminal: its card, the table, and details.
fn answer_text(answer: &Answer, experiment: &str, dir: &Path) -> String {
    let card = answer.card().map(|(line, text)| match line {
        CardLine::Headline => output::wrapped("", text, 0),
        CardLine::Basis(_) | CardLine::Noise => output::wrapped("  ", text, 2),
        CardLine::Bullet => output::wrapped("  - ", text, 4),
    });
    let card: String = card.collect();
    let details: String = answer.details.iter().map(|text| output::wrapped("  ", text, 2)).collect();
    let details = if details.is_empty() { details } else { format!("\n{details}") };
    let table = match answer.table.is_empty() {
        true => String::new(),
        false => format!("\n{}", output::aligned(&answer.table)),
    };
    let rows = match answer.left_out.words() {
        None => String::new(),
        Some(more) => {
            let filter = Filter { terms: vec![Filter::is("experiment", experiment)] }.to_string();
            let (by, dir) = (answer.by.as_str(), dir.to_string_lossy());
            let words = ["ladderscope", "compare", "--by", by, "--filter", &filter, "--dir", &dir];
            format!("... and {more}; all: `{}`\n", shell_command(words))
        }
    };
    format!("{card}{table}{rows}{details}\n")
}
