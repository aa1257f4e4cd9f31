//! Immutable snapshot of the runs directory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use lab::store::Annotations;
use study::analysis::RunTable;
use table::{Record, Status};

/// Contents of the runs directory at one moment; shared by all screens.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All stored runs, oldest first.
    pub records: Arc<Vec<Record>>,
    pub table: RunTable,
    pub annotations: Arc<Annotations>,
    /// Unreadable files, with the reason.
    pub damaged: Vec<String>,
    /// Number of running runs; cached because every frame needs it.
    pub running: usize,
    /// Stored results by cell key ([`table::Spec::key`]).
    pub known: HashMap<String, Known>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    pub rounds: BTreeSet<u32>,
    /// Completion latency of the newest run (ms).
    pub completion_ms: f64,
    /// Record indices of its runs.
    pub runs: Vec<usize>,
}

impl Snapshot {
    pub fn new(records: Vec<Record>, damaged: Vec<String>) -> Self {
        Self::annotated(records, damaged, Arc::default())
    }

    pub fn annotated(records: Vec<Record>, damaged: Vec<String>, annotations: Arc<Annotations>) -> Self {
        let key = |record: &Record| record.metrics.is_some().then(|| record.spec.key());
        let keys: Vec<Option<String>> = records.par_iter().map(key).collect();
        let mut known: HashMap<String, Known> = HashMap::new();
        for (place, (record, key)) in records.iter().zip(keys).enumerate() {
            if let (Some(metrics), Some(key)) = (&record.metrics, key) {
                let cell = known.entry(key).or_default();
                cell.rounds.insert(record.round);
                cell.completion_ms = metrics.completion_ms;
                cell.runs.push(place);
            }
        }
        let table = RunTable::new(&records, &annotations);
        let running = records.iter().filter(|record| record.status == Status::Running).count();
        Self { records: Arc::new(records), table, annotations, damaged, running, known }
    }

    pub fn with(&self, annotations: Arc<Annotations>) -> Self {
        let table = self.table.annotated(&self.records, &annotations);
        Self { table, annotations, ..self.clone() }
    }

    /// Appends the runs that are not present yet.
    pub fn and(&self, records: Vec<Record>) -> Self {
        let there: HashSet<&str> = self.records.iter().map(|r| r.run.as_str()).collect();
        let new = records.into_iter().filter(|r| !there.contains(r.run.as_str()));
        let all = self.records.iter().cloned().chain(new).collect();
        Self::annotated(all, self.damaged.clone(), self.annotations.clone())
    }

    /// True if both snapshots share the same runs; tags and notes may differ.
    pub fn has_runs_of(&self, other: Option<&Arc<Self>>) -> bool {
        other.is_some_and(|other| Arc::ptr_eq(&self.records, &other.records))
    }

    pub fn has_quality(&self) -> bool {
        self.records.iter().any(|record| record.quality.is_some())
    }

    pub fn find(&self, run: &str) -> Option<&Record> {
        self.records.iter().rev().find(|r| r.run == run)
    }
}
