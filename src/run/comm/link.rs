//! Links: the emulated one of an all-reduce, and transfers between pipeline stages.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use serde_json::{Value, json};

use super::group::RankFailure;
use crate::recorder::MonotonicClock;
use base::error::{Error, Result};
use machine::hardware::{CollectiveCost, CollectiveScale, Profile};
use table::{Collective, Link, P2p, Spec};

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

/// Interval at which a waiting receiver looks for failed ranks.
const FAILED_RANK_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Numbers on their way, and the time of their arrival (ns).
type PipeMessage = (Vec<f32>, i64);

#[derive(Debug)]
pub struct Pipe {
    queue: (Sender<PipeMessage>, Receiver<PipeMessage>),
    link: Option<EmulatedLink>,
    /// Stage that sends, and the number of stages.
    stage: (u32, u32),
    clock: MonotonicClock,
    /// Margin by which a sleep must end before the link completes (ns).
    early_ns: i64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    occupancy: Occupancy,
    broken: Option<RankFailure>,
}

impl Pipe {
    /// `stage` is the stage that sends, of how many.
    pub fn new(link: Option<EmulatedLink>, stage: (u32, u32), clock: MonotonicClock) -> Self {
        let early_ns = if link.is_some() { clock.sleep_overshoot() } else { 0 };
        Self { queue: unbounded(), link, stage, clock, early_ns, state: Mutex::default() }
    }

    /// Sends a message of `bytes` bytes; returns its arrival (ns).
    pub fn send(&self, buffer: Vec<f32>, bytes: u64) -> i64 {
        let now = self.clock.now();
        let arrives = match &self.link {
            Some(link) => {
                let lasts_ns = (link.transfer_us(self.stage, bytes) * 1e3).round() as i64;
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.occupancy.issue(now, lasts_ns)
            }
            None => now,
        };
        // the pipe holds both ends, so the queue is never closed
        let _ = self.queue.0.send((buffer, arrives));
        arrives.max(self.clock.now())
    }

    /// Waits for the oldest message. Returns [`RankFailure`] if a rank has left.
    pub fn receive(&self) -> Result<Vec<f32>, RankFailure> {
        loop {
            if let Ok((buffer, arrives)) = self.queue.1.recv_timeout(FAILED_RANK_CHECK_INTERVAL) {
                if self.link.is_some() {
                    self.clock.sleep_until(arrives, self.early_ns);
                }
                return Ok(buffer);
            }
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(broken) = &state.broken {
                return Err(broken.clone());
            }
        }
    }

    /// Drops messages that nobody received: the tokens of a generation's last step.
    pub fn drain(&self) {
        while self.queue.1.try_recv().is_ok() {}
    }

    /// Makes waiting receivers return with this reason.
    pub fn abort(&self, why: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.broken.get_or_insert_with(|| RankFailure(why.to_owned()));
    }
}

/// Emulated link of an executed cell, if any: given directly or from a hardware profile. Returns an error if the
/// profile is missing or cannot be read.
pub fn emulated_link(spec: &Spec) -> Result<Option<EmulatedLink>> {
    let from_profile = |p2p: P2p| {
        if spec.hardware == "host" {
            return Err(Error::input_help(
                format!("link '{}' needs a hardware profile to take the link from", spec.link),
                "add --hardware h100_sxm, or define the link: --link emulated:alpha_us=20,gb_s=50",
            ));
        }
        let profile = Arc::new(Profile::load(&spec.hardware)?);
        if let Some(problem) = profile.link_problem(Collective::Nccl, p2p, spec.tp) {
            return Err(Error::input(format!("{}: {problem}", profile.name)));
        }
        Ok(Some(EmulatedLink::Profile { profile, p2p, tp: spec.tp }))
    };
    match spec.link {
        Link::Native => Ok(None),
        Link::P2pOn => from_profile(P2p::On),
        Link::P2pOff => from_profile(P2p::Off),
        Link::Emulated { alpha_us, gb_s } => Ok(Some(EmulatedLink::Formula { alpha_us, gb_s })),
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

    #[test]
    fn messages_arrive_in_order_and_not_before_the_link_lets_them() {
        let clock = MonotonicClock::start();
        let link = EmulatedLink::Formula { alpha_us: 2000.0, gb_s: 1.0 };
        let pipe = Pipe::new(Some(link), (0, 2), clock);
        let begun = clock.now();
        let first = pipe.send(vec![1.0], 4);
        let second = pipe.send(vec![2.0], 4);
        assert!(first - begun >= 2_000_000 && second - first >= 2_000_000, "one at a time");
        assert_eq!(pipe.receive().unwrap(), [1.0]);
        assert_eq!(pipe.receive().unwrap(), [2.0]);
        assert!(clock.now() >= second);
    }

    #[test]
    fn a_failed_rank_ends_the_wait_with_its_reason() {
        let pipe = Pipe::new(None, (0, 2), MonotonicClock::start());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pipe.receive());
            pipe.abort("rank 1 panicked");
            pipe.abort("another reason");
            assert_eq!(waits.join().unwrap().unwrap_err(), RankFailure("rank 1 panicked".into()));
        });
        pipe.send(vec![1.0], 4);
        pipe.drain();
        assert!(pipe.receive().is_err());
    }
}
