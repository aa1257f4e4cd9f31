//! HF configs: what is read from them, and how each mistake is named.

use proptest::prelude::*;

use super::{CONFIG, config_with, model_dir, refusal, resolve};
use crate::Model;
use base::error::Error;
use plan::{Architecture, DType, HeadStep, LayerSet, Rope, RopeScaling};

fn with(key: &str, value: &str) -> Result<Model, Error> {
    resolve(model_dir(&config_with(key, value)).path())
}

fn accepted(key: &str, value: &str) -> Model {
    with(key, value).unwrap_or_else(|e| panic!("{key} = {value}: {e}"))
}

#[test]
fn a_llama_config_gives_its_shape() {
    let dir = model_dir(CONFIG);
    let model = resolve(dir.path()).expect("valid");
    let shape = &model.shape;
    assert_eq!((shape.layers, shape.hidden, shape.heads, shape.kv_heads), (2, 8, 4, 2));
    assert_eq!((shape.head_dim, shape.intermediate, shape.vocab), (2, 12, 10));
    assert_eq!(shape.rope, Rope::plain(10_000.0));
    assert_eq!(shape.norm_eps, 1e-5);
    assert!(!shape.tied_embeddings && !model.has_weights);
    assert_eq!((model.dtype, model.eos.as_slice(), model.wiring), (None, &[][..], None));
    assert_eq!(model.name, dir.path().to_string_lossy());
    assert_eq!(model.dir.as_deref(), Some(dir.path()));
}

#[test]
fn defaults_are_hfs() {
    assert_eq!(accepted("num_key_value_heads", "null").shape.kv_heads, 4);
    assert_eq!(accepted("head_dim", "null").shape.head_dim, 2);
    assert_eq!(accepted("head_dim", "6").shape.head_dim, 6);
    assert_eq!(accepted("rms_norm_eps", "null").shape.norm_eps, 1e-6);
    assert!(accepted("tie_word_embeddings", "true").shape.tied_embeddings);
    assert_eq!(accepted("rope_theta", "null").shape.rope.theta, 10_000.0);
}

#[test]
fn rotary_embeddings_are_found_in_old_and_new_places() {
    let llama3 = r#"{"TYPE": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192 THETA}"#;
    let scaling = RopeScaling {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    let rope = |key: &str, kind: &str, theta: &str| {
        accepted(key, &llama3.replace("TYPE", kind).replace("THETA", theta)).shape.rope
    };
    let old = Rope { scaling: Some(scaling), ..Rope::plain(10_000.0) };
    assert_eq!(rope("rope_scaling", "rope_type", ""), old);
    assert_eq!(rope("rope_scaling", "type", ""), old);
    let new = Rope { scaling: Some(scaling), ..Rope::plain(500_000.0) };
    assert_eq!(rope("rope_parameters", "rope_type", r#", "rope_theta": 5e5"#), new);
    let default = accepted("rope_parameters", r#"{"rope_type": "default", "rope_theta": 77}"#);
    assert_eq!(default.shape.rope, Rope::plain(77.0));
    let linear = accepted("rope_scaling", r#"{"type": "linear", "factor": 2}"#).shape.rope;
    assert_eq!(linear.scaling, Some(RopeScaling::linear(2.0)));
    assert_eq!(accepted("rope_scaling", "null").shape.rope.scaling, None);
}

#[test]
fn other_rotary_embeddings_are_refused_by_name() {
    for (value, names) in [
        (r#"{"rope_type": "longrope", "factor": 4}"#, "rope_scaling.rope_type\" is \"longrope\""),
        (r#"{"rope_type": "yarn", "factor": 4}"#, "original_max_position_embeddings\" is missing"),
        (r#"{"type": "dynamic", "factor": 4}"#, "rope_scaling.type\" is \"dynamic\""),
        (r#"{"factor": 4}"#, "rope_scaling.rope_type\" is missing"),
        (r#"{"type": "linear"}"#, "rope_scaling.factor\" is missing"),
        (r#"{"type": "linear", "factor": "4"}"#, "rope_scaling.factor\" is \"4\""),
        ("8", "\"rope_scaling\" is 8"),
        (r#"{"type": "default", "partial_rotary_factor": 0.5}"#, "partial_rotary_factor\" is 0.5"),
        (r#"{"full_attention": {"rope_theta": 1e6}}"#, "rope_scaling.full_attention\" is {"),
        (
            r#"{"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
                "original_max_position_embeddings": 8192}"#,
            "above low_freq_factor = 4",
        ),
    ] {
        let message = refusal(with("rope_scaling", value));
        assert!(message.contains(names), "{message}");
    }
    assert!(refusal(with("rope_theta", "-1")).contains("\"rope_theta\" is -1"));
}

#[test]
fn number_formats_and_end_of_text_ids_are_read() {
    assert_eq!(accepted("torch_dtype", "\"bfloat16\"").dtype, Some(DType::Bf16));
    assert_eq!(accepted("dtype", "\"float16\"").dtype, Some(DType::F16));
    assert_eq!(accepted("torch_dtype", "\"torch.float32\"").dtype, Some(DType::F32));
    assert!(refusal(with("torch_dtype", "\"int4\"")).contains("\"torch_dtype\" is \"int4\""));
    assert_eq!(accepted("eos_token_id", "2").eos, [2]);
    assert_eq!(accepted("eos_token_id", "[5, 2]").eos, [5, 2]);
    assert!(accepted("eos_token_id", "null").eos.is_empty());
    // generation_config.json is what generating reads first
    for (generation, wanted) in [
        (r#"{"eos_token_id": [9, 3]}"#, &[9, 3][..]),
        (r#"{"eos_token_id": 9}"#, &[9]),
        (r#"{"eos_token_id": null, "temperature": 0.6}"#, &[2]),
        ("{}", &[2]),
    ] {
        let dir = model_dir(&config_with("eos_token_id", "2"));
        std::fs::write(dir.path().join("generation_config.json"), generation).expect("write");
        assert_eq!(resolve(dir.path()).expect("valid").eos, wanted, "{generation}");
    }
    let dir = model_dir(CONFIG);
    std::fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id": "x"}"#)
        .expect("write");
    let message = refusal(resolve(dir.path()));
    assert!(message.contains("generation_config.json: \"eos_token_id\" is \"x\""), "{message}");
    assert!(refusal(with("eos_token_id", "[5, -2]")).contains("\"eos_token_id\" is [5,-2]"));
}

#[test]
fn every_form_of_ladder_layers_is_read() {
    assert_eq!(accepted("ladder_layers", "1").wiring, Some(Architecture::Ladder(LayerSet::Last(1))));
    assert_eq!(accepted("ladder_layers", "2").wiring, Some(Architecture::Ladder(LayerSet::Last(2))));
    assert_eq!(
        accepted("ladder_layers", "[1, 0, 1]").wiring,
        Some(Architecture::Ladder(LayerSet::Only(vec![0, 1])))
    );
    assert_eq!(accepted("ladder_layers", "true").wiring, Some(Architecture::Ladder(LayerSet::All)));
    assert_eq!(accepted("ladder_layers", "false").wiring, None);
    assert_eq!(accepted("ladder_layers", "null").wiring, None);
    assert_eq!(accepted("model_type", "\"ladder_llama\"").wiring, None);
    for (value, right) in [
        ("3", "\"ladder_layers\" is 3; a number of last layers from 0 to 2"),
        ("-1", "\"ladder_layers\" is -1"),
        ("1.5", "\"ladder_layers\" is 1.5"),
        ("[0, 2]", "\"ladder_layers[1]\" is 2; a list of layers from 0 to 1"),
        ("\"all\"", "\"ladder_layers\" is \"all\""),
    ] {
        let message = refusal(with("ladder_layers", value));
        assert!(message.contains(right), "{message}");
    }
    let farskip = accepted("farskip_layers", "[1]").wiring;
    assert_eq!(farskip, Some(Architecture::FarSkip(LayerSet::Only(vec![1]))));
    let message = refusal(with("farskip_layers", "[2]"));
    assert!(message.contains("\"farskip_layers[0]\" is 2"), "{message}");
    let both = config_with("farskip_layers", "1").replacen('{', "{\"ladder_layers\": 1,", 1);
    let message = refusal(resolve(model_dir(&both).path()));
    assert!(message.contains("absent beside"), "{message}");
}

#[test]
fn what_is_not_llama_is_refused_by_key() {
    for (key, value) in [
        ("attention_bias", "true"),
        ("mlp_bias", "true"),
        ("hidden_act", "\"gelu\""),
        ("num_local_experts", "8"),
        ("sliding_window", "4096"),
        ("quantization_config", "{\"bits\": 4}"),
        ("final_logit_softcapping", "30.0"),
        ("residual_multiplier", "0.22"),
        ("partial_rotary_factor", "0.5"),
        ("layer_types", "[\"full_attention\", \"sliding_attention\"]"),
    ] {
        let message = refusal(with(key, value));
        assert!(
            message.contains(&format!("\"{key}\" is ")) && message.contains("not supported"),
            "{message}"
        );
    }
    // as neutral as their absence
    for (key, value) in [
        ("attention_bias", "false"),
        ("sliding_window", "null"),
        ("residual_multiplier", "1.0"),
        ("layer_types", "[\"full_attention\", \"full_attention\"]"),
        ("model_type", "\"mistral\""),
    ] {
        accepted(key, value);
    }
    assert_eq!(accepted("model_type", "null").shape.qkv, HeadStep::Plain);
    let mut windowed: serde_json::Value = serde_json::from_str(CONFIG).expect("valid");
    windowed["sliding_window"] = 4096.into();
    windowed["max_position_embeddings"] = 4096.into();
    resolve(model_dir(&windowed.to_string()).path()).expect("the window holds the whole context");
}

#[test]
fn families_are_told_apart_by_name_and_others_refused() {
    for (name, qkv) in [
        ("llama", HeadStep::Plain),
        ("mistral", HeadStep::Plain),
        ("qwen2", HeadStep::Biased),
        ("qwen3", HeadStep::Normed),
    ] {
        let model = accepted("model_type", &format!("\"{name}\""));
        assert_eq!(model.shape.qkv, qkv);
        // its heads are 128 wide unless its config says otherwise, whatever the hidden size
        assert_eq!(model.shape.head_dim, if name == "qwen3" { 128 } else { 2 }, "{name}");
    }
    for name in ["\"gemma2\"", "\"qwen2_moe\"", "\"phi3\"", "3"] {
        let message = refusal(with("model_type", name));
        let says = format!("\"model_type\" is {name}; not supported: llama, ");
        assert!(message.contains(&says) && message.contains("llama4_text are read"), "{message}");
    }
    let window = |family: &str, used: Option<bool>| {
        let mut config: serde_json::Value = serde_json::from_str(CONFIG).expect("valid");
        config["model_type"] = family.into();
        config["sliding_window"] = 4096.into();
        config["max_position_embeddings"] = 32768.into();
        if let Some(used) = used {
            config["use_sliding_window"] = used.into();
        }
        resolve(model_dir(&config.to_string()).path()).is_ok()
    };
    // Qwen's window is off unless it is switched on; Mistral's is on where there is one
    assert!(window("qwen2", None) && window("qwen3", Some(false)) && !window("qwen2", Some(true)));
    assert!(!window("mistral", None));
}

#[test]
fn a_missing_or_wrong_field_is_named_with_file_value_and_what_is_right() {
    for (key, value, says) in [
        ("hidden_size", "null", "\"hidden_size\" is missing"),
        ("num_hidden_layers", "0", "\"num_hidden_layers\" is 0; a whole number from 1 to"),
        ("intermediate_size", "\"12\"", "\"intermediate_size\" is \"12\""),
        ("vocab_size", "10.5", "\"vocab_size\" is 10.5"),
        ("vocab_size", "99999999999", "\"vocab_size\" is 99999999999"),
        ("num_attention_heads", "3", "\"num_attention_heads\" is 3; a divisor of hidden_size = 8"),
        (
            "num_key_value_heads",
            "3",
            "\"num_key_value_heads\" is 3; a divisor of num_attention_heads = 4",
        ),
        ("head_dim", "3", "\"head_dim\" is 3; an even"),
        ("num_attention_heads", "8", "8 / 8 = 1"),
        ("rms_norm_eps", "\"small\"", "\"rms_norm_eps\" is \"small\""),
        ("tie_word_embeddings", "1", "\"tie_word_embeddings\" is 1; true or false"),
    ] {
        let dir = model_dir(&config_with(key, value));
        let message = refusal(resolve(dir.path()));
        assert!(message.contains(says), "{message}");
        assert!(message.contains(&*dir.path().join("config.json").to_string_lossy()), "{message}");
    }
}

#[test]
fn errors_point_at_the_key_and_at_broken_json() {
    let error = with("vocab_size", "-1").expect_err("wrong");
    let Error::At { span, .. } = &error else { panic!("{error:?}") };
    let text = config_with("vocab_size", "-1");
    assert_eq!(&text[span.offset()..span.offset() + span.len()], "\"vocab_size\"");

    let broken = CONFIG.replace("\"vocab_size\": 10,", "\"vocab_size\": ten,");
    let error = resolve(model_dir(&broken).path()).expect_err("broken");
    let Error::At { span, message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("not valid JSON") && message.contains("line 8"), "{message}");
    assert_eq!(broken[..span.offset()].matches('\n').count(), 7);
    assert!(refusal(resolve(model_dir("[1]").path())).contains("it holds [1], not an object"));
    assert!(refusal(resolve(model_dir("").path())).contains("not valid JSON"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_value_of_any_key_is_accepted_or_refused(
        key in prop::sample::select(vec![
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "vocab_size", "rms_norm_eps", "rope_theta", "rope_scaling",
            "rope_parameters", "tie_word_embeddings", "torch_dtype", "eos_token_id", "ladder_layers",
            "sliding_window", "layer_types", "hidden_act",
        ]),
        value in prop::sample::select(vec![
            "null", "true", "0", "1", "-1", "4194304", "18446744073709551615", "1e308", "0.5", "\"é\"",
            "[]", "[0]", "[null]", "{}", "{\"rope_type\": 3}", "{\"rope_type\": \"llama3\"}",
            "{\"factor\": 0}", "{\"rope_theta\": {}}",
        ]),
    ) {
        match with(key, value) {
            // whatever is accepted can be reckoned with
            Ok(model) => prop_assert!(model.shape.parameters() > 0),
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }

    #[test]
    fn a_config_cut_or_changed_anywhere_never_panics(at in 0usize..CONFIG.len(), byte: u8, cut: bool) {
        let mut bytes = CONFIG.as_bytes().to_vec();
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        let dir = model_dir(CONFIG);
        std::fs::write(dir.path().join("config.json"), bytes).expect("write");
        if let Err(error) = resolve(dir.path()) {
            prop_assert_eq!(error.exit_code(), 2);
        }
    }
}
