//! Evaluation against an independent forward pass in f64, against `generate`, and between TPs.

use super::evaluate::evaluate;
use super::run::generate;
use super::tests::{Reference, SEED, architectures, request, tiny};
use crate::{EvaluateRequest, Evaluated, EvaluationWindow, GenerateRequest, WindowQuality};
use base::error::Result;
use model::{Model, WeightSource};
use plan::{Architecture, DType, HeadStep};

const CONTEXT: usize = 12;

/// Windows of tokens that repeat nothing.
fn windows(count: usize, wanted: usize) -> Vec<EvaluationWindow> {
    let token = |at: usize| ((at * at * 31 + at * 7 + 3) % 256) as u32;
    let tokens: Vec<u32> = (0..count * CONTEXT).map(token).collect();
    let window =
        |tokens: &[u32]| EvaluationWindow { tokens: tokens.to_vec(), wanted: (0..wanted).collect() };
    tokens.chunks(CONTEXT).map(window).collect()
}

pub(super) fn asked(model: Model, architectures: &[&str], tp: u32, count: usize) -> EvaluateRequest {
    EvaluateRequest {
        model,
        architectures: architectures.iter().map(|a| a.parse().unwrap()).collect(),
        reference: None,
        dtype: DType::F32,
        tp,
        comm_dtype: plan::CommDType::Activations,
        seed: SEED,
        windows: windows(count, architectures.len()),
    }
}

pub(super) fn results(request: &EvaluateRequest) -> Vec<Evaluated> {
    let mut all = Vec::new();
    evaluate(request, &|| false, &mut |one| {
        all.push(one);
        Ok(())
    })
    .unwrap();
    all.sort_by_key(|one| (one.window, one.architecture));
    all
}

/// What was found of an architecture, over all windows.
fn total(results: &[Evaluated], architecture: usize) -> WindowQuality {
    let mut sum = WindowQuality::default();
    results.iter().filter(|one| one.architecture == architecture).for_each(|one| sum += one.quality);
    sum
}

pub(super) fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::MIN, f64::max);
    let total = logits.iter().map(|l| (l - max).exp()).sum::<f64>().ln();
    logits.iter().map(|l| l - max - total).collect()
}

/// By how much sums over the vocabulary may be off, whatever the logits: their exponentials are f32's.
const SUMS: f64 = 5e-7;

/// By how much a logit may be off: what f32 rounds through eight sublayers and the head.
const LOGIT: f64 = 4.0 * f32::EPSILON as f64;

/// KL(p || q) of two distributions, given as logarithms, and how much it changes at most for each unit by which
/// logits change: its derivative is `p x (ln p/q - KL)` by a logit of p, and `q - p` by one of q.
fn divergence(p: &[f64], q: &[f64]) -> (f64, f64) {
    let pairs = || p.iter().zip(q);
    let kl = pairs().map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    let change = |(p, q): (&f64, &f64)| p.exp() * (p - q - kl).abs() + (q.exp() - p.exp()).abs();
    (kl, pairs().map(change).sum())
}

/// Likelihood, divergence and agreement of every architecture are those of the independent forward pass, where
/// the reference is `standard` on one rank; also where heads are split in three, and whatever is done to heads.
#[test]
fn every_architecture_loses_what_an_independent_forward_pass_says() {
    let architectures: Vec<&str> = architectures().into_iter().filter(|a| *a != "upper-bound").collect();
    let all = [
        (1, HeadStep::Plain),
        (2, HeadStep::Plain),
        (3, HeadStep::Plain),
        (1, HeadStep::Biased),
        (3, HeadStep::Biased),
        (1, HeadStep::Normed),
        (3, HeadStep::Normed),
    ];
    for (tp, qkv) in all {
        let mut model = tiny();
        model.shape.qkv = qkv;
        if tp == 3 {
            (model.shape.heads, model.shape.kv_heads, model.shape.intermediate) = (12, 3, 192);
            model.shape.vocab = 258;
        }
        let request = asked(model.clone(), &architectures, tp, 2);
        let found = results(&request);
        assert_eq!(found.len(), 2 * architectures.len());
        let source = WeightSource::open(&model, SEED).unwrap();
        let logits = |architecture: &Architecture, tp: u32, tokens: &[u32]| -> Vec<Vec<f64>> {
            let reference = Reference::plain(&model.shape, &source, tp);
            reference.logits(architecture, tokens).iter().map(|l| log_softmax(l)).collect()
        };
        for (at, window) in request.windows.iter().enumerate() {
            let standard = logits(&Architecture::Standard, 1, &window.tokens);
            for (which, architecture) in request.architectures.iter().enumerate() {
                let it = logits(architecture, tp, &window.tokens);
                let (mut nll, mut kl, mut rounding) = (0.0, 0.0, SUMS);
                for (position, following) in window.tokens[1..].iter().enumerate() {
                    let (p, q) = (&standard[position], &it[position]);
                    nll -= q[*following as usize];
                    let (of_position, change) = divergence(p, q);
                    kl += of_position;
                    rounding += change * LOGIT;
                }
                let one = found.iter().find(|e| e.window == at && e.architecture == which).unwrap();
                let told = format!(
                    "{architecture} tp {tp} {qkv:?}: {one:?}, not {nll} and {kl} within {rounding:e}"
                );
                assert_eq!(one.quality.predicted as usize, CONTEXT - 1);
                assert!((one.quality.nll - nll).abs() < 1e-4, "{told}");
                assert!((one.quality.kl - kl).abs() < rounding && one.quality.kl >= 0.0, "{told}");
                assert!(one.quality.agreed <= one.quality.predicted, "{told}");
            }
        }
        let standard = total(&found, 0);
        assert_eq!((standard.kl, standard.agreed), (0.0, standard.predicted));
        let ladder = total(&found, 1);
        assert!(ladder.kl > 0.01 && ladder.agreed < ladder.predicted, "{ladder:?}");
    }
}

#[test]
fn the_likelihood_is_what_generate_says_of_a_prompt() {
    let evaluation = asked(tiny(), &["ladder", "parallel"], 2, 3);
    let found = results(&evaluation);
    for (which, architecture) in evaluation.architectures.iter().enumerate() {
        let prompts = evaluation.windows.iter().map(|window| window.tokens.clone()).collect();
        let generated: GenerateRequest = request(&architecture.to_string(), 2, prompts);
        let generated = generate(&generated, &mut |_| ()).unwrap();
        for (at, nll) in generated.nll.iter().enumerate() {
            let one = found.iter().find(|e| e.window == at && e.architecture == which).unwrap();
            let mean = one.quality.nll / f64::from(one.quality.predicted);
            assert!((mean - nll.unwrap()).abs() < 1e-5, "{architecture} {at}: {mean} {nll:?}");
        }
    }
}

#[test]
fn tp_changes_nothing_where_ranks_agree_and_something_where_they_do_not() {
    let architectures = [
        "standard",
        "ladder",
        "desync:2",
        "delayed:2",
        "sync-drop:2",
        "kraken",
        "tracks:2",
        "partial:0.5",
    ];
    let [one, two] = [1, 2].map(|tp| results(&asked(tiny(), &architectures, tp, 2)));
    for (at, architecture) in architectures.iter().enumerate() {
        let (one, two) = (total(&one, at), total(&two, at));
        let same = (one.nll - two.nll).abs() < 1e-3 && (one.kl - two.kl).abs() < 1e-4;
        assert_eq!(same, at < 2, "{architecture}: {one:?} {two:?}");
    }
}

#[test]
fn only_what_is_wanted_of_a_window_is_told_whoever_else_is_asked_for() {
    let mut request = asked(tiny(), &["ladder", "standard", "ladder", "sync-drop:1"], 1, 5);
    let whole = results(&request);
    for (at, window) in request.windows.iter_mut().enumerate() {
        window.wanted = [vec![], vec![1], vec![2, 0], vec![3], vec![0, 1, 2, 3]][at].clone();
    }
    let some = results(&request);
    let pairs: Vec<_> = some.iter().map(|one| (one.window, one.architecture)).collect();
    assert_eq!(pairs, [(1, 1), (2, 0), (2, 2), (3, 3), (4, 0), (4, 1), (4, 2), (4, 3)]);
    assert!(some.iter().all(|one| whole.contains(one)), "{some:?}");
    // on one rank nothing is dropped: the same plan as standard's, and the same numbers
    assert_eq!(total(&whole, 3), total(&whole, 1));
}

/// Architectures that have a beginning in common execute it once: the numbers are those that each has alone, whichever
/// comes first, and also where there are more than are looked at together.
#[test]
fn what_is_executed_once_for_several_changes_no_number() {
    let set = |name: &str, bits: u32| {
        let layers: Vec<String> =
            (0..4).filter(|l| bits >> l & 1 == 1).map(|l: u32| l.to_string()).collect();
        format!("{name}:[{}]", layers.join("+"))
    };
    let mut names: Vec<String> = (0..16).map(|bits| set("ladder", bits)).collect();
    names.extend((1..16).step_by(3).map(|bits| set("sync-drop", bits)));
    names.extend(
        [
            "delayed:1",
            "delayed:3",
            "desync:2",
            "desync:3",
            "desync:4",
            "parallel",
            "stale:2",
            "partial:0.5",
        ]
        .map(String::from),
    );
    for tp in [1, 2] {
        let alone: Vec<WindowQuality> =
            names.iter().map(|name| total(&results(&asked(tiny(), &[name], tp, 1)), 0)).collect();
        for backwards in [false, true] {
            let mut order: Vec<usize> = (0..names.len()).collect();
            if backwards {
                order.reverse();
            }
            let all: Vec<&str> = order.iter().map(|at| names[*at].as_str()).collect();
            let found = results(&asked(tiny(), &all, tp, 1));
            for (at, name) in order.iter().enumerate() {
                assert_eq!(total(&found, at), alone[*name], "{} tp {tp}", names[*name]);
            }
        }
    }
}

#[test]
fn bf16_weights_are_close_to_f32() {
    let mut request = asked(tiny(), &["ladder"], 2, 2);
    let wide = total(&results(&request), 0);
    request.dtype = DType::Bf16;
    let narrow = total(&results(&request), 0);
    let difference = (wide.nll - narrow.nll).abs() / f64::from(wide.predicted);
    assert!(difference > 0.0 && difference < 0.05, "{difference}");
}

#[test]
fn it_ends_when_it_is_told_to_and_passes_on_why() {
    let request = asked(tiny(), &["ladder"], 1, 40);
    let mut seen = 0;
    let count = std::sync::atomic::AtomicUsize::new(0);
    let stop = || count.load(std::sync::atomic::Ordering::SeqCst) >= 3;
    let ended = evaluate(&request, &stop, &mut |_| {
        seen += 1;
        count.store(seen, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    });
    assert!(ended.is_ok() && (3..40).contains(&seen), "{seen}");
    let mut told = 0;
    let full = |_| -> Result<()> {
        told += 1;
        Err(base::error::Error::failed("no space left"))
    };
    let mut full = full;
    let why = evaluate(&request, &|| false, &mut full).unwrap_err();
    assert_eq!((why.to_string(), told), ("no space left".into(), 1));
}

/// On one rank the turns of a window are: taking it, and one for each architecture, the reference first.
#[test]
fn what_was_computed_of_a_window_is_told_though_it_stops() {
    let architectures = ["standard", "ladder:[0]", "ladder:[1]", "ladder:[2]", "ladder:[3]", "desync:2"];
    // one rank for all cores: one group
    let request = asked(tiny(), &architectures, 1, 1);
    let whole = results(&request);
    for turns in 0..8 {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= turns;
        let mut told = Vec::new();
        evaluate(&request, &stop, &mut |one| {
            told.push(one);
            Ok(())
        })
        .unwrap();
        // on one rank desync is standard
        assert_eq!(told.len(), [0, 0, 2, 3, 4, 5, 6, 6][turns], "{turns}: {told:?}");
        assert!(told.iter().all(|one| whole.contains(one)), "{turns}: {told:?}");
    }
}

#[test]
fn wrong_requests_are_refused() {
    let refusal = |change: &dyn Fn(&mut EvaluateRequest)| {
        let mut request = asked(tiny(), &["ladder"], 1, 1);
        change(&mut request);
        let error = evaluate(&request, &|| false, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    };
    let upper = refusal(&|r| r.architectures = vec![Architecture::UpperBound]);
    assert!(upper.contains("upper-bound"), "{upper}");
    assert!(refusal(&|r| r.tp = 3).contains("TP 3"));
    assert!(refusal(&|r| r.dtype = DType::F16).contains("f16"));
    assert!(refusal(&|r| r.windows[0].tokens[3] = 256).contains("256"));
    assert!(refusal(&|r| r.windows[0].tokens.truncate(1)).contains("two tokens"));
}
