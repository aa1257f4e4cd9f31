//! HF directories that this program writes: linked weights with another set of ladder or farskip layers, or
//! trained f32 weights with a config and the tokenizer. Wired ones come with a Python file with which
//! `transformers` loads them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::config::{FAMILIES, FARSKIP_LAYERS, LADDER_LAYERS, MixtureFamily};
use super::tensor_file::write_tensors;
use super::{Model, WeightSource, layout, tokenizer};
use base::atomic::{self, UnfinishedDir};
use base::error::{Error, Result};
use base::input::InputKind;
use plan::{
    Architecture, DType, LayerSet, Rope, RouterBias, RouterScore, Routing, Shard, Tensor, Weight,
    WeightPart,
};

/// Extensions of weight files, which are linked; other files are small, may be edited by hand, and are
/// copied.
const WEIGHTS: [&str; 4] = ["safetensors", "bin", "pth", "pt"];

/// Module with the classes of [`modeling_class`], added to the directory of a wired checkpoint.
const MODELING: (&str, &str) = ("modeling_ladder.py", include_str!("modeling_ladder.py"));

impl Model {
    /// Writes an HF directory `out` of the model's checkpoint with layers of ladder or farskip: `ladder_layers`
    /// or `farskip_layers` in `config.json` is a count for the last layers, else a list. Weight files are hard links, or
    /// symbolic links where the file system allows no others; subdirectories are omitted. `auto_map` names
    /// the modelling code for `transformers`, which is added. The directory appears complete or not at all.
    ///
    /// # Errors
    ///
    /// Returns an input error if the model is not a directory, lacks the layers, or if `out` is not an
    /// empty or new place in an existing directory; a failure if a file cannot be written.
    pub fn write_converted(&self, wiring: &Architecture, out: &Path) -> Result<()> {
        let layers = wiring.recorded_layers().unwrap_or(&LayerSet::All).layers(self.shape.layers)?;
        let dir = self.dir.as_deref().ok_or_else(|| {
            Error::input(format!("{} is a built-in shape without weights to link", self.name))
        })?;
        check_place(out)?;
        let unfinished = UnfinishedDir::create(out)?;
        for from in files(dir)? {
            let Some(name) = from.file_name() else { continue };
            let to = unfinished.path().join(name);
            match is_weights(&from) {
                true => link(&from, &to)?,
                false => fs::copy(&from, &to).map(drop).map_err(Error::io(&from))?,
            }
        }
        let config = config(&dir.join("config.json"), wiring, &layers, self.shape.layers)?;
        atomic::write(&unfinished.path().join("config.json"), config.as_bytes())?;
        atomic::write(&unfinished.path().join(MODELING.0), MODELING.1.as_bytes())?;
        unfinished.finish().map_err(Error::io(out))
    }
}

/// Checks that `out` does not exist or is an empty directory, and that its parent exists.
///
/// # Errors
///
/// Returns an input error that states the problem.
pub fn check_place(out: &Path) -> Result<()> {
    let parent = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(Error::input_help(
            format!("{}: no such directory: {}", out.display(), parent.display()),
            "create it first, or write elsewhere",
        ));
    }
    match out.symlink_metadata() {
        Ok(there) if !there.is_dir() => {
            Err(Error::input(format!("{}: a file is in its place", out.display())))
        }
        Ok(_) if fs::read_dir(out).map_err(Error::io(out))?.next().is_some() => Err(Error::input_help(
            format!("{}: the directory is not empty", out.display()),
            "choose a new directory",
        )),
        _ => Ok(()),
    }
}

/// Files of a directory that a copy of the checkpoint needs, except its config.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = super::files::entries(dir, "")?;
    found.retain(|path| path.is_file() && !path.ends_with("config.json"));
    Ok(found)
}

fn is_weights(file: &Path) -> bool {
    file.extension().is_some_and(|e| WEIGHTS.iter().any(|known| e == *known))
}

/// Links a weight file, resolving links of a download cache.
fn link(from: &Path, to: &Path) -> Result<()> {
    let whole = from.canonicalize().map_err(Error::io(from))?;
    fs::hard_link(&whole, to).or_else(|_| std::os::unix::fs::symlink(&whole, to)).map_err(Error::io(to))
}

fn config(path: &Path, wiring: &Architecture, list: &[u32], layers: u32) -> Result<String> {
    let mut members = members(path)?;
    set_layers(&mut members, wiring, list, layers);
    let text = serde_json::to_string_pretty(&members);
    text.map(|text| text + "\n").map_err(|e| Error::failed(format!("{}: {e}", path.display())))
}

pub(super) fn members(path: &Path) -> Result<Map<String, Value>> {
    let text = InputKind::CONFIG.text(path)?;
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
    match serde_json::from_str(&text).map_err(|e| wrong(format!("not JSON: {e}")))? {
        Value::Object(members) => Ok(members),
        _ => Err(wrong("not a JSON object".into())),
    }
}

/// Records the layers of a wiring, and the modelling code.
fn set_layers(members: &mut Map<String, Value>, wiring: &Architecture, list: &[u32], layers: u32) {
    let value = match LayerSet::new(list, layers) {
        LayerSet::Only(list) if !list.is_empty() => Value::from(list),
        _ => Value::from(list.len()),
    };
    let is_farskip = matches!(wiring, Architecture::FarSkip(_));
    let key = if is_farskip { FARSKIP_LAYERS } else { LADDER_LAYERS };
    members.retain(|key, _| ![LADDER_LAYERS, FARSKIP_LAYERS].contains(&key.as_str()));
    members.insert(key.into(), value);
    if let Some(class) = members.get("model_type").and_then(Value::as_str).and_then(modeling_class) {
        let known = members.get("auto_map").and_then(Value::as_object);
        let mut auto_map = known.cloned().unwrap_or_default();
        auto_map.insert("AutoModelForCausalLM".into(), format!("modeling_ladder.{class}").into());
        members.insert("auto_map".into(), auto_map.into());
    }
}

/// Class in [`MODELING`] for a `model_type` that `transformers` knows.
fn modeling_class(model_type: &str) -> Option<&'static str> {
    match model_type {
        "llama" => Some("LadderLlamaForCausalLM"),
        "mistral" => Some("LadderMistralForCausalLM"),
        "qwen2" => Some("LadderQwen2ForCausalLM"),
        "qwen3" => Some("LadderQwen3ForCausalLM"),
        "mixtral" => Some("LadderMixtralForCausalLM"),
        "qwen3_moe" => Some("LadderQwen3MoeForCausalLM"),
        "dots1" => Some("LadderDots1ForCausalLM"),
        "gpt_oss" => Some("LadderGptOssForCausalLM"),
        "deepseek_v2" => Some("LadderDeepseekV2ForCausalLM"),
        "deepseek_v3" => Some("LadderDeepseekV3ForCausalLM"),
        _ => None,
    }
}

impl Model {
    /// Writes an HF directory `out` of this model with trained numbers: `numbers` returns a tensor's
    /// data row by row, or `None` if unchanged (from the checkpoint, or random from `seed`). The layers of
    /// `wiring` (ladder or farskip) are recorded in `config.json`. Adds one file with the
    /// given name and contents. The directory appears complete or not at all.
    ///
    /// # Errors
    ///
    /// Returns an input error if `out` is not an empty or new place in an existing directory; a failure
    /// if a file cannot be read or written; and the errors of `numbers`.
    pub fn write_trained(
        &self,
        seed: u64,
        wiring: Option<&Architecture>,
        numbers: &dyn Fn(Tensor) -> Option<Vec<f32>>,
        (name, beside): (&str, &[u8]),
        out: &Path,
    ) -> Result<()> {
        check_place(out)?;
        let unfinished = UnfinishedDir::create(out)?;
        let config = match &self.dir {
            Some(dir) => {
                for from in files(dir)? {
                    let Some(name) = from.file_name() else { continue };
                    if !is_weights(&from) && !from.to_string_lossy().ends_with(".index.json") {
                        fs::copy(&from, unfinished.path().join(name)).map_err(Error::io(&from))?;
                    }
                }
                members(&dir.join("config.json"))?
            }
            None => {
                if tokenizer::has_byte_tokens(self) {
                    let path = unfinished.path().join("tokenizer.json");
                    atomic::write(&path, tokenizer::bytes_json().as_bytes())?;
                }
                self.config()?
            }
        };
        let is_mixtral = config.get("model_type").is_some_and(|family| family == "mixtral");
        let config = self.with_wiring(config, wiring)?;
        atomic::write(&unfinished.path().join("config.json"), config.as_bytes())?;
        atomic::write(&unfinished.path().join(name), beside)?;
        if wiring.is_some() {
            atomic::write(&unfinished.path().join(MODELING.0), MODELING.1.as_bytes())?;
        }
        let path = unfinished.path().join("model.safetensors");
        self.write_weights(seed, numbers, is_mixtral, &path)?;
        unfinished.finish().map_err(Error::io(out))
    }

    fn with_wiring(
        &self,
        mut config: serde_json::Map<String, Value>,
        wiring: Option<&Architecture>,
    ) -> Result<String> {
        config.retain(|key, _| ![LADDER_LAYERS, FARSKIP_LAYERS].contains(&key.as_str()));
        config.insert("torch_dtype".into(), "float32".into());
        config.insert("tie_word_embeddings".into(), self.shape.tied_embeddings.into());
        if let Some((wiring, layers)) = wiring.and_then(|one| Some((one, one.recorded_layers()?))) {
            let list = layers.layers(self.shape.layers)?;
            set_layers(&mut config, wiring, &list, self.shape.layers);
        }
        let text = serde_json::to_string_pretty(&config);
        text.map(|text| text + "\n").map_err(|e| Error::failed(format!("writing a config: {e}")))
    }

    /// Family whose config and names of tensors the shape has.
    ///
    /// # Errors
    ///
    /// Returns an input error for mixtures of experts that differ from dots.llm1's, as `mini-moe` is.
    pub fn written_family(&self) -> Result<&'static str> {
        let shape = &self.shape;
        let mixture = shape.experts.map_or(MixtureFamily::None, |_| MixtureFamily::Dots1);
        let has_its_experts = shape.experts.is_none_or(|experts| {
            let Routing { score, bias, weighs_input, .. } = experts.routing;
            let shared = experts.shared_width.is_multiple_of(experts.width);
            (score, bias) == (RouterScore::Sigmoid, RouterBias::Choice) && shared && !weighs_input
        });
        let found = FAMILIES.iter().find(|family| (family.qkv, family.mixture) == (shape.qkv, mixture));
        found.filter(|_| has_its_experts).map(|family| family.name).ok_or_else(|| {
            Error::input_help(
                format!("{}: no checkpoint of its family is written from scratch", self.name),
                "take the shape of a dense model or mini-moe, or train a checkpoint",
            )
        })
    }

    fn config(&self) -> Result<serde_json::Map<String, Value>> {
        let (shape, family) = (&self.shape, self.written_family()?);
        let Rope { theta, scaling, yarn: _ } = shape.rope;
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
        let experts = shape.experts.map(|experts| {
            json!({
                "n_routed_experts": experts.count, "num_experts_per_tok": experts.top_k,
                "moe_intermediate_size": experts.width, "n_shared_experts": experts.shared_width / experts.width,
                "first_k_dense_replace": experts.dense_first, "norm_topk_prob": experts.routing.renormalise,
                "routed_scaling_factor": experts.routing.scale, "n_group": experts.routing.groups,
                "topk_group": experts.routing.kept_groups,
            })
        });
        let parts = std::iter::once(config).chain(experts).filter_map(|part| match part {
            Value::Object(members) => Some(members),
            _ => None,
        });
        Ok(parts.flatten().collect())
    }

    fn write_weights(
        &self,
        seed: u64,
        numbers: &dyn Fn(Tensor) -> Option<Vec<f32>>,
        is_mixtral: bool,
        path: &Path,
    ) -> Result<()> {
        let shape = &self.shape;
        let is_stored = |tensor: &Tensor| *tensor != Tensor::Head || !shape.tied_embeddings;
        let count = shape.experts.map_or(0, |experts| experts.count);
        // a stacked tensor becomes one per expert
        let parts = |tensor: Tensor| {
            let experts = if tensor.is_stacked() { count } else { 1 };
            (0..experts).map(move |expert| (tensor, expert))
        };
        let all: Vec<(Tensor, u32)> =
            Tensor::all(shape).into_iter().filter(is_stored).flat_map(parts).collect();
        let named = |(tensor, expert): &(Tensor, u32)| {
            let (rows, columns) = tensor.matrix(shape);
            // norms and biases are one-dimensional in checkpoints
            let sizes = match rows == 1 || columns == 1 {
                true => vec![(rows * columns) as usize],
                false => vec![rows as usize, columns as usize],
            };
            (layout::written_name(*tensor, *expert, is_mixtral), sizes)
        };
        let names: Vec<_> = all.iter().map(named).collect();
        let source = WeightSource::open(self, seed)?;
        let about: HashMap<_, _> = [("format".to_owned(), "pt".to_owned())].into();
        write_tensors(path, about, &names, |at| {
            let (tensor, expert) = all[at];
            let (rows, columns) = tensor.matrix(shape);
            let (rows, first) = (rows as usize, (expert * rows) as usize);
            if let Some(numbers) = numbers(tensor) {
                let width = columns as usize;
                return Ok(numbers[first * width..][..rows * width].to_vec().into());
            }
            let (outputs, inputs) = tensor.dimensions(shape);
            let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
            let whole = Weight { name: tensor.hf_name(), parts, outputs, inputs };
            let part = source.load_rows(&whole, 0, 1, DType::F32, first..first + rows)?;
            Ok(part.numbers().into_owned().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::Tokenizer;

    /// A checkpoint of four layers, whose weights are no real ones.
    fn place() -> (tempfile::TempDir, Model) {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("model");
        fs::create_dir_all(model.join("original")).unwrap();
        let config = r#"{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64,
            "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0, "own": [1, {"deep": null}]}"#;
        fs::write(model.join("config.json"), config).unwrap();
        fs::write(model.join("weights"), "weights").unwrap();
        std::os::unix::fs::symlink("weights", model.join("model.safetensors")).unwrap();
        fs::write(model.join("tokenizer.json"), "{}").unwrap();
        let model = Model::resolve(&model.to_string_lossy()).unwrap();
        (dir, model)
    }

    #[test]
    fn weights_are_linked_the_config_says_which_layers_and_nothing_else_changes() {
        let (dir, model) = place();
        let sets = [
            (LayerSet::Only(vec![1, 2]), "[1,2]", Some(LayerSet::Only(vec![1, 2]))),
            (LayerSet::Only(vec![2, 3]), "2", Some(LayerSet::Last(2))),
            (LayerSet::All, "4", Some(LayerSet::Last(4))),
            (LayerSet::Only(vec![]), "0", Some(LayerSet::Last(0))),
        ];
        for (at, (set, said, read)) in sets.into_iter().enumerate() {
            let out = dir.path().join(format!("out{at}"));
            model.write_converted(&Architecture::Ladder(set), &out).unwrap();
            let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
            assert_eq!(inode(out.join("model.safetensors")), inode(dir.path().join("model/weights")));
            assert_ne!(
                inode(out.join("tokenizer.json")),
                inode(dir.path().join("model/tokenizer.json"))
            );
            assert!(!out.join("original").exists());
            let config = |dir: &Path| -> Value {
                serde_json::from_slice(&fs::read(dir.join("config.json")).unwrap()).unwrap()
            };
            let mut written = config(&out);
            let layers = written.as_object_mut().unwrap().remove("ladder_layers").unwrap();
            assert_eq!(layers.to_string(), said);
            let auto_map = written.as_object_mut().unwrap().remove("auto_map").unwrap();
            assert_eq!(
                auto_map,
                json!({ "AutoModelForCausalLM": "modeling_ladder.LadderLlamaForCausalLM" })
            );
            let modeling = fs::read_to_string(out.join("modeling_ladder.py")).unwrap();
            for family in FAMILIES.iter().map(|family| family.name) {
                let class = modeling_class(family);
                let is_there = class.is_some_and(|class| modeling.contains(&format!("class {class}(")));
                assert_eq!(is_there, !["ladder_llama", "llama4_text"].contains(&family), "{family}");
            }
            assert_eq!(written, config(&dir.path().join("model")));
            assert_eq!(
                Model::resolve(&out.to_string_lossy()).unwrap().wiring,
                read.map(Architecture::Ladder)
            );
        }
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 5, "nothing unfinished is left");
    }

    #[test]
    fn nothing_is_overwritten_and_what_cannot_be_is_told() {
        let (dir, model) = place();
        let told = |layers: LayerSet, out: &str| {
            let wiring = Architecture::Ladder(layers);
            let error = model.write_converted(&wiring, &dir.path().join(out)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        };
        assert!(told(LayerSet::All, "model").contains("not empty"));
        assert!(told(LayerSet::All, "no/out").contains("no such directory"));
        assert!(told(LayerSet::Only(vec![0, 4]), "out").contains("layer 4"));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(told(LayerSet::All, "file").contains("in its place"));
        fs::create_dir(dir.path().join("empty")).unwrap();
        let all = Architecture::FarSkip(LayerSet::All);
        model.write_converted(&all, &dir.path().join("empty")).unwrap();
        let read = Model::resolve(&dir.path().join("empty").to_string_lossy()).unwrap();
        assert_eq!(read.wiring, Some(Architecture::FarSkip(LayerSet::Last(4))));
        fs::write(dir.path().join("model/config.json"), "[]").unwrap();
        assert!(told(LayerSet::All, "out").contains("config.json: not a JSON object"));
        assert!(!dir.path().join("out").exists());
    }

    const ABOUT: (&str, &[u8]) = ("training.json", b"{}");

    /// Numbers of a tensor, of seed 7 where they are random.
    fn load(model: &Model, tensor: Tensor) -> Vec<f32> {
        let (outputs, inputs) = tensor.dimensions(&model.shape);
        let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
        let weight = Weight { name: "w".into(), parts, outputs, inputs };
        let source = WeightSource::open(model, 7).unwrap();
        source.load(&weight, 0, 1, DType::F32).unwrap().numbers().into_owned()
    }

    #[test]
    fn a_built_in_shape_becomes_a_checkpoint_that_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let tiny = Model::resolve("tiny").unwrap();
        let ones = |tensor: Tensor| {
            let (rows, columns) = tensor.dimensions(&tiny.shape);
            (tensor.layer() == Some(1)).then(|| vec![1.0; (rows * columns) as usize])
        };
        let out = dir.path().join("out");
        let wiring = Architecture::Ladder(LayerSet::Last(2));
        tiny.write_trained(7, Some(&wiring), &ones, ABOUT, &out).unwrap();
        let read = Model::resolve(&out.to_string_lossy()).unwrap();
        assert_eq!((&read.shape, &read.wiring), (&tiny.shape, &Some(wiring)));
        assert!(read.has_weights);
        assert!(load(&read, Tensor::Gate(1)).iter().all(|number| *number == 1.0));
        for tensor in [Tensor::Embedding, Tensor::Down(3), Tensor::FinalNorm, Tensor::Head] {
            assert_eq!(load(&read, tensor), load(&tiny, tensor), "{tensor:?}");
        }
        let tokenizer = Tokenizer::from_model(&read).unwrap();
        assert_eq!(
            tokenizer.encode_plain("Aé\n").unwrap(),
            "Aé\n".bytes().map(u32::from).collect::<Vec<_>>()
        );
        // and again from that directory, as it is
        let again = dir.path().join("again");
        read.write_trained(0, None, &|_| None, ABOUT, &again).unwrap();
        let again = Model::resolve(&again.to_string_lossy()).unwrap();
        assert_eq!(again.wiring, None);
        assert_eq!(load(&again, Tensor::Query(1)), load(&read, Tensor::Query(1)));
        assert!(
            read.write_trained(0, None, &|_| None, ABOUT, &out)
                .unwrap_err()
                .to_string()
                .contains("not empty")
        );
    }
    /// Experts become a tensor each, read as one again.
    #[test]
    fn a_mixture_becomes_a_checkpoint_that_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mini = Model::resolve("mini-moe").unwrap();
        let counted = |tensor: Tensor| {
            let (rows, columns) = tensor.dimensions(&mini.shape);
            let numbers = || (0..rows * columns).map(|n| n as f32).collect::<Vec<f32>>();
            (tensor == Tensor::ExpertUp(2)).then(numbers)
        };
        let wiring = Architecture::FarSkip(LayerSet::Last(6));
        let out = dir.path().join("out");
        mini.write_trained(7, Some(&wiring), &counted, ABOUT, &out).unwrap();
        let read = Model::resolve(&out.to_string_lossy()).unwrap();
        assert_eq!((&read.shape, read.wiring.as_ref()), (&mini.shape, Some(&wiring)));
        assert_eq!(load(&read, Tensor::ExpertUp(2)), counted(Tensor::ExpertUp(2)).unwrap());
        for tensor in
            [Tensor::Router(1), Tensor::RouterBias(3), Tensor::ExpertDown(5), Tensor::SharedUp(4)]
        {
            assert_eq!(load(&read, tensor), load(&mini, tensor), "{tensor:?}");
        }
        let mixtral = Model::resolve("mixtral-8x7b").unwrap();
        assert!(mixtral.written_family().unwrap_err().to_string().contains("no checkpoint"));
    }
}
