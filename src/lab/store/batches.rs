//! Batches: many simulated runs as the rows of Parquet files, the segments of a batch.
//!
//! ```text
//! batches/BATCH.parquet          first segment
//! batches/BATCH.000001.parquet   a later one
//! ```
//!
//! A writer stores its rows at least every second or so: it replaces its last segment by one with the new rows, until
//! that is long enough, so that a slow sweep leaves few files. kill -9 loses at most the rows of the last second, and
//! memory holds at most one segment. The column `record` has each row's whole record as JSON, for
//! views of one row. Every other column is one number or word of the record, for commands that scan all rows and for
//! other tools. Latencies of single steps are not stored: about 500 numbers per row, and simulating the row again
//! reproduces them exactly.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polars_core::prelude::{DataFrame, PolarsError};
use rayon::prelude::*;

use super::annotations::{Annotations, row_of};
use super::directory;
use super::directory::{CHANGED, Listing, Store, file_name, names};
use base::atomic;
use base::checksum::{Check, Checksum};
use base::error::{Error, Result};
use base::parquet::{self, ParquetFile};
use base::regular;
use table::frame::{self, NumericColumn, RECORD, TextColumn};
use table::{MEASURES, Record, Status};
use trace::memory;

pub(super) const FOLDER: &str = "batches";

/// Segments of each batch, in order.
pub(super) type Segments = BTreeMap<String, Vec<PathBuf>>;

/// Version of the format. Version 1 lacks the columns for the reason of `status`, overlap times and the rest of a
/// record without its environment. Version 2 has `tpot_ms` for `tpot_p50_ms`.
const VERSION: u32 = 3;
/// First version with a checksum in every file.
const CHECKSUM_SINCE: u32 = 3;
/// First version whose records are read from columns.
const COLUMNS_SINCE: u32 = 2;

const VERSION_KEY: &str = "ladderscope.batch.version";
const CHECKSUM_KEY: &str = "ladderscope.batch.seal";
/// Covers the whole file.
const CHECKSUM: Checksum = Checksum { mark: "ladderscope.batch.sha256:", zeroed: false };

/// Maximum rows of a segment, and rows read at a time from larger files of earlier versions.
const SEGMENT_ROWS: usize = 4096;
/// Rows above which a segment is not replaced by a longer one. Bounds the rows that are written again every second.
const ENOUGH_ROWS: usize = SEGMENT_ROWS / 4;
/// Maximum rows of a file: ten rounds of the largest grid.
const MOST_ROWS: usize = 1_000_000;
/// Maximum time that finished rows stay in memory only.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Batch that is being written, row by row.
#[derive(Debug)]
pub struct BatchWriter {
    dir: PathBuf,
    id: String,
    created: String,
    /// Rows of the last segment.
    rows: Vec<(u32, Record)>,
    /// Number of rows of the last segment that are on disk.
    stored: usize,
    /// Number of segments before the last one.
    segments: usize,
    last_write: Instant,
}

impl BatchWriter {
    /// Id under which the batch is stored; rows are `ID:ROW`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Appends a row and sets the record's id and time. Row numbers must increase. Returns true if all rows so far
    /// are on disk; otherwise they are within about a second.
    ///
    /// # Errors
    ///
    /// Returns a failure if a segment cannot be written. Earlier rows stay stored.
    pub fn push(&mut self, row: u32, record: &mut Record) -> Result<bool> {
        record.run = format!("{}:{row}", self.id);
        // all rows have the same time; their order is that of their numbers
        record.created.clone_from(&self.created);
        self.rows.push((row, record.clone().without_simulated_steps()));
        if self.rows.len() >= SEGMENT_ROWS || self.last_write.elapsed() >= WRITE_EVERY {
            self.write_segment()?;
        }
        Ok(self.stored == self.rows.len())
    }

    /// Writes the rows that are not on disk yet.
    ///
    /// # Errors
    ///
    /// Returns a failure if the segment cannot be written. Earlier rows stay stored.
    pub fn finish(mut self) -> Result<()> {
        if self.stored == self.rows.len() { Ok(()) } else { self.write_segment() }
    }

    /// Writes the last segment, in place of one with fewer rows.
    pub(super) fn write_segment(&mut self) -> Result<()> {
        regular::check_directory(&self.dir).map_err(Error::io(&self.dir))?;
        let path = self.dir.join(match self.segments {
            0 => format!("{}.parquet", self.id),
            number => format!("{}.{number:06}.parquet", self.id),
        });
        let frame = frame::frame(&self.rows)?;
        let bytes = written(&frame)
            .map_err(|e: PolarsError| Error::failed(format!("{}: {e}", path.display())))?;
        atomic::write(&path, &bytes)?;
        self.stored = self.rows.len();
        if self.stored >= ENOUGH_ROWS {
            self.segments += 1;
            self.stored = 0;
            self.rows.clear();
        }
        self.last_write = Instant::now();
        Ok(())
    }
}

fn written(frame: &DataFrame) -> Result<Vec<u8>, PolarsError> {
    let entries =
        vec![(VERSION_KEY.to_owned(), VERSION.to_string()), (CHECKSUM_KEY.to_owned(), CHECKSUM.blank())];
    let unit = |name: &str| {
        let measure = MEASURES.iter().find(|measure| measure.name == name)?;
        Some(measure.unit.in_files())
    };
    let mut bytes = Vec::new();
    let mut writer = parquet::writer(&mut bytes, frame.schema(), 1, unit, entries)?;
    writer.write_batch(frame)?;
    writer.finish()?;
    drop(writer);
    CHECKSUM.fill(&mut bytes);
    Ok(bytes)
}

/// File of a batch, intact when it was read.
struct Segment {
    version: u32,
    file: ParquetFile,
}

impl Segment {
    /// Reads a file and verifies its checksum, which early versions lack.
    fn open(path: &Path) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let mut file = regular::open(path).map_err(|e| e.to_string())?;
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        memory::check(length)?;
        file.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        if bytes.is_empty() {
            return Err("the file is empty".into());
        }
        let check = CHECKSUM.check(&bytes);
        if check == Check::Changed {
            return Err(CHANGED.into());
        }
        let file = ParquetFile::open(bytes).map_err(|e| format!("not a batch of runs: {e}"))?;
        if file.rows() > MOST_ROWS {
            return Err(format!("{} rows: a batch has at most {MOST_ROWS}", file.rows()));
        }
        memory::check(file.unpacked_bytes())?;
        let version = file.entry(VERSION_KEY).and_then(|version| version.parse().ok());
        let version =
            version.ok_or_else(|| format!("not a batch of runs: its footer has no {VERSION_KEY}"))?;
        if check == Check::Missing && version >= CHECKSUM_SINCE {
            return Err(CHANGED.into());
        }
        Ok(Self { version, file })
    }

    fn columns(&self, names: &[&str], rows: Range<usize>) -> Result<DataFrame, String> {
        self.file.columns(names, rows).map_err(|e| format!("not a batch of runs: {e}"))
    }

    fn rows(&self) -> Result<Vec<u32>, String> {
        let frame = self.columns(&["row"], 0..self.file.rows())?;
        let rows = NumericColumn::new(&frame, "row")?;
        (0..frame.height()).map(|at| rows.count(at)).collect()
    }

    /// Records without their environment, and the errors. Files of another version are read from whole records, which
    /// every version has.
    fn records(&self, batch: &str) -> (Vec<Record>, Vec<String>) {
        let is_known = (COLUMNS_SINCE..=VERSION).contains(&self.version);
        let names = frame::without_record(self.file.schema());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let read = |start: usize| -> Result<Vec<Result<Record, String>>, String> {
            let window = start..start + SEGMENT_ROWS;
            match is_known {
                true => {
                    let records = frame::records(&self.columns(&names, window)?, batch)?;
                    Ok(records.into_iter().map(Ok).collect())
                }
                false => self.whole(batch, window),
            }
        };
        let starts = (0..self.file.rows()).into_par_iter().step_by(SEGMENT_ROWS);
        let (mut records, mut damaged) = (Vec::with_capacity(self.file.rows()), Vec::new());
        for window in starts.map(read).collect::<Vec<_>>() {
            for record in window.unwrap_or_else(|why| vec![Err(why)]) {
                match record {
                    Ok(record) => records.push(Record { environment: Default::default(), ..record }),
                    Err(why) if damaged.contains(&why) => {}
                    Err(why) => damaged.push(why),
                }
            }
        }
        (records, damaged)
    }

    /// Whole records of a range of rows, each with its own error.
    fn whole(&self, batch: &str, window: Range<usize>) -> Result<Vec<Result<Record, String>>, String> {
        let newer = (self.version > VERSION)
            .then(|| format!("batch format {} is newer than this build's {VERSION}", self.version));
        let frame = self.columns(&["row", RECORD], window)?;
        let (rows, texts) = (NumericColumn::new(&frame, "row")?, TextColumn::new(&frame, RECORD)?);
        let read = |at| {
            let row = rows.count(at)?;
            let text = texts.get(at).ok_or_else(|| format!("row {row}: no record"))?;
            let mut record = table::parse(text.as_bytes()).map_err(|e| format!("row {row}: {e}"))?;
            record.run = format!("{batch}:{row}");
            record.warnings.extend(newer.clone());
            Ok(record)
        };
        Ok((0..frame.height()).map(read).collect())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BatchSummary {
    pub batch: String,
    /// Number of rows, one simulated run each.
    pub runs: usize,
    /// Number of rows that ended well.
    pub ok: usize,
    /// Experiment that created it, if any.
    pub experiment: Option<String>,
    /// Time of its first row, RFC 3339 in UTC.
    pub created: String,
}

impl BatchSummary {
    fn add(&mut self, path: &Path, annotations: &Annotations) -> Result<(), String> {
        let segment = Segment::open(path)?;
        let mut names = vec!["row", "status", "created"];
        names.extend(segment.file.schema().contains("experiment").then_some("experiment"));
        let frame = segment.columns(&names, 0..segment.file.rows())?;
        let (rows, status) = (NumericColumn::new(&frame, "row")?, TextColumn::new(&frame, "status")?);
        let (mut runs, mut ok) = (0, 0);
        for at in 0..frame.height() {
            if !annotations.is_deleted(&self.batch, rows.count(at)?) {
                runs += 1;
                ok += usize::from(status.get(at) == Some(Status::Ok.as_str()));
            }
        }
        (self.runs, self.ok) = (self.runs + runs, self.ok + ok);
        let first = |name| TextColumn::new(&frame, name).ok()?.get(0).map(str::to_owned);
        self.experiment = self.experiment.take().or_else(|| first("experiment"));
        if self.created.is_empty() {
            self.created = first("created").unwrap_or_default();
        }
        Ok(())
    }
}

impl Store {
    /// Starts a batch. Nothing is written before its first rows.
    pub(crate) fn new_batch(&self) -> BatchWriter {
        let now = self.ids.now();
        BatchWriter {
            dir: self.batches_dir(),
            id: self.ids.id(now, "sim"),
            created: directory::rfc3339(now),
            rows: Vec::new(),
            stored: 0,
            segments: 0,
            last_write: Instant::now(),
        }
    }

    /// Stores simulated runs as one batch and sets each record's id to `BATCH:ROW`. Fails if a file cannot be written.
    pub fn write_batch(&self, records: &mut [Record]) -> Result<()> {
        let mut batch = self.new_batch();
        for (row, record) in (0..).zip(records) {
            batch.push(row, record)?;
        }
        batch.finish()
    }

    /// Rows of the batch with this id, or with this prefix if no run shares it, without their environment. `None` if
    /// no single batch matches. Fails if the directory cannot be read.
    pub fn batch(&self, name: &str) -> Result<Option<Listing>> {
        let batches = self.segments()?;
        let mut meant = batches.iter().filter(|(id, _)| !name.is_empty() && id.starts_with(name));
        let (id, files) = match (batches.get_key_value(name), meant.next(), meant.next()) {
            (Some(exact), ..) => exact,
            (None, Some(only), None) if !self.run_ids()?.iter().any(|run| run.starts_with(name)) => only,
            _ => return Ok(None),
        };
        let mut listing = self.read_batch(id, files);
        self.attach_quality(&mut listing.records);
        Ok(Some(listing))
    }

    /// Summaries of all batches with rows that are not deleted, oldest first, and the errors of damaged segments.
    ///
    /// # Errors
    ///
    /// Returns a failure if the directory cannot be read. Damaged segments are reported in the second list instead.
    pub fn batches(&self) -> Result<(Vec<BatchSummary>, Vec<String>)> {
        let annotations = self.annotations();
        let summary = |(batch, files): (String, Vec<PathBuf>)| {
            let mut summary = BatchSummary { batch, ..BatchSummary::default() };
            let added = |file: PathBuf| {
                let added = summary.add(&file, &annotations);
                added.err().map(|why| format!("{}: {why}", file.display()))
            };
            let damaged: Vec<String> = files.into_iter().filter_map(added).collect();
            (summary, damaged)
        };
        let read: Vec<_> = self.segments()?.into_par_iter().map(summary).collect();
        let (mut batches, damaged): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        let damaged = damaged.concat();
        batches.retain(|batch| batch.runs > 0);
        batches.sort_by(|a, b| (&a.created, &a.batch).cmp(&(&b.created, &b.batch)));
        Ok((batches, damaged))
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
            let whole = row_of(&record.run).and_then(|(batch, row)| reader.get(batch, row).ok()?);
            on_record(match whole {
                Some(whole) => Record { environment: whole.environment, ..record },
                None => record,
            })?;
        }
        Ok(())
    }

    pub(super) fn batch_ids(&self) -> Result<Vec<String>> {
        Ok(self.segments()?.into_keys().collect())
    }

    /// Row numbers in these segments of a batch that satisfy `keep`, and the error of the first damaged segment.
    pub(super) fn rows_among(
        &self,
        id: &str,
        files: &[PathBuf],
        keep: impl Fn(u32) -> bool,
    ) -> (Vec<u32>, Option<Error>) {
        let (mut rows, mut damaged) = (Vec::new(), None);
        for file in files {
            match Segment::open(file).and_then(|segment| segment.rows()) {
                Ok(there) => rows.extend(there.into_iter().filter(|row| keep(*row))),
                Err(why) => damaged = damaged.or_else(|| Some(unreadable(id, file, &why))),
            }
        }
        (rows, damaged)
    }

    /// Row numbers of a batch, without the deleted ones, and the error of its first damaged segment.
    pub(super) fn batch_rows(&self, id: &str, files: &[PathBuf]) -> (Vec<u32>, Option<Error>) {
        let annotations = self.annotations();
        self.rows_among(id, files, |row| !annotations.is_deleted(id, row))
    }

    pub(super) fn row(&self, id: &str, row: u32) -> Result<Record> {
        if let Some(record) = RowReader::new(self).get(id, row)? {
            return Ok(record);
        }
        if self.annotations().is_deleted(id, row) {
            return Err(super::finished::deleted(&format!("{id}:{row}")));
        }
        let rows = self.batch_rows(id, &self.batch_files(id)).0.len();
        Err(Error::input(format!("batch '{id}' has {rows} runs and no row {row}")))
    }

    /// Rows of a batch without their environment.
    pub(super) fn read_batch(&self, id: &str, files: &[PathBuf]) -> Listing {
        let read = |path: &PathBuf| match Segment::open(path) {
            Ok(segment) => {
                let (records, damaged) = segment.records(id);
                let named = |why: &String| format!("{}: {why}", path.display());
                Listing { records, damaged: damaged.iter().map(named).collect() }
            }
            Err(why) => Listing::damaged(path, &why),
        };
        let parts = files.iter().map(|path| self.cached(path, || read(path))).collect();
        let mut all = Listing::joined(parts);
        let annotations = self.annotations();
        if annotations.deleted(id).is_some() {
            all.records
                .retain(|r| row_of(&r.run).is_none_or(|(_, row)| !annotations.is_deleted(id, row)));
        }
        all
    }

    /// Calls `found` for the rows of a batch whose success equals `ok`, except deleted ones, with row, cell key, round
    /// and time. Skips unreadable files, which listing reports.
    pub(super) fn each_key(
        &self,
        id: &str,
        files: &[PathBuf],
        ok: bool,
        mut found: impl FnMut(u32, &str, u32, &str),
    ) {
        let annotations = self.annotations();
        for path in files {
            let mut read = || -> Result<(), String> {
                let segment = Segment::open(path)?;
                let names = ["row", "status", "key", "round", "created"];
                let frame = segment.columns(&names, 0..segment.file.rows())?;
                let (rows, round) =
                    (NumericColumn::new(&frame, "row")?, NumericColumn::new(&frame, "round")?);
                let (status, key) =
                    (TextColumn::new(&frame, "status")?, TextColumn::new(&frame, "key")?);
                let created = TextColumn::new(&frame, "created")?;
                for at in 0..frame.height() {
                    let (row, is_ok) = (rows.count(at)?, status.get(at) == Some(Status::Ok.as_str()));
                    if is_ok == ok
                        && let Some(key) = key.get(at)
                        && !annotations.is_deleted(id, row)
                    {
                        found(row, key, round.count(at)?, created.get(at).unwrap_or_default());
                    }
                }
                Ok(())
            };
            let _ = read();
        }
    }

    /// Segments of one batch, in order; empty if there is no such batch. Lists the directory.
    pub(super) fn batch_files(&self, id: &str) -> Vec<PathBuf> {
        self.segments().ok().and_then(|mut all| all.remove(id)).unwrap_or_default()
    }

    /// Segments of each batch, in order. Fails if the directory cannot be read.
    pub(super) fn segments(&self) -> Result<Segments> {
        let dir = self.folder(FOLDER)?;
        let mut all = Segments::new();
        for name in names(&dir, file_name)? {
            let Some((batch, number)) = name.strip_suffix(".parquet").map(segment) else { continue };
            let files = all.entry(batch.to_owned()).or_default();
            // the first sorts after the later ones by name
            let at = if number.is_none() { 0 } else { files.len() };
            files.insert(at, dir.join(&name));
        }
        Ok(all)
    }

    pub(super) fn batches_dir(&self) -> PathBuf {
        self.dir().join(FOLDER)
    }
}

/// Records of an intact segment without their environment, and true if it has a checksum. Returns what is wrong with
/// a damaged one.
pub(super) fn verified(path: &Path, batch: &str) -> Result<(Vec<Record>, bool), String> {
    let segment = Segment::open(path)?;
    let (records, damaged) = segment.records(batch);
    match damaged.into_iter().next() {
        Some(why) => Err(why),
        None => Ok((records, CHECKSUM.check(segment.file.bytes()) == Check::Intact)),
    }
}

/// Batch and number of a segment, from its name without suffix; the first has no number.
fn segment(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('.') {
        Some((batch, number)) if number.len() == 6 && number.bytes().all(|b| b.is_ascii_digit()) => {
            (batch, Some(number))
        }
        _ => (name, None),
    }
}

fn unreadable(id: &str, file: &Path, why: &str) -> Error {
    Error::failed(format!("run '{id}' cannot be read: {}: {why}", file.display()))
}

/// Reader for single rows. Keeps the segments it has read and some rows in memory, which makes nearby rows fast.
pub(super) struct RowReader<'a> {
    store: &'a Store,
    annotations: Arc<Annotations>,
    files: Option<Segments>,
    batches: HashMap<String, Vec<OpenSegment>>,
    window: Option<Window>,
}

/// Path of a segment, and its row numbers with the segment, or what is wrong with it.
type OpenSegment = (PathBuf, Result<(Vec<u32>, Segment), String>);

/// Rows of a segment in memory.
struct Window {
    path: PathBuf,
    begin: usize,
    rows: Vec<Result<Record, String>>,
}

impl<'a> RowReader<'a> {
    pub fn new(store: &'a Store) -> Self {
        let annotations = store.annotations();
        Self { store, annotations, files: None, batches: HashMap::new(), window: None }
    }

    /// Whole record of a row; `None` if there is no such row. A row that is in no intact segment may be in a damaged
    /// one, whose error is returned.
    pub fn get(&mut self, batch: &str, row: u32) -> Result<Option<Record>> {
        if self.annotations.is_deleted(batch, row) {
            return Ok(None);
        }
        if !self.batches.contains_key(batch) {
            let files = match &mut self.files {
                Some(files) => files,
                none => none.insert(self.store.segments()?),
            };
            let open = |path: PathBuf| {
                let read = Segment::open(&path).and_then(|segment| Ok((segment.rows()?, segment)));
                (path, read)
            };
            let files = files.remove(batch).unwrap_or_default();
            self.batches.insert(batch.to_owned(), files.into_iter().map(open).collect());
        }
        let segments = self.batches.get(batch).map(Vec::as_slice).unwrap_or_default();
        let failed = |path: &Path, why: &str| unreadable(&format!("{batch}:{row}"), path, why);
        let place = segments.iter().find_map(|(path, read)| {
            let (rows, segment) = read.as_ref().ok()?;
            Some((path, segment, rows.binary_search(&row).ok()?))
        });
        let Some((path, segment, at)) = place else {
            let damaged =
                segments.iter().find_map(|(path, read)| Some(failed(path, read.as_ref().err()?)));
            return damaged.map_or(Ok(None), Err);
        };
        let is_held = self.window.as_ref().is_some_and(|window| {
            window.path == *path && (window.begin..window.begin + window.rows.len()).contains(&at)
        });
        if !is_held {
            // reads only one row at first, since it may be the only one
            let (begin, length) =
                if self.window.is_some() { (at - at % SEGMENT_ROWS, SEGMENT_ROWS) } else { (at, 1) };
            let rows = segment.whole(batch, begin..begin + length);
            let rows = rows.unwrap_or_else(|why| vec![Err(why); length]);
            self.window = Some(Window { path: path.clone(), begin, rows });
        }
        let row = self.window.as_ref().and_then(|window| window.rows.get(at - window.begin));
        match row {
            Some(Ok(record)) => Ok(Some(record.clone())),
            Some(Err(why)) => Err(failed(path, why)),
            None => Ok(None),
        }
    }
}
