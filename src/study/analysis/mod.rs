//! Analysis of traces and records.
//!
//! All functions are pure: spans or records in, numbers out. For traces, [`trace_report()`] computes everything that
//! `overlap` prints and [`critical_path()`] what the end of a step waited for; both use the lane unions of
//! [`trace::overlap`]. For records, [`pareto()`] finds frontiers and [`compare()`] matched pairs with intervals
//! ([`base::statistics`]); a [`RunTable`] arranges records for sorting, filtering ([`filter`]) and export.

mod apart;
mod arrivals;
mod clocks;
mod collectives;
mod compare;
mod conversion;
mod critical;
mod dependencies;
mod experts;
mod exposed;
pub mod filter;
mod gain;
mod gate;
mod grid;
mod idle;
#[cfg(test)]
mod imported_step_tests;
mod matched;
mod names;
mod noise;
mod operations;
mod outer_ranges;
#[cfg(test)]
mod overlap_tests;
mod pareto;
mod products;
#[cfg(test)]
mod profile_events;
mod ranges;
mod report;
pub mod run_list;
mod run_table;
mod sets;
mod side_by_side;
mod steps;
mod trainings;

pub use arrivals::{Arrival, RankArrivals, Stragglers, estimated_skew};
pub use clocks::{Clocks, StepAlignment, clocks, tie_clocks, untied_clocks};
pub use collectives::{CollectiveRow, GroupOverlap, collectives_table, group_overlap_table};
pub(crate) use compare::fastest;
pub use compare::{
    Axis, AxisCount, CONTENTION, Cells, Comparison, ComparisonReport, DIFFERENCES, DifferenceRow, Flag,
    FlagKind, Gaps, HeatAxes, HeatCell, HeatMap, HeatSlice, HeatValue, LEAST_DIFFERENCE,
    MeasureComparison, PairVerdict, Pivot, PivotRow, REST, RatioSoFar, Reasons, Side,
    SignificanceAdjustment, UNSET, beaten_limit, benjamini_hochberg, common_settings, compare,
    compared_rows, difference_rows_table, differences_table, first_equal, is_beaten_by_noise, less_work,
    no_limit, pairs_table, pivot_table, ratio_so_far, slices, slices_over,
};
pub use conversion::{
    Conversion, ConversionCandidate, ConversionPoint, ConversionReport, Origins, RandomSetSummary,
    SetSeries, Unconverted, alone, carried_over, comparators, extended, ordered,
};
pub use critical::{
    PathPart, PathReason, PathStep, PathSummary, critical_path, knows_dependencies, path_summary,
};
pub use dependencies::{Dependencies, Dependency, dependencies};
pub use experts::{ExpertLoads, ExpertTimes, RankExperts, experts_table};
pub use exposed::{
    ExposedStretch, ExposedStretches, NextCompute, StretchFamily, exposed_stretches, stretches_table,
};
pub use gain::{GainGroup, GainMark, GainPoint, gains};
pub(crate) use gain::{GroupKey, group_names};
pub use gate::{Gate, GateOutcome, GateReport, GateRow, gate_table, judge};
pub use grid::{GridCell, GridRow, MeasuredGrid};
pub use idle::IdleSplit;
pub(crate) use idle::{WindowRank, WindowTimes, window_times};
pub use matched::{CollectiveArrivals, CollectiveMatching, MatchObstacle, MatchedCollective};
pub(crate) use names::over_layers;
pub use names::{
    LaneTotal, NameRow, OperationTable, OperatorRow, TimePart, lane_totals, names_table,
    operation_table, time_parts, totals_of,
};
pub use noise::{WideRounds, is_measured_apart, noise_forecast, overload, wide_rounds};
pub(crate) use noise::{inconclusive, is_of_debug_build, load_words, slow_limit};
pub use operations::{
    ComputeTimes, OperationDifference, OperationDifferences, OperationFamily, OperationShare,
    operation_differences,
};
pub use pareto::{
    AreaGained, AreaOptions, AtLimit, Axes, BestAtLimit, BestWithin, LEAST_CELLS, NearMiss,
    OVERLAY_COLUMNS, OverlayPoint, PUBLISHED, ParetoLayout, ParetoPoint, PublishedValue, Series, XAxis,
    YAxis, area_gained, areas_table, at_limits, best_within, frontier, frontier_on, frontier_steps,
    limits_table, mark, out_of_memory, pareto, pareto_on, parse_overlay, points_table, published,
    published_of, read_overlay, relate_points, round_limits, split_group_names, with_setting,
};
pub use products::{Mfu, ProductRow, Products, products_table};
pub use ranges::{RangeRow, layer_of};
pub use report::{GroupRow, LayerRow, TraceReport, layers_of_steps, ranks_table, trace_report};
pub use run_table::{RunCell, RunTable, RunTableColumn, SortKeys};
pub use sets::{CellSet, Varied, comparable, differ_in_model, joined_labels, settings};
pub use side_by_side::{
    ComparedSide, Decoding, Difference, MeasureValues, SideBySide, rest_name, side_by_side,
};
pub use steps::{StepSummary, StepTime, UNKNOWN_WORK, mixed_steps, steps, steps_table, typical_step};
pub(crate) use steps::{step_extents, step_windows};
pub use trainings::{
    ArchitectureCurve, ComparedTrainings, CurvePoint, TrainingSet, compared_trainings, one_training_set,
    training_sets,
};
