//! `figure` and `report`: files that are whole, of the size that was asked for, and say what they are.

use crate::support::Place;

/// Two architectures, two P2P settings, two batches: eight simulated cells in `runs/`.
const SWEEP: &str = "question = \"Does <ladder> gain?\"\nbackend = \"sim\"\nhardware = \"h100_sxm\"\n\
[model]\nname = \"llama-3-8b\"\n[workload]\nprompt_tokens = 64\noutput_tokens = 8\n\
[grid]\narchitecture = [\"standard\", \"ladder\"]\ntp = [4]\nbatch = [1, 4]\np2p = [\"on\", \"off\"]\n";

fn swept() -> Place {
    let place = Place::new();
    place.write("experiments/asks.toml", SWEEP);
    place.run(&["sweep", "experiments/asks.toml"]).exits(0);
    place
}

#[test]
fn every_kind_of_figure_is_written_at_its_size_with_its_provenance() {
    let place = swept();
    for kind in ["pareto", "throughput", "improvement", "gain", "overlap", "p2p"] {
        let (svg, png) = (format!("{kind}.svg"), format!("{kind}.png"));
        let done = place.run(&["figure", kind, "-o", &svg, "--size", "4x3.5"]).exits(0);
        assert!(done.stdout.is_empty() && done.stderr.contains("simulated (not a measurement)"));
        let text = std::fs::read_to_string(place.path().join(&svg)).unwrap();
        let document = roxmltree::Document::parse(&text).unwrap();
        let root = document.root_element();
        assert_eq!((root.attribute("width"), root.attribute("height")), (Some("4in"), Some("3.5in")));
        assert!(text.contains("<dc:source>simulated (not a measurement)</dc:source>"), "{kind}");

        let arguments = ["figure", kind, "-o", &png, "--size", "4x3.5", "--dpi", "100"];
        place.run(&arguments).exits(0);
        let bytes = std::fs::read(place.path().join(&png)).unwrap();
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((number(16), number(20)), (400, 350), "{kind}");
        let has = |chunk: &[u8]| bytes.windows(chunk.len()).any(|window| window == chunk);
        assert!(has(b"pHYs") && has(b"Provenance"), "{kind}");

        // The same command, the same bytes.
        place.run(&["figure", kind, "-o", &svg, "--size", "4x3.5"]).exits(0);
        let again = std::fs::read_to_string(place.path().join(&svg)).unwrap();
        assert!(text == again, "{kind}");
    }
}

/// What a sceptic asks of a figure that was published, without the folders of the machine that made it.
#[test]
fn a_figures_file_has_command_version_and_binary_and_no_absolute_path() {
    let place = swept();
    let here = place.path().canonicalize().unwrap().display().to_string();
    let runs = format!("{here}/runs");
    let mine = format!("{here}/h100.toml");
    place.write("h100.toml", &place.run(&["hardware", "h100_sxm", "--toml"]).exits(0).stdout);
    let run = ["run", "--backend", "sim", "--model", "tiny", "--tp", "2", "--dir", "own", "--hardware"];
    for architecture in ["standard", "ladder"] {
        place.run(&[&run[..], &[&mine, "--architecture", architecture]].concat()).exits(0);
    }
    for (dir, hardware) in [(runs.as_str(), "h100_sxm"), ("own", "h100.toml")] {
        for file in ["figure.svg", "figure.png"] {
            let to = format!("{here}/{file}");
            place.run(&["figure", "throughput", "-o", &to, "--dir", dir]).exits(0);
            let bytes = std::fs::read(place.path().join(file)).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let binary = text.split("Binary").nth(1).unwrap_or_default();
            let hash: String = binary.chars().skip_while(|c| !c.is_ascii_hexdigit()).take(64).collect();
            assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
            let command = format!(
                "ladderscope figure throughput -o {file} --dir {}",
                dir.rsplit('/').next().unwrap()
            );
            assert!(text.contains(&command), "{file}: {text}");
            assert!(text.contains(concat!("ladderscope ", env!("CARGO_PKG_VERSION"))), "{file}");
            assert!(text.contains(hardware) && !text.contains(&here), "{file} {dir}");
        }
    }
}

#[test]
fn runs_are_chosen_by_conditions_and_by_p2p() {
    let place = swept();
    place.run(&["figure", "throughput", "--p2p", "on", "--filter", "batch=1", "-o", "a.svg"]).exits(0);
    let text = std::fs::read_to_string(place.path().join("a.svg")).unwrap();
    assert!(text.contains(">\nbatch 1\n</text>") && !text.contains(">\nbatch 4\n</text>"));
    assert!(!text.contains("P2P off"));
    let done = place.run(&["figure", "p2p", "--p2p", "on", "-o", "b.svg"]).exits(2);
    assert!(done.stderr.contains("all runs have the same P2P setting"), "{done:?}");
    let done = place.run(&["figure", "pareto", "--filter", "batch=9", "-o", "b.svg"]).exits(2);
    assert!(done.stderr.contains("no finished runs"), "{done:?}");
    assert!(!place.path().join("b.svg").exists(), "nothing was written");
}

#[test]
fn wrong_figures_are_refused_before_any_work() {
    let place = Place::new();
    for (arguments, parts) in [
        (&["figure", "pie", "-o", "a.svg"][..], &["'pie'", "pareto"][..]),
        (&["figure", "pareto", "-o", "a.pdf"], &["a.pdf", ".svg or .png"]),
        (&["figure", "pareto", "-o", "a.svg", "--size", "big"], &["--size", "'big'", "column"]),
        (&["figure", "pareto", "-o", "a.png", "--dpi", "9"], &["9 dpi", "300"]),
        (&["figure", "pareto"], &["--output"]),
        (
            &["figure", "p2p", "-o", "a.svg", "--layers", "2"],
            &["--layers", "figure overlap", "figure p2p"],
        ),
        (&["figure", "pareto", "-o", "a.svg"], &["no finished runs", "sweep"]),
        (&["report", "-o", "a.txt"], &["a.txt", ".html"]),
        (&["report", "-o", "a.html"], &["no finished runs"]),
    ] {
        let done = place.run(arguments).exits(2);
        for part in parts {
            assert!(done.stderr.contains(part), "'{part}' is missing in {done:?}");
        }
    }
}

#[test]
fn places_that_cannot_be_written_are_said_in_a_line_and_old_files_stay() {
    let place = swept();
    std::os::unix::fs::symlink("/dev/full", place.path().join("full.svg")).unwrap();
    std::os::unix::fs::symlink("/dev/full", place.path().join("full.html")).unwrap();
    for (arguments, code, says) in [
        (["figure", "pareto", "-o", "full.svg"], 1, "No space left"),
        (["report", "runs", "-o", "full.html"], 1, "No space left"),
        (["figure", "pareto", "-o", "no/such/a.svg"], 2, "no such directory"),
        (["report", "runs", "-o", "no/such/a.html"], 2, "no such directory"),
    ] {
        let done = place.run(&arguments).exits(code);
        let errors: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error:")).collect();
        assert_eq!(errors.len(), 1, "{done:?}");
        assert!(errors[0].contains(arguments[3]) && errors[0].contains(says), "{done:?}");
    }
    let old = place.write("old.svg", "old");
    place.run(&["figure", "p2p", "--p2p", "on", "-o", "old.svg"]).exits(2);
    assert_eq!(std::fs::read_to_string(old).unwrap(), "old");
}

#[test]
fn a_report_is_one_page_that_asks_for_nothing() {
    let place = swept();
    let done = place.run(&["report", "-o", "r.html"]).exits(0);
    assert!(done.stderr.contains("wrote r.html: 8 runs"), "{done:?}");
    let html = std::fs::read_to_string(place.path().join("r.html")).unwrap();
    for part in [
        "Does &lt;ladder&gt; gain? (experiment asks)",
        "badge simulated",
        "not measurements",
        "ladderscope report -o report.html",
        "ladderscope compare --by architecture",
        "than standard",
        "P2P off vs on, tokens/s: ",
        "<figure id=\"f0overlap\">",
        "Suspicious results",
    ] {
        assert!(html.contains(part), "'{part}' is missing");
    }
    for (at, _) in html.match_indices("://") {
        let before = &html[at.saturating_sub(60)..at];
        assert!(before.contains("xmlns"), "an address that is no name space: {before}");
    }
    // What its commands say can be done.
    for command in html.split("<p class=\"command\"><code>").skip(1) {
        let command = command.split("</code>").next().unwrap().replace("&#39;", "'");
        let command = command.replace("&quot;", "\"");
        let mut words: Vec<String> = Vec::new();
        for (index, part) in command.split('\'').enumerate() {
            match index % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        place.run(&words).exits(0);
    }
}

#[test]
fn exports_of_the_other_verbs_are_the_same_figures() {
    let place = swept();
    place.run(&["pareto", "--export", "a.svg"]).exits(0);
    place.run(&["figure", "pareto", "-o", "b.svg"]).exits(0);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    // but for the command that wrote it
    let drawn = |name: &str| {
        let text = read(name);
        text.lines().filter(|line| !line.contains("Command: ")).collect::<Vec<_>>().join("\n")
    };
    assert!(drawn("a.svg") == drawn("b.svg"), "the same runs, the same bytes");
    place.run(&["compare", "--by", "p2p", "--export", "c.png"]).exits(0);
    place.run(&["timeline", "last", "--export", "d.svg"]).exits(0);
    assert!(read("d.svg").contains("exposed communication"));
    let runs = place.run(&["runs", "--all", "--format", "json"]).exits(0).json();
    let named = |at: usize| runs[at]["run"].as_str().unwrap().to_owned();
    place.run(&["timeline", &named(0), &named(1), "--export", "e.svg"]).exits(0);
    let both = read("e.svg");
    assert!(both.contains("from the start of each window"), "two traces on one scale");
    assert!(both.matches("in this window").count() >= 2, "each with its numbers");
}

#[test]
fn a_report_of_named_runs_says_commands_that_mean_these() {
    let place = swept();
    let runs = place.run(&["runs", "--all", "--format", "json"]).exits(0).json();
    let batch = runs[0]["run"].as_str().and_then(|run| run.split_once(':')).unwrap().0.to_owned();
    place.run(&["run", "--backend", "sim", "--model", "llama-3-8b", "--tp", "2"]).exits(0);
    let begins = &batch[..batch.len() - 2];
    for named in [batch.as_str(), begins] {
        let html = report_of(&place, &[named]);
        assert!(html.contains(&format!("ladderscope pareto {named} --frontier")));
        assert_eq!(meant(&place, &html), 8, "the run that was not named is not among them: {named}");
    }
}

fn report_of(place: &Place, named: &[&str]) -> String {
    place.run(&[&["report"], named, &["-o", "r.html"]].concat()).exits(0);
    std::fs::read_to_string(place.path().join("r.html")).unwrap()
}

/// How many runs the page's first command that lists some lists.
fn meant(place: &Place, html: &str) -> usize {
    let (_, filter) = html.split_once("ladderscope runs --filter ").expect("its command");
    let filter = filter.split_once("</code>").unwrap().0.replace("&#39;", "");
    let listed = place.run(&["runs", "--filter", &filter, "--format", "json"]).exits(0).json();
    listed.as_array().map_or(0, Vec::len)
}

#[test]
fn a_report_of_one_row_does_not_mean_the_rows_whose_numbers_begin_alike() {
    let place = Place::new();
    place.write("experiments/asks.toml", &SWEEP.replace("batch = [1, 4]", "batch = [1, 2, 4]"));
    place.run(&["sweep", "experiments/asks.toml"]).exits(0);
    let runs = place.run(&["runs", "--all", "--format", "json"]).exits(0).json();
    let ids: Vec<&str> = runs.as_array().unwrap().iter().filter_map(|run| run["run"].as_str()).collect();
    let begins = |of: &str| ids.iter().filter(|id| id.starts_with(of)).count();
    let row = *ids.iter().find(|id| begins(id) > 1).expect("rows 1 and 10");
    place.write("experiments/more.toml", &SWEEP.replace("batch = [1, 4]", "batch = [8]"));
    place.run(&["sweep", "experiments/more.toml"]).exits(0);
    let all = place.run(&["runs", "--all", "--format", "json"]).exits(0).json();
    let mut others = all.as_array().unwrap().iter().filter_map(|run| run["run"].as_str());
    let more = others.find(|id| !ids.contains(id)).and_then(|id| id.split_once(':')).unwrap().0;
    for (arguments, rows) in [(&[row][..], 1), (&[row, more], 5)] {
        let html = report_of(&place, arguments);
        assert_eq!(meant(&place, &html), rows, "{arguments:?}");
    }
}

/// Two ranks, three steps of PyTorch's profiler, a kernel with a hostile name.
#[test]
fn a_trace_is_shared_as_one_page() {
    let place = Place::new();
    let mut events = Vec::new();
    for (rank, step) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let at = 1_000 * (step + 1);
        for (name, stream, from, dur) in
            [("<b>gemm</b>", 7, 0, 400), ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 20, 300, 300)]
        {
            events.push(format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": {rank}, "tid": {stream}, "ts": {}, "dur": {dur},
                "args": {{"device": {rank}, "stream": {stream}}}}}"#,
                at + from
            ));
        }
    }
    place.write("engine.json", &format!(r#"{{"traceEvents": [{}]}}"#, events.join(",")));
    let done = place.run(&["report", "engine.json", "-o", "t.html"]).exits(0);
    assert!(done.stderr.contains("wrote t.html"), "{done:?}");
    assert!(done.stderr.contains("(measured); timeline of 8 GPU events, step 0 of 1"), "{done:?}");
    let html = std::fs::read_to_string(place.path().join("t.html")).unwrap();
    assert!(!html.contains("<b>gemm") && html.contains("&lt;&gt;gemm"), "names are escaped");
    for part in ["Overlap by rank", "Operations", "Collectives", "Provenance", "Kineto JSON"] {
        assert!(html.contains(part), "'{part}' is missing");
    }
    // the command on the page shows the same verdict
    let told = place.run(&["overlap", "engine.json", "--format", "json"]).exits(0).json();
    let headline = told["verdict"]["headline"].as_str().unwrap();
    assert!(html.contains(&headline.replace('<', "&lt;").replace('>', "&gt;")), "{headline}");
    let part =
        place.run(&["report", "engine.json", "--from", "0", "--to", "900us", "-o", "p.html"]).exits(0);
    assert!(part.stderr.contains("4 GPU events"), "{part:?}");
    for (arguments, words) in [
        (&["report", "engine.json", "--step", "7"][..], "no step 7"),
        (&["report", "engine.json", "other.json", "--from", "1"][..], "name one trace"),
    ] {
        let refused = place.run(arguments).exits(2);
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}
