//! Cpu backend: real decoding, with one or more threads per rank.
//!
//! | file | purpose |
//! |---|---|
//! | `backend` | the backend's interface |
//! | `engine` | starts the ranks' threads, hands each its weights, stops all when one fails |
//! | `rank` | executes a plan's operations on one rank, with its collectives in flight |
//! | `operations` | executes one compute operation |
//! | `team` | other threads of a rank |
//! | `placement` | the core of each thread |
//! | `program` | compiled plan: buffers, waits, weights |
//! | `kernels`, `attention` | arithmetic; its loops are in the crate `arithmetic` |
//! | `experts` | mixtures of experts |
//! | `run` | timed samples for a record and a trace; tokens from a checkpoint |
//! | `evaluate` | quality of architectures on a text, and its work queue |
//! | `loss` | likelihood, divergence, agreement |
//! | `train` | training: forward and backward passes |

pub(super) mod attention;
mod backend;
mod engine;
mod evaluate;
pub(super) mod experts;
pub(super) mod kernels;
mod loss;
mod operations;
mod placement;
mod program;
mod rank;
mod run;
mod team;
pub mod train;
mod watch;

pub use arithmetic::Real;
pub use arithmetic::product::{InstructionSet, Panels};
pub(crate) use attention::RopeTable;
pub use backend::CpuBackend;
pub use kernels::{CpuKernels, quantize};

#[cfg(test)]
mod evaluate_tests;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod mixture_tests;
#[cfg(test)]
mod pipeline_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod variant_tests;
