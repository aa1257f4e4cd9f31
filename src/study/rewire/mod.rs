//! Trace-driven what-if: replays the steps of a trace with another architecture, another all-reduce, or both.
//!
//! | file | purpose |
//! |---|---|
//! | `steps` | finds steps, layers and their collectives, and each rank's times between them |
//! | `foreign` | finds the same in foreign traces, from the repetition of kernels |
//! | `layers` | layers of a foreign trace, for every span |
//! | `stretch` | kernels between two collectives: work, and waiting for the host |
//! | `wire` | plan of an architecture with measured times |
//! | `collective` | latency of another all-reduce and missing message sizes, from a hardware profile |
//! | `answer` | rewires every step: medians, intervals, speedups, as a table; one rewired step as spans |

mod answer;
mod collective;
mod foreign;
mod layers;
mod steps;
mod stretch;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use answer::lanes_us;
pub use answer::{Answer, Choice, PREDICTION_ERROR, Rewiring, Setting, Times, answers_table, beneath};
pub use collective::{UnknownSize, estimate_messages};
pub(crate) use layers::LayerTimes;
pub use steps::{Asked, Ends, LAUNCH_BOUND, Reduced, Steps};
