//! What a profiler's file knows of one kernel beside when and where it ran. A trace does not carry it: the file
//! is looked through again, for the one kernel that somebody looks at.

use std::path::{Path, PathBuf};

use super::formats::Reader;
use super::input::Input;
use super::recognise::recognise;
use super::{kineto, nsight};
use crate::Trace;
use base::error::Result;

/// What a profiler wrote down of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Blocks of the grid: x, y, z.
    pub grid: Option<[i64; 3]>,
    /// Threads of a block: x, y, z.
    pub block: Option<[i64; 3]>,
    /// The number that links it to the host's call.
    pub correlation: Option<i64>,
    /// The host's call that launched it: `cudaLaunchKernel`.
    pub call: Option<String>,
    /// The framework's operator that made the call, or the innermost NVTX range around it: `aten::mm`.
    pub operator: Option<String>,
}

/// The kernel that is looked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub name: &'a str,
    /// Start and end (ns of the trace).
    pub time: (i64, i64),
    /// The stream's number in the file.
    pub stream: i64,
}

/// The files that a trace was imported from, where they are still there.
pub fn files(trace: &Trace) -> Vec<PathBuf> {
    let files = trace.meta.import.iter().flat_map(|import| &import.files);
    files.map(PathBuf::from).filter(|path| path.is_file()).collect()
}

/// What the imported files know of a span (its place in the trace); `None` where they do not have it, or are no
/// longer there. Reads each file about twice, whole. Fails where one of them cannot be read.
pub fn kernel(trace: &Trace, span: usize) -> Result<Option<Kernel>> {
    let Some(span) = trace.spans.get(span) else { return Ok(None) };
    let (operation, stream) = (
        trace.operations.get(span.operation as usize),
        trace.meta.streams.get(usize::from(span.stream)),
    );
    let (Some(operation), Some(stream)) = (operation, stream) else { return Ok(None) };
    let wanted = Wanted { name: &operation.name, time: (span.start_ns, span.end_ns), stream: stream.id };
    let files = files(trace);
    let Some(first) = files.first() else { return Ok(None) };
    match recognise(&Input::of(first))?.reader() {
        Reader::Events => kineto::kernel(&files, &wanted),
        Reader::Sqlite => {
            let each = files.iter().map(|path: &PathBuf| nsight::kernel(Path::new(path), &wanted));
            each.collect::<Result<Vec<_>>>().map(|found| found.into_iter().flatten().next())
        }
        _ => Ok(None),
    }
}
