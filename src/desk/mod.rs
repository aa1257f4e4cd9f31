//! What people do with runs and traces, whichever face they do it through: the command line and the
//! workbench both call these functions, and neither calls the other's.
//!
//! | file | use case |
//! |---|---|
//! | `open` | a trace from what was typed: a file, a directory of files, or a stored run |
//! | `align` | which stretch of a trace belongs beneath a stretch of another |
//! | `resimulate` | the trace of a simulated run, which is made again |
//! | `rewire` | on what a trace is rewired, and the verdict on it: the machine that it was recorded on, where that is known |
//! | `select` | stored runs from ids, beginnings of ids, batches, directories, filters |
//! | `origin` | where the numbers of runs come from, and their traces, in whichever store has them |
//! | `answer` | what a sweep answers, in sentences and a table |
//! | `describe` | everything about one run in named lines |
//! | `start` | run an experiment or a cell, each executed run in a process of its own |
//! | `evaluate` | the quality of architectures on a text, stored window by window |
//! | `evaluate_cells` | the quality of an experiment's cells |
//! | `convert` | which layers of a checkpoint to convert, and a checkpoint with the chosen ones |
//! | `adapt` | training: a conversion repaired, or a small model from scratch |
//! | `experiments` | the experiments at hand: files and built-in ones |
//! | `files` | trace files that could be opened |
//! | `offers` | what can be typed for an option, an axis or a name |
//! | `figure` | figures fit for a paper, of runs or traces |
//! | `export` | what is shown as a figure or a table, by the file's extension |
//!
//! Nothing here prints: what a user should be told is in what these functions return.

pub mod adapt;
mod align;
mod answer;
pub mod convert;
mod describe;
pub mod evaluate;
mod evaluate_cells;
pub mod experiments;
pub mod export;
pub mod export_runs;
pub mod figure;
pub mod files;
pub mod offers;
mod open;
mod origin;
mod resimulate;
mod rewire;
mod select;
mod start;

pub use align::aligned;
pub use answer::Gathered;
pub use describe::{Section, describe, platform};
pub use open::{Named, OpenOptions, Opened, open, open_run, trace_of};
pub use origin::{Stores, overlap_pair};
pub use resimulate::{Part, resimulate};
pub use rewire::{Engine, machine_of, verdict_of, verdict_on};
pub use select::{Selection, filtered, picked, stored};
pub use start::Start;
