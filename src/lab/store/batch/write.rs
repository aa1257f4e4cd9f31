//! Writes a batch: parts while it grows, one file at the end.
//!
//! A part is written at least every second or so, so that kill -9 loses at most that much and memory holds at most
//! one part. At the end the parts become one file whose bytes depend only on the rows, not on when parts were
//! written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polars_core::prelude::{ArrowSchema, DataFrame, PolarsError};
use polars_parquet::write::WriteOptions;

use super::{LOCK, PARTS, ROWS, SEAL_KEY, VERSION, VERSION_KEY, is_part, parts, read, seal};
use crate::store::id::is_id;
use base::atomic::{self, AtomicFile, UnfinishedDir};
use base::error::{Error, Result};
use base::parquet::{self, FrameWriter};
use base::regular;
use table::frame::frame;
use table::{MEASURES, Provenance, Record};

/// Maximum time that finished rows stay in memory only.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Batch that is being written, row by row.
#[derive(Debug)]
pub struct BatchWriter {
    dir: PathBuf,
    id: String,
    created: String,
    pending: Vec<(u32, Record)>,
    parts: Option<Parts>,
    last_write: Instant,
}

/// Locked directory of the batch's parts.
#[derive(Debug)]
struct Parts {
    dir: PathBuf,
    count: usize,
    /// Released by the system when this process dies. Another process that gets the lock may take over the parts.
    _lock: File,
}

impl BatchWriter {
    pub(in crate::store) fn new(dir: PathBuf, id: String, created: String) -> Self {
        Self { dir, id, created, pending: Vec::new(), parts: None, last_write: Instant::now() }
    }

    /// Id under which the batch is stored; rows are `ID:ROW`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Appends a row and sets the record's id and time. Row numbers must increase. Returns true if all rows so far
    /// are on disk; otherwise they are within about a second.
    ///
    /// # Errors
    ///
    /// Returns a failure if a part cannot be written. Earlier rows stay stored.
    pub fn push(&mut self, row: u32, record: &mut Record) -> Result<bool> {
        record.run = format!("{}:{row}", self.id);
        // all rows have the same time; their order is that of their numbers
        record.created.clone_from(&self.created);
        self.pending.push((row, without_steps(record)));
        if self.pending.len() >= ROWS || self.last_write.elapsed() >= WRITE_EVERY {
            self.write_part()?;
        }
        Ok(self.pending.is_empty())
    }

    /// Merges the parts into one file. A batch without rows leaves no file.
    ///
    /// # Errors
    ///
    /// Returns a failure if the file cannot be written. The parts stay readable.
    pub fn finish(mut self) -> Result<()> {
        regular::folder(&self.dir).map_err(Error::io(&self.dir))?;
        let path = self.dir.join(format!("{}.parquet", self.id));
        if self.parts.is_none() {
            let frames = self.pending.chunks(ROWS).map(frame);
            return if self.pending.is_empty() { Ok(()) } else { write(&path, frames) };
        }
        if !self.pending.is_empty() {
            self.write_part()?;
        }
        match self.parts.take() {
            Some(parts) => make_one(&parts.dir, &path),
            None => Ok(()),
        }
    }

    pub(in crate::store) fn write_part(&mut self) -> Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => none.insert(Parts::new(&self.dir, &self.id)?),
        };
        let path = parts.dir.join(format!("{:06}.parquet", parts.count));
        write(&path, std::iter::once(frame(&self.pending)))?;
        parts.count += 1;
        self.pending.clear();
        self.last_write = Instant::now();
        Ok(())
    }
}

impl Parts {
    /// Creates the directory with its lock already held, so that no other process takes it for abandoned.
    fn new(dir: &Path, id: &str) -> Result<Self> {
        regular::make_folder(dir).map_err(Error::io(dir))?;
        let parts = dir.join(format!("{id}{PARTS}"));
        let unfinished = UnfinishedDir::create(&parts)?;
        let path = unfinished.path().join(LOCK);
        let lock = regular::open_or_make(&path).map_err(Error::io(&path))?;
        lock.lock().map_err(Error::io(&path))?;
        unfinished.finish().map_err(Error::io(&parts))?;
        Ok(Self { dir: parts, count: 0, _lock: lock })
    }
}

/// Copy of the record without step latencies, which simulating it again reproduces.
fn without_steps(record: &Record) -> Record {
    let mut record = record.clone();
    if record.provenance == Provenance::Simulated {
        record.samples.iter_mut().for_each(|sample| sample.steps_ms = Vec::new());
    }
    record
}

/// Merges each batch whose writer is gone into one file. A batch that fails stays as it is, and reading it reports
/// the error. Directories without a lock file are ignored: they belong to another program.
pub(in crate::store) fn seal_abandoned(dir: &Path) {
    for entry in regular::entries(dir).unwrap_or_default() {
        let Some(id) = entry.name.strip_suffix(PARTS).filter(|id| entry.is_dir && is_id(id)) else {
            continue;
        };
        let path = dir.join(&entry.name);
        let Ok(lock) = regular::open(&path.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            // not fatal: the parts stay readable
            let _ = make_one(&path, &dir.join(format!("{id}.parquet")));
        }
    }
}

/// Merges parts into one file, unless it exists already, and removes them. Keeps the directory if it contains other
/// files.
fn make_one(dir: &Path, path: &Path) -> Result<()> {
    if !path.exists() {
        let files = parts(dir);
        if !files.is_empty() {
            write(path, Regrouped::new(files))?;
        }
    }
    let entries = regular::entries(dir).map_err(Error::io(dir))?;
    match entries.iter().all(|entry| entry.name == LOCK || is_part(&entry.name)) {
        true => atomic::remove_dir(dir),
        false => Ok(()),
    }
}

/// Iterator over the rows of several files in frames of [`ROWS`] rows.
struct Regrouped {
    files: std::vec::IntoIter<PathBuf>,
    rest: Option<DataFrame>,
}

impl Regrouped {
    fn new(files: Vec<PathBuf>) -> Self {
        Self { files: files.into_iter(), rest: None }
    }

    fn next_frame(&mut self) -> Result<Option<DataFrame>> {
        while self.rest.as_ref().is_none_or(|rest| rest.height() < ROWS) {
            let Some(file) = self.files.next() else { break };
            let more = read::everything(&file)
                .map_err(|why| Error::failed(format!("{}: {why}", file.display())))?;
            match &mut self.rest {
                None => self.rest = Some(more),
                Some(rest) => {
                    rest.vstack_mut(&more).map_err(failed(&file))?;
                }
            }
        }
        let Some(rest) = self.rest.take().filter(|rest| rest.height() > 0) else { return Ok(None) };
        let mut frame = rest.slice(0, ROWS);
        frame.rechunk_mut();
        if rest.height() > ROWS {
            let mut later = rest.slice(ROWS as i64, rest.height() - ROWS);
            // copies the rest, so that the rows already returned are freed
            later.rechunk_mut();
            self.rest = Some(later);
        }
        Ok(Some(frame))
    }
}

impl Iterator for Regrouped {
    type Item = Result<DataFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_frame().transpose()
    }
}

/// Schema of a batch. Columns of measures carry their units.
fn schema(frame: &DataFrame) -> ArrowSchema {
    let mut schema = parquet::file_schema(frame.schema());
    for measure in MEASURES {
        if let Some(field) = schema.get_mut(measure.name) {
            *field = parquet::with_unit(std::mem::take(field), measure.unit.in_files());
        }
    }
    schema
}

/// Writes frames as row groups of one file, atomically.
fn write(path: &Path, frames: impl Iterator<Item = Result<DataFrame>>) -> Result<()> {
    let mut file = AtomicFile::create_all(path)?;
    let mut writer = None;
    for frame in frames {
        let frame = frame?;
        if writer.is_none() {
            let compression = parquet::zstd(1).map_err(failed(path))?;
            let options = WriteOptions { compression, ..parquet::plain() };
            let sink = file.file_mut().try_clone().map_err(Error::io(path))?;
            writer = Some(FrameWriter::new(sink, schema(&frame), options).map_err(failed(path))?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&frame).map_err(failed(path))?;
        }
    }
    let without_rows = || Error::failed(format!("{}: a batch without rows", path.display()));
    let footer = vec![(VERSION_KEY.into(), VERSION.to_string()), (SEAL_KEY.into(), seal::unsealed())];
    writer.ok_or_else(without_rows)?.finish(footer).map_err(failed(path))?;
    seal::seal(file.file_mut(), path)?;
    file.finish()
}

fn failed(path: &Path) -> impl Fn(PolarsError) -> Error + '_ {
    move |e| Error::failed(format!("{}: {e}", path.display()))
}
