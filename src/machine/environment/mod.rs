//! Environment of a run: machine, software, clocks and variables, collected once per run.
//!
//! Values come from `/proc`, `/sys` and the driver at run time; unknown ones are null, never guessed.

mod collect;
mod gpu;
mod machine;
mod software;

pub use collect::{after_gpus, available_memory, collect};
pub use gpu::Sampled;
pub use machine::{cpu_name, load};
pub use software::binary_hash;
