//! Training on this machine's cores, for any architecture, from its plan ([`plan::TrainingPlan`]).
//!
//! | file | purpose |
//! |---|---|
//! | `program` | compiled training plan: parameters, buffer lifetimes |
//! | `pass`, `derivatives` | one rank's forward pass over windows, loss, and backward pass |
//! | `experts` | routers and experts |
//! | `attention` | arithmetic in f32, and in f64 for finite-difference checks |
//! | `trainer` | steps: replicas of ranks, gradient sums, AdamW |

mod attention;
mod derivatives;
mod experts;
mod pass;
mod program;
#[cfg(test)]
mod tests;
mod trainer;

pub use arithmetic::BatchLoss;
pub use trainer::{Optimiser, OptimiserStep, Trainer, TrainerSetup};

use std::time::{Duration, Instant};

use arithmetic::{MatrixView, MatrixViewMut, gemm};

/// Matrix side: large enough to be fast, small enough for a core's cache.
const MATRIX_SIDE: usize = 384;

/// Time to measure the peak.
const PEAK_TIME: Duration = Duration::from_millis(300);

/// FLOP/s of f32 matrix products on `threads` threads, each with its own matrices: the upper bound for the training
/// kernels. The fastest of five intervals counts, since other programs only slow it down.
pub fn gemm_peak(threads: usize) -> f64 {
    let peak_of_thread = || {
        let (a, b) = (vec![0.5f32; MATRIX_SIDE * MATRIX_SIDE], vec![0.25f32; MATRIX_SIDE * MATRIX_SIDE]);
        let mut out = vec![0.0; MATRIX_SIDE * MATRIX_SIDE];
        let (began, mut best) = (Instant::now(), 0.0f64);
        while began.elapsed() < PEAK_TIME {
            let (part, mut products) = (Instant::now(), 0.0);
            while part.elapsed() < PEAK_TIME / 5 {
                let (a, b) =
                    (MatrixView::rows(&a, 0, MATRIX_SIDE), MatrixView::rows(&b, 0, MATRIX_SIDE));
                gemm([MATRIX_SIDE; 3], [a, b], MatrixViewMut::rows(&mut out, 0, MATRIX_SIDE));
                products += 1.0;
            }
            best =
                best.max(products * 2.0 * (MATRIX_SIDE as f64).powi(3) / part.elapsed().as_secs_f64());
        }
        best
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(peak_of_thread)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}
