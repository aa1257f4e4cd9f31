//! `convert` as a user meets it: sets of layers with what they cost and give, what is written, what is refused.

use serde_json::Value;

use crate::evaluating;
use crate::support::{Done, Place};

const TARGET: &str = "h100_sxm,tp=2,p2p=off,prompt_tokens=8,output_tokens=4";

/// The checkpoint and text of `evaluate`'s tests, with four layers.
fn place() -> Place {
    let place = evaluating::place();
    let config = std::fs::read_to_string(place.path().join("model/config.json")).unwrap();
    place.write(
        "model/config.json",
        &config.replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"),
    );
    place
}

fn convert(place: &Place, more: &[&str]) -> Done {
    let mut arguments = vec!["convert", "--weights", "model", "--text", "text.txt"];
    for (option, usual) in [("--context", "16"), ("--for", TARGET)] {
        if !more.contains(&option) {
            arguments.extend([option, usual]);
        }
    }
    place.run(&[&arguments, more].concat())
}

fn json(place: &Place, more: &[&str]) -> Value {
    convert(place, &[more, &["--format", "json"]].concat()).exits(0).json()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key}: {value}"))
}

/// The points of a series, in their order.
fn series<'a>(report: &'a Value, conversion: &str, series: &str) -> Vec<&'a Value> {
    let points = report["points"].as_array().unwrap().iter();
    points.filter(|p| p["conversion"] == conversion && p["series"] == series).collect()
}

#[test]
fn every_set_is_measured_as_evaluate_does_and_the_least_costly_layers_come_first() {
    let place = place();
    let report = json(&place, &[]);
    assert_eq!((&report["layers"], &report["windows"]), (&4.into(), &6.into()));
    assert_eq!(report["provenance"], serde_json::json!({"quality": "measured", "speed": "simulated"}));
    assert_eq!((&report["target"]["tp"], &report["target"]["p2p"]), (&2.into(), &"off".into()));
    let counts = ["alone", "ordered", "upper-half", "last", "random", "greedy"]
        .map(|name| series(&report, "ladder", name).len());
    assert_eq!(counts, [4, 4, 1, 3, 9, 0]);
    let mut alone: Vec<(f64, &Value)> = series(&report, "ladder", "alone")
        .into_iter()
        .map(|point| (number(point, "kl"), &point["layers"][0]))
        .collect();
    alone.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ordered = series(&report, "ladder", "ordered");
    for (at, point) in ordered.iter().enumerate() {
        let mut layers: Vec<u64> = alone[..=at].iter().map(|(_, l)| l.as_u64().unwrap()).collect();
        layers.sort_unstable();
        assert_eq!(point["layers"], serde_json::json!(layers));
    }
    assert_eq!(ordered[3]["architecture"], "ladder");
    assert!(number(ordered[3], "speedup") > number(ordered[0], "speedup"));
    assert!(number(ordered[0], "speedup") > 1.0);
    assert_eq!(series(&report, "ladder", "upper-half")[0]["architecture"], "ladder:2");
    // each set by itself, in another store: the same numbers
    for point in report["points"].as_array().unwrap() {
        let architecture = point["architecture"].as_str().unwrap();
        let evaluate = ["evaluate", "--weights", "model", "--text", "text.txt", "--context", "16"];
        let more = ["--architecture", architecture, "--dir", "other", "--format", "json"];
        let one = place.run(&[&evaluate[..], &more].concat()).exits(0).json();
        for key in ["kl", "nll", "agreement", "kl_ci95"] {
            assert_eq!(one["cases"][0][key], point[key], "{key} of {architecture}");
        }
    }
}

#[test]
fn nothing_is_measured_twice_and_the_report_is_stored() {
    let place = place();
    let one = ["--architecture", "standard,ladder:[1],ladder"];
    let evaluate = ["evaluate", "--weights", "model", "--text", "text.txt", "--context", "16"];
    place.run(&[&evaluate[..], &one].concat()).exits(0);
    let first = convert(&place, &["--format", "json"]).exits(0);
    assert!(first.stderr.contains("(12 already stored)"), "standard and ladder:[1]: {first:?}");
    let again = convert(&place, &["--format", "json"]).exits(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stderr.contains("[30/30] windows (30 already stored)"), "{again:?}");
    let stored: Vec<_> = std::fs::read_dir(place.path().join("runs/conversions")).unwrap().collect();
    assert_eq!(stored.len(), 1);
    let stored = std::fs::read(stored[0].as_ref().unwrap().path()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&stored).unwrap(), first.json());
    // it is no run
    assert_eq!(place.run(&["runs", "--format", "json"]).exits(0).stdout.trim(), "[]");
}

#[test]
fn greedy_is_no_worse_than_the_order_and_sync_drop_is_searched_where_it_drops_something() {
    let place = place();
    let report = json(&place, &["--greedy", "--with", "sync-drop", "--tp", "2", "--random", "0"]);
    for conversion in ["ladder", "sync-drop"] {
        let kl = |name: &str| -> Vec<f64> {
            series(&report, conversion, name).into_iter().map(|p| number(p, "kl")).collect()
        };
        let (ordered, greedy) = (kl("ordered"), kl("greedy"));
        assert_eq!((ordered.len(), greedy.len()), (4, 4));
        assert_eq!((greedy[0], greedy[3]), (ordered[0], ordered[3]));
        assert!(greedy[1] <= ordered[1], "{greedy:?} {ordered:?}");
        assert!(kl("random").is_empty() && greedy[0] > 0.0);
    }
    assert!(number(series(&report, "sync-drop", "ordered")[3], "speedup") > 1.0);
}

#[test]
fn a_table_a_csv_file_and_a_figure() {
    let place = place();
    let table = convert(&place, &["--export", "curve.svg"]).exits(0).stdout;
    assert!(
        table.contains("KL divergence from standard")
            && table.contains("speed simulated for model tp2 b1 p2p-off on h100_sxm,"),
        "{table}"
    );
    assert!(table.contains("upper-half") && table.contains("2 layers random ladder: KL "), "{table}");
    let svg = std::fs::read_to_string(place.path().join("curve.svg")).unwrap();
    assert!(svg.contains("simulated (not a measurement)") && svg.contains("measured"), "its metadata");
    convert(&place, &["--export", "points.csv"]).exits(0);
    let csv = std::fs::read_to_string(place.path().join("points.csv")).unwrap();
    assert!(csv.starts_with("point,to,series,count,kl,"), "{csv}");
    assert_eq!(csv, convert(&place, &["--format", "csv"]).exits(0).stdout);
}

#[test]
fn with_another_model_layers_at_the_same_depth_are_converted() {
    let place = place();
    let target = "h100_sxm,tp=2,model=llama-3.2-1b,prompt_tokens=8,output_tokens=4";
    let report = json(&place, &["--for", target]);
    let half = series(&report, "ladder", "upper-half")[0];
    assert_eq!(
        (&half["architecture"], &half["target_architecture"]),
        (&"ladder:2".into(), &"ladder:8".into())
    );
    assert_eq!(report["target"]["model"], "llama-3.2-1b");
}

#[test]
fn what_is_written_is_what_was_measured() {
    let place = place();
    let report = json(&place, &[]);
    let chosen = series(&report, "ladder", "ordered")[1].clone();
    let (point, layers) = (chosen["number"].to_string(), chosen["layers"].clone());
    let done = convert(&place, &["--write", "out", "--point", &point]).exits(0);
    assert!(done.stderr.contains("wrote out: ladder in layers"), "{done:?}");
    let config: Value =
        serde_json::from_slice(&std::fs::read(place.path().join("out/config.json")).unwrap()).unwrap();
    let said = &config["ladder_layers"];
    assert!(*said == layers || (*said == 2 && layers == serde_json::json!([2, 3])), "{said} {layers}");
    let generate = |arguments: &[&str]| {
        let common =
            ["generate", "--prompt-tokens-file", "prompt", "--output-tokens", "4", "--format", "json"];
        place.write("prompt", "3 1 4 1 5");
        place.run(&[&common, arguments].concat()).exits(0).json()
    };
    let architecture = chosen["architecture"].as_str().unwrap();
    let wired = generate(&["--weights", "model", "--architecture", architecture]);
    assert_eq!(generate(&["--weights", "out"])["top_logits"], wired["top_logits"]);
    assert_ne!(generate(&["--weights", "model"])["top_logits"], wired["top_logits"]);
    let run = [
        "run",
        "--model",
        "out",
        "--backend",
        "sim",
        "--tp",
        "2",
        "--output-tokens",
        "4",
        "--format",
        "json",
    ];
    assert_eq!(place.run(&run).exits(0).json()["spec"]["architecture"], chosen["architecture"]);
    // by a budget: the fastest within it; by layers: nothing is measured
    let all = number(series(&report, "ladder", "ordered")[3], "kl");
    convert(&place, &["--write", "whole", "--budget", &format!("kl<={}", all * 1.01)]).exits(0);
    let only = ["convert", "--weights", "model", "--write", "some", "--layers", "0+2"];
    place.run(&only).exits(0);
    let said = |dir: &str| -> Value {
        let text = std::fs::read(place.path().join(dir).join("config.json")).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()["ladder_layers"].clone()
    };
    assert_eq!((said("whole"), said("some")), (4.into(), serde_json::json!([0, 2])));
    // what it was written as is what it is evaluated as
    let evaluate = ["evaluate", "--weights", "some", "--text", "text.txt", "--context", "16"];
    let one = place.run(&[&evaluate[..], &["--format", "json"]].concat()).exits(0).json();
    assert_eq!(one["cases"][0]["architecture"], "ladder:[0+2]");
    assert!(one["cases"][0]["kl"].as_f64() > Some(0.0), "{one}");
}

#[test]
fn wrong_input_is_told_before_anything_is_measured() {
    let place = place();
    place.write("full/file", "");
    let refused = |arguments: &[&str], parts: &[&str]| {
        let done = convert(&place, arguments).exits(2);
        assert_eq!(done.stdout, "", "{done:?}");
        for part in parts {
            assert!(done.stderr.contains(part), "'{part}' is missing in:\n{}", done.stderr);
        }
    };
    refused(&["--context", "200"], &["text.txt", "100 tokens", "200"]);
    refused(&["--for", "h1000,tp=2"], &["h1000"]);
    refused(&["--for", "h100_sxm,tp=3"], &["TP 3"]);
    refused(&["--for", "h100_sxm,tpp=3"], &["tpp", "did you mean 'tp'"]);
    refused(&["--write", "full", "--point", "1"], &["full", "not empty"]);
    refused(&["--write", "no/out", "--point", "1"], &["no/out", "no such directory"]);
    refused(&["--write", "out", "--layers", "0+4"], &["layer 4", "0 to 3"]);
    refused(&["--write", "out", "--budget", "0.1"], &["'0.1'", "kl<=0.05"]);
    refused(&["--write", "out"], &["--point"]);
    refused(&["--point", "3"], &["--write"]);
    refused(&["--with", "sync-drop"], &["one rank", "--tp N"]);
    refused(&["--export", "curve.doc"], &["curve.doc", ".svg"]);
    assert!(!place.path().join("runs").exists(), "nothing was started");
    // what cannot be known before
    let done = convert(&place, &["--write", "out", "--budget", "kl<=0"]).exits(2);
    assert!(done.stderr.contains("smallest possible: kl<="), "{done:?}");
    let done = convert(&place, &["--write", "out", "--point", "99"]).exits(2);
    assert!(done.stderr.contains("the table has points 1 to"), "{done:?}");
    assert!(!place.path().join("out").exists());
    place.run(&["convert", "--weights", "model", "--write", "out", "--layers", "2"]).exits(0);
    let again =
        ["convert", "--weights", "out", "--text", "text.txt", "--for", TARGET, "--context", "16"];
    let done = place.run(&again).exits(2);
    assert!(done.stderr.contains("config.json says ladder:2"), "{done:?}");
}

/// `transformers` with the modelling code that `convert --write` adds, against `generate`: for every family that is
/// read, logits within 1e-4 and the same greedy tokens. LADDERSCOPE_PYTHON names the interpreter.
#[test]
#[ignore = "needs a python3 with torch and transformers"]
fn transformers_computes_the_logits_of_generate() {
    let place = Place::new();
    let python = std::env::var("LADDERSCOPE_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/families/ladder.py");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&python);
        command.arg(script).args(arguments).current_dir(place.path());
        let home = place.path().join("hf");
        let done = command.env("HF_HOME", home).env("HF_HUB_OFFLINE", "1").output().expect("python");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("UTF-8")
    };
    run(&["make", "."]);
    let prompt = "3 41 7 90 12 55 2 77";
    place.write("prompt.txt", prompt);
    for family in
        ["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "dots1", "gpt_oss", "deepseek_v3"]
    {
        let is_mixture = ["mixtral", "qwen3_moe", "dots1", "gpt_oss", "deepseek_v3"].contains(&family);
        let sets = ["[1+2]", "4", "1", "farskip:[0+2]", "farskip:4", "farskip:1"];
        for (at, layers) in sets.into_iter().enumerate() {
            let out = format!("{family}-{at}");
            place.run(&["convert", "--weights", family, "--layers", layers, "--write", &out]).exits(0);
            let generate = ["generate", "--model", &out, "--prompt-tokens-file", "prompt.txt"];
            let how = ["--output-tokens", "6", "--dtype", "f32", "--format", "json"];
            let found: Value = serde_json::from_str(&run(&["logits", &out, prompt])).expect("JSON");
            let class = found["class"].as_str().unwrap();
            assert!(class.starts_with("Ladder"), "{family} in {layers}: {class}");
            let divisions: &[&[&str]] = match is_mixture {
                true => &[&[], &["--tp", "2"], &["--tp", "2", "--ep", "2"]],
                false => &[&[], &["--tp", "2"]],
            };
            for division in divisions {
                let arguments = [&generate[..], &how, division].concat();
                let expected = place.run(&arguments).exits(0).json();
                let what = format!("{family} with {layers} {division:?}");
                let likeliest = expected["top_logits"][0].as_array().unwrap();
                assert!(!likeliest.is_empty(), "{what}");
                for pair in likeliest {
                    let token = pair[0].as_u64().unwrap() as usize;
                    let off = found["logits"][token].as_f64().unwrap() - pair[1].as_f64().unwrap();
                    assert!(off.abs() < 1e-4, "{what}: token {token} is {off} off");
                }
                assert_eq!(found["tokens"], expected["tokens"][0], "{what}");
            }
        }
    }
}
