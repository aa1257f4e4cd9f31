//! Analysis: overlap, breakdown, statistics, Pareto frontiers, comparison.
//!
//! Everything here is pure: spans or records in, numbers out. [`intervals`] and [`statistics`] are the
//! ground; [`overlap()`] and the breakdown look at traces; [`metrics()`], [`pareto()`] and [`compare()`]
//! look at records; [`table`] lays records out for sorting and export.

mod breakdown;
mod compare;
mod flags;
pub mod intervals;
mod metrics;
mod overlap;
mod pareto;
#[cfg(test)]
pub(crate) mod sample_data;
pub mod statistics;
pub mod table;

pub use breakdown::BreakdownRow;
pub use compare::{AXES, Comparison, ComparisonReport, compare};
pub use metrics::{aggregate, metrics, stalls};
pub use overlap::{
    OverlapReport, RankOverlap, Selection, StepSummary, decode_overlap, exposed_intervals, origin_ns,
    overlap, steps,
};
pub use pareto::{ParetoPoint, frontier, pareto};
