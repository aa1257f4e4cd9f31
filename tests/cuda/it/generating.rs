//! `generate --backend cuda` on the software device, against `--backend cpu`: the same tokens and logits
//! for every architecture, however many ranks share the device, in whatever order nothing forbids.

use serde_json::Value;

use crate::device::{Device, device};
use crate::order;
use crate::support::{Done, Place};

const ARCHITECTURES: [&str; 15] = [
    "standard",
    "ladder",
    "ladder:2",
    "parallel",
    "desync:2",
    "delayed:2",
    "sync-drop:2",
    "kraken",
    "partial:0.5+ladder",
    "partial:0.5",
    "farskip",
    "tracks:2",
    "upper-bound",
    "stale:2",
    "parallel+ladder",
];

/// Prompts of different lengths: sequences are at different positions.
fn place() -> Place {
    let place = Place::new();
    place.write("prompts.txt", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n200 100 50\n7\n");
    place
}

fn arguments<'a>(backend: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let common = ["--prompt-tokens-file", "prompts.txt", "--output-tokens", "5", "--format", "json"];
    let model: &[&str] = if more.contains(&"--model") { &[] } else { &["--model", "tiny"] };
    let verb = ["generate", "--backend", backend];
    verb.iter().chain(model).copied().chain(common).chain(more.iter().copied()).collect()
}

fn cuda(device: &Device, place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Done {
    device.run(place, &arguments("cuda", more), variables)
}

fn cpu(place: &Place, more: &[&str]) -> Value {
    place.run(&arguments("cpu", more)).exits(0).json()
}

/// How far logits of the cpu backend and these are apart, of the largest logit: the most in each sequence, of tokens
/// that are among the likeliest of both.
#[track_caller]
fn distances(expected: &Value, found: &Value, what: &str) -> Vec<f64> {
    let sequences = |value: &Value| value["top_logits"].as_array().unwrap().clone();
    let (expected, found) = (sequences(expected), sequences(found));
    assert_eq!(expected.len(), found.len(), "{what}");
    let of = |(expected, found): (&Value, &Value)| {
        let (expected, found) = (expected.as_array().unwrap(), found.as_array().unwrap());
        let number = |pair: &Value| pair[1].as_f64().unwrap();
        let largest = expected.iter().map(|pair| number(pair).abs()).fold(0.0, f64::max);
        let both = expected.iter().filter_map(|pair| {
            let same = found.iter().find(|other| other[0] == pair[0])?;
            Some((number(pair) - number(same)).abs() / largest)
        });
        let apart: Vec<f64> = both.collect();
        assert!(apart.len() >= 4, "{what}: {expected:?} against {found:?}");
        apart.into_iter().fold(0.0, f64::max)
    };
    expected.iter().zip(&found).map(of).collect()
}

/// Asserts that logits of the cpu backend and these differ by less than `tolerance` of the largest.
#[track_caller]
fn close(expected: &Value, found: &Value, tolerance: f64, what: &str) {
    let apart = distances(expected, found, what);
    assert!(apart.iter().all(|apart| *apart <= tolerance), "{what}: {apart:?}");
}

fn every_architecture(tp: &str, architectures: &[&str]) {
    let device = device!();
    let place = place();
    for (seed, architecture) in architectures.iter().enumerate() {
        let what = format!("{architecture} at TP {tp}");
        let options = ["--tp", tp, "--architecture", architecture, "--dtype", "f32"];
        let seed = (seed + 1).to_string();
        let found = cuda(device, &place, &options, &[("FAKE_CUDA_SEED", &seed)]).exits(0).json();
        let expected = cpu(&place, &options);
        assert_eq!(found["tokens"], expected["tokens"], "{what}");
        close(&expected, &found, 1e-5, &what);
        for (one, other) in
            found["nll"].as_array().unwrap().iter().zip(expected["nll"].as_array().unwrap())
        {
            let (one, other) = (one.as_f64(), other.as_f64());
            // a prompt of one token has none
            let near = one.zip(other).is_none_or(|(one, other)| (one - other).abs() < 1e-4);
            assert!(near && one.is_some() == other.is_some(), "{what}: {one:?} against {other:?}");
        }
    }
}

#[test]
fn every_architecture_yields_what_the_cpu_backend_yields() {
    every_architecture("1", &["standard", "ladder", "parallel", "desync:2"]);
}

#[test]
fn two_ranks_on_one_device_yield_what_the_cpu_backend_yields() {
    every_architecture("2", &ARCHITECTURES);
}

#[test]
fn four_ranks_on_one_device_yield_what_the_cpu_backend_yields() {
    every_architecture(
        "4",
        &[
            "standard",
            "ladder",
            "parallel",
            "desync:2",
            "delayed:3",
            "kraken",
            "tracks:2",
            "partial:0.5",
        ],
    );
}

/// Biases of queries, keys and values, and norms of heads; also where gate and up lie behind them in one projection.
#[test]
fn what_families_do_to_heads_is_done_as_on_the_cpu() {
    let device = device!();
    let place = place();
    for (family, head_dim) in [("qwen2", 16), ("qwen3", 24)] {
        let config = serde_json::json!({
            "model_type": family, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": head_dim, "intermediate_size": 96, "vocab_size": 256,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true,
        });
        place.write(&format!("{family}/config.json"), &config.to_string());
        let own = |options: &[&'static str]| [&["--model", family], options].concat();
        for architecture in ["standard", "parallel"] {
            for tp in ["1", "2"] {
                let what = format!("{family}, {architecture} at TP {tp}");
                let options = own(&["--architecture", architecture, "--dtype", "f32", "--tp", tp]);
                let found = cuda(device, &place, &options, &[]).exits(0).json();
                let expected = cpu(&place, &options);
                assert_eq!(found["tokens"], expected["tokens"], "{what}");
                close(&expected, &found, 1e-5, &what);
            }
        }
        let options = |dtype| own(&["--dtype", dtype]);
        let found = cuda(device, &place, &options("bf16"), &[]).exits(0).json();
        close(&cpu(&place, &options("bf16")), &found, 0.03, &format!("{family} in bf16"));
    }
}

/// Config of a small mixture of experts.
fn mixture(more: Value) -> String {
    let mut config = serde_json::json!({
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 48, "vocab_size": 256, "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": false,
    });
    let more = more.as_object().expect("an object").clone();
    config.as_object_mut().expect("an object").extend(more);
    config.to_string()
}

/// Prompts of different lengths, the first of so many tokens.
fn long_prompts(tokens: u32) -> String {
    let long: Vec<String> = (0..tokens).map(|at| (at * 7 % 250).to_string()).collect();
    format!("{}\n200 100 50\n7\n", long.join(" "))
}

/// Experts in slices and whole, routing of three families, windows, sinks, biases, and copies of KV heads.
#[test]
fn mixtures_of_experts_yield_what_the_cpu_backend_yields() {
    let device = device!();
    let place = place();
    // prompts longer than a window and than the rows that are multiplied at a time
    place.write("prompts.txt", &long_prompts(70));
    let mixtral = serde_json::json!({ "model_type": "mixtral", "num_local_experts": 8 });
    let qwen3 = serde_json::json!({
        "model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
        "norm_topk_prob": true,
    });
    let gpt_oss = serde_json::json!({
        "model_type": "gpt_oss", "num_local_experts": 8, "sliding_window": 16, "attention_bias": true,
    });
    for (family, config) in [("mixtral", mixtral), ("qwen3", qwen3), ("gpt-oss", gpt_oss)] {
        place.write(&format!("{family}/config.json"), &mixture(config));
        let own = |options: &[&'static str]| [&["--model", family], options].concat();
        for (tp, ep, architecture) in
            [("1", "1", "standard"), ("2", "1", "ladder"), ("2", "2", "farskip"), ("4", "4", "standard")]
        {
            let parallel = ["--dtype", "f32", "--tp", tp, "--ep", ep];
            let options = own(&[&parallel[..], &["--architecture", architecture]].concat());
            let what = format!("{family}, {architecture} at TP {tp}, EP {ep}");
            let found = cuda(device, &place, &options, &[]).exits(0).json();
            let expected = cpu(&place, &options);
            assert_eq!(found["tokens"], expected["tokens"], "{what}");
            close(&expected, &found, 1e-5, &what);
        }
        // tensor cores; fp8 rounds alike
        for (dtype, tp, ep) in [("bf16", "1", "1"), ("bf16", "2", "2"), ("fp8", "2", "1")] {
            let options = own(&["--dtype", dtype, "--tp", tp, "--ep", ep]);
            let found = cuda(device, &place, &options, &[]).exits(0).json();
            let apart = distances(&cpu(&place, &options), &found, family);
            // a row whose experts are almost as likely may choose another one
            let far = apart.iter().filter(|apart| **apart > 0.05).count();
            assert!(far <= 1, "{family} in {dtype} at TP {tp}, EP {ep}: {apart:?}");
        }
    }
}

/// 64 rows per expert in the first 128 tokens: products by cuBLASLt, expert by expert. The other 12, the other prompts and
/// decode take the grouped kernel.
#[test]
fn long_prompts_of_mixtures_yield_what_the_cpu_backend_yields() {
    let device = device!();
    let place = place();
    place.write("prompts.txt", &long_prompts(140));
    let mixtral = serde_json::json!({ "model_type": "mixtral", "num_local_experts": 4 });
    let gpt_oss = serde_json::json!({
        "model_type": "gpt_oss", "num_local_experts": 4, "sliding_window": 16, "attention_bias": true,
    });
    let dots = serde_json::json!({
        "model_type": "dots1", "n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 24,
        "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5,
    });
    let log = place.path().join("calls.jsonl");
    for (family, config) in [("mixtral", mixtral), ("gpt-oss", gpt_oss), ("dots", dots)] {
        place.write(&format!("{family}/config.json"), &mixture(config));
        for (dtype, tp, ep, devices) in [
            ("f32", "1", "1", "1"),
            ("f32", "2", "1", "1"),
            ("f32", "2", "2", "2"),
            ("bf16", "1", "1", "1"),
            ("bf16", "2", "2", "1"),
            ("fp8", "2", "2", "1"),
        ] {
            let architecture = if devices == "2" { "farskip" } else { "ladder" };
            let options = [
                "--model",
                family,
                "--dtype",
                dtype,
                "--tp",
                tp,
                "--ep",
                ep,
                "--architecture",
                architecture,
            ];
            let what = format!("{family} in {dtype} at TP {tp}, EP {ep} on {devices} devices");
            let _ = std::fs::remove_file(&log);
            let variables = [
                ("FAKE_CUDA_DEVICES", devices),
                ("FAKE_CUDA_SEED", "3"),
                ("FAKE_CUDA_LOG", log.to_str().unwrap()),
            ];
            let found = cuda(device, &place, &options, &variables).exits(0).json();
            let expected = cpu(&place, &options);
            let calls = std::fs::read_to_string(&log).expect("a log");
            for kernel in ["activate_experts", "experts_up"] {
                assert!(calls.contains(kernel), "{what} without {kernel}");
            }
            assert_eq!(calls.contains("expand_fp8"), dtype == "fp8", "{what}");
            if dtype == "f32" {
                assert_eq!(found["tokens"], expected["tokens"], "{what}");
                close(&expected, &found, 1e-5, &what);
                continue;
            }
            let apart = distances(&expected, &found, &what);
            // a row whose experts are almost as likely may choose another one
            let far = apart.iter().filter(|apart| **apart > 0.05).count();
            assert!(far <= 1, "{what}: {apart:?}");
        }
    }
}

#[test]
fn mixtures_that_the_kernels_lack_are_refused_by_name() {
    let device = device!();
    let place = place();
    for (model, what) in [("deepseek-v3", "latent attention"), ("llama-4-scout", "attention in chunks")]
    {
        let message = cuda(device, &place, &["--model", model], &[]).exits(2).stderr;
        assert!(message.contains("the cuda backend has no") && message.contains(what), "{message}");
    }
}

/// What options change in the plan, on ranks that share a device and on ranks over NCCL: the cpu backend's numbers,
/// and where they are to change nothing the plain tokens.
fn every_variant(architectures: &[&str], devices: &str, variants: &[&[&str]]) {
    let device = device!();
    let place = Place::new();
    // more sequences than ranks, of different lengths; a share of no row in the last one's prefill
    place.write("prompts.txt", "1 2 3 4 5 6 7 8 9 10 11\n200 100 50\n7\n9 8 7 6 5\n31 41\n");
    for architecture in architectures {
        for variant in variants {
            let plain = ["--tp", "4", "--architecture", architecture, "--dtype", "f32", "--seed", "2"];
            let options: Vec<&str> = plain.iter().chain(*variant).copied().collect();
            let what = format!("{architecture} {variant:?} on {devices} devices");
            let variables = [("FAKE_CUDA_DEVICES", devices), ("FAKE_CUDA_SEED", "5")];
            let found = cuda(device, &place, &options, &variables).exits(0).json();
            let expected = cpu(&place, &options);
            assert_eq!(found["tokens"], expected["tokens"], "{what}");
            let whole = cpu(&place, &plain);
            if !variant.contains(&"--comm-dtype") {
                close(&expected, &found, 1e-5, &what);
                assert_eq!(found["tokens"], whole["tokens"], "{what}");
                continue;
            }
            // sums in another order move a value over the border between two codes, in a sequence or two
            let mut apart = distances(&expected, &found, &what);
            apart.sort_by(f64::total_cmp);
            assert!(apart[apart.len() / 2] < 1e-5 && apart[apart.len() - 1] < 1e-3, "{what}: {apart:?}");
            let rounded = distances(&whole, &found, &what);
            assert!(
                rounded.iter().all(|apart| *apart > 5e-4),
                "{what}: nothing was rounded: {rounded:?}"
            );
        }
    }
}

const GROUPS: &[&str] = &["--micro-batches", "2"];
const SCATTERED: &[&str] = &["--sequence-parallel"];
const BOTH: &[&str] = &["--sequence-parallel", "--micro-batches", "3"];
const INT8: &[&str] = &["--comm-dtype", "int8"];
const F8: &[&str] = &["--comm-dtype", "f8", "--micro-batches", "2"];

#[test]
fn variants_on_one_device_yield_what_the_cpu_backend_yields() {
    every_variant(&["standard", "ladder"], "1", &[GROUPS, SCATTERED, BOTH, INT8, F8]);
}

#[test]
fn variants_over_nccl_yield_what_the_cpu_backend_yields() {
    every_variant(&["standard"], "4", &[SCATTERED, BOTH, INT8, F8]);
}

#[test]
fn diverging_residuals_join_what_the_messages_in_8_bits_say() {
    for devices in ["1", "4"] {
        every_variant(
            &["delayed:2", "desync:2", "sync-drop:2", "kraken", "tracks:2", "partial:0.5"],
            devices,
            &[INT8],
        );
    }
}

#[test]
fn variants_that_no_backend_can_do_are_told() {
    let device = device!();
    let place = place();
    for (options, why) in [
        (
            ["--micro-batches", "4", "--tp", "2"].as_slice(),
            "3 prompts cannot be split into 4 micro-batches",
        ),
        (
            &["--sequence-parallel", "--comm-dtype", "f8", "--tp", "2"],
            "no reduce-scatter of f8 messages",
        ),
        (
            &["--sequence-parallel", "--architecture", "desync:2", "--tp", "2"],
            "desync:2 have residuals of",
        ),
    ] {
        let told = cuda(device, &place, options, &[]).exits(2).stderr;
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn short_formats_are_near() {
    let device = device!();
    let place = place();
    for architecture in ["standard", "ladder"] {
        for (dtype, reference, tolerance) in
            [("bf16", "bf16", 0.02), ("f16", "f32", 0.02), ("fp8", "fp8", 0.02)]
        {
            let options = |dtype| ["--tp", "2", "--architecture", architecture, "--dtype", dtype];
            let found = cuda(device, &place, &options(dtype), &[]).exits(0).json();
            let expected = cpu(&place, &options(reference));
            close(&expected, &found, tolerance, &format!("{architecture} in {dtype}"));
        }
    }
}

/// Products of up to 64 rows read fp8 weights; more rows, and rows of weights that do not begin on 16 bytes, take
/// weights that were expanded to bf16.
#[test]
fn fp8_weights_are_multiplied_alike_whoever_does_it() {
    let device = device!();
    let place = place();
    let prompt =
        |tokens: u32| (0..tokens).map(|at| (at * 7 % 250).to_string()).collect::<Vec<_>>().join(" ");
    place.write("prompts.txt", &format!("{}\n{}\n", prompt(90), prompt(40)));
    for (name, intermediate, tied) in [("packs", 96, false), ("odd", 100, true)] {
        let config = serde_json::json!({
            "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": intermediate, "vocab_size": 256,
            "tie_word_embeddings": tied,
        });
        place.write(&format!("{name}/config.json"), &config.to_string());
        for tp in ["1", "2"] {
            let options = |dtype| ["--model", name, "--dtype", dtype, "--tp", tp];
            let what = format!("{name} at TP {tp}");
            let found = cuda(device, &place, &options("fp8"), &[]).exits(0).json();
            let expected = cpu(&place, &options("fp8"));
            close(&expected, &found, 0.02, &what);
            // the rounding shows
            let exact = distances(&cpu(&place, &options("f32")), &expected, &what);
            assert!(exact.iter().all(|apart| *apart > 1e-3), "{what}: {exact:?}");
        }
    }
}

#[test]
fn graphs_eager_steps_and_every_order_of_execution_yield_the_same_bits() {
    let device = device!();
    let place = place();
    let options = ["--tp", "2", "--architecture", "ladder", "--dtype", "bf16"];
    let run = |more: &[&str], seed: &str| {
        let options: Vec<&str> = options.iter().chain(more).copied().collect();
        cuda(device, &place, &options, &[("FAKE_CUDA_SEED", seed)]).exits(0).json()
    };
    let first = run(&[], "0");
    for seed in ["2", "3", "4"] {
        assert_eq!(run(&[], seed), first, "graph, seed {seed}");
    }
    for seed in ["0", "6"] {
        assert_eq!(run(&["--no-graph"], seed), first, "eager, seed {seed}");
    }
}

#[test]
fn drawn_tokens_are_those_of_the_cpu_backend() {
    let device = device!();
    let place = place();
    for sampling in
        [["--temperature", "0.8", "--top-k", "5"], ["--temperature", "1.3", "--top-k", "200"]]
    {
        let options: Vec<&str> =
            ["--tp", "2", "--dtype", "f32", "--seed", "7"].into_iter().chain(sampling).collect();
        let found = cuda(device, &place, &options, &[]).exits(0).json();
        assert_eq!(found["tokens"], cpu(&place, &options)["tokens"], "{sampling:?}");
    }
}

/// A log of every call and every access of a generation.
fn log(device: &Device, place: &Place, architecture: &str, more: &[&str]) -> Vec<order::Line> {
    // short prompts: every access is noted
    place.write("prompts.txt", "1 2 3 4\n200\n");
    log_of_prompts(device, place, architecture, more)
}

fn log_of_prompts(
    device: &Device,
    place: &Place,
    architecture: &str,
    more: &[&str],
) -> Vec<order::Line> {
    let path = place.path().join("calls.jsonl");
    // what is there from another generation
    let _ = std::fs::remove_file(&path);
    let options = ["--tp", "2", "--architecture", architecture, "--dtype", "bf16"];
    let options: Vec<&str> = options.iter().chain(more).copied().collect();
    // kernels that tell what they touch are other kernels
    let cache = device.file("traced");
    let variables = [
        ("FAKE_NVRTC_TRACE", "1"),
        ("FAKE_CUDA_LOG", path.to_str().unwrap()),
        ("XDG_CACHE_HOME", cache.to_str().unwrap()),
    ];
    cuda(device, place, &options, &variables).exits(0);
    order::read(&path)
}

#[test]
fn every_value_is_written_before_it_is_read_and_read_before_it_is_written_over() {
    let device = device!();
    let place = place();
    let plain = ["standard", "ladder", "parallel", "desync:2", "stale:2"].map(|it| (it, [].as_slice()));
    let variants = [("ladder", SCATTERED), ("delayed:2", INT8), ("ladder", F8)];
    for (architecture, options) in plain.into_iter().chain(variants) {
        let lines = log(device, &place, architecture, options);
        order::edges_agree(&lines);
        let replays = lines.iter().filter(|line| line.call == "graph_launch").count();
        assert_eq!(replays, 4, "{architecture}");
        let problems = order::problems(&lines);
        assert!(problems.is_empty(), "{architecture}: {problems:#?}");
    }
    let problems = order::problems(&log(device, &place, "ladder", &["--no-graph"]));
    assert!(problems.is_empty(), "eager: {problems:#?}");
}

/// With cuBLASLt expert by expert, where the host reads the rows of each.
#[test]
fn slots_of_experts_are_written_before_they_are_read() {
    let device = device!();
    let place = place();
    // as many rows as one expert needs, and a short sequence
    place.write("prompts.txt", &long_prompts(64));
    let config = serde_json::json!({ "model_type": "mixtral", "num_local_experts": 2 });
    place.write("two/config.json", &mixture(config));
    for ep in ["1", "2"] {
        let lines = log_of_prompts(device, &place, "ladder", &["--model", "two", "--ep", ep]);
        assert!(lines.iter().any(|line| line.name() == "activate_experts"), "EP {ep}");
        let problems = order::problems(&lines);
        assert!(problems.is_empty(), "EP {ep}: {problems:#?}");
    }
}

#[test]
fn without_any_one_of_its_waits_a_step_is_not_in_order() {
    let device = device!();
    let place = place();
    for architecture in ["standard", "ladder"] {
        let lines = log(device, &place, architecture, &[]);
        let waits: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].is_wait()).collect();
        // two ranks, a join of them and back for each of at least 8 sums, in two phases
        assert!(waits.len() >= 16, "{architecture}: {}", waits.len());
        for wait in waits {
            let mut without = lines.clone();
            let gone = without.remove(wait);
            assert!(!order::problems(&without).is_empty(), "{architecture}: not missed: {gone:?}");
        }
    }
}
