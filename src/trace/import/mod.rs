//! Traces that other profilers recorded.
//!
//! [`open()`] recognises a file by its content. Importers read what is in the files and say in an
//! [`ImportReport`](super::ImportReport) what they left; then the [rules](super::rules) say what is
//! communication.

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
