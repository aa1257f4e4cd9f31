//! Kernels of `kernels/*.cu`, compiled for the current GPU at first use and cached on disk.
//!
//! | file | contents |
//! |---|---|
//! | `sources` | units and the constants each needs |
//! | `nvrtc` | NVIDIA's runtime compiler |
//! | `compile` | unit to cubin: options, errors |
//! | `cache` | cache keys of cubins |
//! | `geometry` | launch geometry of most kernels |
//! | `attention`, `matvec` | launch geometry of the kernels whose speed depends on it |

pub mod attention;
mod cache;
mod compile;
pub mod geometry;
pub mod matvec;
mod nvrtc;
mod ready;
mod sources;
#[cfg(test)]
mod tests;

pub use nvrtc::Nvrtc;
pub use ready::{Ahead, Compiled, KernelOptions, Kernels, Source};
