//! Batches in the store: lists, summaries, and access to single rows.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::annotations::{Annotations, row_of};
use super::batch::{self, BatchSummary, BatchWriter, PARTS, ROWS};
use super::directory::{Listing, Store, file_name, names};
use super::id;
use base::error::{Error, Result};
use base::regular;
use table::Record;

impl Store {
    /// Starts a batch. Nothing is written before its first rows.
    pub fn new_batch(&self) -> BatchWriter {
        let now = self.ids.now();
        BatchWriter::new(self.batches_dir(), self.ids.id(now, "sim"), id::rfc3339(now))
    }

    /// Stores simulated runs as one batch and sets each record's id to `BATCH:ROW`. Fails if the file cannot be
    /// written.
    pub fn write_batch(&self, records: &mut [Record]) -> Result<()> {
        let mut batch = self.new_batch();
        for (row, record) in (0..).zip(records) {
            batch.push(row, record)?;
        }
        batch.finish()
    }

    /// Merges each batch whose writer died into one file. Writers call this first.
    pub fn seal_abandoned_batches(&self) {
        batch::seal_abandoned(&self.batches_dir());
    }

    /// Rows of the batch with this id, or with this prefix if no run shares it, without their environment. `None` if
    /// no single batch matches. Fails if the directory cannot be read.
    pub fn batch(&self, name: &str) -> Result<Option<Listing>> {
        let ids = self.batch_ids()?;
        let exact = ids.iter().find(|id| *id == name);
        let mut meant = ids.iter().filter(|id| !name.is_empty() && id.starts_with(name));
        let id = match (exact, meant.next(), meant.next()) {
            (Some(id), ..) => id,
            (None, Some(id), None) if !self.run_ids()?.iter().any(|run| run.starts_with(name)) => id,
            _ => return Ok(None),
        };
        let mut listing = self.read_batch(id);
        self.rate(&mut listing.records);
        Ok(Some(listing))
    }

    /// Summaries of all batches, oldest first, and the errors of damaged batches.
    ///
    /// # Errors
    ///
    /// Returns a failure if the directory cannot be read. Damaged batches are reported in the second list instead.
    pub fn batches(&self) -> Result<(Vec<BatchSummary>, Vec<String>)> {
        let ids = self.batch_ids()?;
        let read: Vec<Result<BatchSummary, String>> =
            ids.par_iter().map(|id| self.summary(id)).collect();
        let (mut batches, mut damaged) = (Vec::new(), Vec::new());
        for summary in read {
            match summary {
                // all rows are deleted, or none is written yet
                Ok(summary) if summary.runs == 0 => {}
                Ok(summary) => batches.push(summary),
                Err(why) => damaged.push(why),
            }
        }
        batches.sort_by(|a: &BatchSummary, b| (&a.created, &a.batch).cmp(&(&b.created, &b.batch)));
        Ok((batches, damaged))
    }

    fn summary(&self, id: &str) -> Result<BatchSummary, String> {
        let mut all = BatchSummary { batch: id.to_owned(), ..BatchSummary::default() };
        let annotations = self.annotations();
        let deleted = annotations.deleted(id);
        for file in self.batch_files(id) {
            let part =
                batch::summary(&file, deleted).map_err(|why| format!("{}: {why}", file.display()))?;
            all.runs += part.runs;
            all.ok += part.ok;
            all.experiment = all.experiment.or(part.experiment);
            if all.created.is_empty() {
                all.created = part.created;
            }
            all.unfinished = file.parent() != Some(&self.batches_dir());
        }
        Ok(all)
    }

    /// Adds the environment to records that are rows of batches and passes each record to `on_record`, in the given
    /// order. Fast if consecutive records are neighbouring rows. Stops at the first error of `on_record`.
    pub fn complete(
        &self,
        records: Vec<Record>,
        mut on_record: impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let mut reader = RowReader::new(self);
        for record in records {
            let whole = record
                .run
                .split_once(':')
                .and_then(|(batch, row)| reader.get(batch, row.parse().ok()?).ok()?);
            on_record(match whole {
                Some(whole) => Record { environment: whole.environment, ..record },
                None => record,
            })?;
        }
        Ok(())
    }

    pub(super) fn batch_ids(&self) -> Result<Vec<String>> {
        let dir = self.batches_dir();
        regular::folder(&dir).map_err(Error::io(&dir))?;
        let mut ids = names(&dir, |entry| {
            let name = file_name(entry)?;
            name.strip_suffix(".parquet").or(name.strip_suffix(PARTS)).map(str::to_owned)
        })?;
        // if the process died between merging and removing the parts, both exist
        ids.sort_unstable();
        ids.dedup();
        // drops batches without a finished part
        ids.retain(|id| !self.batch_files(id).is_empty());
        Ok(ids)
    }

    /// Row numbers of a batch, without the deleted ones.
    pub(super) fn batch_rows(&self, id: &str) -> Result<Vec<u32>> {
        let annotations = self.annotations();
        self.rows_among(id, |row| !annotations.is_deleted(id, row))
    }

    /// Row numbers of a batch that satisfy `keep`, deleted or not; empty if there is no such batch.
    pub(super) fn rows_among(&self, id: &str, keep: impl Fn(u32) -> bool) -> Result<Vec<u32>> {
        let mut rows = Vec::new();
        for file in self.batch_files(id) {
            rows.extend(batch::rows_of(&file).map_err(|why| unreadable(id, &file, &why))?);
        }
        rows.retain(|row| keep(*row));
        Ok(rows)
    }

    pub(super) fn newest_batch(&self) -> Result<Option<(String, String)>> {
        let batches = self.batches()?.0;
        let newest = batches.into_iter().next_back();
        Ok(newest.map(|batch| (batch.batch, batch.created)))
    }

    pub(super) fn row(&self, id: &str, row: u32) -> Result<Record> {
        if let Some(record) = RowReader::new(self).get(id, row)? {
            return Ok(record);
        }
        if self.annotations().is_deleted(id, row) {
            return Err(super::lookup::deleted(&format!("{id}:{row}")));
        }
        let rows = self.batch_rows(id)?.len();
        Err(Error::input(format!("batch '{id}' has {rows} runs and no row {row}")))
    }

    /// Rows of a batch without their environment.
    pub(super) fn read_batch(&self, id: &str) -> Listing {
        let mut all = Listing::default();
        for path in self.batch_files(id) {
            let loaded = self.cached(&path, |_| {
                let (records, damaged) = batch::records(&path, id);
                let damaged = damaged.iter().map(|why| format!("{}: {why}", path.display())).collect();
                Listing { records, damaged }
            });
            // listings too large for the cache have a single owner and are moved, not copied
            let listing = loaded.map(Arc::unwrap_or_clone).unwrap_or_default();
            if all.records.is_empty() {
                all.records = listing.records;
            } else {
                all.records.extend(listing.records);
            }
            all.damaged.extend(listing.damaged);
        }
        let annotations = self.annotations();
        if annotations.deleted(id).is_some() {
            all.records
                .retain(|r| row_of(&r.run).is_none_or(|(_, row)| !annotations.is_deleted(id, row)));
        }
        all
    }

    pub(super) fn batch_files(&self, id: &str) -> Vec<PathBuf> {
        batch::files(&self.batches_dir(), id)
    }

    fn batches_dir(&self) -> PathBuf {
        self.dir().join("batches")
    }
}

fn unreadable(id: &str, file: &std::path::Path, why: &str) -> Error {
    Error::failed(format!("run '{id}' cannot be read: {}: {why}", file.display()))
}

/// Reader for single rows. Keeps a row group in memory, which makes nearby rows fast.
pub(super) struct RowReader<'a> {
    store: &'a Store,
    annotations: Arc<Annotations>,
    /// Files of each batch with their row numbers.
    files: HashMap<String, Vec<(PathBuf, Vec<u32>)>>,
    window: Option<Window>,
}

struct Window {
    file: PathBuf,
    begin: usize,
    rows: Vec<Result<Record, String>>,
}

impl<'a> RowReader<'a> {
    pub fn new(store: &'a Store) -> Self {
        Self { store, annotations: store.annotations(), files: HashMap::new(), window: None }
    }

    /// Whole record of a row; `None` if there is no such row.
    pub fn get(&mut self, batch: &str, row: u32) -> Result<Option<Record>> {
        if self.annotations.is_deleted(batch, row) {
            return Ok(None);
        }
        if !self.files.contains_key(batch) {
            let files = self.store.batch_files(batch).into_iter();
            let numbered = files
                .map(|file| match batch::rows_of(&file) {
                    Ok(rows) => Ok((file, rows)),
                    Err(why) => Err(unreadable(&format!("{batch}:{row}"), &file, &why)),
                })
                .collect::<Result<Vec<_>>>()?;
            self.files.insert(batch.to_owned(), numbered);
        }
        let files = self.files.get(batch).map(Vec::as_slice).unwrap_or_default();
        let place = files.iter().find_map(|(file, rows)| Some((file, rows.binary_search(&row).ok()?)));
        let Some((file, at)) = place else { return Ok(None) };
        let failed = |why: &str| unreadable(&format!("{batch}:{row}"), file, why);
        let held = self.window.as_ref().is_some_and(|window| {
            window.file == *file && (window.begin..window.begin + window.rows.len()).contains(&at)
        });
        if !held {
            // reads only one row at first, since it may be the only one, and whole row groups after that
            let (begin, length) = if self.window.is_some() { (at - at % ROWS, ROWS) } else { (at, 1) };
            let rows = batch::whole(file, batch, begin..begin + length).map_err(|why| failed(&why))?;
            self.window = Some(Window { file: file.clone(), begin, rows });
        }
        let row = self.window.as_ref().and_then(|window| window.rows.get(at - window.begin));
        match row {
            Some(Ok(record)) => Ok(Some(record.clone())),
            Some(Err(why)) => Err(failed(why)),
            None => Ok(None),
        }
    }
}
