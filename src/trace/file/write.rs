//! Trace writer: encodes row groups in parallel and appends them in order to a temporary file next to
//! the target.
//!
//! The encodings are the reason for using Polars' pages instead of its `ParquetWriter`, which encodes
//! every integer by a dictionary. Integers are bit-packed differences from the previous row
//! (DELTA_BINARY_PACKED): within a lane, starts grow by the duration of an operation, and the columns
//! that identify a row hardly change, so they cost almost no bytes and no time. Packed times look like
//! noise to Zstandard, so only the other columns are compressed. Booleans are plain bits: Polars before
//! 0.21 cannot read run-length encoded ones, and Zstandard makes them equally small.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use polars_core::prelude::{ArrayRef, CompatLevel, DataType, PolarsResult, Series};
use polars_io::parquet::write::BatchedWriter;
use polars_parquet::write::{
    CompressedPage, CompressionOptions, Encoding, FileWriter, KeyValue, SchemaDescriptor,
    StatisticsOptions, Version, WriteOptions, ZstdLevel, array_to_columns, compress,
    schema_to_metadata_key, to_parquet_schema,
};
use rayon::prelude::*;

use super::columns::{self, COLUMNS, TableSizes};
use super::{CHECKSUM, GROUPS, Group, Holds, META, OPERATIONS, SEAL, VERSION};
use crate::{FORMAT_VERSION, OperationInfo, Range, Span, TraceMeta};
use base::atomic::AtomicFile;
use base::checksum::sha256;
use base::error::{Error, Result, catch_panic_quietly};

/// Rows per row group: few enough that a group and its columns fit into a core's cache, many enough to
/// keep the footer small.
const ROW_GROUP: usize = 65_536;
/// Row groups encoded at a time when spans arrive in small batches.
const WAVE: usize = 4;

/// Streaming trace writer. The file appears on [`TraceWriter::finish`]; a writer dropped earlier leaves
/// nothing.
pub struct TraceWriter {
    file: AtomicFile,
    parquet: BatchedWriter<Sink>,
    schema: SchemaDescriptor,
    /// Output of `parquet` that is not in the file yet.
    sink: Sink,
    groups: Vec<Group>,
    footer: Vec<(String, String)>,
    spans: Vec<Span>,
    ranges: Vec<Range>,
    pub(super) limits: TableSizes,
}

impl TraceWriter {
    /// Starts a trace in a temporary file next to `path`. Returns an error if the file cannot be
    /// created.
    pub fn create(path: &Path, meta: &TraceMeta, operations: &[OperationInfo]) -> Result<Self> {
        let failed = |what: &str, error: &dyn fmt::Display| {
            Error::failed(format!("{}: {what}: {error}", path.display()))
        };
        // a trace read from an older format is written in the current one
        let meta = TraceMeta { version: meta.version.max(FORMAT_VERSION), ..meta.clone() };
        let meta_text = serde_json::to_string(&meta).map_err(|e| failed("metadata", &e))?;
        let operations_text = serde_json::to_string(operations).map_err(|e| failed("operations", &e))?;
        let file = AtomicFile::create(path)?;
        let sink = Sink::default();
        let arrow = columns::arrow_schema();
        let schema = to_parquet_schema(&arrow).map_err(|e| failed("columns", &e))?;
        let options = options(CompressionOptions::Uncompressed);
        let parquet = FileWriter::try_new(sink.clone(), arrow, options);
        let parquet = Mutex::new(parquet.map_err(|e| failed("columns", &e))?);
        // row groups arrive encoded
        let parquet = BatchedWriter::new(parquet, Vec::new().into(), options, false, None);
        Ok(Self {
            file,
            parquet,
            schema,
            sink,
            groups: Vec::new(),
            footer: vec![
                (VERSION.into(), meta.version.to_string()),
                (META.into(), meta_text),
                (OPERATIONS.into(), operations_text),
            ],
            spans: Vec::new(),
            ranges: Vec::new(),
            limits: TableSizes::new(&meta, operations),
        })
    }

    /// Appends any number of spans, encoded in batches of whole row groups on all cores.
    ///
    /// # Errors
    ///
    /// Returns a failure for a span that ends before it starts or has an invalid operation, stream or
    /// rank, and if writing fails.
    pub fn write(&mut self, spans: &[Span]) -> Result<()> {
        let limits = self.limits;
        self.check(spans.iter().try_for_each(|span| limits.check_span(span)), "span")?;
        let mut pending = std::mem::take(&mut self.spans);
        let rest =
            append(&mut pending, spans, |full| self.append(full, Holds::Spans, columns::of_spans));
        self.spans = pending;
        rest
    }

    /// Appends any number of named ranges, encoded in batches of whole row groups on all cores.
    ///
    /// # Errors
    ///
    /// Returns a failure for a range that ends before it starts or has an invalid name or rank, and if
    /// writing fails.
    pub fn write_ranges(&mut self, ranges: &[Range]) -> Result<()> {
        let limits = self.limits;
        self.check(ranges.iter().try_for_each(|range| limits.check_range(range)), "range")?;
        let mut pending = std::mem::take(&mut self.ranges);
        let rest =
            append(&mut pending, ranges, |full| self.append(full, Holds::Ranges, columns::of_ranges));
        self.ranges = pending;
        rest
    }

    /// Writes the pending spans and ranges and the footer, and renames the file into place. Returns an
    /// error if writing or renaming fails; no file is left then.
    pub fn finish(mut self) -> Result<()> {
        let (spans, ranges) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.ranges));
        self.append(&spans, Holds::Spans, columns::of_spans)?;
        self.append(&ranges, Holds::Ranges, columns::of_ranges)?;
        let groups = serde_json::to_string(&self.groups).map_err(|error| self.failed(&error))?;
        let entries = std::mem::take(&mut self.footer).into_iter();
        let entries = entries.chain([
            (GROUPS.to_owned(), groups),
            // last, so that no text in the other entries can be mistaken for it
            (SEAL.to_owned(), CHECKSUM.blank()),
        ]);
        let mut footer = vec![schema_to_metadata_key(&columns::arrow_schema())];
        footer.extend(entries.map(|(key, value)| KeyValue { key, value: Some(value) }));
        let mut parquet = self.parquet.get_writer().lock().unwrap_or_else(PoisonError::into_inner);
        let ended = parquet.end(Some(footer));
        drop(parquet);
        ended.map_err(|error| self.failed(&error))?;
        // the footer, and in a trace without rows the magic number before it
        let mut rest = self.sink.take();
        let length =
            rest.last_chunk::<8>().map_or(0, |[a, b, c, d, ..]| u32::from_le_bytes([*a, *b, *c, *d]));
        let start = rest.len().saturating_sub(length as usize + 8);
        if !CHECKSUM.fill(&mut rest[start..]) {
            return Err(self.failed(&"the footer has no place for its checksum"));
        }
        self.file.write_all(&rest).map_err(Error::io(self.file.path()))?;
        self.file.finish()
    }

    fn append<T: Sync>(
        &mut self,
        rows: &[T],
        holds: Holds,
        columns: fn(&[T]) -> [Series; COLUMNS],
    ) -> Result<()> {
        // bounds the memory for encoded pages to one batch
        let wave = ROW_GROUP * WAVE.max(2 * rayon::current_num_threads());
        for rows in rows.chunks(wave) {
            let schema = &self.schema;
            let encode = |rows: &[T]| -> Result<Vec<Vec<CompressedPage>>, String> {
                catch_panic_quietly(|| encoded(columns(rows), schema))?.map_err(|e| e.to_string())
            };
            let encoded: Vec<_> = rows.par_chunks(ROW_GROUP).map(encode).collect();
            for (rows, pages) in rows.chunks(ROW_GROUP).zip(encoded) {
                let pages = pages.map_err(|error| self.failed(&error))?;
                let written = self.parquet.write_row_group(rows.len() as u64, &pages);
                written.map_err(|error| self.failed(&error))?;
                // the first row group begins with the magic number
                let bytes = self.sink.take();
                self.file.write_all(&bytes).map_err(Error::io(self.file.path()))?;
                self.groups.push(Group {
                    holds,
                    rows: rows.len() as u64,
                    bytes: bytes.len() as u64,
                    sha256: sha256(&bytes),
                });
                self.sink.give_back(bytes);
            }
        }
        Ok(())
    }

    fn check(&self, result: Result<(), String>, what: &str) -> Result<()> {
        result.map_err(|problem| {
            Error::failed(format!("{}: a {what} is wrong: {problem}", self.file.path().display()))
        })
    }

    fn failed(&self, error: &dyn fmt::Display) -> Error {
        Error::failed(format!("{}: writing the trace failed: {error}", self.file.path().display()))
    }
}

/// Encodes and compresses the columns of a row group.
fn encoded(
    columns: [Series; COLUMNS],
    schema: &SchemaDescriptor,
) -> PolarsResult<Vec<Vec<CompressedPage>>> {
    let mut group = Vec::with_capacity(columns.len());
    for (series, field) in columns.into_iter().zip(schema.fields()) {
        let (encoding, is_packed) = match series.dtype() {
            DataType::Int64 => (Encoding::DeltaBinaryPacked, true),
            DataType::UInt32 => (Encoding::DeltaBinaryPacked, false),
            _ => (Encoding::Plain, false),
        };
        let compression = match is_packed {
            true => CompressionOptions::Uncompressed,
            false => CompressionOptions::Zstd(Some(ZstdLevel::try_new(1)?)),
        };
        let array: ArrayRef = series.to_arrow(0, CompatLevel::newest());
        for column in array_to_columns(array, field.clone(), options(compression), &[encoding])? {
            let pages = column.map(|page| Ok(compress(page?, Vec::new(), compression)?));
            group.push(pages.collect::<PolarsResult<_>>()?);
        }
    }
    Ok(group)
}

fn options(compression: CompressionOptions) -> WriteOptions {
    let statistics = StatisticsOptions::empty();
    WriteOptions { statistics, version: Version::V1, compression, data_page_size: None }
}

/// Passes rows to `write` in whole row groups; the remainder stays pending.
fn append<T: Copy>(
    pending: &mut Vec<T>,
    mut rows: &[T],
    mut write: impl FnMut(&[T]) -> Result<()>,
) -> Result<()> {
    if !pending.is_empty() {
        let (now, later) = rows.split_at(rows.len().min(WAVE * ROW_GROUP - pending.len()));
        pending.extend_from_slice(now);
        if pending.len() < WAVE * ROW_GROUP {
            return Ok(());
        }
        write(pending)?;
        pending.clear();
        rows = later;
    }
    // write large slices without copying them
    let (now, later) = rows.split_at(rows.len() / (WAVE * ROW_GROUP) * (WAVE * ROW_GROUP));
    write(now)?;
    pending.extend_from_slice(later);
    Ok(())
}

/// In-memory output of the Parquet writer, moved to the file one row group at a time: Parquet writes
/// single bytes, and each row group needs a checksum.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.is_empty() {
            *buffer = bytes;
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
