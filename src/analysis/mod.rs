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
mod instrumented;
pub mod intervals;
mod lanes;
mod links;
mod metrics;
mod operations;
mod overlap;
mod pareto;
mod ranges;
mod report;
mod run_table;
mod runs;
#[cfg(test)]
pub(crate) mod sample_data;
mod sets;
mod side_by_side;
pub mod statistics;
mod steps;
mod stragglers;

pub use breakdown::BreakdownRow;
pub use compare::{
    AXES, Adjusted, Axis, AxisCount, Cells, Comparison, ComparisonReport, HeatCell, HeatMap, HeatSlice,
    HeatValue, Side, UNSET, benjamini_hochberg, compare, pairs_csv, slices,
};
pub use critical::{
    PathPart, PathStep, PathSummary, Why, critical_path, knows_dependencies, path_summary,
};
pub use difference::Difference;
pub use idle::IdleSplit;
pub use instrumented::overhead;
pub use links::{Link, Links, links};
pub use metrics::{aggregate, host, metrics, recorder_kind, stalls};
pub use operations::{OperationDifference, OperationDifferences, Share, operation_differences};
pub use overlap::{Nanoseconds, OverlapReport, RankOverlap, decode_overlap, exposed_intervals, overlap};
pub use pareto::{
    AreaGained, AreaOptions, AtLimit, Axes, BestAtLimit, OVERLAY_COLUMNS, OverlayPoint, PUBLISHED,
    ParetoPoint, Series, XAxis, YAxis, area_gained, at_limits, frontier, frontier_among, frontier_on,
    mark, pareto, pareto_on, parse_overlay, points_csv, published, read_overlay, round_limits,
};
pub use ranges::{RangeRow, layer_of};
pub use report::{GroupRow, LayerRow, TraceReport, trace_report};
pub use run_table::{Cell as RunCell, Column, Field, RunTable, SortKeys, Unit, natural_order};
pub use runs::{Selection, StepKey, origin_ns};
pub use sets::{CellSet, comparable, differ_in_model};
pub use side_by_side::{Measure, SideBySide, side_by_side};
pub use steps::{StepSummary, steps};
pub use stragglers::{Arrival, RankArrivals, Stragglers};
