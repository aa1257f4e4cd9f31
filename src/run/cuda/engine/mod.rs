//! Executes schedules on one GPU for one or several local ranks: loads what they need, captures a decode
//! step once, replays it; or enqueues it eagerly.
//!
//! | file | what it is for |
//! |---|---|
//! | `setup` | what an engine is made from, and whether it will fit |
//! | `link` | emulated collectives held against the link's own times |
//! | `products` | the products of a step, and what their layers take |
//! | `stamps` | when kernels ran, as they say themselves |
//! | `step` | steps: bound to memory, captured, replayed or enqueued |
//!
//! All methods belong to one thread. What is enqueued is not waited for: [`Engine::wait`] does that, with
//! a limit, and looks meanwhile whether another rank has died.

mod device;
mod link;
mod products;
mod setup;
mod stamps;
mod step;

use device::PhaseState;
pub use device::{Alive, Engine};
pub use link::{Checked, LinkCheck};
pub(super) use setup::first_sums;
pub use setup::{Local, Programs, Setup, lacks};
pub use stamps::Stamps;
pub use step::{Step, Timing};
