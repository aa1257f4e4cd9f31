//! Monotonic clock of a run, shared by all its threads.

use std::time::{Duration, Instant};

/// Monotonic clock (CLOCK_MONOTONIC on Linux) with its own zero. Reading it costs about 25 ns.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Nanoseconds since [`Clock::start`].
    #[inline]
    pub fn now(&self) -> i64 {
        self.zero.elapsed().as_nanos() as i64
    }

    /// Sleeps until `at` (ns); returns at once if that has passed. Sleeps wake late by tens of microseconds, more on
    /// virtual machines, so it sleeps `early_ns` less and yields the core for the rest.
    pub fn sleep_until(&self, at: i64, early_ns: i64) {
        let left = at - self.now() - early_ns;
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
        while self.now() < at {
            std::thread::yield_now();
        }
    }

    /// Median overshoot (ns, at most 100 us) of 100 us sleeps on this thread. Takes about 5 ms.
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

/// Disables timer slack for this thread (Linux adds 50 us by default).
pub fn precise_sleep() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
