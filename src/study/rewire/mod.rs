//! Trace-driven what-if: replays the steps of a trace with another architecture, another all-reduce, or both.
//!
//! | file | purpose |
//! |---|---|
//! | `steps` | finds steps, layers and their all-reduces, and each rank's times between them |
//! | `foreign` | finds the same in foreign traces, from repetition |
//! | `period` | finds step boundaries and repeating layers in a foreign trace |
//! | `stretch` | kernels between two all-reduces: work, and waiting for the host |
//! | `wire` | plan of an architecture with measured times |
//! | `collective` | latency of another all-reduce, from a hardware profile |
//! | `message` | estimates missing message sizes, from a hardware profile |
//! | `answer` | rewires every step: medians, intervals, speedups |
//! | `beneath` | one rewired step as spans, shown under the original |
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
