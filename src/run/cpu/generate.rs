//! Token generation from prompts of different lengths.

use super::attention::{RowRun, StepRows};
use super::engine::{self, Setup, Worker};
use super::rank::Place;
use crate::PlanBackend;
use crate::comm::Broken;
use crate::generate::{CHUNK, GenerateRequest, Generated, PromptLogits};
use base::error::Result;
use plan::Architecture;

/// Generates tokens on this machine's cores; calls `on_token` with the number of tokens per sequence so far. Returns
/// an input error for f16 weights, a TP that does not divide the model, or an invalid checkpoint.
pub fn generate(request: &GenerateRequest, on_token: &mut dyn FnMut(usize)) -> Result<Generated> {
    request.check()?;
    super::CpuBackend.check_format(request.dtype)?;
    let GenerateRequest { model, architecture, dtype, tp, seed, variant, .. } = request;
    let setup = Setup {
        shard_head: shards_head(request),
        sampling: request.sampling(),
        sequences: request.prompts.len(),
        all_logits: true,
        variant: *variant,
        prefill_variant: variant.undivided(),
        ..Setup::new(model, architecture, (*dtype, *tp, *seed), request.capacity())
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
    // if the architecture lets ranks diverge, rank 0's tokens count
    Ok(ranks.swap_remove(0))
}

/// True if the head is sharded. Ranks whose residuals may diverge each need the whole head.
fn shards_head(request: &GenerateRequest) -> bool {
    let shape = &request.model.shape;
    let agree = !request.architecture.wiring(shape.layers).may_diverge();
    agree && request.architecture != Architecture::UpperBound && shape.vocab.is_multiple_of(request.tp)
}

fn on_rank(
    worker: &mut Worker<'_>,
    request: &GenerateRequest,
    progress: Option<&crossbeam_channel::Sender<usize>>,
) -> Result<Generated, Broken> {
    let place = Place { on: false, sample: 0, step: 0 };
    let vocab = request.model.shape.vocab as usize;
    let count = request.prompts.len();
    let mut generated = Generated::default();
    // prompts differ in length: each is processed separately, in chunks
    for (sequence, prompt) in request.prompts.iter().enumerate() {
        let mut seen = PromptLogits::default();
        let mut next = 0;
        for first in (0..prompt.len()).step_by(CHUNK) {
            let tokens = &prompt[first..(first + CHUNK).min(prompt.len())];
            let run = RowRun { sequence, position: first, count: tokens.len() };
            let sampled =
                worker.rank.step(&mut worker.prefill, place, &StepRows { runs: vec![run] }, tokens)?;
            let logits = worker.prefill.value(worker.prefill.program.plan.logits[0]);
            seen.take(prompt, first, logits, vocab);
            next = sampled[0];
        }
        generated.tokens.push(vec![next]);
        seen.finish(prompt, &mut generated);
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
