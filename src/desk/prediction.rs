//! Checks of stored predictions against measured changes.

use super::OpenedTrace;
use base::error::Result;
use lab::store::Store;
use study::diff::{PredictionCheck, StoredPrediction, TraceDiff, checked};

/// Errors of a stored prediction; `after` is the second trace. A single one is stored with the prediction, in place of
/// an earlier one of the same traces.
///
/// # Errors
///
/// Returns those of the store, and an input error if the prediction has no row of the trace's architecture.
pub fn check_prediction(
    name: &str,
    store: &Store,
    diff: &TraceDiff,
    after: &OpenedTrace,
) -> Result<Vec<PredictionCheck>> {
    let mut prediction: StoredPrediction = store.prediction(name)?;
    let architecture = after.trace.meta.spec.as_ref().map(|spec| spec.architecture.to_string());
    let checks = checked(&prediction, diff, architecture.as_deref(), &store.now())?;
    if let [check] = &checks[..] {
        let is_same = |old: &PredictionCheck| {
            (&old.label, &old.before, &old.after) == (&check.label, &check.before, &check.after)
        };
        prediction.checks.retain(|old| !is_same(old));
        prediction.checks.push(check.clone());
        store.set_prediction(name, &prediction)?;
    }
    Ok(checks)
}
