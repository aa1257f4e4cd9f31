//! How fast this machine multiplies large matrices, which training is held against.

use std::time::{Duration, Instant};

use arithmetic::{View, gemm};

/// Rows and columns of the matrices: large enough to be fast, small enough to stay in a core's cache.
const SIDE: usize = 384;

/// How long it is measured.
const MEASURED: Duration = Duration::from_millis(300);

/// FLOP a second of products of f32 matrices on so many threads at once, each with matrices of its own: the most that
/// the kernels of training reach. Of five parts of the time the fastest counts, since other programs only take from it.
pub fn gemm_peak(threads: usize) -> f64 {
    let one = || {
        let (a, b) = (vec![0.5f32; SIDE * SIDE], vec![0.25f32; SIDE * SIDE]);
        let mut out = vec![0.0; SIDE * SIDE];
        let (began, mut best) = (Instant::now(), 0.0f64);
        while began.elapsed() < MEASURED {
            let (part, mut products) = (Instant::now(), 0.0);
            while part.elapsed() < MEASURED / 5 {
                let (a, b) = (View::rows(&a, 0, SIDE), View::rows(&b, 0, SIDE));
                gemm(SIDE, SIDE, SIDE, a, b, &mut out, 0, SIDE);
                products += 1.0;
            }
            best = best.max(products * 2.0 * (SIDE as f64).powi(3) / part.elapsed().as_secs_f64());
        }
        best
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}
