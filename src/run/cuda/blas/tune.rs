//! Autotuning of cuBLASLt: times several algorithms instead of trusting the heuristic's first choice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::plan::{Alignment, Descriptors};
use super::{Blas, MatMul, Plan, lock};
use crate::cuda::stopwatch::{CLEARLY, median_us};
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Stream};

#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Input, `[rows, inputs]`.
    pub x: DevicePtr,
    /// At least one weight. Weights alternate like layers, so that a set larger than the L2 cache is read
    /// from memory as in decoding.
    pub weights: &'a [DevicePtr],
    /// Output, `[rows, outputs]`; overwritten.
    pub out: DevicePtr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// Number of algorithms timed.
    pub candidates: usize,
    /// Index of the selected algorithm; 0 is the heuristic's first choice.
    pub best: usize,
    /// Latency with the selected algorithm (us).
    pub best_us: f64,
    /// Latency with the heuristic's first choice (us).
    pub first_us: f64,
}

/// Maximum number of algorithms timed.
const CANDIDATES: usize = 8;
/// Warm-up before the first algorithm, to reach steady clocks.
const WARM_UP: Duration = Duration::from_millis(20);

impl Blas {
    /// Times the first few algorithms and keeps the fastest for [`Blas::matmul`] calls of the same shape and
    /// alignment. Takes a few milliseconds; not allowed during a capture.
    pub fn tune(&self, stream: &Stream, matmul: &MatMul, operands: &Operands<'_>) -> Result<Tuned> {
        let &[first, ..] = operands.weights else {
            return Err(Error::failed(format!("{matmul} is timed without weights")));
        };
        let alignment = Alignment::of(operands.x.0, first.0, operands.out.0);
        let descriptors = Descriptors::new(self.handle.lt, matmul)?;
        self.gpu.bind()?;
        let candidates = descriptors.candidates(self.handle.handle, matmul, alignment, CANDIDATES)?;
        let begun = Instant::now();
        while begun.elapsed() < WARM_UP {
            self.run(stream, matmul, &descriptors, &candidates[0], (operands.x, first, operands.out))?;
            stream.synchronize()?;
        }
        let mut times = Vec::new();
        for candidate in &candidates {
            times.push(median_us(&self.gpu, stream, operands.weights, |w| {
                self.run(stream, matmul, &descriptors, candidate, (operands.x, w, operands.out))
            })?);
        }
        let best = fastest(&times);
        let plan = Arc::new(Plan { descriptors, candidate: candidates[best] });
        lock(&self.plans).insert((*matmul, alignment), plan);
        Ok(Tuned { candidates: candidates.len(), best, best_us: times[best], first_us: times[0] })
    }
}

/// Index of the lowest time. Keeps the first choice unless another is at least 2 % faster, so that noise does
/// not change results between runs.
fn fastest(times: &[f64]) -> usize {
    let best = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap_or(0);
    if times[best] < CLEARLY * times[0] { best } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_choice_stays_unless_another_is_clearly_faster() {
        assert_eq!(fastest(&[10.0, 9.9, 10.5]), 0);
        assert_eq!(fastest(&[10.0, 9.9, 7.0, 8.0]), 2);
        assert_eq!(fastest(&[10.0]), 0);
    }
}
