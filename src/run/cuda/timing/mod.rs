//! Building blocks of operation times: segments of a step bracketed by events, and synchronized clocks.
//!
//! Kernels write their own time stamps ([`crate::cuda::engine::Stamps`]). CUDA events are used only where
//! they prevent no early start: around collectives on their own stream. `--recorder events` also places them
//! around modules on the compute stream, which prevents early starts between them; the record states the
//! cost.

mod clock;
mod marks;
mod parts;
mod skeleton;
#[cfg(test)]
mod tests;

pub use clock::{RoundTrip, Tie, Timeline, rank_tie};
pub use marks::Marks;
pub use parts::{Part, Parts};
pub use skeleton::{OperationTime, Skeleton};
