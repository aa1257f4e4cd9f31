//! The instrumented pass of a run: after the samples, which nothing disturbed, one more generation in
//! which operations are timed. It gives the trace and the overlap, and says what timing cost.
//!
//! Each rank times itself on its own GPU, on its own host's clock; rank 0 gathers, and puts all on its
//! own clock.

mod activity;
mod events;
mod gather;
mod pass;
mod ranks;
mod stamps;

pub(super) use pass::{Context, Traced, run};
