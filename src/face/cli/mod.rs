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
mod complete_values;
mod completions;
mod config;
mod convert;
mod curves;
mod doctor;
mod doctor_check;
mod doctor_gpu;
mod doctor_gpu_text;
mod doctor_machine;
mod doctor_memory;
mod evaluate;
mod experiments;
mod export;
mod figure;
mod filter;
mod gate;
mod generate;
mod hardware;
mod interrupt;
mod man;
mod models;
mod on_text;
mod opening;
mod output;
mod overlap;
mod overlap_rows;
mod overlap_text;
mod page;
mod pareto;
mod patience;
mod progress;
mod record_printer;
mod record_table;
mod report;
mod rewire;
mod run;
mod runs;
mod runs_edit;
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
pub use doctor_memory::read_bandwidth;

app::verbs! {
    /// Run an experiment's cells; resume where an interrupted sweep stopped
    Sweep(sweep::Args): |args, dir| sweep::run(&args, dir);
    /// Run one cell and store its record
    Run(Box<run::Args>): |args, dir| run::run(&args, dir);
    /// List, tag and delete stored runs
    Runs(runs::Args): |args, dir| runs::run(&args, dir);
    /// One run: spec, metrics with intervals, overlap, breakdown by module and kind
    Show(show::Args): |args, dir| show::run(&args, dir);
    /// The workbench opened at a trace, or a figure of it
    Timeline(timeline::Args): |args, dir| timeline::run(&args, dir);
    /// Overlap and breakdown of a trace, per rank and in all
    Overlap(overlap::Args): |args, dir| overlap::run(&args, dir);
    /// The frontier of completion latency against per-GPU throughput
    Pareto(pareto::Args): |args, dir| pareto::run(&args, dir);
    /// Matched pairs of runs: ratios and their intervals
    Compare(compare::Args): |args, dir| compare::run(&args, dir);
    /// Named runs that later ones are held against: set, list, delete
    Baseline(baseline::Args): |args, dir| baseline::run(&args, dir);
    /// A simulated cell with another link: numbers, and up to where communication stays hidden
    Whatif(Box<whatif::Args>): |args, _| whatif::run(&args);
    /// What the engine of a trace would take with another architecture, all-reduce or P2P setting
    Rewire(rewire::Args): |args, dir| rewire::run(&args, dir);
    /// A figure fit for a paper: pareto, throughput, improvement, gain, overlap, p2p, training
    Figure(figure::Args): |args, dir| figure::run(&args, dir);
    /// Stored runs as a Parquet file for notebooks, a row a run
    Export(export::Args): |args, dir| export::run(&args, dir);
    /// One self-contained HTML page of runs: figures, tables, where the numbers come from
    Report(page::Args): |args, dir| page::run(&args, dir);
    /// Import and export traces
    Trace(trace::Args): |args, dir| trace::run(&args, dir);
    /// Tokens from a checkpoint, any architecture, any TP
    Generate(Box<generate::Args>): |args, _| generate::run(&args);
    /// Quality of architectures on a text: likelihood, divergence from standard, agreement
    Evaluate(evaluate::Args): |args, dir| evaluate::run(&args, dir);
    /// Which layers of a checkpoint to convert to ladder: what sets of them cost in quality and give in speed
    Convert(Box<convert::Args>): |args, dir| convert::run(&args, dir);
    /// Retrain a conversion, or train a small model of any architecture from scratch (cpu)
    Adapt(Box<adapt::Args>): |args, dir| adapt::run(&args, dir);
    /// Fit the free constants of a software stack and its links to measured runs
    Calibrate(calibrate::Args): |args, dir| calibrate::run(&args, dir);
    /// The simulator against published data: errors of every set that comes with the program
    Validate(validate::Args): |args, _| validate::run(&args);
    /// Built-in model shapes with their sizes
    Models(output::FormatArgs): |args, _| models::run(&args);
    /// Built-in hardware profiles with their links
    Hardware(hardware::Args): |args, _| hardware::run(&args);
    /// Experiment files at hand
    Experiments(output::FormatArgs): |args, _| experiments::run(&args);
    /// What this machine can do: memory bandwidth, timers, driver, GPUs, NCCL, terminal
    Doctor(doctor::Args): |args, dir| doctor::run(&args, &dir);
    /// A settings file for the workbench: theme, colours, keys, mouse
    Config(config::Args): |args, _| config::run(&args);
    /// JSON schema of a kind of file
    Schema(schema::Args): |args, _| schema::run(&args);
    /// Manual pages of the command and its verbs
    Man(man::Args): |args, _| man::run(&args, app::command());
    /// Completion script for a shell
    Completions(completions::Args): |args, _| completions::run(&args, &mut app::command());
}
