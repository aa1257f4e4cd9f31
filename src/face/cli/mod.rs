//! Command line: a file per verb, except that `catalog` has `models` and `experiments`, `workbench` has `timeline` and
//! `config`, `help` has `man`, and `runs` has `export`.
//!
//! `app` parses the arguments and calls the verb. A verb is a `clap::Args` struct, a function from it to an exit
//! status, and its line in the list below. Results go to standard output through `output`; progress, warnings and
//! errors to standard error through `stderr`.

mod adapt;
mod app;
mod baseline;
mod calibrate;
mod calibrate_collectives;
mod catalog;
mod compare;
mod complete;
mod completions;
mod convert;
mod diff;
mod doctor;
mod doctor_check;
mod doctor_gpu;
mod doctor_machine;
mod doctor_store;
mod evaluate;
mod figure;
mod filter;
mod gate;
mod generate;
mod hardware;
mod help;
mod import;
mod output;
mod overlap;
mod overlap_text;
mod pareto;
mod progress;
mod record;
mod record_table;
mod report;
mod rewire;
mod run;
mod running;
mod runs;
mod schema;
mod select;
mod show;
mod slurm_task;
mod stderr;
mod step_progress;
mod sweep;
mod sweep_dry_run;
mod trace;
mod validate;
mod whatif;
mod whatif_text;
mod workbench;

pub use app::main;
pub use doctor_machine::read_bandwidth;

// A verb whose closure takes `_` instead of the runs directory has no `--dir` in its help.
app::verbs! {
    "Run" {
        /// Run an experiment, or resume an interrupted one
        Sweep(sweep::Args): |args, dir| sweep::run(&args, dir), "experiment-files.md", [
            "ladderscope sweep quickstart",
            "ladderscope sweep mine.toml --dry-run",
            "ladderscope sweep paper-70b --dir paper",
            "ladderscope sweep mine.toml --baseline main --gate 'tpot<+3%'",
        ];
        /// Run one cell and store its record
        Run(Box<run::Args>): |args, dir| run::run(&args, dir), "architectures.md", [
            "ladderscope run --model llama-3-70b --architecture ladder --tp 8 --stack gpt-fast",
            "ladderscope run --model stories-110m --backend cpu --tp 2 --link emulated:alpha_us=200,gb_s=5",
            "ladderscope run --model meta-llama/Llama-3.2-1B --backend cuda --trace ladder.json.gz",
        ];
        /// Record any CUDA program and explain its exposed communication
        Record(Box<record::Args>): |args, dir| record::run(&args, &dir), "trace-of-my-engine.md", [
            "ladderscope record -- vllm serve meta-llama/Llama-3.1-8B -tp 2",
            "ladderscope record --delay 60 --duration 5 -- torchrun --nproc-per-node 8 train.py",
            "ladderscope record --on-demand --name decode -- python3 serve.py",
            "ladderscope record --start runs/recordings/decode",
        ];
        /// Generate tokens from a checkpoint, with any architecture and TP
        Generate(Box<generate::Args>): |args, _| generate::run(&args), "quality.md", [
            "ladderscope generate --model smollm --prompt 'The capital of France is'",
            "ladderscope generate --model smollm --architecture ladder:10 --tp 2 --prompt 'Once upon'",
        ];
    }
    "Look" {
        /// List, tag and delete stored runs
        Runs(runs::Args): |args, dir| runs::run(&args, dir), "files-and-formats.md", [
            "ladderscope runs --filter 'arch:ladder tp:8 tpot<12' --sort tpot",
            "ladderscope runs --columns run,arch,tp,tpot,hidden --format csv",
            "ladderscope runs tag paper last",
            "ladderscope runs delete --filter failed",
        ];
        /// Show one run: settings, metrics with intervals, time breakdown
        Show(show::Args): |args, dir| show::run(&args, dir), "statistics.md", [
            "ladderscope show last",
            "ladderscope show last --format json",
        ];
        /// Open a trace in the workbench, or export a figure of it
        Timeline(workbench::TimelineArgs): |args, dir| workbench::timeline(&args, dir), "workbench.md", [
            "ladderscope timeline profile.json.gz",
            "ladderscope timeline last --step 8 -o step.svg",
            "ladderscope timeline standard.parquet ladder.parquet",
        ];
        /// Explain where a trace spends its time: exposed communication, idle, ...
        Overlap(overlap::Args): |args, dir| overlap::run(&args, dir), "trace-of-my-engine.md", [
            "ladderscope overlap profile.json.gz",
            "ladderscope overlap traces/ --step 12 --by collective",
            "ladderscope overlap profile.json.gz --by product --hardware h100_sxm",
        ];
        /// Draw a figure for a paper: pareto, throughput, overlap, ...
        Figure(figure::Args): |args, dir| figure::run(&args, dir), "paper.md", [
            "ladderscope figure throughput --dir paper -o throughput.svg",
            "ladderscope figure pareto --dir paper --overlay published -o pareto.svg",
            "ladderscope figure overlap standard.parquet ladder.parquet -o overlap.png --size column",
        ];
        /// Write a self-contained HTML page about runs, or about a trace with a timeline
        Report(report::Args): |args, dir| report::run(&args, dir), "tutorial.md", [
            "ladderscope report --dir paper -o paper.html",
            "ladderscope report --filter experiment:quickstart",
            "ladderscope report profile.json.gz --step 12 -o step.html",
        ];
    }
    "Compare" {
        /// Compare matched pairs of runs: ratios with confidence intervals
        Compare(compare::Args): |args, dir| compare::run(&args, dir), "statistics.md", [
            "ladderscope compare --by architecture --filter 'tp:8 batch:1'",
            "ladderscope compare --by p2p --heatmap",
            "ladderscope compare --baseline main --gate 'tpot<+3%' --gate 'tok/s>-2%'",
        ];
        /// Compare two traces of one engine: what became slower, and why
        Diff(diff::Args): |args, dir| diff::run(&args, dir), "trace-of-my-engine.md", [
            "ladderscope diff p2p-on/ p2p-off/",
            "ladderscope diff before.json.gz after.json.gz --gate 'tpot<+3%'",
            "ladderscope diff before/ after/ --check to-ladder",
        ];
        /// Show the Pareto frontier of completion latency and per-GPU throughput
        Pareto(pareto::Args): |args, dir| pareto::run(&args, dir), "paper.md", [
            "ladderscope pareto --dir paper --frontier",
            "ladderscope pareto --x tpot --y total --at 10,20,50",
            "ladderscope pareto --area --overlay published -o pareto.svg",
        ];
        /// Set, list and delete baselines for later comparisons
        Baseline(baseline::Args): |args, dir| baseline::run(&args, dir), "pipelines.md", [
            "ladderscope baseline set main --filter experiment:nightly",
            "ladderscope compare --baseline main --gate 'tpot<+3%'",
        ];
    }
    "Predict" {
        /// Simulate a cell over a range of links and find its break-even link
        Whatif(Box<whatif::Args>): |args, dir| whatif::run(&args, dir), "my-cluster.md", [
            "ladderscope whatif --model llama-3-70b --tp 8 --alpha-us 5,10,20,40",
            "ladderscope whatif --hardware mine.toml --architecture ladder",
            "ladderscope whatif --set link.alpha_us=19 --set link.gb_s=60",
        ];
        /// Predict the step time of a trace with another architecture or all-reduce
        Rewire(rewire::Args): |args, dir| rewire::run(&args, dir), "trace-of-my-engine.md", [
            "ladderscope rewire profile.json.gz",
            "ladderscope rewire traces/ --architecture ladder,desync:2 --no-launches",
            "ladderscope rewire traces/ --collective fused,multimem --hardware h100_sxm",
            "ladderscope rewire traces/ --architecture ladder --save to-ladder",
        ];
        /// Fit the simulator to a machine, from nccl-tests output, traces or measured runs
        Calibrate(calibrate::Args): |args, dir| calibrate::run(&args, dir), "my-cluster.md", [
            "ladderscope calibrate --collectives tp2.txt,tp4.txt,tp8.txt -o mine",
            "ladderscope calibrate --collectives p2p-off.txt --p2p off --hardware mine/h100_sxm.toml -o mine",
            "ladderscope calibrate --data runs.csv --hardware h100_sxm --stack gpt-fast -o mine",
        ];
        /// Compare the simulator with published measurements
        Validate(validate::Args): |args, _| validate::run(&args), "simulator.md", [
            "ladderscope validate",
            "ladderscope validate paper_70b --set link.alpha_us=8 -o errors.svg",
        ];
    }
    "Model quality" {
        /// Measure quality on a text: likelihood, divergence, agreement
        Evaluate(evaluate::Args): |args, dir| evaluate::run(&args, dir), "quality.md", [
            "ladderscope evaluate --model smollm --text book.txt --architecture standard,ladder:10,ladder",
            "ladderscope evaluate --model adapted --reference smollm --text book.txt",
        ];
        /// Choose which layers to convert to ladder, by quality and speedup
        Convert(Box<convert::Args>): |args, dir| convert::run(&args, dir), "quality.md", [
            "ladderscope convert --model smollm --text book.txt --for h100_sxm,tp=8",
            "ladderscope convert --model smollm --text b.txt --for h100_sxm --budget 'kl<=0.05' --write out",
            "ladderscope convert --model smollm --layers 10 --write out",
        ];
        /// Retrain a converted model or train a small one from scratch (cpu)
        Adapt(Box<adapt::Args>): |args, dir| adapt::run(&args, dir), "quality.md", [
            "ladderscope adapt --model smollm --text book.txt --architecture ladder:10 --steps 200",
            "ladderscope adapt --from-scratch mini --text book.txt --steps 2000 --seed 0,1,2",
        ];
    }
    "Machine" {
        /// Check this machine: memory, timers, driver, GPUs, NCCL, terminal
        Doctor(doctor::Args): |args, dir| doctor::run(&args, &dir), "gpus-and-clusters.md", [
            "ladderscope doctor --quick",
            "ladderscope doctor --check",
            "ladderscope doctor --store runs",
        ];
        /// List built-in model shapes and their sizes
        Models(output::FormatArgs): |args, _| catalog::models(&args), "architectures.md", [
            "ladderscope models",
            "ladderscope models --format csv",
        ];
        /// List built-in hardware profiles and their links
        Hardware(hardware::Args): |args, _| hardware::run(&args), "hardware-profiles.md", [
            "ladderscope hardware h100_sxm",
            "ladderscope hardware h100_sxm b200_sxm l40s",
            "ladderscope hardware h100_sxm --toml > mine.toml",
        ];
        /// List available experiment files
        Experiments(output::FormatArgs): |args, _| catalog::experiments(&args), "experiment-files.md", [
            "ladderscope experiments",
            "ladderscope sweep quickstart",
        ];
    }
    "Files" {
        /// Convert traces between formats: Chrome JSON, Parquet, CSV
        Trace(trace::Args): |args, dir| trace::run(&args, dir), "files-and-formats.md", [
            "ladderscope trace convert profile.nsys-rep.sqlite trace.parquet",
            "ladderscope trace convert traces/ merged.json.gz",
            "ladderscope trace convert last ranks/ --per-rank",
        ];
        /// Import runs, recordings and links that measure.sh packed on another machine
        Import(import::Args): |args, dir| import::run(&args, &dir), "gpus-and-clusters.md", [
            "ladderscope import results.tar.gz",
            "ladderscope import results/ --dir h100 -o mine",
        ];
        /// Export stored runs to a Parquet file, one row per run
        Export(runs::ExportArgs): |args, dir| runs::export_parquet(&args, dir), "files-and-formats.md", [
            "ladderscope export runs.parquet",
            "ladderscope export ladder.parquet --filter arch:ladder --sort tpot",
        ];
    }
    "Utilities" {
        /// Print workbench settings to edit: theme, colours, keys, mouse
        Config(workbench::ConfigArgs): |args, _| workbench::config(&args), "workbench.md", [
            "ladderscope config --path",
            "ladderscope config --theme dark > settings.toml",
        ];
        /// Print the JSON schema of a kind of file or output
        Schema(schema::Args): |args, _| schema::run(&args), "files-and-formats.md", [
            "ladderscope schema experiment > experiment.schema.json",
            "ladderscope schema overlap",
        ];
        /// Print or install the manual pages
        Man(help::ManArgs): |args, _| help::man(&args, app::command()), "command-line.md", [
            "ladderscope man | man -l -",
            "ladderscope man ~/.local/share/man/man1",
        ];
        /// Print a completion script for a shell
        Completions(completions::Args): |args, _| completions::run(&args, &mut app::command()), "command-line.md", [
            "ladderscope completions bash > ladderscope.bash",
            "ladderscope completions zsh",
        ];
    }
}
