//! Emulated link: all-reduce latency over a given interconnect.
//!
//! An all-reduce starts when its last rank has arrived; the link does one transfer at a time, in issue order. Its
//! latency is `alpha + message bytes / bandwidth` (message, not bus, bytes), or the hardware profile's latency for
//! the message size, including measured points.

use std::sync::Arc;

use serde_json::{Value, json};

use machine::hardware::{CollectiveCost, CollectiveScale, Profile};
use table::{Collective, P2p};

#[derive(Clone, Debug)]
pub enum EmulatedLink {
    /// Constant latency plus constant bandwidth.
    Formula {
        alpha_us: f64,
        /// Message bandwidth (1e9 bytes/s).
        gb_s: f64,
    },
    Profile {
        profile: Arc<Profile>,
        p2p: P2p,
        tp: u32,
    },
}

impl EmulatedLink {
    fn cost(&self) -> CollectiveCost<'_> {
        match self {
            Self::Formula { alpha_us, gb_s } => {
                CollectiveCost::Formula { alpha_us: *alpha_us, gb_s: *gb_s }
            }
            Self::Profile { profile, p2p, tp } => {
                profile.collective(Collective::Nccl, *p2p, *tp, CollectiveScale::ALONE).0
            }
        }
    }

    pub fn us(&self, bytes: u64) -> f64 {
        self.cost().us(bytes as f64).0
    }

    /// Latency of a reduce-scatter or all-gather, half of an all-reduce (us).
    pub fn half_us(&self, bytes: u64) -> f64 {
        self.cost().half_us(bytes as f64).0
    }

    /// Latency of a transfer from a pipeline stage (of how many) to the next (us).
    pub fn transfer_us(&self, (stage, pp): (u32, u32), bytes: u64) -> f64 {
        match self {
            Self::Formula { alpha_us, gb_s } => alpha_us + bytes as f64 / (gb_s * 1e3),
            Self::Profile { profile, p2p, tp } => {
                let links = profile.transfers(*p2p, (*tp, pp));
                links.get(stage as usize).map_or(0.0, |link| link.us(bytes as f64))
            }
        }
    }

    /// Thread blocks (CTAs) that a collective occupies, if known.
    pub fn blocks(&self) -> Option<u32> {
        self.cost().ctas(0.0)
    }

    pub fn describe(&self) -> Value {
        match self {
            Self::Formula { alpha_us, gb_s } => json!({ "alpha_us": alpha_us, "gb_s": gb_s }),
            Self::Profile { profile, p2p, .. } => {
                json!({ "profile": profile.name, "p2p": p2p, "note": self.cost().note() })
            }
        }
    }
}

/// Time from which the link is free (ns); it does one transfer at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Occupancy {
    free_at: i64,
}

impl Occupancy {
    /// Issues a transfer of `lasts_ns` whose last rank arrived at `arrived` (ns); returns its completion time.
    pub(super) fn issue(&mut self, arrived: i64, lasts_ns: i64) -> i64 {
        self.free_at = arrived.max(self.free_at) + lasts_ns;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_queue_in_issue_order() {
        let mut occupancy = Occupancy::default();
        assert_eq!(occupancy.issue(0, 15_000), 15_000);
        // arrives while the first is under way: waits for it
        assert_eq!(occupancy.issue(1_000, 10_000), 25_000);
        // arrives after: starts at once
        assert_eq!(occupancy.issue(100_000, 10_000), 110_000);
    }

    #[test]
    fn a_profiles_link_takes_what_was_measured_of_a_message() {
        let profile = Arc::new(Profile::load("h100_sxm").expect("built in"));
        for p2p in [P2p::On, P2p::Off] {
            let link = EmulatedLink::Profile { profile: Arc::clone(&profile), p2p, tp: 8 };
            let table = if p2p == P2p::On { &profile.link.p2p_on } else { &profile.link.p2p_off };
            let formula = |bytes: u64| {
                let (alpha_us, gb_s) = profile.link(p2p, 8);
                alpha_us + bytes as f64 / gb_s / 1e3
            };
            // a decode step's message, a prefill's, and one between
            for bytes in [16_384, 1 << 20, 1 << 24] {
                assert!(
                    (link.us(bytes) - table.alone_us(8, bytes as f64)).abs() < 1e-9,
                    "{p2p} {bytes}"
                );
            }
            let far = (formula(1 << 24) / link.us(1 << 24) - 1.0).abs();
            assert!(far > 0.05, "{p2p}: a formula would do, at {far}");
            assert!(link.half_us(1 << 20) < link.us(1 << 20));
        }
    }
}
