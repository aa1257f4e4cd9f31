//! Executes schedules on one GPU for one or several local ranks. Loads weights, captures a decode step once
//! and replays it, or enqueues steps eagerly.
//!
//! | file | contents |
//! |---|---|
//! | `setup` | engine settings, memory check |
//! | `link` | calibration of emulated collectives |
//! | `products` | matrix products of a step, latency of their layers |
//! | `stamps` | time stamps written by kernels |
//! | `step` | steps: bound to memory, captured, replayed or enqueued |
//!
//! All methods run on one thread. Enqueued work is asynchronous: [`Engine::wait`] waits for it with a timeout
//! and watches for the death of other ranks.

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
