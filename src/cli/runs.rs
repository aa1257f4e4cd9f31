//! `ladderscope runs`: stored runs, filtered and sorted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::record_printer::RecordPrinter;
use super::{record_table, report};
use crate::analysis::table;
use crate::error::{Error, Result};
use crate::store::{Record, Status, Store};

/// Arguments of `runs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only runs that meet these conditions on columns (of --format csv), for example 'architecture=ladder tp>=4'; a
    /// word alone must be contained in any column
    #[arg(long, value_name = "CONDITIONS")]
    pub filter: Option<String>,
    /// Only runs that ended so: ok, failed, oom, skipped, interrupted
    #[arg(long, value_enum, hide_possible_values = true)]
    pub status: Option<StatusArg>,
    /// Sort by this column (of --format csv), for example tpot_p50_ms; a leading '-' reverses [default: oldest first]
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Only the last N rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// In a table, every row of every batch; without this or a condition a batch is one line
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusArg {
    /// To its end
    Ok,
    /// It died, hung or was wrong
    Failed,
    /// It does not fit in memory
    Oom,
    /// It cannot run
    Skipped,
    /// It was stopped
    Interrupted,
}

impl StatusArg {
    fn status(self) -> Status {
        match self {
            Self::Ok => Status::Ok,
            Self::Failed => Status::Failed,
            Self::Oom => Status::Oom,
            Self::Skipped => Status::Skipped,
            Self::Interrupted => Status::Interrupted,
        }
    }
}

/// Prints the list.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let chosen = args.filter.is_some()
        || args.status.is_some()
        || args.sort.is_some()
        || args.limit.is_some()
        || args.all;
    if args.output.format == Format::Table && !chosen {
        return in_short(&dir);
    }
    let all = read(&dir)?;
    let stored = all.len();
    let mut records = filtered(all, args.filter.as_deref(), args.sort.as_deref())?;
    records.retain(|record| args.status.is_none_or(|status| record.status == status.status()));
    if let Some(limit) = args.limit {
        records.drain(..records.len().saturating_sub(limit));
    }
    match args.output.format {
        Format::Json => output::json_list(|print| {
            Store::open(&dir).complete(records, |record| print(record_table::contract_object(&record)))
        })?,
        Format::Table if records.is_empty() => {
            report::note(&format!("no runs in {} match; {} are stored", dir.display(), stored));
        }
        format => {
            let mut printer = RecordPrinter::new(format);
            records.into_iter().try_for_each(|record| printer.print(record))?;
            printer.finish()?;
        }
    }
    Ok(0)
}

/// Runs, a line each, then batches, a line each.
fn in_short(dir: &Path) -> Result<u8> {
    if !dir.exists() {
        report::note(&format!("no runs: {} is not there", dir.display()));
        return Ok(0);
    }
    let store = Store::open(dir);
    let (runs, (batches, damaged)) = (store.list_runs()?, store.batches()?);
    for damaged in runs.damaged.iter().chain(&damaged) {
        report::warn(damaged);
    }
    if runs.records.is_empty() && batches.is_empty() {
        report::note(&format!("no runs in {}", dir.display()));
        return Ok(0);
    }
    if !runs.records.is_empty() {
        let mut printer = RecordPrinter::new(Format::Table);
        runs.records.into_iter().try_for_each(|record| printer.print(record))?;
        printer.finish()?;
    }
    if !batches.is_empty() {
        let mut rows = Rows::new(["batch", "simulated runs", "ok", "experiment", "created", "state"]);
        for batch in batches {
            rows.push(vec![
                Field::text(batch.batch),
                Field::Whole(batch.runs as u64),
                Field::Whole(batch.ok as u64),
                batch.experiment.map_or(Field::None, Field::Text),
                Field::text(batch.created),
                if batch.unfinished { Field::text("unfinished") } else { Field::None },
            ]);
        }
        output::emit(&rows.table())?;
        report::note("a batch's runs are BATCH:ROW; --all or a condition lists them");
    }
    Ok(0)
}

/// All records of a runs directory; damaged ones are warned of. A directory that is not there (yet)
/// has no runs.
pub fn read(dir: &Path) -> Result<Vec<Record>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let listing = Store::open(dir).list()?;
    for damaged in &listing.damaged {
        report::warn(damaged);
    }
    Ok(listing.records)
}

/// The records that verbs over many runs look at: of the named directories and runs, or all of
/// `dir`. A RUN may be an id, a prefix of it, `last`, a batch or a row of it.
pub fn select(named: &[String], dir: &Path) -> Result<Vec<Record>> {
    if named.is_empty() {
        return read(dir);
    }
    let mut selected: Vec<Record> = Vec::new();
    for name in named {
        let found = if Path::new(name).is_dir() {
            read(Path::new(name))?
        } else if name.contains(std::path::MAIN_SEPARATOR) {
            return Err(Error::input(format!("{name}: no such directory")));
        } else {
            let store = Store::open(dir);
            match store.batch(name)? {
                Some(batch) => {
                    batch.damaged.iter().for_each(|damaged| report::warn(damaged));
                    batch.records
                }
                None => vec![store.get(name)?],
            }
        };
        selected.extend(found);
    }
    // A run named twice is one run.
    let mut seen = std::collections::HashSet::new();
    selected.retain(|record| seen.insert(record.run.clone()));
    Ok(selected)
}

/// The records that meet the conditions, in the order of a column (`-` before it reverses).
pub fn filtered(records: Vec<Record>, filter: Option<&str>, sort: Option<&str>) -> Result<Vec<Record>> {
    if filter.is_none() && sort.is_none() {
        return Ok(records);
    }
    let mut frame = table::frame(&records)?;
    if let Some(conditions) = filter {
        frame = table::filter(&frame, conditions)?;
    }
    if let Some(column) = sort {
        let reversed = column.strip_prefix('-');
        frame = table::sort(&frame, reversed.unwrap_or(column), reversed.is_some())?;
    }
    let mut by_id: HashMap<String, Record> = records.into_iter().map(|r| (r.run.clone(), r)).collect();
    let ids = table::rows(&frame, &["run"])?;
    Ok(ids.concat().iter().filter_map(|id| by_id.remove(id)).collect())
}
