//! Edits of an experiment's text. Each yields a new text in which only what was meant has changed:
//! comments, order and formatting stay, also the comments of what is removed. Whether the result is a
//! valid experiment is [`super::Experiment::from_str`]'s to say, with line and column.

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
