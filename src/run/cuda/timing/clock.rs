//! Clocks: of the host and the device, tied together, and a stopwatch on a stream.

use std::time::Duration;

use serde::Serialize;

use crate::comm::PingPong;
use base::error::{Error, Result};
use base::statistics::median;
use machine::driver::{DevicePtr, Function, Gpu, Launch, Stream, arguments};

const TICKS: u32 = 64;

const TIE_LIMIT: Duration = Duration::from_secs(20);

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
        stream.synchronize_within(TIE_LIMIT)?;
        let mut times = vec![0u64; TICKS as usize];
        out.download(0, bytemuck::cast_slice_mut(&mut times))?;
        Ok(Self::from_times(&times))
    }

    fn from_times(times: &[u64]) -> Self {
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

    /// Takes `count` readings of another clock between two of the host's, `now` (ns); returns the reading of the
    /// shortest round trip with its tie. `read` receives the index.
    pub fn quickest<R>(
        count: usize,
        now: impl Fn() -> i64,
        mut read: impl FnMut(usize) -> Result<R>,
    ) -> Result<(R, Tie)> {
        let (mut readings, mut trips) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for at in 0..count {
            let before_ns = now();
            readings.push(read(at)?);
            trips.push(Self { before_ns, after_ns: now() });
        }
        let (at, tie) =
            Self::best(&trips).ok_or_else(|| Error::failed("no readings to tie clocks by"))?;
        Ok((readings.swap_remove(at), tie))
    }
}

/// Mapping from a rank's own time (ns since its first tied event) to the host's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockMapping {
    start: Tie,
    /// Host nanoseconds per device nanosecond.
    rate: f64,
    /// Maximum error in both directions (ns).
    pub uncertainty_ns: i64,
    /// Drift of the host's clock ahead of the device's between the two ties (ns).
    pub drift_ns: i64,
}

impl ClockMapping {
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

/// Latency ratio below which an alternative replaces the default. Prevents noise from changing results
/// between runs.
pub(in crate::cuda) const CLEARLY: f64 = 0.98;

/// Timed rounds; the median counts.
const ROUNDS: usize = 5;

/// Minimum number of products per round, to stay above the clock's resolution.
const LEAST_PRODUCTS: usize = 8;

/// Timeout of one round.
pub(in crate::cuda) const LIMIT: Duration = Duration::from_secs(30);

/// Median latency (us) of the work `one` enqueues on `stream`, alternating between weights like layers do.
pub(in crate::cuda) fn median_us(
    gpu: &Gpu,
    stream: &Stream,
    weights: &[DevicePtr],
    mut one: impl FnMut(DevicePtr) -> Result<()>,
) -> Result<f64> {
    let products = weights.len().max(LEAST_PRODUCTS);
    rounds_us(gpu, stream, products, |at| {
        weights.get(at % weights.len().max(1)).map_or(Ok(()), |w| one(*w))
    })
}

/// Value shared by more than half of all rounds, which is the median whatever the remaining rounds measure.
fn majority(rounds: &[f64]) -> Option<f64> {
    let last = *rounds.last()?;
    (rounds.iter().filter(|round| **round == last).count() > ROUNDS / 2).then_some(last)
}

/// Median latency (us) of the work `one` enqueues on `stream`, `each` times per round; `one` receives the
/// index. Stops as soon as the median is certain, so no other rank may depend on the number of rounds.
pub(in crate::cuda) fn rounds_us(
    gpu: &Gpu,
    stream: &Stream,
    each: usize,
    one: impl FnMut(usize) -> Result<()>,
) -> Result<f64> {
    timed(gpu, stream, each, majority, one)
}

/// Median latency (us) of the collective `one` enqueues on `stream`. Always runs all rounds, so that no rank
/// waits for another forever.
pub(in crate::cuda) fn collective_us(
    gpu: &Gpu,
    stream: &Stream,
    mut one: impl FnMut() -> Result<()>,
) -> Result<f64> {
    timed(gpu, stream, LEAST_PRODUCTS, |_| None, |_| one())
}

fn timed(
    gpu: &Gpu,
    stream: &Stream,
    each: usize,
    known: impl Fn(&[f64]) -> Option<f64>,
    mut one: impl FnMut(usize) -> Result<()>,
) -> Result<f64> {
    let (start, end) = (gpu.event(true)?, gpu.event(true)?);
    let mut rounds = Vec::with_capacity(ROUNDS);
    // one extra warm-up round
    for round in 0..=ROUNDS {
        stream.record(&start)?;
        (0..each).try_for_each(&mut one)?;
        stream.record(&end)?;
        stream.synchronize_within(LIMIT)?;
        if round > 0 {
            rounds.push(f64::from(end.elapsed_ms(&start)?) * 1e3 / each as f64);
            if let Some(known) = known(&rounds) {
                return Ok(known);
            }
        }
    }
    Ok(median(&rounds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tick_is_the_usual_step() {
        assert_eq!(
            Tick::from_times(&[0, 1024, 2048, 3072, 9216]),
            Tick { ns: 1024.0, longest_ns: 6144.0 }
        );
        assert_eq!(Tick::from_times(&[5]), Tick { ns: 0.0, longest_ns: 0.0 });
    }

    proptest! {
        #[test]
        fn what_most_rounds_take_is_the_median_of_all(rounds in prop::collection::vec(0u8..3, ROUNDS)) {
            let rounds: Vec<f64> = rounds.into_iter().map(f64::from).collect();
            let known = (1..=ROUNDS).find_map(|seen| majority(&rounds[..seen]));
            prop_assert!(known.is_none_or(|known| Some(known) == median(&rounds)), "{known:?} {rounds:?}");
            let most = rounds.iter().any(|a| rounds.iter().filter(|b| a == *b).count() > ROUNDS / 2);
            prop_assert_eq!(known.is_some(), most);
        }
    }
}
