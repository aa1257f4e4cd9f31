//! `ladderscope runs`: stored runs, filtered and sorted.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::output::{self, Format, FormatArgs};
use super::{record_table, report};
use crate::error::{Error, Result};
use crate::store::{Record, Status, Store};

/// Arguments of `runs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only runs that match every word: text in any column, or key=value of the spec, for example 'ladder tp=2'
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Only runs that ended so: ok, failed, oom, skipped, interrupted
    #[arg(long, value_enum, hide_possible_values = true)]
    pub status: Option<StatusArg>,
    /// Sort by this column; a leading '-' reverses [default: created]
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Only the last N rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
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
    let key = args.sort.as_deref().map(Sort::parse).transpose()?;
    let all = read(&dir)?;
    let mut records: Vec<&Record> = all
        .iter()
        .filter(|record| args.status.is_none_or(|status| record.status == status.status()))
        .filter(|record| args.filter.as_deref().is_none_or(|filter| matches(record, filter)))
        .collect();
    if let Some(sort) = key {
        records.sort_by(|a, b| sort.compare(a, b));
    }
    if let Some(limit) = args.limit {
        records.drain(..records.len().saturating_sub(limit));
    }
    match args.output.format {
        Format::Json => {
            output::json(&records.iter().map(|r| record_table::contract_object(r)).collect::<Vec<_>>())?;
        }
        Format::Csv => output::emit(&record_table::wide(&records).csv())?,
        Format::Table if records.is_empty() => {
            report::note(&format!("no runs in {} match; {} are stored", dir.display(), all.len()));
        }
        Format::Table => output::emit(&record_table::narrow(&records).table())?,
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
            let rows: Vec<Record> = read(dir)?
                .into_iter()
                .filter(|record| {
                    record.run.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(':'))
                })
                .collect();
            if rows.is_empty() { vec![Store::open(dir).get(name)?] } else { rows }
        };
        selected.extend(found);
    }
    // A run named twice is one run.
    let mut seen = std::collections::HashSet::new();
    selected.retain(|record| seen.insert(record.run.clone()));
    Ok(selected)
}

/// Whether the record has every word of the filter.
pub fn matches(record: &Record, filter: &str) -> bool {
    let spec = serde_json::to_value(&record.spec).unwrap_or_default();
    let text = format!(
        "{} {} {} {} {} {}",
        record.run,
        record.status.as_str(),
        record.provenance,
        record.experiment.as_deref().unwrap_or_default(),
        record.reason.as_deref().unwrap_or_default(),
        spec
    )
    .to_lowercase();
    filter.split_whitespace().all(|word| {
        match word.split_once('=').and_then(|(k, v)| Some((spec.get(k)?, v))) {
            Some((serde_json::Value::String(actual), wanted)) => actual.eq_ignore_ascii_case(wanted),
            Some((actual, wanted)) => wanted == actual.to_string(),
            None => text.contains(&word.to_lowercase()),
        }
    })
}

/// A column to sort by.
#[derive(Clone, Copy, Debug)]
struct Sort {
    column: &'static str,
    reversed: bool,
}

const COLUMNS: [&str; 15] = [
    "created",
    "run",
    "status",
    "architecture",
    "model",
    "dtype",
    "tp",
    "batch",
    "p2p",
    "backend",
    "completion",
    "tpot",
    "throughput",
    "per-gpu",
    "overlap",
];

impl Sort {
    fn parse(text: &str) -> Result<Self> {
        let (name, reversed) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (text, false),
        };
        match COLUMNS.iter().find(|column| **column == name) {
            Some(column) => Ok(Self { column, reversed }),
            None => Err(Error::unknown("column", name, COLUMNS)),
        }
    }

    /// Runs without the number come last, whichever the direction.
    fn compare(self, a: &Record, b: &Record) -> Ordering {
        let number = |r: &Record| -> Option<f64> {
            let metrics = r.metrics.as_ref();
            match self.column {
                "completion" => metrics.map(|m| m.completion_ms),
                "tpot" => metrics.map(|m| m.tpot_ms.p50),
                "throughput" => metrics.map(|m| m.tokens_per_s),
                "per-gpu" => metrics.map(|m| m.tokens_per_s_per_gpu),
                _ => r.overlap.as_ref().and_then(|o| o.overlap_pct),
            }
        };
        let ordering = match self.column {
            "created" => a.created.cmp(&b.created),
            "run" => a.run.cmp(&b.run),
            "status" => a.status.cmp(&b.status),
            "architecture" => a.spec.architecture.cmp(&b.spec.architecture),
            "model" => a.spec.model.cmp(&b.spec.model),
            "dtype" => a.spec.dtype.cmp(&b.spec.dtype),
            "tp" => a.spec.tp.cmp(&b.spec.tp),
            "batch" => a.spec.batch.cmp(&b.spec.batch),
            "p2p" => a.spec.p2p.cmp(&b.spec.p2p),
            "backend" => a.spec.backend.cmp(&b.spec.backend),
            _ => match (number(a), number(b)) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (a, b) => return b.is_some().cmp(&a.is_some()),
            },
        };
        if self.reversed { ordering.reverse() } else { ordering }
    }
}
