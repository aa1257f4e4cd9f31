//! The emulated link: what an all-reduce would take over a given interconnect.
//!
//! An all-reduce starts when its last rank has arrived; one transfer at a time, in issue order; it
//! takes `alpha + message bytes / bandwidth` (message, not bus, bytes).

/// A link of one latency and one bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmulatedLink {
    /// Latency of one all-reduce (us).
    pub alpha_us: f64,
    /// Message bandwidth (1e9 bytes a second).
    pub gb_s: f64,
}

impl EmulatedLink {
    /// Duration of one all-reduce of `bytes` message bytes, in ns.
    pub fn duration_ns(&self, bytes: u64) -> i64 {
        (self.alpha_us * 1e3 + bytes as f64 / self.gb_s) as i64
    }
}

/// When the link is free again; one transfer at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Occupancy {
    free_at: i64,
}

impl Occupancy {
    /// Issues a transfer whose last rank arrived at `arrived` (ns); returns when it completes.
    pub(super) fn issue(&mut self, link: &EmulatedLink, arrived: i64, bytes: u64) -> i64 {
        self.free_at = arrived.max(self.free_at) + link.duration_ns(bytes);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_queue_in_issue_order() {
        let link = EmulatedLink { alpha_us: 10.0, gb_s: 1.0 };
        let mut occupancy = Occupancy::default();
        // 10 us + 5,000 bytes at 1 byte a nanosecond
        assert_eq!(occupancy.issue(&link, 0, 5_000), 15_000);
        // arrives while the first is under way: waits for it
        assert_eq!(occupancy.issue(&link, 1_000, 0), 25_000);
        // arrives after: starts at once
        assert_eq!(occupancy.issue(&link, 100_000, 0), 110_000);
    }
}
