//! Environment of a run: machine, software, clocks and variables, collected once per run.
//!
//! Values come from `/proc`, `/sys` and the driver at run time; unknown ones are null, never guessed.

mod collect;

pub use collect::{Sampled, after_gpus, available_memory, binary_hash, collect, cpu_name, load};
