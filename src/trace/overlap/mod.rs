//! Overlap of a trace's lanes, per rank and in total, from unions of intervals.

pub mod intervals;
mod report;
mod runs;

pub use report::{BreakdownRow, Cell, Exposure, Tally};
pub use report::{Lanes, LanesBuilder};
pub use report::{
    Nanoseconds, OverlapReport, RankOverlap, decode_overlap, exposed_intervals, overlap, summarise, us,
};
pub use runs::{Class, Run, Runs, Selection, StepKey, StepWindow, origin_ns, starts};
pub use runs::{Launches, Replays};
