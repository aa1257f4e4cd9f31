//! Reading a trace: every way in which it can be broken is an error that says what is broken.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use polars::io::mmap::MmapBytesReader;
use polars::prelude::{DataType, ParallelStrategy, ParquetReader, SerReader};
use sha2::Digest;

use super::columns;
use super::footer::FooterBytes;
use super::problem::{Problem, Read, inside};
use crate::error::{Error, Result};
use crate::trace::{FORMAT_VERSION, OperationInfo, Span, Trace, TraceMeta};

/// Reads a trace file; errors name the file, the column and what would be right.
pub fn read(path: &Path) -> Result<Trace> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    whole(&bytes).map_err(|problem| problem.of(path))
}

/// Reads only metadata and operations. What it does not read, it does not check.
pub fn read_meta(path: &Path) -> Result<(TraceMeta, Vec<OperationInfo>)> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let footer = FooterBytes::locate(&mut file).and_then(|bytes| {
        bytes.check()?;
        inside(|| Footer::read(&mut ParquetReader::new(file)))
    });
    footer.map(|footer| (footer.meta, footer.operations)).map_err(|problem| problem.of(path))
}

/// Reads all of a file. Nothing is parsed before it is known to be what was written.
fn whole(bytes: &[u8]) -> Read<Trace> {
    let footer = FooterBytes::locate(&mut Cursor::new(bytes))?;
    footer.check()?;
    let data =
        usize::try_from(footer.start).ok().and_then(|start| bytes.get(..start)).unwrap_or_default();
    inside(|| {
        let mut reader = ParquetReader::new(Cursor::new(bytes));
        let footer = Footer::read(&mut reader)?;
        let rows = reader.num_rows()?;
        footer.verify(data, rows)?;
        let spans = footer.spans(reader, rows).map_err(|problem| match problem {
            Problem::Damaged(what) if footer.version > FORMAT_VERSION => {
                Problem::Newer(footer.version, what)
            }
            other => other,
        })?;
        Ok(Trace { meta: footer.meta, operations: footer.operations, spans, ranges: Vec::new() })
    })
}

/// What the footer says.
struct Footer {
    version: u32,
    meta: TraceMeta,
    operations: Vec<OperationInfo>,
    /// Texts of metadata and operations.
    texts: (String, String),
    checksum: String,
}

impl Footer {
    fn read<R: MmapBytesReader>(reader: &mut ParquetReader<R>) -> Read<Self> {
        let schema = reader.schema()?;
        let metadata = reader.get_metadata()?;
        let entry = |key: &str| {
            let entries = metadata.key_value_metadata.iter().flatten();
            entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.clone())
        };
        // a file that says what it is may be of a later format; one that does not is foreign
        let newer = entry(super::VERSION).and_then(|v| v.parse().ok()).filter(|v| *v > FORMAT_VERSION);
        for (name, dtype) in columns::schema() {
            let problem = match schema.get(name).map(DataType::from_arrow_field) {
                Some(found) if found == dtype => continue,
                Some(found) => format!("its column {name} is {found}, not {dtype}"),
                None => format!("it has no column {name}"),
            };
            return Err(match newer {
                Some(version) => Problem::Newer(version, problem),
                None => Problem::Foreign(problem),
            });
        }
        let wanted = |key: &str| {
            entry(key).ok_or_else(|| Problem::Foreign(format!("its footer has no entry {key}")))
        };
        let version = wanted(super::VERSION)?;
        let version = version
            .parse()
            .map_err(|_| Problem::Damaged(format!("{} is '{version}', not a number", super::VERSION)))?;
        let wrong = |key: &str, error: serde_json::Error| match newer {
            Some(version) => Problem::Newer(version, format!("{key}: {error}")),
            None => Problem::Damaged(format!("{key}: {error}")),
        };
        let (meta, operations) = (wanted(super::META)?, wanted(super::OPERATIONS)?);
        Ok(Self {
            version,
            meta: serde_json::from_str(&meta).map_err(|e| wrong(super::META, e))?,
            operations: serde_json::from_str(&operations).map_err(|e| wrong(super::OPERATIONS, e))?,
            texts: (meta, operations),
            checksum: wanted(super::CHECKSUM)?,
        })
    }

    /// Whether texts, data and number of spans are what was written.
    fn verify(&self, data: &[u8], rows: usize) -> Read<()> {
        let mut parts = self.checksum.split(':');
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
            .finish()?;
        if frame.height() != rows {
            let found = frame.height();
            return Err(Problem::Damaged(format!(
                "its footer speaks of {rows} spans, but there are {found}"
            )));
        }
        columns::spans(&frame, self.operations.len(), self.meta.ranks).map_err(Problem::Damaged)
    }
}
