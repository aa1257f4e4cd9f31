//! What can happen ([`Message`]) and what the workbench wants done about it ([`Effect`]).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};
use rayon::prelude::*;

use super::experiments::Entry;
use super::page::Export;
use super::screens::compare::state::{Asked, Compared};
use super::screens::experiments::draft::Checked;
use super::screens::experiments::save::{NotSaved, Save};
use super::screens::live::state::Looked;
use super::screens::pareto::picture::{Picture, Sketch};
use super::screens::pareto::state::AreaKey;
use super::screens::timeline::state::{Answer, Ask, Matches, Part, TraceIndex};
use crate::analysis::{AreaGained, Axes, OverlayPoint, ParetoPoint, RunTable, SideBySide};
use crate::spec::Spec;
use crate::store::{self, Annotations, Record};
use crate::sweep::{Choice, Experiment, SweepEvent};
use crate::whatif::{self, BreakEven, Variant};

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
    /// An edited experiment was checked.
    DraftChecked {
        /// The entry's name.
        name: String,
        /// What came of it.
        checked: Checked,
    },
    /// An experiment's file was written, or was not.
    Saved {
        /// Which.
        save: Save,
        /// Its path, or why not.
        result: Result<PathBuf, NotSaved>,
    },
    /// Runs that have just finished stand behind the stored ones.
    Appended(Arc<Snapshot>),
    /// A cell of the sweep was looked at.
    CellLooked {
        /// Which sweep, counted by [`super::screens::live::state::Live::sweep`].
        sweep: u64,
        /// Which cell.
        cell: usize,
        /// What is known of it.
        looked: Looked,
    },
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
    /// A question of the timeline was answered.
    Timeline(Box<Answer>),
    /// Points of the Pareto screen.
    Pareto(Vec<ParetoPoint>),
    /// The same points, frontiers marked on other axes.
    ParetoMarks {
        /// The axes.
        axes: Axes,
        /// Which reading of the runs directory; answers to older ones are dropped.
        reading: u64,
        /// The points.
        points: Vec<ParetoPoint>,
    },
    /// Areas gained in a group.
    ParetoAreas {
        /// What was asked.
        key: AreaKey,
        /// The areas.
        areas: Vec<AreaGained>,
    },
    /// Points from elsewhere were read from a file; `None`: they were taken away.
    Overlay(Result<Option<(PathBuf, Vec<OverlayPoint>)>, String>),
    /// The Pareto plot was painted.
    ParetoPicture {
        /// What was asked for.
        sketch: Arc<Sketch>,
        /// The picture.
        result: Result<Arc<Picture>, String>,
    },
    /// A comparison along an axis.
    Compare {
        /// Which request it answers; older ones are dropped.
        request: u64,
        /// The pairs, and what else could be compared.
        result: Result<Arc<Compared>, String>,
    },
    /// What a variant would do.
    WhatIf {
        /// Which request it answers.
        request: u64,
        /// The numbers.
        result: Result<Arc<whatif::Answer>, String>,
    },
    /// Where a variant's communication stops to be hidden.
    BreakEven {
        /// Which request it belongs to.
        request: u64,
        /// By what was searched over.
        found: Vec<Result<BreakEven, String>>,
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

    /// These runs, and behind them those that are not among them.
    pub fn and(&self, records: Vec<Record>) -> Self {
        let there: HashSet<&str> = self.records.iter().map(|r| r.run.as_str()).collect();
        let new = records.into_iter().filter(|r| !there.contains(r.run.as_str()));
        let all = self.records.iter().cloned().chain(new).collect();
        Self::annotated(all, self.damaged.clone(), self.annotations.clone())
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
    /// A file.
    Path {
        /// As it was typed; or, where there is no such file, a run's id.
        path: PathBuf,
        /// By which rules it is classified, as `--rules` takes them; `None`: the default ones.
        rules: Option<String>,
    },
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
    StartSweep {
        /// Which.
        experiment: Arc<Experiment>,
        /// Which of its runs.
        choice: Choice,
    },
    /// Let the sweep start no more runs, or let it go on.
    PauseSweep(bool),
    /// Look at a cell of the sweep.
    LookAtCell {
        /// Which sweep.
        sweep: u64,
        /// Which cell.
        cell: usize,
        /// What it runs.
        spec: Box<Spec>,
    },
    /// Add finished runs to those that are shown.
    Append(Vec<Record>),
    /// Check an edited experiment; an older check that still goes on is not waited for.
    CheckDraft {
        /// To match the answer.
        serial: u64,
        /// The entry's name.
        name: String,
        /// Names the text in errors.
        path: PathBuf,
        /// The text.
        text: String,
        /// The stored runs.
        stored: Option<Arc<Snapshot>>,
    },
    /// Write an experiment's file.
    SaveExperiment(Save),
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
    /// Answer a question of the timeline.
    Timeline(Box<Ask>),
    /// Compute the points of the Pareto screen.
    Pareto(Arc<Snapshot>),
    /// Mark frontiers on other axes.
    ParetoMarks {
        /// The axes.
        axes: Axes,
        /// To match the answer.
        reading: u64,
        /// The runs.
        runs: Arc<Snapshot>,
    },
    /// Compute the areas that architectures gain over standard.
    ParetoAreas {
        /// What is asked; to match the answer.
        key: AreaKey,
        /// The runs.
        runs: Arc<Snapshot>,
    },
    /// Read points from elsewhere; `None` takes them away.
    ReadOverlay(Option<PathBuf>),
    /// Paint the Pareto plot.
    ParetoPicture(Arc<Sketch>),
    /// Compare the runs along an axis.
    Compare {
        /// To match the answer.
        request: u64,
        /// The axis and the baseline.
        asked: Asked,
        /// The runs.
        runs: Arc<Snapshot>,
    },
    /// Simulate a variant; of several that wait only the newest is answered.
    WhatIf {
        /// To match the answer.
        request: u64,
        /// The variant.
        variant: Box<Variant>,
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
