//! Communication: all-reduces between threads of one process, the emulated link, and control messages between ranks
//! in threads or processes (rendezvous, report gathering, abort).

mod group;
mod link;
pub mod nccl;
mod peers;
mod pipe;
mod progress;

pub use group::{Broken, Exchange, Exchanged, Group, SpinWait};
pub use link::EmulatedLink;
#[cfg(fuzzing)]
pub use peers::read_any_message;
pub use peers::{Late, Meeting, Peers, PingPong, Secret};
pub use pipe::Pipe;
pub use progress::{Progress, start_watchdog};
