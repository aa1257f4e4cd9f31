//! Waiting for another thread: spin briefly, then sleep. Waking a thread takes tens of microseconds, more on virtual
//! machines, while the other rank usually arrives within a few. If threads share cores, spinning would only delay the
//! others.

use std::time::{Duration, Instant};

/// Spin time: the usual drift between ranks that do the same work, plus a margin.
const SPIN: Duration = Duration::from_micros(200);

/// Spin time before a waiting thread sleeps; zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    spin: Duration,
}

impl Patience {
    pub fn of_own_core() -> Self {
        Self { spin: SPIN }
    }

    /// Waits until `done` returns true. Code that makes it true must also end `sleep`, which may wake spuriously.
    pub fn wait(self, mut done: impl FnMut() -> bool, mut sleep: impl FnMut()) {
        if self.spins(&mut done) {
            return;
        }
        while !done() {
            sleep();
        }
    }

    /// Spins; returns true if `done` was reached.
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
