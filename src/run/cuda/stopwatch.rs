//! How long a product takes: the one way in which our own kernels and cuBLASLt's algorithms are timed, so
//! that the times can be compared.

use std::time::Duration;

use base::error::Result;
use base::statistics::median;
use machine::driver::{DevicePtr, Gpu, Stream};

/// By how much something must be faster to be preferred: noise is no reason to change results
/// from run to run.
pub(super) const CLEARLY: f64 = 0.98;

/// Rounds over the weights of a shape; the median of them counts.
const ROUNDS: usize = 5;

/// Products of a round at least, so that the clock's resolution does not matter.
const LEAST_PRODUCTS: usize = 8;

/// How long a round may take.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Median time (us) of what `one` enqueues on `stream`, with weights that take turns as layers do.
pub(super) fn median_us(
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

/// The time that more than half of all rounds have: the median, whatever the others will take.
fn majority(rounds: &[f64]) -> Option<f64> {
    let last = *rounds.last()?;
    (rounds.iter().filter(|round| **round == last).count() > ROUNDS / 2).then_some(last)
}

/// Median time (us) of what `one` enqueues on `stream`, so many times a round; it is told which of them it is. No other
/// rank waits for it: rounds end when the median is known.
pub(super) fn rounds_us(
    gpu: &Gpu,
    stream: &Stream,
    each: usize,
    one: impl FnMut(usize) -> Result<()>,
) -> Result<f64> {
    timed(gpu, stream, each, majority, one)
}

/// Median time (us) of a collective that `one` enqueues on `stream`. Every rank does every round, or others would wait.
pub(super) fn collective_us(
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
    // one round more, to warm up
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
