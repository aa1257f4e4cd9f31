//! Figures fit for a paper, as SVG and PNG, through plotters with a bundled open font.

use std::path::Path;

use crate::analysis::ParetoPoint;
use crate::error::Result;
use crate::trace::Trace;

/// Latency against per-GPU throughput, frontier per architecture; format by extension (svg, png).
pub fn pareto(points: &[ParetoPoint], path: &Path) -> Result<()> {
    let _ = (points, path);
    todo!()
}

/// An overlap timeline of `from_ns..to_ns` (since the trace's first start): rank x lane rows,
/// exposed communication marked; format by extension (svg, png).
pub fn timeline(trace: &Trace, from_ns: i64, to_ns: i64, path: &Path) -> Result<()> {
    let _ = (trace, from_ns, to_ns, path);
    todo!()
}

/// Speed-ups of matched pairs with their intervals; format by extension (svg, png).
pub fn comparison(report: &crate::analysis::ComparisonReport, path: &Path) -> Result<()> {
    let _ = (report, path);
    todo!()
}
