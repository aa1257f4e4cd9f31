//! Comparison of cells that differ along one axis: ratios and their significance.

mod adjust;
mod axis;
mod cells;
mod chosen;
mod comparison;
mod equal;
mod gaps;
mod heat;
mod label;
mod limit;
mod matching;
mod pair;
mod pivot;
mod table;

pub use adjust::{Adjusted, benjamini_hochberg};
pub use axis::{Axis, UNSET};
pub use cells::{Cells, compare};
pub use chosen::compared_rows;
pub use comparison::{
    AxisCount, Comparison, ComparisonReport, Flag, LEAST_DIFFERENCE, Measured, Side, Verdict,
};
pub use equal::first_equal;
pub use gaps::{Gaps, Reasons};
pub use heat::{HeatCell, HeatMap, HeatSlice, HeatValue, slices};
pub(super) use label::{Label, parts};
pub use limit::{beaten_limit, less_work, no_limit};
pub(super) use matching::{Matching, PooledCell};
pub(super) use pair::Pair;
pub(crate) use pivot::fastest;
pub use pivot::{Pivot, PivotRow, pivot_table};
pub use table::{differences_table, pairs_table, told_table};

#[cfg(test)]
mod tests;
