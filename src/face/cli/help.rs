//! Help beyond the argument structs: examples and documentation page of each verb, headings of long option lists, and
//! the global options that have no effect on a verb.

use clap::{Arg, Command};

use super::uses_runs_dir;

/// Examples and documentation pages by verb.
const EXAMPLES: [(&str, &[&str], &str); 31] = [
    (
        "sweep",
        &[
            "ladderscope sweep quickstart",
            "ladderscope sweep paper-70b --dir paper",
            "ladderscope sweep mine.toml --baseline main --gate 'tpot<+3%'",
        ],
        "experiment-files.md",
    ),
    (
        "run",
        &[
            "ladderscope run --model llama-3-70b --architecture ladder --tp 8 --stack gpt-fast",
            "ladderscope run --model stories-110m --backend cpu --tp 2 --link emulated:alpha_us=200,gb_s=5",
            "ladderscope run --model meta-llama/Llama-3.2-1B --backend cuda --trace ladder.json.gz",
        ],
        "architectures.md",
    ),
    (
        "record",
        &[
            "ladderscope record -- vllm serve meta-llama/Llama-3.1-8B -tp 2",
            "ladderscope record --delay 60 --duration 5 -- torchrun --nproc-per-node 8 train.py",
            "ladderscope record --on-demand --name decode -- python3 serve.py",
            "ladderscope record --start runs/recordings/decode",
        ],
        "trace-of-my-engine.md",
    ),
    (
        "generate",
        &[
            "ladderscope generate --model smollm --prompt 'The capital of France is'",
            "ladderscope generate --model smollm --architecture ladder:10 --tp 2 --prompt 'Once upon'",
        ],
        "quality.md",
    ),
    (
        "runs",
        &[
            "ladderscope runs --filter 'arch:ladder tp:8 tpot<12' --sort tpot",
            "ladderscope runs --columns run,arch,tp,tpot,hidden --format csv",
            "ladderscope runs tag paper last",
            "ladderscope runs delete --filter failed",
        ],
        "files-and-formats.md",
    ),
    ("show", &["ladderscope show last", "ladderscope show last --format json"], "statistics.md"),
    (
        "timeline",
        &[
            "ladderscope timeline profile.json.gz",
            "ladderscope timeline last --step 8 -o step.svg",
            "ladderscope timeline standard.parquet ladder.parquet",
        ],
        "workbench.md",
    ),
    (
        "overlap",
        &[
            "ladderscope overlap profile.json.gz",
            "ladderscope overlap traces/ --step 12 --by collective",
            "ladderscope overlap profile.json.gz --by product --hardware h100_sxm",
        ],
        "trace-of-my-engine.md",
    ),
    (
        "figure",
        &[
            "ladderscope figure throughput --dir paper -o throughput.svg",
            "ladderscope figure pareto --dir paper --overlay published -o pareto.svg",
            "ladderscope figure overlap standard.parquet ladder.parquet -o overlap.png --size column",
        ],
        "paper.md",
    ),
    (
        "report",
        &[
            "ladderscope report --dir paper -o paper.html",
            "ladderscope report --filter experiment:quickstart",
            "ladderscope report profile.json.gz --step 12 -o step.html",
        ],
        "tutorial.md",
    ),
    (
        "compare",
        &[
            "ladderscope compare --by architecture --filter 'tp:8 batch:1'",
            "ladderscope compare --by p2p --heatmap",
            "ladderscope compare --baseline main --gate 'tpot<+3%' --gate 'tok/s>-2%'",
        ],
        "statistics.md",
    ),
    (
        "diff",
        &[
            "ladderscope diff p2p-on/ p2p-off/",
            "ladderscope diff before.json.gz after.json.gz --gate 'tpot<+3%'",
            "ladderscope diff before/ after/ --check to-ladder",
        ],
        "trace-of-my-engine.md",
    ),
    (
        "pareto",
        &[
            "ladderscope pareto --dir paper --frontier",
            "ladderscope pareto --x tpot --y total --at 10,20,50",
            "ladderscope pareto --area --overlay published -o pareto.svg",
        ],
        "paper.md",
    ),
    (
        "baseline",
        &[
            "ladderscope baseline set main --filter experiment:nightly",
            "ladderscope compare --baseline main --gate 'tpot<+3%'",
        ],
        "pipelines.md",
    ),
    (
        "whatif",
        &[
            "ladderscope whatif --model llama-3-70b --tp 8 --alpha-us 5,10,20,40",
            "ladderscope whatif --hardware mine.toml --architecture ladder",
            "ladderscope whatif --set link.alpha_us=19 --set link.gb_s=60",
        ],
        "my-cluster.md",
    ),
    (
        "rewire",
        &[
            "ladderscope rewire profile.json.gz",
            "ladderscope rewire traces/ --architecture ladder,desync:2 --no-launches",
            "ladderscope rewire traces/ --collective fused,multimem --hardware h100_sxm",
            "ladderscope rewire traces/ --architecture ladder --save to-ladder",
        ],
        "trace-of-my-engine.md",
    ),
    (
        "calibrate",
        &[
            "ladderscope calibrate --collectives tp2.txt,tp4.txt,tp8.txt -o mine",
            "ladderscope calibrate --collectives p2p-off.txt --p2p off --hardware mine/h100_sxm.toml -o mine",
            "ladderscope calibrate --data runs.csv --hardware h100_sxm --stack gpt-fast -o mine",
        ],
        "my-cluster.md",
    ),
    (
        "validate",
        &["ladderscope validate", "ladderscope validate paper_70b --set link.alpha_us=8 -o errors.svg"],
        "simulator.md",
    ),
    (
        "evaluate",
        &[
            "ladderscope evaluate --model smollm --text book.txt --architecture standard,ladder:10,ladder",
            "ladderscope evaluate --model adapted --reference smollm --text book.txt",
        ],
        "quality.md",
    ),
    (
        "convert",
        &[
            "ladderscope convert --model smollm --text book.txt --for h100_sxm,tp=8",
            "ladderscope convert --model smollm --text b.txt --for h100_sxm --budget 'kl<=0.05' --write out",
            "ladderscope convert --model smollm --layers 10 --write out",
        ],
        "quality.md",
    ),
    (
        "adapt",
        &[
            "ladderscope adapt --model smollm --text book.txt --architecture ladder:10 --steps 200",
            "ladderscope adapt --from-scratch mini --text book.txt --steps 2000 --seed 0,1,2",
        ],
        "quality.md",
    ),
    (
        "doctor",
        &["ladderscope doctor --quick", "ladderscope doctor --check", "ladderscope doctor --store runs"],
        "gpus-and-clusters.md",
    ),
    ("models", &["ladderscope models", "ladderscope models --format csv"], "architectures.md"),
    (
        "hardware",
        &[
            "ladderscope hardware h100_sxm",
            "ladderscope hardware h100_sxm b200_sxm l40s",
            "ladderscope hardware h100_sxm --toml > mine.toml",
        ],
        "hardware-profiles.md",
    ),
    ("experiments", &["ladderscope experiments", "ladderscope sweep quickstart"], "experiment-files.md"),
    (
        "trace",
        &[
            "ladderscope trace convert profile.nsys-rep.sqlite trace.parquet",
            "ladderscope trace convert traces/ merged.json.gz",
            "ladderscope trace convert last ranks/ --per-rank",
        ],
        "files-and-formats.md",
    ),
    (
        "export",
        &[
            "ladderscope export runs.parquet",
            "ladderscope export ladder.parquet --filter arch:ladder --sort tpot",
        ],
        "files-and-formats.md",
    ),
    (
        "config",
        &["ladderscope config --path", "ladderscope config --theme dark > settings.toml"],
        "workbench.md",
    ),
    (
        "schema",
        &["ladderscope schema experiment > experiment.schema.json", "ladderscope schema overlap"],
        "files-and-formats.md",
    ),
    (
        "man",
        &["ladderscope man | man -l -", "ladderscope man ~/.local/share/man/man1"],
        "command-line.md",
    ),
    (
        "completions",
        &["ladderscope completions bash > ladderscope.bash", "ladderscope completions zsh"],
        "command-line.md",
    ),
];

/// Headings of options: verbs, heading, ids of the options.
const HEADINGS: [(&[&str], &str, &[&str]); 14] = [
    (
        &["run", "whatif"],
        "Model and workload",
        &[
            "architecture",
            "model",
            "dtype",
            "kv_dtype",
            "tp",
            "pp",
            "ep",
            "dp",
            "expert_load",
            "batch",
            "prompt_tokens",
            "output_tokens",
            "micro_batches",
            "concurrency",
            "sequence_parallel",
            "shard_head",
            "seed",
        ],
    ),
    (
        &["run", "whatif"],
        "Backend and communication",
        &["backend", "p2p", "link", "collective", "comm_dtype", "nvls", "comm_sms", "env"],
    ),
    (&["run", "whatif"], "Simulator", &["hardware", "stack", "set"]),
    (
        &["run"],
        "Measured runs",
        &["samples", "warmup", "rounds", "threads", "recorder", "no_graph", "timeout"],
    ),
    (&["whatif"], "Sweep", &["alpha_us", "gb_s", "sms", "hidden_pct"]),
    (
        &["calibrate"],
        "Add measured all-reduces to a profile",
        &["collectives", "p2p", "message_bytes", "extrapolate", "rules", "recording"],
    ),
    (
        &["calibrate"],
        "Fit constants to measured runs",
        &["data", "filter", "stack", "fit", "no_cross_validation"],
    ),
    (&["rewire"], "If the trace does not record it", &["layers", "tp", "message_bytes"]),
    (&["rewire", "overlap"], "Opening traces", &["rules", "recording", "filter"]),
    (&["diff", "report"], "Opening traces", &["rules", "recording"]),
    (&["overlap", "timeline", "report"], "Selection", &["phase", "step", "from", "to"]),
    (&["convert"], "Write a checkpoint", &["write", "layers", "budget", "point"]),
    (&["convert", "validate"], "Figure", &["output", "size", "dpi", "font"]),
    (
        &["adapt"],
        "Optimizer",
        &[
            "lr",
            "warmup",
            "weight_decay",
            "clip",
            "batch",
            "context",
            "distil",
            "replicas",
            "tp",
            "seed",
        ],
    ),
];

/// Verbs that read traces, and so have a memory limit.
const TRACE_VERBS: [&str; 10] = [
    "record",
    "timeline",
    "diff",
    "overlap",
    "show",
    "figure",
    "report",
    "rewire",
    "calibrate",
    "trace",
];

/// Adds examples and headings to all verbs, and hides global options without effect. Builds the command, since only
/// then the verbs have the global options.
pub(super) fn completed(mut command: Command) -> Command {
    command.build();
    for verb in command.get_subcommands_mut() {
        *verb = adapted(std::mem::take(verb));
    }
    command
}

fn adapted(verb: Command) -> Command {
    let name = verb.get_name().to_owned();
    let Some((_, examples, page)) = EXAMPLES.iter().find(|(of, ..)| *of == name) else { return verb };
    let header = verb.get_styles().get_header();
    let notes = verb.get_after_help().map(|notes| format!("{}\n\n", notes.ansi())).unwrap_or_default();
    let lines: String = examples.iter().map(|line| format!("  {line}\n")).collect();
    let after = format!("{notes}{header}Examples:{header:#}\n{lines}\nDocumentation: docs/{page}");
    let has_csv =
        name == "trace" || name == "runs" || verb.get_arguments().any(|arg| arg.get_id() == "format");
    let is_shown = move |id: &str| match id {
        "dir" => uses_runs_dir(&name),
        "raw" => has_csv,
        "memory_limit" => TRACE_VERBS.contains(&name.as_str()),
        _ => true,
    };
    let of = verb.get_name().to_owned();
    let heading = move |arg: Arg| {
        let id = arg.get_id().as_str().to_owned();
        if !is_shown(&id) {
            return arg.hide(true);
        }
        let takes_value = arg.get_action().takes_values() && arg.get_long().is_some();
        match HEADINGS.iter().find(|(verbs, _, ids)| verbs.contains(&&*of) && ids.contains(&&*id)) {
            Some((_, heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
        // so that -1 is an error about the number, not about an unknown option -1
        .allow_negative_numbers(takes_value)
    };
    verb.mut_args(heading).after_help(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::cli::app::command;

    /// An example with a wrong option would be worse than none.
    #[test]
    fn every_verb_has_examples_that_parse() {
        let verbs: Vec<String> = command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
            .map(|verb| verb.get_name().to_owned())
            .collect();
        for verb in verbs {
            let found = EXAMPLES.iter().find(|(name, ..)| *name == verb);
            let (_, examples, page) = found.unwrap_or_else(|| panic!("{verb} has no examples"));
            let page = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&page).is_file(), "{page}");
            for example in *examples {
                let line = example.split(" | ").next().unwrap().split(" > ").next().unwrap();
                // quoted words contain blanks
                let mut words: Vec<String> = Vec::new();
                for (at, part) in line.split('\'').enumerate() {
                    match at % 2 {
                        0 => words.extend(part.split_whitespace().map(str::to_owned)),
                        _ => words.push(part.to_owned()),
                    }
                }
                assert!(example.len() < 98, "too long: {example}");
                let parsed = command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn headings_name_options() {
        let command = command();
        for (verbs, heading, ids) in HEADINGS {
            for verb in verbs {
                let found = command.find_subcommand(verb).unwrap();
                let has = |id: &&str| found.get_arguments().any(|arg| arg.get_id() == *id);
                let of_one = ids.iter().any(has);
                assert!(of_one, "{verb} has no option of '{heading}'");
            }
            let of_any = |id: &&&str| {
                verbs
                    .iter()
                    .filter_map(|verb| command.find_subcommand(verb))
                    .any(|verb| verb.get_arguments().any(|arg| arg.get_id() == **id))
            };
            for id in ids {
                assert!(of_any(&id), "{heading}: no option {id}");
            }
        }
    }
}
