//! Communication: all-reduces between the threads of one process, and the emulated link.

mod group;
mod link;

pub use group::{Broken, Group, Reduced};
pub use link::EmulatedLink;
