//! Clocks: the resolution of `%globaltimer`, on which emulated collectives wait and from which kernels take time stamps;
//! and synchronization of a rank's events with its host's CLOCK_MONOTONIC, and of that with rank 0's host.
//!
//! CUDA only reports the time between two events (f32 ms). So a rank records an event, waits for it, and reads the host clock
//! before and after: the event is in between. The shortest of many round trips is the most precise. A second measurement at the
//! end gives the drift between device and host clock.

use std::time::Duration;

use serde::Serialize;

use crate::comm::PingPong;
use base::error::Result;
use base::statistics::median;
use machine::driver::{Function, Gpu, Launch, Stream, arguments};

const TICKS: u32 = 64;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tick {
    /// Median tick (ns).
    pub ns: f64,
    /// Longest tick (ns).
    pub longest_ns: f64,
}

impl Tick {
    /// Measures the clock on `stream` with the `clock_probe` kernel of `kernels/measure.cu`.
    pub fn measure(gpu: &Gpu, stream: &Stream, kernel: &Function) -> Result<Self> {
        let out = gpu.allocate(8 * u64::from(TICKS), "the ticks of a clock")?;
        stream.launch(kernel, &Launch::flat(1, 1), &mut arguments![out.ptr(), TICKS])?;
        stream.synchronize_within(LIMIT)?;
        let mut times = vec![0u64; TICKS as usize];
        out.download(0, bytemuck::cast_slice_mut(&mut times))?;
        Ok(Self::of(&times))
    }

    fn of(times: &[u64]) -> Self {
        let steps: Vec<f64> =
            times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect();
        Self { ns: median(&steps).unwrap_or(0.0), longest_ns: steps.iter().copied().fold(0.0, f64::max) }
    }
}

/// Host clock (ns) before an event was recorded and after it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    pub before_ns: i64,
    pub after_ns: i64,
}

/// Host time with its maximum error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tie {
    pub at_ns: i64,
    /// Maximum error in both directions (ns).
    pub uncertainty_ns: i64,
}

impl RoundTrip {
    /// Midpoint of the round trip, plus or minus half its length.
    pub fn tie(&self) -> Tie {
        let length = (self.after_ns - self.before_ns).max(0);
        Tie { at_ns: self.before_ns + length / 2, uncertainty_ns: length - length / 2 }
    }

    /// Index and tie of the shortest round trip; `None` without any.
    pub fn best(trips: &[Self]) -> Option<(usize, Tie)> {
        let (at, trip) =
            trips.iter().enumerate().min_by_key(|(_, trip)| trip.after_ns - trip.before_ns)?;
        Some((at, trip.tie()))
    }
}

/// Mapping from a rank's own time (ns since its first tied event) to the host's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    start: Tie,
    /// Host nanoseconds per device nanosecond.
    rate: f64,
    uncertainty_ns: i64,
    drift_ns: i64,
}

impl Timeline {
    /// Builds a timeline from two tied events, `device_ns` apart on the device. Corrects a drift only if it
    /// exceeds the uncertainty of the ties.
    pub fn between(start: Tie, end: Tie, device_ns: i64) -> Self {
        let drift_ns = (end.at_ns - start.at_ns) - device_ns;
        let explained = start.uncertainty_ns + end.uncertainty_ns;
        if device_ns <= 0 || drift_ns.abs() <= explained {
            // error at the end: the drift plus the uncertainty of the second tie
            let uncertainty_ns = start.uncertainty_ns.max(end.uncertainty_ns + drift_ns.abs());
            return Self { start, rate: 1.0, uncertainty_ns, drift_ns };
        }
        let rate = (end.at_ns - start.at_ns) as f64 / device_ns as f64;
        let uncertainty_ns = start.uncertainty_ns.max(end.uncertainty_ns);
        Self { start, rate, uncertainty_ns, drift_ns }
    }

    /// Converts a device time to the host's clock.
    pub fn host_ns(&self, device_ns: i64) -> i64 {
        self.start.at_ns + (device_ns as f64 * self.rate).round() as i64
    }

    /// Maximum error in both directions (ns).
    pub fn uncertainty_ns(&self) -> i64 {
        self.uncertainty_ns
    }

    /// Drift of the host's clock ahead of the device's between the two ties (ns).
    pub fn drift_ns(&self) -> i64 {
        self.drift_ns
    }
}

/// Offset to add to a peer's clock to get this host's, from the fastest of many answers (as in NTP, RFC 5905,
/// section 8). `None` without answers.
pub fn rank_tie(answers: &[PingPong]) -> Option<Tie> {
    let offset = |a: &PingPong| {
        let here = RoundTrip { before_ns: a.sent, after_ns: a.received }.tie();
        Tie { at_ns: here.at_ns - a.theirs, uncertainty_ns: here.uncertainty_ns }
    };
    answers.iter().map(offset).min_by_key(|tie| tie.uncertainty_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_the_usual_step() {
        assert_eq!(Tick::of(&[0, 1024, 2048, 3072, 9216]), Tick { ns: 1024.0, longest_ns: 6144.0 });
        assert_eq!(Tick::of(&[5]), Tick { ns: 0.0, longest_ns: 0.0 });
    }
}
