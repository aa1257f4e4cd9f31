//! Validation of the simulator against published measurements.
//!
//! A data set is a pair of files, most in `sets/`: a TOML file with source, setup and unknowns of the
//! measurements, and their rows as CSV. A score holds the errors of all rows and their means.

mod left_out;
mod nearest;
mod score;
mod set;

pub use left_out::{LeftOut, left_out};
pub(crate) use nearest::{Changes, rewired_error};
pub use nearest::{nearest_error, nearest_errors};
pub use score::{NotRun, RankOrder, Residual, ReversedPair, Score, Worst, card, orders_table};
pub use set::{DataSet, Group, Measure, Measured, Overrides, Run, ServedRow, Slice};

#[cfg(test)]
mod tests;
