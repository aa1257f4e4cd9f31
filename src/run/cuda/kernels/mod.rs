//! The kernels of `kernels/*.cu`: compiled for the GPU at hand when they are first asked for, kept on disk.
//!
//! | file | what it is for |
//! |---|---|
//! | `sources` | the units and what each needs to be told |
//! | `nvrtc` | NVIDIA's compiler, loaded at run time |
//! | `compile` | from a unit to a cubin: options, errors |
//! | `cache` | cubins on disk |
//! | `geometry` | how many blocks and threads each kernel is launched with |
//! | `attention`, `matvec` | the same for those where it decides their speed |

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
