//! HF directory of a trained model: f32 weights, a config with the ladder layers, and the tokenizer.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::config::FAMILIES;
use super::converted::{self, WEIGHTS, check_place, files};
use super::numbers::write_numbers;
use super::{Model, WeightSource, tokenizer};
use base::atomic::{self, UnfinishedDir};
use base::error::{Error, Result};
use plan::{DType, LayerSet, Rope, Shard, Tensor, Weight, WeightPart};

impl Model {
    /// Writes an HF directory `out` of this model with trained numbers: `numbers` returns a tensor's
    /// data row by row, or `None` if unchanged (from the checkpoint, or random from `seed`). `layers`
    /// become `ladder_layers` in `config.json`, which is omitted without them. Adds one file with the
    /// given name and contents. The directory appears complete or not at all.
    ///
    /// # Errors
    ///
    /// Returns an input error if `out` is not an empty or new place in an existing directory; a failure
    /// if a file cannot be read or written; and the errors of `numbers`.
    pub fn write_trained(
        &self,
        seed: u64,
        layers: Option<&LayerSet>,
        numbers: &dyn Fn(Tensor) -> Option<Vec<f32>>,
        (name, beside): (&str, &[u8]),
        out: &Path,
    ) -> Result<()> {
        check_place(out)?;
        let unfinished = UnfinishedDir::create(out)?;
        let config = match &self.dir {
            Some(dir) => {
                for from in files(dir)? {
                    let is_weights =
                        from.extension().is_some_and(|e| WEIGHTS.iter().any(|known| e == *known));
                    let is_index = from.to_string_lossy().ends_with(".index.json");
                    let Some(name) = from.file_name().filter(|_| !is_weights && !is_index) else {
                        continue;
                    };
                    fs::copy(&from, unfinished.path().join(name)).map_err(Error::io(&from))?;
                }
                converted::members(&dir.join("config.json"))?
            }
            None => {
                if tokenizer::is_of_bytes(self) {
                    let path = unfinished.path().join("tokenizer.json");
                    atomic::write(&path, tokenizer::bytes_json().as_bytes())?;
                }
                self.config()
            }
        };
        let config = self.with_layers(config, layers)?;
        atomic::write(&unfinished.path().join("config.json"), config.as_bytes())?;
        atomic::write(&unfinished.path().join(name), beside)?;
        self.write_weights(seed, numbers, &unfinished.path().join("model.safetensors"))?;
        unfinished.finish().map_err(Error::io(out))
    }

    fn with_layers(
        &self,
        mut config: serde_json::Map<String, Value>,
        layers: Option<&LayerSet>,
    ) -> Result<String> {
        config.remove("ladder_layers");
        config.insert("torch_dtype".into(), "float32".into());
        config.insert("tie_word_embeddings".into(), self.shape.tied_embeddings.into());
        if let Some(layers) = layers {
            let list = layers.layers(self.shape.layers)?;
            converted::set_layers(&mut config, &list, self.shape.layers);
        }
        let text = serde_json::to_string_pretty(&config);
        text.map(|text| text + "\n").map_err(|e| Error::failed(format!("writing a config: {e}")))
    }

    fn config(&self) -> serde_json::Map<String, Value> {
        let shape = &self.shape;
        let family =
            FAMILIES.iter().find(|(_, step)| *step == shape.qkv).map_or("llama", |(name, _)| name);
        let Rope { theta, scaling } = shape.rope;
        let scaling = scaling.map(|s| {
            json!({
                "rope_type": "llama3", "factor": s.factor, "low_freq_factor": s.low_freq_factor,
                "high_freq_factor": s.high_freq_factor,
                "original_max_position_embeddings": s.original_context,
            })
        });
        let config = json!({
            "model_type": family, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim, "intermediate_size": shape.intermediate,
            "vocab_size": shape.vocab, "rms_norm_eps": shape.norm_eps, "rope_theta": theta,
            "rope_scaling": scaling, "tie_word_embeddings": shape.tied_embeddings, "hidden_act": "silu",
        });
        match config {
            Value::Object(members) => members,
            _ => serde_json::Map::new(),
        }
    }

    fn write_weights(
        &self,
        seed: u64,
        numbers: &dyn Fn(Tensor) -> Option<Vec<f32>>,
        path: &Path,
    ) -> Result<()> {
        let shape = &self.shape;
        let is_stored = |tensor: &Tensor| *tensor != Tensor::Head || !shape.tied_embeddings;
        let all: Vec<Tensor> = Tensor::all(shape).into_iter().filter(is_stored).collect();
        let named = |tensor: &Tensor| {
            let (rows, columns) = tensor.dimensions(shape);
            // norms and biases are one-dimensional in checkpoints
            let sizes = match rows == 1 || columns == 1 {
                true => vec![(rows * columns) as usize],
                false => vec![rows as usize, columns as usize],
            };
            (tensor.hf_name(), sizes)
        };
        let names: Vec<_> = all.iter().map(named).collect();
        let source = WeightSource::open(self, seed)?;
        let about: HashMap<_, _> = [("format".to_owned(), "pt".to_owned())].into();
        write_numbers(path, about, &names, |at| {
            let tensor = all[at];
            if let Some(numbers) = numbers(tensor) {
                return Ok(numbers.into());
            }
            let (outputs, inputs) = tensor.dimensions(shape);
            let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
            let whole = Weight { name: tensor.hf_name(), parts, outputs, inputs };
            Ok(source.load(&whole, 0, 1, DType::F32)?.numbers().into_owned().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;

    const ABOUT: (&str, &[u8]) = ("training.json", b"{}");

    #[test]
    fn a_built_in_shape_becomes_a_checkpoint_that_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let tiny = Model::resolve("tiny").unwrap();
        let ones = |tensor: Tensor| {
            let (rows, columns) = tensor.dimensions(&tiny.shape);
            (tensor.layer() == Some(1)).then(|| vec![1.0; (rows * columns) as usize])
        };
        let out = dir.path().join("out");
        tiny.write_trained(7, Some(&LayerSet::Last(2)), &ones, ABOUT, &out).unwrap();
        let read = Model::resolve(&out.to_string_lossy()).unwrap();
        assert_eq!((&read.shape, &read.ladder_layers), (&tiny.shape, &Some(LayerSet::Last(2))));
        assert!(read.has_weights);
        let load = |model: &Model, tensor: Tensor| {
            let (outputs, inputs) = tensor.dimensions(&model.shape);
            let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
            let weight = Weight { name: "w".into(), parts, outputs, inputs };
            let source = WeightSource::open(model, 7).unwrap();
            source.load(&weight, 0, 1, DType::F32).unwrap().numbers().into_owned()
        };
        assert!(load(&read, Tensor::Gate(1)).iter().all(|number| *number == 1.0));
        for tensor in [Tensor::Embedding, Tensor::Down(3), Tensor::FinalNorm, Tensor::Head] {
            assert_eq!(load(&read, tensor), load(&tiny, tensor), "{tensor:?}");
        }
        let tokenizer = Tokenizer::of(&read).unwrap();
        assert_eq!(
            tokenizer.encode_plain("Aé\n").unwrap(),
            "Aé\n".bytes().map(u32::from).collect::<Vec<_>>()
        );
        // and again from that directory, as it is
        let again = dir.path().join("again");
        read.write_trained(0, None, &|_| None, ABOUT, &again).unwrap();
        let again = Model::resolve(&again.to_string_lossy()).unwrap();
        assert_eq!(again.ladder_layers, None);
        assert_eq!(load(&again, Tensor::Query(1)), load(&read, Tensor::Query(1)));
        assert!(
            read.write_trained(0, None, &|_| None, ABOUT, &out)
                .unwrap_err()
                .to_string()
                .contains("not empty")
        );
    }
}
