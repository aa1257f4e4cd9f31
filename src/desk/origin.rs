//! Provenance and traces of runs from several stores.

use std::collections::BTreeSet;
use std::path::Path;

use super::open::trace_of;
use base::error::{Error, Result};
use lab::store::Store;
use plan::Architecture;
use study::analysis::CellSet;
use study::plot::ProvenanceSummary;
use table::{P2p, Record};
use trace::Trace;

#[derive(Clone, Debug)]
pub struct Stores(pub Vec<Store>);

impl Stores {
    /// Opens the stores of the named runs (see [`super::Selection::named`]), with `dir` last.
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
