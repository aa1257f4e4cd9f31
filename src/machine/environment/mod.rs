//! What a sceptic asks for: machine, software, clocks, variables; collected once a run.
//!
//! Everything is asked of `/proc`, `/sys` and the driver at the moment of the run; what cannot be known
//! is null, never guessed.

mod collect;
mod gpu;
mod machine;
mod software;

pub use collect::{after_gpus, available_memory, collect};
pub use gpu::Sampled;
pub use machine::cpu_name;
pub use software::binary_hash;
