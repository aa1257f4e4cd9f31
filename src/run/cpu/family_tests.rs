//! Checkpoints of each family that is read, against `transformers` on small random models: `tests/families/make.py`
//! made the golden numbers. Weights come from the same seed here, and are written as a checkpoint has them: in its format,
//! in one file or several.

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde::Deserialize;

use super::run::generate;
use super::tests::{Reference, request};
use crate::{GenerateRequest, Resolve};
use model::{Model, WeightSource};
use plan::{Architecture, DType, ModelShape, Shard, Tensor, Variant, Weight, WeightPart};
use table::{Backend, CellOptions};

/// What a script wrote.
#[derive(Deserialize)]
struct Golden<C> {
    seed: u64,
    tokens: Vec<u32>,
    cases: Vec<C>,
}

fn families() -> Golden<Case> {
    serde_json::from_str(include_str!("../../../tests/families/golden.json")).unwrap()
}

/// Output of `tests/families/experts.py`.
fn mixtures() -> Golden<Mixture> {
    serde_json::from_str(include_str!("../../../tests/families/experts.json")).unwrap()
}

/// One model: its config and tensors by name, and what `transformers` computes.
#[derive(Deserialize)]
struct Case {
    config: serde_json::Value,
    stored: DType,
    files: usize,
    tensors: Vec<String>,
    /// Of each token but the first.
    nll: Vec<f64>,
    last_logits: Vec<f64>,
}

impl Case {
    fn label(&self) -> String {
        let Self { config, stored, files, .. } = self;
        format!(
            "{}, {stored}, {files} files, tied: {}",
            config["model_type"], config["tie_word_embeddings"]
        )
    }

    /// The model's tensor of a name, as bytes of the stored format.
    fn bytes(&self, source: &WeightSource, shape: &ModelShape, name: &str) -> (Vec<usize>, Vec<u8>) {
        let all = Tensor::all(shape);
        let tensor = *all.iter().find(|t| t.hf_name() == name).unwrap_or_else(|| panic!("{name}"));
        let (outputs, inputs) = tensor.dimensions(shape);
        let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
        let weight = Weight { name: name.into(), parts, outputs, inputs };
        let bytes = source.bytes(&weight, 0, 1, self.stored, 0..outputs as usize).unwrap();
        let dimensions = match (outputs as usize, inputs as usize) {
            (1, length) | (length, 1) => vec![length],
            (rows, columns) => vec![rows, columns],
        };
        (dimensions, bytes)
    }

    /// Writes the checkpoint; tensors go to its files in turn.
    fn write(&self, dir: &Path, seed: u64) {
        std::fs::write(dir.join("config.json"), self.config.to_string()).unwrap();
        let model = Model::resolve(&dir.to_string_lossy()).unwrap();
        let source = WeightSource::open(&model, seed).unwrap();
        let dtype = match self.stored {
            DType::F32 => Dtype::F32,
            DType::Bf16 => Dtype::BF16,
            DType::F16 => Dtype::F16,
            _ => unreachable!("no checkpoint is stored so"),
        };
        let tensor = |name: &String| {
            let (dimensions, bytes) = self.bytes(&source, &model.shape, name);
            (name.clone(), dimensions, dtype, bytes)
        };
        let map = store(dir, self.files, &self.tensors.iter().map(tensor).collect::<Vec<_>>());
        if self.files > 1 {
            let index = serde_json::json!({ "metadata": {}, "weight_map": map });
            std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
        }
    }
}

/// Writes tensors (name, dimensions, format, bytes) to the files of a checkpoint in turn. Returns the file of each.
fn store(
    dir: &Path,
    files: usize,
    tensors: &[(String, Vec<usize>, Dtype, Vec<u8>)],
) -> serde_json::Map<String, serde_json::Value> {
    let mut map = serde_json::Map::new();
    for file in 0..files {
        let name = match files {
            1 => "model.safetensors".to_owned(),
            files => format!("model-{:05}-of-{files:05}.safetensors", file + 1),
        };
        let own = tensors.iter().skip(file).step_by(files);
        map.extend(own.clone().map(|(tensor, ..)| (tensor.clone(), name.clone().into())));
        let views = own.map(|(tensor, dimensions, dtype, bytes)| {
            (tensor.as_str(), TensorView::new(*dtype, dimensions.clone(), bytes).unwrap())
        });
        std::fs::write(dir.join(&name), safetensors::serialize(views, None).unwrap()).unwrap();
    }
    map
}

/// The independent forward pass in f64 and the cpu backend on these ranks (TP and EP) compute what `transformers` does.
fn computes(
    what: &str,
    dir: &Path,
    seed: u64,
    (tokens, nll, last_logits): (&[u32], &[f64], &[f64]),
    ranks: &[(u32, u32)],
    dtype: DType,
) {
    let model = Model::resolve(&dir.to_string_lossy()).unwrap();
    assert!(model.has_weights, "{what}");
    // another seed: it is the checkpoint that is read
    let source = WeightSource::open(&model, seed + 1).unwrap();
    let reference = Reference::plain(&model.shape, &source, 1);
    let logits = reference.logits(&Architecture::Standard, tokens);
    for (position, (logits, golden)) in logits.iter().zip(nll).enumerate() {
        let total = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        let nll = total - logits[tokens[position + 1] as usize];
        assert!((nll - golden).abs() < 2e-5, "{what}: token {position}: {nll}, not {golden}");
    }
    for (id, (logit, golden)) in logits[tokens.len() - 1].iter().zip(last_logits).enumerate() {
        assert!((logit - golden).abs() < 2e-5, "{what}: logit {id}: {logit}, not {golden}");
    }
    let nll = nll.iter().sum::<f64>() / nll.len() as f64;
    for &(tp, ep) in ranks {
        let asked = request("standard", tp, vec![tokens.to_vec()]);
        let variant = Variant { ep, ..asked.variant };
        let asked = GenerateRequest { model: model.clone(), variant, dtype, output_tokens: 1, ..asked };
        let found = generate(&asked, &mut |_| ()).unwrap();
        let told = found.nll[0].unwrap();
        assert!((told - nll).abs() < 1e-5, "{what}, TP {tp}: nll {told}, not {nll}");
        for (id, logit) in &found.top_logits[0] {
            let golden = last_logits[*id as usize];
            let off = (f64::from(*logit) - golden).abs();
            assert!(off < 1e-4, "{what}, TP {tp}: logit {id} is {logit}, not {golden}");
        }
    }
}

#[test]
fn every_family_computes_what_transformers_does() {
    let Golden { seed, tokens, cases } = families();
    assert!(cases.len() >= 7);
    for case in &cases {
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path(), seed);
        let golden = (&tokens[..], &case.nll[..], &case.last_logits[..]);
        computes(&case.label(), dir.path(), seed, golden, &[(1, 1), (3, 1)], DType::F32);
    }
}

/// A mixture of experts: dimensions of its tensors by name, whose numbers follow from their names.
#[derive(Deserialize)]
struct Mixture {
    config: serde_json::Value,
    stored: DType,
    files: usize,
    tensors: std::collections::BTreeMap<String, Vec<usize>>,
    nll: Vec<f64>,
    last_logits: Vec<f64>,
}

impl Mixture {
    fn label(&self) -> String {
        format!("{}, {}, {} files", self.config["model_type"], self.stored, self.files)
    }

    /// Mean and standard deviation of a tensor's numbers, as in the script.
    fn distribution(&self, name: &str, sizes: &[usize]) -> (f64, f64) {
        let text = self.config.get("text_config").unwrap_or(&self.config);
        let modules = 2.0 * text["num_hidden_layers"].as_f64().unwrap();
        if sizes.len() == 1 || name.ends_with("_bias") {
            return match name {
                _ if name.contains("norm") => (1.0, 0.1),
                _ if name.ends_with("gate_up_proj_bias") => (0.0, 4.0),
                _ => (0.0, 0.5),
            };
        }
        let inputs = *if sizes.len() == 3 { &sizes[1] } else { sizes.last().unwrap() } as f64;
        let deviation = match name {
            _ if name.contains("embed_tokens") => modules.powf(-0.5),
            _ if name.contains("lm_head") => 3.0 / inputs.sqrt(),
            _ if ["o_proj", "down_proj", ".w2."].iter().any(|role| name.contains(role)) => {
                (modules * inputs).powf(-0.5)
            }
            _ => inputs.powf(-0.5),
        };
        (0.0, deviation)
    }

    /// Format and bytes of a tensor.
    fn bytes(&self, name: &str, sizes: &[usize], seed: u64) -> (Dtype, Vec<u8>) {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
        let key = arithmetic::stream_key(seed, hash);
        let count: usize = sizes.iter().product();
        let pair =
            |at: u64| arithmetic::splitmix64(key.wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let pairs = (0..count.div_ceil(2) as u64).map(pair);
        let bits = pairs.flat_map(|pair| [pair as u32, (pair >> 32) as u32]).take(count);
        if name.ends_with("_blocks") {
            return (Dtype::U8, bits.map(|bits| bits as u8).collect());
        }
        if name.ends_with("_scales") {
            return (Dtype::U8, bits.map(|bits| 123 + ((bits & 0xFFFF) % 3) as u8).collect());
        }
        let (mean, deviation) = self.distribution(name, sizes);
        let step = (deviation * 12f64.sqrt() / 2f64.powi(32)) as f32;
        let numbers = bits.map(|bits| mean as f32 + bits.cast_signed() as f32 * step);
        let is_wide = self.stored == DType::F32 || name.ends_with("e_score_correction_bias");
        match is_wide {
            true => (Dtype::F32, numbers.flat_map(f32::to_le_bytes).collect()),
            false => {
                let narrow = numbers.map(half::bf16::from_f32);
                (Dtype::BF16, narrow.flat_map(half::bf16::to_le_bytes).collect())
            }
        }
    }

    /// Writes the checkpoint without the tensors of this name; tensors go to its files in turn.
    fn write(&self, dir: &Path, seed: u64, without: &str) {
        std::fs::write(dir.join("config.json"), self.config.to_string()).unwrap();
        let kept = self.tensors.iter().filter(|(name, _)| name.as_str() != without);
        let tensor = |(name, sizes): (&String, &Vec<usize>)| {
            let (dtype, bytes) = self.bytes(name, sizes, seed);
            (name.clone(), sizes.clone(), dtype, bytes)
        };
        store(dir, self.files, &kept.map(tensor).collect::<Vec<_>>());
    }
}

/// Every family of experts: routing, layouts and formats of their tensors, windows, sinks and latent attention.
#[test]
fn every_mixture_computes_what_transformers_does() {
    let Golden { seed, tokens, cases } = mixtures();
    assert!(cases.len() >= 7);
    for case in &cases {
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path(), seed, "");
        let golden = (&tokens[..], &case.nll[..], &case.last_logits[..]);
        // packed experts stay packed, and have the same numbers
        let formats = [DType::F32, DType::Mxfp4];
        for dtype in &formats[..if case.stored == DType::Mxfp4 { 2 } else { 1 }] {
            computes(&case.label(), dir.path(), seed, golden, &[(1, 1), (2, 1), (4, 4)], *dtype);
        }
    }
}

/// 64 columns of an expert are 16 a rank on TP 4, which are no whole blocks of 32.
#[test]
fn cells_of_packed_checkpoints_are_bf16_where_ranks_hold_parts_of_blocks() {
    let Golden { seed, cases, .. } = mixtures();
    let case = cases.iter().find(|case| case.stored == DType::Mxfp4).unwrap();
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path(), seed, "");
    let options = CellOptions {
        model: Some(dir.path().to_string_lossy().into()),
        backend: Some(Backend::Cpu),
        ..CellOptions::default()
    };
    for (tp, ep, dtype) in [(2, 1, DType::Mxfp4), (4, 1, DType::Bf16), (4, 4, DType::Mxfp4)] {
        let options = CellOptions { tp: Some(tp), ep: Some(ep), ..options.clone() };
        assert_eq!(options.resolve().unwrap().0.dtype, dtype, "TP {tp} EP {ep}");
        // a format that is asked for stays
        let asked = CellOptions { dtype: Some(DType::Mxfp4), ..options };
        assert_eq!(asked.resolve().unwrap().0.dtype, DType::Mxfp4);
    }
}

#[test]
fn a_missing_expert_is_named() {
    let Golden { seed, cases, .. } = mixtures();
    for (family, tensor) in [
        ("mixtral", "model.layers.1.block_sparse_moe.experts.5.w3.weight"),
        ("qwen3_moe", "model.layers.2.mlp.experts.7.down_proj.weight"),
        ("gpt_oss", "model.layers.0.self_attn.sinks"),
        ("deepseek_v3", "model.layers.1.self_attn.kv_b_proj.weight"),
    ] {
        let case = cases.iter().find(|case| case.config["model_type"] == family).unwrap();
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path(), seed, tensor);
        let model = Model::resolve(&dir.path().to_string_lossy()).unwrap();
        let error = WeightSource::open(&model, 0).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(tensor), "{error}");
    }
}

/// What only another family has is not left out silently.
#[test]
fn a_tensor_of_another_family_is_refused_by_name() {
    let Golden { seed, cases, .. } = families();
    for (family, tensor) in [("qwen2", "self_attn.k_proj.bias"), ("qwen3", "self_attn.k_norm.weight")] {
        let case = cases.iter().find(|case| case.config["model_type"] == family).unwrap();
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path(), seed);
        let mut config = case.config.clone();
        // Llama's arithmetic would leave them out
        config["model_type"] = "llama".into();
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        let model = Model::resolve(&dir.path().to_string_lossy()).unwrap();
        let error = WeightSource::open(&model, 0).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(tensor), "{error}");
    }
}
