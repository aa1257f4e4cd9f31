//! Writing a batch: parts while it grows, one file when it is done.
//!
//! A part is written whole at the latest every few seconds, so that kill -9 loses no more than that, and
//! memory holds no more than one part. In the end the parts become one file whose bytes depend on the
//! rows alone, not on when parts were written.

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

/// The longest time for which finished rows exist in memory alone.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// A batch that is written, row by row.
#[derive(Debug)]
pub struct BatchWriter {
    /// The directory in which batches lie.
    dir: PathBuf,
    id: String,
    created: String,
    pending: Vec<(u32, Record)>,
    parts: Option<Parts>,
    last_write: Instant,
}

/// The directory of parts, locked.
#[derive(Debug)]
struct Parts {
    dir: PathBuf,
    count: usize,
    /// Whoever can lock it may take the parts: the system unlocks it when this process dies.
    _lock: File,
}

impl BatchWriter {
    pub(in crate::store) fn new(dir: PathBuf, id: String, created: String) -> Self {
        Self { dir, id, created, pending: Vec::new(), parts: None, last_write: Instant::now() }
    }

    /// The id under which the batch is stored; rows are `ID:ROW`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Appends a row; numbers must grow. Gives the record its id and time. Tells whether this row and all
    /// before it are on disk; they are within a second or so.
    ///
    /// # Errors
    ///
    /// A failure where a part cannot be written; the rows before it stay stored.
    pub fn push(&mut self, row: u32, record: &mut Record) -> Result<bool> {
        record.run = format!("{}:{row}", self.id);
        // one time a batch: rows are in order by their number
        record.created.clone_from(&self.created);
        self.pending.push((row, without_steps(record)));
        if self.pending.len() >= ROWS || self.last_write.elapsed() >= WRITE_EVERY {
            self.write_part()?;
        }
        Ok(self.pending.is_empty())
    }

    /// Makes it one file. A batch without rows leaves none.
    ///
    /// # Errors
    ///
    /// A failure where the file cannot be written; the parts stay, and are read.
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

    /// Puts what is in memory on disk.
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
    /// The directory appears locked, so that nobody takes it for abandoned.
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

/// The record without what simulating it again would give.
fn without_steps(record: &Record) -> Record {
    let mut record = record.clone();
    if record.provenance == Provenance::Simulated {
        record.samples.iter_mut().for_each(|sample| sample.steps_ms = Vec::new());
    }
    record
}

/// Makes one file of each batch whose writer is gone. A batch that cannot be is left as it is: its
/// readers say what is wrong with it. A directory without a writer's lock file is somebody else's.
pub(in crate::store) fn seal_abandoned(dir: &Path) {
    for entry in regular::entries(dir).unwrap_or_default() {
        let Some(id) = entry.name.strip_suffix(PARTS).filter(|id| entry.is_dir && is_id(id)) else {
            continue;
        };
        let path = dir.join(&entry.name);
        let Ok(lock) = regular::open(&path.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            // not fatal: the parts are still there, and are read as they are
            let _ = make_one(&path, &dir.join(format!("{id}.parquet")));
        }
    }
}

/// Makes one file of parts, and removes them; unless it was made before and only removing is left. Parts beside which
/// somebody keeps other files stay.
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

/// The rows of several files in frames of [`ROWS`] rows, whatever the files' were.
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
            // or the rows that are gone would be kept
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

/// The columns of a batch, those of measures with their units.
fn schema(frame: &DataFrame) -> ArrowSchema {
    let mut schema = parquet::file_schema(frame.schema());
    for measure in MEASURES {
        if let Some(field) = schema.get_mut(measure.name) {
            *field = parquet::with_unit(std::mem::take(field), measure.unit.in_files());
        }
    }
    schema
}

/// Writes frames as row groups of one file, whole or not at all.
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
