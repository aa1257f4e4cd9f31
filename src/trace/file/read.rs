//! Trace reader. Each kind of damage yields an error that names the damaged part. All cores read, check
//! and decode row groups directly into place. The file is not memory-mapped: the bytes that were checked
//! are the bytes that are decoded, even if another program modifies the file meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use polars_core::prelude::PolarsError;
use rayon::prelude::*;

use super::columns;
use super::footer::{FooterBytes, Head, Holds, Part};
use crate::{FORMAT_VERSION, OperationInfo, Range, Span, Trace, TraceMeta, memory};
use base::error::{Error, Result};
use base::panic::contained;

/// Reads a whole trace file into memory, on all cores.
///
/// # Errors
///
/// Returns an input error if the file is not a trace, is damaged or truncated, or has a newer format; a
/// failure if it needs more than the memory limit.
pub fn read(path: &Path) -> Result<Trace> {
    read_file(File::open(path).map_err(Error::io(path))?, path)
}

/// Reads a whole trace from an open file; `path` is for messages. Returns the same errors as [`read`].
pub fn read_file(mut file: File, path: &Path) -> Result<Trace> {
    let head = read_head(&mut file).map_err(|problem| problem.of(path))?;
    let version = head.version;
    let rows = |holds| head.parts(holds).map(|(_, rows)| rows).sum::<usize>();
    memory::check(path, rows(Holds::Spans), size_of::<Span>())?;
    memory::check(path, rows(Holds::Ranges), size_of::<Range>())?;
    memory::watch();
    let reader = Reader { file, head };
    let (spans, ranges) = reader.all().map_err(|problem| {
        let problem = match problem {
            Problem::Damaged(what) if version > FORMAT_VERSION => Problem::Newer(version, what),
            other => other,
        };
        problem.of(path)
    })?;
    Ok(Trace { meta: reader.head.meta, operations: reader.head.operations, spans, ranges })
}

/// Reads metadata and operations only. Does not check the row groups.
///
/// # Errors
///
/// Returns an input error if the file is not a trace, has a damaged footer, or has a newer format.
pub fn read_meta(path: &Path) -> Result<(TraceMeta, Vec<OperationInfo>)> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let head = read_head(&mut file).map_err(|problem| problem.of(path))?;
    Ok((head.meta, head.operations))
}

fn read_head(file: &mut File) -> Read<Head> {
    let footer = FooterBytes::locate(file)?;
    footer.check()?;
    inside(|| Head::read(&footer))
}

struct Reader {
    file: File,
    head: Head,
}

impl Reader {
    fn all(&self) -> Read<(Vec<Span>, Vec<Range>)> {
        let rows = |holds| self.head.parts(holds).map(|(_, rows)| rows).sum::<usize>();
        let mut spans = Vec::new();
        // parallel, so all cores share the page faults of a large allocation
        rayon::iter::repeat_n(Span::EMPTY, rows(Holds::Spans)).collect_into_vec(&mut spans);
        let mut places = Vec::new();
        let mut rest = spans.as_mut_slice();
        for (part, rows) in self.head.parts(Holds::Spans) {
            let (place, others) = rest.split_at_mut(rows);
            places.push((part, place));
            rest = others;
        }
        // report the first damaged row group in file order
        let results: Vec<Read<()>> =
            places.into_par_iter().map(|(part, place)| self.read_spans(part, place)).collect();
        results.into_iter().collect::<Read<()>>()?;
        let mut ranges = Vec::with_capacity(rows(Holds::Ranges));
        let parts: Vec<_> = self.head.parts(Holds::Ranges).collect();
        let read: Vec<Read<Vec<Range>>> =
            parts.into_par_iter().map(|(part, rows)| self.read_ranges(part, rows)).collect();
        for part in read {
            ranges.append(&mut part?);
        }
        Ok((spans, ranges))
    }

    fn read_spans(&self, part: Part<'_>, into: &mut [Span]) -> Read<()> {
        let bytes = self.bytes(&part)?;
        inside(|| columns::spans(bytes, &part, &self.head, into))
    }

    fn read_ranges(&self, part: Part<'_>, rows: usize) -> Read<Vec<Range>> {
        let bytes = self.bytes(&part)?;
        inside(|| columns::ranges(bytes, &part, &self.head, rows))
    }

    fn bytes(&self, part: &Part<'_>) -> Read<Vec<u8>> {
        let mut bytes = vec![0; part.length];
        self.file.read_exact_at(&mut bytes, part.offset)?;
        if part.group.is(&bytes) { Ok(bytes) } else { Err(Problem::changed()) }
    }
}

#[derive(Debug)]
pub(super) enum Problem {
    Io(std::io::Error),
    Foreign(String),
    Damaged(String),
    Older(u32),
    Newer(u32, String),
}

pub(super) type Read<T> = std::result::Result<T, Problem>;

impl Problem {
    pub(super) fn of(self, path: &Path) -> Error {
        let shown = path.display();
        match self {
            Self::Io(error) => Error::io(path)(error),
            Self::Foreign(what) => Error::input_help(
                format!("{shown}: not a Ladderscope trace: {what}"),
                "a trace is what `run --trace FILE` writes; others can be imported with `ladderscope trace convert IN OUT`",
            ),
            Self::Damaged(what) => Error::input_help(
                format!("{shown}: damaged trace: {what}"),
                "record it again, or copy it again from where it was whole",
            ),
            Self::Older(version) => Error::input_help(
                format!(
                    "{shown}: trace format {version} is older than {FORMAT_VERSION} and no longer read"
                ),
                "record it again: traces of that format were never part of a release",
            ),
            Self::Newer(version, what) => Error::input_help(
                format!(
                    "{shown}: trace format {version} is newer than {FORMAT_VERSION}, which this version reads: {what}"
                ),
                "read it with the version of ladderscope that wrote it",
            ),
        }
    }
}

impl From<PolarsError> for Problem {
    fn from(error: PolarsError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the Parquet parser; reports a panic as damage.
pub(super) fn inside<T>(work: impl FnOnce() -> Read<T>) -> Read<T> {
    contained(work).unwrap_or_else(|panic| {
        Err(Problem::Damaged(format!("the Parquet data make no sense ({panic})")))
    })
}
