//! Runs as a table made for looking: every column with each run's value and its place in the column's
//! order, so that sorting and filtering a hundred thousand runs takes milliseconds. Made once for a
//! listing; [`crate::analysis::filter`] chooses rows of it.
//!
//! What the columns are is said by [`::table::Field`]. Files hold the same columns as a Polars data
//! frame (`table::frame`); here rows are sorted and filtered by ranks instead: of 100,000 rows, on two
//! cores of an x86-64 server, Polars' eager frame took 12.3 ms to sort by a number, 6.0 ms by text in
//! natural order (a column of ranks, which it cannot make itself), 0.25 ms to filter by text and 0.14 ms by
//! a number, where ranks took 0.95, 0.56, 0.12 and 0.13 ms (medians of 21). Finding the ranks, which is
//! done once a column, takes about as long as Polars takes each time.

mod build;
mod column;
mod lower;
mod table;

pub use column::{Cell, Column};
pub(super) use column::{NOTHING, Values};
pub(super) use lower::Lower;
pub use table::{RunTable, SortKeys};

#[cfg(test)]
mod tests;
