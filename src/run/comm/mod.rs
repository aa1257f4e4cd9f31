//! Communication: all-reduces between threads of one process, the emulated link, and control messages between ranks
//! in threads or processes (rendezvous, report gathering, abort).

mod group;
mod link;
pub mod nccl;
mod patience;
mod peers;
mod progress;

pub use group::{Broken, Exchange, Exchanged, Group};
pub use link::EmulatedLink;
pub use patience::Patience;
#[cfg(fuzzing)]
pub use peers::read_any_message;
pub use peers::{Late, Meeting, Peers, PingPong, Secret};
pub use progress::Progress;
