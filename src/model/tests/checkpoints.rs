//! Checkpoints in safetensors: every format and layout of files, and how each defect is named.

use std::path::Path;

use proptest::prelude::*;
use safetensors::Dtype;

use super::{
    CONFIG, LOADED, Stored, config_with, fixture_number, model_dir, numbers, refusal, resolve,
    safetensors, stored, weight_of,
};
use crate::{Model, WeightSource};
use base::error::Error;
use plan::{ModelShape, Shard, Tensor};

fn shape() -> ModelShape {
    resolve(model_dir(CONFIG).path()).expect("valid").shape
}

fn open(dir: &Path) -> Result<WeightSource, Error> {
    let model = resolve(dir)?;
    assert!(model.has_weights);
    WeightSource::open(&model, 0)
}

/// A directory with one `model.safetensors` of these tensors.
fn single(config: &str, tensors: &[Stored]) -> tempfile::TempDir {
    let dir = model_dir(config);
    std::fs::write(dir.path().join("model.safetensors"), safetensors(tensors)).expect("write");
    dir
}

/// Asserts that the source yields the fixture's numbers, whole, in both formats.
fn assert_is_fixture(source: &WeightSource, shape: &ModelShape) {
    assert!(!source.is_random());
    for (nth, tensor) in Tensor::all(shape).into_iter().enumerate() {
        let weight = weight_of(tensor, Shard::Whole, shape, 1);
        let count = weight.outputs as usize * weight.inputs as usize;
        let wanted: Vec<f32> = (0..count).map(|i| fixture_number(nth, i)).collect();
        for dtype in LOADED {
            let matrix = source.load(&weight, 0, 1, dtype).expect("loads");
            assert_eq!(
                (matrix.outputs, matrix.inputs),
                (weight.outputs as usize, weight.inputs as usize)
            );
            assert_eq!(numbers(&matrix), wanted, "{tensor:?} as {dtype}");
        }
    }
}

#[test]
fn every_number_format_loads_equal() {
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
        let dir = single(CONFIG, &stored(&shape(), dtype));
        assert_is_fixture(&open(dir.path()).expect("opens"), &shape());
    }
}

#[test]
fn names_without_the_prefix_are_the_same() {
    let mut tensors = stored(&shape(), Dtype::F32);
    for tensor in &mut tensors {
        tensor.0 = tensor.0.trim_start_matches("model.").into();
    }
    let dir = single(CONFIG, &tensors);
    assert_is_fixture(&open(dir.path()).expect("opens"), &shape());
}

#[test]
fn a_prefix_of_all_names_is_left_out_and_named() {
    for (prefix, head_too) in [
        ("_orig_mod.", true),
        ("module.", true),
        ("language_model.", true),
        ("base_model.model.", true),
        ("model.language_model.", false),
    ] {
        let mut tensors = stored(&shape(), Dtype::F32);
        for tensor in tensors.iter_mut().filter(|tensor| head_too || tensor.0 != "lm_head.weight") {
            tensor.0 = format!("{prefix}{}", tensor.0);
        }
        let dir = single(CONFIG, &tensors);
        assert_is_fixture(&open(dir.path()).expect(prefix), &shape());
        let warnings = resolve(dir.path()).expect("resolves").warnings;
        let [warning] = &warnings[..] else { panic!("{prefix}: {warnings:?}") };
        assert!(
            warning.contains(&format!("ignoring the prefix '{prefix}' of all tensors")),
            "{warning}"
        );
    }
    // a prefix of some is another model's beside it
    let mut tensors = stored(&shape(), Dtype::F32);
    tensors.iter_mut().for_each(|tensor| tensor.0 = format!("language_model.{}", tensor.0));
    tensors.push(("vision_tower.patch.weight".into(), Dtype::F32, vec![1], vec![0; 4]));
    let message = refusal(open(single(CONFIG, &tensors).path()));
    assert!(
        message
            .contains("have the prefix 'language_model.', but 1 others lack it, such as vision_tower"),
        "{message}"
    );
    assert!(resolve(single(CONFIG, &stored(&shape(), Dtype::F32)).path()).unwrap().warnings.is_empty());
}

/// As transformers reads it: a head that was trained apart from the embedding is the model's.
#[test]
fn a_head_that_differs_from_the_tied_embedding_is_used_with_a_warning() {
    let config = config_with("tie_word_embeddings", "true");
    let tensors = stored(&shape(), Dtype::BF16);
    let dir = single(&config, &tensors);
    let model = resolve(dir.path()).expect("resolves");
    assert!(!model.shape.tied_embeddings);
    assert!(model.warnings[0].contains("lm_head.weight differs from the embedding"), "{model:?}");
    assert_is_fixture(&open(dir.path()).expect("opens"), &shape());
    // a copy of the embedding, in this file or another, and no head at all
    let embedding = tensors.iter().find(|t| t.0 == "model.embed_tokens.weight").expect("there").clone();
    let others: Vec<Stored> = tensors.iter().filter(|t| t.0 != "lm_head.weight").cloned().collect();
    let copy =
        [&others[..], &[("lm_head.weight".into(), embedding.1, embedding.2, embedding.3)]].concat();
    for tied in [&others, &copy] {
        let dir = single(&config, tied);
        let model = resolve(dir.path()).expect("resolves");
        assert!(model.shape.tied_embeddings && model.warnings.is_empty(), "{model:?}");
        assert!(open(dir.path()).is_ok());
    }
    // one number of the last row
    let mut nearly = copy;
    *nearly.last_mut().and_then(|head| head.3.last_mut()).expect("numbers") ^= 1;
    assert!(!resolve(single(&config, &nearly).path()).expect("resolves").shape.tied_embeddings);
}

/// The fixture in two shards and, if asked for, an index.
fn sharded(index: bool) -> tempfile::TempDir {
    let tensors = stored(&shape(), Dtype::BF16);
    let (one, two) = tensors.split_at(7);
    let dir = model_dir(CONFIG);
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let mut map = serde_json::Map::new();
    for (name, part) in names.iter().zip([one, two]) {
        std::fs::write(dir.path().join(name), safetensors(part)).expect("write");
        map.extend(part.iter().map(|t| (t.0.clone(), (*name).into())));
    }
    if index {
        let json = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
        std::fs::write(dir.path().join("model.safetensors.index.json"), json.to_string())
            .expect("write");
        // a second copy that the index does not name is none of our business
        std::fs::write(dir.path().join("consolidated.safetensors"), safetensors(&tensors))
            .expect("write");
    }
    dir
}

#[test]
fn shards_load_with_and_without_an_index() {
    for index in [true, false] {
        let dir = sharded(index);
        assert_is_fixture(&open(dir.path()).expect("opens"), &shape());
    }
}

#[test]
fn a_shard_that_is_missing_or_elsewhere_is_named_with_its_tensor() {
    let dir = sharded(true);
    std::fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).expect("remove");
    let message = refusal(open(dir.path()));
    assert!(message.contains("index.json: \"") && message.contains("model-00002-of-00002"), "{message}");

    for (map, says) in [
        (r#"{"weight_map": {"model.norm.weight": "../secret.safetensors"}}"#, "not a plain file name"),
        (r#"{"weight_map": {"model.norm.weight": 3}}"#, "the file of \"model.norm.weight\" is 3"),
        (r#"{"weight_map": {}}"#, "is empty"),
        (r#"{"weights": {}}"#, "\"weight_map\" is missing"),
        ("{", "not JSON"),
    ] {
        std::fs::write(dir.path().join("model.safetensors.index.json"), map).expect("write");
        let message = refusal(open(dir.path()));
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    let dir = sharded(false);
    let again = &stored(&shape(), Dtype::F32)[..1];
    std::fs::write(dir.path().join("more.safetensors"), safetensors(again)).expect("write");
    let message = refusal(open(dir.path()));
    assert!(
        message.contains("more.safetensors: tensor model.layers.0.input_layernorm.weight"),
        "{message}"
    );
    assert!(message.contains("model-00001-of-00002.safetensors too"), "{message}");
}

/// The fixture's tensors after a change to the one of this name.
fn changed(name: &str, change: impl Fn(&mut Stored)) -> Vec<Stored> {
    let mut tensors = stored(&shape(), Dtype::F32);
    let tensor = tensors.iter_mut().find(|t| t.0 == name).expect("in the fixture");
    change(tensor);
    tensors
}

#[test]
fn wrong_tensors_are_named_with_file_found_and_expected() {
    let gate = "model.layers.1.mlp.gate_proj.weight";
    let cases = [
        (changed(gate, |t| t.2 = vec![8, 12]), "gate_proj.weight is [8, 12], expected [12, 8]"),
        (
            changed("model.norm.weight", |t| t.2 = vec![2, 4]),
            "model.norm.weight is [2, 4], expected [8]",
        ),
        (changed(gate, |t| t.1 = Dtype::I32), "gate_proj.weight has format I32; F32, BF16 or F16"),
        (
            changed(gate, |t| t.0.push_str("_old")),
            "tensor model.layers.1.mlp.gate_proj.weight is missing",
        ),
    ];
    for (tensors, says) in cases {
        let dir = single(CONFIG, &tensors);
        let message = refusal(open(dir.path()));
        let file = dir.path().join("model.safetensors");
        assert!(message.starts_with(&*file.to_string_lossy()) && message.contains(says), "{message}");
    }
}

#[test]
fn tensors_of_other_models_are_refused_and_harmless_ones_ignored() {
    let extra = |name: &str| {
        let mut tensors = stored(&shape(), Dtype::F32);
        tensors.push((name.into(), Dtype::F32, vec![2], vec![0; 8]));
        single(CONFIG, &tensors)
    };
    for name in ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.up_proj.weight"] {
        let message = refusal(open(extra(name).path()));
        assert!(message.contains(name.trim_start_matches("model.")), "{message}");
        assert!(message.contains("of 2 layers"), "{message}");
    }
    let old = extra("model.layers.0.self_attn.rotary_emb.inv_freq");
    assert_is_fixture(&open(old.path()).expect("opens"), &shape());
}

#[test]
fn a_tied_head_is_the_embedding_and_an_untied_one_must_be_there() {
    let all = stored(&shape(), Dtype::F32);
    let without_head: Vec<Stored> = all.iter().filter(|t| t.0 != "lm_head.weight").cloned().collect();
    let tied = config_with("tie_word_embeddings", "true");
    let dir = single(&tied, &without_head);
    let source = open(dir.path()).expect("opens");
    let load = |tensor| {
        let weight = weight_of(tensor, Shard::Rows, &shape(), 2);
        numbers(&source.load(&weight, 1, 2, plan::DType::F32).expect("loads"))
    };
    assert_eq!(load(Tensor::Head), load(Tensor::Embedding));
    let message = refusal(open(single(CONFIG, &without_head).path()));
    assert!(message.contains("lm_head.weight is missing"), "{message}");
    assert!(message.contains("tie_word_embeddings"), "{message}");
}

/// The bytes of the whole fixture.
fn whole() -> Vec<u8> {
    safetensors(&stored(&shape(), Dtype::F32))
}

/// Opens a directory whose `model.safetensors` has these bytes.
fn open_bytes(bytes: &[u8]) -> Result<WeightSource, Error> {
    let dir = model_dir(CONFIG);
    std::fs::write(dir.path().join("model.safetensors"), bytes).expect("write");
    open(dir.path())
}

#[test]
fn broken_files_are_told_apart() {
    let bytes = whole();
    let mut long = bytes.clone();
    long.push(0);
    let mut lying = bytes.clone();
    lying[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut garbled = bytes.clone();
    garbled[9] = b'!';
    for (bytes, says) in [
        (&b""[..], "shorter than the 8 bytes"),
        (&bytes[..5], "shorter than the 8 bytes"),
        (&bytes[..40], "claims a header of"),
        (&bytes[..bytes.len() - 1], "it is truncated"),
        (&long, "something follows"),
        (&lying, "claims a header of 18446744073709551615 bytes"),
        (&garbled, "its header does not parse"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git-lfs pointer"),
    ] {
        let message = refusal(open_bytes(bytes));
        assert!(message.contains("model.safetensors: ") && message.contains(says), "{message}");
    }
}

#[test]
fn offsets_that_lie_are_refused() {
    let header = |offsets: &str| {
        let json =
            format!(r#"{{"model.norm.weight":{{"dtype":"F32","shape":[8],"data_offsets":{offsets}}}}}"#);
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes.extend([0; 32]);
        bytes
    };
    for offsets in
        ["[0,31]", "[4,36]", "[32,0]", "[18446744073709551584,18446744073709551615]", "[-1,31]"]
    {
        let message = refusal(open_bytes(&header(offsets)));
        assert!(message.contains("not a whole safetensors file"), "{offsets}: {message}");
    }
    // true offsets: now what is missing is the rest of the model
    assert!(refusal(open_bytes(&header("[0,32]"))).contains("is missing"));
}

#[test]
fn pickles_are_refused_rather_than_replaced_by_random_weights() {
    let dir = model_dir(CONFIG);
    std::fs::write(dir.path().join("pytorch_model.bin"), b"PK").expect("write");
    let model = resolve(dir.path()).expect("valid config");
    let message = refusal(WeightSource::open(&model, 0));
    assert!(message.contains("pytorch_model.bin: PyTorch pickles are not read"), "{message}");
}

#[test]
fn a_directory_without_weights_has_random_ones() {
    let dir = model_dir(CONFIG);
    let model: Model = resolve(dir.path()).expect("valid config");
    assert!(WeightSource::open(&model, 3).expect("random").is_random());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Whatever is done to a file: it opens and loads, or is refused; nothing panics.
    #[test]
    fn mutated_files_load_or_are_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = whole();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        for (at, value, anywhere) in changes {
            let end = if anywhere { bytes.len() } else { header };
            bytes[at.index(end)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        match open_bytes(&bytes) {
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
            Ok(source) => {
                let shape = shape();
                for tensor in Tensor::all(&shape) {
                    let weight = weight_of(tensor, Shard::Columns, &shape, 2);
                    for dtype in LOADED {
                        prop_assert!(source.load(&weight, 1, 2, dtype).is_ok());
                    }
                }
            }
        }
    }
}
