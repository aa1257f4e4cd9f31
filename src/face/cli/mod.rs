//! The command line: one file a verb.
//!
//! `app` parses the arguments and calls the verb; a verb is a `clap::Args` struct and a function
//! from it to an exit status. Results go to standard output through `output`, progress and warnings
//! to standard error, errors through `report`.

mod app;
mod calibrate;
mod compare;
mod completions;
mod config;
mod doctor;
mod doctor_gpu;
mod doctor_gpu_text;
mod doctor_machine;
mod doctor_memory;
mod experiments;
mod figure;
mod generate;
mod hardware;
mod interrupt;
mod models;
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
mod rules;
mod run;
mod runs;
mod runs_edit;
mod schema;
mod select;
mod show;
mod summary;
mod sweep;
mod timeline;
mod trace;
mod whatif;

pub use app::main;
pub use doctor_memory::read_bandwidth;
