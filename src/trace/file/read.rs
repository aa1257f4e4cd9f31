//! Reading a trace: every way in which it can be broken is an error that says what is broken.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use polars::prelude::{DataType, ParallelStrategy, ParquetReader, PolarsError, SerReader};
use sha2::Digest;

use super::columns;
use super::contain::contained;
use super::write::ROW_GROUP;
use crate::error::{Error, Result};
use crate::trace::{FORMAT_VERSION, OperationInfo, Span, Trace, TraceMeta};

/// What begins and ends every Parquet file.
const MAGIC: &[u8] = b"PAR1";
/// Length of the footer's length and the magic behind it.
const TAIL: usize = 8;

/// Reads a trace file; errors name the file, the column and what would be right.
pub fn read(path: &Path) -> Result<Trace> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    whole(&bytes).and_then(|data| read_whole(&bytes, data)).map_err(|problem| problem.of(path))
}

/// Reads only metadata and operations. What it does not read, it does not check.
pub fn read_meta(path: &Path) -> Result<(TraceMeta, Vec<OperationInfo>)> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let (head, tail) = ends(&mut file).map_err(Error::io(path))?;
    framed(&head, &tail)
        .and_then(|()| {
            inside(|| {
                let mut reader = ParquetReader::new(file);
                Footer::read(&mut reader).map(|footer| (footer.meta, footer.operations))
            })
        })
        .map_err(|problem| problem.of(path))
}

/// Why a file cannot be read.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// It is not a trace: something else was meant.
    Foreign(String),
    /// It is, or was, a trace and is damaged.
    Damaged(String),
    /// Written by a later version, and not readable.
    Newer(u32, String),
}

impl Problem {
    fn of(self, path: &Path) -> Error {
        let path = path.display();
        match self {
            Self::Foreign(what) => Error::input_help(
                format!("{path}: not a Ladderscope trace: {what}"),
                "a trace is what `run --trace FILE` writes; others can be imported with `ladderscope trace convert IN OUT`",
            ),
            Self::Damaged(what) => Error::input_help(
                format!("{path}: damaged trace: {what}"),
                "record it again, or copy it again from where it was whole",
            ),
            Self::Newer(version, what) => Error::input_help(
                format!(
                    "{path}: trace format {version} is newer than {FORMAT_VERSION}, which this version reads: {what}"
                ),
                "read it with the version of ladderscope that wrote it",
            ),
        }
    }
}

type Read<T> = std::result::Result<T, Problem>;

/// Runs the parser; what it panics with is damage.
fn inside<T>(work: impl FnOnce() -> Read<T>) -> Read<T> {
    contained(work).unwrap_or_else(|panic| {
        Err(Problem::Damaged(format!("the Parquet data make no sense ({panic})")))
    })
}

fn damaged(error: PolarsError) -> Problem {
    Problem::Damaged(error.to_string())
}

/// First and last bytes of a file, as far as it has them.
fn ends(file: &mut File) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    use std::io::{Read, Seek, SeekFrom};
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL as u64)))?;
    file.read_to_end(&mut tail)?;
    file.rewind()?;
    Ok((head, tail))
}

/// Whether a file begins and ends as Parquet files do.
fn framed(head: &[u8], tail: &[u8]) -> Read<()> {
    if !head.starts_with(MAGIC) {
        let shown = head.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        return Err(Problem::Foreign(match shown.as_str() {
            "" => "it is empty".into(),
            _ => format!("it begins with the bytes {shown}, Parquet files with 50 41 52 31 (PAR1)"),
        }));
    }
    if tail.len() < TAIL || !tail.ends_with(MAGIC) {
        return Err(Problem::Damaged("it is cut off: the footer at its end is missing".into()));
    }
    Ok(())
}

/// Checks the frame and gives back what lies before the footer.
fn whole(bytes: &[u8]) -> Read<&[u8]> {
    framed(bytes, &bytes[bytes.len().saturating_sub(TAIL)..])?;
    let end = bytes.len() - TAIL;
    let length =
        bytes[end..].first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let start = end.checked_sub(length).filter(|start| *start >= MAGIC.len());
    start.map(|start| &bytes[..start]).ok_or_else(|| {
        Problem::Damaged(format!(
            "its last 8 bytes speak of a footer of {length} bytes, but the file has {}",
            bytes.len()
        ))
    })
}

fn read_whole(bytes: &[u8], data: &[u8]) -> Read<Trace> {
    inside(|| {
        let mut reader = ParquetReader::new(Cursor::new(bytes));
        let footer = Footer::read(&mut reader)?;
        let rows = reader.num_rows().map_err(damaged)?;
        footer.verify(data, rows)?;
        let spans = footer.spans(reader, rows).map_err(|problem| match problem {
            Problem::Damaged(what) if footer.version > FORMAT_VERSION => {
                Problem::Newer(footer.version, what)
            }
            other => other,
        })?;
        Ok(Trace { meta: footer.meta, operations: footer.operations, spans })
    })
}

/// What the footer says.
struct Footer {
    version: u32,
    meta: TraceMeta,
    operations: Vec<OperationInfo>,
    /// Texts of metadata and operations, and the checksum, if it has one.
    texts: (String, String),
    checksum: Option<String>,
}

impl Footer {
    fn read<R: polars::io::mmap::MmapBytesReader>(reader: &mut ParquetReader<R>) -> Read<Self> {
        let schema = reader.schema().map_err(damaged)?;
        let metadata = reader.get_metadata().map_err(damaged)?;
        // a number of rows that no writer writes would only exhaust the memory
        if metadata.row_groups.iter().any(|group| group.num_rows() > 64 * ROW_GROUP) {
            return Err(Problem::Damaged("a row group claims more rows than any trace has".into()));
        }
        let entry = |key: &str| {
            let entries = metadata.key_value_metadata.iter().flatten();
            entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.clone())
        };
        // a file that says what it is may be of a later format; one that does not is foreign
        let version = entry(super::VERSION);
        for (name, dtype) in columns::schema() {
            let found = schema.get(name).map(|field| DataType::from_arrow_field(field));
            let problem = match found {
                Some(found) if found == dtype => continue,
                Some(found) => format!("its column {name} is {found}, not {dtype}"),
                None => format!("it has no column {name}"),
            };
            return Err(match version.as_ref().and_then(|version| version.parse().ok()) {
                Some(version) if version > FORMAT_VERSION => Problem::Newer(version, problem),
                _ => Problem::Foreign(problem),
            });
        }
        let wanted = |key: &str| {
            entry(key).ok_or_else(|| Problem::Foreign(format!("its footer has no entry {key}")))
        };
        let version = wanted(super::VERSION)?;
        let version: u32 = version
            .parse()
            .map_err(|_| Problem::Damaged(format!("{} is '{version}', not a number", super::VERSION)))?;
        let wrong = |key: &str, error: serde_json::Error| match version {
            newer if newer > FORMAT_VERSION => Problem::Newer(newer, format!("{key}: {error}")),
            _ => Problem::Damaged(format!("{key}: {error}")),
        };
        let (meta, operations) = (wanted(super::META)?, wanted(super::OPERATIONS)?);
        Ok(Self {
            version,
            meta: serde_json::from_str(&meta).map_err(|e| wrong(super::META, e))?,
            operations: serde_json::from_str(&operations).map_err(|e| wrong(super::OPERATIONS, e))?,
            texts: (meta, operations),
            checksum: entry(super::CHECKSUM),
        })
    }

    /// Whether texts and data are what was written. Files of other writers have no checksum.
    fn verify(&self, data: &[u8], rows: usize) -> Read<()> {
        let Some(expected) = &self.checksum else { return Ok(()) };
        let mut parts = expected.split(':');
        let bytes = parts.next().and_then(|bytes| bytes.parse().ok());
        let spans = parts.next().and_then(|spans| spans.parse::<usize>().ok());
        let data = bytes.and_then(|bytes| data.get(..bytes)).unwrap_or_default();
        let found =
            super::hex(super::checksum_of_texts(&self.texts.0, &self.texts.1).chain_update(data));
        if parts.next() == Some(found.as_str()) && spans == Some(rows) {
            return Ok(());
        }
        Err(Problem::Damaged(
            "its bytes do not match its checksum: something changed after it was written".into(),
        ))
    }

    fn spans(&self, reader: ParquetReader<Cursor<&[u8]>>, rows: usize) -> Read<Vec<Span>> {
        let names = columns::schema().map(|(name, _)| name.to_owned());
        let frame = reader
            .with_columns(Some(names.to_vec()))
            // on this thread, where a panic is contained
            .read_parallel(ParallelStrategy::None)
            .finish()
            .map_err(damaged)?;
        if frame.height() != rows {
            let found = frame.height();
            return Err(Problem::Damaged(format!(
                "its footer speaks of {rows} spans, but there are {found}"
            )));
        }
        columns::spans(&frame, self.operations.len(), self.meta.ranks).map_err(Problem::Damaged)
    }
}
