//! Validation: published measurements, predicted by the simulator and compared.
//!
//! A data set is a pair of files, most in `sets/`: a TOML file that says whose numbers they are, on what they were measured
//! and what is not known of it, and the rows as CSV. A score is the errors of all its rows, and their means.

mod card;
mod order;
mod score;
mod set;

pub use card::card;
pub use order::{RankOrder, ReversedPair, orders_table};
pub use score::{NotRun, Residual, Score};
pub use set::{DataSet, Measure, Measured, Overrides, Run};

#[cfg(test)]
mod tests;
