//! The cuda backend: real decoding on NVIDIA GPUs.

pub mod program;
pub mod schedule;
