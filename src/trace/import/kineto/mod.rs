//! PyTorch profiler traces (Kineto): Chrome JSON, plain or compressed, one file or one per rank. JAX
//! (`jax`) and rocprofv3 (`rocprof`) traces are converted to the equivalent events of PyTorch's
//! profiler.
//!
//! Pipeline (`open`): decompression, `split` into pieces of whole events by brackets (`blocks`, 64 bytes
//! at a time), parallel parsing (`event`, `json`) into rows of numbers (`table`) and `names`, launches and
//! steps (`link`), ranks (`parts`) and order (`assemble`). The JSON is never in memory as a whole, and
//! times are never converted to floating point. A file with broken events is read a second time, event by
//! event.
//!
//! The scanner is custom because it can skip irrelevant values: on A100 and B200 profiles the whole
//! import on one thread took a third of the time sonic-rs takes to parse the same bytes into the needed
//! fields, and a sixth of simd-json's.

mod assemble;
mod blocks;
mod event;
mod jax;
mod json;
mod kernel;
mod link;
mod names;
mod open;
mod parts;
mod rocprof;
mod split;
mod table;
#[cfg(test)]
mod tests;
mod top;

pub(super) use kernel::kernel;
pub(super) use open::import_files;
pub use open::{Options, import_bytes};
pub(super) use top::glance;
