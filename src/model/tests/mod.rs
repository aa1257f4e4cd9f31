//! Tests over several files of the model module: configs, checkpoints, slices of a TP.

mod checkpoints;
mod configs;
mod mixtures;
mod slices;

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::{Matrix, Model};
use base::error::Error;
use plan::{DType, ModelShape, Shard, Tensor, Weight, WeightPart};

/// A config of 2 layers, hidden 8, 4 heads of 2, 2 KV heads, MLP 12, vocabulary 10.
const CONFIG: &str = r#"{
  "model_type": "llama",
  "hidden_size": 8,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "intermediate_size": 12,
  "vocab_size": 10,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0
}"#;

/// [`CONFIG`] with a key set (`null` too) or added.
fn config_with(key: &str, value: &str) -> String {
    let mut json: serde_json::Value = serde_json::from_str(CONFIG).expect("valid");
    json[key] = serde_json::from_str(value).expect("a JSON value");
    serde_json::to_string_pretty(&json).expect("serialises")
}

/// A directory with this config.
fn model_dir(config: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("config.json"), config).expect("write config");
    dir
}

/// The model in a directory.
fn resolve(dir: &Path) -> Result<Model, Error> {
    Model::resolve(&dir.to_string_lossy())
}

/// A wrong input's message and help in one; panics on anything else.
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(value) => panic!("accepted: {value:?}"),
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{error:?}");
            let help = miette::Diagnostic::help(&error).map(|h| h.to_string()).unwrap_or_default();
            format!("{error}; {help}")
        }
    }
}

/// The number at `index` of the `nth` tensor of the fixture: exact in every format, different for every
/// tensor and for neighbours.
fn fixture_number(nth: usize, index: usize) -> f32 {
    ((nth * 37 + index * 5) % 255) as f32 / 16.0 - 8.0
}

/// A tensor as it is in a file: name, format, dimensions, bytes.
type Stored = (String, Dtype, Vec<usize>, Vec<u8>);

/// The fixture's tensors in one format.
fn stored(shape: &ModelShape, dtype: Dtype) -> Vec<Stored> {
    let all = Tensor::all(shape);
    let store = |(nth, tensor): (usize, &Tensor)| {
        let (rows, columns) = tensor.dimensions(shape);
        let count = rows as usize * columns as usize;
        let bytes = (0..count)
            .flat_map(|i| {
                let x = fixture_number(nth, i);
                match dtype {
                    Dtype::F32 => x.to_le_bytes().to_vec(),
                    Dtype::BF16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
                    _ => half::f16::from_f32(x).to_le_bytes().to_vec(),
                }
            })
            .collect();
        let dimensions = match (rows as usize, columns as usize) {
            (1, length) | (length, 1) => vec![length],
            (rows, columns) => vec![rows, columns],
        };
        (tensor.hf_name(), dtype, dimensions, bytes)
    };
    all.iter().enumerate().map(store).collect()
}

/// The bytes of a safetensors file with these tensors.
fn safetensors(tensors: &[Stored]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, dimensions, bytes)| {
        (name.clone(), TensorView::new(*dtype, dimensions.clone(), bytes).expect("consistent"))
    });
    safetensors::serialize(views, None).expect("serialises")
}

/// A weight of one tensor.
fn weight_of(tensor: Tensor, shard: Shard, shape: &ModelShape, tp: u32) -> Weight {
    weight_of_all(&[tensor], shard, shape, tp)
}

/// A weight of several tensors, one below the other.
fn weight_of_all(tensors: &[Tensor], shard: Shard, shape: &ModelShape, tp: u32) -> Weight {
    let parts: Vec<WeightPart> = tensors.iter().map(|&tensor| WeightPart { tensor, shard }).collect();
    let slices: Vec<_> = parts.iter().map(|part| part.slice(shape, 0, tp)).collect();
    Weight {
        name: "test".into(),
        outputs: slices.iter().map(|(rows, _)| rows.len() as u32).sum(),
        inputs: slices.first().map_or(0, |(_, columns)| columns.len() as u32),
        parts,
    }
}

/// A matrix's numbers, widened.
fn numbers(matrix: &Matrix) -> Vec<f32> {
    matrix.numbers().into_owned()
}

/// Formats in which a matrix can be loaded.
const LOADED: [DType; 2] = [DType::F32, DType::Bf16];
