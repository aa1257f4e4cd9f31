//! Differences of two traces, gates on them, and predictions that are checked.

use crate::support::Place;

/// The parts add up to the change, and a gate's exit status follows from it.
#[test]
fn two_traces_are_compared_step_by_step() {
    let place = Place::new();
    let [standard, ladder] = ["standard", "ladder"]
        .map(|name| format!("{}/traces/cpu-{name}-tp2-600us.parquet", env!("CARGO_MANIFEST_DIR")));
    let diff = place.run(&["diff", &standard, &ladder, "--format", "json"]).exits(0).json();
    let us = |pointer: &str| diff.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap();
    let change = us("/b/step_us") - us("/a/step_us");
    let parts: f64 =
        diff["parts"].as_array().unwrap().iter().map(|part| part["delta_us"].as_f64().unwrap()).sum();
    assert!(change < 0.0 && (parts / change - 1.0).abs() < 1e-6, "{change} {parts}");
    assert_eq!(diff["parts"][0]["part"], "exposed communication");
    assert_eq!(diff["paired_by"], "number");
    let overlap = place.run(&["overlap", &standard, "--format", "json"]).exits(0).json();
    let steps = overlap["steps"].as_array().unwrap().iter();
    let ended = steps.filter(|step| step["time"]["until_next"] == true);
    let exposed: Vec<f64> = ended.map(|s| s["exposed_us"].as_f64().unwrap()).collect();
    let mean = exposed.iter().sum::<f64>() / exposed.len() as f64;
    assert!((us("/a/exposed_us") / mean - 1.0).abs() < 1e-6, "as overlap says");
    let text = place.run(&["diff", &standard, &ladder]).exits(0).stdout;
    for part in
        ["faster: ", "exposed communication explains", "decode/L*/mlp/all_reduce", "emulated-link"]
    {
        assert!(text.contains(part), "'{part}' is missing in\n{text}");
    }
    let same = place.run(&["diff", &standard, &standard]).exits(0).stdout;
    assert!(same.starts_with("No clear change: +0.0 %"), "{same}");
    for (arguments, status) in [(&[&standard, &ladder][..], 0), (&[&ladder, &standard], 4)] {
        let [a, b] = arguments else { unreachable!() };
        place.run(&["diff", a, b, "--gate", "tpot<+3%"]).exits(status);
    }
    let csv = place.run(&["diff", &standard, &ladder, "--format", "csv"]).exits(0).stdout;
    assert!(csv.starts_with("operation,lane,first_us,second_us,delta_us"), "{csv}");
    assert!(csv.lines().nth(1).unwrap().ends_with(",emulated-link,emulated-link"), "{csv}");
    for (arguments, words) in [
        (&["diff", &standard, "nothing.json"][..], "no such file"),
        (&["diff", &standard, &ladder, "--gate", "memory<+3%"][..], "measures of a step"),
        (&["diff", &standard, &ladder, "--check", "p"][..], "no prediction 'p'"),
    ] {
        let refused = place.run(arguments).exits(2);
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}

#[test]
fn a_stored_prediction_is_checked_against_the_traces_of_the_change() {
    let place = Place::new();
    let [standard, ladder] = ["standard", "ladder"]
        .map(|name| format!("{}/traces/cpu-{name}-tp2-600us.parquet", env!("CARGO_MANIFEST_DIR")));
    let saved = place.run(&["rewire", &standard, "--save", "to-ladder"]).exits(0);
    assert!(saved.stderr.contains("--check to-ladder"), "{saved:?}");
    let checked = ["diff", &standard, &ladder, "--check", "to-ladder", "--format", "json"];
    for _ in 0..2 {
        let checks = place.run(&checked).exits(0).json()["checks"].clone();
        assert_eq!(checks.as_array().unwrap().len(), 1, "only ladder was measured: {checks}");
        let number = |key: &str| checks[0][key].as_f64().unwrap();
        assert!(number("measured_speedup") > 1.2 && number("error_pct").abs() < 15.0, "{checks}");
    }
    // checked twice, remembered once, and told beside the next prediction
    let next = place.run(&["rewire", &standard]).exits(0).stdout;
    assert!(next.contains("Your 1 checked prediction so far: mean error"), "{next}");
    let refused = place.run(&["rewire", &standard, "--save", "../x"]).exits(2);
    assert!(refused.stderr.contains("cannot be the name of a prediction"), "{refused:?}");
    place.run(&["whatif", "--model", "tiny", "--tp", "2", "--save", "w"]).exits(0);
    let read = std::fs::read_to_string(place.path().join("runs/predictions/w.json")).unwrap();
    let stored: serde_json::Value = serde_json::from_str(&read).unwrap();
    assert_eq!((&stored["made_by"], &stored["version"]), (&"whatif".into(), &1.into()));
    assert!(stored["rows"].as_array().unwrap().iter().any(|row| row["architecture"] == "ladder"));
}

#[test]
fn another_link_scales_the_measured_all_reduces() {
    let place = Place::new();
    place
        .run(&[
            "run",
            "--backend",
            "sim",
            "--model",
            "llama-3.2-1b",
            "--tp",
            "8",
            "--output-tokens",
            "8",
        ])
        .exits(0);
    let step = |more: &[&str]| {
        let words =
            [&["rewire", "last", "--architecture", "standard", "--format", "json"], more].concat();
        let told = place.run(&words).exits(0).json();
        told["answers"][0]["alone"]["step_us"].as_f64()
    };
    let plain = place.run(&["rewire", "last", "--format", "json"]).exits(0).json();
    let measured = plain["measured"]["step_us"].as_f64().unwrap();
    assert!(step(&["--alpha-us", "100"]).unwrap() > 1.2 * measured);
    assert!(step(&["--on-tp", "4"]).unwrap() > measured, "half the ranks, more work on each");
    assert_eq!(plain["answers"][0]["alpha_us"], serde_json::Value::Null);
    place.run(&["rewire", "last", "--alpha-us", "-3"]).exits(2);
    let refused = place.run(&["rewire", "last", "--on-tp", "10"]).exits(2).stderr;
    assert!(refused.contains("TP 10 does not divide 32 heads"), "{refused}");
}
