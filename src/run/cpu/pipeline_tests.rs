//! Pipeline stages on the cpu backend: real transfers between ranks, and the numbers of a run without stages.

use super::run::run;
use super::tests::{Reference, spec, tiny};
use crate::token_comparison::GeneratedTokens;
use crate::{Job, Outcome};
use model::WeightSource;
use plan::Lane;
use plan::testing::ARCHITECTURES;
use table::{Link, Spec};
use trace::Trace;

fn cell(architecture: &str, tp: u32, pp: u32) -> Spec {
    Spec { pp, batch: 3, samples: 2, ..spec(architecture, tp, "native") }
}

fn ran(spec: &Spec) -> (Outcome, Trace) {
    let (outcome, trace) = run(&Job::new(spec.clone(), true, false), &mut |_| ()).unwrap();
    (outcome, trace.unwrap())
}

/// Hash of the tokens that the last stage sampled, which all samples agree on.
fn tokens(spec: &Spec) -> String {
    let (outcome, _) = ran(spec);
    let computed = &outcome.environment["computed"];
    assert_eq!(computed["generations"], 3);
    computed["tokens"].as_str().unwrap().to_owned()
}

/// A stage does the same arithmetic in the same order as a run without stages, so tokens are equal.
#[test]
fn stages_compute_the_tokens_of_one() {
    for architecture in ARCHITECTURES {
        for tp in [1, 2] {
            let whole = tokens(&cell(architecture, tp, 1));
            for pp in [2, 4] {
                assert_eq!(tokens(&cell(architecture, tp, pp)), whole, "{architecture} TP {tp} PP {pp}");
            }
        }
    }
    assert_ne!(tokens(&cell("standard", 2, 2)), tokens(&cell("ladder", 2, 2)));
}

/// Stages sample what an independent forward pass in f64 finds likeliest.
#[test]
fn stages_agree_with_an_independent_forward_pass() {
    let model = tiny();
    let source = WeightSource::open(&model, cell("standard", 1, 2).seed).unwrap();
    // each rank of upper-bound samples its own tokens
    for architecture in ARCHITECTURES.into_iter().filter(|name| *name != "upper-bound") {
        for tp in [1, 2] {
            let cell = Spec { batch: 1, output_tokens: 4, ..cell(architecture, tp, 2) };
            let reference = Reference::plain(&model.shape, &source, tp);
            let mut sequence = crate::recorder::prompts(&cell, model.shape.vocab);
            for _ in 0..cell.output_tokens {
                let logits = reference.logits(&cell.architecture, &sequence).pop().unwrap();
                let likeliest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                sequence.push(likeliest.unwrap() as u32);
            }
            let sampled = &sequence[cell.prompt_tokens as usize..];
            assert_eq!(tokens(&cell), GeneratedTokens::new(sampled, 0).tokens, "{architecture} TP {tp}");
        }
    }
}

#[test]
fn micro_batches_change_no_token() {
    for architecture in ["standard", "ladder", "delayed:2"] {
        let whole = tokens(&cell(architecture, 2, 1));
        for micro_batches in [2, 3] {
            let spec = Spec { micro_batches, ..cell(architecture, 2, 2) };
            assert_eq!(tokens(&spec), whole, "{architecture}, {micro_batches} micro-batches");
        }
    }
    // a prompt divided by tokens, and a scattered residual
    let prefill = Spec { output_tokens: 1, batch: 1, ..cell("ladder", 2, 2) };
    let split = Spec { micro_batches: 4, ..prefill.clone() };
    assert_eq!(tokens(&split), tokens(&prefill));
    let scattered = Spec { sequence_parallel: true, batch: 4, ..cell("ladder", 2, 2) };
    assert_eq!(tokens(&scattered), tokens(&Spec { pp: 1, ..scattered.clone() }));
    let sharded = Spec { shard_head: true, ..cell("standard", 2, 3) };
    assert_eq!(tokens(&sharded), tokens(&Spec { pp: 1, ..sharded.clone() }));
}

#[test]
fn a_trace_has_the_ranks_of_all_stages_and_transfers_last_as_long_as_the_link() {
    let link: Link = "emulated:alpha_us=500,gb_s=10".parse().unwrap();
    let (outcome, trace) = ran(&Spec { link, ..cell("ladder", 2, 2) });
    assert_eq!((trace.meta.ranks, outcome.plan_hashes.len()), (4, 4));
    let mut spans = [0; 4];
    for span in &trace.spans {
        let operation = &trace.operations[span.operation as usize];
        assert_eq!(operation.phase, span.phase);
        spans[span.rank as usize] += 1;
        let layer_of_stage = operation.layer.is_none_or(|layer| layer / 2 == span.rank / 2);
        // what the next stage's first module reads is added before it is sent
        let is_handed_over = operation.layer == Some(2) && span.rank < 2;
        assert!(layer_of_stage || is_handed_over, "{} on rank {}", operation.name, span.rank);
        if operation.kind == trace::OperationKind::Send {
            assert!(span.lane == Lane::Comm && span.end_ns - span.start_ns >= 500_000, "{span:?}");
        }
    }
    assert!(spans.iter().all(|count| *count > 0), "{spans:?}");
    // per step two values cross the boundary, and the tokens go back: 1.5 ms on the way of each step
    let sample = &outcome.samples[0];
    assert!(sample.steps_ms.iter().all(|ms| *ms >= 1.5), "{sample:?}");
}

#[test]
fn a_stage_holds_its_layers_alone() {
    let [whole, half] = [1, 2].map(|pp| ran(&cell("standard", 1, pp)).0.memory_bytes_per_rank);
    assert!(half < whole, "{half} of {whole}");
}
