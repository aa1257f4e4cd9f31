//! Stored predictions, checked against a measured change.

use serde::{Deserialize, Serialize};

use super::TraceDiff;
use base::error::{Error, Result};
use table::render::{Shown, Table};

/// Predictions of one command under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Prediction")]
pub struct StoredPrediction {
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

impl StoredPrediction {
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
    prediction: &StoredPrediction,
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
    Table::from_rows(
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
