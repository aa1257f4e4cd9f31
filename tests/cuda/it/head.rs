//! `run --backend cuda --shard-head`, which changes how a step is made and not what it computes.

use crate::device::device;
use crate::support::Place;

/// A small model whose head is its embedding, of random weights.
fn tied(place: &Place) -> String {
    let folder = place.path().join("tied");
    std::fs::create_dir_all(&folder).expect("a folder");
    let config = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, "hidden_act": "silu",
        "tie_word_embeddings": true, "torch_dtype": "float32",
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    folder.to_str().expect("a path").to_owned()
}

/// Each rank has its rows of the head; logits are gathered, and put into order where there are several rows.
#[test]
fn a_sharded_head_chooses_the_tokens_of_the_cpu_backend() {
    let device = device!();
    let place = Place::new();
    let tied = tied(&place);
    let tokens = |backend: &str, model: &str, batch: &str, more: &[&str]| {
        let sizes = ["--prompt-tokens", "4", "--output-tokens", "6", "--samples", "1", "--warmup", "0"];
        let cell = [
            "run",
            "--backend",
            backend,
            "--model",
            model,
            "--dtype",
            "f32",
            "--batch",
            batch,
            "--recorder",
            "off",
            "--format",
            "json",
        ];
        let all = [&cell[..], &sizes, more].concat();
        let gpus = [("FAKE_CUDA_DEVICES", "4")];
        let record = device.run(&place, &all, &gpus).exits(0).json();
        assert_eq!(record["status"], "ok", "{record}");
        let environment = &record["environment"];
        let head = if more.contains(&"--shard-head") { "sharded" } else { "replicated" };
        assert_eq!(environment["head"], head, "{environment}");
        environment["computed"]["tokens"].as_str().expect("a hash of tokens").to_owned()
    };
    // tokens of several sequences are hashed in another order on the cpu
    for (model, batch, architecture, whole) in [
        ("tiny", "1", "standard", "cpu"),
        ("tiny", "3", "ladder", "cuda"),
        (&*tied, "3", "standard", "cuda"),
    ] {
        let cell = ["--architecture", architecture, "--tp", "1"];
        let wanted = tokens(whole, model, batch, &cell);
        for tp in ["2", "4"] {
            let cell = ["--architecture", architecture, "--tp", tp, "--shard-head"];
            assert_eq!(
                tokens("cuda", model, batch, &cell),
                wanted,
                "{model} {architecture} tp {tp} batch {batch}"
            );
        }
    }
    // beside all-reduces that read the other ranks' memory
    let one_shot = ["--architecture", "ladder", "--tp", "2", "--collective", "one-shot", "--shard-head"];
    let nccl = ["--architecture", "ladder", "--tp", "2"];
    assert_eq!(tokens("cuda", "tiny", "3", &one_shot), tokens("cuda", "tiny", "3", &nccl));
}
