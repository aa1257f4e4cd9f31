//! Whether a cell can run, found before anything starts.

use super::Shared;
use super::backend::backend;
use crate::base::error::Result;
use crate::plan::{CommDType, ModelShape};
use crate::table::{Collective, Spec};

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
    match problem(spec, &model.shape).or_else(|| backend.lacks(spec.collective)) {
        Some(problem) => Ok(Feasibility::Skipped(problem)),
        None => backend.feasibility(spec, &model.shape, shared),
    }
}

/// Why no backend can run a cell of a model of this shape: TP does not divide it, a batch cannot be divided
/// into as many groups as are asked for, or messages in 8 bits would go through a fused all-reduce. `None`
/// where nothing speaks against it.
pub fn problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    let problem = shape.tp_problem(spec.tp).or_else(|| division_problem(spec));
    problem.or_else(|| fused_messages(spec))
}

/// Why messages in 8 bits cannot go through a fused all-reduce: nobody measured one.
fn fused_messages(spec: &Spec) -> Option<String> {
    let both = spec.collective == Collective::Fused && spec.comm_dtype != CommDType::Activations;
    both.then(|| {
        format!("there is no fused all-reduce of {} messages; use another collective", spec.comm_dtype)
    })
}

/// Why a batch cannot be divided into as many groups as are asked for: a group must have something to do in
/// every step.
fn division_problem(spec: &Spec) -> Option<String> {
    let Spec { micro_batches, batch, prompt_tokens, output_tokens, .. } = *spec;
    if batch >= micro_batches {
        return None;
    }
    let sequences = if batch == 1 { "1 sequence".to_owned() } else { format!("{batch} sequences") };
    if output_tokens > 1 {
        return Some(format!(
            "a decode step of {sequences} cannot be divided into {micro_batches} micro-batches; the batch must be \
             at least {micro_batches} (a prefill alone, output_tokens 1, divides the prompt's tokens)"
        ));
    }
    (prompt_tokens < micro_batches).then(|| {
        format!(
            "{sequences} of {prompt_tokens} tokens cannot be divided into {micro_batches} micro-batches"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sim::testing::spec;

    #[test]
    fn a_batch_that_cannot_be_divided_is_skipped_with_the_arithmetic() {
        let cell = |batch, output_tokens, prompt_tokens, micro_batches| {
            let plain = spec("standard", "tiny");
            let cell = Spec { batch, output_tokens, prompt_tokens, micro_batches, ..plain };
            match of(&cell).unwrap() {
                Feasibility::Skipped(why) => why,
                found => format!("{found:?}"),
            }
        };
        let runs = format!("{:?}", Feasibility::Runs);
        assert_eq!(cell(2, 8, 8, 2), runs);
        assert!(cell(1, 8, 8, 2).starts_with("a decode step of 1 sequence cannot be divided into 2"));
        // a prefill alone divides its tokens, where there are enough
        assert_eq!(cell(1, 1, 8, 4), runs);
        assert_eq!(cell(3, 1, 3, 4), "3 sequences of 3 tokens cannot be divided into 4 micro-batches");
    }
}
