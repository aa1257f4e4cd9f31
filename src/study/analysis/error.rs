//! Error of the simulator: leads below it decide nothing.

/// Relative error of a simulated speedup: mean absolute error over `standard` in `paper_70b`, the only set with several
/// architectures, rounded up to a whole percent. A test checks it against the set's score.
pub const SPEEDUP_ERROR: f64 = 0.02;

/// Verdict on simulated leads below [`SPEEDUP_ERROR`].
pub const TOO_CLOSE: &str = "too close to call (simulator error 2 %)";

/// True if the ratio of two simulated throughputs or latencies is within the simulator's error.
pub fn is_too_close(ratio: f64) -> bool {
    ratio.max(1.0 / ratio) - 1.0 < SPEEDUP_ERROR
}
