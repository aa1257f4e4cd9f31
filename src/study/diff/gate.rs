//! Limits on the change between two traces, in the form of the gates on runs.
//!
//! Stored predictions, and how far off they were.

use serde::{Deserialize, Serialize};

use super::{OfStep, TraceDiff, interval};
use crate::analysis::{Gate, GateOutcome, GateReport, GateRow};
use base::error::{Error, Result};
use base::statistics::mean;
use table::Provenance;
use table::render::{Shown, Table};

/// Statistical method, as text for readers of the result.
const STATISTICS: &str = "means over paired steps; 95 % percentile bootstrap of the change over the pairs; a gate holds if the \
     interval is within its limit, is violated if it is beyond, and is undecided if the limit is inside or a trace is in doubt; \
     without an interval the change decides";

/// Measures of a step, in the measure's unit.
const MEASURES: [OfStep; 5] = [
    ("tpot_p50_ms", |s| s.step_us / 1e3),
    ("comm_ms", |s| s.comm_us / 1e3),
    ("exposed_comm_ms", |s| s.exposed_us / 1e3),
    ("compute_ms", |s| s.compute_us / 1e3),
    ("idle_ms", |s| (s.idle_us + s.gap_us) / 1e3),
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
    let name = gate.measure.name;
    let Some((_, of)) = MEASURES.iter().find(|(known, _)| *known == name) else {
        return Err(Error::input_help(
            format!("gate '{}': a step of a trace has no {}", gate.text, gate.measure.words),
            "measures of a step: tpot (step latency), comm, exposed, compute, idle",
        ));
    };
    let side = |at: usize| mean(&diff.steps.iter().map(|pair| of(&pair[at])).collect::<Vec<_>>());
    let [before, value] = [0, 1].map(|at| side(at).unwrap_or(0.0));
    // a relative limit on nothing is a limit on the difference
    let change =
        |a: f64, b: f64| if gate.relative && a == 0.0 && b == 0.0 { 0.0 } else { gate.change(a, b) };
    let is_simulated = [&diff.a, &diff.b].iter().any(|side| side.provenance == Provenance::Simulated);
    let changed = change(before, value);
    let change_ci95 = interval(&diff.steps, is_simulated, *of, change);
    let mut outcome = gate.outcome(changed, change_ci95);
    let doubt = match () {
        () if diff.a.provenance != diff.b.provenance => {
            Some(format!("the first trace is {}, the second {}", diff.a.provenance, diff.b.provenance))
        }
        () if diff.is_doubtful => Some("the importer doubts a trace's GPU work".to_owned()),
        () if !changed.is_finite() => Some(format!("{} was 0", gate.measure.words)),
        () if outcome == GateOutcome::Undecided => {
            Some("the confidence interval contains the limit".to_owned())
        }
        () => None,
    };
    if doubt.is_some() {
        outcome = GateOutcome::Undecided;
    }
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
        undecided: doubt,
        samples: [diff.pairs as u32; 2],
        provenance: diff.b.provenance,
        baseline_runs: vec![diff.a.name.clone()],
        runs: vec![diff.b.name.clone()],
    })
}

/// Predictions of one command under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Prediction {
    pub version: u32,
    pub name: String,
    /// Time at which it was made, RFC 3339 in UTC.
    pub created: String,
    /// Verb that predicted: `rewire` or `whatif`.
    pub made_by: String,
    /// Trace or cell that it starts from.
    pub source: String,
    /// Path or run to open the trace again; null for a cell.
    #[serde(default)]
    pub trace: Option<String>,
    /// Machine that the prediction assumes.
    pub machine: String,
    pub rows: Vec<PredictedRow>,
    /// Measurements since, the oldest first.
    #[serde(default)]
    pub checks: Vec<PredictionCheck>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PredictedRow {
    /// Predicted change: `ladder, fused`.
    pub label: String,
    pub architecture: String,
    /// Predicted step latency (us).
    pub step_us: f64,
    /// Predicted speedup over the traced engine.
    pub speedup: f64,
}

/// Predicted and measured change between two traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PredictionCheck {
    /// Time of the check, RFC 3339 in UTC.
    pub checked: String,
    pub label: String,
    /// Traces before and after the change.
    pub before: String,
    pub after: String,
    pub predicted_speedup: f64,
    pub measured_speedup: f64,
    /// Predicted over measured step latency, less one (%): positive if the prediction was too slow.
    pub error_pct: f64,
}

/// Current format of the file.
pub const VERSION: u32 = 1;

impl Prediction {
    pub fn new(
        name: &str,
        made_by: &str,
        source: String,
        machine: String,
        rows: Vec<PredictedRow>,
    ) -> Self {
        let (name, made_by, created) = (name.to_owned(), made_by.to_owned(), String::new());
        let (trace, checks) = (None, Vec::new());
        Self { version: VERSION, name, created, made_by, source, trace, machine, rows, checks }
    }
}

/// Compares a prediction with the measured change. Rows of the second trace's own architecture are checked, or all of
/// them if the trace does not tell it.
///
/// # Errors
///
/// Returns an input error if the prediction has no row of that architecture.
pub fn checked(
    prediction: &Prediction,
    diff: &TraceDiff,
    architecture: Option<&str>,
    now: &str,
) -> Result<Vec<PredictionCheck>> {
    let measured_speedup = diff.a.step_us / diff.b.step_us;
    let is_wanted = |row: &&PredictedRow| architecture.is_none_or(|own| own == row.architecture);
    let check = |row: &PredictedRow| PredictionCheck {
        checked: now.to_owned(),
        label: row.label.clone(),
        before: diff.a.name.clone(),
        after: diff.b.name.clone(),
        predicted_speedup: row.speedup,
        measured_speedup,
        // both start from the first trace's step
        error_pct: 100.0 * (measured_speedup / row.speedup - 1.0),
    };
    let checks: Vec<PredictionCheck> = prediction.rows.iter().filter(is_wanted).map(check).collect();
    match checks.is_empty() {
        false => Ok(checks),
        true => Err(Error::input_help(
            format!(
                "prediction {} has no row of {}",
                prediction.name,
                architecture.unwrap_or("any architecture")
            ),
            format!(
                "it predicts {}",
                prediction.rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>().join("; ")
            ),
        )),
    }
}

pub fn checks_table(checks: &[PredictionCheck]) -> Table {
    Table::of(
        checks,
        &[
            ("prediction", &|c: &PredictionCheck| Shown::text(&c.label)),
            ("predicted_speedup|predicted", &|c| Shown::Number(c.predicted_speedup, 3)),
            ("measured_speedup|measured", &|c| Shown::Number(c.measured_speedup, 3)),
            ("error_pct|error of step %", &|c| Shown::Number(c.error_pct, 1)),
            ("before", &|c| Shown::text(&c.before)),
            ("after", &|c| Shown::text(&c.after)),
            ("checked", &|c| Shown::text(&c.checked)),
        ],
    )
    .least(&["checked", "after", "before"])
}
