//! What a RUN or TRACE on the command line stands for: a stored run, or a trace file.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::backend::{self, Job};
use crate::error::{Error, Result};
use crate::spec::Backend;
use crate::store::{Record, Status, Store};
use crate::trace::{self, Trace};

/// What was named.
#[derive(Debug)]
pub enum Source {
    /// A stored run.
    Stored(Box<Record>),
    /// A trace file.
    File(PathBuf),
}

impl Source {
    /// A trace file if there is a file of that name, else a stored run by id, prefix or `last`.
    pub fn find(given: &str, store: &Store) -> Result<Self> {
        let path = Path::new(given);
        if path.is_file() {
            return Ok(Self::File(path.to_path_buf()));
        }
        if given.contains(std::path::MAIN_SEPARATOR) || path.extension().is_some() {
            return Err(Error::input_help(
                format!("{given}: no such file"),
                "name a trace file, or a stored run by its id, a prefix of it, or 'last' (see `ladderscope runs`)",
            ));
        }
        store.get(given).map(|record| Self::Stored(Box::new(record)))
    }

    /// Its trace: read where there is a file; a simulated run, which keeps none, is simulated again.
    pub fn trace(&self, store: &Store) -> Result<Trace> {
        match self {
            Self::File(path) => read(path),
            Self::Stored(record) => of_record(record, store),
        }
    }
}

/// The trace of a stored run.
pub fn of_record(record: &Record, store: &Store) -> Result<Trace> {
    if let Some(path) = store.trace_path(record) {
        return read(&path);
    }
    match (record.status, record.spec.backend) {
        (Status::Ok, Backend::Sim) => {
            let job = Job { spec: record.spec.clone(), record: true };
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

fn read(path: &Path) -> Result<Trace> {
    let mut head = [0; 16];
    let got = std::fs::File::open(path).and_then(|mut f| f.read(&mut head)).map_err(Error::io(path))?;
    let head = &head[..got];
    let foreign = if head.starts_with(b"SQLite format 3") {
        Some("an SQLite file (Nsight Systems?)")
    } else if head.trim_ascii_start().starts_with(b"{") || head.trim_ascii_start().starts_with(b"[") {
        Some("JSON (PyTorch profiler?)")
    } else {
        None
    };
    match foreign {
        Some(what) => Err(Error::input_help(
            format!("{}: this is {what}, and importing traces is not in this version", path.display()),
            "give a trace that ladderscope recorded (a Parquet file)",
        )),
        None => trace::read(path),
    }
}
