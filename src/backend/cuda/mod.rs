//! The `cuda` backend: the same plans on NVIDIA GPUs.
//!
//! CUDA is always compiled in and loaded at run time: nothing here needs a driver until it is used,
//! and then its absence is an error that says what to do.

pub mod blas;
pub mod driver;
pub mod measure;
pub mod nvml;
