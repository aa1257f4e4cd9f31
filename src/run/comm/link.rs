//! The emulated link: what an all-reduce would take over a given interconnect.
//!
//! An all-reduce starts when its last rank has arrived; one transfer at a time, in issue order. What it takes is
//! `alpha + message bytes / bandwidth` (message, not bus, bytes), or what a hardware profile says of a message of so
//! many bytes, its measured points included.

use std::sync::Arc;

use serde_json::{Value, json};

use machine::hardware::{CollectiveCost, CollectiveScale, Profile};
use table::{Collective, P2p};

/// An interconnect that is not there.
#[derive(Clone, Debug)]
pub enum EmulatedLink {
    /// A link of one latency and one bandwidth.
    Formula {
        /// Latency of one all-reduce (us).
        alpha_us: f64,
        /// Message bandwidth (1e9 bytes a second).
        gb_s: f64,
    },
    /// NCCL's all-reduce on the hardware of a profile.
    Profile {
        /// The profile whose links are emulated.
        profile: Arc<Profile>,
        /// Whether its GPUs talk directly.
        p2p: P2p,
        /// How many ranks sum.
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

    /// Duration of one all-reduce of `bytes` message bytes (us).
    pub fn us(&self, bytes: u64) -> f64 {
        self.cost().us(bytes as f64).0
    }

    /// Duration of one half of it, a reduce-scatter or an all-gather (us).
    pub fn half_us(&self, bytes: u64) -> f64 {
        self.cost().half_us(bytes as f64).0
    }

    /// Thread blocks that a collective occupies, where that is known.
    pub fn blocks(&self) -> Option<u32> {
        self.cost().ctas()
    }

    /// For records: where its times come from.
    pub fn describe(&self) -> Value {
        match self {
            Self::Formula { alpha_us, gb_s } => json!({ "alpha_us": alpha_us, "gb_s": gb_s }),
            Self::Profile { profile, p2p, .. } => {
                json!({ "profile": profile.name, "p2p": p2p, "note": self.cost().note() })
            }
        }
    }
}

/// When the link is free again; one transfer at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Occupancy {
    free_at: i64,
}

impl Occupancy {
    /// Issues a transfer that takes `lasts_ns`, whose last rank arrived at `arrived` (ns); returns when it completes.
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
