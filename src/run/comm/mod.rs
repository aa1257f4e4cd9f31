//! Communication: all-reduces between threads of one process, the emulated link, and control messages between ranks
//! in threads or processes (rendezvous, report gathering, abort).

mod group;
mod link;
pub mod nccl;
mod peers;

pub use group::{
    Exchange, Exchanged, ProgressMonitor, RankFailure, RankGroup, SpinWait, start_watchdog,
};
pub use link::{EmulatedLink, Pipe, emulated_link};
#[cfg(fuzzing)]
pub use peers::read_any_message;
pub use peers::{LateRanks, Meeting, Peers, PingPong, Secret};
