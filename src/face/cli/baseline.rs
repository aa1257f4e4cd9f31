//! `ladderscope baseline set|list|delete`: named runs to compare later ones with (`compare --baseline NAME --gate`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::filter::FilterArgs;
use super::output::{self, FormatArgs, OutputFormat};
use super::stderr;
use crate::desk::Stores;
use base::error::Result;
use base::text::counted;
use lab::store::Store;
use table::render::{Shown, Sourced, Table};

/// Arguments of `ladderscope baseline`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub action: BaselineAction,
}

#[derive(Debug, Subcommand)]
pub enum BaselineAction {
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

/// Row of `baseline list`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct ListedBaseline {
    name: String,
    created: String,
    runs: usize,
    cells: usize,
    experiments: Vec<String>,
}

impl ListedBaseline {
    fn new(store: &Store, name: String) -> Result<Self> {
        let baseline = store.baseline(&name)?;
        let records = baseline.records.iter();
        let cells: BTreeSet<String> = records.clone().map(|record| record.spec.key()).collect();
        let experiments: BTreeSet<String> =
            records.filter_map(|record| record.experiment.clone()).collect();
        Ok(Self {
            name,
            runs: baseline.records.len(),
            cells: cells.len(),
            experiments: experiments.into_iter().collect(),
            created: baseline.created,
        })
    }
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let store = Store::open(&dir);
    match &args.action {
        BaselineAction::Set { name, runs, filter } => {
            let records = Stores::named(runs, &dir).complete(filter.records(runs, &dir)?)?;
            let (path, replaced) = store.set_baseline(name, &records)?;
            let done = if replaced { "replaced" } else { "set" };
            stderr::note(&format!("{done} baseline {name}: {}", path.display()));
        }
        BaselineAction::List { output } => list(&store, &dir, output.format)?,
        BaselineAction::Delete { name } => {
            store.delete_baseline(name)?;
            stderr::note(&format!("deleted baseline {name}; its file is in baselines/.replaced"));
        }
    }
    Ok(0)
}

fn list(store: &Store, dir: &Path, format: OutputFormat) -> Result<()> {
    let mut all = Vec::new();
    for name in store.baseline_names()? {
        match ListedBaseline::new(store, name) {
            Ok(baseline) => all.push(baseline),
            Err(damaged) => stderr::warn(&damaged.to_string()),
        }
    }
    let table = Table::from_rows(
        &all,
        &[
            ("name", &|b: &ListedBaseline| Shown::text(&b.name)),
            ("created", &|b| Shown::text(&b.created)),
            ("runs", &|b| Shown::Whole(b.runs as u64)),
            ("cells", &|b| Shown::Whole(b.cells as u64)),
            ("experiments", &|b| Shown::text(b.experiments.join(", "))),
        ],
    );
    if format == OutputFormat::Table && all.is_empty() {
        stderr::note(&format!("{} has {}", dir.display(), counted(0, "baseline")));
        return Ok(());
    }
    output::table(format, &all, &table, Sourced::NoRuns)
}
