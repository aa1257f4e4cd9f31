//! Calibration: fits the few free constants of a stack and its links to measured runs.
//!
//! Bounded Levenberg-Marquardt least squares over logarithms of latencies, decode and prefill separately.
//! Intervals come from the curvature at the optimum; errors on unseen data come from leaving out one TP, or
//! one batch size, at a time. Evaluating all points once takes a few milliseconds.

mod fit;
mod inspector;
mod nccl_tests;
mod points;
mod traced;

pub use fit::{Constant, Fit, PARAMETERS, Parameter, fit};
pub use inspector::{Inspected, inspector_files, read_inspector};
pub use nccl_tests::AllReduces;
pub use points::{
    Errors, Held, Point, Residual, cross_validate, errors, of_records, read_csv, residuals,
};
pub use traced::all_reduces_of;

#[cfg(test)]
mod tests;
