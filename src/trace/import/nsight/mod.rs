//! Nsight Systems: imports the SQLite files of `nsys export --type sqlite`.
//!
//! GPU rows (kernels, copies, fills) become spans, with one rank per process and device. Host calls
//! provide the launch time, matched by process and correlation id; NVTX provides ranges and step
//! numbers. `database` reads tables of any version, `gpu`, `launches` and `ranges` parse their contents,
//! `assemble` builds the trace, and `join` merges several files.

mod assemble;
mod database;
mod environment;
mod gpu;
mod import;
mod join;
mod kernel;
mod launches;
mod memory;
mod nest;
mod ranges;
#[cfg(test)]
mod tests;

pub(super) use import::import;
pub(super) use kernel::kernel;
