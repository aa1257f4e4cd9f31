//! `ladderscope export FILE.parquet`: stored runs for notebooks, one row per run.

use std::path::PathBuf;

use super::filter::{self, FilterArgs};
use super::report;
use crate::desk::{Selection, export_runs};
use base::error::Result;
use base::text::counted;
use study::analysis::RunTable;
use study::analysis::filter::Filter;

/// Arguments of `ladderscope export`.
#[derive(Debug, clap::Args)]
pub struct Args {
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

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let Selection { records, annotations, .. } = filter::select(&args.runs, &dir)?;
    let table = RunTable::new(&records, &annotations);
    let mut rows = Filter::parse(args.filter.typed().unwrap_or_default()).rows(&table)?;
    if let Some(keys) = &args.sort {
        table.sort(&mut rows, &table.sort_keys(keys)?);
    }
    let columns = export_runs::runs(&args.file, &records, &table, &rows)?;
    report::note(&format!(
        "wrote {}: {} of {}, {}",
        args.file.display(),
        rows.len(),
        counted(records.len(), "run"),
        counted(columns, "column")
    ));
    Ok(0)
}
