//! The cpu backend: real decoding, one compute and one communication thread a rank.
//!
//! | file | what it is for |
//! |---|---|
//! | `backend` | what the rest of the house knows of this backend |
//! | `engine` | starts the ranks' threads, hands each its weights, ends all when one dies |
//! | `rank` | executes a plan's operations on one rank |
//! | `lane` | the communication thread |
//! | `placement` | which core each thread runs on |
//! | `program` | a plan made ready: buffers, waits, weights |
//! | `kernels`, `attention`, `quantize` | the arithmetic |
//! | `run` | timed samples for a record and a trace |
//! | `generate` | tokens from a checkpoint |

pub(super) mod attention;
mod backend;
mod engine;
mod generate;
pub(super) mod kernels;
mod lane;
mod placement;
mod program;
mod quantize;
mod rank;
mod run;
mod watch;

pub(in crate::run) use attention::RopeTable;
pub use backend::CpuBackend;
pub use kernels::{FEW_ROWS, Kernels};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod variant_tests;
