//! The ranks of one run, as one of them sees them: barrier, gather to rank 0, broadcast from rank 0,
//! and an end for all when one fails.
//!
//! Ranks are threads of one process or processes over TCP; both look alike from here. Messages go
//! between rank 0 and each other rank (a star): small things (an id, reports, spans), rarely; never
//! what is measured. Every wait ends: when the others have come, when a rank gives up, dies or leaves,
//! or when a rank that is waited for has shown no progress for the time-out.

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
