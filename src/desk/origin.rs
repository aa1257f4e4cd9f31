//! Where the numbers of runs come from, and their traces, in whichever of several stores has them.

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

/// The runs directories that runs were taken from.
#[derive(Clone, Debug)]
pub struct Stores(pub Vec<Store>);

impl Stores {
    /// The stores in which runs named so lie (see [`super::Selection::named`]); that of `dir` comes last.
    pub fn named(named: &[String], dir: &Path) -> Self {
        let dirs = named.iter().map(Path::new).filter(|path| path.is_dir());
        Self(dirs.chain([dir]).map(Store::open).collect())
    }

    /// Whether a run has a trace: recorded, or simulated again.
    pub fn has_trace(&self, record: &Record) -> bool {
        let stored = |store: &Store| store.trace_path(record).is_some();
        record.spec.backend.is_simulated() || self.0.iter().any(stored)
    }

    /// The trace of a run; see [`super::open()`] for `upto`.
    ///
    /// # Errors
    ///
    /// A failure where no store is named; else the errors of opening the trace, or
    /// of simulating it again.
    pub fn trace(&self, record: &Record, upto: Option<u32>) -> Result<Trace> {
        let has = |store: &&Store| store.trace_path(record).is_some_and(|path| path.exists());
        let store = self.0.iter().find(has).or(self.0.first());
        let store = store.ok_or_else(|| Error::failed("no runs directory"))?;
        trace_of(record, store, upto).map(|(trace, _)| trace)
    }

    /// Where the numbers of these runs come from. Rows of a batch share what ran them, so that one row's
    /// environment is read and not thousands.
    pub fn provenance(&self, records: &[Record]) -> ProvenanceSummary {
        ProvenanceSummary::of_records(records).with_commits_of(&self.environments(records))
    }

    /// These records with their environment, which listed rows of batches come without, each from the store that has it.
    ///
    /// # Errors
    ///
    /// None of its own: a row that no store has any more stays as it is.
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

    /// The first record of each batch with its environment, which listed rows come without.
    pub fn environments(&self, records: &[Record]) -> Vec<Record> {
        let mut seen = BTreeSet::new();
        let firsts = records.iter().filter(|record| record.environment.is_empty()).filter(|record| {
            record.run.split_once(':').is_some_and(|(batch, _)| seen.insert(batch.to_owned()))
        });
        firsts.filter_map(|record| self.0.iter().find_map(|s| s.get(&record.run).ok())).collect()
    }
}

/// Of a set of comparable cells the runs whose lanes are shown over one another: standard and ladder at
/// the largest TP, with P2P where there is a choice, at the smallest batch.
///
/// # Errors
///
/// An input error where no cell was run both as standard and as ladder.
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
