//! Timing of products, identical for our kernels and cuBLASLt's algorithms so that the results are comparable.

use std::time::Duration;

use base::error::Result;
use base::statistics::median;
use machine::driver::{DevicePtr, Gpu, Stream};

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
