//! Training on this machine's cores: any architecture, from its plan ([`plan::TrainingPlan`]).
//!
//! | file | what it is for |
//! |---|---|
//! | `program` | a training plan made ready: parameters, lifetimes of buffers |
//! | `pass`, `derivatives` | one rank's forward and backward pass over windows |
//! | `attention`, `loss` | the arithmetic, in f32, and in f64 for checks by finite differences |
//! | `adamw` | the optimiser |
//! | `trainer` | steps: replicas of ranks, sums of gradients, parameters |
//! | `peak` | how fast this machine multiplies large matrices, which training is held against |

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
