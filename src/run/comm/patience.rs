//! Waiting for another thread: spinning for a moment, then sleeping.
//!
//! Waking a thread that sleeps takes tens of microseconds, on virtual machines more; what a rank waits for comes within
//! a few. Where others need the core, spinning would only keep them from it.

use std::time::{Duration, Instant};

/// How long whoever waits spins: the time in which ranks that do the same drift apart, with some to spare.
const SPIN: Duration = Duration::from_micros(200);

/// How long whoever waits spins before it sleeps. By default it sleeps at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    spin: Duration,
}

impl Patience {
    /// For threads that have a core of their own: 200 us.
    pub fn of_own_core() -> Self {
        Self { spin: SPIN }
    }

    /// Waits until `done`; whoever makes it so must also end `sleep`, which may end without cause.
    pub fn wait(self, mut done: impl FnMut() -> bool, mut sleep: impl FnMut()) {
        if self.spins(&mut done) {
            return;
        }
        while !done() {
            sleep();
        }
    }

    /// Spins; whether it is done.
    pub fn spins(self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        if self.spin.is_zero() {
            return false;
        }
        let until = Instant::now() + self.spin;
        while Instant::now() < until {
            // reading the clock takes as long as a few of these
            for _ in 0..16 {
                std::hint::spin_loop();
                if done() {
                    return true;
                }
            }
        }
        false
    }
}
