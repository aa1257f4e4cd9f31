//! Evaluation of architectures on a text, independent of the backend.

use super::generate::check_vocabulary;
use base::error::{Error, Result};
use model::Model;
use plan::{Architecture, CommDType, DType, Lowering, Phase, Plan, PlanSpec, Precision, Variant};
pub use table::WindowQuality;

#[derive(Clone, Debug)]
pub struct EvaluateRequest {
    pub model: Model,
    /// Architectures to evaluate; `standard` is always computed too, as their reference.
    pub architectures: Vec<Architecture>,
    /// Another model of the same shape whose `standard` is the reference: the checkpoint that this one was trained
    /// from.
    pub reference: Option<Model>,
    /// Weight format; the cpu backend supports f32 and bf16.
    pub dtype: DType,
    pub tp: u32,
    /// Message format of partial sums; the reference `standard` sends activations.
    pub comm_dtype: CommDType,
    pub seed: u64,
    pub windows: Vec<Window>,
}

impl EvaluateRequest {
    pub fn context(&self) -> usize {
        self.windows.iter().map(|window| window.tokens.len()).max().unwrap_or(0)
    }
}

/// Independent window of the text. Its first token is not predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// At least two token ids.
    pub tokens: Vec<u32>,
    /// Indices of the request's architectures to evaluate on this window.
    pub wanted: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluated {
    pub window: usize,
    pub architecture: usize,
    pub quality: WindowQuality,
}

pub type Emit<'a> = dyn FnMut(Evaluated) -> Result<()> + 'a;

/// Builds the plan of an evaluation: a prefill of one window, lowered as the backend asks
/// ([`crate::Evaluate::evaluation_lowering`]).
///
/// # Errors
///
/// Returns an input error if TP does not divide the model, and for `upper-bound`, whose results are wrong by design.
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
        pp: 1,
    })
    .map_err(|problem| Error::input(problem.to_string()))
}

impl EvaluateRequest {
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
            check_vocabulary(&format!("window {index}"), &window.tokens, vocab)?;
        }
        Ok(())
    }
}
