//! Text generation from a checkpoint or random weights, with prompts of different lengths, any architecture
//! and any TP. Prompts are prefilled one by one in chunks, because the logits of all positions are read; then
//! all sequences decode together. Ranks share one GPU if there are fewer GPUs than ranks.

use std::sync::Arc;

use super::engine::{Engine, Local, Programs, Setup, Timing};
use super::kernels::geometry;
use super::ranks::{alive, among_peers, on_threads};
use crate::PlanBackend;
use crate::comm::Peers;
use crate::comm::nccl::Nccl;
use crate::generate::{CHUNK, GenerateOptions, GenerateRequest, Generated, PromptLogits, Said, Saying};
use crate::sample::Sampling;
use base::error::{Error, Result};
use machine::driver::Gpu;
use plan::Phase;
use table::shared_gpu;

/// Decode steps between two progress checks, if the caller wants progress.
const LOOK_EVERY: u32 = 16;

/// Generates tokens. `on_token` occasionally receives the number of tokens per sequence so far, `say`
/// receives progress messages.
pub fn generate(
    request: &GenerateRequest,
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(usize),
    say: &mut Saying<'_>,
) -> Result<Generated> {
    request.check()?;
    super::CudaBackend.check_format(request.dtype)?;
    let longest = request.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let whole = |number: usize, what: &str| {
        u32::try_from(number).map_err(|_| Error::input(format!("{number} {what} are too many")))
    };
    let GenerateRequest { model, architecture, dtype, tp, .. } = request;
    let setup = Setup {
        seed: request.seed,
        sampling: request.sampling(),
        sequences: whole(request.prompts.len(), "prompts")?,
        capacity: whole(request.capacity(), "tokens of a sequence")?,
        output_tokens: request.output_tokens,
        prefill: (1, longest.min(CHUNK) as u32),
        all_logits: true,
        variant: request.variant,
        graph: options.graph,
        timeout: options.timeout,
        ..Setup::new(model.clone(), architecture.clone(), *dtype, *tp)?
    };
    if let Some(note) = slow_sampling(setup.sampling, request.model.shape.vocab) {
        say(Said::Note(&note));
    }
    let programs = Arc::new(Programs::new(&setup)?);
    let gpus = Gpu::count()?;
    if request.tp == 1 || gpus < request.tp as usize || shared_gpu::is_on() {
        if request.tp > 1 {
            say(Said::Note(&format!(
                "{} ranks share one GPU, and their all-reduces are a kernel on it",
                request.tp
            )));
        }
        let (local, mut on_phase) = (Local::on_one_gpu(request.tp), |what: &str| say(Said::Phase(what)));
        let engine = Engine::new(&Gpu::open(0)?, &setup, programs, local, alive(None), &mut on_phase)?;
        return on_engine(&engine, request, &Ok, on_token);
    }
    over_nccl(request, &setup, &programs, on_token, &mut |what| say(Said::Phase(what)))
}

/// Warning if sampling among this many candidates is slow.
fn slow_sampling(sampling: Sampling, vocab: u32) -> Option<String> {
    let Sampling::Random { top_k, .. } = sampling else { return None };
    let (candidates, few) = (top_k.min(vocab as usize), geometry::FEW_CANDIDATES);
    (candidates > few as usize).then(|| {
        format!(
            "the {candidates} likeliest tokens are sorted in memory, not in a multiprocessor: each step takes longer than \
             among {few} or fewer (--top-k)"
        )
    })
}

/// Runs one thread and GPU per rank; rank 0 runs on this thread and returns the result.
fn over_nccl(
    request: &GenerateRequest,
    setup: &Setup,
    programs: &Arc<Programs>,
    on_token: &mut dyn FnMut(usize),
    on_phase: &mut dyn FnMut(&str),
) -> Result<Generated> {
    let nccl = Nccl::load()?;
    let rank = |peers: &Arc<Peers>, on_token: &mut dyn FnMut(usize), on_phase: &mut dyn FnMut(&str)| {
        among_peers(nccl, peers.rank(), peers, None, |gpu, local| {
            let (programs, alive) = (Arc::clone(programs), alive(Some(peers)));
            let engine = Engine::new(gpu, setup, programs, local, alive, on_phase)?;
            peers.barrier()?;
            let first_says = |stopped: bool| {
                Ok(peers.broadcast(vec![u8::from(stopped)])?.first().is_some_and(|said| *said != 0))
            };
            let generated = on_engine(&engine, request, &first_says, on_token)?;
            peers.barrier()?;
            Ok(generated)
        })
    };
    // ranks compute the same tokens if the architecture keeps them in sync; otherwise rank 0 decides
    on_threads(
        Peers::threads(setup.tp as usize, setup.timeout),
        |peers| rank(peers, on_token, on_phase),
        |peers| rank(peers, &mut |_| (), &mut |_| ()),
    )
}

/// Generates on one engine. `agree` turns each rank's wish to stop into one decision: a rank that continued
/// alone would deadlock.
fn on_engine(
    engine: &Engine,
    request: &GenerateRequest,
    agree: &dyn Fn(bool) -> Result<bool>,
    on_token: &mut dyn FnMut(usize),
) -> Result<Generated> {
    let vocab = request.model.shape.vocab as usize;
    let mut generated = Generated::default();
    let steps = request.output_tokens - 1;
    // the trial run before the first capture changes the state, so it comes first
    let mut decode = if steps > 0 { Some(engine.decode_step(Timing::default())?) } else { None };
    engine.reset()?;
    for (sequence, prompt) in request.prompts.iter().enumerate() {
        let mut seen = PromptLogits::default();
        for first in (0..prompt.len()).step_by(CHUNK) {
            let tokens = &prompt[first..(first + CHUNK).min(prompt.len())];
            engine.set_prompt(1, tokens)?;
            let mut step =
                engine.prefill_step(sequence as u32, 1, tokens.len() as u32, Timing::default())?;
            engine.run(&mut step)?;
            let what = format!("prefill of prompt {sequence}");
            engine.wait_idle(&what)?;
            seen.take(prompt, first, &engine.logits(Phase::Prefill, tokens.len())?, vocab);
            if first + tokens.len() < prompt.len() {
                // only the last chunk's token continues the prompt
                engine.forget_tokens(sequence as u32)?;
            }
        }
        seen.finish(prompt, &mut generated);
    }
    let mut made = 1;
    if let Some(step) = &mut decode {
        while made < request.output_tokens {
            on_token(made as usize);
            let next = (made + LOOK_EVERY).min(request.output_tokens);
            for _ in made..next {
                engine.run(step)?;
            }
            engine.wait_idle(&format!("decode steps {made} to {}", next - 1))?;
            made = next;
            if request.stop_at.is_empty() {
                continue;
            }
            let tokens = engine.tokens(made)?;
            if agree(tokens.iter().all(|tokens| stop(tokens, &request.stop_at).is_some()))? {
                break;
            }
        }
    }
    generated.tokens = engine.tokens(made)?;
    for tokens in &mut generated.tokens {
        if let Some(length) = stop(tokens, &request.stop_at) {
            tokens.truncate(length);
        }
    }
    Ok(generated)
}

/// Length of a sequence up to its first stop token, if any.
fn stop(tokens: &[u32], stop_at: &[u32]) -> Option<usize> {
    tokens.iter().position(|token| stop_at.contains(token)).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_ends_with_its_first_end_token() {
        assert_eq!(stop(&[3, 7, 9, 7], &[7, 8]), Some(2));
        assert_eq!(stop(&[3, 7], &[]), None);
        assert_eq!(stop(&[8], &[8]), Some(1));
        assert_eq!(stop(&[], &[8]), None);
    }

    #[test]
    fn many_candidates_are_told_to_be_slow() {
        let of =
            |top_k, vocab| slow_sampling(Sampling::Random { temperature: 1.0, top_k, seed: 0 }, vocab);
        assert!(of(2000, 32_000).is_some_and(|said| said.starts_with("the 2000 likeliest tokens")));
        assert!(of(1 << 40, 32_000).is_some_and(|said| said.starts_with("the 32000 likeliest tokens")));
        assert_eq!(
            [of(1024, 32_000), of(2000, 256), slow_sampling(Sampling::Greedy, 32_000)],
            [None, None, None]
        );
    }
}
