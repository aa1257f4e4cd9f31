//! Pareto frontiers of completion latency against per-GPU throughput.

use std::collections::BTreeMap;

use serde::Serialize;

use super::metrics::{aggregate, host};
use crate::spec::{Provenance, Spec};
use crate::store::{Record, Status};

/// A point of a Pareto plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// The run (or aggregated cell's last run).
    pub run: String,
    /// Its spec.
    #[serde(flatten)]
    pub spec: Spec,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Completion latency (ms).
    pub completion_ms: f64,
    /// Throughput over TP.
    pub tokens_per_s_per_gpu: f64,
    /// TPOT (ms, median).
    pub tpot_ms: f64,
    /// Whether no other run of its group dominates it.
    pub on_frontier: bool,
    /// Which group it was compared within: model, workload, hardware, provenance (for people).
    pub group: String,
}

impl ParetoPoint {
    /// Whether this point is at least as good as the other in both, and better in one.
    pub fn dominates(&self, other: &Self) -> bool {
        let (faster, more) = (
            self.completion_ms.total_cmp(&other.completion_ms),
            self.tokens_per_s_per_gpu.total_cmp(&other.tokens_per_s_per_gpu),
        );
        faster.is_le() && more.is_ge() && (faster.is_lt() || more.is_gt())
    }
}

/// All ok cells as points, frontier marked within each group (design.md). Ties are all on it. What is
/// compared: cells of the same model, number format, workload (prompt and output tokens), hardware with
/// its overrides, machine, backend, stack and provenance. `upper-bound` counts as a run like any other.
pub fn pareto(records: &[Record]) -> Vec<ParetoPoint> {
    let mut points: Vec<ParetoPoint> = aggregate(records).iter().filter_map(point).collect();
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate() {
        groups.entry(&point.group).or_default().push(index);
    }
    let best: Vec<usize> = groups.values().flat_map(|group| undominated(&points, group)).collect();
    for index in best {
        points[index].on_frontier = true;
    }
    points
}

/// The frontier of those points that pass the filter (one architecture's, say), each group by itself,
/// in order of completion latency.
pub fn frontier(points: &[ParetoPoint], filter: impl Fn(&ParetoPoint) -> bool) -> Vec<&ParetoPoint> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate().filter(|(_, point)| filter(point)) {
        groups.entry(&point.group).or_default().push(index);
    }
    let best = groups.values().flat_map(|group| undominated(points, group));
    best.map(|index| &points[index]).collect()
}

/// Which of the points at `indices` no other of them dominates, in order of completion latency.
fn undominated(points: &[ParetoPoint], indices: &[usize]) -> Vec<usize> {
    let mut order = indices.to_vec();
    let latency = |i: usize| points[i].completion_ms;
    let throughput = |i: usize| points[i].tokens_per_s_per_gpu;
    order.sort_by(|&a, &b| {
        latency(a).total_cmp(&latency(b)).then(throughput(b).total_cmp(&throughput(a)))
    });
    let mut best: Vec<usize> = Vec::new();
    for index in order {
        // The last one kept is the best in throughput of all that are no slower.
        let stays = best.last().is_none_or(|&last| {
            let more = throughput(index).total_cmp(&throughput(last));
            more.is_gt() || (more.is_eq() && latency(index).total_cmp(&latency(last)).is_eq())
        });
        if stays {
            best.push(index);
        }
    }
    best
}

fn point(record: &Record) -> Option<ParetoPoint> {
    let metrics = record.metrics.as_ref().filter(|_| record.status == Status::Ok)?;
    let finite = metrics.completion_ms.is_finite() && metrics.tokens_per_s_per_gpu.is_finite();
    finite.then(|| ParetoPoint {
        run: record.run.clone(),
        spec: record.spec.clone(),
        provenance: record.provenance,
        completion_ms: metrics.completion_ms,
        tokens_per_s_per_gpu: metrics.tokens_per_s_per_gpu,
        tpot_ms: metrics.tpot_ms.p50,
        on_frontier: false,
        group: group(record),
    })
}

/// `llama-3-70b f16, prompt 1024, output 512, h100_sxm, sim gpt-fast, simulated`.
fn group(record: &Record) -> String {
    let spec = &record.spec;
    let mut hardware = spec.hardware.clone();
    for (key, value) in &spec.set {
        hardware.push_str(&format!(" {key}={value}"));
    }
    if let Some(host) = host(record).filter(|host| *host != spec.hardware) {
        hardware.push_str(&format!(" on {host}"));
    }
    format!(
        "{} {}, prompt {}, output {}, {hardware}, {} {}, {}",
        spec.model,
        spec.dtype,
        spec.prompt_tokens,
        spec.output_tokens,
        spec.backend.as_str(),
        spec.stack,
        record.provenance
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::analysis::sample_data::{record, sim_record};

    /// A record whose metrics are these two numbers.
    fn at(run: usize, completion_ms: f64, per_gpu: f64) -> Record {
        let mut record = sim_record(&format!("r{run}"), |spec| spec.batch = run as u32 + 1, 1.0, 1.0);
        if let Some(metrics) = &mut record.metrics {
            metrics.completion_ms = completion_ms;
            metrics.tokens_per_s_per_gpu = per_gpu;
        }
        record
    }

    fn marks(points: &[(f64, f64)]) -> Vec<bool> {
        let records: Vec<Record> = points.iter().enumerate().map(|(i, p)| at(i, p.0, p.1)).collect();
        pareto(&records).iter().map(|p| p.on_frontier).collect()
    }

    #[test]
    fn ties_are_on_it_and_dominated_points_are_not() {
        assert_eq!(
            marks(&[(1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, 0.5), (2.0, 2.0)]),
            [true, true, false, false, true]
        );
    }

    #[test]
    fn what_is_not_comparable_is_not_compared() {
        let slow = at(0, 9.0, 1.0);
        let mut other_model = at(1, 1.0, 9.0);
        other_model.spec.model = "other".into();
        let mut measured = record("m", |_| (), 0, &[(1.0, 1.0)]);
        measured.environment.insert("host".into(), "a".into());
        let mut elsewhere = record("n", |_| (), 0, &[(9.0, 9.0)]);
        elsewhere.environment.insert("host".into(), "b".into());
        let points = pareto(&[slow, other_model, measured, elsewhere]);
        assert!(points.iter().all(|p| p.on_frontier), "{points:#?}");
        let groups: std::collections::BTreeSet<&str> = points.iter().map(|p| p.group.as_str()).collect();
        assert_eq!(groups.len(), 4);
    }

    #[test]
    fn failed_runs_are_no_points() {
        let mut failed = at(0, 1.0, 1.0);
        failed.status = Status::Failed;
        failed.metrics = None;
        assert!(pareto(&[failed]).is_empty());
    }

    // Few distinct values, so that ties are common.
    fn few() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((1u8..6, 1u8..6).prop_map(|(x, y)| (f64::from(x), f64::from(y))), 1..14)
    }

    proptest! {
        #[test]
        fn a_point_is_on_it_exactly_if_nothing_dominates_it(values in few()) {
            let records: Vec<Record> = values.iter().enumerate().map(|(i, p)| at(i, p.0, p.1)).collect();
            let points = pareto(&records);
            let best = frontier(&points, |_| true);
            for point in &points {
                let dominated = points.iter().any(|other| other.dominates(point));
                prop_assert_eq!(point.on_frontier, !dominated);
                prop_assert_eq!(dominated, best.iter().any(|other| other.dominates(point)));
            }
            prop_assert_eq!(best.len(), points.iter().filter(|p| p.on_frontier).count());
            prop_assert!(best.windows(2).all(|w| w[0].completion_ms <= w[1].completion_ms));
        }

        #[test]
        fn a_dominated_point_more_changes_nothing(values in few(), which in any::<prop::sample::Index>()) {
            let before = marks(&values);
            let base = *which.get(&values);
            let mut more = values;
            more.push((base.0 + 1.0, base.1));
            let after = marks(&more);
            prop_assert_eq!(&after[..before.len()], &before[..]);
            prop_assert!(!after[before.len()]);
        }
    }
}
