//! Conversion of records to one span per operation and step, from the first kernel's start to the last
//! kernel's end.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::api::ActivityKind;
use super::session::{Label, Recording, StepId};
use crate::cuda::timing::{OperationTime, Skeleton};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSpan {
    /// Start of the first kernel (ns).
    pub start_ns: i64,
    /// End of the last kernel (ns).
    pub end_ns: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Number of kernels, copies and memsets recorded.
    pub activities: u64,
    /// Activities that belong to no operation or step.
    pub unassigned: u64,
    pub example: Option<String>,
    /// Records without times, because the GPU ran out of buffer space.
    pub untimed: u64,
    /// Records dropped by CUPTI or beyond the storage limit.
    pub dropped: u64,
    /// Operations of recorded steps without a record.
    pub missing: u64,
}

impl Report {
    /// One-sentence warning if anything is missing.
    pub fn warning(&self) -> Option<String> {
        let lost = self.unassigned + self.untimed + self.dropped + self.missing;
        let example = self.example.as_ref().map(|name| format!(" (the first: {name})"));
        (lost > 0).then(|| {
            format!(
                "CUPTI recorded {} activities; {} belong to no operation{}, {} have no times, {} records were \
                 dropped, {} operations have no record",
                self.activities,
                self.unassigned,
                example.unwrap_or_default(),
                self.untimed,
                self.dropped,
                self.missing
            )
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Spans per step; steps without spans are left out.
    pub steps: BTreeMap<StepId, BTreeMap<Label, OperationSpan>>,
    pub report: Report,
}

/// Assembles a recording. `expected(step)` lists the operations that launch something in a step.
pub fn assemble(recording: &Recording, expected: impl Fn(StepId) -> Vec<Label>) -> Assembled {
    let mut result = Assembled::default();
    let report = &mut result.report;
    report.dropped = recording.dropped;
    for activity in &recording.activities {
        report.activities += 1;
        let external = recording.external.get(&activity.correlation).map(|id| StepId::parse(*id));
        let label = match activity.graph_node {
            0 => external.and_then(|(_, label)| label),
            node => recording.nodes.get(&node).copied(),
        };
        // copies and memsets also happen before and between steps
        if external.is_none() && activity.kind != ActivityKind::Kernel {
            continue;
        }
        let (Some((step, _)), Some(label)) = (external, label) else {
            report.unassigned += 1;
            if report.example.is_none() {
                report.example.clone_from(&activity.name);
            }
            continue;
        };
        if activity.start_ns == 0 || activity.end_ns < activity.start_ns {
            report.untimed += 1;
            continue;
        }
        let host = |at: u64| recording.timeline.host_ns(at as i64 - recording.zero as i64);
        let (start_ns, end_ns) = (host(activity.start_ns), host(activity.end_ns));
        let span = result.steps.entry(step).or_default().entry(label);
        span.and_modify(|span| {
            span.start_ns = span.start_ns.min(start_ns);
            span.end_ns = span.end_ns.max(end_ns);
        })
        .or_insert(OperationSpan { start_ns, end_ns });
    }
    for (step, found) in &result.steps {
        let wanted: BTreeSet<Label> = expected(*step).into_iter().collect();
        result.report.missing += wanted.iter().filter(|label| !found.contains_key(label)).count() as u64;
    }
    result
}

/// Ready, start and end times of one rank's operations in plan order, `None` without a record. A lane runs
/// one operation at a time: a kernel that started early to wait for its predecessor counts from the
/// predecessor's end. An operation is ready when everything it reads is complete. `start_ns` is the start of
/// the step.
pub fn settle(
    skeleton: &Skeleton,
    found: &[Option<OperationSpan>],
    start_ns: i64,
) -> Vec<Option<OperationTime>> {
    let mut lane_end = [i64::MIN; 2];
    let mut ends: Vec<Option<i64>> = Vec::with_capacity(found.len());
    let mut times = Vec::with_capacity(found.len());
    for (operation, span) in found.iter().enumerate() {
        let lane = &mut lane_end[skeleton.lanes[operation] as usize];
        let read = skeleton.reads_from[operation].iter().filter_map(|from| ends[*from as usize]).max();
        let time = span.map(|span| {
            let started = span.start_ns.max(*lane);
            let end_ns = span.end_ns.max(started);
            let ready_ns = read.unwrap_or(start_ns).min(started);
            *lane = end_ns;
            OperationTime { ready_ns, start_ns: started, end_ns }
        });
        // an empty share launches nothing: its readers depend on its inputs
        ends.push(time.map(|time| time.end_ns).or(read));
        times.push(time);
    }
    times
}
