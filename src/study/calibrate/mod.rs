//! Calibration: the few free constants of a stack and its links, fit to measured runs.
//!
//! Least squares over logarithms of latencies, decode and prefill apart, by Levenberg and Marquardt with
//! bounds; intervals from the curvature at the optimum; errors on data that a fit has not seen by leaving
//! out one TP, and one batch size, at a time. One evaluation of all points costs some milliseconds.

mod data;
mod fit;
mod inspector;
mod nccl_tests;
mod parameters;
mod traced;
mod validate;

pub use data::{Point, of_records, read_csv};
pub use fit::{Constant, Fit, fit};
pub use inspector::{Inspected, inspector_files, read_inspector};
pub use nccl_tests::AllReduces;
pub use parameters::{PARAMETERS, Parameter};
pub use traced::all_reduces_of;
pub use validate::{Errors, Held, Residual, cross_validate, errors, residuals};

#[cfg(test)]
mod tests;
