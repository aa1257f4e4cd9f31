//! Traces of the PyTorch profiler (Kineto): Chrome JSON, plain or packed, one file or one a rank. What JAX (`jax`) and
//! rocprofv3 (`rocprof`) write becomes the events that PyTorch's profiler would have written.
//!
//! The road of a file: it is unpacked, `split` cuts it into pieces of whole events by their
//! brackets (`blocks`, 64 bytes at a time), threads parse the pieces (`pipeline`, `event` by
//! `event`) into rows of numbers (`table`), `link` finds each kernel's launch and step,
//! `assemble` gives ranks and order. JSON is never held whole; times never touch a floating-point number. A file with
//! broken events is read a second time, event by event (`recover`).
//!
//! The scanner is our own because it knows what to pass over: on profiles of an A100 and a B200 the whole
//! import on one thread took a third of the time that sonic-rs takes to parse the same bytes to the fields
//! needed, and a sixth of simd-json's.

mod assemble;
mod blocks;
mod collective;
mod event;
mod intern;
mod jax;
mod kernel;
mod link;
mod number;
mod open;
mod operations;
mod parts;
mod pipeline;
mod ranks;
mod recover;
mod report;
mod rocprof;
mod scan;
mod shapes;
mod split;
mod table;
#[cfg(test)]
mod tests;
mod top;

pub(super) use kernel::kernel;
pub(super) use open::import_files;
pub use open::{Options, import_bytes};
pub(super) use top::glance;
