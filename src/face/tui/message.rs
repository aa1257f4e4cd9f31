//! What can happen ([`Message`]) and what the workbench wants done about it ([`Effect`]).

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::context::Request;
use super::screen::Export;
use super::screens::timeline::state::{Answer as TimelineAnswer, Ask, Matches, Part, TraceIndex};
use super::snapshot::Snapshot;
use super::task::{Answer, Task};
use crate::lab::store;
use crate::lab::sweep::{Choice, Experiment};
use crate::table::Record;

/// Something that happened: a key, a result from a worker, an event of the sweep.
#[derive(Debug)]
pub enum Message {
    /// The clock, in milliseconds since the workbench was opened; precedes other messages.
    Clock(u64),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse was used (only while captured).
    Mouse(MouseEvent),
    /// Text was pasted, and goes to what is being typed.
    Paste(String),
    /// The window has this many columns and rows.
    Resize(u16, u16),
    /// A signal asked the process to end, or the terminal went away.
    Terminate,
    /// The runs directory was read.
    Runs(Result<Arc<Snapshot>, String>),
    /// Something done outside of the state is to be told: a note, or what went wrong.
    Told(Result<String, String>),
    /// A question was answered.
    Answered(Answer),
    /// Something that a screen is to take up, such as news of the sweep.
    Request(Request),
    /// Traces were read, or could not be.
    Trace {
        /// Which request it answers; older ones are dropped.
        request: u64,
        /// The traces, indexed, in the order in which they were asked for.
        result: Result<Vec<Arc<TraceIndex>>, String>,
    },
    /// Overlap of one step, or of all decode steps, was computed.
    Overlap {
        /// Which request for a trace it belongs to.
        request: u64,
        /// Which of the traces shown.
        pane: usize,
        /// What it is the overlap of.
        part: Part,
        /// Overlap in percent; `None` without communication.
        overlap_pct: Option<f64>,
    },
    /// A trace was searched.
    Found {
        /// Which request for a trace it belongs to.
        request: u64,
        /// Which of the traces shown.
        pane: usize,
        /// Which search it answers; older ones are dropped.
        serial: u64,
        /// The spans that the search found.
        matches: Arc<Matches>,
    },
    /// A question of the timeline was answered.
    Timeline(Box<TimelineAnswer>),
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many runs failed.
    pub failed: usize,
    /// Whether it was cancelled.
    pub interrupted: bool,
}

/// Where a trace comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceSource {
    /// A run of the store.
    Run(Box<Record>),
    /// A trace file, or a directory of them.
    Path {
        /// As it was typed; or, where there is no such file, a run's id.
        path: PathBuf,
        /// By which rules it is classified, as `--rules` takes them; `None`: the default ones.
        rules: Option<String>,
    },
}

/// Something to be done outside of the state; only the loop does it.
#[derive(Debug)]
pub enum Effect {
    /// Leave the workbench and give the terminal back.
    Quit {
        /// A sweep was cut short: the process says so with its status.
        interrupted: bool,
    },
    /// Answer a question in the background.
    Ask(Task),
    /// Read or change the stored runs.
    Store(StoreTask),
    /// Start a sweep, or tell the one that runs something.
    Sweep(SweepOrder),
    /// Read and index traces.
    OpenTraces {
        /// To match the answer.
        request: u64,
        /// The traces, from top to bottom: one or two.
        sources: Vec<TraceSource>,
    },
    /// Compute the overlap of a step, or of all decode steps.
    Analyse {
        /// The number of the request that opened the trace.
        request: u64,
        /// Which of the traces shown.
        pane: usize,
        /// The trace, indexed for drawing.
        index: Arc<TraceIndex>,
        /// What to compute the overlap of.
        part: Part,
    },
    /// Search the names of a trace.
    Search {
        /// The number of the request that opened the trace.
        request: u64,
        /// Which of the traces shown.
        pane: usize,
        /// To match the answer.
        serial: u64,
        /// The trace, indexed for drawing.
        index: Arc<TraceIndex>,
        /// What to search for.
        query: String,
    },
    /// Answer a question of the timeline.
    Timeline(Box<Ask>),
    /// Write what is shown to a file, beside one that is there already.
    Export {
        /// What is written: a picture, a figure or a table.
        export: Export,
        /// The path of the file.
        path: PathBuf,
    },
    /// Put text on the clipboard.
    Copy(String),
    /// Capture the mouse, or stop it.
    CaptureMouse(bool),
}

/// Work on the stored runs, done in the order in which it is asked for; what they are then is told.
#[derive(Clone, Debug)]
pub enum StoreTask {
    /// Read the runs directory.
    Read,
    /// Add finished runs to those that are shown.
    Append(Vec<Record>),
    /// Change tags or notes of runs.
    Annotate {
        /// The full ids of the runs.
        runs: Vec<String>,
        /// The tags and notes that change.
        edit: store::Edit,
    },
    /// Move runs (full ids) to the trash.
    Delete(Vec<String>),
    /// Take the newest deletion out of the trash.
    Restore,
}

/// What a sweep is told.
#[derive(Clone, Debug)]
pub enum SweepOrder {
    /// Run the cells of an experiment.
    Start {
        /// The experiment whose cells are run.
        experiment: Arc<Experiment>,
        /// Which of its runs.
        choice: Choice,
    },
    /// Start no more runs, or go on.
    Pause(bool),
    /// Cancel one cell, by its index.
    CancelCell(usize),
    /// Cancel the whole sweep, the run under way included.
    CancelAll,
}
