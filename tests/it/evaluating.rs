//! `evaluate` as a user meets it: numbers, windows, what is stored and found again, what is refused.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Done, Place, wait_for};

/// A directory with a checkpoint (random weights, from a seed), a tokenizer and a text of 100 tokens.
pub fn place() -> Place {
    let place = Place::new();
    place.write(
        "model/config.json",
        r#"{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": false}"#,
    );
    let words: Vec<String> = (0..100).map(|id| format!("\"w{id}\": {id}")).collect();
    // a post-processor that puts a special token first: it is not to be used
    place.write(
        "model/tokenizer.json",
        &format!(
            r#"{{"version": "1.0", "added_tokens": [], "normalizer": null,
                "pre_tokenizer": {{"type": "WhitespaceSplit"}}, "decoder": null,
                "post_processor": {{"type": "TemplateProcessing",
                    "single": [{{"SpecialToken": {{"id": "w0", "type_id": 0}}}}, {{"Sequence": {{"id": "A", "type_id": 0}}}}],
                    "pair": [{{"Sequence": {{"id": "A", "type_id": 0}}}}, {{"Sequence": {{"id": "B", "type_id": 1}}}}],
                    "special_tokens": {{"w0": {{"id": "w0", "ids": [0], "tokens": ["w0"]}}}}}},
                "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "w1"}}}}"#,
            words.join(", ")
        ),
    );
    let ids = |from: usize| (from..100).map(|at| (at * at * 7 + 3 * at) % 100);
    place.write("text.txt", &ids(0).map(|id| format!("w{id}")).collect::<Vec<_>>().join(" "));
    place.write("ids.txt", &ids(0).map(|id| id.to_string()).collect::<Vec<_>>().join("\n"));
    place
}

fn evaluate(place: &Place, more: &[&str]) -> Done {
    let context: &[&str] = if more.contains(&"--context") { &[] } else { &["--context", "16"] };
    place.run(&[&["evaluate", "--model", "model"], context, more].concat())
}

fn json(place: &Place, more: &[&str]) -> Value {
    evaluate(place, &[more, &["--format", "json"]].concat()).exits(0).json()
}

#[test]
fn a_case_for_each_architecture_in_the_order_asked_for() {
    let place = place();
    let asked = "ladder:2,standard,desync:2,ladder:2,sync-drop:[0+2],delayed:1,parallel";
    let found = json(&place, &["--text", "text.txt", "--architecture", asked, "--tp", "2"]);
    assert_eq!((&found["context"], &found["tokens"]), (&16.into(), &100.into()));
    assert_eq!(
        (&found["windows"], &found["predicted"]),
        (&6.into(), &90.into()),
        "the last 4 are dropped"
    );
    let text = std::fs::read_to_string(place.path().join("text.txt")).unwrap();
    assert_eq!(found["model"], "model");
    assert_eq!(found["weights"].as_str().map(str::len), Some(16), "a fingerprint");
    let named = serde_json::json!({
        "file": "text.txt", "sha256": base::checksum::sha256(text), "tokens": 100,
    });
    assert_eq!(found["text"], named);
    let limited = json(&place, &["--text", "text.txt", "--tokens", "64"]);
    assert_eq!((&limited["tokens"], &limited["text"]["tokens"]), (&64.into(), &100.into()));
    let cases = found["cases"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case["architecture"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), asked);
    let number = |case: &Value, key: &str| case[key].as_f64().unwrap_or_else(|| panic!("{key}: {case}"));
    for case in cases {
        assert_eq!(case["tp"], 2);
        let nll = number(case, "nll");
        assert!((number(case, "perplexity") - nll.exp()).abs() < 1e-9 * nll.exp());
        assert!(number(case, "kl") >= 0.0 && (0.0..=1.0).contains(&number(case, "agreement")));
        for key in ["nll", "kl"] {
            let ends = &case[format!("{key}_ci95")];
            let (low, high) = (ends[0].as_f64().unwrap(), ends[1].as_f64().unwrap());
            assert!(low <= number(case, key) && number(case, key) <= high, "{key}: {case}");
        }
    }
    assert_eq!(cases[0], cases[3]);
    assert_eq!((&cases[1]["kl"], &cases[1]["agreement"]), (&0.0.into(), &1.0.into()));
    assert!(number(&cases[0], "kl") > 0.0);
    // words and ids of the same text are the same text; who is asked for beside it changes nothing
    let alone = json(&place, &["--tokens-file", "ids.txt", "--architecture", "ladder:2", "--tp", "2"]);
    assert_eq!(alone["cases"].as_array().map(Vec::as_slice), Some(&cases[..1]));
}

#[test]
fn the_likelihood_is_the_one_of_generate() {
    let place = place();
    let found = json(&place, &["--text", "text.txt", "--context", "100", "--architecture", "ladder"]);
    let ids = std::fs::read_to_string(place.path().join("ids.txt")).unwrap().replace('\n', " ");
    place.write("prompt", &ids);
    let arguments = [
        "generate",
        "--weights",
        "model",
        "--prompt-tokens-file",
        "prompt",
        "--architecture",
        "ladder",
        "--output-tokens",
        "1",
        "--format",
        "json",
    ];
    let generated = place.run(&arguments).exits(0).json();
    let (one, other) =
        (found["cases"][0]["nll"].as_f64().unwrap(), generated["nll"][0].as_f64().unwrap());
    assert!((one - other).abs() < 1e-5, "{one} {other}");
    assert_eq!(found["cases"][0]["nll_ci95"], Value::Null, "of one window there is no interval");
}

/// Random mixtures of experts have the likelihoods of `generate` at TP 1 and 2; other wirings change them.
#[test]
fn mixtures_of_experts_are_evaluated() {
    let place = place();
    let tokenizer = std::fs::read_to_string(place.path().join("model/tokenizer.json")).unwrap();
    let ids = std::fs::read_to_string(place.path().join("ids.txt")).unwrap().replace('\n', " ");
    place.write("prompt", &ids);
    let mixtral = r#""model_type": "mixtral", "num_local_experts": 4"#;
    let qwen3 = r#""model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 32, "head_dim": 16,
        "norm_topk_prob": true, "mlp_only_layers": [0]"#;
    for (name, family) in [("mixtral", mixtral), ("qwen3", qwen3)] {
        let config = format!(
            r#"{{{family}, "num_experts_per_tok": 2, "num_hidden_layers": 3, "hidden_size": 64,
                "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
                "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}}"#
        );
        place.write(&format!("{name}/config.json"), &config);
        place.write(&format!("{name}/tokenizer.json"), &tokenizer);
        let evaluate = |more: &[&str]| {
            let text = ["evaluate", "--model", name, "--text", "text.txt", "--context", "100"];
            place.run(&[&text, more, &["--format", "json"]].concat())
        };
        let architectures = ["standard", "ladder", "farskip", "ladder:1"];
        let asked = architectures.join(",");
        let numbers = |tp: &str| -> Vec<[f64; 3]> {
            let found = evaluate(&["--architecture", &asked, "--tp", tp]).exits(0).json();
            let of = |case: &Value| ["nll", "kl", "agreement"].map(|key| case[key].as_f64().unwrap());
            found["cases"].as_array().unwrap().iter().map(of).collect()
        };
        let (alone, divided) = (numbers("1"), numbers("2"));
        assert_eq!((alone[0][1], alone[0][2]), (0.0, 1.0), "standard against itself");
        let kl = |at: usize| alone[at][1];
        assert!(kl(1) > kl(3) && kl(2) > 0.0 && kl(3) > 0.0, "{alone:?}");
        for ((alone, divided), architecture) in alone.iter().zip(&divided).zip(architectures) {
            let off = alone.iter().zip(divided).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-4, "{name} {architecture}: {alone:?} and, with TP 2, {divided:?}");
            let arguments = [
                &["generate", "--weights", name, "--prompt-tokens-file", "prompt"][..],
                &["--architecture", architecture, "--output-tokens", "1", "--format", "json"],
            ];
            let generated = place.run(&arguments.concat()).exits(0).json();
            let off = generated["nll"][0].as_f64().unwrap() - alone[0];
            assert!(off.abs() < 1e-5, "{name} {architecture} is {off} off generate");
        }
        let refused = evaluate(&["--architecture", "desync:2", "--tp", "2"]).exits(2);
        let why = "routers would choose different experts";
        assert!((refused.stderr + &refused.stdout).contains(why), "{name}");
    }
}

/// The lines of all stored evaluations, but for each file's first.
fn stored(place: &Place) -> usize {
    let folder = place.path().join("runs/evaluations");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|file| std::fs::read_to_string(file).unwrap().lines().count() - 1).sum()
}

#[test]
fn nothing_is_computed_twice_and_a_torn_file_heals() {
    let place = place();
    let both = ["--text", "text.txt", "--architecture", "standard,ladder"];
    let limited = json(&place, &[&both[..], &["--tokens", "50"]].concat());
    assert_eq!((&limited["tokens"], &limited["windows"]), (&50.into(), &3.into()));
    assert_eq!(stored(&place), 6);
    // a longer text has the windows of its beginning
    let first = evaluate(&place, &[&both[..], &["--format", "json"]].concat()).exits(0);
    assert_eq!(stored(&place), 12);
    assert!(first.stderr.contains("(6 already stored)"), "{first:?}");
    let again = evaluate(&place, &[&both[..], &["--format", "json"]].concat()).exits(0);
    assert_eq!((&again.stdout, stored(&place)), (&first.stdout, 12));
    assert!(again.stderr.contains("[12/12] windows (12 already stored)"), "{again:?}");
    // somebody was killed while writing, and something else damaged a line
    for file in std::fs::read_dir(place.path().join("runs/evaluations")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text[..text.len() - 9].replacen("{\"window\"", "{\"winxow\"", 1)).unwrap();
    }
    let healed = evaluate(&place, &[&both[..], &["--format", "json"]].concat()).exits(0);
    assert_eq!(healed.stdout, first.stdout);
    assert!(healed.stderr.contains("(8 already stored)"), "{healed:?}");
    // the store is no run, and another seed another model
    assert_eq!(place.run(&["runs", "--format", "json"]).exits(0).stdout.trim(), "[]");
    let other = json(&place, &[&both[..], &["--seed", "1"]].concat());
    assert_ne!(other["cases"][0]["nll"], limited["cases"][0]["nll"]);
}

#[test]
fn tables_and_csv_have_a_row_a_case() {
    let place = place();
    let both = ["--text", "text.txt", "--architecture", "standard,ladder"];
    let table = evaluate(&place, &both).exits(0).stdout;
    assert!(
        table.starts_with("Divergence from standard: ladder (KL 0.")
            && table.contains("\nmeasured on cpu: 6 windows of 16 tokens, 90 predicted; NLL and KL"),
        "{table}"
    );
    assert!(table.lines().any(|line| line.contains("ladder") && line.contains(" [")), "{table}");
    let csv = evaluate(&place, &[&both[..], &["--format", "csv"]].concat()).exits(0).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    let columns = "architecture,tp,nll,perplexity,kl,agreement,nll_low,nll_high,";
    assert!(lines[0].starts_with(columns) && lines[0].ends_with(",provenance"), "{csv}");
    let row: Vec<&str> = lines[1].split(',').collect();
    assert_eq!(
        (lines.len(), &row[..2], &row[4..6]),
        (3, &["standard", "1"][..], &["0", "1"][..]),
        "{csv}"
    );
    assert!(!row[6].is_empty() && row.last() == Some(&"measured"), "{csv}");
}

#[test]
fn wrong_input_is_told_with_what_would_be_right() {
    let place = place();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let done = evaluate(&place, arguments).exits(2);
        assert_eq!(done.stdout, "", "{done:?}");
        for part in parts {
            assert!(done.stderr.contains(part), "'{part}' is missing in:\n{}", done.stderr);
        }
    };
    refused(
        &["--text", "text.txt", "--architecture", "standard,upper-bound"],
        &["upper-bound", "wrong on purpose"],
    );
    refused(&["--text", "text.txt", "--architecture", "laddr"], &["laddr", "ladder"]);
    refused(&["--text", "text.txt", "--tp", "3"], &["TP 3", "4 heads"]);
    for (beyond, named) in [("ladder:[0+99]", "layer 99"), ("sync-drop:4", "the last 4 layers")] {
        refused(
            &["--text", "text.txt", "--tp", "2", "--architecture", beyond],
            &[beyond, named, "the model has only 3 (0 to 2)"],
        );
        let options =
            ["--model", "model", "--backend", "cpu", "--architecture", beyond, "--prompt-tokens", "4"];
        for verb in
            [&["generate", "--prompt-tokens-file", "ids.txt"][..], &["run", "--output-tokens", "2"]]
        {
            let options = if verb[0] == "run" { &options[..] } else { &options[..6] };
            let done = place.run(&[verb, options].concat()).exits(2);
            let told = done.stdout.clone() + &done.stderr;
            assert!(told.contains(named) && told.contains("has only 3 (0 to 2)"), "{done:?}");
        }
        place.write(
            "beyond.toml",
            &format!("backend = \"sim\"\n[model]\npath = \"model\"\n[grid]\narchitecture = [\"{beyond}\"]\ntp = [2]\n"),
        );
        let done = place.run(&["sweep", "beyond.toml"]).exits(3);
        assert!((done.stdout.clone() + &done.stderr).contains(named), "{done:?}");
        std::fs::remove_dir_all(place.path().join("runs")).ok();
    }
    refused(&["--text", "none.txt"], &["none.txt"]);
    refused(
        &["--text", "text.txt", "--context", "101"],
        &["text.txt", "100 tokens", "101", "at most 100"],
    );
    refused(&["--text", "text.txt", "--tokens", "9"], &["limited to 9 by --tokens", "at most 9"]);
    refused(&["--text", "text.txt", "--context", "1"], &["--context", "1"]);
    refused(&["--text", "text.txt", "--backend", "sim"], &["simulator", "cpu"]);
    refused(&["--text", "text.txt", "--dtype", "f16"], &["f16", "bf16"]);
    refused(&[], &["--text"]);
    place.write("beyond.txt", "1 2\n3 128");
    refused(&["--tokens-file", "beyond.txt"], &["beyond.txt:2:3", "128", "0 to 127"]);
    std::fs::write(place.path().join("binary"), b"w1 \xff").unwrap();
    refused(&["--text", "binary"], &["binary", "byte 3"]);
    std::fs::remove_file(place.path().join("model/tokenizer.json")).unwrap();
    refused(&["--text", "text.txt"], &["tokenizer.json", "--tokens-file"]);
    assert!(!place.path().join("runs").exists(), "nothing was started");
}

#[test]
fn where_results_cannot_be_stored_it_fails_and_says_so() {
    let place = place();
    std::fs::create_dir(place.path().join("runs")).unwrap();
    std::os::unix::fs::symlink("/nonexistent", place.path().join("runs/evaluations")).unwrap();
    let done = evaluate(&place, &["--text", "text.txt"]);
    assert!(done.code != 0 && done.stderr.contains("runs/evaluations"), "{done:?}");
}

#[test]
fn an_interrupted_evaluation_exits_130_and_goes_on_where_it_stopped() {
    let place = place();
    // numbers that repeat nothing: each window is another
    let mixed = |n: u64| (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let ids = (0..16_000).map(|at| mixed(mixed(at)) >> 40);
    let ids: Vec<String> = ids.map(|id| (id % 128).to_string()).collect();
    place.write("long.txt", &ids.join(" "));
    let arguments = [
        "evaluate",
        "--weights",
        "model",
        "--context",
        "16",
        "--tokens-file",
        "long.txt",
        "--architecture",
        "standard,ladder",
        "--format",
        "json",
    ];
    let evaluation = place.start(&arguments);
    let folder = place.path().join("runs/evaluations");
    wait_for("the first windows to be stored", || {
        (std::fs::read_dir(&folder).is_ok_and(|files| files.count() == 2) && stored(&place) > 4)
            .then_some(())
    });
    evaluation.signal(Signal::INT);
    let done = evaluation.wait().exits(130);
    assert!(done.stdout.is_empty() && done.stderr.contains("finished work is stored"), "{done:?}");
    let kept = stored(&place);
    assert!((4..2000).contains(&kept), "{kept}");
    let whole = place.run(&arguments).exits(0);
    assert!(whole.stderr.contains(&format!("({kept} already stored)")), "{kept}: {whole:?}");
    assert_eq!(stored(&place), 2000, "every window once");
    assert_eq!(whole.json()["windows"], 1000);
}

/// Puts weights into the model's directory: small numbers that repeat nothing.
fn give_weights(place: &Place) {
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("model.embed_tokens.weight".into(), vec![128, 64]),
        ("model.norm.weight".into(), vec![64]),
        ("lm_head.weight".into(), vec![128, 64]),
    ];
    for layer in 0..3 {
        let of = |name: &str, shape: &[usize]| {
            (format!("model.layers.{layer}.{name}.weight"), shape.to_vec())
        };
        tensors.extend([
            of("input_layernorm", &[64]),
            of("post_attention_layernorm", &[64]),
            of("self_attn.q_proj", &[64, 64]),
            of("self_attn.k_proj", &[32, 64]),
            of("self_attn.v_proj", &[32, 64]),
            of("self_attn.o_proj", &[64, 64]),
            of("mlp.gate_proj", &[96, 64]),
            of("mlp.up_proj", &[96, 64]),
            of("mlp.down_proj", &[64, 96]),
        ]);
    }
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    let mut state = 7_u64;
    for (name, shape) in tensors {
        let begin = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
            let number = if shape.len() == 1 { 1.0 + 0.1 * number } else { 0.4 * number };
            data.extend(number.to_le_bytes());
        }
        let of =
            serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] });
        header.insert(name, of);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let whole = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::write(place.path().join("model/model.safetensors"), whole).unwrap();
}

/// A head that differs from the tied embedding counts, prompts go through the chat template, and generation_config.json
/// says where a text ends.
#[test]
fn a_checkpoint_is_read_as_transformers_reads_it() {
    let place = place();
    give_weights(&place);
    let generate = |more: &[&str]| {
        let model = ["generate", "--weights", "model", "--output-tokens", "4"];
        place.run(&[&model[..], &["--format", "json"], more].concat())
    };
    let plain = generate(&["--prompt", "w5 w6"]).exits(0);
    assert_eq!(plain.json()["prompt_tokens"], serde_json::json!([[0, 5, 6]]));
    let refused = generate(&["--prompt", "w5", "--chat"]).exits(2).stderr;
    assert!(refused.contains("model has no chat template"), "{refused}");
    place.write(
        "model/tokenizer_config.json",
        r#"{"bos_token": "w9", "chat_template":
            "{{ bos_token }}{% for m in messages %}\n{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %} {{ 'w1' if m['role'] == 'system' else 'w2' }} {{ m['content'] | trim }}{% endfor %}{% if add_generation_prompt %} w3{% endif %}"}"#,
    );
    let chat = generate(&["--prompt", " w5 w6 ", "--chat"]).exits(0).json();
    assert_eq!(chat["prompt_tokens"], serde_json::json!([[9, 2, 5, 6, 3]]), "no other special tokens");
    let both = ["--prompt", "w5", "--prompt", "w6", "--chat", "--system", "w7"];
    let both = generate(&both).exits(0).json();
    assert_eq!(both["prompt_tokens"], serde_json::json!([[9, 1, 7, 2, 5, 3], [9, 1, 7, 2, 6, 3]]));
    place.write("model/chat_template.jinja", "w1\n{{ nothing.of_it }}\n");
    let refused = generate(&["--prompt", "w5", "--chat"]).exits(2).stderr;
    assert!(refused.contains("chat_template.jinja: chat template, line 2"), "{refused}");

    // the first token that comes ends the text
    let first = plain.json()["tokens"][0][0].clone();
    place.write("model/generation_config.json", &format!(r#"{{"eos_token_id": [127, {first}]}}"#));
    let ended = generate(&["--prompt", "w5 w6", "--stop-at-eos"]).exits(0).json();
    assert_eq!(ended["tokens"][0].as_array().map(Vec::len), Some(1), "{ended}");

    let config = std::fs::read_to_string(place.path().join("model/config.json")).unwrap();
    let tied = config.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    place.write("model/config.json", &tied);
    let own_head = generate(&["--prompt", "w5 w6"]).exits(0);
    assert!(own_head.stderr.contains("lm_head.weight differs from the embedding"), "{own_head:?}");
    assert_eq!(own_head.json()["top_logits"], plain.json()["top_logits"]);
}

/// An experiment of the model whose speed is simulated and whose quality is evaluated.
const BESIDE: &str = r#"
question = "Which wiring loses least for its time?"
backend = "sim"
hardware = "h100_sxm"
dtype = "f32"
[model]
path = "model"
[workload]
tp = 2
prompt_tokens = 32
output_tokens = 8
[evaluate]
text = "text.txt"
context = 16
[grid]
architecture = ["standard", "ladder", "desync:2", "upper-bound"]
"#;

#[test]
fn an_experiment_has_quality_beside_speed_and_every_table_knows_it() {
    let place = place();
    give_weights(&place);
    place.write("beside.toml", BESIDE);
    let swept = place.run(&["sweep", "beside.toml"]).exits(0);
    for part in [
        "upper-bound has no quality",
        "quality of ladder (f32, TP 1): NLL ",
        "quality of desync:2 (f32, TP 2): NLL ",
        "(measured on cpu, 6 windows of 16 tokens)",
    ] {
        assert!(swept.stderr.contains(part), "'{part}' is missing in:\n{}", swept.stderr);
    }
    let axes = ["--x", "tpot", "--y", "kl"];
    let points = place.run(&[&["pareto", "--format", "json"], &axes[..]].concat()).exits(0).json();
    let of = |name: &str| {
        let points = points.as_array().unwrap();
        points.iter().find(|point| point["architecture"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!((&of("standard")["y"], &of("standard")["on_frontier"]), (&0.0.into(), &true.into()));
    assert!(of("ladder")["y"].as_f64().unwrap() > 0.0 && of("upper-bound")["y"].is_null());
    assert_eq!(of("upper-bound")["on_frontier"], false, "no quality is no good quality");
    let quality = &of("desync:2")["quality"];
    assert_eq!(
        (&quality["text"], &quality["windows"], &quality["tp"]),
        (&"text.txt".into(), &6.into(), &2.into())
    );
    assert_eq!(
        (&quality["provenance"], &of("ladder")["provenance"]),
        (&"measured".into(), &"simulated".into())
    );
    // as a column, a condition, a sort key, a figure, in what is said of one run, and compared
    let table = place.run(&[&["pareto"], &axes[..]].concat()).exits(0).stdout;
    assert!(
        table.contains("KL: measured on cpu, text.txt, 6 windows of 16 tokens; times are simulated"),
        "{table}"
    );
    let above =
        place.run(&["runs", "--filter", "kl>0", "--sort", "kl", "--format", "json"]).exits(0).json();
    let above: Vec<&str> = above
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["spec"]["architecture"].as_str().unwrap())
        .collect();
    assert_eq!(above.len(), 2, "{above:?}");
    let csv = place.run(&["runs", "--all", "--format", "csv"]).exits(0).stdout;
    let head = csv.lines().next().unwrap();
    for column in ["nll", "perplexity", "kl", "kl_ci95_low", "agreement", "quality"] {
        assert!(head.split(',').any(|name| name == column), "{column}: {head}");
    }
    let run = of("ladder")["run"].as_str().unwrap();
    let shown = place.run(&["show", run]).exits(0).stdout;
    assert!(
        shown.contains("Quality: measured on cpu, text.txt, 6 windows of 16 tokens, TP 1, f32"),
        "{shown}"
    );
    let compared = ["compare", "--by", "architecture", "--value", "kl", "--format", "json"];
    let compared = place.run(&compared).exits(0).stdout;
    assert!(compared.contains("\"kl\""), "{compared}");
    place.run(&[&["figure", "pareto", "-o", "kl.svg"], &axes[..]].concat()).exits(0);
    let figure = std::fs::read_to_string(place.path().join("kl.svg")).unwrap();
    assert!(figure.contains("KL") && figure.len() > 1000);
    // nothing is computed again, and nothing of it is in the records
    let again = place.run(&["sweep", "beside.toml"]).exits(0);
    assert!(again.stderr.contains("[12/12] windows (12 already stored)"), "{again:?}");
}

#[test]
fn runs_of_long_ago_have_the_quality_of_what_is_evaluated_now() {
    let place = place();
    give_weights(&place);
    place.write("beside.toml", &BESIDE.replace("[evaluate]\ntext = \"text.txt\"\ncontext = 16\n", ""));
    let swept = place.run(&["sweep", "beside.toml"]).exits(0);
    assert!(!swept.stderr.contains("quality"), "{swept:?}");
    let kl = |place: &Place| {
        let runs =
            place.run(&["runs", "--all", "--filter", "arch:ladder", "--format", "json"]).exits(0).json();
        runs[0]["quality"]["kl"].as_f64()
    };
    assert_eq!(kl(&place), None);
    let found = json(&place, &["--text", "text.txt", "--architecture", "ladder"]);
    assert_eq!(kl(&place), found["cases"][0]["kl"].as_f64(), "one rank computes what two do");
    // messages in 8 bits are another thing than the ladder without them
    let sent = json(
        &place,
        &["--text", "text.txt", "--architecture", "standard", "--tp", "2", "--comm-dtype", "int8"],
    );
    assert!(sent["cases"][0]["kl"].as_f64().unwrap() > 0.0, "rounded sums are not standard's");
}

#[test]
fn what_an_experiment_says_of_its_evaluation_is_checked_before_anything_runs() {
    let place = place();
    let refused = |from: &str, to: &str, parts: &[&str]| {
        place.write("beside.toml", &BESIDE.replace(from, to));
        let done = place.run(&["sweep", "beside.toml"]).exits(2);
        for part in parts {
            assert!(done.stderr.contains(part), "'{part}' is missing in:\n{}", done.stderr);
        }
    };
    refused(
        "text.txt",
        "gone.txt",
        &["beside.toml:13:8", "gone.txt' is not a file", "experiment file's directory"],
    );
    refused("context = 16", "contxt = 16", &["contxt", "context"]);
    refused("context = 16", "context = 1", &["context is 1", "from 2"]);
    refused("context = 16", "context = 16\ntokens = 9", &["tokens is 9", "16"]);
    refused(
        "text = \"text.txt\"",
        "text = \"text.txt\"\ntokens_file = \"ids.txt\"",
        &["text and tokens_file are both set"],
    );
    assert!(!place.path().join("runs").exists(), "nothing was started");
    // weights that are random have no quality; the cells run
    place.write("beside.toml", BESIDE);
    let done = place.run(&["sweep", "beside.toml"]).exits(0);
    assert!(done.stderr.contains("quality needs trained weights"), "{done:?}");
    // the model of the command line in place of the file's, and the experiment that comes with the program
    let done = place.run(&["sweep", "beside.toml", "--model", "llama-3.2-1b"]).exits(0);
    assert!(done.stderr.contains("llama-3.2-1b: quality needs trained weights"), "{done:?}");
    let done = place.run(&["sweep", "quality"]).exits(0);
    assert!(done.stderr.contains("pass a checkpoint with --model DIR"), "{done:?}");
}

/// Products that round rows to bf16 are for speed alone: quality is not measured with them.
#[cfg(target_arch = "x86_64")]
#[test]
fn products_that_round_are_refused() {
    if !std::is_x86_feature_detected!("avx512bf16") || !std::is_x86_feature_detected!("avx512f") {
        return;
    }
    let place = place();
    let with = |dtype: &str| {
        let arguments = [
            "evaluate",
            "--weights",
            "model",
            "--text",
            "text.txt",
            "--context",
            "16",
            "--dtype",
            dtype,
        ];
        let mut command = place.command(&arguments);
        command.env("LADDERSCOPE_INSTRUCTION_SET", "avx512_bf16");
        crate::support::finish(command)
    };
    let refused = with("bf16").exits(2).stderr;
    assert!(refused.contains("avx512_bf16, which rounds inputs"), "{refused}");
    // weights in f32 are multiplied as they are
    with("f32").exits(0);
}
