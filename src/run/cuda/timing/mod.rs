//! What times of operations are made of: parts of a step that events stand around, clocks that are tied to one another.
//!
//! Kernels say themselves when they ran ([`crate::cuda::engine::Stamps`]). CUDA events stand where they take no
//! kernel's early start: around collectives on a stream of their own. `--recorder events` also puts them around modules
//! on the compute stream, between which kernels then lose theirs; what that costs is in the record.

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
