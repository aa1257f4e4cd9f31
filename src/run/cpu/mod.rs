//! The cpu backend: real decoding, each rank a thread, or several.
//!
//! | file | what it is for |
//! |---|---|
//! | `backend` | what the rest of the house knows of this backend |
//! | `engine` | starts the ranks' threads, hands each its weights, ends all when one dies |
//! | `rank` | executes a plan's operations on one rank |
//! | `lane` | the comm lane: collectives under way |
//! | `team` | the other threads of a rank |
//! | `placement` | which core each thread runs on |
//! | `program` | a plan made ready: buffers, waits, weights |
//! | `kernels`, `attention`, `quantize` | the arithmetic; its loops are in the crate `arithmetic` |
//! | `run` | timed samples for a record and a trace |
//! | `generate` | tokens from a checkpoint |
//! | `evaluate`, `evaluate_work` | quality of architectures on a text, and what groups of ranks take of it |
//! | `loss` | its arithmetic: likelihood, divergence, agreement |
//! | `train` | training, forwards and backwards |

pub(super) mod attention;
mod backend;
mod engine;
mod evaluate;
mod evaluate_work;
mod generate;
pub(super) mod kernels;
mod lane;
mod loss;
mod placement;
mod program;
mod quantize;
mod rank;
mod run;
mod team;
pub mod train;
mod watch;

pub use arithmetic::Real;
pub use arithmetic::product::{InstructionSet, Panels};
pub(crate) use attention::RopeTable;
pub use backend::CpuBackend;
pub use kernels::Kernels;
#[cfg(test)]
pub(crate) use quantize::quantize;

use base::error::{Error, Result};
use plan::DType;

/// Errors for a format of weights that this backend does not compute with.
fn refuse_f16(dtype: DType) -> Result<()> {
    match dtype {
        DType::F16 => Err(Error::input_help(
            "the cpu backend does not compute with f16 weights",
            "use f32, bf16 or fp8",
        )),
        DType::F32 | DType::Bf16 | DType::Fp8 => Ok(()),
    }
}

#[cfg(test)]
mod evaluate_tests;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod variant_tests;
