//! NCCL, loaded at run time: a small table of its functions, a blocking communicator whose every
//! wait a watchdog ends, and what NCCL says of its own choices.
//!
//! The functions and structures are those of `nccl.h` from version 2.18 on; later versions keep them.

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
