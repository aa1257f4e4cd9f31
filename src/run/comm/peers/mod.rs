//! Control messages between the ranks of one run: barrier, gather to rank 0, broadcast from rank 0, and abort.
//!
//! Ranks are threads of one process or processes over TCP, behind the same interface. Messages go between rank 0 and
//! each other rank (a star); they are small and rare (an id, reports, spans), and never part of a measurement. Every
//! wait ends: when the others arrive, when a rank aborts, dies or leaves, or when the awaited rank shows no progress
//! for the timeout.

mod mailbox;
mod meet;
mod secret;
mod star;
#[cfg(test)]
mod tests;
mod wire;

pub use meet::{Late, Meeting};
pub use secret::Secret;
pub use star::{Peers, PingPong};
#[cfg(fuzzing)]
pub use wire::read_any_message;
