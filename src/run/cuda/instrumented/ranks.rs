//! What one rank has seen, on its own host's clock. Travels to rank 0 as JSON.

use serde::{Deserialize, Serialize};

use crate::cuda::around::Took;
use crate::cuda::cupti::{OperationSpan, Report, settle};
use crate::cuda::timing::{OperationTime, Skeleton};
use plan::Phase;

/// One step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepTimes {
    pub rank: u32,
    pub phase: Phase,
    /// The decode step; 0 of a prefill.
    pub step: u32,
    /// What the times below count from (ns, host).
    pub start_ns: i64,
    /// From its start to its end (ns).
    pub length_ns: i64,
    /// By operation, or part, of the trace's table: ready, started, ended (ns); `None` without a record of it.
    pub operations: Vec<Option<[i64; 3]>>,
}

/// All steps of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankTimes {
    pub rank: u32,
    pub steps: Vec<StepTimes>,
    /// Events or records that timed a whole step.
    pub events_per_step: f64,
    /// How far times may be off on the host's clock, to either side (ns).
    pub uncertainty_ns: i64,
    /// By how much the host's clock ran ahead of the GPU's (ns), over `duration_ns`.
    pub drift_ns: i64,
    pub duration_ns: i64,
    /// How complete CUPTI's records are.
    pub report: Option<Report>,
    /// How the GPU's clock ticks (ns), and what a stamp takes of a stream's time (us), where kernels stamped.
    pub tick_ns: f64,
    pub stamp_us: f64,
    /// The collectives of the last decode step by the events around them, where there are any beside the recorder.
    pub by_events: Vec<Took>,
    /// What the user should know of these times.
    pub warnings: Vec<String>,
}

/// A step's length from its start (ns), and its operations' times (ready, start, end), from when they ran on the host's
/// clock: every lane does one thing at a time.
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
