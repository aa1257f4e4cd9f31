//! Runs on disk: atomic, indexed, versioned.

mod record;

use std::path::{Path, PathBuf};

pub use record::{Environment, Metrics, Overlap, Percentiles, Record, SCHEMA, Sample, Status};

use crate::error::Result;
use crate::spec::Spec;

/// A runs directory.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens the directory; creates nothing until something is stored.
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The runs directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All stored runs, oldest first, batches' rows included (as `BATCH:ROW` ids). Runs that were
    /// started and never finished are listed as interrupted. Damaged records are reported, not fatal.
    pub fn list(&self) -> Result<Listing> {
        todo!()
    }

    /// One run by id, by unique prefix of an id, or `last`.
    pub fn get(&self, id: &str) -> Result<Record> {
        let _ = id;
        todo!()
    }

    /// Makes a run's directory with its spec, so that it is known even if everything dies now.
    /// `experiment` and `round` go into the record of an interrupted run.
    pub fn begin(&self, spec: &Spec, experiment: Option<&str>, round: u32) -> Result<RunDir> {
        let _ = (spec, experiment, round);
        todo!()
    }

    /// Stores a finished (or failed) run: record.json atomically, then the index.
    pub fn finish(&self, record: &Record) -> Result<()> {
        let _ = record;
        todo!()
    }

    /// Stores simulated runs as one Parquet batch; sets each record's id to `BATCH:ROW`.
    pub fn write_batch(&self, records: &mut [Record]) -> Result<()> {
        let _ = records;
        todo!()
    }

    /// Finished runs by (spec key, round): what `sweep` need not run again.
    pub fn finished(&self) -> Result<std::collections::HashMap<(String, u32), Record>> {
        todo!()
    }

    /// The trace file of a record, if it has one and it is there.
    pub fn trace_path(&self, record: &Record) -> Option<PathBuf> {
        record.trace.as_ref().map(|t| self.dir.join(t)).filter(|p| p.exists())
    }
}

/// What a runs directory holds.
#[derive(Debug, Default)]
pub struct Listing {
    /// The runs, oldest first.
    pub records: Vec<Record>,
    /// Files that could not be read, and why.
    pub damaged: Vec<String>,
}

/// A run that has begun.
#[derive(Clone, Debug)]
pub struct RunDir {
    /// Its id.
    pub id: String,
    /// Its directory: `runs/ID`.
    pub path: PathBuf,
}
