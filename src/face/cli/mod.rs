//! Command line: one file per verb.
//!
//! `app` parses the arguments and calls the verb. A verb is a `clap::Args` struct, a function from it to an exit
//! status, and its line in the list below. Results go to standard output through `output`, progress and warnings to
//! standard error, errors through `report`.

mod adapt;
mod app;
mod baseline;
mod calibrate;
mod calibrate_collectives;
mod compare;
mod complete;
mod completions;
mod config;
mod convert;
mod diff;
mod doctor;
mod doctor_check;
mod doctor_gpu;
mod doctor_machine;
mod doctor_store;
mod evaluate;
mod experiments;
mod export;
mod figure;
mod filter;
mod gate;
mod generate;
mod hardware;
mod hardware_collectives;
mod help;
mod interrupt;
mod man;
mod models;
mod on_text;
mod output;
mod overlap;
mod overlap_text;
mod page;
mod pareto;
mod progress;
mod record;
mod record_table;
mod report;
mod rewire;
mod run;
mod runs;
mod schema;
mod select;
mod show;
mod summary;
mod sweep;
mod task;
mod timeline;
mod trace;
mod validate;
mod whatif;

pub use app::main;
pub use doctor_machine::read_bandwidth;

app::verbs! {
    "Run" {
        /// Run an experiment, or resume an interrupted one
        Sweep(sweep::Args): |args, dir| sweep::run(&args, dir);
        /// Run one cell and store its record
        Run(Box<run::Args>): |args, dir| run::run(&args, dir);
        /// Record any CUDA program and explain its exposed communication
        Record(Box<record::Args>): |args, dir| record::run(&args, &dir);
        /// Generate tokens from a checkpoint, with any architecture and TP
        Generate(Box<generate::Args>): |args, _| generate::run(&args);
    }
    "Look" {
        /// List, tag and delete stored runs
        Runs(runs::Args): |args, dir| runs::run(&args, dir);
        /// Show one run: settings, metrics with intervals, time breakdown
        Show(show::Args): |args, dir| show::run(&args, dir);
        /// Open a trace in the workbench, or export a figure of it
        Timeline(timeline::Args): |args, dir| timeline::run(&args, dir);
        /// Explain where a trace spends its time: exposed communication, idle, ...
        Overlap(overlap::Args): |args, dir| overlap::run(&args, dir);
        /// Draw a figure for a paper: pareto, throughput, overlap, ...
        Figure(figure::Args): |args, dir| figure::run(&args, dir);
        /// Write a self-contained HTML page about runs, or about a trace with a timeline
        Report(page::Args): |args, dir| page::run(&args, dir);
    }
    "Compare" {
        /// Compare matched pairs of runs: ratios with confidence intervals
        Compare(compare::Args): |args, dir| compare::run(&args, dir);
        /// Compare two traces of one engine: what became slower, and why
        Diff(diff::Args): |args, dir| diff::run(&args, dir);
        /// Show the Pareto frontier of completion latency and per-GPU throughput
        Pareto(pareto::Args): |args, dir| pareto::run(&args, dir);
        /// Set, list and delete baselines for later comparisons
        Baseline(baseline::Args): |args, dir| baseline::run(&args, dir);
    }
    "Predict" {
        /// Simulate a cell over a range of links and find its break-even link
        Whatif(Box<whatif::Args>): |args, dir| whatif::run(&args, dir);
        /// Predict the step time of a trace with another architecture or all-reduce
        Rewire(rewire::Args): |args, dir| rewire::run(&args, dir);
        /// Fit the simulator to a machine, from nccl-tests output, traces or measured runs
        Calibrate(calibrate::Args): |args, dir| calibrate::run(&args, dir);
        /// Compare the simulator with published measurements
        Validate(validate::Args): |args, _| validate::run(&args);
    }
    "Model quality" {
        /// Measure quality on a text: likelihood, divergence, agreement
        Evaluate(evaluate::Args): |args, dir| evaluate::run(&args, dir);
        /// Choose which layers to convert to ladder, by quality and speedup
        Convert(Box<convert::Args>): |args, dir| convert::run(&args, dir);
        /// Retrain a converted model or train a small one from scratch (cpu)
        Adapt(Box<adapt::Args>): |args, dir| adapt::run(&args, dir);
    }
    "Machine" {
        /// Check this machine: memory, timers, driver, GPUs, NCCL, terminal
        Doctor(doctor::Args): |args, dir| doctor::run(&args, &dir);
        /// List built-in model shapes and their sizes
        Models(output::FormatArgs): |args, _| models::run(&args);
        /// List built-in hardware profiles and their links
        Hardware(hardware::Args): |args, _| hardware::run(&args);
        /// List available experiment files
        Experiments(output::FormatArgs): |args, _| experiments::run(&args);
    }
    "Files" {
        /// Convert traces between formats: Chrome JSON, Parquet, CSV
        Trace(trace::Args): |args, dir| trace::run(&args, dir);
        /// Export stored runs to a Parquet file, one row per run
        Export(export::Args): |args, dir| export::run(&args, dir);
    }
    "Utilities" {
        /// Print workbench settings to edit: theme, colours, keys, mouse
        Config(config::Args): |args, _| config::run(&args);
        /// Print the JSON schema of a kind of file or output
        Schema(schema::Args): |args, _| schema::run(&args);
        /// Print or install the manual pages
        Man(man::Args): |args, _| man::run(&args, app::command());
        /// Print a completion script for a shell
        Completions(completions::Args): |args, _| completions::run(&args, &mut app::command());
    }
}
