//! Nsight Systems: the SQLite files that `nsys export --type sqlite` writes.
//!
//! GPU rows (kernels, copies, fills) become spans, a rank for each process and device; host calls give the
//! time when each was launched, by process and correlation id; NVTX becomes ranges and step numbers.
//! `database` reads tables whatever their version, `gpu`, `launches` and `ranges` what is in them,
//! `assemble` puts them together, `join` several files.

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
