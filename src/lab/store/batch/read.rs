//! Reads batches: all rows from columns, single rows from whole records, or only the keys of finished cells. Memory
//! holds one window of rows in addition to the result.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use polars_core::prelude::{ArrowSchema, DataFrame, PolarsResult};
use polars_parquet::read::{FileMetadata, infer_schema, read_metadata};
use rayon::prelude::*;

use super::files::version;
use super::{COLUMNS_SINCE, ROWS, VERSION, VERSION_KEY, seal};
use base::panic::contained;
use base::{parquet, regular};
use table::frame::{self as columns, Numbers, RECORD, Texts};
use table::{Record, Status};

/// Rows per read when reading a whole file.
const WINDOW: usize = 4 * ROWS;

/// Maximum rows of a batch: ten rounds of the largest grid.
const MOST_ROWS: usize = 1_000_000;

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
    /// True while it is being written or if its writer died; the next sweep merges it into one file.
    pub unfinished: bool,
}

struct Head {
    version: u32,
    schema: ArrowSchema,
    /// Cached because parsing a footer of 70 columns takes longer than reading some of them.
    metadata: FileMetadata,
}

impl Head {
    /// Reads the footer after verifying the checksum.
    fn verified(path: &Path) -> Result<Self, String> {
        Self::of(seal::verify(path)?)
    }

    fn read(path: &Path) -> Result<Self, String> {
        Self::of(guarded(path, |mut file| read_metadata(&mut file))?)
    }

    fn of(metadata: FileMetadata) -> Result<Self, String> {
        if metadata.num_rows > MOST_ROWS {
            return Err(format!("{} rows: a batch has at most {MOST_ROWS}", metadata.num_rows));
        }
        let version = version(&metadata)
            .ok_or_else(|| format!("not a batch of runs: its footer has no {VERSION_KEY}"))?;
        let schema = contained(|| infer_schema(&metadata))
            .map_err(|_| "not a readable Parquet file".to_owned())?
            .map_err(|e| format!("not a batch of runs: {e}"))?;
        Ok(Self { version, schema, metadata })
    }

    fn rows(&self) -> Range<usize> {
        0..self.metadata.num_rows
    }

    fn columns(&self, path: &Path, names: &[&str], rows: Range<usize>) -> Result<DataFrame, String> {
        guarded(path, |file| parquet::columns(&file, &self.metadata, &self.schema, names, rows))
    }

    /// Row ranges for reading the whole file in steps of [`WINDOW`].
    fn windows(&self) -> Vec<Range<usize>> {
        let rows = self.metadata.num_rows;
        (0..rows).step_by(WINDOW).map(|at| at..rows.min(at + WINDOW)).collect()
    }
}

/// Runs `read` on a file and converts panics of Polars on corrupt files into errors.
fn guarded<T>(path: &Path, read: impl FnOnce(File) -> PolarsResult<T>) -> Result<T, String> {
    let file = regular::open(path).map_err(|e| e.to_string())?;
    match contained(|| read(file)) {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(e)) => Err(format!("not a batch of runs: {e}")),
        Err(_) => Err("not a readable Parquet file".into()),
    }
}

/// Reads all columns and rows of a file, after verifying the checksum.
pub(super) fn everything(path: &Path) -> Result<DataFrame, String> {
    let head = Head::of(seal::verify(path)?)?;
    let names: Vec<&str> = head.schema.iter_names().map(|name| name.as_str()).collect();
    head.columns(path, &names, head.rows())
}

/// Reads all rows of a file from columns: records without their environment, and the errors. Files of another version
/// are read from whole records, which every version has.
pub(in crate::store) fn records(path: &Path, batch: &str) -> (Vec<Record>, Vec<String>) {
    let head = match Head::verified(path) {
        Ok(head) => head,
        Err(why) => return (Vec::new(), vec![why]),
    };
    if !(COLUMNS_SINCE..=VERSION).contains(&head.version) {
        return records_of_whole(path, batch, &head);
    }
    let names = columns::without_record(&head.schema);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let windows: Vec<Result<Vec<Record>, String>> = head
        .windows()
        .into_par_iter()
        .map(|window| columns::records(&head.columns(path, &names, window)?, batch))
        .collect();
    gather(windows)
}

fn gather(windows: Vec<Result<Vec<Record>, String>>) -> (Vec<Record>, Vec<String>) {
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    for window in windows {
        match window {
            Ok(more) if records.is_empty() => records = more,
            Ok(more) => records.extend(more),
            Err(why) if damaged.contains(&why) => {}
            Err(why) => damaged.push(why),
        }
    }
    (records, damaged)
}

fn records_of_whole(path: &Path, batch: &str, head: &Head) -> (Vec<Record>, Vec<String>) {
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    let numbers = match rows_of(path) {
        Ok(numbers) => numbers,
        Err(why) => return (records, vec![why]),
    };
    for window in head.windows() {
        let numbers = numbers.get(window.clone()).unwrap_or_default();
        let read = whole(path, batch, window).map(|rows| numbers.iter().zip(rows).collect::<Vec<_>>());
        match read {
            Ok(read) => {
                for (row, record) in read {
                    match record {
                        Ok(record) => records.push(Record { environment: Default::default(), ..record }),
                        Err(why) => damaged.push(format!("row {row}: {why}")),
                    }
                }
            }
            Err(why) => damaged.push(why),
        }
    }
    (records, damaged)
}

/// Row numbers of a file, in order. Verifies the checksum, so later reads need not.
pub(in crate::store) fn rows_of(path: &Path) -> Result<Vec<u32>, String> {
    let head = Head::verified(path)?;
    let frame = head.columns(path, &["row"], head.rows())?;
    let rows = Numbers::new(&frame, "row")?;
    (0..frame.height()).map(|at| rows.count(at)).collect()
}

/// Reads whole records of a range of rows of a file, each with its own error.
pub(in crate::store) fn whole(
    path: &Path,
    batch: &str,
    window: Range<usize>,
) -> Result<Vec<Result<Record, String>>, String> {
    let head = Head::read(path)?;
    let newer = (head.version > VERSION)
        .then(|| format!("batch format {} is newer than this build's {VERSION}", head.version));
    let frame = head.columns(path, &["row", RECORD], window)?;
    let (rows, texts) = (Numbers::new(&frame, "row")?, Texts::new(&frame, RECORD)?);
    let read = |at| {
        let text = texts.get(at).ok_or("a row without a record")?;
        let mut record = table::parse(text.as_bytes())?;
        record.run = format!("{batch}:{}", rows.count(at)?);
        record.warnings.extend(newer.clone());
        Ok(record)
    };
    Ok((0..frame.height()).map(read).collect())
}

/// Calls `found` for each row whose success equals `ok`, with place in the file, key, round and time.
pub(in crate::store) fn keys(
    path: &Path,
    ok: bool,
    mut found: impl FnMut(usize, &str, u32, &str),
) -> Result<(), String> {
    let head = Head::read(path)?;
    let frame = head.columns(path, &["status", "key", "round", "created"], head.rows())?;
    let (status, key) = (Texts::new(&frame, "status")?, Texts::new(&frame, "key")?);
    let (round, created) = (Numbers::new(&frame, "round")?, Texts::new(&frame, "created")?);
    for at in 0..frame.height() {
        if let (true, Some(key)) = (columns::is_ok(&status, at) == ok, key.get(at)) {
            found(at, key, round.count(at)?, created.get(at).unwrap_or_default());
        }
    }
    Ok(())
}

/// Summary of one file of a batch, excluding deleted rows.
pub(in crate::store) fn summary(
    path: &Path,
    deleted: Option<&rangemap::RangeInclusiveSet<u32>>,
) -> Result<BatchSummary, String> {
    let head = Head::verified(path)?;
    let experiment = head.schema.contains("experiment");
    let frame = head.columns(
        path,
        if experiment {
            &["row", "status", "created", "experiment"]
        } else {
            &["row", "status", "created"]
        },
        head.rows(),
    )?;
    let numbers = Numbers::new(&frame, "row")?;
    let mut rows = Vec::with_capacity(frame.height());
    for at in 0..frame.height() {
        let row = numbers.count(at)?;
        if !deleted.is_some_and(|deleted| deleted.contains(&row)) {
            rows.push(at);
        }
    }
    let (status, created) = (Texts::new(&frame, "status")?, Texts::new(&frame, "created")?);
    let experiment = if experiment { Some(Texts::new(&frame, "experiment")?) } else { None };
    let ok = rows.iter().filter(|at| status.word::<Status>(**at) == Ok(Status::Ok)).count();
    Ok(BatchSummary {
        batch: String::new(),
        runs: rows.len(),
        ok,
        experiment: experiment.and_then(|names| names.get(0).map(str::to_owned)),
        created: created.get(0).unwrap_or_default().to_owned(),
        unfinished: false,
    })
}
