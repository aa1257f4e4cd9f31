//! Import of other profilers' traces.
//!
//! [`open()`] detects formats by content. Importers report what they ignored in an
//! [`ImportReport`](super::ImportReport); then the [rules](super::rules) classify communication.

mod archive;
mod directory;
mod enclosing;
mod formats;
mod input;
mod kernel;
pub mod kineto;
pub mod nsight;
mod open;
mod rank;
mod recognise;
mod steps;
#[cfg(test)]
mod tests;
mod times;
mod unpack;

pub use kernel::{Kernel, files, kernel};
pub use open::{open, open_recording, open_with};
pub use recognise::is_trace;
pub use steps::{StepName, step_name};
