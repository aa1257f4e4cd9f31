//! Nsight Systems: imports the SQLite files of `nsys export --type sqlite`.
//!
//! GPU rows (kernels, copies, fills) become spans, with one rank per process and device. Host calls
//! provide the launch time, matched by process and correlation id; NVTX provides ranges and step
//! numbers. `database` reads tables of any version, `gpu` and `host` parse their contents, `assemble` builds
//! the trace, and `join` merges several files.

mod assemble;
mod database;
mod gpu;
mod host;
mod import;
mod join;
mod kernel;
#[cfg(test)]
mod tests;

pub(super) use import::import;

/// Parts of a recording in the tables' terms, for other importers of CUPTI's records.
pub(super) mod parts {
    pub(in crate::import) use super::assemble::{Parts, assemble};
    pub(in crate::import) use super::gpu::{Event, Gpu, Place};
    pub(in crate::import) use super::host::{HostRange, HostRanges, Launch, Launches};
    pub(in crate::import) use super::import::Notes;
}
pub(super) use kernel::kernel;
