//! Trace-driven what-if: replays the steps of a trace with another architecture, another all-reduce, or both.
//!
//! | file | purpose |
//! |---|---|
//! | `steps` | finds steps, layers and their collectives, and each rank's times between them |
//! | `foreign` | finds the same in foreign traces, from the repetition of kernels, and the layer of every span |
//! | `split` | steps in the sequence of a rank's collectives, by the kernels before each |
//! | `stretch` | kernels between two collectives: work, and waiting for the host |
//! | `wire` | plan of an architecture with measured times |
//! | `collective` | latency of another all-reduce and missing message sizes, from a hardware profile |
//! | `choice` | changes to predict |
//! | `answer` | rewires every step: medians, intervals, speedups, as a table; one rewired step as spans |

mod answer;
mod choice;
mod collective;
mod foreign;
mod split;
mod steps;
mod stretch;
#[cfg(test)]
mod tests;
mod wire;

pub use answer::{PREDICTION_ERROR, RewireAnswer, RewiredTimes, Rewiring, answers_table, beneath};
pub use choice::{RewireChoice, Setting};
pub use collective::{UnknownSize, estimate_messages};
pub(crate) use foreign::LayerTimes;
pub use steps::{LAUNCH_BOUND, LayerCollectives, RecordedCollective, RecordedSteps, StepSelection};
