//! Nsight Systems: imports the SQLite files of `nsys export --type sqlite`.
//!
//! GPU rows (kernels, copies, fills) become spans, with one rank per process and device. Host calls
//! provide the launch time, matched by process and correlation id; NVTX provides ranges and step
//! numbers. `database` reads tables of any version, `gpu` and `host` parse their contents, `assemble` builds
//! the trace, and `import` joins several files.

mod assemble;
mod database;
mod gpu;
mod host;
mod import;
#[cfg(test)]
mod tests;

use super::formats::{Importer, Mark};
use base::error::Result;

pub(super) static SQLITE: Importer = Importer {
    name: "an SQLite export of Nsight Systems",
    word: "SQLite",
    marks: &[Mark::Begins(b"SQLite format 3\0")],
    import: |mut selection| {
        let (files, chosen) = selection.choose()?;
        chosen.found(selection.recording)?;
        Ok(selection.noted(import::import(&files)?))
    },
    kernel: |files, wanted| {
        let each = files.iter().map(|path| host::kernel(path, wanted));
        each.collect::<Result<Vec<_>>>().map(|found| found.into_iter().flatten().next())
    },
    ..Importer::PLAIN
};

/// Parts of a recording in the tables' terms, for other importers of CUPTI's records.
pub(super) mod parts {
    pub(in crate::import) use super::assemble::{Parts, assemble};
    pub(in crate::import) use super::gpu::{Event, Gpu, Place};
    pub(in crate::import) use super::host::{HostRange, HostRanges, Launch, Launches};
    pub(in crate::import) use super::import::Notes;
}
