//! Overlap of a trace's lanes, per rank and in total, from unions of intervals.

mod breakdown;
pub mod intervals;
mod lanes;
mod replays;
mod report;
mod runs;

pub use breakdown::{BreakdownRow, Cell, Exposure, Tally};
pub use lanes::{Lanes, LanesBuilder};
pub use replays::Replays;
pub use report::{
    Nanoseconds, OverlapReport, RankOverlap, decode_overlap, exposed_intervals, overlap, summarise, us,
};
pub use runs::{Class, Run, Runs, Selection, StepKey, origin_ns};
