//! The CUDA driver: thin, safe to hold, errors instead of panics. Everything is loaded at run time.
//!
//! Objects hold their [`Gpu`], which holds the primary context: nothing outlives what it needs, and
//! what is dropped is freed in its own context, after captures, with errors swallowed.
//!
//! Every call may fail with the driver's name and text of its `CUresult`, and, where that is known, with
//! what to do about it. GPUs work asynchronously, and the driver tells of a kernel that failed at
//! whatever call comes next: so any call here may return an error of earlier work. Such an error (an
//! illegal address, a failed launch) costs the process its context: the GPU is unusable for this process
//! from then on. What a function's own documentation names are the failures that it has besides.

mod answer;
mod api;
mod capture;
mod event;
pub mod functions;
mod gpu;
mod graph;
mod green;
pub mod libraries;
mod memory;
mod module;
mod stream;
mod wait;

pub use answer::code;
pub use api::{OLDEST, version, version_text};
pub use event::Event;
pub use gpu::{Gpu, GpuInfo, Peer, any_abandoned};
pub use graph::{Graph, GraphExec};
pub use green::Divided;
pub use memory::{DevicePtr, Memory};
pub use module::{Arguments, Function, Launch, Module};
pub use stream::{Priority, Stream};
