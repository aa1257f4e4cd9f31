//! `run --backend cuda` with options that change how a step is made and not what it computes: `--shard-head`,
//! `--fuse-kernels`.

use crate::cuda_device::device;
use crate::cuda_run::run;
use crate::support::{Place, number};

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

/// Kernels that do what others did leave the same tokens, and a step has fewer of them.
#[test]
fn fused_kernels_choose_the_same_tokens() {
    let device = device!();
    let run_with = |dtype: &str, batch: &str, more: &[&str]| {
        let sizes = ["--prompt-tokens", "90", "--output-tokens", "5", "--samples", "1", "--warmup", "0"];
        let cell = [
            "run",
            "--backend",
            "cuda",
            "--model",
            "tiny",
            "--dtype",
            dtype,
            "--batch",
            batch,
            "--recorder",
            "off",
            "--format",
            "json",
        ];
        let all = [&cell[..], &sizes, more].concat();
        // else who does a product is chosen by what it takes
        let products = [("FAKE_CUDA_DEVICES", "2"), ("LADDERSCOPE_PRODUCTS", "own")];
        let record = device.run(&Place::new(), &all, &products).exits(0).json();
        assert_eq!(record["status"], "ok", "{record}");
        let environment = &record["environment"];
        let tokens = environment["computed"]["tokens"].as_str().expect("a hash of tokens").to_owned();
        let nodes = number(&environment["graph_nodes"]);
        (tokens, nodes)
    };
    for (dtype, batch, more) in
        [("f32", "1", &[][..]), ("bf16", "3", &["--tp", "2", "--architecture", "ladder"])]
    {
        let of = |fuse: &str| run_with(dtype, batch, &[more, &["--fuse-kernels", fuse]].concat());
        let (tokens, nodes) = of("none");
        for (fuse, fewer) in [("silu", 4.0), ("combine", 4.0), ("all", 8.0)] {
            let (found, left) = of(fuse);
            assert_eq!(found, tokens, "{fuse} {dtype}");
            assert_eq!(left, nodes - fewer, "{fuse} {dtype}: a kernel less in each of four layers");
        }
    }
}

/// One collective a step, named head; none of a bound, and none that does not divide the vocabulary.
#[test]
fn a_sharded_heads_collective_is_counted_apart() {
    let device = device!();
    let of = |architecture: &str, more: &[&str]| {
        let place = Place::new();
        let link = [
            "--tp",
            "4",
            "--link",
            "emulated:alpha_us=30,gb_s=1",
            "--shard-head",
            "--architecture",
            architecture,
        ];
        run(device, &place, &[&link[..], more].concat(), &[]).exits(0);
        place
            .run(&["overlap", "last", "--by", "name", "--phase", "decode", "--format", "json"])
            .exits(0)
            .stdout
    };
    assert!(of("ladder", &[]).contains("decode/head"), "a gather");
    assert!(of("standard", &["--micro-batches", "2"]).contains("decode/head"));
    assert!(!of("upper-bound", &[]).contains("all_gather"));
    let odd = ["--tp", "3", "--shard-head"];
    let done = run(device, &Place::new(), &odd, &[("FAKE_CUDA_DEVICES", "3")]).exits(2);
    assert!(done.stdout.contains("does not divide"), "{}", done.stdout);
}
