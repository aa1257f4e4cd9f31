//! Edits of an experiment's text. Each returns a new text with a minimal change: comments, order and formatting stay,
//! including comments of removed entries. [`super::Experiment::from_str`] validates the result and reports line and
//! column.

mod change;
mod names;
mod outline;
mod revisions;
mod splice;
#[cfg(test)]
mod tests;
mod written;

pub use change::{Edit, apply};
pub use names::{AxisName, NcclVariable, axis_names, nccl, split_values};
pub use outline::{Entry, EntryKind, Outline};
pub use revisions::Revisions;
