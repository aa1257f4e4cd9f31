//! The trace file: Parquet through Polars, streaming, renamed into place when whole.

use std::path::Path;

use super::{OperationInfo, Span, Trace, TraceMeta};
use crate::error::Result;

/// Writes a trace streaming.
#[derive(Debug)]
pub struct TraceWriter {
    _todo: (),
}

impl TraceWriter {
    /// Starts writing beside `path`.
    pub fn create(path: &Path, meta: &TraceMeta, operations: &[OperationInfo]) -> Result<Self> {
        let _ = (path, meta, operations);
        todo!()
    }

    /// Appends spans.
    pub fn write(&mut self, spans: &[Span]) -> Result<()> {
        let _ = spans;
        todo!()
    }

    /// Writes the footer and renames the file into place.
    pub fn finish(self) -> Result<()> {
        todo!()
    }
}

/// Writes a whole trace.
pub fn write(path: &Path, trace: &Trace) -> Result<()> {
    let mut writer = TraceWriter::create(path, &trace.meta, &trace.operations)?;
    writer.write(&trace.spans)?;
    writer.finish()
}

/// Reads a trace file; errors name the file, the column and what would be right.
pub fn read(path: &Path) -> Result<Trace> {
    let _ = path;
    todo!()
}

/// Reads only metadata and operations.
pub fn read_meta(path: &Path) -> Result<(TraceMeta, Vec<OperationInfo>)> {
    let _ = path;
    todo!()
}
