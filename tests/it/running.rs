//! Real runs and sweeps of the smallest model, and the verbs that look at what they left.

use crate::support::{Done, Place, number};

const CELL: [&str; 16] = [
    "--model",
    "tiny",
    "--backend",
    "cpu",
    "--tp",
    "2",
    "--prompt-tokens",
    "4",
    "--output-tokens",
    "4",
    "--samples",
    "2",
    "--warmup",
    "0",
    "--format",
    "json",
];

fn run(place: &Place, more: &[&str]) -> Done {
    place.run(&[&["run"], &CELL[..], more].concat())
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

#[test]
fn a_cpu_run_leaves_a_record_that_every_verb_can_read() {
    let place = Place::new();
    let link = "emulated:alpha_us=300,gb_s=1";
    let record = run(&place, &["--architecture", "ladder", "--link", link, "--trace", "t.parquet"])
        .exits(0)
        .json();
    assert_eq!((&record["schema"], &record["status"]), (&1.into(), &"ok".into()), "{record}");
    assert_eq!(record["provenance"], "emulated-link");
    assert_eq!(record["spec"]["architecture"], "ladder");
    assert_eq!(record["spec"]["dtype"], "f32");
    let metrics = &record["metrics"];
    assert_eq!(metrics["samples"], 2);
    assert!(metrics["tokens_per_s_ci95"].is_null(), "two samples have no interval: {metrics}");
    assert!(
        close(number(&metrics["tokens_per_s"]), 4.0 / (number(&metrics["completion_ms"]) / 1e3)),
        "{metrics}"
    );
    assert!(
        close(number(&metrics["tokens_per_s_per_gpu"]) * 2.0, number(&metrics["tokens_per_s"])),
        "{metrics}"
    );
    // 3 decode steps of 8 all-reduces that take 0.3 ms each, at the least.
    assert!(number(&record["overlap"]["comm_ms"]) >= 3.0 * 8.0 * 0.3, "{record}");
    assert!(
        place.path().join("runs").join(record["trace"].as_str().unwrap_or_default()).is_file(),
        "{record}"
    );

    let id = record["run"].as_str().unwrap_or_default();
    let listed = place.run(&["runs", "--format", "json"]).exits(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(listed[0]["run"], id);
    let shown = place.run(&["show", "last", "--format", "json"]).exits(0).json();
    assert_eq!(shown["samples"].as_array().map(Vec::len), Some(2));
    assert!(
        shown["breakdown"]
            .as_array()
            .is_some_and(|rows| rows.iter().any(|row| row["kind"] == "all_reduce"))
    );
    let table = place.run(&["show", id]).exits(0).stdout;
    assert!(table.contains("emulated-link") && table.contains("TPOT"), "{table}");

    // The copy of the trace and the stored one say the same, and agree with the record.
    let of_run = place.run(&["overlap", "last", "--format", "json"]).exits(0).json();
    let of_file = place.run(&["overlap", "t.parquet", "--format", "json"]).exits(0).json();
    assert_eq!(of_run["ranks"], of_file["ranks"]);
    let ranks = of_run["ranks"].as_array().cloned().unwrap_or_default();
    assert_eq!(ranks.len(), 2);
    for rank in &ranks {
        let [comm, overlap, exposed] =
            ["comm_us", "overlap_us", "exposed_comm_us"].map(|key| number(&rank[key]));
        assert!((comm - overlap - exposed).abs() < 0.01, "{rank}");
        assert!(
            (number(&rank["busy_us"]) + number(&rank["idle_us"]) - number(&rank["span_us"])).abs()
                < 0.01
        );
    }
    let step = place.run(&["overlap", "last", "--step", "1", "--format", "json"]).exits(0).json();
    assert!(number(&step["ranks"][0]["comm_us"]) < number(&ranks[0]["comm_us"]), "{step}");
    assert!(place.run(&["overlap", "last", "--step", "3"]).exits(2).stderr.contains("0 to 2"));

    place.run(&["timeline", "last", "--export", "f.svg"]).exits(0);
    let figure = std::fs::read_to_string(place.path().join("f.svg")).unwrap_or_default();
    assert!(figure.contains("<svg") && figure.contains("emulated"), "a figure that says what it shows");
}

#[test]
fn a_cell_that_cannot_run_is_printed_with_the_reason_and_not_started() {
    let place = Place::new();
    let arguments = ["run", "--model", "tiny", "--backend", "sim", "--tp", "3", "--format", "json"];
    let done = place.run(&arguments).exits(2);
    let record = done.json();
    assert_eq!(record["status"], "skipped", "{record}");
    assert!(
        record["reason"].as_str().is_some_and(|why| why.contains('3') && why.contains('8')),
        "{record}"
    );
    assert!(record["metrics"].is_null() && record["overlap"].is_null(), "{record}");
    let arguments =
        ["run", "--model", "llama-3.1-405b", "--backend", "sim", "--tp", "1", "--format", "json"];
    let record = place.run(&arguments).exits(2).json();
    assert_eq!(record["status"], "oom", "{record}");
    assert!(record["reason"].as_str().is_some_and(|why| why.contains("GB")), "{record}");
}

#[test]
fn a_simulated_run_is_labelled_and_repeats_itself() {
    let place = Place::new();
    let arguments = [
        "run",
        "--model",
        "llama-3-8b",
        "--backend",
        "sim",
        "--tp",
        "2",
        "--output-tokens",
        "8",
        "--architecture",
        "ladder",
        "--trace",
        "sim.parquet",
        "--format",
        "json",
    ];
    let first = place.run(&arguments).exits(0).json();
    assert_eq!(first["provenance"], "simulated");
    assert_eq!(place.run(&arguments).exits(0).json()["metrics"], first["metrics"]);
    let shown = place.run(&["show", "last"]).exits(0).stdout;
    assert!(shown.contains("simulated"), "{shown}");
    // Simulated runs keep no trace: it is made again, the same.
    let again = place.run(&["overlap", "last", "--format", "json"]).exits(0).json();
    let written = place.run(&["overlap", "sim.parquet", "--format", "json"]).exits(0).json();
    assert_eq!(again["ranks"], written["ranks"]);
}

const SWEEP: &str = "\
question = \"What does ladder gain?\"
backend = \"cpu\"
link = \"emulated:alpha_us=200,gb_s=10\"
[model]
name = \"tiny\"
[workload]
prompt_tokens = 4
output_tokens = 4
samples = 3
warmup = 0
rounds = 2
[grid]
architecture = [\"standard\", \"ladder\"]
tp = [2, 3]
";

#[test]
fn a_sweep_prints_every_cell_in_file_order_and_runs_none_twice() {
    let place = Place::new();
    place.write("s.toml", SWEEP);
    let first = place.run(&["sweep", "s.toml", "--format", "json"]).exits(0).json_lines();
    let cells: Vec<_> = first
        .iter()
        .map(|r| (r["spec"]["architecture"].as_str(), r["spec"]["tp"].as_u64(), r["status"].as_str()))
        .collect();
    let (standard, ladder) = (Some("standard"), Some("ladder"));
    assert_eq!(
        cells,
        [
            (standard, Some(2), Some("ok")),
            (standard, Some(3), Some("skipped")),
            (ladder, Some(2), Some("ok")),
            (ladder, Some(3), Some("skipped")),
        ]
    );
    // Two rounds of three samples are pooled.
    assert_eq!(first[0]["metrics"]["samples"], 6);
    assert_eq!(first[0]["runs"].as_array().map(Vec::len), Some(2));

    let second = place.run(&["sweep", "s.toml", "--format", "json"]).exits(0).json_lines();
    assert_eq!(second[0]["runs"], first[0]["runs"], "finished cells are not run again");
    assert_eq!(second[2]["metrics"], first[2]["metrics"]);
    let ok = place
        .run(&["runs", "--status", "ok", "--filter", "ladder tp=2", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(ok.as_array().map(Vec::len), Some(2));

    let report = place.run(&["compare", "--by", "architecture", "--format", "json"]).exits(0).json();
    assert_eq!(report["pairs"].as_array().map(Vec::len), Some(1), "{report}");
    let pair = &report["pairs"][0];
    assert_eq!((&pair["baseline"], &pair["value"]), (&"standard".into(), &"ladder".into()));
    assert_eq!(pair["provenance"], "emulated-link");
    let points = place.run(&["pareto", "--format", "json", "--export", "p.csv"]).exits(0).json();
    assert_eq!(points.as_array().map(Vec::len), Some(2), "{points}");
    let csv = std::fs::read_to_string(place.path().join("p.csv")).unwrap_or_default();
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

#[test]
fn generation_does_not_depend_on_tp() {
    let place = Place::new();
    // A checkpoint of a shape alone: its weights are random, from a seed.
    place.write(
        "model/config.json",
        r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": false}"#,
    );
    place.write("prompts", "1 2 3 4\n5\n");
    let generate = |tp: &str| {
        let arguments = [
            "generate",
            "--weights",
            "model",
            "--prompt-tokens-file",
            "prompts",
            "--output-tokens",
            "6",
            "--tp",
            tp,
            "--format",
            "json",
        ];
        place.run(&arguments).exits(0).json()
    };
    let one = generate("1");
    assert_eq!(one["prompt_tokens"], serde_json::json!([[1, 2, 3, 4], [5]]));
    assert_eq!(one["text"], serde_json::json!(["", ""]), "no tokenizer, no text");
    assert!(one["nll"][0].as_f64().is_some_and(|nll| nll > 0.0) && one["nll"][1].is_null(), "{one}");
    for prompt in 0..2 {
        assert_eq!(one["tokens"][prompt].as_array().map(Vec::len), Some(6));
        assert_eq!(one["top_logits"][prompt].as_array().map(Vec::len), Some(5));
        assert_eq!(
            one["top_logits"][prompt][0][0], one["tokens"][prompt][0],
            "greedy takes the highest"
        );
    }
    assert_eq!(generate("2")["tokens"], one["tokens"]);
}

/// What stands in a file that a cell names belongs to the cell: who changes the file has another one.
#[test]
fn a_changed_profile_stack_or_model_is_another_cell() {
    let place = Place::new();
    let profile = place.run(&["hardware", "h100_sxm", "--toml"]).exits(0).stdout;
    place.write("mine.toml", &profile);
    place.write(
        "e.toml",
        "backend = \"sim\"\nhardware = \"mine.toml\"\n[model]\nname = \"llama-3-8b\"\n[workload]\nprompt_tokens = 64\n\
         output_tokens = 8\n[grid]\narchitecture = [\"standard\", \"ladder\"]\ntp = [4]\n",
    );
    let sweep = || place.run(&["sweep", "e.toml"]).exits(0).stderr;
    sweep();
    let told = sweep();
    assert!(told.contains("already stored"), "the file is as it was: {told}");
    let faster = profile.replace("hbm_gb_s = 3350", "hbm_gb_s = 6700");
    assert_ne!(faster, profile, "{profile}");
    place.write("mine.toml", &faster);
    let run = |architecture| {
        let arguments = format!(
            "run --backend sim --model llama-3-8b --tp 4 --hardware mine.toml --prompt-tokens 64 --output-tokens 8 \
             --format json --architecture {architecture}"
        );
        place.run(&arguments.split_whitespace().collect::<Vec<_>>()).exits(0).json()
    };
    let changed = run("ladder");
    assert!(changed["spec"]["files"]["hardware"].is_string(), "{changed}");
    // the old standard is no baseline of the new ladder
    let compared = place.run(&["compare", "--by", "architecture", "--format", "json"]).exits(0);
    assert_eq!(compared.json()["pairs"].as_array().map(Vec::len), Some(1), "{compared:?}");
    let stored = place.run(&["runs", "--format", "json"]).exits(0).json();
    let mut stored = stored.as_array().into_iter().flatten();
    let old = stored.find(|run| run["run"] != changed["run"]).expect("an old run");
    let refused = place.run(&["overlap", old["run"].as_str().expect("an id")]).exits(2);
    assert!(refused.stderr.contains("was changed since"), "{refused:?}");
    // of both cells, which are others now, one was run
    let told = sweep();
    assert!(!told.contains("already stored"), "{told}");
}

/// A closed loop of requests: tokens wait for prefills, requests for cache, and a stack without a scheduler refuses.
#[test]
fn a_served_cell_is_slower_than_a_static_batch_and_says_what_waits() {
    let place = Place::new();
    let run = |line: &str| {
        let line = format!("run --model qwen3-32b --hardware h100_sxm --prompt-tokens 4096 {line}");
        place.run(&line.split_whitespace().collect::<Vec<_>>())
    };
    let tpot = |line: &str| {
        let json = run(&format!("{line} --format json")).exits(0).json();
        let [tpot, prefill] =
            [&json["metrics"]["tpot_ms"]["p50"], &json["metrics"]["prefill_ms"]].map(|ms| ms.as_f64());
        (tpot.unwrap_or_default(), prefill.unwrap_or_default(), json)
    };
    let engine = "--stack vllm-0.12 --collective one-shot --output-tokens 256";
    let (still, _, _) = tpot(&format!("{engine} --tp 4 --batch 16"));
    let (served, ttft, json) = tpot(&format!("{engine} --tp 4 --concurrency 16"));
    let spec = &json["spec"];
    assert_eq!((spec["concurrency"].as_u64(), spec["batch"].as_u64()), (Some(16), Some(16)));
    assert!(served > 1.2 * still, "prefills delay tokens: {served} {still}");
    assert!(ttft > 0.0 && json["warnings"].as_array().is_none_or(Vec::is_empty), "{json}");
    let (_, queue, json) = tpot(&format!("{engine} --tp 2 --concurrency 128"));
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("requests wait for KV cache"), "{warnings}");
    assert!(queue > 10.0 * ttft, "{queue} {ttft}");
    let refused = run("--tp 4 --concurrency 16 --stack native").exits(2).stderr;
    assert!(refused.contains("static batches only") && refused.contains("vllm-0.12"), "{refused}");
    let refused = run(&format!("{engine} --tp 4 --concurrency 16 --batch 8")).exits(2).stderr;
    assert!(refused.contains("batch 8 contradicts concurrency 16"), "{refused}");
    let runs = place.run(&["runs", "--all"]).exits(0);
    assert!(runs.stderr.contains("vLLM 0.12 on h100_sxm"), "{}", runs.stderr);
}
