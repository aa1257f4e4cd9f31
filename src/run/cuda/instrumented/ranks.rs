//! Timings of one rank on its host's clock, sent to rank 0 as JSON.

use serde::{Deserialize, Serialize};

use crate::cuda::around::Took;
use crate::cuda::cupti::{OperationSpan, Report, settle};
use crate::cuda::timing::{OperationTime, Skeleton};
use plan::Phase;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepTimes {
    pub rank: u32,
    pub phase: Phase,
    /// Decode step index; 0 for prefill.
    pub step: u32,
    /// Origin of the times below (ns, host clock).
    pub start_ns: i64,
    /// Duration (ns).
    pub length_ns: i64,
    /// Ready, start and end (ns) by operation or part of the trace's table; `None` without a record.
    pub operations: Vec<Option<[i64; 3]>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankTimes {
    pub rank: u32,
    pub steps: Vec<StepTimes>,
    /// Events or records per step.
    pub events_per_step: f64,
    /// Maximum error on the host's clock, in both directions (ns).
    pub uncertainty_ns: i64,
    /// Drift of the host's clock ahead of the GPU's over `duration_ns` (ns).
    pub drift_ns: i64,
    pub duration_ns: i64,
    pub report: Option<Report>,
    /// Tick of the GPU's clock (ns) and stream time per stamp (us), for stamps only.
    pub tick_ns: f64,
    pub stamp_us: f64,
    /// Event timings of the last decode step's collectives, if there were events in addition to the recorder.
    pub by_events: Vec<Took>,
    pub warnings: Vec<String>,
}

/// Duration of a step (ns) and its operations' ready, start and end times, computed from spans on the host's
/// clock. A lane runs one operation at a time.
pub(super) fn settled(
    skeleton: &Skeleton,
    found: &[Option<OperationSpan>],
    start_ns: i64,
) -> (i64, Vec<Option<[i64; 3]>>) {
    let end = found.iter().flatten().map(|span| span.end_ns).max().unwrap_or(start_ns);
    let times = settle(skeleton, found, start_ns);
    let triple = |time: &OperationTime| [time.ready_ns, time.start_ns, time.end_ns];
    (end - start_ns, times.iter().map(|time| time.as_ref().map(triple)).collect())
}
