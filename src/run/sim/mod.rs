//! The simulator: discrete events over the plan, on lanes, with costs from latency tables and links.
//!
//! Nothing here knows architectures: it executes the same plans as the other backends, and only the
//! clock is arithmetic. Ranks that are alike are simulated once; with skew each rank is. A cell costs
//! O(steps x operations), with skew O(steps x operations x ranks^2); steps that are alike (a static KV
//! cache) are simulated once and counted as often as there are.

mod backend;
mod cost;
mod lanes;
mod measured;
mod overlap;
mod plans;
mod predict;
mod recorder;
mod run;
mod skew;

#[cfg(test)]
mod collective_tests;
#[cfg(test)]
mod export_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use backend::SimBackend;
pub use measured::{Executed, Measured, replay};
pub use plans::{Plans, lowering};
pub use predict::{PredictedSpan, PredictedStep, Prediction, predict, predict_step};
pub use run::{
    COLLECTIVE_NOTE, LINK_WARNING, LinkTimes, all_reduce_us, link_problem, link_times, link_warning,
    simulate, simulate_plans,
};
