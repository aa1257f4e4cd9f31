//! Whether a cell can run, found before anything starts.

use super::Shared;
use super::backend::backend;
use crate::base::error::Result;
use crate::table::Spec;

/// Whether a cell can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feasibility {
    /// Nothing speaks against running the cell.
    Runs,
    /// It cannot: TP does not divide the heads (with the arithmetic), or its backend has no such all-reduce.
    Skipped(String),
    /// It would not fit in memory (with the arithmetic).
    Oom(String),
}

/// Whether a cell can run here, before anything starts: TP divides the model, and its backend can. Fails
/// where the model or the hardware profile cannot be read.
pub fn of(spec: &Spec) -> Result<Feasibility> {
    of_with(spec, &Shared::default())
}

/// Whether a cell can run here, like [`of`], for one cell of many: models and profiles are read once.
/// Fails where [`of`] does.
pub fn of_with(spec: &Spec, shared: &Shared) -> Result<Feasibility> {
    let model = shared.model(&spec.model)?;
    let backend = backend(spec.backend)?;
    match model.shape.tp_problem(spec.tp).or_else(|| backend.lacks(spec.collective)) {
        Some(problem) => Ok(Feasibility::Skipped(problem)),
        None => backend.feasibility(spec, &model.shape, shared),
    }
}
