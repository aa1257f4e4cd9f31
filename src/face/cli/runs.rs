//! `ladderscope runs`: lists stored runs, filtered and sorted, and edits tags, notes, and the trash.

use std::path::{Path, PathBuf};

use super::filter::{self, FilterArgs};
use super::output::{self, Format, FormatArgs};
use super::record_printer::RecordPrinter;
use super::record_table::Annotated;
use super::report;
use super::runs_edit::Edit;
use crate::desk::{self, Selection};
use base::error::{Error, Result};
use lab::store::{BatchSummary, Store};
use study::analysis::RunTable;
use study::analysis::filter::Filter;
use table::render::{Shown, Table};
use table::{Record, Status};

/// Arguments of `ladderscope runs`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = filter::LANGUAGE)]
pub struct Args {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only runs with this tag (repeatable: with all of them)
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only runs with this status: ok, failed, oom, skipped, interrupted, running
    #[arg(long, value_name = "STATUS")]
    pub status: Option<Status>,
    /// Sort by these columns, the first one first, for example tpot, tok/s:desc,arch; -tpot is tpot:desc [default:
    /// oldest first]
    #[arg(long, value_name = "COLUMN[:desc],...", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Columns of the table or CSV, for example run,arch,tp,tpot,tags,env.NCCL_ALGO
    #[arg(long, value_name = "COLUMN,...")]
    pub columns: Option<String>,
    /// Only the last N rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Show every row of every batch in a table; without it, an unfiltered batch is one line
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub output: FormatArgs,
    /// Action on stored runs, instead of listing them
    #[command(subcommand)]
    pub edit: Option<Edit>,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    if let Some(edit) = &args.edit {
        return super::runs_edit::run(edit, &dir);
    }
    let chosen = args.filter.typed().is_some()
        || !args.tag.is_empty()
        || args.status.is_some()
        || args.sort.is_some()
        || args.columns.is_some()
        || args.limit.is_some()
        || args.all;
    if args.output.format == Format::Table && !chosen {
        return in_short(&dir);
    }
    let Selection { records, annotations, .. } = filter::select(&[], &dir)?;
    let stored = records.len();
    let table = RunTable::new(&records, &annotations);
    let rows = rows(args, &table, &records)?;
    let columns = args.columns.as_deref().map(|names| columns(&table, names)).transpose()?;
    match (args.output.format, columns) {
        (Format::Csv, columns) => {
            output::emit(&table.csv(&rows, &columns.unwrap_or_else(|| table.csv_columns())))?;
        }
        (Format::Json, _) => output::json_list(|print| {
            let records = desk::picked(records, &rows);
            Store::open(&dir).complete(records, |record| {
                print(Annotated::of(&record, annotations.of(&record.run)).object())
            })
        })?,
        (Format::Table, _) if rows.is_empty() => {
            report::note(&format!("no runs in {} match; {stored} are stored", dir.display()));
        }
        (Format::Table, Some(columns)) => {
            output::emit(&output::aligned(&shown(&table, &rows, &columns)))?
        }
        (Format::Table, None) => {
            let mut printer = RecordPrinter::annotated(annotations);
            desk::picked(records, &rows).into_iter().try_for_each(|record| printer.print(record))?;
            printer.finish()?;
        }
    }
    Ok(0)
}

/// Rows selected by the arguments, in order.
fn rows(args: &Args, table: &RunTable, records: &[Record]) -> Result<Vec<u32>> {
    let mut filter = Filter::parse(args.filter.typed().unwrap_or_default());
    for tag in &args.tag {
        filter.terms.push(Filter::is("tags", tag));
    }
    let mut rows = filter.rows(table)?;
    if let Some(status) = args.status {
        rows.retain(|row| records.get(*row as usize).is_some_and(|record| record.status == status));
    }
    if let Some(keys) = &args.sort {
        table.sort(&mut rows, &table.sort_keys(keys)?);
    }
    if let Some(limit) = args.limit {
        rows.drain(..rows.len().saturating_sub(limit));
    }
    Ok(rows)
}

fn columns(table: &RunTable, names: &str) -> Result<Vec<usize>> {
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(Error::input_help("--columns without a column", "for example run,arch,tp,tpot"));
    }
    let mut columns: Vec<usize> =
        names.into_iter().map(|name| table.column(name)).collect::<Result<_>>()?;
    // numbers are never shown without provenance
    let provenance = table.column("provenance")?;
    if !columns.contains(&provenance) {
        columns.push(provenance);
    }
    Ok(columns)
}

/// Selected columns as a table for people.
fn shown(table: &RunTable, rows: &[u32], columns: &[usize]) -> Table {
    let mut shown = Table::new(
        columns.iter().filter_map(|at| table.columns().get(*at)).map(|c| c.field.name.to_string()),
    );
    for row in rows {
        let cell = |at: &usize| table.columns().get(*at).map_or(Shown::None, |c| c.shown(*row as usize));
        shown.push(columns.iter().map(cell).collect());
    }
    shown
}

/// Prints one line per run, then one per batch.
fn in_short(dir: &Path) -> Result<u8> {
    if !dir.exists() {
        report::note(&format!("no runs: {} is not there", dir.display()));
        return Ok(0);
    }
    let store = Store::open(dir);
    let (runs, (batches, damaged)) = (store.list_runs()?, store.batches()?);
    let annotations = store.annotations();
    for damaged in runs.damaged.iter().chain(&damaged).chain(&annotations.damaged) {
        report::warn(damaged);
    }
    if runs.records.is_empty() && batches.is_empty() {
        report::note(&format!("no runs in {}", dir.display()));
        return Ok(0);
    }
    if !runs.records.is_empty() {
        let mut printer = RecordPrinter::annotated(annotations);
        runs.records.into_iter().try_for_each(|record| printer.print(record))?;
        printer.finish()?;
    }
    if !batches.is_empty() {
        let rows = Table::of(
            &batches,
            &[
                ("batch", &|b: &BatchSummary| Shown::text(&b.batch)),
                ("simulated runs", &|b| b.runs.into()),
                ("ok", &|b| b.ok.into()),
                ("experiment", &|b| b.experiment.as_deref().into()),
                ("created", &|b| Shown::text(&b.created)),
            ],
        );
        output::emit(&output::aligned(&rows))?;
        report::note("a batch's runs are BATCH:ROW; --all or a condition lists them");
    }
    Ok(0)
}
