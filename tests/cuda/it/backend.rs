//! `run` and `generate` on the software device, where they differ from the cpu backend: who is chosen,
//! what a record says, how a checkpoint's numbers get there, and that nothing hangs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::device::{Device, TIMED, device};
use crate::support::{Done, Place, number};

fn run_command(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    let cell = ["run", "--backend", "cuda", "--model", "tiny", "--dtype", "f32", "--recorder", "off"];
    let size = ["--prompt-tokens", "4", "--output-tokens", "6", "--samples", "2", "--warmup", "1"];
    let all: Vec<&str> =
        cell.iter().chain(&size).chain(&["--format", "json"]).chain(more).copied().collect();
    device.run(place, &all, variables)
}

fn generate(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    let all: Vec<&str> = ["generate", "--output-tokens", "5", "--format", "json"]
        .iter()
        .chain(&["--prompt-tokens-file", "prompts.txt"])
        .chain(more)
        .copied()
        .collect();
    device.run(place, &all, variables)
}

fn place() -> Place {
    let place = Place::new();
    place.write("prompts.txt", "1 2 3 4 5\n9 8\n");
    place
}

#[test]
fn a_record_says_what_it_was_run_with() {
    let device = device!();
    let place = Place::new();
    // a cache of its own: other tests leave their compiled kernels in the common one
    let cache = tempfile::tempdir().unwrap();
    let cache = [("XDG_CACHE_HOME", cache.path().to_str().unwrap()), TIMED];
    let record = run_command(device, &place, &["--batch", "2"], &cache).exits(0).json();
    assert_eq!((&record["status"], &record["provenance"]), (&json!("ok"), &json!("measured")));
    let environment = &record["environment"];
    for (key, wanted) in [
        ("backend", json!("cuda")),
        ("decode", json!("graph")),
        ("collective", json!("none")),
        ("weights", json!("random, from the seed")),
        ("kv_cache", json!("f32")),
    ] {
        assert_eq!(environment[key], wanted, "{key}");
    }
    assert!(number(&environment["graph_nodes"]) > 20.0, "{environment}");
    assert!(number(&environment["kernels"]["compiled"]) > 5.0, "{}", environment["kernels"]);
    // each shape of product was timed, by both who can do it
    let products = environment["products"].as_array().expect("products");
    assert!(products.len() >= 4, "{products:?}");
    for product in products {
        assert_eq!(product["rows"], 2);
        assert!(number(&product["matvec_us"]) > 0.0 && number(&product["cublaslt_us"]) > 0.0);
    }
    // those of layers among their neighbours, which take longer than they do
    let among = products.iter().filter(|product| product["layer_us"].is_array());
    let longer = |product: &Value| {
        let us = |at: usize| number(&product["layer_us"][at]);
        us(0).min(us(1)) > 3.0 * number(&product["cublaslt_us"])
    };
    assert!(among.clone().all(longer) && among.count() == products.len() - 1, "{products:?}");
    assert!(environment["matvec"].as_str().is_some_and(|text| text.starts_with("as measured")));
    // at least the weights: 4 bytes each
    let parameters = number(&environment["parameters"]);
    assert!(number(&record["metrics"]["memory_bytes_per_rank"]) >= 4.0 * parameters);
    assert_eq!(record["metrics"]["samples"], 2);
    assert!(number(&record["metrics"]["tpot_ms"]["p50"]) > 0.0);
    // the compiled kernels are there the second time
    let again = run_command(device, &place, &["--batch", "2", "--no-graph"], &cache).exits(0).json();
    assert_eq!(again["environment"]["kernels"]["compiled"], 0, "{}", again["environment"]["kernels"]);
    assert_eq!(again["environment"]["decode"], "eager");
    assert!(again["environment"]["graph_nodes"].is_null());
}

#[test]
fn who_does_products_is_timed_and_whoever_is_told_times_no_other_way() {
    let device = device!();
    let run = |variables: &[(&str, &str)]| {
        let cell = ["run", "--backend", "cuda", "--model", "tiny", "--dtype", "bf16", "--batch", "12"];
        let size = ["--prompt-tokens", "4", "--output-tokens", "6", "--samples", "1", "--warmup", "1"];
        let all = [&cell[..], &size, &["--recorder", "off", "--format", "json"]].concat();
        device.run(&Place::new(), &all, variables).exits(0).json()["environment"].clone()
    };
    let timed = run(&[TIMED]);
    let products = timed["products"].as_array().expect("products");
    let both = |p: &Value| number(&p["cublaslt_us"]) > 0.0 && number(&p["matvec_us"]) > 0.0;
    assert!(!products.is_empty() && products.iter().all(both), "{products:?}");
    assert!(
        products.iter().any(|p| number(&p["layer_us"][0]) > number(&p["matvec_us"])),
        "{products:?}"
    );
    // of cuBLASLt's algorithms one has to be chosen, of our own kernel's ways none
    let library = run(&[("LADDERSCOPE_PRODUCTS", "library")]);
    let times = library["products"].as_array().expect("products");
    let only = |p: &Value| number(&p["cublaslt_us"]) > 0.0 && p["matvec_us"].is_null();
    assert!(times.len() == products.len() && times.iter().all(only), "{times:?}");
    let own = run(&[("LADDERSCOPE_PRODUCTS", "own")]);
    assert_eq!((&own["products"], &own["matvec"]), (&json!([]), &json!("as asked: all that can be")));
    assert!(own["computed"]["tokens"].is_string(), "{own}");
    // prefetching changes no token
    let ahead = run(&[
        ("LADDERSCOPE_PRODUCTS", "own"),
        ("LADDERSCOPE_AHEAD", "64"),
        ("LADDERSCOPE_AHEAD_ATTEND", "32"),
    ]);
    assert_eq!(ahead["computed"]["tokens"], own["computed"]["tokens"], "{ahead}");
}

#[test]
fn an_emulated_link_costs_what_it_says_and_ladder_hides_some_of_it() {
    let device = device!();
    let place = Place::new();
    let tpot = |architecture: &str, link: &str| {
        let options = ["--tp", "4", "--architecture", architecture, "--link", link];
        let record = run_command(device, &place, &options, &[]).exits(0).json();
        assert_eq!(record["provenance"], "emulated-link");
        assert_eq!(record["environment"]["emulated_link"]["executed_ranks"], 1, "{record}");
        number(&record["metrics"]["tpot_ms"]["p50"])
    };
    let (free, slow) = ("emulated:alpha_us=0,gb_s=1000", "emulated:alpha_us=50,gb_s=1000");
    let (quick, standard) = (tpot("standard", free), tpot("standard", slow));
    // the device's clock is virtual: 4 layers have 8 all-reduces a step, which take 3 us or so by themselves
    let added = standard - quick;
    assert!((8.0 * 0.045..=8.0 * 0.05).contains(&added), "{added} ms for 8 x 50 us");
    let (ladder, none) = (tpot("ladder", slow), tpot("upper-bound", slow));
    assert!(none < ladder && ladder < standard, "{none} {ladder} {standard}");
}

#[test]
fn ranks_with_a_gpu_each_generate_what_ranks_on_one_gpu_do() {
    let device = device!();
    let place = place();
    for architecture in ["ladder", "desync:2"] {
        let options = [
            "--model",
            "tiny",
            "--backend",
            "cuda",
            "--dtype",
            "f32",
            "--tp",
            "2",
            "--architecture",
            architecture,
        ];
        let one = generate(device, &place, &options, &[("FAKE_CUDA_DEVICES", "1")]).exits(0);
        assert!(one.stderr.contains("2 ranks share one GPU"), "{}", one.stderr);
        let two = generate(device, &place, &options, &[("FAKE_CUDA_DEVICES", "2")]).exits(0);
        assert!(!two.stderr.contains("share one GPU"), "{}", two.stderr);
        assert_eq!(one.json()["tokens"], two.json()["tokens"], "{architecture}");
    }
}

#[test]
fn auto_takes_a_gpu_where_it_can_and_says_why_not_where_it_cannot() {
    let device = device!();
    let place = place();
    let on = |variables: &[(&str, &str)]| {
        let done = generate(device, &place, &["--model", "tiny", "--dtype", "f32"], variables).exits(0);
        (done.json()["tokens"].clone(), done.stderr)
    };
    let (gpu, said) = on(&[]);
    assert!(said.contains("backend cuda: 1 GPU"), "{said}");
    let (cpu, said) = on(&[("LADDERSCOPE_NVRTC", "/no/such/file")]);
    assert!(said.contains("backend cpu: ") && said.contains("NVRTC"), "{said}");
    assert_eq!(gpu, cpu);
    let (_, said) = on(&[("LD_LIBRARY_PATH", "/nonexistent")]);
    assert!(said.contains("backend cpu: no NVIDIA driver"), "{said}");
}

/// A small Llama with tied embeddings in f16, in one safetensors file.
fn checkpoint(place: &Place) {
    let (layers, hidden, kv, intermediate, vocab) = (2, 32, 16, 48, 64);
    place.write(
        "model/config.json",
        &json!({
            "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": intermediate,
            "vocab_size": vocab, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": true, "torch_dtype": "float16",
        })
        .to_string(),
    );
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("model.embed_tokens.weight".into(), vec![vocab, hidden]),
        ("model.norm.weight".into(), vec![hidden]),
    ];
    for layer in 0..layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        for (part, shape) in [
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![intermediate, hidden]),
            ("mlp.up_proj", vec![intermediate, hidden]),
            ("mlp.down_proj", vec![hidden, intermediate]),
        ] {
            tensors.push((name(part), shape));
        }
    }
    let mut random = fastrand::Rng::with_seed(5);
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let begin = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            let number = if shape.len() == 1 { 1.0 } else { random.f32() - 0.5 };
            data.extend(half::f16::from_f32(number).to_le_bytes());
        }
        header
            .insert(name, json!({"dtype": "F16", "shape": shape, "data_offsets": [begin, data.len()]}));
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    std::fs::write(place.path().join("model/model.safetensors"), file).expect("a file");
}

#[test]
fn a_checkpoint_s_numbers_arrive_in_every_format() {
    let device = device!();
    let place = place();
    checkpoint(&place);
    let on = |backend: &str, dtype: &str, tp: &str| {
        let options = ["--weights", "model", "--backend", backend, "--dtype", dtype, "--tp", tp];
        generate(device, &place, &options, &[]).exits(0).json()
    };
    let expected = on("cpu", "f32", "1");
    for tp in ["1", "2"] {
        let found = on("cuda", "f32", tp);
        assert_eq!(found["tokens"], expected["tokens"], "TP {tp}");
    }
    // what the checkpoint is stored in, where nothing is asked for
    let options = ["--weights", "model", "--backend", "cuda"];
    let found = generate(device, &place, &options, &[]).exits(0).json();
    let top = |value: &Value| number(&value["top_logits"][0][0][1]);
    assert!((top(&found) / top(&expected) - 1.0).abs() < 0.01, "{} {}", top(&found), top(&expected));
    assert_eq!(found, on("cuda", "f16", "1"));
    let expected = on("cpu", "fp8", "1");
    for tp in ["1", "2"] {
        let found = on("cuda", "fp8", tp);
        let ratio = top(&found) / top(&expected);
        assert!((ratio - 1.0).abs() < 0.01, "fp8, TP {tp}: {} {}", top(&found), top(&expected));
    }
}

#[test]
fn sequences_end_where_they_should() {
    let device = device!();
    let place = place();
    checkpoint(&place);
    let config = std::fs::read_to_string(place.path().join("model/config.json")).expect("a config");
    let options = ["--weights", "model", "--dtype", "f32", "--tp", "2", "--stop-at-eos"];
    let on = |backend: &str| {
        let options: Vec<&str> = options.iter().chain(&["--backend", backend]).copied().collect();
        generate(device, &place, &options, &[]).exits(0).json()
    };
    let whole = on("cpu");
    // the third token of the first sequence ends it
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["eos_token_id"] = whole["tokens"][0][2].clone();
    place.write("model/config.json", &config.to_string());
    let (expected, found) = (on("cpu"), on("cuda"));
    assert!(expected["tokens"][0].as_array().is_some_and(|tokens| tokens.len() <= 3), "{expected}");
    assert_eq!(found["tokens"], expected["tokens"]);
}

/// Beside one another, for most of their time is waiting.
#[test]
fn what_hangs_ends_within_the_time_out_with_words() {
    let device = device!();
    let began = Instant::now();
    let options = ["--model", "tiny", "--backend", "cuda", "--dtype", "f32", "--timeout", "3"];
    let step = || {
        let hang = [("FAKE_CUDA_HANG", "attend_decode:3")];
        let done = generate(device, &place(), &options, &hang).exits(1);
        let said = done.stderr;
        assert!(said.contains("decode step") && said.contains("within 3 s"), "{said}");
    };
    // a rank of two hangs in the sum: both end
    let sum = || {
        let two = [("FAKE_CUDA_HANG", "rms_norm:2"), ("FAKE_CUDA_DEVICES", "2")];
        let done = generate(device, &place(), &[&options[..], &["--tp", "2"]].concat(), &two).exits(1);
        assert!(done.stderr.contains("within 3 s"), "{}", done.stderr);
    };
    // compiling kernels for this device takes longer than NVRTC does
    let run = || {
        let hang = [("FAKE_CUDA_HANG", "attend_decode:3")];
        let record = run_command(device, &place(), &["--timeout", "10"], &hang).exits(1).json();
        assert_eq!(record["status"], "failed");
        let reason = record["reason"].as_str().unwrap_or_default();
        // who says it first, the wait or the watchdog, depends on how long kernels took to compile
        assert!(reason.contains("decode step"), "{reason}");
        assert!(reason.contains("within 10 s") || reason.contains("no progress for"), "{reason}");
    };
    std::thread::scope(|scope| {
        scope.spawn(step);
        scope.spawn(sum);
        scope.spawn(run);
    });
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

#[test]
fn a_run_that_does_not_fit_says_by_how_much() {
    let device = device!();
    let place = Place::new();
    let memory = [("FAKE_CUDA_MEMORY", "4000000")];
    let record = run_command(device, &place, &[], &memory).exits(2).json();
    assert_eq!(record["status"], "oom", "{record}");
    let reason = record["reason"].as_str().unwrap_or_default();
    for part in ["a rank needs weights 0.8 MB", "KV cache", "= 34.4 MB; GPU 0", "5 % are left"] {
        assert!(reason.contains(part), "{part} is missing in: {reason}");
    }
}
