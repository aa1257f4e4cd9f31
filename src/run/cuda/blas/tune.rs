//! The best of several algorithms by timing them, where the heuristics' first choice is not trusted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::plan::{Alignment, Descriptors};
use super::{Blas, MatMul, Plan, lock};
use crate::cuda::stopwatch::{CLEARLY, median_us};
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Stream};

/// Memory to time with; the output is overwritten.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Where the input lies, `[rows, inputs]`.
    pub x: DevicePtr,
    /// Weights that take turns, as layers do: where they do not fit in the GPU's cache together, they are
    /// read from memory as in decoding. At least one.
    pub weights: &'a [DevicePtr],
    /// Where the output goes, `[rows, outputs]`; it is overwritten.
    pub out: DevicePtr,
}

/// What timing the algorithms of a product has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// How many algorithms were timed.
    pub candidates: usize,
    /// Which one was kept; 0 is the heuristics' first choice.
    pub best: usize,
    /// Time of a product with the one that was kept (us).
    pub best_us: f64,
    /// Time of a product with the heuristics' first choice (us).
    pub first_us: f64,
}

/// How many algorithms are timed.
const CANDIDATES: usize = 8;
/// Before the first algorithm is timed the GPU works so long, so that it runs at the same clocks as later.
const WARM_UP: Duration = Duration::from_millis(20);

impl Blas {
    /// Times the first few algorithms for a product and keeps the fastest for [`Blas::matmul`] with operands
    /// of the same shape and alignment. Takes some milliseconds; not during a capture.
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

/// The index of the least time; the first choice unless another is clearly (2 %) faster, so that noise does
/// not change results from run to run.
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
