//! The one monotonic clock of a run: nanoseconds since the run began, the same for all its threads.

use std::time::{Duration, Instant};

/// A monotonic clock (CLOCK_MONOTONIC on Linux) with its own zero. Reading it costs about 25 ns.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> i64 {
        self.zero.elapsed().as_nanos() as i64
    }

    /// Sleeps until `at` nanoseconds without burning a core; returns at once if that is past.
    pub fn sleep_until(&self, at: i64) {
        let left = at - self.now();
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
    }
}
