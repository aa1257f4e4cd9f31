//! Building blocks of operation times: clocks, segments of a step bracketed by events, and stamps of kernels.
//!
//! Kernels write their own time stamps ([`Stamps`]). CUDA events are used only where they prevent no early start: around
//! collectives on their own stream. `--recorder events` also places them around modules on the compute stream, which prevents
//! early starts between them; the record states the cost.

pub(super) mod clock;
pub(super) mod collectives;
mod parts;
#[cfg(test)]
mod tests;

pub use clock::{RoundTrip, Tick, Tie, Timeline, rank_tie};
pub use parts::{Marks, OperationTime, Part, Parts, Skeleton, Stamps};
