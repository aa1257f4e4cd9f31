//! Building blocks of operation times: clocks, segments of a step bracketed by events, and stamps of kernels.
//!
//! Kernels write their own time stamps ([`Stamps`]). CUDA events are used only where they prevent no early start: around
//! collectives on their own stream. `--recorder events` also places them around modules on the compute stream, which prevents
//! early starts between them; the record states the cost.

mod clock;
pub(super) mod collectives;
mod parts;
mod stamps;
pub(super) mod stopwatch;
#[cfg(test)]
mod tests;

pub use clock::{RoundTrip, Tick, Tie, Timeline, rank_tie};
pub use parts::{Marks, OperationTime, Part, Parts, Skeleton};
pub use stamps::Stamps;
