//! What it means to evaluate architectures on a text, whichever backend does it.

use base::error::{Error, Result};
use model::Model;
use plan::{Architecture, CommDType, DType, Lowering, Phase, Plan, PlanSpec, Precision, Variant};
pub use table::WindowQuality;

/// What a user asks of `evaluate`: a model, wirings of it, and windows of a text.
#[derive(Clone, Debug)]
pub struct EvaluateRequest {
    /// The model, with its checkpoint if it has one.
    pub model: Model,
    /// The wirings that are evaluated. `standard` is computed beside them, since they are compared with it.
    pub architectures: Vec<Architecture>,
    /// The model whose `standard` they are compared with, where it is another one of the same shape: the checkpoint
    /// from which this one was trained.
    pub reference: Option<Model>,
    /// Format of the weights; the cpu backend does f32 and bf16.
    pub dtype: DType,
    /// The number of ranks (TP).
    pub tp: u32,
    /// The format in which partial sums are sent; the `standard` that others are compared with sends them as they are.
    pub comm_dtype: CommDType,
    /// Seed of weights where the model has none.
    pub seed: u64,
    /// Pieces of the text, each as long as the others. They are independent of one another.
    pub windows: Vec<Window>,
}

impl EvaluateRequest {
    /// Tokens of the longest window; 0 where there is none.
    pub fn context(&self) -> usize {
        self.windows.iter().map(|window| window.tokens.len()).max().unwrap_or(0)
    }
}

/// A piece of the text that stands alone: its first token is predicted by nobody, and predicts the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Token ids, at least two.
    pub tokens: Vec<u32>,
    /// Which of the request's architectures are to be evaluated on it, by their indices.
    pub wanted: Vec<usize>,
}

/// One result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluated {
    /// Index of the window in the request.
    pub window: usize,
    /// Index of the architecture in the request.
    pub architecture: usize,
    /// What it lost there.
    pub quality: WindowQuality,
}

/// Who is told of the results of an evaluation, as they come. An error ends it.
pub type Emit<'a> = dyn FnMut(Evaluated) -> Result<()> + 'a;

/// The plan that an evaluation executes: all positions of a window at once,
/// lowered as the backend asks ([`crate::PlanBackend::evaluation_lowering`]).
///
/// # Errors
///
/// An input error where TP does not divide the model, and for `upper-bound`,
/// whose numbers are wrong on purpose.
pub fn evaluation_plan(
    model: &Model,
    architecture: &Architecture,
    tp: u32,
    precision: Precision,
    comm_dtype: CommDType,
    lowering: Lowering,
) -> Result<Plan> {
    if *architecture == Architecture::UpperBound {
        return Err(Error::input_help(
            "upper-bound has no quality: without all-reduces its numbers are wrong on purpose",
            "evaluate an architecture that computes a model: standard, ladder, parallel, desync:2, ...",
        ));
    }
    Plan::new(&PlanSpec {
        shape: model.shape.clone(),
        architecture: architecture.clone(),
        tp,
        phase: Phase::Prefill,
        precision,
        lowering,
        variant: Variant { comm_dtype, ..Variant::default() },
        batch: 1,
    })
    .map_err(|problem| Error::input(problem.to_string()))
}

impl EvaluateRequest {
    /// Errors where something is wrong that no backend could do.
    pub(super) fn check(&self) -> Result<()> {
        let vocab = self.model.shape.vocab;
        if let Some(reference) = &self.reference
            && reference.shape != self.model.shape
        {
            return Err(Error::input_help(
                format!("{} and {} have different shapes", self.model.name, reference.name),
                "compare a checkpoint with the one that it was trained from",
            ));
        }
        for (index, window) in self.windows.iter().enumerate() {
            if window.tokens.len() < 2 {
                return Err(Error::input(format!(
                    "window {index} has {} of the two tokens that it needs",
                    window.tokens.len()
                )));
            }
            if let Some(token) = window.tokens.iter().find(|token| **token >= vocab) {
                return Err(Error::input(format!(
                    "window {index}: token {token} is outside the vocabulary of {vocab} (0 to {})",
                    vocab - 1
                )));
            }
        }
        Ok(())
    }
}
