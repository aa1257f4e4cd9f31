//! Reading a trace: every way in which it can be broken is an error that says what is broken.
//!
//! Row groups are read, checked and decoded on all cores, each into its place. Nothing is mapped: what
//! was checked is what is decoded, even if another program writes to the file meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rayon::prelude::*;

use super::decode;
use super::footer::FooterBytes;
use super::groups::Holds;
use super::head::{Head, Part};
use super::problem::{Problem, Read, inside};
use crate::{FORMAT_VERSION, OperationInfo, Range, Span, Trace, TraceMeta, memory};
use base::error::{Error, Result};

/// Reads a whole trace file into memory, on all cores.
///
/// # Errors
///
/// An input error for a file that is no trace, that is damaged or cut short (with what is damaged), or
/// that is of a newer format (with its version); a failure for one that needs more than the memory limit.
pub fn read(path: &Path) -> Result<Trace> {
    read_file(File::open(path).map_err(Error::io(path))?, path)
}

/// Reads a whole trace file that is open, and which messages call `path`. Fails like [`read`].
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

/// Reads only metadata and operations. What it does not read, it does not check.
///
/// # Errors
///
/// An input error for a file that is no trace, whose footer is damaged, or that is of a newer format.
pub fn read_meta(path: &Path) -> Result<(TraceMeta, Vec<OperationInfo>)> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let head = read_head(&mut file).map_err(|problem| problem.of(path))?;
    Ok((head.meta, head.operations))
}

/// What the footer says, checked.
fn read_head(file: &mut File) -> Read<Head> {
    let footer = FooterBytes::locate(file)?;
    footer.check()?;
    inside(|| Head::read(&footer))
}

/// A trace file whose spans and ranges are still to be read.
struct Reader {
    file: File,
    head: Head,
}

impl Reader {
    /// Reads all row groups, on all cores.
    fn all(&self) -> Read<(Vec<Span>, Vec<Range>)> {
        let rows = |holds| self.head.parts(holds).map(|(_, rows)| rows).sum::<usize>();
        let mut spans = Vec::new();
        // so, all cores share the first touch of what may be much memory
        rayon::iter::repeat_n(Span::EMPTY, rows(Holds::Spans)).collect_into_vec(&mut spans);
        let mut places = Vec::new();
        let mut rest = spans.as_mut_slice();
        for (part, rows) in self.head.parts(Holds::Spans) {
            let (place, others) = rest.split_at_mut(rows);
            places.push((part, place));
            rest = others;
        }
        // the first wrong one in file order is the one to be told of
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
        inside(|| decode::spans(bytes, &part, &self.head, into))
    }

    fn read_ranges(&self, part: Part<'_>, rows: usize) -> Read<Vec<Range>> {
        let bytes = self.bytes(&part)?;
        inside(|| decode::ranges(bytes, &part, &self.head, rows))
    }

    /// The bytes of a row group, checked.
    fn bytes(&self, part: &Part<'_>) -> Read<Vec<u8>> {
        let mut bytes = vec![0; part.length];
        self.file.read_exact_at(&mut bytes, part.offset)?;
        if part.group.is(&bytes) { Ok(bytes) } else { Err(Problem::changed()) }
    }
}
