//! Instrumented pass of a run: after the undisturbed samples, one more generation with timed operations. It
//! yields the trace, the overlap, and the overhead of timing.
//!
//! Each rank times its own GPU on its own host's clock; rank 0 gathers the timings and converts them to its
//! own clock.

mod activity;
mod events;
mod gather;
mod pass;
mod ranks;
mod stamps;

pub(super) use pass::{Context, Traced, run};
