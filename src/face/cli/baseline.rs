//! `ladderscope baseline set|list|delete`: named runs to compare later ones with (`compare --baseline NAME --gate`).
//!
//! Option `--gate` of `compare` and `sweep`: judges runs against a stored baseline, for pipelines.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::output::{self, Format, FormatArgs};
use super::report;
use super::select::FilterArgs;
use crate::desk::Stores;
use base::error::{Error, Result};
use base::text::counted;
use lab::store::{Baseline, Store};
use study::analysis::{Gate, GateOutcome, GateReport, GateRow, gate_table, judge};
use table::Record;
use table::render::{Shown, Sourced, Table};

/// Arguments of `ladderscope baseline`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

/// Actions on baselines.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Store finished runs as a baseline; a baseline of the same name moves to baselines/.replaced
    Set {
        /// Name of the baseline: letters, digits and -_.+@
        #[arg(value_name = "NAME")]
        name: String,
        /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]
        #[arg(value_name = "RUNS|DIR")]
        runs: Vec<String>,
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// List baselines and their cells
    List {
        #[command(flatten)]
        output: FormatArgs,
    },
    /// Delete a baseline; its file is kept in baselines/.replaced
    Delete {
        /// Name of the baseline
        #[arg(value_name = "BASELINE")]
        name: String,
    },
}

/// Row of the list.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Listed {
    name: String,
    created: String,
    runs: usize,
    cells: usize,
    experiments: Vec<String>,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let store = Store::open(&dir);
    match &args.what {
        What::Set { name, runs, filter } => {
            let records = Stores::named(runs, &dir).complete(filter.records(runs, &dir)?)?;
            let (path, replaced) = store.set_baseline(name, &records)?;
            let what = if replaced { "replaced" } else { "set" };
            report::note(&format!("{what} baseline {name}: {}", path.display()));
        }
        What::List { output } => list(&store, &dir, output.format)?,
        What::Delete { name } => {
            store.delete_baseline(name)?;
            report::note(&format!("deleted baseline {name}; its file is in baselines/.replaced"));
        }
    }
    Ok(0)
}

fn list(store: &Store, dir: &Path, format: Format) -> Result<()> {
    let listed = |name: String| -> Result<Listed> {
        let baseline = store.baseline(&name)?;
        let mut cells: Vec<String> = baseline.records.iter().map(|r| r.spec.key()).collect();
        let mut experiments: Vec<String> =
            baseline.records.iter().filter_map(|r| r.experiment.clone()).collect();
        for list in [&mut cells, &mut experiments] {
            list.sort_unstable();
            list.dedup();
        }
        let (runs, cells) = (baseline.records.len(), cells.len());
        Ok(Listed { name, created: baseline.created, runs, cells, experiments })
    };
    let mut all = Vec::new();
    for name in store.baseline_names()? {
        match listed(name) {
            Ok(baseline) => all.push(baseline),
            Err(damaged) => report::warn(&damaged.to_string()),
        }
    }
    let table = Table::of(
        &all,
        &[
            ("name", &|b: &Listed| Shown::text(&b.name)),
            ("created", &|b| Shown::text(&b.created)),
            ("runs", &|b| Shown::Whole(b.runs as u64)),
            ("cells", &|b| Shown::Whole(b.cells as u64)),
            ("experiments", &|b| Shown::text(b.experiments.join(", "))),
        ],
    );
    if format == Format::Table && all.is_empty() {
        report::note(&format!("{} has {}", dir.display(), counted(0, "baseline")));
        return Ok(());
    }
    output::table(format, &all, &table, Sourced::NoRuns)
}

/// Exit status if a gate is violated, or with `--strict` undecided.
const NOT_HELD: u8 = 4;

/// Exit status if a cell of the baseline cannot be judged.
const INCOMPLETE: u8 = 2;

/// Judges runs against a baseline. If the user named no runs, only those since the baseline was set count.
pub fn held(baseline: &Baseline, mut now: Vec<Record>, named: bool, gates: &[Gate]) -> GateReport {
    now.retain(|record| named || record.created >= baseline.created);
    judge((&baseline.name, &baseline.created), &baseline.records, &now, gates)
}

/// Prints the results of the gates and returns the exit status.
pub fn print_gates(report: &GateReport, strict: bool, format: Format) -> Result<u8> {
    if format != Format::Table || !report.rows.is_empty() {
        output::table(format, report, &gate_table(report), Sourced::ByRow)?;
    }
    Ok(summarize_gates(report, strict))
}

/// Prints a summary of the gates on standard error and returns the exit status.
pub fn summarize_gates(report: &GateReport, strict: bool) -> u8 {
    report.warnings.iter().for_each(|warning| report::warn(warning));
    if report.not_in_baseline > 0 {
        report::note(&format!(
            "{} not in baseline {}, and not judged",
            counted(report.not_in_baseline, "cell"),
            report.baseline
        ));
    }
    if report.without_communication > 0 {
        report::note(&format!(
            "{} of communication skipped: no communication on either side",
            counted(report.without_communication, "comparison")
        ));
    }
    report.without_partner.iter().for_each(|why| report::warn(why));
    let (rows, name) = (counted(report.rows.len(), "comparison"), &report.baseline);
    let of =
        |outcome| -> Vec<&GateRow> { report.rows.iter().filter(|row| row.outcome == outcome).collect() };
    let undecided = of(GateOutcome::Undecided);
    let unclear = undecided.first().map(|first| {
        let why = first.undecided.as_deref().unwrap_or_default();
        let first = format!("the first {} of {}: {why}", first.gate.text, first.cell);
        format!("{} of {rows} against baseline {name} undecided, {first}", undecided.len())
    });
    if let [first, ..] = of(GateOutcome::Violated)[..] {
        unclear.iter().for_each(|unclear| report::warn(unclear));
        report::print(&Error::failed(format!(
            "{} of {rows} against baseline {name} beyond their limits, the first {} of {}",
            of(GateOutcome::Violated).len(),
            first.gate.text,
            first.cell
        )));
        return NOT_HELD;
    }
    if let Some(unclear) = &unclear {
        if strict {
            report::print(&Error::failed(format!("{unclear} (--strict)")));
            return NOT_HELD;
        }
        report::warn(unclear);
    }
    if report.rows.is_empty() && report.without_partner.is_empty() {
        report::print(&Error::input_help(
            format!("baseline {name}: no cells to compare"),
            "choose cells that the baseline has, and a measure that they have",
        ));
        return INCOMPLETE;
    }
    if !report.without_partner.is_empty() {
        let cells = counted(report.without_partner.len(), "cell");
        report::print(&Error::input_help(
            format!("baseline {name}: no verdict for {cells}"),
            "rerun these cells with `ladderscope sweep FILE --again`, or set a baseline without them",
        ));
        return INCOMPLETE;
    }
    report::line(&match undecided.len() {
        0 => format!("{rows} against baseline {name}: all gates hold"),
        more => format!(
            "{rows} against baseline {name}: {} hold, {more} undecided (--strict exits with {NOT_HELD})",
            report.rows.len() - more
        ),
    });
    0
}
