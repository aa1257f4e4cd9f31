//! `validate` as a user meets it: the scorecard, rows of a file, what is refused. What `calibrate` writes.

use crate::support::Place;

const HEADER: &str = "model,tp,batch,prompt_tokens,output_tokens,tokens_per_s";

#[test]
fn a_scorecard_says_how_far_off_and_what_was_fitted() {
    let place = Place::new();
    let card = place.run(&["validate", "decode_a100_gptfast"]).exits(0).stdout;
    for part in ["tokens/s", "mean error", "a100_mesh, stack gpt-fast", "fitted", "unknown", "simulated"]
    {
        assert!(card.contains(part), "{part}: {card}");
    }
    let json = place.run(&["validate", "DECODE_A100_GPTFAST", "--format", "json"]).exits(0).json();
    let set = &json["sets"][0];
    assert_eq!((set["rows"].as_u64(), set["not_run"].as_u64()), (Some(7), Some(0)));
    let (mean, max) = (&set["mean_abs_pct"], &set["max_abs_pct"]);
    assert!(mean["tokens_per_s"].as_f64().is_some_and(|pct| pct > 0.0 && pct < 3.0), "{mean}");
    assert!(max["tokens_per_s"].as_f64() >= mean["tokens_per_s"].as_f64());
    for none in ["tpot", "prefill", "speedup"] {
        assert!(mean[none].is_null() && max[none].is_null() && mean.get(none).is_some(), "{none}");
    }
    let csv = place.run(&["validate", "decode_a100_gptfast", "--format", "csv"]).exits(0).stdout;
    assert_eq!(
        csv.lines().next(),
        Some("set,line,cell,measure,measured,predicted,error,predicted_provenance")
    );
    assert_eq!(csv.lines().count(), 8);
}

#[test]
fn rows_of_a_file_are_scored_as_the_set_and_what_cannot_run_is_told() {
    let place = Place::new();
    place.write("mine.csv", &format!("{HEADER}\nTiny,2,1,5,8,1000\nsmall,2,1,5,8,1000\n"));
    let done = place.run(&["validate", "--data", "mine.csv", "--format", "json"]).exits(0);
    let json = done.json();
    let set = &json["sets"][0];
    assert_eq!(set["name"], "decode_a100_gptfast");
    assert_eq!((set["rows"].as_u64(), set["not_run"].as_u64()), (Some(2), Some(1)));
    assert!(done.stderr.contains("line 3: skipped") && done.stderr.contains("small"), "{}", done.stderr);
    // a machine with a 200th of the bandwidth is slower
    let tokens = |more: &[&str]| {
        let args = [&["validate", "--csv", "mine.csv", "--format", "json"], more].concat();
        let value = place.run(&args).exits(0).json();
        value["sets"][0]["residuals"][0]["predicted"].as_f64().unwrap_or_default()
    };
    assert!(tokens(&["--set", "hbm_gb_s=10"]) < tokens(&[]));
    // nothing of what is known of the set's rows is said of these
    assert!(
        set["fitted"].is_null() && set["published"] == false && set["source"] == "mine.csv",
        "{set}"
    );
    assert_eq!(set["unknown"].as_array().map(Vec::len), Some(0));
    let args = ["validate", "--csv", "mine.csv", "--set", "hbm_gb_s=10", "--export", "own.svg"];
    let card = place.run(&args).exits(0);
    assert!(card.stdout.contains("hbm_gb_s=10") && card.stdout.contains("source    mine.csv"));
    assert!(!card.stdout.contains("gpt-fast, README") && !card.stdout.contains("unknown"));
    assert!(!card.stderr.contains("published"), "{}", card.stderr);
    // the paper's runs as other files have them, with sums over steps in seconds
    let header =
        "model,architecture,tp,batch,p2p,prompt_tokens,output_tokens,tokens_per_s,decode_s,prefill_s";
    let rows = "1b,standard,2,1,on,16,8,1000,0.1,0.01\n1b,ladder,2,1,on,16,8,1100,0.1,0.01";
    place.write("paper.csv", &format!("{header}\n{rows}\n"));
    let paper = place.run(&["validate", "--csv", "paper.csv", "--format", "json"]).exits(0).json();
    let (set, mean) = (&paper["sets"][0], &paper["sets"][0]["mean_abs_pct"]);
    assert_eq!((set["name"].as_str(), set["rows"].as_u64()), (Some("paper_70b"), Some(2)));
    assert!(mean["tokens_per_s"].is_number() && mean["speedup"].is_number(), "{mean}");
    let measured = |measure: &str| {
        let all = set["residuals"].as_array().expect("they are listed").iter();
        all.filter(|r| r["measure"] == measure)
            .map(|r| r["measured"].as_f64().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    assert_eq!(measured("prefill"), [10.0, 10.0]);
    assert!(measured("tpot").iter().all(|ms| (ms - 100.0 / 7.0).abs() < 1e-9), "{:?}", measured("tpot"));
    let refused = place.run(&["validate", "prefill_h100", "--csv", "mine.csv"]).exits(2).stderr;
    assert!(refused.contains("mine.csv:1") && refused.contains("batch"), "{refused}");
    place.write("other.csv", "a,b\n1,2\n");
    let refused = place.run(&["validate", "--csv", "other.csv"]).exits(2).stderr;
    assert!(refused.contains("other.csv") && refused.contains("no data set"), "{refused}");
    let refused = place.run(&["validate", "paper_70b", "--left-out"]).exits(2).stderr;
    assert!(refused.contains("--left-out is for serving_dense"), "{refused}");
    let refused = place.run(&["validate", "paper_70"]).exits(2).stderr;
    assert!(refused.contains("did you mean 'paper_70b'"), "{refused}");
}

#[test]
fn errors_are_drawn_and_a_report_of_the_same_machine_has_them() {
    let place = Place::new();
    let args = ["validate", "decode_a100_gptfast", "--export", "errors.svg"];
    let done = place.run(&args).exits(0);
    assert!(done.stderr.contains("wrote errors.svg"), "{}", done.stderr);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect("written");
    let svg = read("errors.svg");
    assert!(svg.contains("Simulator error against published data"), "{svg}");
    let refused = place.run(&["validate", "--export", "errors.jpg"]).exits(2).stderr;
    assert!(refused.contains("svg"), "{refused}");
    let run =
        ["run", "--backend", "sim", "--model", "tiny", "--tp", "2", "--stack", "gpt-fast", "--hardware"];
    let page = |hardware: &str, dir: &str, more: &[&str]| {
        place.run(&[&run[..], &[hardware, "--dir", dir], more].concat()).exits(0);
        let file = format!("{dir}.html");
        place.run(&["report", "-o", &file, "--dir", dir]).exits(0);
        read(&file)
    };
    let has = |hardware: &str, dir: &str, more: &[&str]| {
        page(hardware, dir, more).contains("Simulator accuracy")
    };
    assert!(has("a100_mesh", "mesh", &[]));
    assert!(!has("l40s", "l40s", &[]));
    // not what was held against anything
    assert!(!has("a100_mesh", "set", &["--set", "hbm_gb_s=100"]));
    assert!(!has("a100_mesh", "emulated", &["--link", "emulated:alpha_us=5,gb_s=100"]));
}

#[test]
fn a_constant_of_the_machine_is_written_into_its_profile() {
    let place = Place::new();
    let rows =
        ["2,1,on,64,32,500", "4,1,on,64,32,600"].map(|row| format!("llama-3.2-1b,standard,{row}\n"));
    let header = "model,architecture,tp,batch,p2p,prompt_tokens,output_tokens,tokens_per_s";
    place.write("runs.csv", &format!("{header}\n{}", rows.concat()));
    let args =
        ["--stack", "gpt-fast", "--fit", "matvec_scale", "--no-cross-validation", "--write", "fitted"];
    place
        .run(&[&["calibrate", "--data", "runs.csv", "--hardware", "h100_sxm"], &args[..]].concat())
        .exits(0);
    let value = |name: &str| {
        let text = std::fs::read_to_string(place.path().join("fitted").join(name)).expect("written");
        text.lines().find(|line| line.starts_with("matvec_scale = ")).map(str::to_owned)
    };
    assert!(value("h100_sxm.toml").is_some_and(|line| line != "matvec_scale = 1.0"));
    assert_eq!(value("gpt-fast.toml"), None);
}

/// What nccl-tests prints over so many GPUs where each message takes so many times the latency of the built-in profile.
pub fn all_reduce_perf(ranks: u32, times: f64) -> String {
    let mut text =
        String::from("# nThread 1 nGpus 1 minBytes 8 maxBytes 268435456 step: 2(factor) graph: 1\n");
    for rank in 0..ranks {
        text += &format!(
            "#  Rank  {rank} Group  0 Pid  99 on node-a device  {rank} [0000:1b:00] NVIDIA H100 80GB HBM3\n"
        );
    }
    text += "# Collective test starting: all_reduce_perf\n#      out-of-place   in-place\n\
             # size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n\
             # (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n";
    for power in 10..=28 {
        let bytes = 1_u64 << power;
        let us = times * (16.0 + bytes as f64 / 2.6e5);
        let algorithm = bytes as f64 / us / 1e3;
        let bus = algorithm * 2.0 * f64::from(ranks - 1) / f64::from(ranks);
        let columns = format!("{us:.2} {algorithm:.2} {bus:.2} 0");
        text += &format!("{bytes} {} float sum -1 {columns} {columns}\n", bytes / 4);
    }
    text
}

#[test]
fn measured_all_reduces_become_a_profile_that_predicts_with_them() {
    let place = Place::new();
    place.write("eight.txt", &all_reduce_perf(8, 3.0));
    place.write("four.txt", &all_reduce_perf(4, 1.0));
    let both = ["calibrate", "--collectives", "eight.txt,four.txt"];
    let done = place.run(&[&both[..], &["--write", "mine"]].concat()).exits(0);
    assert!(
        done.stdout.contains("Not measured, kept from h100_sxm: all-reduces with P2P on at TP 2;"),
        "{done:?}"
    );
    let told = place.run(&[&both[..], &["--format", "json"]].concat()).exits(0).json();
    assert_eq!(
        (&told["profile"], &told["p2p"], &told["tp"][1]["graph"]),
        (&"h100_sxm".into(), &"on".into(), &true.into())
    );
    let alpha = told["tp"][1]["alpha_us"].as_f64().unwrap();
    assert!((alpha - 48.0).abs() < 1.0, "{told}");
    let run = |hardware: &str, tp: &str| {
        let cell = ["run", "--backend", "sim", "--model", "llama-3-70b", "--architecture", "standard"];
        let on = ["--hardware", hardware, "--tp", tp, "--format", "json"];
        let record = place.run(&[&cell[..], &on].concat()).exits(0).json();
        record["metrics"]["tpot_ms"]["p50"].as_f64().unwrap()
    };
    let (built_in, mine) = (run("h100_sxm", "8"), run("mine/h100_sxm.toml", "8"));
    // 160 all-reduces of 16 KB, each some 32 us slower, of which the stack makes a quarter more
    assert!((mine - built_in - 1.25 * 5.05).abs() < 0.2, "{built_in} {mine}");
    // what was not measured stays
    assert_eq!(run("h100_sxm", "2"), run("mine/h100_sxm.toml", "2"));
    let profile = std::fs::read_to_string(place.path().join("mine/h100_sxm.toml")).unwrap();
    assert!(profile.contains("nccl-tests, eight.txt, in CUDA graphs"), "{profile}");
    assert!(profile.contains("# H100 SXM5 80 GB."), "comments stay: {profile}");
    // the same number of GPUs twice, a GPU that nobody knows
    let twice = place.run(&["calibrate", "--collectives", "four.txt,four.txt"]).exits(2);
    assert!(twice.stderr.contains("were both measured on 4 GPUs"), "{twice:?}");
    place.write("h200.txt", &all_reduce_perf(8, 1.0).replace("H100 80GB HBM3", "H200"));
    let mixed = place.run(&["calibrate", "--collectives", "four.txt,h200.txt"]).exits(2);
    assert!(mixed.stderr.contains("different GPUs: NVIDIA H100 80GB HBM3, NVIDIA H200"), "{mixed:?}");
    place.write("other.txt", &all_reduce_perf(4, 1.0).replace("H100 80GB HBM3", "Quadro 6000"));
    let other = place.run(&["calibrate", "--collectives", "other.txt"]).exits(2);
    assert!(other.stderr.contains("no built-in profile for this GPU: NVIDIA Quadro 6000"), "{other:?}");
}

#[test]
fn all_reduces_of_another_gpu_than_the_profiles_are_pointed_out() {
    let place = Place::new();
    let built_in = place.run(&["hardware", "h100_sxm", "--toml"]).exits(0).stdout;
    place.write("own.toml", &built_in.replacen("name = \"h100_sxm\"", "name = \"my-h100-box\"", 1));
    let warned = |gpu: &str, hardware: &str| {
        place.write("four.txt", &all_reduce_perf(4, 1.0).replace("NVIDIA H100 80GB HBM3", gpu));
        let words = ["calibrate", "--collectives", "four.txt", "--hardware", hardware];
        let said = place.run(&words).exits(0).stderr;
        let used = "but used for the links of";
        assert!(said.contains(used) <= said.contains(&format!("measured on {gpu}, ")), "{said}");
        said.contains(used)
    };
    for (gpu, hardware, is_other) in [
        ("NVIDIA H100 80GB HBM3", "h100_sxm", false),
        ("NVIDIA H100 80GB HBM3", "own.toml", false),
        ("NVIDIA H200", "h100_sxm", true),
        ("NVIDIA H200", "own.toml", true),
        ("NVIDIA GeForce RTX 4090", "h100_sxm", true),
        ("NVIDIA GeForce RTX 4090", "l40s", true),
    ] {
        assert_eq!(warned(gpu, hardware), is_other, "{gpu} and {hardware}");
    }
}

/// One TP of another GPU says nothing of other TPs: their cells are skipped, or extrapolated where that is asked for,
/// and everything that shows them says so.
#[test]
fn a_link_is_extrapolated_to_other_tps_only_where_asked_for() {
    let place = Place::new();
    let mine = |ranks| all_reduce_perf(ranks, 1.0).replace("H100 80GB HBM3", "GeForce RTX 4090");
    place.write("two.txt", &mine(2));
    place.write("four.txt", &mine(4).replacen("# nThread", "[1,0]<stdout>: loading\n# nThread", 1));
    let calibrate = |files: &str, more: &str| {
        let words = format!("calibrate --collectives {files} --hardware l40s --format json {more}");
        place.run(&words.split_whitespace().collect::<Vec<_>>()).exits(0).json()
    };
    let run = |hardware: &str, tp: &str| {
        let cell = ["run", "--backend", "sim", "--model", "llama-3-8b", "--format", "json"];
        place.run(&[&cell[..], &["--hardware", hardware, "--tp", tp]].concat())
    };
    let told = calibrate("four.txt", "--write one");
    let others = ["TP 2 not measured (only TP 4 was)", "TP 8 not measured (only TP 4 was)"];
    assert_eq!(told["other_tps"], serde_json::json!(others), "{told}");
    // measured, and charged by stacks
    let measured = told["tp"][0]["points"][4]["us"].as_f64().unwrap();
    let by = |stack: &str| {
        let all = told["tp"][0]["charged"].as_array().unwrap();
        let one = all.iter().find(|charged| charged["stack"] == stack).unwrap();
        one["us_16384"].as_f64().unwrap()
    };
    assert_eq!(told["tp"][0]["points"][4]["bytes"], 16_384);
    assert!((by("vllm-0.8") - measured).abs() < 0.02, "{told}");
    assert!((by("gpt-fast") / measured - 1.485).abs() < 0.01, "{told}");
    let skipped = run("one/l40s.toml", "8").exits(2).json();
    let reason = skipped["reason"].as_str().unwrap();
    assert!(reason.contains("measured only at TP 4") && reason.contains("--extrapolate"), "{reason}");
    assert_eq!(run("one/l40s.toml", "4").exits(0).json()["status"], "ok");
    let whatif =
        place.run(&["whatif", "--hardware", "one/l40s.toml", "--model", "llama-3-8b", "--tp", "2"]);
    assert!(whatif.exits(2).stderr.contains("only at TP 4"));
    // two TPs make a line; one is copied where the user says so
    for (files, more, said) in [
        ("two.txt,four.txt", "--write both", "TP 8 extrapolated from TP 4 and TP 2"),
        ("four.txt", "--extrapolate --write both", "TP 8 extrapolated from TP 4 only"),
    ] {
        assert!(calibrate(files, more)["other_tps"].to_string().contains(said));
        let done = run("both/l40s.toml", "8").exits(0);
        let record = done.json();
        assert_eq!(record["environment"]["link_basis"], said);
        assert!(record["environment"]["link_note"].as_str().unwrap().starts_with(said));
        assert!(done.stderr.contains(&format!("link: {said}")), "{done:?}");
        let hardware = place.run(&["hardware", "both/l40s.toml"]).exits(0).stdout;
        assert!(hardware.contains(said), "{hardware}");
        let whatif = ["whatif", "--hardware", "both/l40s.toml", "--model", "llama-3-8b", "--tp", "8"];
        assert!(place.run(&whatif).exits(0).stdout.replace("\n  ", " ").contains(said));
    }
}

#[test]
fn all_reduces_of_a_trace_become_points_of_a_profile() {
    let place = Place::new();
    let cell = "run --model tiny --backend cpu --tp 2 --prompt-tokens 16 --output-tokens 6 --samples 1 --warmup 0 --format json";
    let run = |more: &str| {
        let words: Vec<&str> = cell.split(' ').chain(more.split_whitespace()).collect();
        place.run(&words).exits(0).json()["run"].as_str().unwrap().to_owned()
    };
    let standard = run("--architecture standard");
    let given = |what: &str| {
        let words = format!("calibrate --collectives {what} --hardware h100_sxm --format json");
        place.run(&words.split(' ').collect::<Vec<_>>())
    };
    let told = given(&format!("{standard} --write mine")).exits(0).json();
    // a decode step's message and the prefill's, sixteen times as large
    let points = told["tp"][0]["points"].as_array().unwrap();
    assert_eq!((told["tp"][0]["tp"].as_u64(), points.len()), (Some(2), 2), "{told}");
    let bytes = |at: usize| points[at]["bytes"].as_u64().unwrap();
    assert_eq!(bytes(1), 16 * bytes(0));
    let profile = std::fs::read_to_string(place.path().join("mine/h100_sxm.toml")).unwrap();
    assert!(
        profile.contains("TP 2: a trace, ") && !profile.contains("without CUDA graphs"),
        "{profile}"
    );
    assert!(told["tp"][0]["graph"].is_null(), "nothing tells of a trace: {told}");
    let emulated = run("--architecture standard --link emulated:alpha_us=50,gb_s=5");
    let refused = given(&emulated).exits(2).stderr;
    assert!(
        refused.contains("is emulated-link, so its all-reduces have the requested latency"),
        "{refused}"
    );
    let ladder = run("--architecture ladder");
    let beside = given(&ladder).exits(2).stderr;
    assert!(beside.contains("is a run of ladder, whose all-reduces overlap with compute"), "{beside}");
    let other = given(&format!("{standard} --p2p off")).exits(2).stderr;
    assert!(other.contains("was run with P2P on") && other.contains("say --p2p on"), "{other}");
    // an export records the sizes
    let trace = format!("runs/{standard}/trace.parquet");
    place.run(&["trace", "convert", &trace, "out.json"]).exits(0);
    let exported = given("out.json").exits(0).json();
    assert_eq!(exported["tp"][0]["points"].as_array().unwrap().len(), 2, "{exported}");
    // of another engine the user knows the message
    let file = place.path().join("out.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("In msg nelems", "elements")).unwrap();
    let unknown = given("out.json").exits(2).stderr;
    assert!(unknown.contains("does not record message sizes"), "{unknown}");
    let told = given("out.json --message-bytes 512").exits(0).json();
    assert_eq!(told["tp"][0]["points"].as_array().unwrap().len(), 1, "{told}");
    assert!(
        told["assumed"][0].as_str().unwrap().starts_with("latency of larger messages at TP 2"),
        "{told}"
    );
}

/// A message that waits for its bytes measures the bandwidth, not the latency of small ones.
#[test]
fn a_single_large_all_reduce_measures_the_bandwidth() {
    let place = Place::new();
    place.write(
        "large.jsonl",
        r#"{"header":{"id":"0x1","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","rec_mechanism":"profiler_plugin","dump_timestamp_us":1,"hostname":"h","pid":1},"coll_perf":{"coll":"AllReduce","coll_sn":7,"coll_msg_size_bytes":17179869184,"coll_exec_time_us":61974,"coll_algobw_gbs":277.2,"coll_busbw_gbs":485.1}}"#,
    );
    let words = "calibrate --collectives large.jsonl --hardware h100_sxm --format json --write mine";
    let told = place.run(&words.split(' ').collect::<Vec<_>>()).exits(0).json();
    let link = &told["tp"][0];
    assert!((link["gb_s"].as_f64().unwrap() - 277.2).abs() < 1.0, "{told}");
    assert!(link["alpha_us"].as_f64().unwrap() < 30.0, "{told}");
    let kept = "latency of small messages at TP 8 (only large ones measured)";
    assert_eq!(told["assumed"][0], kept, "{told}");
    // several large ones, the smallest faster than the profile's small messages
    let all = all_reduce_perf(8, 0.3);
    let is_large = |line: &&str| {
        line.split(' ')
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .is_none_or(|bytes| bytes >= 8 << 20)
    };
    place.write("fast.txt", &all.lines().filter(is_large).collect::<Vec<_>>().join("\n"));
    let words = "calibrate --collectives fast.txt --hardware h100_sxm --format json";
    let told = place.run(&words.split(' ').collect::<Vec<_>>()).exits(0).json();
    let gb_s = told["tp"][0]["gb_s"].as_f64().unwrap();
    assert!((gb_s / (260.0 / 0.3) - 1.0).abs() < 0.01, "{told}");
    assert_eq!(told["assumed"][0], kept, "{told}");
    let cell = "run --backend sim --model llama-3-8b --tp 8 --hardware mine/h100_sxm.toml --format json";
    place.run(&cell.split(' ').collect::<Vec<_>>()).exits(0);
}
