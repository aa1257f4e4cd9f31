//! Launch details of one kernel, read from the profiler's file on demand: traces do not store them.

use super::files;
use super::formats::Reader;
use super::input::InputFile;
use super::recognise::recognise;
use crate::Trace;
use base::error::Result;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLaunch {
    /// Grid size in blocks: x, y, z.
    pub grid: Option<[i64; 3]>,
    /// Block size in threads: x, y, z.
    pub block: Option<[i64; 3]>,
    pub correlation: Option<i64>,
    /// Host call that launched the kernel: `cudaLaunchKernel`.
    pub call: Option<String>,
    /// Framework operator around the call, or the innermost NVTX range: `aten::mm`.
    pub operator: Option<String>,
}

/// Kernel whose launch is looked up in a profiler's file.
#[derive(Clone, Debug)]
pub(super) struct KernelQuery<'a> {
    pub name: &'a str,
    /// Start and end in the trace (ns).
    pub time: (i64, i64),
    pub stream: i64,
}

/// Reads the launch details of a span (an index into the trace) from the imported files. Returns `None`
/// if they do not have it or no longer exist. Reads each file about twice. Returns an error if a file
/// cannot be read.
pub fn kernel(trace: &Trace, span: usize) -> Result<Option<KernelLaunch>> {
    let Some(span) = trace.spans.get(span) else { return Ok(None) };
    let (operation, stream) = (
        trace.operations.get(span.operation as usize),
        trace.meta.streams.get(usize::from(span.stream)),
    );
    let (Some(operation), Some(stream)) = (operation, stream) else { return Ok(None) };
    let wanted =
        KernelQuery { name: &operation.name, time: (span.start_ns, span.end_ns), stream: stream.id };
    let files = files(trace);
    let Some(first) = files.first() else { return Ok(None) };
    match recognise(&InputFile::from_path(first))?.reader() {
        Reader::Importer(importer) => (importer.kernel)(&files, &wanted),
        _ => Ok(None),
    }
}
