//! One clock: from a rank's events to CLOCK_MONOTONIC of its host, and from there to rank 0's host.
//!
//! An event has no time of day; only the time between two events is known (f32 milliseconds). So a
//! rank records an event, waits for it and looks at the clock before and after: the event was somewhere
//! between. Of many such round trips the shortest says most. The same is done at the end, which shows
//! by how much the device's clock ran faster or slower than the host's.

use crate::comm::PingPong;

/// The host's clock (ns) before an event was recorded and after it was known to have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The host's clock before the event was recorded (ns).
    pub before_ns: i64,
    /// The host's clock after the event was known to have happened (ns).
    pub after_ns: i64,
}

/// A host time and by how much it may be wrong, to either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tie {
    /// The event's time on the host's clock (ns).
    pub at_ns: i64,
    /// At most so far from it (ns).
    pub uncertainty_ns: i64,
}

impl RoundTrip {
    /// When the event was, on the host's clock: in the middle of the round trip, give or
    /// take half of it.
    pub fn tie(&self) -> Tie {
        let length = (self.after_ns - self.before_ns).max(0);
        Tie { at_ns: self.before_ns + length / 2, uncertainty_ns: length - length / 2 }
    }

    /// The shortest of several, and which it is. `None` without any.
    pub fn best(trips: &[Self]) -> Option<(usize, Tie)> {
        let (at, trip) =
            trips.iter().enumerate().min_by_key(|(_, trip)| trip.after_ns - trip.before_ns)?;
        Some((at, trip.tie()))
    }
}

/// From a rank's own time (ns since its first tied event) to the host's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    start: Tie,
    /// Host nanoseconds per device nanosecond.
    rate: f64,
    uncertainty_ns: i64,
    drift_ns: i64,
}

impl Timeline {
    /// From two tied events, `device_ns` apart on the device. A difference of rates beyond what the ties' uncertainty
    /// explains is corrected for; below it the clocks are taken to run alike.
    pub fn between(start: Tie, end: Tie, device_ns: i64) -> Self {
        let drift_ns = (end.at_ns - start.at_ns) - device_ns;
        let explained = start.uncertainty_ns + end.uncertainty_ns;
        if device_ns <= 0 || drift_ns.abs() <= explained {
            // at the end a time is off by the drift and by what the second tie leaves open
            let uncertainty_ns = start.uncertainty_ns.max(end.uncertainty_ns + drift_ns.abs());
            return Self { start, rate: 1.0, uncertainty_ns, drift_ns };
        }
        let rate = (end.at_ns - start.at_ns) as f64 / device_ns as f64;
        let uncertainty_ns = start.uncertainty_ns.max(end.uncertainty_ns);
        Self { start, rate, uncertainty_ns, drift_ns }
    }

    /// The host's time of a moment of the device.
    pub fn host_ns(&self, device_ns: i64) -> i64 {
        self.start.at_ns + (device_ns as f64 * self.rate).round() as i64
    }

    /// By how much times may be wrong, to either side (ns).
    pub fn uncertainty_ns(&self) -> i64 {
        self.uncertainty_ns
    }

    /// By how much the host's clock ran ahead of the device's between the two ties (ns).
    pub fn drift_ns(&self) -> i64 {
        self.drift_ns
    }
}

/// What to add to a peer's clock to have this host's, from the quickest of many answers (as in NTP,
/// RFC 5905, section 8); `at_ns` is the offset. `None` without any.
pub fn rank_tie(answers: &[PingPong]) -> Option<Tie> {
    let offset = |a: &PingPong| {
        let here = RoundTrip { before_ns: a.sent, after_ns: a.received }.tie();
        Tie { at_ns: here.at_ns - a.theirs, uncertainty_ns: here.uncertainty_ns }
    };
    answers.iter().map(offset).min_by_key(|tie| tie.uncertainty_ns)
}
