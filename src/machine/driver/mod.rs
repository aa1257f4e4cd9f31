//! Thin, safe wrapper of the CUDA driver, loaded at run time; errors instead of panics.
//!
//! Resources hold their [`Gpu`] and thereby the primary context, so nothing outlives what it needs.
//! Drops free in the right context, after captures, and ignore errors.
//!
//! Errors carry the driver's name and text of the `CUresult`, plus advice where available. GPUs are
//! asynchronous: the driver reports a failed kernel at a later call, so every call here may return an
//! error of earlier work. After such an error (illegal address, failed launch) this process cannot use
//! the GPU any more. The documentation of each function lists only its additional errors.

mod api;
pub mod functions;
mod gpu;
mod graph;
pub mod libraries;
mod memory;
mod module;
mod stream;

pub use api::{OLDEST_DRIVER, code, version, version_text};
pub use gpu::PartitionedGpu;
pub use gpu::{Gpu, GpuInfo, Peer, any_abandoned};
pub use graph::{Graph, GraphExec};
pub use memory::{DevicePtr, Memory};
pub use module::{Argument, Arguments, Function, Launch, Module, arguments};
pub use stream::{Event, Priority, Stream};
