//! Overlap of a trace's lanes: unions of intervals, by rank and in all.

mod breakdown;
pub mod intervals;
mod lanes;
mod report;
mod runs;

pub use breakdown::BreakdownRow;
pub(crate) use breakdown::{Cell, Tally};
pub(crate) use lanes::Lanes;
pub use report::{Nanoseconds, OverlapReport, RankOverlap, decode_overlap, exposed_intervals, overlap};
pub(crate) use report::{summarise, us};
pub(crate) use runs::{Class, Run, Runs, is_memory};
pub use runs::{Selection, StepKey, origin_ns};
