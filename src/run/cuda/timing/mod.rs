//! Building blocks of operation times.
//!
//! Kernels write their own time stamps (`super::instrumented::Stamps`). CUDA events are used only where they prevent no
//! early start:
//! around collectives on their own stream. `--recorder events` also places them around modules on the compute stream,
//! which prevents early starts between them; the record states the cost.
//!
//! | file | contents |
//! |---|---|
//! | `clock` | clocks of host and device, and a stopwatch on a stream |
//! | `parts` | segments of a step that are timed as one |
//! | `marks` | CUDA events that bracket them |
//! | `collectives` | events around collectives, in every timed step |

pub(super) mod clock;
pub(super) mod collectives;
mod marks;
mod parts;

pub use clock::{ClockMapping, RoundTrip, Tick, Tie, rank_tie};
pub use marks::{Bracket, EventIndex, StepEvents};
pub use parts::{Skeleton, StreamSegment, StreamSegments};

#[cfg(test)]
mod tests;
