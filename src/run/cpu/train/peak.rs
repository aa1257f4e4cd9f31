//! FLOP/s of matrix products on this machine: the upper bound for the training kernels.

use std::time::{Duration, Instant};

use arithmetic::{MatrixView, MatrixViewMut, gemm};

/// Matrix side: large enough to be fast, small enough for a core's cache.
const SIDE: usize = 384;

/// The fastest of five intervals counts, since other programs only slow it down.
const INTERVAL: Duration = Duration::from_millis(60);

/// FLOP/s of f32 matrix products on `threads` threads, each with its own matrices.
pub fn gemm_peak(threads: usize) -> f64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(thread_peak)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

fn thread_peak() -> f64 {
    let (a, b) = (vec![0.5f32; SIDE * SIDE], vec![0.25f32; SIDE * SIDE]);
    let mut out = vec![0.0; SIDE * SIDE];
    let mut flop_per_s = || {
        let (started, mut products) = (Instant::now(), 0.0);
        while started.elapsed() < INTERVAL {
            let inputs = [MatrixView::rows(&a, 0, SIDE), MatrixView::rows(&b, 0, SIDE)];
            gemm([SIDE; 3], inputs, MatrixViewMut::rows(&mut out, 0, SIDE));
            products += 1.0;
        }
        products * 2.0 * (SIDE as f64).powi(3) / started.elapsed().as_secs_f64()
    };
    (0..5).map(|_| flop_per_s()).fold(0.0, f64::max)
}
