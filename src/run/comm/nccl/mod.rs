//! NCCL, loaded at run time. Functions and structures follow `nccl.h` from version 2.18 on; later versions are
//! compatible.

mod chosen;
mod communicator;
mod library;
mod types;

pub use chosen::{Chosen, DEBUG_FILE, DEBUG_VARIABLES, NVLS, chosen, variables};
pub use communicator::Communicator;
pub use library::{Nccl, Probe, probe};
pub use types::UniqueId;

#[cfg(test)]
mod tests;
