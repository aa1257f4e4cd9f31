//! Training on this machine's cores, for any architecture, from its plan ([`plan::TrainingPlan`]).
//!
//! | file | purpose |
//! |---|---|
//! | `program` | compiled training plan: parameters, buffer lifetimes |
//! | `pass`, `derivatives` | one rank's forward pass over windows, loss, and backward pass |
//! | `experts` | routers and experts |
//! | `attention` | arithmetic in f32, and in f64 for finite-difference checks |
//! | `trainer` | steps: replicas of ranks, gradient sums, AdamW |
//! | `peak` | FLOP/s of matrix products on this machine |

mod attention;
mod derivatives;
mod experts;
mod pass;
mod peak;
mod program;
#[cfg(test)]
mod tests;
mod trainer;

pub use arithmetic::BatchLoss;
pub use peak::gemm_peak;
pub use trainer::{Optimiser, OptimiserStep, Trainer, TrainerSetup};
