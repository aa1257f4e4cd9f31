//! The importer of Kineto traces, from a path, from several, or from bytes.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use rayon::prelude::*;

use super::assemble::{ReadFile, assemble};
use super::link::link;
use super::pipeline::{Reading, read};
use super::source::unpack;
use super::split::PIECE;
use super::top::metadata;
use crate::base::error::{Error, Result};
use crate::trace::Trace;

/// What to read besides GPU work and annotations, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keep the framework's operators (`cpu_op`) as ranges.
    pub operators: bool,
    /// Threads that parse beside the one that reads; 0 parses on that one.
    pub parsers: usize,
    /// Bytes of JSON that are parsed at once.
    pub piece: usize,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { operators: false, parsers: cores.min(8), piece: PIECE }
    }
}

/// Reads several files as one trace, a rank a file: the rank that `distributedInfo` names, else the one in
/// the file's name (`rank3`, `trace_3`), else in this order.
///
/// # Errors
///
/// An input error where no file is given, or one is no profiler's JSON (with the byte); a failure where
/// one cannot be read.
pub fn import_files(paths: &[PathBuf], options: Options) -> Result<Trace> {
    if paths.is_empty() {
        return Err(Error::input("no trace files were given"));
    }
    let files: Vec<ReadFile> = paths
        .par_iter()
        .map(|path| {
            let file = File::open(path).map_err(Error::io(path))?;
            read_file(&path.display().to_string(), file, options)
        })
        .collect::<Result<_>>()?;
    Ok(assemble(files))
}

/// Reads a trace from memory, plain or packed; `name` is what messages call it.
///
/// # Errors
///
/// An input error for text that is no profiler's JSON, with the byte, or whose elements are no trace events.
pub fn import_bytes(name: &str, bytes: &[u8], options: Options) -> Result<Trace> {
    Ok(assemble(vec![read_file(name, bytes, options)?]))
}

pub(super) fn read_file(name: &str, raw: impl Read, options: Options) -> Result<ReadFile> {
    let source = unpack(name, raw)?;
    let Options { operators, parsers, piece } = options;
    let (top, mut table) = read(name, source, Reading { parsers, piece, operators })?;
    if table.with_phase == 0 && table.events > 0 {
        return Err(Error::input_help(
            format!("{name}: none of its {} elements is a trace event with a phase (ph)", table.events),
            "expected a PyTorch profiler trace: an object with traceEvents, or an array of events",
        ));
    }
    let metadata = metadata(&top);
    let launched = link(&mut table);
    Ok(ReadFile { name: name.to_owned(), table, metadata, warnings: top.warnings, launched })
}
