//! Trace-driven what-if: the steps of a trace with another architecture, another all-reduce, or both.
//!
//! | file | what it does |
//! |---|---|
//! | `steps` | finds steps, layers and their all-reduces, and what every rank took between them |
//! | `foreign` | finds them in a trace that does not tell: from what repeats |
//! | `period` | where steps begin, and how many layers repeat, in a foreign trace |
//! | `stretch` | kernels between two all-reduces: what they took, and what the host kept them waiting |
//! | `wire` | the plan of an architecture with these times |
//! | `collective` | what another all-reduce would take, by a hardware profile |
//! | `message` | message sizes that a trace lacks, by a hardware profile |
//! | `answer` | every step rewired: medians, intervals, gains |
//! | `beneath` | one rewired step as spans, to be shown under the original |
//! | `table` | answers as a table |

mod answer;
mod beneath;
mod collective;
mod foreign;
mod message;
mod period;
mod steps;
mod stretch;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub use answer::{Answer, Choice, Rewiring, Setting, Times};
pub use beneath::beneath;
pub use message::estimate_messages;
pub use steps::{Asked, Reduced, Steps};
pub use table::answers_table;
pub use wire::{Losses, Wired};
