//! What every verb prints with `--format json` is what `ladderscope schema` says of it.

use boon::{Compiler, Schemas};
use serde_json::Value;

use crate::support::Place;
use crate::{evaluating, importing, validating};

/// A schema, as the program prints it.
fn schema(kind: &str) -> Value {
    Place::new().run(&["schema", kind]).exits(0).json()
}

/// Whether a value is as a schema says, or why it is not.
fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("ladderscope.json", schema.clone()).unwrap();
    let index = compiler.compile("ladderscope.json", &mut schemas).unwrap();
    schemas.validate(value, index).map_err(|error| format!("{error:#}"))
}

/// The value is as the schema of its kind says, and would not be if it lacked a member or had one of another type.
#[track_caller]
fn holds(kind: &str, value: &Value) {
    let schema = schema(kind);
    if let Err(why) = check(&schema, value) {
        panic!("{kind}: {why}\n{value:#}");
    }
    let object = |value: &Value| match value {
        Value::Array(all) => {
            all.first().cloned().unwrap_or_else(|| panic!("{kind}: nothing was printed"))
        }
        one => one.clone(),
    };
    let first = object(value);
    let again = |changed: Value| if value.is_array() { Value::Array(vec![changed]) } else { changed };
    let members: Vec<&String> = first.as_object().unwrap().keys().collect();
    let mut told = 0;
    for name in members {
        let mut lacking = first.clone();
        lacking.as_object_mut().unwrap().remove(name);
        let mut other = first.clone();
        // nothing is ever a list of lists of booleans
        other[name] = serde_json::json!([[[true]]]);
        told += usize::from(check(&schema, &again(lacking)).is_err());
        assert!(check(&schema, &again(other)).is_err(), "{kind}: anything may stand in {name}");
    }
    assert!(told > 0, "{kind}: no member is required");
}

/// Two architectures and batches, simulated, one cell that cannot run; and a run of the cpu backend with a trace.
fn runs() -> Place {
    let place = Place::new();
    place.write(
        "s.toml",
        "question = \"Which?\"\nbackend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3.2-1b\"\n[workload]\n\
         prompt_tokens = 64\noutput_tokens = 8\n[grid]\narchitecture = [\"standard\", \"ladder\"]\ntp = [2, 3]\nbatch = [1, 4]\n",
    );
    place
}

fn json(place: &Place, words: &str) -> Value {
    let words: Vec<&str> = words.split(' ').chain(["--format", "json"]).collect();
    place.run(&words).exits(0).json()
}

#[test]
fn records_and_what_is_made_of_them() {
    let place = runs();
    for record in place.run(&["sweep", "s.toml", "--format", "json"]).exits(0).json_lines() {
        let is_ok = record["status"] == "ok";
        assert!(is_ok || record["metrics"].is_null());
        if let Err(why) = check(&schema("record"), &record) {
            panic!("{why}\n{record:#}");
        }
    }
    let cell = "run --model tiny --backend cpu --tp 2 --prompt-tokens 4 --output-tokens 4 --samples 2 --warmup 0";
    let run = json(&place, cell);
    holds("record", &run);
    let id = run["run"].as_str().unwrap();
    let listed = json(&place, "runs");
    for one in listed.as_array().unwrap() {
        holds("runs", &Value::Array(vec![one.clone()]));
    }
    holds("show", &json(&place, &format!("show {id}")));
    holds("overlap", &json(&place, &format!("overlap {id}")));
    let simulated = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|run| run["provenance"] == "simulated" && run["spec"]["architecture"] == "standard")
        .unwrap();
    holds("overlap", &json(&place, &format!("overlap {}", simulated["run"].as_str().unwrap())));
    holds(
        "rewire",
        &json(&place, &format!("rewire {} --architecture ladder", simulated["run"].as_str().unwrap())),
    );
    holds("pareto", &json(&place, "pareto"));
    holds("pareto-more", &json(&place, "pareto --at --area --overlay published"));
    holds("compare", &json(&place, "compare --by architecture"));
    holds("compare-heatmap", &json(&place, "compare --by architecture --heatmap"));
    place.run(&["baseline", "set", "main", "--filter", "experiment:s"]).exits(0);
    place.run(&["sweep", "s.toml", "--again"]).exits(0);
    holds("baselines", &json(&place, "baseline list"));
    holds("gate", &json(&place, "compare --baseline main --gate tpot<+3%"));
    place.run(&["runs", "delete", id]).exits(0);
    holds("trash", &json(&place, "runs trash"));
    holds("experiments", &json(&runs(), "experiments"));
    holds("dry-run", &json(&runs(), "sweep s.toml --dry-run"));
}

#[test]
fn what_needs_no_runs() {
    let place = Place::new();
    holds("models", &json(&place, "models"));
    holds("hardware-list", &json(&place, "hardware"));
    holds("hardware-collectives", &json(&place, "hardware h100_sxm --collectives"));
    holds("doctor", &json(&place, "doctor --quick"));
    holds("doctor", &json(&place, "doctor"));
    holds("validate", &json(&place, "validate decode_a100_gptfast"));
    holds(
        "whatif",
        &json(&place, "whatif --model llama-3.2-1b --tp 2 --output-tokens 4 --alpha-us 5,40"),
    );
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/cpu-ladder-tp2-600us.parquet");
    let before = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/cpu-standard-tp2-600us.parquet");
    holds("overlap", &json(&place, &format!("overlap {trace}")));
    place.run(&["rewire", before, "--architecture", "ladder", "--save", "p"]).exits(0);
    holds("diff", &json(&place, &format!("diff {before} {trace} --gate tpot<+3% --check p")));
    holds("trace-convert", &json(&place, &format!("trace convert {trace} out.json")));
    // an imported trace has rules, too
    holds("overlap", &json(&place, "overlap out.json"));
    holds("trace-convert", &json(&place, "trace convert out.json back.parquet"));
    // without a GPU it says what it would check, and exits with 2
    std::fs::create_dir_all(place.path().join("runs")).unwrap();
    holds("doctor-store", &json(&place, "doctor --store runs"));
    holds("doctor-check", &place.run(&["doctor", "--check", "--format", "json"]).json());
    let refused = place.run(&["run", "--model", "nothing", "--format", "json"]).exits(2).stderr;
    holds("error", &serde_json::from_str(refused.lines().last().unwrap()).unwrap());
}

#[test]
fn what_is_fitted() {
    let place = Place::new();
    place.write(
        "runs.csv",
        "model,architecture,tp,batch,p2p,prompt_tokens,output_tokens,tokens_per_s\n\
         llama-3.2-1b,standard,2,1,on,64,32,500\nllama-3.2-1b,standard,4,1,on,64,32,600\n",
    );
    let fit = "calibrate --data runs.csv --hardware h100_sxm --stack gpt-fast --fit matvec_scale";
    holds("calibrate", &json(&place, fit));
    place.write("eight.txt", &validating::all_reduce_perf(8, 3.0));
    holds("calibrate-collectives", &json(&place, "calibrate --collectives eight.txt"));
    importing::kit(&place);
    holds("import", &json(&place, "import results -o mine"));
}

#[test]
fn what_checkpoints_give() {
    let place = evaluating::place();
    let on = "--weights model --text text.txt --context 16";
    holds("evaluate", &json(&place, &format!("evaluate {on} --architecture standard,ladder")));
    holds(
        "generate",
        &json(&place, "generate --weights model --prompt-tokens-file ids.txt --output-tokens 1"),
    );
    let on_ids = "--weights model --tokens-file ids.txt --context 8 --steps 2 --batch 2 --seed 0,1";
    holds(
        "adapt",
        &json(&place, &format!("adapt {on_ids} --architecture standard,ladder --distil --layers 1")),
    );
    let target = "h100_sxm,tp=2,p2p=off,prompt_tokens=8,output_tokens=4";
    holds("convert", &json(&place, &format!("convert {on} --for {target}")));
}

/// A kind that has a schema is one whose output is held against it here.
#[test]
fn every_kind_is_looked_at() {
    let help = Place::new().run(&["schema", "--help"]).exits(0).stdout;
    let kinds = help.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_once(':'));
    let here = include_str!("schemas.rs");
    let mut count = 0;
    for (kind, _) in kinds {
        schema(kind);
        count += 1;
        // files that are read have tests of their own
        let is_read = matches!(kind, "experiment" | "hardware");
        assert!(is_read || here.contains(&format!("\"{kind}\"")), "{kind}");
    }
    assert!(count > 20, "{help}");
}
