//! Timings of decode steps on GPUs by CUDA events, so that measuring disturbs little.
//!
//! An event between two kernels of a replayed graph may take as long as a small kernel. So a replay
//! times only one [window](Windows) of the step's operations, the next replay the next window, and
//! consecutive replays are [composed](compose()) into one step of the trace. Everything here but the
//! reading of events is arithmetic, checked without a GPU.
//!
//! *What a composed step is:* every operation's time as it was measured, in a replay in which the
//! operations before its window were not timed; windows lie where they began in their own replays.
//! *What it is not:* one execution. Replays of consecutive steps stand for one, so what differs from
//! step to step (a slow peer, a clock that changes) shows as jitter at the seams between windows, which
//! [`Seams`] reports. An overlap so recorded is not compared with one that was recorded in another way.

mod clock;
mod compose;
mod marks;
mod name;
mod place;
#[cfg(test)]
mod tests;
mod windows;

pub use clock::{RoundTrip, Tie, Timeline, rank_tie};
pub use compose::{Composed, OperationTime, Seams, Skeleton, compose};
pub use marks::{Mark, Marks};
pub use name::recorder_name;
pub use place::{Replayed, place};
pub use windows::Windows;
