//! What a RUN or TRACE on the command line stands for: a stored run, a trace file, or a directory of them.

use std::path::{Path, PathBuf};

use crate::backend::{self, Job};
use crate::error::{Error, Result};
use crate::spec::Backend;
use crate::store::{Record, Status, Store};
use crate::trace::rules::{RuleReport, Rules};
use crate::trace::{Trace, import};

/// What was named.
#[derive(Debug)]
pub enum Source {
    /// A stored run.
    Stored(Box<Record>),
    /// A trace file, or a directory of them, a file a rank.
    File(PathBuf),
}

impl Source {
    /// A trace file if there is a file of that name, else a stored run by id, prefix or `last`.
    pub fn find(given: &str, store: &Store) -> Result<Self> {
        let path = Path::new(given);
        if path.is_file() {
            return Ok(Self::File(path.to_path_buf()));
        }
        if path.is_dir() {
            // A run's id may be the name of a directory; whoever writes a separator means the directory.
            let run =
                if given.contains(std::path::MAIN_SEPARATOR) { None } else { store.get(given).ok() };
            return Ok(
                run.map_or(Self::File(path.to_path_buf()), |record| Self::Stored(Box::new(record)))
            );
        }
        if given.contains(std::path::MAIN_SEPARATOR) || path.extension().is_some() {
            return Err(Error::input_help(
                format!("{given}: no such file"),
                "name a trace file, a directory of them, or a stored run by its id, a prefix of it, or 'last' (see `ladderscope runs`)",
            ));
        }
        store.get(given).map(|record| Self::Stored(Box::new(record)))
    }

    /// Its trace and what the rules did to it: opened where there is a file; a simulated run, which keeps
    /// none, is simulated again.
    pub fn trace(&self, store: &Store, rules: &Rules) -> Result<(Trace, RuleReport)> {
        match self {
            Self::File(path) => import::open_with(path, rules),
            Self::Stored(record) => Ok((of_record(record, store)?, RuleReport::default())),
        }
    }
}

/// The trace of a stored run.
pub fn of_record(record: &Record, store: &Store) -> Result<Trace> {
    if let Some(path) = store.trace_path(record) {
        return import::open(&path);
    }
    match (record.status, record.spec.backend) {
        (Status::Ok, Backend::Sim) => {
            let job = Job::of(record.spec.clone(), true, false);
            let (_, trace) = backend::run(&job, &mut |_| {})?;
            let mut trace = trace.ok_or_else(|| {
                Error::failed(format!("simulating {} again gave no trace", record.run))
            })?;
            trace.meta.run = Some(record.run.clone());
            Ok(trace)
        }
        (Status::Ok, _) => Err(Error::input(match &record.trace {
            Some(file) => {
                format!("the trace of run {} is gone: {}", record.run, store.dir().join(file).display())
            }
            None => format!("run {} was not recorded: it has no trace", record.run),
        })),
        (status, _) => Err(Error::input(format!(
            "run {} is {}: it has no trace{}",
            record.run,
            status.as_str(),
            record.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
        ))),
    }
}
