//! The one monotonic clock of a run: nanoseconds since the run began, the same for all its threads.

use std::time::{Duration, Instant};

/// A monotonic clock (CLOCK_MONOTONIC on Linux) with its own zero. Reading it costs about 25 ns.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// A clock whose zero is this moment.
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Nanoseconds that have passed since [`Clock::start`].
    #[inline]
    pub fn now(&self) -> i64 {
        self.zero.elapsed().as_nanos() as i64
    }

    /// Sleeps until `at` nanoseconds without burning a core; returns at once if that is past. Sleeps
    /// wake late by tens of microseconds, more on virtual machines: it sleeps `early_ns` less and
    /// yields the core for the rest, so that others who want to run do.
    pub fn sleep_until(&self, at: i64, early_ns: i64) {
        let left = at - self.now() - early_ns;
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
        while self.now() < at {
            std::thread::yield_now();
        }
    }

    /// By how much sleeps of 100 us wake late on this thread: the median of a few, in ns, at most
    /// 100 us. Takes about 5 ms.
    pub fn sleep_overshoot(&self) -> i64 {
        precise_sleep();
        let wanted = 100_000;
        let mut late: Vec<i64> = (0..31)
            .map(|_| {
                let before = self.now();
                std::thread::sleep(Duration::from_nanos(wanted as u64));
                (self.now() - before - wanted).clamp(0, 100_000)
            })
            .collect();
        late.sort_unstable();
        late[late.len() / 2]
    }
}

/// Asks the kernel not to batch this thread's wake-ups (Linux adds 50 us of slack by default).
pub fn precise_sleep() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
