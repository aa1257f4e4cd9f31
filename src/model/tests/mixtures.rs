//! Configs of mixtures of experts: what is read from each family's keys, and what is refused by name.

use plan::{AttentionWindow, ExpertActivation, HeadStep, ModelShape, RouterBias, RouterScore};
use serde_json::{Value, json};

use super::{model_dir, refusal, resolve};
use base::error::Error;

fn config(family: &str, more: Value) -> Value {
    let mut config = json!({
        "model_type": family, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 100, "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5
    });
    let members = config.as_object_mut().expect("an object");
    members.extend(more.as_object().expect("an object").clone());
    config
}

fn mixtral() -> Value {
    config("mixtral", json!({"num_local_experts": 8, "sliding_window": null}))
}

fn qwen3() -> Value {
    let more =
        json!({"num_experts": 16, "moe_intermediate_size": 32, "head_dim": 16, "norm_topk_prob": true});
    config("qwen3_moe", more)
}

fn gpt_oss() -> Value {
    let rope = json!({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 4096, "truncate": false});
    let more = json!({"num_local_experts": 32, "sliding_window": 128, "rope_theta": 150_000, "rope_scaling": rope,
        "attention_bias": true, "swiglu_limit": 7.0, "quantization_config": {"quant_method": "mxfp4"},
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]});
    config("gpt_oss", more)
}

fn deepseek() -> Value {
    let rope = json!({"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096});
    let more = json!({"n_routed_experts": 16, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 4,
        "topk_group": 2, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true,
        "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "rope_scaling": rope,
        "num_nextn_predict_layers": 1, "moe_layer_freq": 1});
    config("deepseek_v3", more)
}

/// With a key that the text part of a released config has: true as a number.
fn llama4() -> Value {
    let more = json!({"num_local_experts": 8, "num_experts_per_tok": 1, "intermediate_size_mlp": 192,
        "attention_chunk_size": 16, "interleave_moe_layer_step": 1, "no_rope_layers": [1, 1, 1, 0],
        "attn_temperature_tuning": 4, "floor_scale": 8192, "attn_scale": 0.1, "use_qk_norm": true,
        "moe_layers": [0, 1, 2, 3]});
    config("llama4_text", more)
}

fn shape(config: &Value) -> Result<ModelShape, Error> {
    resolve(model_dir(&config.to_string()).path()).map(|model| model.shape)
}

#[test]
fn every_familys_keys_are_read() {
    let of = |config: &Value| {
        let shape = shape(config).expect("valid");
        (shape.experts.expect("experts"), shape)
    };
    let (experts, _) = of(&mixtral());
    assert_eq!((experts.count, experts.top_k, experts.width, experts.shared_width), (8, 2, 96, 0));
    assert_eq!((experts.routing.score, experts.routing.renormalise), (RouterScore::Softmax, true));

    let mut config = qwen3();
    config["mlp_only_layers"] = json!([0, 1]);
    let (experts, shape) = of(&config);
    assert_eq!((experts.count, experts.width, experts.dense_first), (16, 32, 2));
    assert_eq!((shape.head_dim, shape.experts_of(1), shape.dense_layers()), (16, None, 2));

    let (experts, shape) = of(&gpt_oss());
    assert_eq!((experts.activation, experts.biased), (ExpertActivation::Clamped, true));
    assert_eq!(experts.routing.bias, RouterBias::Logits);
    assert_eq!(
        shape.window_of(0),
        Some(AttentionWindow { tokens: 128, full_every: 2, is_chunked: false })
    );
    assert_eq!((shape.window_of(1), shape.head_dim), (None, 64));
    assert!(shape.attention.sinks && shape.attention.output_bias);
    let yarn = shape.rope.yarn.expect("YaRN");
    assert!((yarn.rotated_scale - 1.3466).abs() < 1e-4 && yarn.score_scale == 1.0 && !yarn.truncate);

    let (experts, shape) = of(&deepseek());
    assert_eq!((experts.shared_width, experts.dense_first, experts.routing.groups), (32, 1, 4));
    assert_eq!((experts.routing.kept_groups, experts.routing.scale), (2, 2.5));
    let latent = shape.attention.latent.expect("latent attention");
    assert_eq!((latent.cached(), latent.query_dim(), shape.head_dim), (40, 24, 24));
    let yarn = shape.rope.yarn.expect("YaRN");
    assert!(yarn.rotated_scale == 1.0 && (yarn.score_scale - 1.3689f64.powi(2)).abs() < 1e-3);
}

#[test]
fn llama_4_has_chunks_beside_full_layers_without_rope() {
    let of = shape(&llama4()).expect("valid");
    let experts = of.experts.expect("experts");
    assert_eq!((experts.width, experts.shared_width, of.intermediate), (96, 96, 192));
    assert!(experts.routing.weighs_input && of.qkv == HeadStep::UnitNormed);
    assert_eq!(of.window_of(0), Some(AttentionWindow { tokens: 16, full_every: 4, is_chunked: true }));
    assert_eq!([0, 1, 2, 3].map(|layer| of.has_rope(layer)), [true, true, true, false]);
    let temperature = of.attention.temperature.expect("grows");
    assert_eq!((temperature.factor(8190), temperature.factor(8191)), (1.0, 1.0 + 0.1 * 2f64.ln()));
    let mut config = llama4();
    config["attn_temperature_tuning"] = json!(false);
    assert_eq!(shape(&config).expect("valid").attention.temperature, None);
}

/// Keys of Maverick, within a config of text and images.
#[test]
fn llama_4_with_images_is_its_text_part_and_dense_layers_may_lie_between() {
    let mut text = llama4();
    text["interleave_moe_layer_step"] = json!(2);
    text["moe_layers"] = json!([1, 3]);
    text["use_qk_norm"] = json!(false);
    text["eos_token_id"] = json!(null);
    let whole = json!({"model_type": "llama4", "text_config": text, "vision_config": {"hidden_size": 8},
        "eos_token_id": 7, "hidden_size": 8, "ladder_layers": 2});
    let model = resolve(model_dir(&whole.to_string()).path()).expect("valid");
    let shape = model.shape;
    assert_eq!((shape.hidden, shape.qkv, shape.dense_layers()), (64, HeadStep::Plain, 2));
    assert_eq!([0, 1, 2, 3].map(|l| shape.experts_of(l).is_some()), [false, true, false, true]);
    assert_eq!((model.eos, model.wiring.map(|w| w.to_string())), (vec![7], Some("ladder:2".into())));
    let mut qwen = qwen3();
    qwen["decoder_sparse_step"] = json!(2);
    let routed = |config: &Value| {
        let experts = self::shape(config).expect("valid").experts.expect("experts");
        (experts.dense_first, experts.every)
    };
    assert_eq!(routed(&qwen), (1, 2));
    qwen["mlp_only_layers"] = json!([0, 1]);
    assert_eq!(routed(&qwen), (3, 2));
}

/// DeepSeek-V2 limits the choice to groups only if its method says so.
#[test]
fn groups_of_deepseek_v2_follow_from_its_method() {
    let mut config = deepseek();
    let keys = config.as_object_mut().expect("an object");
    for key in ["scoring_func", "norm_topk_prob"] {
        keys.remove(key);
    }
    keys.insert("model_type".into(), json!("deepseek_v2"));
    for (method, groups) in [("greedy", (1, 1)), ("group_limited_greedy", (4, 2))] {
        config["topk_method"] = json!(method);
        let routing = shape(&config).expect("valid").experts.expect("experts").routing;
        assert_eq!((routing.groups, routing.kept_groups), groups, "{method}");
        assert_eq!((routing.score, routing.renormalise), (RouterScore::Softmax, false));
    }
    config["topk_method"] = json!("noaux_tc");
    let message = refusal(shape(&config));
    assert!(message.contains("only \"greedy\" or \"group_limited_greedy\""), "{message}");
}

/// Their tensors' names are not public in a form that could be tested, or their layers differ.
#[test]
fn families_whose_checkpoints_are_not_read_are_refused_by_name() {
    for family in ["instella_moe", "llama4"] {
        let message = refusal(shape(&config(family, json!({"num_local_experts": 8}))));
        assert!(message.contains(family) && message.contains("not supported: llama, "), "{message}");
    }
}

#[test]
fn what_a_family_cannot_have_is_refused_by_key() {
    for (config, key, value, says) in [
        (mixtral(), "num_experts_per_tok", json!(9), "top-k 9 of 8 experts"),
        (mixtral(), "num_experts_per_tok", json!(0), "a whole number from 1"),
        (mixtral(), "sliding_window", json!(4096), "not supported"),
        (mixtral(), "quantization_config", json!({"quant_method": "gptq"}), "quantised"),
        (qwen3(), "mlp_only_layers", json!([2]), "only leading layers"),
        (qwen3(), "decoder_sparse_step", json!(0), "a whole number from 1"),
        (gpt_oss(), "swiglu_limit", json!(5.0), "only 7"),
        (gpt_oss(), "quantization_config", json!({"quant_method": "fp8"}), "quantised"),
        (deepseek(), "topk_method", json!("greedy"), "only \"noaux_tc\""),
        (deepseek(), "scoring_func", json!("softmax"), "only \"sigmoid\""),
        (deepseek(), "rope_interleave", json!(false), "only true"),
        (llama4(), "use_qk_norm", json!(1), "true or false"),
        (llama4(), "interleave_moe_layer_step", json!(0), "a whole number from 1"),
        (llama4(), "moe_layers", json!([1, 3]), "only all layers"),
        (llama4(), "no_rope_layers", json!([1, 1, 0, 1]), "with 0 in the last of every 4 layers"),
        (llama4(), "layer_types", json!(["full_attention"]), "chunked_attention"),
        (deepseek(), "qk_rope_head_dim", json!(7), "an even number"),
        (deepseek(), "num_experts_per_tok", json!(9), "exceeds the 8 experts"),
        (deepseek(), "moe_layer_freq", json!(2), "only 1"),
    ] {
        let mut changed = config.clone();
        changed[key] = value;
        let message = refusal(shape(&changed));
        assert!(message.contains(&format!("\"{key}\" is ")) && message.contains(says), "{message}");
    }
    let mut windows = gpt_oss();
    windows["layer_types"] = json!(["full_attention", "sliding_attention"]);
    assert!(refusal(shape(&windows)).contains("in the last of every 2 layers"));
    let mut bare = mixtral();
    bare.as_object_mut().expect("an object").remove("num_local_experts");
    assert!(refusal(shape(&bare)).contains("\"num_local_experts\" is missing"));
}
