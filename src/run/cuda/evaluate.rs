//! Quality of architectures on a text, on one GPU shared by all ranks.
//!
//! The baseline (`standard` on one rank) stays on the GPU; the other architectures are loaded one at a time.
//! Windows run through prefill in chunks, and the host compares the logits of every position.

use std::sync::Arc;

use super::engine::{Engine, EngineSetup, Local, Programs, Timing};
use super::ranks::alive;
use rayon::prelude::*;

use crate::PlanBackend;
use crate::generate::{CHUNK, Emit, EvaluateRequest, Evaluated, WindowQuality, log_total};
use base::error::{Error, Result};
use machine::driver::Gpu;
use plan::{Architecture, CommDType, Phase, Variant};

/// Evaluates on the first GPU and passes results to `emit` as they arrive. Starts no further window once
/// `stop` returns true.
///
/// # Errors
///
/// Returns an input error for an invalid request. Also returns an error if there is no GPU, the two models do
/// not fit together, the GPU fails, or `emit` fails.
pub fn evaluate(
    request: &EvaluateRequest,
    stop: &(dyn Fn() -> bool + Sync),
    emit: &mut Emit<'_>,
) -> Result<()> {
    request.check()?;
    super::CudaBackend.check_format(request.dtype)?;
    if let Some(reference) = &request.reference {
        return Err(Error::input_help(
            format!("the cuda backend does not support --reference ({})", reference.name),
            "evaluate with --backend cpu",
        ));
    }
    let gpu = Gpu::open(0)?;
    let standard = engine(&gpu, request, (&Architecture::Standard, 1), CommDType::Activations)?;
    for (index, architecture) in request.architectures.iter().enumerate() {
        let windows = request.windows.iter().enumerate();
        let mut windows = windows.filter(|(_, window)| window.wanted.contains(&index)).peekable();
        if windows.peek().is_none() {
            continue;
        }
        let is_reference = *architecture == Architecture::Standard && request.tp == 1;
        let other = if is_reference {
            None
        } else {
            Some(engine(&gpu, request, (architecture, request.tp), request.comm_dtype)?)
        };
        for (at, window) in windows {
            if stop() {
                return Ok(());
            }
            let quality = quality(&standard, other.as_ref(), &window.tokens, request)?;
            emit(Evaluated { window: at, architecture: index, quality })?;
        }
    }
    Ok(())
}

/// Creates a prefill engine that returns the logits of every position.
fn engine(
    gpu: &Gpu,
    request: &EvaluateRequest,
    (architecture, tp): (&Architecture, u32),
    comm_dtype: CommDType,
) -> Result<Engine> {
    let context = request.context();
    let capacity = u32::try_from(context + 1)
        .map_err(|_| Error::input(format!("windows of {context} tokens are too long")))?;
    let setup = EngineSetup {
        seed: request.seed,
        capacity,
        prefill: (1, context.min(CHUNK) as u32),
        all_logits: true,
        variant: Variant { comm_dtype, ..Variant::default() },
        graph: false,
        ..EngineSetup::new(request.model.clone(), architecture.clone(), request.dtype, tp)?
    };
    let programs = Arc::new(Programs::new(&setup)?);
    Engine::new(gpu, &setup, programs, Local::on_one_gpu(tp), alive(None), &mut |_| ())
}

/// Quality of `other` on a window, compared with `standard`; `None` evaluates `standard` itself.
fn quality(
    standard: &Engine,
    other: Option<&Engine>,
    tokens: &[u32],
    request: &EvaluateRequest,
) -> Result<WindowQuality> {
    let vocab = request.model.shape.vocab as usize;
    let mut sum = WindowQuality::default();
    for engine in [Some(standard), other].into_iter().flatten() {
        engine.reset()?;
    }
    for first in (0..tokens.len()).step_by(CHUNK) {
        let chunk = &tokens[first..(first + CHUNK).min(tokens.len())];
        let expected = logits(standard, chunk)?;
        let found = other.map(|engine| logits(engine, chunk)).transpose()?;
        let found = found.as_ref().unwrap_or(&expected);
        // parallel, but summed in text order: identical digits on any number of cores
        let rows = expected.par_chunks_exact(vocab).zip(found.par_chunks_exact(vocab));
        let positions: Vec<WindowQuality> = rows
            .zip(&tokens[first + 1..])
            .map(|((expected, found), following)| position(expected, found, *following))
            .collect();
        positions.into_iter().for_each(|position| sum += position);
    }
    Ok(sum)
}

/// Logits of the next tokens of the only sequence, `[tokens, vocab]`.
fn logits(engine: &Engine, tokens: &[u32]) -> Result<Vec<f32>> {
    // discard the token sampled after the previous chunk
    engine.forget_tokens(0)?;
    engine.set_prompt(1, tokens)?;
    let mut step = engine.prefill_step(0, 1, tokens.len() as u32, Timing::default())?;
    engine.run(&mut step)?;
    engine.logits(Phase::Prefill, tokens.len())
}

/// Quality of one predicted token, from the reference and the evaluated logits at its position.
fn position(expected: &[f32], found: &[f32], following: u32) -> WindowQuality {
    let (best, log_total) = of_logits(expected);
    let (found_best, found_log_total) = of_logits(found);
    let kl: f64 = expected
        .iter()
        .zip(found)
        .map(|(p, q)| {
            let (p, q) = (f64::from(*p) - log_total, f64::from(*q) - found_log_total);
            p.exp() * (p - q)
        })
        .sum();
    WindowQuality {
        predicted: 1,
        nll: found_log_total - f64::from(found[following as usize]),
        // keeps NaN
        kl: if kl < 0.0 { 0.0 } else { kl },
        agreed: u32::from(best == found_best),
    }
}

/// Index of the largest logit (the first of equals) and the log of the sum of exponentials.
fn of_logits(logits: &[f32]) -> (usize, f64) {
    let (max, log_total) = log_total(logits);
    (logits.iter().position(|logit| *logit == max).unwrap_or(0), log_total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihood_divergence_and_agreement_are_those_of_known_answers() {
        // probabilities 1/4, 1/4, 1/2 against 1/2, 1/4, 1/4, whatever is added to all logits
        let logits = |p: [f32; 3], more: f32| p.map(|p| p.ln() + more);
        let (p, q) = (logits([0.25, 0.25, 0.5], 80.0), logits([0.5, 0.25, 0.25], -3.0));
        let found = position(&p, &q, 1);
        assert!((found.nll - 4f64.ln()).abs() < 1e-5, "{found:?}");
        assert!((found.kl - 0.25 * 2f64.ln()).abs() < 1e-5, "{found:?}");
        assert_eq!((found.predicted, found.agreed), (1, 0));
        let same = position(&p, &p, 2);
        assert!((same.nll - 2f64.ln()).abs() < 1e-5 && same.kl == 0.0 && same.agreed == 1, "{same:?}");
        // a reference that is no number is no perfect agreement
        assert!(position(&[f32::NAN, 0.0], &[0.0, 1.0], 1).kl.is_nan());
    }
}
