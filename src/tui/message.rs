//! What can happen ([`Message`]) and what the workbench wants done about it ([`Effect`]).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::experiments::Entry;
use super::page::Export;
use super::screens::timeline::state::{Matches, Part, TraceIndex};
use rayon::prelude::*;

use crate::analysis::{ComparisonReport, ParetoPoint, RunTable, SideBySide};
use crate::store::{self, Annotations, Record};
use crate::sweep::{Experiment, SweepEvent};

/// Something that happened: a key, a result from a worker, an event of the sweep.
#[derive(Clone, Debug)]
pub enum Message {
    /// The clock, in milliseconds since the workbench was opened; precedes other messages.
    Clock(u64),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse was used (only while captured).
    Mouse(MouseEvent),
    /// Text was pasted.
    Paste(String),
    /// The window has this many columns and rows.
    Resize(u16, u16),
    /// A signal asked the process to end, or the terminal went away.
    Terminate,
    /// Experiment files were read.
    Experiments(Vec<Entry>),
    /// The runs directory was read.
    Runs(Result<Arc<Snapshot>, String>),
    /// The sweep says something.
    Sweep(Box<SweepEvent>),
    /// The sweep ended; the error if it could not be run.
    SweepEnded(Result<Ended, String>),
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
        /// What was found.
        matches: Arc<Matches>,
    },
    /// Points of the Pareto screen.
    Pareto(Vec<ParetoPoint>),
    /// A comparison along an axis.
    Compare {
        /// The axis.
        axis: &'static str,
        /// The pairs.
        result: Result<ComparisonReport, String>,
    },
    /// Tags or notes changed: the runs as they were, with those of now.
    Annotated(Arc<Snapshot>),
    /// A run's whole record, for its details.
    WholeRun(Box<Record>),
    /// Two runs beside one another, or why they cannot be.
    SideBySide(Result<Box<SideBySide>, String>),
    /// Something to tell the user.
    Info(String),
    /// Something that went wrong in an effect.
    Failed(String),
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Runs that failed.
    pub failed: usize,
    /// Whether it was cancelled.
    pub interrupted: bool,
}

/// The runs directory at one moment; immutable, shared by all screens.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Runs, oldest first.
    pub records: Arc<Vec<Record>>,
    /// The same as a table, with tags and notes.
    pub table: RunTable,
    /// Tags and notes.
    pub annotations: Arc<Annotations>,
    /// Files that could not be read, and why.
    pub damaged: Vec<String>,
    /// What is known of each cell (by [`crate::spec::Spec::key`]).
    pub known: HashMap<String, Known>,
}

/// What stored runs say about a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Rounds that are stored.
    pub rounds: BTreeSet<u32>,
    /// Completion latency of the newest run (ms).
    pub completion_ms: f64,
}

impl Snapshot {
    /// A snapshot of these runs, to which nobody has added anything.
    pub fn new(records: Vec<Record>, damaged: Vec<String>) -> Self {
        Self::annotated(records, damaged, Arc::default())
    }

    /// A snapshot of these runs with their tags and notes.
    pub fn annotated(records: Vec<Record>, damaged: Vec<String>, annotations: Arc<Annotations>) -> Self {
        let key = |record: &Record| record.metrics.is_some().then(|| record.spec.key());
        let keys: Vec<Option<String>> = records.par_iter().map(key).collect();
        let mut known: HashMap<String, Known> = HashMap::new();
        for (record, key) in records.iter().zip(keys) {
            if let (Some(metrics), Some(key)) = (&record.metrics, key) {
                let cell = known.entry(key).or_default();
                cell.rounds.insert(record.round);
                cell.completion_ms = metrics.completion_ms;
            }
        }
        let table = RunTable::new(&records, &annotations);
        Self { records: Arc::new(records), table, annotations, damaged, known }
    }

    /// The same runs with other tags and notes.
    pub fn with(&self, annotations: Arc<Annotations>) -> Self {
        let table = self.table.annotated(&self.records, &annotations);
        Self { table, annotations, ..self.clone() }
    }

    /// A run by its id.
    pub fn find(&self, run: &str) -> Option<&Record> {
        self.records.iter().rev().find(|r| r.run == run)
    }
}

/// Where a trace comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceSource {
    /// A stored run.
    Run(Box<Record>),
    /// A file, as it was typed; or, where there is no such file, a run's id.
    Path(PathBuf),
}

/// Something to be done outside of the state; only the loop does it.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Leave the workbench.
    Quit {
        /// A sweep was cut short: the process says so with its status.
        interrupted: bool,
    },
    /// Read the experiment files.
    LoadExperiments,
    /// Read the runs directory.
    LoadRuns,
    /// Run an experiment.
    StartSweep(Box<Experiment>),
    /// Cancel one cell of the sweep.
    CancelCell(usize),
    /// Cancel the sweep.
    CancelAll,
    /// Read and index traces.
    OpenTraces {
        /// To match the answer.
        request: u64,
        /// One or two.
        sources: Vec<TraceSource>,
    },
    /// Compute the overlap of a step, or of all decode steps.
    Analyse {
        /// The trace's request.
        request: u64,
        /// Which of the traces shown.
        pane: usize,
        /// The trace.
        index: Arc<TraceIndex>,
        /// What to compute the overlap of.
        part: Part,
    },
    /// Search a trace.
    Search {
        /// The trace's request.
        request: u64,
        /// Which of the traces shown.
        pane: usize,
        /// To match the answer.
        serial: u64,
        /// The trace.
        index: Arc<TraceIndex>,
        /// What to search for.
        query: String,
    },
    /// Compute the points of the Pareto screen.
    Pareto(Arc<Snapshot>),
    /// Compare the runs along an axis.
    Compare {
        /// The axis.
        axis: &'static str,
        /// The runs.
        runs: Arc<Snapshot>,
    },
    /// Write what is shown to a file, beside one that is there already.
    Export {
        /// What.
        export: Export,
        /// Where.
        path: PathBuf,
    },
    /// Change tags or notes of runs.
    Annotate {
        /// Full ids.
        runs: Vec<String>,
        /// What changes.
        edit: store::Edit,
    },
    /// Move runs (full ids) to the trash.
    DeleteRuns(Vec<String>),
    /// Take the newest deletion out of the trash.
    RestoreRuns,
    /// Read a run's whole record.
    LoadWhole(String),
    /// Put two runs beside one another, given by their places among the records.
    SideBySide {
        /// The baseline and the other.
        rows: [usize; 2],
        /// The runs.
        runs: Arc<Snapshot>,
    },
    /// Put text on the clipboard.
    Copy(String),
    /// Capture the mouse, or stop it.
    CaptureMouse(bool),
}
