//! Analysis: overlap, breakdown, statistics, Pareto frontiers, comparison.
//!
//! Everything here is pure: spans or records in, numbers out. [`intervals`] and [`statistics`] are the
//! ground. At traces look [`overlap()`], [`trace_report()`] and [`critical_path()`], all of them through
//! runs of spans (`runs`) and the unions of each rank's lanes (`lanes`); at records look [`metrics()`],
//! [`pareto()`] and [`compare()`]; a [`RunTable`] lays records out for sorting, filtering ([`filter`]) and export.

mod breakdown;
mod compare;
mod critical;
mod difference;
pub mod filter;
mod flags;
mod idle;
pub mod intervals;
mod lanes;
mod metrics;
mod overlap;
mod pareto;
mod ranges;
mod report;
mod run_table;
mod runs;
#[cfg(test)]
pub(crate) mod sample_data;
mod side_by_side;
pub mod statistics;
mod steps;
mod stragglers;

pub use breakdown::BreakdownRow;
pub use compare::{AXES, Comparison, ComparisonReport, compare};
pub use critical::{PathPart, PathStep, PathSummary, Why, critical_path};
pub use difference::Difference;
pub use idle::IdleSplit;
pub use metrics::{aggregate, metrics, stalls};
pub use overlap::{Nanoseconds, OverlapReport, RankOverlap, decode_overlap, exposed_intervals, overlap};
pub use pareto::{ParetoPoint, frontier, pareto};
pub use ranges::{RangeRow, layer_of};
pub use report::{GroupRow, LayerRow, TraceReport, trace_report};
pub use run_table::{Cell as RunCell, Column, Field, RunTable, SortKeys, Unit, natural_order};
pub use runs::{Selection, origin_ns};
pub use side_by_side::{Measure, SideBySide, side_by_side};
pub use steps::{StepSummary, steps};
pub use stragglers::{Arrival, RankArrivals, Stragglers};
