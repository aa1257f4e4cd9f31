//! The error of the simulator, below which its results name no winner.

/// Error of a simulated speed-up, as a share: the mean absolute error of all speed-ups over `standard` in `paper_70b`,
/// the only set with several architectures, rounded up to a whole percent. A test holds it against the set's score.
pub const SPEEDUP_ERROR: f64 = 0.02;

/// The verdict on simulated leads below [`SPEEDUP_ERROR`].
pub const TOO_CLOSE: &str = "too close to call (simulator error 2 %)";

/// True if two simulated throughputs, or latencies, of this ratio lie within the simulator's error.
pub fn is_too_close(ratio: f64) -> bool {
    ratio.max(1.0 / ratio) - 1.0 < SPEEDUP_ERROR
}
