//! Synthetic cells, runs and trainings for tests of this and dependent crates.

use std::sync::Arc;

use crate::options::OptionEntry;
use crate::{
    Backend, Curve, HeldOutLoss, Provenance, Record, RunQuality, Sample, Spec, Status, TRAINING,
    Training, TrainingSpec, TrainingSpeed, TrainingStep, WindowQuality, quality,
};
use plan::{Architecture, AttentionShape, DType, HeadStep, ModelShape, Rope};

/// Simulated cell: standard, tiny, TP 2, batch 1, prompt 16, 5 output tokens.
pub fn spec() -> Spec {
    Spec {
        architecture: Architecture::Standard,
        model: "tiny".into(),
        dtype: DType::F32,
        tp: 2,
        batch: 1,
        prompt_tokens: 16,
        output_tokens: 5,
        samples: 1,
        warmup: 0,
        ..Spec::default()
    }
}

/// Record with metrics computed from samples given as (prefill ms, ms per step).
fn with(run: &str, spec: Spec, round: u32, samples: &[(f64, f64)]) -> Record {
    let steps = spec.output_tokens.saturating_sub(1) as usize;
    let samples: Vec<Sample> = samples
        .iter()
        .map(|(prefill_ms, step)| Sample {
            prefill_ms: *prefill_ms,
            decode_ms: step * steps as f64,
            steps_ms: vec![*step; steps],
            overlap: None,
        })
        .collect();
    Record {
        run: run.into(),
        metrics: crate::metrics(&spec, &[&samples], 1000),
        round,
        samples: samples.into(),
        ..Record::new(spec, Status::Ok, None)
    }
}

/// Measured run on a CPU, in one round.
pub fn record(run: &str, change: impl Fn(&mut Spec), round: u32, samples: &[(f64, f64)]) -> Record {
    let mut spec = spec();
    (spec.backend, spec.hardware) = (Backend::Cpu, "host".into());
    change(&mut spec);
    with(run, spec, round, samples)
}

/// Adds a quality with this KL from `standard`, in nats per token.
pub fn evaluated(record: Record, kl: f64) -> Record {
    let window = WindowQuality { predicted: 4, nll: 8.0, kl: 4.0 * kl, agreed: 3 };
    let quality = RunQuality {
        quality: quality(&[window; 6]).unwrap_or_else(|| panic!("tokens were predicted")),
        text: "text.txt".into(),
        text_hash: "t".into(),
        context: 5,
        windows: 6,
        tp: 1,
        dtype: DType::F32,
        weights: "w".into(),
        backend: Backend::Cpu,
        provenance: Provenance::Measured,
        reference: None,
        evaluated: String::new(),
    };
    Record { quality: Some(Arc::new(quality)), ..record }
}

pub fn sim_record(run: &str, change: impl Fn(&mut Spec), prefill_ms: f64, step_ms: f64) -> Record {
    let mut spec = spec();
    change(&mut spec);
    with(run, spec, 0, &[(prefill_ms, step_ms)])
}

/// Training of `mini` that has just started.
pub fn training(architecture: &str, seed: u64) -> Training {
    let spec = TrainingSpec {
        model: "mini".into(),
        from_scratch: true,
        architecture: architecture.parse().unwrap(),
        layers: None,
        text: "text.txt".into(),
        tokens: None,
        held_out_pct: 10.0,
        steps: 4,
        batch: 2,
        context: 8,
        lr: 1e-3,
        warmup: 1,
        weight_decay: 0.1,
        clip: 1.0,
        distil: None,
        tp: 1,
        seed,
        look_every: 2,
    };
    Training {
        version: TRAINING,
        id: format!("{architecture}-{seed}"),
        status: Status::Running,
        reason: None,
        spec,
        weights: "w".into(),
        text_hash: "t".into(),
        train_tokens: 90,
        held_out_tokens: 10,
        parameters: 100,
        trained_parameters: 100,
        replicas: 1,
        created: format!("2026-01-0{}", seed + 1),
        updated: "2026-01-01".into(),
        step: 0,
        seconds: 0.0,
        speed: None,
        loss: None,
        before: None,
        after: None,
        output: "model".into(),
        machine: "cpu".into(),
        miniature: true,
    }
}

/// Finished training: in four steps the held-out loss falls to `nll`.
pub fn trained(architecture: &str, seed: u64, nll: f64) -> Curve {
    let begun = training(architecture, seed);
    let at = |step: u32| nll + 0.5 * f64::from(4 - step);
    let one = |step: u32| TrainingStep {
        step,
        nll: at(step) + 0.1,
        kl: None,
        rate: 1e-3,
        gradient_norm: 1.0,
        seconds: 0.5,
        held_out: step.is_multiple_of(2).then(|| HeldOutLoss { nll: at(step), kl: None }),
    };
    let window = WindowQuality { predicted: 4, nll: 4.0 * nll, kl: 0.4, agreed: 3 };
    let training = Training {
        status: Status::Ok,
        step: 4,
        seconds: 2.0,
        loss: Some(nll + 0.1),
        after: quality(&[window; 6]),
        speed: Some(TrainingSpeed::new(32.0, 6e6, 3e8)),
        ..begun
    };
    Curve {
        training,
        start: Some(HeldOutLoss { nll: at(0), kl: None }),
        curve: (1..=4).map(one).collect(),
    }
}

/// Cell on sim: TP 2, batch 1, prompt 1024, output 512, f16, h100_sxm, P2P on.
pub fn cell(architecture: &str, model: &str) -> Spec {
    Spec {
        architecture: architecture.parse().unwrap(),
        model: model.into(),
        dtype: DType::F16,
        tp: 2,
        batch: 1,
        prompt_tokens: 1024,
        output_tokens: 512,
        samples: 1,
        warmup: 0,
        ..Spec::default()
    }
}

/// Shape of Llama 3 70B, the model of most published measurements.
pub fn shape_70b() -> ModelShape {
    ModelShape {
        layers: 80,
        hidden: 8192,
        heads: 64,
        kv_heads: 8,
        head_dim: 128,
        qkv: HeadStep::Plain,
        intermediate: 28672,
        vocab: 128_256,
        rope: Rope::plain(500_000.0),
        norm_eps: 1e-5,
        tied_embeddings: false,
        attention: AttentionShape::default(),
        experts: None,
    }
}

pub fn shape_tiny() -> ModelShape {
    ModelShape {
        layers: 4,
        hidden: 64,
        heads: 8,
        kv_heads: 4,
        head_dim: 8,
        qkv: HeadStep::Plain,
        intermediate: 160,
        vocab: 256,
        ..shape_70b()
    }
}

/// Gives an option another value than it has.
///
/// # Panics
///
/// Panics if the option accepts no other value of [`OptionEntry::values`], no greater number and no other text.
pub fn change_option(option: &OptionEntry, spec: &mut Spec) {
    let own = option.text(spec).into_owned();
    let greater = option.number(spec).map(|number| (number + 1).to_string());
    let values = option.values().iter().map(|value| (*value).to_owned());
    let mut others =
        greater.into_iter().chain(values).chain(["other".to_owned()]).filter(|text| *text != own);
    // forms of values, such as `ladder:K`, are no values
    assert!(others.any(|text| option.read(spec, &text).is_ok()), "{} has one value", option.name);
}
