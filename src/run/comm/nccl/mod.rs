//! NCCL, loaded at run time. Functions and structures follow `nccl.h` from version 2.18 on; later versions are
//! compatible.

mod communicator;
mod library;

pub use communicator::{Chosen, Communicator, DEBUG_FILE, DEBUG_VARIABLES, NVLS, chosen, variables};
pub use library::{Nccl, Probe, UniqueId, probe};

#[cfg(test)]
mod tests;
