//! The cpu backend against an independent forward pass.

mod reference;

pub(super) use reference::Reference;

use super::run::{generate, run};
use crate::{GenerateRequest, GenerationResult, Job, RunEvent};
use model::{Model, WeightSource};
use plan::testing::ARCHITECTURES;
use plan::{Architecture, Channels, DType, Lane};
use table::{Backend, Link, Spec};

pub(super) const SEED: u64 = 11;

pub(super) fn tiny() -> Model {
    Model::resolve("tiny").unwrap()
}

pub(super) const PROMPT: [u32; 11] = [3, 141, 59, 26, 53, 58, 97, 93, 238, 46, 26];

pub(super) fn request(architecture: &str, tp: u32, prompts: Vec<Vec<u32>>) -> GenerateRequest {
    GenerateRequest {
        model: tiny(),
        architecture: architecture.parse().unwrap(),
        dtype: DType::F32,
        tp,
        prompts,
        output_tokens: 6,
        temperature: None,
        top_k: None,
        seed: SEED,
        stop_at: vec![],
        variant: plan::Variant::default(),
    }
}

fn generate_with(architecture: &str, tp: u32) -> GenerationResult {
    generate(&request(architecture, tp, vec![PROMPT.to_vec()]), &mut |_| ()).unwrap()
}

/// Every kind of architecture, and parameters at which one becomes another.
pub(super) fn architectures() -> Vec<&'static str> {
    let limits = [
        "desync:1",
        "delayed:0",
        "delayed:2",
        "delayed:9",
        "sync-drop:1",
        "sync-drop:[0]",
        "sync-drop",
        "partial:0.3",
        "partial:1",
        "partial:1+ladder",
        "tracks:9",
    ];
    ARCHITECTURES.into_iter().chain(limits).collect()
}

#[test]
fn every_architecture_agrees_with_an_independent_forward_pass() {
    agree_with_an_independent_forward_pass(&architectures(), DType::F32);
}

#[test]
fn fp8_weights_agree_with_an_independent_forward_pass_of_the_same_numbers() {
    agree_with_an_independent_forward_pass(&["standard", "ladder", "parallel", "desync:2"], DType::Fp8);
}

/// Prefill, decode through the cache, and sharding all agree with the independent forward pass: the
/// logits at the prompt's end, every token's likelihood, and every greedy token.
fn agree_with_an_independent_forward_pass(architectures: &[&str], dtype: DType) {
    for architecture in architectures {
        for tp in [1, 2, 3, 4] {
            let mut model = tiny();
            if tp == 3 {
                (model.shape.heads, model.shape.kv_heads, model.shape.intermediate) = (12, 3, 192);
                if architecture.starts_with("partial") {
                    model.shape.vocab = 252;
                }
            }
            agrees(&GenerateRequest {
                model,
                dtype,
                ..request(architecture, tp, vec![PROMPT.to_vec()])
            });
        }
    }
}

/// One generation of a prompt agrees with the independent forward pass.
pub(super) fn agrees(asked: &GenerateRequest) {
    let GenerateRequest { model, architecture, dtype, tp, variant, .. } = asked;
    let what = format!("{} {architecture} tp {tp} ep {}", model.name, variant.ep);
    let prompt = &asked.prompts[0];
    let source = WeightSource::open(model, SEED).unwrap();
    let generated = generate(asked, &mut |_| ()).unwrap();
    let (tp, ep) = (*tp as usize, variant.ep as usize);
    let reference = Reference { shape: &model.shape, source: &source, tp, ep, dtype: *dtype };
    let mut tokens = prompt.clone();
    tokens.extend(&generated.tokens[0]);
    let logits = reference.logits(architecture, &tokens);
    let largest = logits.iter().flatten().fold(0.0f64, |m, l| m.max(l.abs()));
    for (token, logit) in &generated.top_logits[0] {
        let wanted = logits[prompt.len() - 1][*token as usize];
        let error = (f64::from(*logit) - wanted).abs();
        assert!(error < 1e-5 * largest, "{what}: logit of {token} is {logit}, not {wanted}");
    }
    let mut nll = 0.0;
    for (position, next) in prompt[1..].iter().enumerate() {
        let total: f64 = logits[position].iter().map(|l| l.exp()).sum();
        nll -= logits[position][*next as usize] - total.ln();
    }
    let nll = nll / (prompt.len() - 1) as f64;
    assert!((generated.nll[0].unwrap() - nll).abs() < 1e-4, "{what}");
    // upper-bound's ranks sample different tokens, so rank 0's sequence is not one that the
    // reference can follow beyond the prompt
    let checked = if *architecture == Architecture::UpperBound && tp > 1 { 1 } else { 6 };
    for (i, token) in generated.tokens[0].iter().take(checked).enumerate() {
        let at = &logits[prompt.len() - 1 + i];
        let best = at.iter().copied().fold(f64::MIN, f64::max);
        assert!(best - at[*token as usize] < 1e-5 * largest, "{what}: token {i}");
    }
}

#[test]
fn tp_changes_no_numbers_where_it_must_not() {
    for architecture in architectures() {
        let [one, two, four] = [1, 2, 4].map(|tp| generate_with(architecture, tp));
        let diverges = match architecture.parse().unwrap() {
            Architecture::UpperBound => true,
            Architecture::Desync(every) => every > 1,
            Architecture::Delayed(delay) => delay > 0,
            Architecture::SyncDrop(_) | Architecture::Kraken | Architecture::Tracks(_) => true,
            Architecture::Partial(share) | Architecture::PartialLadder(share) => share != Channels::ALL,
            _ => false,
        };
        for other in [&two, &four] {
            assert_eq!(one.tokens == other.tokens && close(&one, other), !diverges, "{architecture}");
        }
    }
}

fn close(a: &GenerationResult, b: &GenerationResult) -> bool {
    let largest = a.top_logits[0].iter().fold(0.0f32, |m, (_, l)| m.max(l.abs()));
    a.top_logits[0]
        .iter()
        .zip(&b.top_logits[0])
        .all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-4 * largest)
}

#[test]
fn ladder_is_another_function_than_standard() {
    let (standard, ladder) = (generate_with("standard", 2), generate_with("ladder", 2));
    assert!(!close(&standard, &ladder));
    assert_eq!(generate_with("stale:1", 2), ladder);
    assert_eq!(generate_with("partial:1+ladder", 2), ladder);
    assert_eq!(generate_with("partial:1", 2), standard);
    assert_eq!(generate_with("desync:1", 1), generate_with("standard", 1));
}

#[test]
fn a_batch_of_unequal_prompts_gives_what_each_gives_alone() {
    let prompts: Vec<Vec<u32>> = vec![PROMPT.to_vec(), vec![7], (0..140).collect()];
    let together = generate(&request("ladder", 2, prompts.clone()), &mut |_| ()).unwrap();
    for (i, prompt) in prompts.into_iter().enumerate() {
        let alone = generate(&request("ladder", 2, vec![prompt]), &mut |_| ()).unwrap();
        assert_eq!(together.tokens[i], alone.tokens[0]);
        assert_eq!(together.nll[i].is_some(), alone.nll[0].is_some());
    }
}

#[test]
fn bf16_and_fp8_weights_are_close_to_f32() {
    let wide = generate_with("ladder", 2);
    let difference = |dtype| {
        let asked = GenerateRequest { dtype, ..request("ladder", 2, vec![PROMPT.to_vec()]) };
        let narrow = generate(&asked, &mut |_| ()).unwrap();
        (narrow.nll[0].unwrap() - wide.nll[0].unwrap()).abs()
    };
    let [bf16, fp8] = [DType::Bf16, DType::Fp8].map(difference);
    assert!(bf16 > 0.0 && bf16 < 0.05, "{bf16}");
    assert!(fp8 > bf16 && fp8 < 0.2, "{fp8}");
}

#[test]
fn sampling_is_the_same_on_any_tp_and_stops_where_told() {
    let sampled = |tp| {
        let mut request = request("standard", tp, vec![PROMPT.to_vec()]);
        (request.temperature, request.top_k, request.output_tokens) = (Some(1.0), Some(40), 12);
        generate(&request, &mut |_| ()).unwrap().tokens.swap_remove(0)
    };
    assert_eq!(sampled(1), sampled(1));
    assert_eq!(sampled(1), sampled(2));
    let greedy = generate_with("standard", 1).tokens.swap_remove(0);
    assert_ne!(sampled(1)[..greedy.len()], greedy[..]);
    let mut stopping = request("standard", 1, vec![PROMPT.to_vec()]);
    stopping.stop_at = vec![greedy[2]];
    let stopped = generate(&stopping, &mut |_| ()).unwrap().tokens.swap_remove(0);
    let first = greedy.iter().position(|t| *t == greedy[2]).unwrap();
    assert_eq!(stopped, greedy[..=first]);
}

#[test]
fn bad_requests_are_explained() {
    let error = |change: fn(&mut GenerateRequest)| {
        let mut request = request("standard", 1, vec![PROMPT.to_vec()]);
        change(&mut request);
        generate(&request, &mut |_| ()).unwrap_err().to_string()
    };
    assert!(error(|r| r.prompts.clear()).contains("no prompt"));
    assert!(error(|r| r.prompts.push(vec![])).contains("prompt 1 is empty"));
    assert!(error(|r| r.prompts[0][3] = 256).contains("token 256 is outside the vocabulary of 256"));
    assert!(error(|r| r.dtype = DType::F16).contains("f16"));
    assert!(error(|r| r.temperature = Some(f32::NAN)).contains("temperature"));
    assert!(error(|r| r.tp = 3).contains("TP 3 does not divide 8 heads"));
}

pub(super) fn spec(architecture: &str, tp: u32, link: &str) -> Spec {
    Spec {
        architecture: architecture.parse().unwrap(),
        model: "tiny".into(),
        dtype: DType::F32,
        tp,
        batch: 2,
        prompt_tokens: 8,
        output_tokens: 5,
        backend: Backend::Cpu,
        link: link.parse::<Link>().unwrap(),
        hardware: "host".into(),
        samples: 3,
        warmup: 1,
        seed: SEED,
        ..Spec::default()
    }
}

#[test]
fn a_run_yields_samples_and_a_trace_that_obeys_the_plan() {
    let spec = spec("ladder", 2, "emulated:alpha_us=300,gb_s=10");
    let mut events = Vec::new();
    let job = Job::new(spec, true, false);
    let (outcome, trace) = run(&job, &mut |event| events.push(event)).unwrap();
    assert_eq!(outcome.samples.len(), 3);
    assert_eq!(events.iter().filter(|e| matches!(e, RunEvent::SampleDone { .. })).count(), 3);
    for sample in &outcome.samples {
        assert_eq!(sample.steps_ms.len(), 4);
        assert!((sample.steps_ms.iter().sum::<f64>() - sample.decode_ms).abs() < 1e-6);
        let overlap = sample.overlap.unwrap();
        let wait_ms = overlap.peer_wait_ms().expect("all ranks are recorded");
        assert!((0.0..=overlap.exposed_comm_ms).contains(&wait_ms), "{overlap:?}");
    }
    let trace = trace.unwrap();
    let executed = trace.operations.len() - prefill_length(&trace);
    assert_eq!(trace.spans.len(), 2 * (prefill_length(&trace) + 4 * executed));
    let collectives = trace.spans.iter().filter(|s| s.lane == Lane::Comm);
    for span in collectives {
        assert!(span.end_ns - span.last_arrival_ns >= 300_000, "the link takes 300 us");
        assert!(span.ready_ns <= span.start_ns && span.start_ns <= span.last_arrival_ns);
    }
    // an operation starts only after all it waits for has ended, on its rank, in its step
    let mut ends = std::collections::HashMap::new();
    for span in &trace.spans {
        ends.insert((span.sample, span.phase, span.step, span.rank, span.operation), span.end_ns);
    }
    for span in &trace.spans {
        for wait in &trace.operations[span.operation as usize].waits_for {
            let end = ends[&(span.sample, span.phase, span.step, span.rank, *wait)];
            assert!(end <= span.start_ns, "{}", trace.operations[span.operation as usize].name);
        }
    }
}

fn prefill_length(trace: &trace::Trace) -> usize {
    trace.operations.iter().filter(|o| o.phase == plan::Phase::Prefill).count()
}

#[test]
fn who_watches_hears_of_steps_with_the_lanes_of_every_rank() {
    let spec = spec("standard", 2, "emulated:alpha_us=4000,gb_s=10");
    let watched = |watch| {
        let mut events = Vec::new();
        let job = Job::new(spec.clone(), true, watch);
        let (_, trace) = run(&job, &mut |event| events.push(event)).unwrap();
        events.retain(|event| matches!(event, RunEvent::Step { .. }));
        (events, trace.unwrap())
    };
    let (events, trace) = watched(true);
    let mut with_lanes = 0;
    for event in &events {
        let RunEvent::Step { done, of, steps, ms, lanes } = event else { continue };
        assert!(done <= of && *of == 4 && steps <= done, "{event:?}");
        // eight all-reduces of 4 ms a step
        assert!(*steps == 0 || ms / f64::from(*steps) >= 32.0, "{event:?}");
        if lanes.is_empty() {
            continue;
        }
        with_lanes += 1;
        let ranks: Vec<u32> = lanes.iter().map(|lanes| lanes.rank).collect();
        assert_eq!(ranks, [0, 1]);
        for lanes in lanes {
            let busy: u32 = lanes.comm.iter().map(|[start, end]| end - start).sum();
            assert!(busy >= 32_000_000 && !lanes.compute.is_empty(), "{lanes:?}");
            assert!(f64::from(lanes.end()) / 1e6 <= 2.0 * ms.max(1000.0));
        }
    }
    assert!(with_lanes >= 2, "{events:?}");
    // nothing is heard otherwise, and watching takes nothing from the trace
    let (nothing, unwatched) = watched(false);
    assert!(nothing.is_empty());
    assert_eq!(trace.spans.len(), unwatched.spans.len());
}

#[test]
fn one_rank_communicates_nothing() {
    let (outcome, trace) =
        run(&Job::new(spec("ladder", 1, "native"), true, false), &mut |_| ()).unwrap();
    assert!(trace.unwrap().spans.iter().all(|s| s.lane == Lane::Compute));
    assert_eq!(outcome.samples[0].overlap.unwrap().overlap_pct, None);
}

#[test]
fn without_recording_there_is_no_trace() {
    let (outcome, trace) =
        run(&Job::new(spec("standard", 2, "native"), false, false), &mut |_| ()).unwrap();
    assert!(trace.is_none());
    assert_eq!(outcome.samples.len(), 3);
    assert!(outcome.samples.iter().all(|s| s.overlap.is_none()));
}
