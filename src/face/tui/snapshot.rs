//! The runs directory at one moment, as all screens share it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use lab::store::Annotations;
use study::analysis::RunTable;
use table::{Record, Status};

/// The runs directory at one moment; immutable, shared by all screens.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The records of all stored runs, oldest first.
    pub records: Arc<Vec<Record>>,
    /// The same as a table, with tags and notes.
    pub table: RunTable,
    /// Tags and notes that people gave the runs.
    pub annotations: Arc<Annotations>,
    /// Files that could not be read, and why.
    pub damaged: Vec<String>,
    /// How many of the runs are under way: a frame asks, and may not look at all of them.
    pub running: usize,
    /// What is known of each cell (by [`table::Spec::key`]).
    pub known: HashMap<String, Known>,
}

/// What stored runs say about a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Rounds that are stored.
    pub rounds: BTreeSet<u32>,
    /// Completion latency of the newest run (ms).
    pub completion_ms: f64,
    /// The places of its runs among the records.
    pub runs: Vec<usize>,
}

impl Snapshot {
    /// A snapshot of these runs, to which nobody has added anything.
    pub fn new(records: Vec<Record>, damaged: Vec<String>) -> Self {
        Self::annotated(records, damaged, Arc::default())
    }

    /// A snapshot of these runs with their tags and notes.
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

    /// The same runs with other tags and notes.
    pub fn with(&self, annotations: Arc<Annotations>) -> Self {
        let table = self.table.annotated(&self.records, &annotations);
        Self { table, annotations, ..self.clone() }
    }

    /// These runs, and behind them those that are not among them.
    pub fn and(&self, records: Vec<Record>) -> Self {
        let there: HashSet<&str> = self.records.iter().map(|r| r.run.as_str()).collect();
        let new = records.into_iter().filter(|r| !there.contains(r.run.as_str()));
        let all = self.records.iter().cloned().chain(new).collect();
        Self::annotated(all, self.damaged.clone(), self.annotations.clone())
    }

    /// Whether the runs are those of another snapshot; their tags and notes may be others.
    pub fn has_runs_of(&self, other: Option<&Arc<Self>>) -> bool {
        other.is_some_and(|other| Arc::ptr_eq(&self.records, &other.records))
    }

    /// Whether the model of some run was evaluated on a text.
    pub fn has_quality(&self) -> bool {
        self.records.iter().any(|record| record.quality.is_some())
    }

    /// A run by its id.
    pub fn find(&self, run: &str) -> Option<&Record> {
        self.records.iter().rev().find(|r| r.run == run)
    }
}
