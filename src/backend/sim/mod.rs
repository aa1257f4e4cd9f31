//! The simulator: discrete events over the plan, on lanes, with roofline and alpha-beta costs.
//!
//! Nothing here knows architectures: it executes the same plans as the other backends, and only the
//! clock is arithmetic. Ranks are alike, so one is simulated and stands for all.

mod cost;
mod lanes;
mod overlap;
mod run;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use run::{run, simulate};
