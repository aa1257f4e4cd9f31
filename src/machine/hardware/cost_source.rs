//! Sources of simulated latencies.

use base::words::words;

words! {
    /// Source of an operation's latency, most certain first.
    CostSource, "cost source" {
        /// Point of a latency table.
        Table = "table",
        /// Interpolated between points of a latency table.
        Interpolated = "interpolated",
        /// Bytes or FLOPs / the rate that the profile states for kernels.
        Roofline = "roofline",
        /// Bytes or FLOPs / a rate fitted to measured runs.
        Calibrated = "calibrated",
    }
}
