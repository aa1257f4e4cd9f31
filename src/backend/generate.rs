//! What it means to generate tokens from prompts, whichever backend does it.

use crate::error::{Error, Result};
use crate::model::{DType, Model};
use crate::plan::Architecture;

use super::sample::Sampling;

/// Prompt tokens that are processed at a time: bounds the memory of all positions' logits.
pub(super) const CHUNK: usize = 128;

/// Highest logits that are reported.
pub(super) const TOP: usize = 5;

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The model.
    pub model: Model,
    /// Residual wiring.
    pub architecture: Architecture,
    /// Format of the weights; the cpu backend does f32 and bf16.
    pub dtype: DType,
    /// Ranks.
    pub tp: u32,
    /// Token ids of each prompt; none may be empty.
    pub prompts: Vec<Vec<u32>>,
    /// New tokens of each sequence.
    pub output_tokens: u32,
    /// Greedy without.
    pub temperature: Option<f32>,
    /// How many of the highest logits take part in sampling; all without.
    pub top_k: Option<u32>,
    /// Seed of sampling, and of weights where the model has none.
    pub seed: u64,
    /// Tokens that end a sequence; empty: none does.
    pub stop_at: Vec<u32>,
}

/// What was generated, an entry a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// New tokens.
    pub tokens: Vec<Vec<u32>>,
    /// The five highest logits at the prompt's last position, highest first.
    pub top_logits: Vec<Vec<(u32, f32)>>,
    /// Mean negative log-likelihood (nats) of the prompt's tokens after its first; `None` for prompts
    /// of one token.
    pub nll: Vec<Option<f64>>,
}

impl GenerateRequest {
    /// Errors where something is wrong that no backend could do.
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
            if let Some(token) = prompt.iter().find(|token| **token >= vocab) {
                return Err(Error::input(format!(
                    "prompt {index}: token {token} is outside the vocabulary of {vocab} (0 to {})",
                    vocab - 1
                )));
            }
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

    /// How tokens are chosen.
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

    /// Tokens that the KV cache must have room for, in each sequence.
    pub(super) fn capacity(&self) -> usize {
        let longest = self.prompts.iter().map(Vec::len).max().unwrap_or(0);
        longest + self.output_tokens as usize
    }
}

/// What a prompt's logits say: the likelihood of its own tokens, and what may follow it.
#[derive(Debug, Default)]
pub(super) struct PromptLogits {
    nll: f64,
    last: Vec<(u32, f32)>,
}

impl PromptLogits {
    /// Takes the logits (`[rows, vocab]`) at positions `first..` of `prompt`.
    pub fn take(&mut self, prompt: &[u32], first: usize, logits: &[f32], vocab: usize) {
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            match prompt.get(first + row + 1) {
                Some(following) => self.nll -= log_softmax(logits, *following),
                None => self.last = super::sample::top(logits, TOP),
            }
        }
    }

    /// Adds what is known once all of `prompt` was taken.
    pub fn finish(self, prompt: &[u32], generated: &mut Generated) {
        generated.top_logits.push(self.last);
        generated.nll.push((prompt.len() > 1).then(|| self.nll / (prompt.len() - 1) as f64));
    }
}

/// Log-probability of one token, in f64.
fn log_softmax(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    f64::from(logits[token as usize] - max) - total.ln()
}
