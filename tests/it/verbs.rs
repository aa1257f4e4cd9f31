//! Verbs that need no run: what is built in, what this machine can do, schemas, completions.

use crate::support::Place;

#[test]
fn models_have_the_contracts_shapes() {
    let models = Place::new().run(&["models", "--format", "json"]).exits(0).json();
    let of = |name: &str| {
        models
            .as_array()
            .and_then(|all| all.iter().find(|m| m["name"] == name).cloned())
            .unwrap_or_default()
    };
    let shape = |name: &str| {
        ["layers", "hidden", "heads", "kv_heads", "mlp", "vocabulary"]
            .map(|key| of(name)[key].as_u64().unwrap_or(0))
    };
    assert_eq!(shape("llama-3-70b"), [80, 8192, 64, 8, 28672, 128_256]);
    assert_eq!(shape("llama-3.1-405b"), [126, 16384, 128, 16, 53248, 128_256]);
    assert_eq!(shape("tiny"), [4, 64, 8, 4, 160, 256]);
    assert_eq!(shape("mini"), [8, 192, 6, 6, 512, 256]);
    assert_eq!(shape("internlm-20b"), [60, 5120, 40, 40, 13824, 103_168]);
    assert_eq!(shape("qwen2.5-72b-instruct"), [80, 8192, 64, 8, 29568, 152_064]);
    assert!(
        of("bloom-176b")["note"].as_str().is_some_and(|note| note.contains("216")),
        "says what it is"
    );
    assert_eq!(models.as_array().map(Vec::len), Some(33));
}

#[test]
fn csv_has_a_header_and_a_line_a_model() {
    let csv = Place::new().run(&["models", "--format", "csv"]).exits(0).stdout;
    let mut lines = csv.lines();
    let header = "name,layers,hidden,heads,kv_heads,mlp,experts,top_k,vocabulary,parameters,note";
    assert_eq!(lines.next(), Some(header));
    assert!(lines.clone().any(|line| line.contains(",2880,128,4,201088,")), "gpt-oss-120b in {csv}");
    assert!(lines.clone().any(|line| line.starts_with("tiny,4,64,8,4,160,,,256,")), "{csv}");
    assert_eq!(lines.count(), 33);
}

#[test]
fn hardware_names_its_sources() {
    let profiles = Place::new().run(&["hardware", "--format", "json"]).exits(0).json();
    let profiles = profiles.as_array().cloned().unwrap_or_default();
    assert!(profiles.iter().any(|profile| profile["name"] == "h100_sxm"));
    for profile in &profiles {
        assert!(profile["sources"].as_array().is_some_and(|sources| !sources.is_empty()), "{profile}");
        assert_eq!(profile["links"].as_array().map(Vec::len), Some(6), "{profile}");
    }
    let one = Place::new().run(&["hardware", "h100_sxm"]).exits(0).stdout;
    assert!(one.contains("h100_sxm") && !one.contains("a100_sxm"), "{one}");
    let list = Place::new().run(&["hardware"]).exits(0).stdout;
    let named = |profile: &serde_json::Value| list.contains(profile["name"].as_str().unwrap_or("-"));
    assert!(profiles.len() >= 15 && profiles.iter().all(named), "{list}");
}

#[test]
fn hardware_profiles_are_compared_side_by_side() {
    let place = Place::new();
    let text = place.run(&["hardware", "h100_sxm", "b200_sxm", "rtx_4090"]).exits(0).stdout;
    let row = |name: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        line.trim().trim_start_matches(name).split_whitespace().collect()
    };
    assert_eq!(row("bf16 TFLOP/s"), ["989", "2250", "165"], "{text}");
    assert_eq!(row("fp4 TFLOP/s"), ["-", "9000", "-"], "{text}");
    assert_eq!(row("sustained bandwidth (GB/s)"), ["2948", "6320", "847"], "{text}");
    let compared = place.run(&["hardware", "h100_sxm", "b200_sxm", "--format", "json"]).exits(0).json();
    let one = place.run(&["hardware", "b200_sxm", "--format", "json"]).exits(0).json();
    assert_eq!((compared.as_array().map(Vec::len), &compared[1]), (Some(2), &one[0]));
    let told = place.run(&["hardware", "h100_sxm", "b200_sxm", "--toml"]).exits(2).stderr;
    assert!(told.contains("--toml prints one profile"), "{told}");
}

#[test]
fn experiments_are_found_and_broken_ones_do_not_hide_the_others() {
    let place = Place::new();
    let names = |list: &serde_json::Value| -> Vec<String> {
        let list = list.as_array().cloned().unwrap_or_default();
        list.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let built_ins = [
        "quickstart",
        "p2p",
        "paper-70b",
        "paper-405b",
        "pipeline",
        "model-sizes",
        "collective",
        "staleness",
        "delayed",
        "micro-batches",
        "micro-by-latency",
        "sequence-parallel",
        "gain-by-latency",
        "quality",
        "rivals",
        "today",
        "moe",
        "farskip",
        "from-scratch",
    ];
    let built_in = place.run(&["experiments", "--format", "json"]).exits(0).json();
    assert_eq!(names(&built_in), built_ins);
    // the store that a first sweep makes does not hide the experiment of its name
    for _ in 0..2 {
        place.run(&["sweep", "p2p", "--dir", "p2p"]).exits(0);
    }
    place.write(
        "experiments/good.toml",
        "question = \"Which?\"\nbackend = \"sim\"\n[model]\nname = \"tiny\"\n[grid]\narchitecture = [\"standard\", \"ladder\"]\ntp = [2, 3]\n",
    );
    place.write("experiments/bad.toml", "backend = \"simm\"\n");
    let done = place.run(&["experiments", "--format", "json"]).exits(0);
    let list = done.json();
    assert_eq!(names(&list), [&["good"], &built_ins[..]].concat());
    assert_eq!(list[0]["question"], "Which?");
    assert_eq!(
        (&list[0]["cells"], &list[0]["can_run"]),
        (&4.into(), &2.into()),
        "TP 3 does not divide 8 heads"
    );
    assert!(done.stderr.contains("simm"), "{done:?}");
}

#[test]
fn doctor_reports_and_never_fails() {
    let report = Place::new().run(&["doctor", "--format", "json"]).exits(0).json();
    for key in [
        "cpu",
        "memory",
        "memory_bandwidth",
        "timer",
        "cuda",
        "nccl",
        "nvtx",
        "terminal",
        "disk",
        "backends",
    ] {
        assert!(report.get(key).is_some(), "{key} is missing in {report}");
    }
    let bandwidth = &report["memory_bandwidth"];
    for key in ["one_thread_gb_s", "all_threads_gb_s"] {
        assert!(bandwidth[key].as_f64().is_some_and(|gb_s| gb_s > 0.0), "{bandwidth}");
    }
    let sim = &report["backends"][0];
    assert_eq!((&sim["name"], &sim["available"]), (&"sim".into(), &true.into()));
    let table = Place::new().run(&["doctor"]).exits(0).stdout;
    assert!(table.contains("Backends") && table.contains("GB/s"), "{table}");
}

#[test]
fn schemas_are_json_schemas_with_the_contracts_keys() {
    let record = Place::new().run(&["schema", "record"]).exits(0).json();
    for key in [
        "schema",
        "run",
        "status",
        "reason",
        "spec",
        "provenance",
        "metrics",
        "overlap",
        "environment",
        "trace",
    ] {
        assert!(record["properties"].get(key).is_some(), "{key} is missing");
    }
    let experiment = Place::new().run(&["schema", "experiment"]).exits(0).json();
    for key in ["question", "model", "workload", "grid", "links", "env"] {
        assert!(experiment["properties"].get(key).is_some(), "{key} is missing in {experiment}");
    }
    let hardware = Place::new().run(&["schema", "hardware"]).exits(0).json();
    for key in ["name", "memory_gb", "gpus_per_node", "sources", "link"] {
        assert!(hardware["properties"].get(key).is_some(), "{key} is missing in {hardware}");
    }
}

#[test]
fn completions_know_the_verbs_and_options_of_each_shell() {
    for (shell, option) in
        [("bash", "--prompt-tokens"), ("zsh", "--prompt-tokens"), ("fish", "prompt-tokens")]
    {
        let script = Place::new().run(&["completions", shell]).exits(0).stdout;
        for part in ["sweep", "timeline", option] {
            assert!(script.contains(part), "{shell}: '{part}' is missing");
        }
    }
}

#[test]
fn without_a_terminal_there_is_a_summary() {
    let done = Place::new().run(&[]).exits(0);
    for part in ["Ladderscope", "0 stored runs in runs", "ladderscope run", "ladderscope --help"] {
        assert!(done.stdout.contains(part), "'{part}' is missing in {}", done.stdout);
    }
    assert!(Place::new().run(&["--dir", "elsewhere"]).exits(0).stdout.contains("in elsewhere"));
}

#[test]
fn an_empty_store_is_no_error() {
    let place = Place::new();
    assert_eq!(place.run(&["runs", "--format", "json"]).exits(0).json(), serde_json::json!([]));
    assert_eq!(place.run(&["pareto", "--format", "json"]).exits(0).json(), serde_json::json!([]));
    assert!(place.run(&["show", "last"]).exits(2).stderr.contains("no runs"));
    assert!(!place.path().join("runs").exists(), "looking makes nothing");
}

#[test]
fn output_that_nobody_reads_any_more_is_no_error() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_ladderscope");
    let script = format!(
        "set -o pipefail; '{binary}' completions bash | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    );
    let output =
        assert_cmd::Command::new("bash").current_dir(place.path()).args(["-c", &script]).output();
    let output = output.expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// What bash completes a line to, by the script and the program itself.
fn completed(place: &Place, line: &str) -> Vec<String> {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_ladderscope"));
    let folder = binary.parent().expect("a folder").display();
    // bash parts words at colons and equal signs outside of quotes
    let token = match line.contains('\'') {
        true => line.rsplit(' ').next(),
        false => line.rsplit([' ', ':', '=']).next(),
    };
    let token = token.unwrap_or_default();
    let script = format!(
        "PATH={folder}:$PATH; source <(ladderscope completions bash); COMP_WORDS=(ladderscope); \
         COMP_LINE=\"{line}\" COMP_POINT=${{#COMP_LINE}}; COMP_LINE=\"{line}\"; COMP_POINT=${{#COMP_LINE}}; \
         _ladderscope_live ladderscope '{token}' x 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output =
        assert_cmd::Command::new("bash").current_dir(place.path()).args(["-c", &script]).output();
    let output = output.expect("bash runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_values_and_stored_runs() {
    let place = Place::new();
    assert_eq!(completed(&place, "ladderscope pare"), ["pareto"]);
    assert_eq!(completed(&place, "ladderscope run --hardware h200"), ["h200_sxm"]);
    assert_eq!(completed(&place, "ladderscope runs --filter arch:up"), ["upper-bound"]);
    assert_eq!(completed(&place, "ladderscope sweep quick"), ["quickstart"]);
    place.write("experiments/mine.toml", "");
    assert_eq!(completed(&place, "ladderscope sweep mi"), ["mine", "micro-batches", "micro-by-latency"]);
    let run =
        ["run", "--backend", "sim", "--model", "tiny", "--hardware", "h100_sxm", "--format", "json"];
    let id = place.run(&run).exits(0).json()["run"].as_str().expect("an id").to_owned();
    let batch = id.split(':').next().expect("a batch").to_owned();
    assert_eq!(completed(&place, "ladderscope show "), ["last".to_owned(), batch.clone()]);
    assert_eq!(completed(&place, &format!("ladderscope show {}", &batch[..6])), [batch]);
}

#[test]
fn completions_are_fast_in_a_large_store() {
    let place = Place::new();
    for run in 0..5_000 {
        place.write(&format!("runs/20260101-{run:06}-standard-abcdef/record.json"), "{}");
    }
    for line in [
        "ladderscope show 2026",
        "ladderscope runs --filter 'tp:4 arch:la",
        "ladderscope runs --columns t",
    ] {
        let asked = || {
            let began = std::time::Instant::now();
            let stdout = place.run(&["__complete", line]).exits(0).stdout;
            assert!(!stdout.is_empty(), "{line}");
            began.elapsed().as_millis()
        };
        // a machine that is shared has slow moments; a development build is several times slower
        let best = (0..5).map(|_| asked()).min().expect("some");
        assert!(best < 400, "{line}: {best} ms");
    }
}
