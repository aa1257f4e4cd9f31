//! Timing method and clock of the instrumented pass, for record and trace.

use serde_json::{Value, json};

use super::{InstrumentedRun, RankTimes, decode_steps};
use crate::cuda::cupti;
use crate::cuda::timing::Tie;
use crate::cuda::timing::collectives::{CollectiveTime, group_collectives};
use base::statistics::median;
use plan::Phase;
use table::{Environment, Recorder};

/// Collectives in the last decode step of each rank by events and by the recorder (us), where both timed them.
fn compare_events(ranks: &[RankTimes]) -> Vec<Vec<(CollectiveTime, f64)>> {
    let of_rank = |rank: &RankTimes| {
        let steps = ranks.iter().flat_map(|rank| &rank.steps);
        let steps = steps.filter(|step| step.phase == Phase::Decode && step.rank == rank.rank);
        let last = steps.max_by_key(|step| step.step);
        let compared = |by_events: &CollectiveTime| {
            let [_, start, end] = (*last?.operations.get(by_events.operation as usize)?)?;
            Some((*by_events, (end - start) as f64 / 1e3))
        };
        rank.by_events.iter().filter_map(compared).collect::<Vec<_>>()
    };
    ranks.iter().map(of_rank).filter(|compared| !compared.is_empty()).collect()
}

/// Environment entries on the timing method.
pub(super) fn timing_environment(
    context: &InstrumentedRun<'_>,
    name: &str,
    ranks: &[RankTimes],
    offsets: &[Tie],
) -> Environment {
    let most = |ns: fn(&RankTimes) -> i64| ranks.iter().map(|rank| ns(rank).abs()).max().unwrap_or(0);
    let cupti = ranks.iter().any(|rank| rank.report.is_some()).then(cupti::version).flatten();
    let summarize = |found: &[&(CollectiveTime, f64)]| -> Value {
        let middle = |us: fn(&(CollectiveTime, f64)) -> f64| {
            median(&found.iter().map(|each| us(each)).collect::<Vec<_>>())
        };
        let difference = |(by_events, by_recorder): &(CollectiveTime, f64)| by_events.us - by_recorder;
        json!({
            "events_us": middle(|(by_events, _)| by_events.us),
            "recorder_us": middle(|(_, by_recorder)| *by_recorder),
            "difference_us": middle(difference),
            "largest_difference_us": found.iter().map(|each| difference(each).abs()).fold(0.0, f64::max),
        })
    };
    let compared = compare_events(ranks);
    let collectives = group_collectives(context.engine, &compared, |(one, _)| one.operation, summarize);
    Environment::from([
        ("recorder".into(), json!(name)),
        ("cupti".into(), json!(cupti)),
        (
            "timing".into(),
            json!({
                "steps": decode_steps(ranks),
                "events_a_step": ranks.first().map(|rank| rank.events_per_step),
                "tick_ns": ranks.first().map(|rank| rank.tick_ns).filter(|ns| *ns > 0.0),
                "stamp_us": ranks.first().map(|rank| rank.stamp_us).filter(|us| *us > 0.0),
                "collectives": collectives,
                "clock_uncertainty_us": us(most(|rank| rank.uncertainty_ns)),
                "clock_drift_us": us(most(|rank| rank.drift_ns)),
                "clock_offset_uncertainty_us": us(offsets.iter().map(|t| t.uncertainty_ns).max().unwrap_or(0)),
            }),
        ),
    ])
}

fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// Description of the trace's clock and its uncertainty.
pub(super) fn describe_clock(recorder: Recorder, ranks: &[RankTimes], offsets: &[Tie]) -> String {
    let uncertainty = ranks.iter().map(|rank| rank.uncertainty_ns).max().unwrap_or(0);
    let drifts = ranks.iter().map(|rank| (rank.drift_ns, rank.duration_ns));
    let (drift, over) = drifts.max_by_key(|(drift, _)| drift.abs()).unwrap_or_default();
    let source = match recorder {
        Recorder::Cupti => "CUPTI's time stamps",
        Recorder::Stamps => "the kernels' own stamps of %globaltimer",
        _ => {
            "CUDA events around modules and collectives, each step's counted from its own first (f32 ms)"
        }
    };
    let mut text = format!(
        "{source}; tied to CLOCK_MONOTONIC of rank 0's host by round trips, +-{:.1} us, with {:+.1} us of drift over {:.2} s; ns since the run began",
        us(uncertainty),
        us(drift),
        over as f64 / 1e9
    );
    if offsets.iter().any(|offset| offset.uncertainty_ns > 0) {
        text += "; ranks of other processes compared by messages";
    }
    text
}
