//! Comparison of cells that differ along one axis: ratios and their significance.

mod cells;
mod comparison;
mod heat;
mod matching;
mod pivot;
mod table;

pub use cells::{Cells, compare};
pub use comparison::{
    Adjusted, AxisCount, Comparison, ComparisonReport, Flag, LEAST_DIFFERENCE, Measured, Side, Verdict,
    beaten_limit, benjamini_hochberg, compared_rows, is_beaten_by_noise, less_work, no_limit,
};
pub use heat::{Gaps, HeatCell, HeatMap, HeatSlice, HeatValue, Reasons, slices};
pub use matching::first_equal;
pub(super) use matching::{Label, Matching, Pair, PooledCell, parts};
pub(crate) use pivot::fastest;
pub use pivot::{Axis, Pivot, PivotRow, UNSET, pivot_table};

pub use table::{differences_table, pairs_table, told_table};

#[cfg(test)]
mod tests;
