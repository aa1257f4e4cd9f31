//! Comparisons and what-ifs as commands.

use crate::support::Place;

/// A simulated grid of two architectures, TPs and batches over two values of a variable.
fn grid() -> Place {
    let place = Place::new();
    place.write(
        "grid.toml",
        "backend = \"sim\"\nmodel = \"tiny\"\noutput_tokens = 4\n[grid]\narchitecture = [\"standard\", \"ladder\"]\n\
         tp = [2, 4]\nbatch = [1, 2, 4]\n[env]\nNCCL_ALGO = [\"Ring\", \"Tree\"]\n",
    );
    place.run(&["sweep", "grid.toml"]).exits(0);
    place
}

#[test]
fn by_a_variable_with_a_baseline_and_as_maps() {
    let place = grid();
    let compare = |more: &[&str]| {
        let arguments = [&["compare", "--format", "json", "--by"], more].concat();
        place.run(&arguments).exits(0).json()
    };
    let by_variable = compare(&["NCCL_ALGO", "--against", "Tree"]);
    assert_eq!(by_variable["pairs"].as_array().map(Vec::len), Some(12));
    let pair = &by_variable["pairs"][0];
    assert_eq!((pair["baseline"].as_str(), pair["value"].as_str()), (Some("Tree"), Some("Ring")));
    assert_eq!((pair["speedup"].as_f64(), pair["differs"].as_bool()), (Some(1.0), Some(false)));

    let maps = compare(&["architecture", "--heatmap"]);
    let maps = maps.as_array().cloned().unwrap_or_default();
    assert_eq!(maps.len(), 2, "one a value of the variable, never an average of both");
    for map in &maps {
        assert_eq!(map["tps"], serde_json::json!([2, 4]));
        assert_eq!(map["batches"], serde_json::json!([1, 2, 4]));
        assert_eq!(map["cells"].as_array().map(Vec::len), Some(6));
        assert!(map["rest"].as_str().is_some_and(|rest| rest.contains("NCCL_ALGO=")), "{map}");
    }
    let table = place.run(&["compare", "--by", "architecture", "--heatmap"]).exits(0).stdout;
    assert!(table.contains("(simulated)") && table.contains("b4") && table.contains("12 comparison"));
    let csv =
        place.run(&["compare", "--by", "architecture", "--heatmap", "--format", "csv"]).exits(0).stdout;
    assert_eq!(csv.lines().count(), 13);

    // the grid's settings: TP x batch x NCCL_ALGO, with the architectures as columns
    let pivot = place.run(&["compare", "--by", "architecture", "--pivot"]).exits(0).stdout;
    let header = pivot.lines().next().unwrap_or_default();
    assert!(header.contains("ladder") && header.contains("fastest"), "{pivot}");
    let csv =
        place.run(&["compare", "--by", "architecture", "--pivot", "--format", "csv"]).exits(0).stdout;
    assert_eq!(csv.lines().count(), 13, "{csv}");
    let plain = compare(&["architecture"]);
    assert_eq!(compare(&["architecture", "--pivot"]), plain, "JSON keeps the pairs");

    let wrong = place.run(&["compare", "--by", "NCCL_ALGO", "--baseline", "Rign"]).exits(2);
    assert!(wrong.stderr.contains("'Rign'") && wrong.stderr.contains("Ring"), "{wrong:?}");
}

#[test]
fn what_if_another_link_and_its_command_gives_the_same_number() {
    let place = Place::new();
    let cell = [
        "--model",
        "llama-3.2-1b",
        "--tp",
        "8",
        "--stack",
        "gpt-fast",
        "--output-tokens",
        "16",
        "--batch",
        "2",
    ];
    let over = [&["whatif", "--alpha-us", "5,40", "--format", "json"], &cell[..]].concat();
    let answer = place.run(&over).exits(0).json();
    assert_eq!(answer["provenance"], "simulated");
    let points = answer["points"].as_array().cloned().unwrap_or_default();
    assert_eq!(points.len(), 2 * 8, "{answer}");
    let chosen: Vec<_> = points.iter().filter(|point| point["command"].is_string()).collect();
    assert_eq!(chosen.len(), 2);
    for point in chosen {
        let command = point["command"].as_str().unwrap_or_default();
        let words: Vec<&str> = command.split(' ').skip(1).chain(["--format", "json"]).collect();
        let record = place.run(&words).exits(0).json();
        let (a, b) = (point["tpot_ms"].as_f64(), record["metrics"]["tpot_ms"]["p50"].as_f64());
        let off = a.zip(b).map(|(a, b)| (a / b - 1.0).abs());
        assert!(off.is_some_and(|off| off < 1e-6), "{a:?} {b:?} by {command}");
    }
    let table = place.run(&[&["whatif"], &cell[..]].concat()).exits(0).stdout;
    let said = table.replace("\n  ", " ");
    assert!(said.contains("GB/s; for at least 95 %, each alone: "), "{table}");
    assert!(said.contains("simulated"));
    assert!(
        table.contains("us alone") && table.contains("us inside the model (stack gpt-fast)"),
        "{table}"
    );
    // without P2P the profile has a formula, which the stack does not scale
    let off = place.run(&[&["whatif", "--p2p", "off"], &cell[..]].concat()).exits(0).stdout;
    assert!(
        off.replace("\n  ", " ").contains("us, alone and inside the model (stack gpt-fast)"),
        "{off}"
    );
    let set = place.run(&[&["whatif", "--set", "link.alpha_us=5"], &cell[..]].concat()).exits(0).stdout;
    assert!(set.contains("--set link.alpha_us=5"), "{set}");
    assert!(set.contains(" speedup (TPOT) ") && set.contains(" hidden % "), "{set}");
    let without_effect = place.run(&["whatif", "--samples", "3"]).exits(2);
    assert!(without_effect.stderr.contains("--samples has no effect in whatif"));
    let trace = place.run(&["whatif", "trace.json"]).exits(2);
    assert!(trace.stderr.contains("ladderscope rewire trace.json"), "{}", trace.stderr);
    let nothing = place.run(&["whatif", "--model", "tiny", "--tp", "3"]).exits(2);
    assert!(nothing.stderr.contains('3'), "{nothing:?}");
    for (wrong, said) in [("--alpha-us=-1", "-1"), ("--sms=500", "500"), ("--hidden-pct=0", "0")] {
        let done = place.run(&[&["whatif", wrong], &cell[..]].concat()).exits(2);
        assert!(done.stderr.contains(said), "{done:?}");
    }
}

/// With data-parallel attention experts exchange tokens, at measured latencies: what changes only all-reduces or the
/// link is refused in `whatif` and `run` alike.
#[test]
fn what_changes_nothing_where_experts_exchange_tokens_is_refused() {
    let place = Place::new();
    let cell =
        ["--model", "gpt-oss-20b", "--dp", "8", "--ep", "8", "--batch", "16", "--output-tokens", "8"];
    let run = |words: &[&str]| place.run(&[words, &cell[..]].concat());
    for (wrong, said) in [
        (&["--alpha-us", "5,20"][..], "--alpha-us has no effect"),
        (&["--gb-s", "20"], "--gb-s has no effect"),
        (&["--p2p", "off"], "--p2p has no effect"),
        (&["--set", "link.alpha_us=5"], "--set link.alpha_us has no effect"),
        (&["--collective", "one-shot"], "collective one-shot changes all-reduces"),
        (&["--sequence-parallel"], "sequence parallelism changes all-reduces"),
    ] {
        let done = run(&[&["whatif"], wrong].concat()).exits(2);
        assert!(done.stderr.replace("\n  ", " ").contains(said), "{done:?}");
    }
    let table = run(&["whatif"]).exits(0).stdout.replace("\n  ", " ");
    assert!(table.contains("desync:2, delayed:2, sync-drop: changes all-reduces"), "{table}");
    assert!(
        table.contains("take their latency from measurements") && !table.contains("for at least 95 %")
    );
    for options in [&["--architecture", "desync:2"][..], &["--sequence-parallel"]] {
        let refused = run(&[&["run", "--backend", "sim"], options].concat());
        assert!(refused.exits(2).stdout.contains("changes all-reduces"));
    }
    // an emulated link is one that messages cross
    let emulated = ["whatif", "--link", "emulated:alpha_us=20,gb_s=50", "--alpha-us", "5,50"];
    run(&emulated).exits(0);
    // one sweep beside a setting
    let both = place.run(&[
        "whatif",
        "--model",
        "gpt-oss-20b",
        "--tp",
        "8",
        "--experts",
        "16",
        "--top-k",
        "2,4",
    ]);
    assert!(both.exits(0).stdout.contains("gpt-oss-20b@experts=16"));
    let counts = ["whatif", "--model", "gpt-oss-20b", "--tp", "8", "--expert-load", "counts:1+2"];
    assert!(place.run(&counts).exits(2).stderr.contains("has 2 counts"));
    let load =
        ["whatif", "--model", "gpt-oss-20b", "--tp", "8", "--batch", "16", "--expert-load", "power:2"];
    assert!(place.run(&load).exits(0).stdout.contains("of 32 experts a layer"));
}
