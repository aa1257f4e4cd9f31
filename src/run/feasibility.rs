//! Whether a cell can run, found before anything starts.

use super::Shared;
use super::backend::backend;
use crate::base::error::Result;
use crate::plan::ModelShape;
use crate::table::Spec;

/// Whether a cell can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feasibility {
    /// Nothing speaks against running the cell.
    Runs,
    /// It cannot: TP does not divide the heads (with the arithmetic).
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
    match problem(spec, &model.shape) {
        Some(problem) => Ok(Feasibility::Skipped(problem)),
        None => backend(spec.backend)?.feasibility(spec, &model.shape, shared),
    }
}

/// Why no backend can run a cell of a model of this shape: TP does not divide it, or a batch cannot be divided
/// into as many groups as are asked for. `None` where nothing speaks against it.
pub fn problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    shape.tp_problem(spec.tp).or_else(|| division_problem(spec))
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
