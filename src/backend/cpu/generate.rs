//! Tokens from a checkpoint: prompts of different lengths, any architecture, any TP.

use super::attention::{RowRun, StepRows};
use super::engine::{self, Setup, Worker};
use super::rank::Place;
use super::sample::{Sampling, top};
use crate::comm::Broken;
use crate::error::{Error, Result};
use crate::model::{DType, Model};
use crate::plan::Architecture;

/// Prompt tokens that are processed at a time: bounds the memory of all positions' logits.
const CHUNK: usize = 128;

/// Highest logits that are reported.
const TOP: usize = 5;

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The model.
    pub model: Model,
    /// Residual wiring.
    pub architecture: Architecture,
    /// Format of the weights: f32 or bf16.
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
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// New tokens.
    pub tokens: Vec<Vec<u32>>,
    /// The five highest logits at the prompt's last position, highest first.
    pub top_logits: Vec<Vec<(u32, f32)>>,
    /// Mean negative log-likelihood (nats) of the prompt's tokens after its first; `None` for prompts
    /// of one token.
    pub nll: Vec<Option<f64>>,
}

/// Generates; `on_token` is called with the number of tokens each sequence has so far.
pub fn generate(request: &GenerateRequest, on_token: &mut dyn FnMut(usize)) -> Result<Generated> {
    check(request)?;
    let longest = request.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let setup = Setup {
        model: &request.model,
        architecture: &request.architecture,
        dtype: request.dtype,
        tp: request.tp,
        seed: request.seed,
        link: None,
        sampling: match request.temperature {
            Some(temperature) if temperature > 0.0 => Sampling::Random {
                temperature,
                top_k: request.top_k.unwrap_or(u32::MAX) as usize,
                seed: request.seed,
            },
            _ => Sampling::Greedy,
        },
        sequences: request.prompts.len(),
        capacity: longest + request.output_tokens as usize,
        all_logits: true,
    };
    let shared = engine::prepare(&setup)?;
    let body = |worker: &mut Worker<'_>, progress: &crossbeam_channel::Sender<usize>| {
        let progress = (worker.rank.index == 0).then_some(progress);
        on_rank(worker, request, progress)
    };
    let mut ranks = engine::run_ranks(&setup, &shared, body, &|_| (), |progress| {
        progress.iter().for_each(&mut *on_token);
        Ok(())
    })?;
    // ranks agree where the architecture lets them; where it does not, rank 0 speaks
    Ok(ranks.swap_remove(0))
}

fn check(request: &GenerateRequest) -> Result<()> {
    if request.prompts.is_empty() {
        return Err(Error::input_help("no prompt", "give --prompt TEXT or --prompt-tokens-file FILE"));
    }
    let vocab = request.model.shape.vocab;
    for (index, prompt) in request.prompts.iter().enumerate() {
        if prompt.is_empty() {
            return Err(Error::input(format!("prompt {index} is empty; it needs at least one token")));
        }
        if let Some(token) = prompt.iter().find(|token| **token >= vocab) {
            return Err(Error::input(format!(
                "prompt {index}: token {token} is outside the vocabulary of {vocab} (0 to {})",
                vocab - 1
            )));
        }
    }
    if request.output_tokens == 0 {
        return Err(Error::input("output tokens must be at least 1"));
    }
    if request.dtype == DType::F16 {
        return Err(Error::input_help(
            "the cpu backend does not compute with f16 weights",
            "use f32 or bf16",
        ));
    }
    if let Some(temperature) = request.temperature
        && !(temperature.is_finite() && temperature >= 0.0)
    {
        return Err(Error::input(format!("temperature {temperature} is not a number of at least 0")));
    }
    Ok(())
}

fn on_rank(
    worker: &mut Worker<'_>,
    request: &GenerateRequest,
    progress: Option<&crossbeam_channel::Sender<usize>>,
) -> Result<Generated, Broken> {
    let place = Place { on: false, sample: 0, step: 0 };
    let vocab = request.model.shape.vocab as usize;
    let count = request.prompts.len();
    let mut generated = Generated { tokens: Vec::new(), top_logits: Vec::new(), nll: Vec::new() };
    // prompts differ in length: each is processed alone, in chunks
    for (sequence, prompt) in request.prompts.iter().enumerate() {
        let mut nll = 0.0;
        let mut next = 0;
        let mut last_logits = Vec::new();
        for first in (0..prompt.len()).step_by(CHUNK) {
            let tokens = &prompt[first..(first + CHUNK).min(prompt.len())];
            let run = RowRun { sequence, position: first, count: tokens.len() };
            let sampled =
                worker.rank.step(&mut worker.prefill, place, &StepRows { runs: vec![run] }, tokens)?;
            let logits = worker.prefill.value(worker.prefill.program.plan.logits);
            for (row, logits) in logits.chunks_exact(vocab).enumerate() {
                match prompt.get(first + row + 1) {
                    Some(following) => nll -= log_softmax(logits, *following),
                    None => last_logits = top(logits, TOP),
                }
            }
            next = sampled[0];
        }
        generated.tokens.push(vec![next]);
        generated.top_logits.push(last_logits);
        generated.nll.push((prompt.len() > 1).then(|| nll / (prompt.len() - 1) as f64));
    }
    let stopped = |tokens: &[u32]| tokens.last().is_some_and(|last| request.stop_at.contains(last));
    for made in 1..request.output_tokens as usize {
        if let Some(progress) = progress {
            let _ = progress.send(made);
        }
        let live: Vec<usize> = (0..count).filter(|s| !stopped(&generated.tokens[*s])).collect();
        if live.is_empty() {
            break;
        }
        let runs = live.iter().map(|&sequence| RowRun {
            sequence,
            position: request.prompts[sequence].len() + made - 1,
            count: 1,
        });
        let tokens: Vec<u32> = live.iter().map(|s| generated.tokens[*s][made - 1]).collect();
        let rows = StepRows { runs: runs.collect() };
        let next = worker.rank.step(&mut worker.decode, place, &rows, &tokens)?;
        for (sequence, token) in live.into_iter().zip(next) {
            generated.tokens[sequence].push(token);
        }
    }
    Ok(generated)
}

/// Log-probability of one token, in f64.
fn log_softmax(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    f64::from(logits[token as usize] - max) - total.ln()
}
