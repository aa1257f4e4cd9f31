//! Communication: all-reduces between the threads of one process, the emulated link, and what ranks in
//! threads or processes say to each other besides (meeting, gathering reports, giving up together).

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
