//! `ladderscope runs`: lists stored runs, filtered and sorted; `runs tag|note|delete|restore|trash|empty-trash` edits them.
//! Records themselves never change.
//!
//! `ladderscope export FILE.parquet`: stored runs for notebooks, one row per run.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::filter::{FILTER_SYNTAX, FilterArgs, select_runs};
use super::output::{self, Annotated, FormatArgs, OutputFormat, without_samples};
use super::record_table::RecordPrinter;
use super::stderr;
use crate::desk::{self, RunSelection, export};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::{self, BatchSummary, Store};
use study::analysis::RunTable;
use study::analysis::filter::Filter;
use table::render::{Shown, Sourced, Table};
use table::{Record, Status};

/// Arguments of `ladderscope runs`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = FILTER_SYNTAX)]
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
    pub edit: Option<RunsAction>,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    if let Some(edit) = &args.edit {
        return edit_runs(edit, &dir);
    }
    let chosen = args.filter.typed().is_some()
        || !args.tag.is_empty()
        || args.status.is_some()
        || args.sort.is_some()
        || args.columns.is_some()
        || args.limit.is_some()
        || args.all;
    if args.output.format == OutputFormat::Table && !chosen {
        return print_summary(&dir);
    }
    let RunSelection { records, annotations, .. } = select_runs(&[], &dir)?;
    let stored = records.len();
    let table = RunTable::new(&records, &annotations);
    let rows = rows(args, &table, &records)?;
    let columns = args.columns.as_deref().map(|names| columns(&table, names)).transpose()?;
    if args.output.format == OutputFormat::Table {
        let shown = rows.iter().filter_map(|row| records.get(*row as usize));
        stderr::note_simulator_errors(shown.map(|record| &record.spec));
    }
    match (args.output.format, columns) {
        (OutputFormat::Csv, columns) => {
            output::emit(&table.csv(&rows, &columns.unwrap_or_else(|| table.csv_columns())))?;
        }
        (OutputFormat::Json, _) => output::json_list(|print| {
            let records = desk::take_rows(records, &rows);
            Store::open(&dir).complete(records, |record| {
                print(without_samples(&Annotated::new(&record, annotations.of(&record.run))))
            })
        })?,
        (OutputFormat::Table, _) if rows.is_empty() => {
            stderr::note(&format!("no runs in {} match; {stored} are stored", dir.display()));
        }
        (OutputFormat::Table, Some(columns)) => {
            output::emit(&output::aligned(&columns_table(&table, &rows, &columns)))?
        }
        (OutputFormat::Table, None) => {
            let mut printer = RecordPrinter::new(OutputFormat::Table, None, annotations);
            desk::take_rows(records, &rows).into_iter().try_for_each(|record| printer.print(record))?;
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
fn columns_table(table: &RunTable, rows: &[u32], columns: &[usize]) -> Table {
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
fn print_summary(dir: &Path) -> Result<u8> {
    if !dir.exists() {
        stderr::note(&format!("no runs: {} is not there", dir.display()));
        return Ok(0);
    }
    let store = Store::open(dir);
    let (runs, (batches, damaged)) = (store.list_runs_in_short()?, store.batches()?);
    let annotations = store.annotations();
    let damaged = runs.damaged.iter().chain(&damaged).chain(&annotations.damaged);
    damaged.for_each(|damaged| stderr::warn(damaged));
    if runs.records.is_empty() && batches.is_empty() {
        stderr::note(&format!("no runs in {}", dir.display()));
        return Ok(0);
    }
    if !runs.records.is_empty() {
        let mut printer = RecordPrinter::new(OutputFormat::Table, None, annotations);
        runs.records.into_iter().try_for_each(|record| printer.print(record))?;
        printer.finish()?;
    }
    if !batches.is_empty() {
        let rows = Table::from_rows(
            &batches,
            &[
                ("batch", &|b: &BatchSummary| Shown::text(&b.batch)),
                ("simulated runs", &|b| b.runs.into()),
                ("ok", &|b| b.ok.into()),
                ("experiment", &|b| b.experiment.as_deref().into()),
                ("created", &|b| {
                    Shown::text(b.created.get(..19).unwrap_or(&b.created).replace('T', " "))
                }),
            ],
        );
        output::emit(&output::aligned(&rows))?;
        stderr::note("batches are collapsed; list their rows (BATCH:ROW) with --all or a filter");
    }
    Ok(0)
}

/// Actions on stored runs.
#[derive(Debug, Subcommand)]
pub enum RunsAction {
    /// Add tags to runs; a leading '-' removes a tag
    Tag {
        /// Tags, for example good or good,-doubtful
        #[arg(value_name = "TAGS", allow_hyphen_values = true)]
        tags: String,
        #[command(flatten)]
        runs: RunNames,
    },
    /// Set the note of runs; '' removes it
    Note {
        /// Text of the note
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: String,
        #[command(flatten)]
        runs: RunNames,
    },
    /// Move runs to the trash, where other verbs ignore them
    Delete {
        #[command(flatten)]
        runs: RunNames,
    },
    /// Restore runs from the trash [default: the most recent deletion]
    Restore {
        /// Ids and batches (all their deleted rows), as listed by 'runs trash', or BATCH:ROW
        #[arg(value_name = "RUN")]
        runs: Vec<String>,
    },
    /// List runs in the trash
    Trash {
        #[command(flatten)]
        output: FormatArgs,
    },
    /// Delete all runs in the trash permanently
    EmptyTrash,
}

/// Runs to edit.
#[derive(Debug, clap::Args)]
pub struct RunNames {
    /// Run ids, prefixes of ids, 'last', batches (all their rows) or BATCH:ROW
    #[arg(value_name = "RUN", required_unless_present = "filter")]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
}

impl RunNames {
    /// Selected ids, at least one. Names refer only to runs in this directory, because others have their own
    /// annotations and trash.
    fn ids(&self, store: &Store) -> Result<Vec<String>> {
        let mut chosen = select_runs(&[], store.dir())?;
        if !self.runs.is_empty() {
            if let Some(name) = self.runs.iter().find(|name| name.contains(std::path::MAIN_SEPARATOR)) {
                return Err(Error::input_help(
                    format!("'{name}' is not a run"),
                    "to edit the runs of another directory: --dir DIRECTORY",
                ));
            }
            chosen.records.clear();
            for name in &self.runs {
                let (records, damaged) = desk::runs_named(store, name)?;
                damaged.iter().for_each(|damaged| stderr::warn(damaged));
                chosen.records.extend(records);
            }
            let mut seen = HashSet::new();
            chosen.records.retain(|record| seen.insert(record.run.clone()));
        }
        let records = desk::filter_runs(chosen, self.filter.typed())?;
        if records.is_empty() {
            return Err(Error::input_help(
                format!("no runs in {} match; nothing changed", store.dir().display()),
                "`ladderscope runs --filter ...` shows what a filter chooses",
            ));
        }
        Ok(records.into_iter().map(|record| record.run).collect())
    }
}

fn edit_runs(edit: &RunsAction, dir: &Path) -> Result<u8> {
    let store = Store::open(dir);
    match edit {
        RunsAction::Tag { tags, runs } => {
            let edit = store::AnnotationEdit::tags(tags)?;
            if edit.is_empty() {
                return Err(Error::input_help("no tags", "for example: runs tag good,-doubtful last"));
            }
            annotate(&store, runs, &edit, "tagged")?;
        }
        RunsAction::Note { text, runs } => {
            annotate(&store, runs, &store::AnnotationEdit::note(text), "noted")?
        }
        RunsAction::Delete { runs } => {
            let ids = runs.ids(&store)?;
            store.delete(&ids)?;
            stderr::note(&format!(
                "moved {} to the trash; undo with `ladderscope runs restore`",
                counted(ids.len(), "run")
            ));
        }
        RunsAction::Restore { runs } => restore(&store, runs)?,
        RunsAction::Trash { output } => list_trash(&store, output.format)?,
        RunsAction::EmptyTrash => {
            let emptied = store.empty_trash()?;
            let hidden = match emptied.hidden_rows {
                0 => String::new(),
                rows => format!(
                    "; of batches that have other rows, {} hidden",
                    if rows == 1 {
                        "1 deleted row stays".into()
                    } else {
                        format!("{rows} deleted rows stay")
                    }
                ),
            };
            stderr::note(&format!(
                "removed {} and {}{hidden}",
                counted(emptied.runs, "run"),
                counted(emptied.batches, "batch file")
            ));
        }
    }
    Ok(0)
}

fn annotate(store: &Store, runs: &RunNames, edit: &store::AnnotationEdit, done: &str) -> Result<()> {
    let ids = runs.ids(store)?;
    store.annotate(&ids, edit)?;
    stderr::note(&format!("{done} {}", counted(ids.len(), "run")));
    Ok(())
}

fn restore(store: &Store, runs: &[String]) -> Result<()> {
    if runs.is_empty() {
        match store.restore_last()?.len() {
            0 => stderr::note("the trash is empty: nothing to restore"),
            count => stderr::note(&format!("restored {}", counted(count, "run"))),
        }
        return Ok(());
    }
    let mut restored = 0;
    for run in runs {
        let rows = store.deleted_rows(run);
        let ids = if rows.is_empty() { std::slice::from_ref(run) } else { &rows };
        let count = store.restore(ids)?;
        if count == 0 {
            return Err(Error::input_help(
                format!("'{run}' is not in the trash"),
                "`ladderscope runs trash` lists deleted runs",
            ));
        }
        restored += count;
    }
    stderr::note(&format!("restored {}", counted(restored, "run")));
    Ok(())
}

fn list_trash(store: &Store, format: OutputFormat) -> Result<()> {
    let trash = store.trash()?;
    let mut rows = Table::new(["deleted", "runs"]);
    for run in &trash.runs {
        rows.push(vec![Shown::text(run), Shown::Whole(1)]);
    }
    for (batch, count) in &trash.rows {
        rows.push(vec![Shown::text(batch), Shown::Whole(*count as u64)]);
    }
    if format == OutputFormat::Table && trash.is_empty() {
        stderr::note("the trash is empty");
        return Ok(());
    }
    output::table(format, &trash, &rows, Sourced::NoRuns)
}

/// Arguments of `ladderscope export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// File to write: all options and metrics of each run, with units in the file's metadata
    #[arg(value_name = "FILE.parquet")]
    pub file: PathBuf,
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Sort by these columns, the first one first, for example tpot, tok/s:desc,arch [default: oldest first]
    #[arg(long, value_name = "COLUMN[:desc],...", allow_hyphen_values = true)]
    pub sort: Option<String>,
}

pub fn export_parquet(args: &ExportArgs, dir: PathBuf) -> Result<u8> {
    let RunSelection { records, annotations, .. } = select_runs(&args.runs, &dir)?;
    let table = RunTable::new(&records, &annotations);
    let mut rows = Filter::parse(args.filter.typed().unwrap_or_default()).rows(&table)?;
    if let Some(keys) = &args.sort {
        table.sort(&mut rows, &table.sort_keys(keys)?);
    }
    let columns = export::runs(&args.file, &records, &table, &rows)?;
    stderr::note(&format!(
        "wrote {}: {} of {}, {}",
        args.file.display(),
        rows.len(),
        counted(records.len(), "run"),
        counted(columns, "column")
    ));
    Ok(0)
}
