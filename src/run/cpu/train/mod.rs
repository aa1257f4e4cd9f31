//! Training on this machine's cores, for any architecture, from its plan ([`plan::TrainingPlan`]).
//!
//! | file | purpose |
//! |---|---|
//! | `program` | compiled training plan: parameters, buffer lifetimes |
//! | `pass`, `derivatives` | one rank's forward and backward pass over windows |
//! | `attention`, `loss` | arithmetic in f32, and in f64 for finite-difference checks |
//! | `adamw` | optimizer |
//! | `trainer` | steps: replicas of ranks, gradient sums, parameters |
//! | `peak` | this machine's GEMM peak, the baseline for training speed |

mod adamw;
mod attention;
mod derivatives;
mod loss;
mod pass;
mod peak;
mod program;
#[cfg(test)]
mod tests;
mod trainer;

pub use adamw::Optimiser;
pub use arithmetic::Lost;
pub use peak::gemm_peak;
pub use trainer::{Setup, Stepped, Trainer};
