//! Whole models on the first GPU against the cpu backend:
//! `cargo test --release --workspace --test cuda -- --ignored gpu`. Elsewhere they say why they are skipped. All
//! ranks share the GPU, so that one is enough for every TP.

use std::time::Duration;

use machine::driver::Gpu;
use model::Model;
use plan::{Architecture, DType};
use run::{Execute, GenerateOptions, GenerateRequest, GenerationResult, cpu, cuda};

const ARCHITECTURES: [&str; 16] = [
    "standard",
    "ladder",
    "ladder:2",
    "parallel",
    "desync:2",
    "desync:4",
    "delayed:2",
    "sync-drop:2",
    "kraken",
    "partial:0.5+ladder",
    "partial:0.5",
    "farskip",
    "tracks:2",
    "upper-bound",
    "stale:2",
    "parallel+ladder",
];

/// Why there is nothing to check here, said once a test.
fn has_gpu() -> bool {
    match Gpu::open(0) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: no GPU: {error}");
            false
        }
    }
}

/// Prompts of different lengths, so that sequences are at different positions.
fn request(model: &str, architecture: &str, tp: u32, dtype: DType) -> GenerateRequest {
    let model = Model::resolve(model).expect("a built-in model");
    let token = |i: u32| (i * 7 + 3) % model.shape.vocab;
    GenerateRequest {
        prompts: [17, 3, 1, 150].map(|length| (0..length).map(token).collect()).into(),
        model,
        architecture: architecture.parse::<Architecture>().expect("an architecture"),
        dtype,
        tp,
        output_tokens: 12,
        temperature: None,
        top_k: None,
        seed: 5,
        stop_at: Vec::new(),
        variant: plan::Variant::default(),
    }
}

fn on_gpu(request: &GenerateRequest, graph: bool) -> GenerationResult {
    let options = GenerateOptions { graph, timeout: Duration::from_secs(60) };
    cuda::CudaBackend
        .generate(request, &options, &mut |_| (), &mut |_| ())
        .expect("generated on the GPU")
}

fn on_cpu(request: &GenerateRequest) -> GenerationResult {
    cpu::CpuBackend
        .generate(request, &GenerateOptions::default(), &mut |_| (), &mut |_| ())
        .expect("generated on the cpu")
}

/// The largest difference of logits of the same tokens, as a share of the largest logit of each prompt.
fn difference(one: &GenerationResult, other: &GenerationResult) -> f32 {
    let mut worst: f32 = 0.0;
    for (one, other) in one.top_logits.iter().zip(&other.top_logits) {
        let largest = one.iter().map(|(_, logit)| logit.abs()).fold(f32::MIN_POSITIVE, f32::max);
        let mut compared = 0;
        for (token, logit) in one {
            if let Some((_, same)) = other.iter().find(|(other, _)| other == token) {
                let share = (logit - same).abs() / largest;
                // NaN is as wrong as can be
                worst = if share.is_nan() { f32::INFINITY } else { worst.max(share) };
                compared += 1;
            }
        }
        assert!(compared >= 4, "{one:?} against {other:?}");
    }
    worst
}

fn agrees_in_f32(model: &str) {
    if !has_gpu() {
        return;
    }
    for architecture in ARCHITECTURES {
        for tp in [1, 2, 4] {
            let request = request(model, architecture, tp, DType::F32);
            let (expected, found) = (on_cpu(&request), on_gpu(&request, true));
            let what = format!("{model}, {architecture}, TP {tp}");
            let apart = difference(&expected, &found);
            eprintln!("{what}: logits differ by {apart:.1e} of the largest");
            assert!(apart < 1e-5, "{what}: logits differ by {apart} of the largest");
            assert_eq!(expected.tokens, found.tokens, "{what}");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tiny_yields_what_the_cpu_backend_yields() {
    agrees_in_f32("tiny");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_real_shape_yields_what_the_cpu_backend_yields() {
    agrees_in_f32("stories-110m");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn short_formats_are_near() {
    if !has_gpu() {
        return;
    }
    for model in ["tiny", "stories-110m"] {
        for architecture in ["standard", "ladder", "parallel"] {
            // the cpu backend keeps activations in f32 and knows no f16
            for (dtype, reference) in
                [(DType::Bf16, DType::Bf16), (DType::F16, DType::F32), (DType::Fp8, DType::Fp8)]
            {
                let expected = on_cpu(&request(model, architecture, 2, reference));
                let found = on_gpu(&request(model, architecture, 2, dtype), true);
                let apart = difference(&expected, &found);
                eprintln!("{model}, {architecture}, {dtype}: logits differ by {apart:.1e}");
                assert!(apart < 2e-2, "{model}, {architecture}, {dtype}: {apart}");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn replays_and_launches_one_by_one_are_the_same_to_the_bit() {
    if !has_gpu() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for (temperature, top_k) in [(None, None), (Some(0.8), Some(40))] {
            let request = GenerateRequest { temperature, top_k, ..request("tiny", "ladder", 2, dtype) };
            let replayed = on_gpu(&request, true);
            assert_eq!(replayed, on_gpu(&request, true), "{dtype}, again");
            assert_eq!(replayed, on_gpu(&request, false), "{dtype}, eager");
        }
    }
}
