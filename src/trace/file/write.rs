//! Writing a trace: row group by row group into a temporary file beside its place.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use polars::polars_utils::compression::ZstdLevel;
use polars::prelude::{
    BatchedWriter, KeyValueMetadata, ParquetCompression, ParquetWriter, StatisticsOptions,
};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::columns;
use super::footer::{self, FooterBytes};
use crate::error::{Error, Result};
use crate::trace::{OperationInfo, Span, TraceMeta};

/// Spans of a row group.
const ROW_GROUP: usize = 262_144;

/// Writes a trace streaming. Nothing is at the path until [`TraceWriter::finish`]; a writer that is
/// dropped before leaves nothing.
pub struct TraceWriter {
    path: PathBuf,
    file: NamedTempFile,
    parquet: BatchedWriter<Hashing>,
    checksum: Arc<Mutex<Written>>,
    /// Footer entries but for the checksum.
    footer: Vec<(String, String)>,
    /// Spans of the row group to come.
    pending: Vec<Span>,
    pub(super) operations: usize,
    ranks: u32,
    /// Spans written so far, pending ones included.
    spans: u64,
}

impl fmt::Debug for TraceWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceWriter")
            .field("path", &self.path)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

impl TraceWriter {
    /// Starts writing beside `path`.
    pub fn create(path: &Path, meta: &TraceMeta, operations: &[OperationInfo]) -> Result<Self> {
        let failed = |what: &str, error: &dyn fmt::Display| {
            Error::failed(format!("{}: {what}: {error}", path.display()))
        };
        let meta_text = serde_json::to_string(meta).map_err(|e| failed("metadata", &e))?;
        let operations_text = serde_json::to_string(operations).map_err(|e| failed("operations", &e))?;
        let file = tempfile::Builder::new()
            .prefix(".trace-")
            // as any other new file, not private as temporary ones are
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(directory(path))
            .map_err(Error::io(path))?;
        let checksum = Arc::new(Mutex::new(Written {
            bytes: 0,
            hash: super::checksum_of_texts(&meta_text, &operations_text),
        }));
        let sink = Hashing {
            file: file.as_file().try_clone().map_err(Error::io(path))?,
            checksum: Arc::clone(&checksum),
        };
        let level = ZstdLevel::try_new(1).map_err(|e| failed("compression", &e))?;
        let parquet = ParquetWriter::new(sink)
            .with_compression(ParquetCompression::Zstd(Some(level)))
            .with_statistics(StatisticsOptions::empty())
            .batched(&columns::polars_schema())
            .map_err(|e| failed("columns", &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            parquet,
            checksum,
            footer: vec![
                (super::VERSION.into(), meta.version.to_string()),
                (super::META.into(), meta_text),
                (super::OPERATIONS.into(), operations_text),
            ],
            pending: Vec::new(),
            operations: operations.len(),
            ranks: meta.ranks,
            spans: 0,
        })
    }

    /// Appends spans. A span that no reader would accept is an error.
    pub fn write(&mut self, spans: &[Span]) -> Result<()> {
        for span in spans {
            columns::check(span, self.operations, self.ranks).map_err(|problem| {
                Error::failed(format!("{}: a span is wrong: {problem}", self.path.display()))
            })?;
        }
        self.spans += spans.len() as u64;
        let mut spans = spans;
        while self.pending.len() + spans.len() >= ROW_GROUP {
            let (now, later) = spans.split_at(ROW_GROUP - self.pending.len());
            if self.pending.is_empty() {
                self.row_group(now)?;
            } else {
                self.pending.extend_from_slice(now);
                let pending = std::mem::take(&mut self.pending);
                self.row_group(&pending)?;
            }
            spans = later;
        }
        self.pending.extend_from_slice(spans);
        Ok(())
    }

    /// Writes the footer and renames the file into place.
    pub fn finish(mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.row_group(&pending)?;
        }
        let written = self.checksum.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut footer = std::mem::take(&mut self.footer);
        let checksum = format!("{}:{}:{}", written.bytes, self.spans, super::hex(written.hash));
        footer.push((super::CHECKSUM.into(), checksum));
        // last, so that nothing in the texts before it can be taken for it
        footer.push((super::SEAL.into(), footer::unsealed()));
        if let KeyValueMetadata::Static(footer) = KeyValueMetadata::from_static(footer) {
            let mut writer = self.parquet.get_writer().lock().unwrap_or_else(PoisonError::into_inner);
            writer.end(Some(footer)).map_err(|error| self.failed(&error))?;
        }
        self.seal()?;
        self.file.as_file().sync_all().map_err(Error::io(&self.path))?;
        self.file.persist(&self.path).map_err(|error| Error::io(&self.path)(error.error))?;
        // the name must survive a crash too; where directories cannot be synced, the file still is
        if let Ok(directory) = File::open(directory(&self.path)) {
            let _ = directory.sync_all();
        }
        Ok(())
    }

    /// Writes the footer's own checksum into it.
    fn seal(&mut self) -> Result<()> {
        let file = self.file.as_file_mut();
        let seal = FooterBytes::locate(file).map(|footer| footer.seal());
        let (at, digits) = match seal {
            Ok(Some(seal)) => seal,
            Ok(None) => return Err(self.failed(&"the footer has no place for its checksum")),
            Err(problem) => return Err(problem.of(&self.path)),
        };
        file.seek(SeekFrom::Start(at))
            .and_then(|_| file.write_all(digits.as_bytes()))
            .map_err(Error::io(&self.path))
    }

    fn row_group(&mut self, spans: &[Span]) -> Result<()> {
        let frame = columns::frame(spans).map_err(|error| self.failed(&error))?;
        self.parquet.write_batch(&frame).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn fmt::Display) -> Error {
        Error::failed(format!("{}: writing the trace failed: {error}", self.path.display()))
    }
}

/// The directory of `path`.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What the checksum covers so far.
#[derive(Clone)]
struct Written {
    /// Bytes of the file.
    bytes: u64,
    /// Of the footer's texts and those bytes.
    hash: Sha256,
}

/// A file that takes the checksum of what is written to it.
struct Hashing {
    file: File,
    checksum: Arc<Mutex<Written>>,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        let mut checksum = self.checksum.lock().unwrap_or_else(PoisonError::into_inner);
        checksum.hash.update(&bytes[..written]);
        checksum.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
