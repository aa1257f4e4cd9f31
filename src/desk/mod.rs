//! Use cases on runs and traces, independent of the interface: the command line and the workbench both call these
//! functions, and neither calls the other.
//!
//! | file | use case |
//! |---|---|
//! | `open` | open a trace: a file, a directory of files, or a stored run |
//! | `align` | align two traces at a step |
//! | `resimulate` | regenerate the trace of a simulated run |
//! | `trace_machine` | machine and engine for rewiring a trace, and the verdict on it |
//! | `select` | select stored runs by id, prefix, batch, directory or filter; their provenance and traces from several stores |
//! | `describe` | labeled lines about one run |
//! | `evaluate` | quality of architectures on a text, stored window by window |
//! | `cells` | quality and trainings of an experiment's cells, after its runs |
//! | `convert` | search for layers to convert, and write the converted checkpoint |
//! | `adapt` | training: repair a conversion, or train a small model from scratch |
//! | `experiments` | available experiments; their answers, from the runs as they end |
//! | `runner` | run an experiment or a cell: simulations in this process, every other run in its own |
//! | `calibrate` | write calibrated constants and measured links into profile and stack files |
//! | `kit` | import what `measure.sh` packed on another machine |
//! | `record` | record any program, and merge what its processes wrote |
//! | `recorder_library` | write the recorder's shared object where programs can load it |
//! | `ranges` | keep the work of a recording that named ranges launched |
//! | `files` | trace file discovery |
//! | `offers` | completions for an option, an axis or a name |
//! | `figure` | publication figures of runs or traces, and the page of stored runs |
//! | `export` | export as a figure, a table or Parquet, by the file's extension |
//!
//! Nothing here prints: messages for the user are part of the return values.

pub mod adapt;
mod align;
pub mod calibrate;
mod cells;
pub mod convert;
mod describe;
pub mod evaluate;
pub mod experiments;
pub mod export;
pub mod figure;
pub mod files;
pub mod kit;
pub mod offers;
mod open;
mod ranges;
pub mod record;
mod recorder_library;
mod resimulate;
mod runner;
mod select;
mod trace_machine;

pub use align::align_stretches;
pub use describe::{RunSection, describe, platform, unsteady_mean_ms};
pub use experiments::AnswerCollector;
pub use figure::{RunsPage, report_of_runs};
pub use open::{OpenOptions, OpenedTrace, RunOrTrace, is_trace, open, open_run, trace_of};
pub use resimulate::{FirstSteps, resimulate};
pub use runner::Runner;
pub use select::{
    DEFAULT_DIR, RunSelection, Stores, dir_option, filter_runs, overlap_pair, runs_named, take_rows,
};
pub use trace_machine::{ChosenMachine, MachineChoice, choose_machine, verdict_of};
