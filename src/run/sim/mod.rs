//! Simulator: discrete events over the plan's lanes, with costs from latency tables and links.
//!
//! It executes the same plans as the other backends and knows no architectures. Identical ranks are simulated once;
//! with skew each rank is. A cell costs O(steps x operations), with skew O(steps x operations x ranks^2). Identical
//! steps (with a static KV cache) are simulated once and counted repeatedly.

mod cell;
mod cost;
mod durations;
mod lane_times;
mod lanes;
mod link;
mod pipeline;
mod quantities;
mod ranks;
mod routing;
mod serving;
mod simulator;
mod skew;

#[cfg(test)]
mod collective_tests;
#[cfg(test)]
mod expert_tests;
#[cfg(test)]
mod export_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use cell::{LatencyPrediction, PredictedSpan, PredictedStep, QUEUED_NOTE, SimulatedCell};
pub use link::{
    COLLECTIVE_NOTE, LINK_WARNING, LinkTimes, all_reduce_us, link_problem, link_times, link_warning,
    p2p_of, switches_in_words,
};
pub use serving::ServingLatency;
pub use simulator::{CellPlans, SimBackend, Simulator};
pub use skew::{MeasuredOperations, ReplayedOperation, replay};
