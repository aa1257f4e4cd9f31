//! Limits on the change between two traces, in the form of the gates on runs.

use super::{StepNumber, TraceDiff, interval};
use crate::analysis::{Gate, GateOutcome, GateReport, GateRow};
use base::error::{Error, Result};
use base::statistics::mean;
use table::{Provenance, measure};

/// Statistical method, as text for readers of the result.
const STATISTICS: &str = "means over paired steps; 95 % percentile bootstrap of the change over the pairs; a gate holds if the \
     interval is within its limit, is violated if it is beyond, and is undecided if the limit is inside or a trace is in doubt; \
     without an interval the change decides";

/// Measures that a step of a trace has: the name in [`table::MEASURES`], and the value in that measure's unit. A gate on
/// any other measure is refused.
const STEP_MEASURES: [StepNumber; 5] = [
    ("tpot_p50_ms", |s| s.step_us / 1e3),
    ("comm_ms", |s| s.comm_us / 1e3),
    ("exposed_comm_ms", |s| s.exposed_us / 1e3),
    ("compute_ms", |s| s.compute_us / 1e3),
    ("idle_ms", |s| s.idle_and_gap_us() / 1e3),
];

/// Judges the second trace against the first.
///
/// # Errors
///
/// Returns an input error for a measure that a step of a trace does not have.
pub fn judge_diff(diff: &TraceDiff, gates: &[Gate]) -> Result<GateReport> {
    let rows = gates.iter().map(|gate| row(diff, gate)).collect::<Result<Vec<_>>>()?;
    let outcome = rows.iter().map(|row| row.outcome).max().unwrap_or(GateOutcome::Undecided);
    Ok(GateReport {
        baseline: diff.a.name.clone(),
        baseline_created: String::new(),
        statistics: STATISTICS,
        held: outcome == GateOutcome::Holds,
        outcome,
        rows,
        without_partner: Vec::new(),
        without_communication: 0,
        not_in_baseline: 0,
        warnings: diff.warnings.clone(),
    })
}

fn row(diff: &TraceDiff, gate: &Gate) -> Result<GateRow> {
    let Some((_, value_of)) = STEP_MEASURES.iter().find(|(name, _)| *name == gate.measure.name) else {
        let known = STEP_MEASURES.iter().filter_map(|(name, _)| measure(name)?.aliases.first().copied());
        return Err(Error::input_help(
            format!("gate '{}': a step of a trace has no {}", gate.text, gate.measure.words),
            format!(
                "measures of a step: {}",
                known.collect::<Vec<_>>().join(", ").replacen("tpot", "tpot (step latency)", 1)
            ),
        ));
    };
    let side = |at: usize| mean(&diff.steps.iter().map(|pair| value_of(&pair[at])).collect::<Vec<_>>());
    let [before, value] = [0, 1].map(|at| side(at).unwrap_or(0.0));
    // a relative limit on nothing is a limit on the difference
    let change =
        |a: f64, b: f64| if gate.relative && a == 0.0 && b == 0.0 { 0.0 } else { gate.change(a, b) };
    let is_simulated = [&diff.a, &diff.b].iter().any(|side| side.provenance == Provenance::Simulated);
    let changed = change(before, value);
    let change_ci95 = interval(&diff.steps, is_simulated, *value_of, change);
    let doubt = if diff.a.provenance != diff.b.provenance {
        Some(format!("the first trace is {}, the second {}", diff.a.provenance, diff.b.provenance))
    } else if diff.is_doubtful {
        Some("the importer doubts a trace's GPU work".to_owned())
    } else if !changed.is_finite() {
        Some(format!("{} was 0", gate.measure.words))
    } else {
        None
    };
    let (outcome, undecided) = gate.outcome(changed, change_ci95, doubt);
    Ok(GateRow {
        key: String::new(),
        cell: diff.b.name.clone(),
        gate: gate.clone(),
        measure: gate.measure,
        baseline: before,
        value,
        change: changed,
        change_ci95,
        relative: gate.relative,
        decided_by: if change_ci95.is_some() { "interval" } else { "change" },
        held: outcome == GateOutcome::Holds,
        outcome,
        undecided,
        samples: [diff.pairs as u32; 2],
        provenance: diff.b.provenance,
        baseline_runs: vec![diff.a.name.clone()],
        runs: vec![diff.b.name.clone()],
    })
}
