//! Selection of stored runs by id, prefix, `last`, batch, runs directory or filter; their provenance and traces from
//! several stores.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::open::trace_of;
use base::error::{Error, Result};
use lab::store::{Annotations, Store};
use plan::Architecture;
use study::analysis::filter::Filter;
use study::analysis::{CellSet, RunTable};
use study::plot::ProvenanceSummary;
use table::{P2p, Record};
use trace::Trace;

#[derive(Debug, Default)]
pub struct RunSelection {
    pub records: Vec<Record>,
    pub annotations: Arc<Annotations>,
    pub damaged: Vec<String>,
}

impl RunSelection {
    /// Selects all records of a runs directory; a missing directory has none. Damaged runs are listed in `damaged`.
    pub fn all(dir: &Path) -> Result<Self> {
        if !dir.exists() {
            return Ok(Self::default());
        }
        let store = Store::open(dir);
        let listing = store.list()?;
        Ok(Self { records: listing.records, annotations: store.annotations(), damaged: listing.damaged })
    }

    /// Selects the records of the named directories and runs, or all of `dir` without names. A run is named by its
    /// id, a prefix, `last`, a batch or a row of a batch; duplicates are dropped.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown directory, run or batch and for an ambiguous prefix, and an error if a
    /// directory cannot be read.
    pub fn named(named: &[String], dir: &Path) -> Result<Self> {
        if named.is_empty() {
            return Self::all(dir);
        }
        let store = Store::open(dir);
        let mut chosen = Self { annotations: store.annotations(), ..Self::default() };
        for name in named {
            if Path::new(name).is_dir() {
                let there = Self::all(Path::new(name))?;
                Arc::make_mut(&mut chosen.annotations).extend(&there.annotations);
                chosen.records.extend(there.records);
                chosen.damaged.extend(there.damaged);
            } else if Path::new(name).is_file() {
                return Err(Error::input_help(
                    format!("{name}: a file, but stored runs or runs directories are expected"),
                    format!(
                        "for a trace: `ladderscope overlap {name}` or `ladderscope timeline {name}`"
                    ),
                ));
            } else if name.contains(std::path::MAIN_SEPARATOR) {
                return Err(Error::input(format!("{name}: no such directory")));
            } else {
                let (records, damaged) = runs_named(&store, name)?;
                chosen.records.extend(records);
                chosen.damaged.extend(damaged);
            }
        }
        let mut seen = HashSet::new();
        chosen.records.retain(|record| seen.insert(record.run.clone()));
        Ok(chosen)
    }
}

/// Records of a run or batch of this store, and warnings about damaged ones. Returns an input error for an unknown
/// run or batch, or an ambiguous prefix.
pub fn runs_named(store: &Store, name: &str) -> Result<(Vec<Record>, Vec<String>)> {
    let Some(batch) = store.batch(name)? else { return Ok((vec![store.get(name)?], Vec::new())) };
    Ok((batch.records, batch.damaged))
}

/// Filters the records. Returns an input error for an unknown field or an invalid value.
pub fn filter_runs(chosen: RunSelection, filter: Option<&str>) -> Result<Vec<Record>> {
    let Some(filter) = filter else { return Ok(chosen.records) };
    let rows = Filter::parse(filter).rows(&RunTable::new(&chosen.records, &chosen.annotations))?;
    Ok(take_rows(chosen.records, &rows))
}

pub fn take_rows(records: Vec<Record>, rows: &[u32]) -> Vec<Record> {
    let mut records: Vec<Option<Record>> = records.into_iter().map(Some).collect();
    rows.iter().filter_map(|row| records.get_mut(*row as usize)?.take()).collect()
}

/// Directory of stored runs without `--dir`.
pub const DEFAULT_DIR: &str = "runs";

/// Option that names a directory of runs; empty for the default.
pub fn dir_option(dir: &Path) -> Vec<String> {
    match dir == Path::new(DEFAULT_DIR) {
        true => Vec::new(),
        false => vec!["--dir".into(), dir.display().to_string()],
    }
}

/// Stores that may hold the selected runs.
#[derive(Clone, Debug)]
pub struct Stores(pub Vec<Store>);

impl Stores {
    /// Opens the stores of the named runs (see [`super::RunSelection::named`]), with `dir` last.
    pub fn named(named: &[String], dir: &Path) -> Self {
        let dirs = named.iter().map(Path::new).filter(|path| path.is_dir());
        Self(dirs.chain([dir]).map(Store::open).collect())
    }

    pub fn has_trace(&self, record: &Record) -> bool {
        let stored = |store: &Store| store.trace_path(record).is_some();
        record.spec.backend.is_simulated() || self.0.iter().any(stored)
    }

    /// Trace of a run; see [`super::open()`] for `upto`.
    pub fn trace(&self, record: &Record, upto: Option<u32>) -> Result<Trace> {
        let has = |store: &&Store| store.trace_path(record).is_some_and(|path| path.exists());
        let store = self.0.iter().find(has).or(self.0.first());
        let store = store.ok_or_else(|| Error::failed("no runs directory"))?;
        trace_of(record, store, upto).map(|(trace, _)| trace)
    }

    /// Provenance of these runs. Rows of a batch share their environment, so only one row's is read.
    pub fn provenance(&self, records: &[Record]) -> ProvenanceSummary {
        ProvenanceSummary::of_records(records).with_commits_of(&self.environments(records))
    }

    /// Adds the environment, which listed rows of batches lack, from the store of each record. A row that no store
    /// contains stays as it is.
    pub fn complete(&self, mut records: Vec<Record>) -> Result<Vec<Record>> {
        for store in &self.0 {
            let mut more = Vec::with_capacity(records.len());
            store.complete(records, |record| {
                more.push(record);
                Ok(())
            })?;
            records = more;
        }
        Ok(records)
    }

    /// First record of each batch, with the environment that listed rows lack.
    pub fn environments(&self, records: &[Record]) -> Vec<Record> {
        let mut seen = BTreeSet::new();
        let firsts = records.iter().filter(|record| record.environment.is_empty()).filter(|record| {
            record.run.split_once(':').is_some_and(|(batch, _)| seen.insert(batch.to_owned()))
        });
        firsts.filter_map(|record| self.0.iter().find_map(|s| s.get(&record.run).ok())).collect()
    }
}

/// Picks the runs for an overlap figure from a set of comparable cells: standard and ladder at the largest TP,
/// preferably with P2P, at the smallest batch. Returns an input error if no cell has runs of both.
pub fn overlap_pair(set: &CellSet) -> Result<(&Record, &Record)> {
    let ladder = |cell: &Record| {
        let spec = &cell.spec;
        set.cells.iter().find(|other| {
            matches!(other.spec.architecture, Architecture::Ladder(_))
                && (other.spec.tp, other.spec.batch, other.spec.p2p) == (spec.tp, spec.batch, spec.p2p)
        })
    };
    let standard = set.cells.iter().filter(|cell| cell.spec.architecture == Architecture::Standard);
    let pairs = standard.filter_map(|cell| Some((cell, ladder(cell)?)));
    let best = pairs.max_by_key(|(cell, _)| {
        (cell.spec.tp, cell.spec.p2p == P2p::On, std::cmp::Reverse(cell.spec.batch))
    });
    best.ok_or_else(|| {
        Error::input_help(
            "no run of standard and of ladder in the same cell",
            "name two runs or traces, the upper one first",
        )
    })
}
