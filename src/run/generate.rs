//! Text generation: requests, token sampling, and windows for quality.

use super::BACKENDS;
use super::backend::Execute;
use base::error::{Error, Result};
use model::Model;
use plan::{Architecture, CommDType, DType, Lowering, Phase, Plan, PlanSpec, Precision, Variant};

pub use table::WindowQuality;

/// Prompt tokens per chunk; bounds the memory for the logits of all positions.
pub(super) const CHUNK: usize = 128;

const TOP: usize = 5;

#[derive(Clone, Debug)]
pub struct GenerateRequest {
    pub model: Model,
    pub architecture: Architecture,
    /// Weight format; the cpu backend supports f32 and bf16.
    pub dtype: DType,
    pub tp: u32,
    /// Token ids of each prompt; none may be empty.
    pub prompts: Vec<Vec<u32>>,
    pub output_tokens: u32,
    /// Sampling temperature; `None` is greedy.
    pub temperature: Option<f32>,
    /// Number of top logits to sample from; `None` uses all.
    pub top_k: Option<u32>,
    pub seed: u64,
    pub stop_at: Vec<u32>,
    /// Plan options. Micro-batches divide only decode steps, since prompts are processed one by one.
    pub variant: Variant,
}

#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// True to capture decode steps as CUDA graphs and replay them.
    pub graph: bool,
    pub timeout: std::time::Duration,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { graph: true, timeout: super::PROGRESS_TIMEOUT }
    }
}

/// Status message of a generation.
#[derive(Clone, Copy, Debug)]
pub enum GenerationStatus<'a> {
    Phase(&'a str),
    Note(&'a str),
}

pub type StatusCallback<'a> = dyn FnMut(GenerationStatus<'_>) + 'a;

/// Chooses the default backend for generation, and gives the reason.
pub fn choose_generator(model: &Model, dtype: Option<DType>) -> Result<(&'static dyn Execute, String)> {
    let mut reasons = Vec::new();
    for backend in BACKENDS.into_iter().rev().filter_map(|backend| backend.executor()) {
        let suits = match backend.lacks_shape(&model.shape) {
            Some(why) => Err(why),
            None => backend.suits_generation(model, dtype),
        };
        let is_chosen = suits.is_ok();
        reasons.extend(Some(suits.unwrap_or_else(|why| why)).filter(|why| !why.is_empty()));
        if is_chosen {
            return Ok((backend, reasons.join("; ")));
        }
    }
    Err(Error::input(format!("no backend generates tokens here: {}", reasons.join("; "))))
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationResult {
    pub tokens: Vec<Vec<u32>>,
    /// Five highest logits at the prompt's last position, highest first.
    pub top_logits: Vec<Vec<(u32, f32)>>,
    /// Mean negative log-likelihood (nats) of the prompt's tokens after the first; `None` for prompts of one token.
    pub nll: Vec<Option<f64>>,
}

impl GenerateRequest {
    pub(super) fn check(&self) -> Result<()> {
        if self.prompts.is_empty() {
            return Err(Error::input_help(
                "no prompt",
                "give --prompt TEXT or --prompt-tokens-file FILE",
            ));
        }
        let vocab = self.model.shape.vocab;
        for (index, prompt) in self.prompts.iter().enumerate() {
            if prompt.is_empty() {
                return Err(Error::input(format!(
                    "prompt {index} is empty; it needs at least one token"
                )));
            }
            check_vocabulary(&format!("prompt {index}"), prompt, vocab)?;
        }
        let (groups, count) = (self.variant.micro_batches as usize, self.prompts.len());
        if groups > count {
            return Err(Error::input(format!(
                "{count} prompt{} cannot be split into {groups} micro-batches; pass at least {groups}",
                if count == 1 { "" } else { "s" }
            )));
        }
        if self.output_tokens == 0 {
            return Err(Error::input("output tokens must be at least 1"));
        }
        if let Some(temperature) = self.temperature
            && !(temperature.is_finite() && temperature >= 0.0)
        {
            return Err(Error::input(format!(
                "temperature {temperature} is not a number of at least 0"
            )));
        }
        Ok(())
    }

    pub(super) fn sampling(&self) -> Sampling {
        match self.temperature {
            Some(temperature) if temperature > 0.0 => Sampling::Random {
                temperature,
                top_k: self.top_k.unwrap_or(u32::MAX) as usize,
                seed: self.seed,
            },
            _ => Sampling::Greedy,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        let longest = self.prompts.iter().map(Vec::len).max().unwrap_or(0);
        longest + self.output_tokens as usize
    }
}

/// Returns an input error for a token outside the vocabulary.
fn check_vocabulary(of: &str, tokens: &[u32], vocab: u32) -> Result<()> {
    match tokens.iter().find(|token| **token >= vocab) {
        Some(token) => Err(Error::input(format!(
            "{of}: token {token} is outside the vocabulary of {vocab} (0 to {})",
            vocab - 1
        ))),
        None => Ok(()),
    }
}

#[derive(Debug, Default)]
pub(super) struct PromptLogits {
    nll: f64,
    last: Vec<(u32, f32)>,
}

impl PromptLogits {
    pub fn take(&mut self, prompt: &[u32], first: usize, logits: &[f32], vocab: usize) {
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            match prompt.get(first + row + 1) {
                Some(following) => {
                    self.nll -= f64::from(logits[*following as usize]) - log_total(logits).1;
                }
                None => self.last = top(logits, TOP),
            }
        }
    }

    pub fn finish(self, prompt: &[u32], generated: &mut GenerationResult) {
        generated.top_logits.push(self.last);
        generated.nll.push((prompt.len() > 1).then(|| self.nll / (prompt.len() - 1) as f64));
    }
}

/// Maximum logit and log-sum-exp, in f64.
pub(super) fn log_total(logits: &[f32]) -> (f32, f64) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|logit| f64::from(logit - max).exp()).sum();
    (max, f64::from(max) + total.ln())
}

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
    pub windows: Vec<EvaluationWindow>,
}

impl EvaluateRequest {
    pub fn context(&self) -> usize {
        self.windows.iter().map(|window| window.tokens.len()).max().unwrap_or(0)
    }

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

/// Independent window of the text. Its first token is not predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationWindow {
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
/// ([`crate::Execute::evaluation_lowering`]).
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

/// Choice of the next token. Random draws depend only on (seed, sequence, position), so every rank draws the same token
/// from the same logits for any TP and batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// Highest logit; the first one on ties.
    Greedy,
    Random {
        temperature: f32,
        top_k: usize,
        seed: u64,
    },
}

impl Sampling {
    pub fn choose(&self, logits: &[f32], sequence: usize, position: usize) -> u32 {
        match *self {
            Self::Greedy => top(logits, 1)[0].0,
            Self::Random { temperature, top_k, seed } => {
                let best = top(logits, top_k.max(1));
                let highest = best[0].1;
                let weight = |logit: f32| f64::from((logit - highest) / temperature).exp();
                let total: f64 = best.iter().map(|(_, logit)| weight(*logit)).sum();
                let mut left = uniform(seed, sequence as u64, position as u64) * total;
                for (token, logit) in &best {
                    left -= weight(*logit);
                    if left < 0.0 {
                        return *token;
                    }
                }
                best[best.len() - 1].0
            }
        }
    }
}

/// The `k` highest logits with their tokens, highest first; ties by token, NaN counts as lowest. O(n + k log k).
pub fn top(logits: &[f32], k: usize) -> Vec<(u32, f32)> {
    let key = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { logit };
    let order = |a: &(u32, f32), b: &(u32, f32)| key(b.1).total_cmp(&key(a.1)).then(a.0.cmp(&b.0));
    if k == 1 {
        // hot path of greedy decoding: one pass, no allocation
        let mut best = (0, f32::NEG_INFINITY);
        for (token, logit) in logits.iter().enumerate() {
            if *logit > best.1 {
                best = (token as u32, *logit);
            }
        }
        return vec![best];
    }
    let mut all: Vec<(u32, f32)> = logits.iter().enumerate().map(|(i, l)| (i as u32, *l)).collect();
    let k = k.min(all.len());
    if k < all.len() {
        all.select_nth_unstable_by(k, order);
        all.truncate(k);
    }
    all.sort_unstable_by(order);
    all
}

/// Uniform number in [0, 1) from three integers (SplitMix64's finalizer over their mix).
fn uniform(seed: u64, sequence: u64, position: u64) -> f64 {
    let mut z = seed;
    for part in [sequence, position] {
        z = arithmetic::splitmix64(z.wrapping_add(part).wrapping_add(0x9E37_79B9_7F4A_7C15));
    }
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_first_of_equals() {
        assert_eq!(Sampling::Greedy.choose(&[0.0, 3.0, 3.0, f32::NAN], 0, 0), 1);
    }

    #[test]
    fn top_k_follows_the_distribution_and_the_seed() {
        let logits = [0.0, (3.0f32).ln(), -50.0, (6.0f32).ln()];
        let sampling = Sampling::Random { temperature: 1.0, top_k: 3, seed: 7 };
        let mut counts = [0; 4];
        for position in 0..20_000 {
            counts[sampling.choose(&logits, 1, position) as usize] += 1;
        }
        assert_eq!(counts[2], 0);
        for (token, share) in [(0, 0.1), (1, 0.3), (3, 0.6)] {
            assert!((f64::from(counts[token]) / 20_000.0 - share).abs() < 0.02, "{counts:?}");
        }
        let draws = |seed| -> Vec<u32> {
            let sampling = Sampling::Random { temperature: 1.0, top_k: 3, seed };
            (0..50).map(|position| sampling.choose(&logits, 1, position)).collect()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        // a low temperature is greedy
        let cold = Sampling::Random { temperature: 0.01, top_k: 4, seed: 7 };
        assert!((0..100).all(|position| cold.choose(&logits, 0, position) == 3));
    }

    #[test]
    fn top_is_sorted_and_stable() {
        assert_eq!(top(&[1.0, 2.0, 2.0, 0.0], 3), vec![(1, 2.0), (2, 2.0), (0, 1.0)]);
        assert_eq!(top(&[1.0], 5), vec![(0, 1.0)]);
    }
}
