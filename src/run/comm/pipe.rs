//! Transfers from a rank of one pipeline stage to the same rank of the next.
//!
//! A send moves a copy of the data into a queue and returns; a receive waits for the oldest entry. With an emulated
//! link, data arrives only after the link's time, one transfer at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::group::Broken;
use super::link::{EmulatedLink, Occupancy};
use crate::recorder::Clock;

/// Interval at which a waiting receiver looks for failed ranks.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct Pipe {
    queue: (Sender<Sent>, Receiver<Sent>),
    link: Option<EmulatedLink>,
    /// Stage that sends, and the number of stages.
    stage: (u32, u32),
    clock: Clock,
    /// Margin by which a sleep must end before the link completes (ns).
    early_ns: i64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    occupancy: Occupancy,
    broken: Option<Broken>,
}

/// Data on its way.
#[derive(Debug)]
struct Sent {
    buffer: Vec<f32>,
    /// Arrival (ns).
    arrives: i64,
}

impl Pipe {
    /// `stage` is the stage that sends, of how many.
    pub fn new(link: Option<EmulatedLink>, stage: (u32, u32), clock: Clock) -> Self {
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
        let _ = self.queue.0.send(Sent { buffer, arrives });
        arrives.max(self.clock.now())
    }

    /// Waits for the oldest message. Returns [`Broken`] if a rank has left.
    pub fn receive(&self) -> Result<Vec<f32>, Broken> {
        loop {
            match self.queue.1.recv_timeout(LOOK) {
                Ok(Sent { buffer, arrives }) => {
                    if self.link.is_some() {
                        self.clock.sleep_until(arrives, self.early_ns);
                    }
                    return Ok(buffer);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(broken) = &state.broken {
                        return Err(broken.clone());
                    }
                }
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
        state.broken.get_or_insert_with(|| Broken(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_and_not_before_the_link_lets_them() {
        let clock = Clock::start();
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
        let pipe = Pipe::new(None, (0, 2), Clock::start());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pipe.receive());
            pipe.abort("rank 1 panicked");
            pipe.abort("another reason");
            assert_eq!(waits.join().unwrap().unwrap_err(), Broken("rank 1 panicked".into()));
        });
        pipe.send(vec![1.0], 4);
        pipe.drain();
        assert!(pipe.receive().is_err());
    }
}
