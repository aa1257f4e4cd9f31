//! What can happen ([`Message`]) and what the workbench wants done about it ([`Effect`]).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::experiments::Entry;
use super::page::Export;
use super::screens::compare::state::{Asked, Compared};
use super::screens::experiments::draft::Checked;
use super::screens::experiments::save::{NotSaved, Save};
use super::screens::live::state::Looked;
use super::screens::pareto::picture::{Picture, Sketch};
use super::screens::pareto::state::AreaKey;
use super::screens::timeline::state::{Answer, Ask, Matches, Part, TraceIndex};
use crate::analysis::{AreaGained, Axes, OverlayPoint, ParetoPoint};
use crate::spec::Spec;
use crate::store::Record;
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
    Appended {
        /// The snapshot they were added to; if another is shown by now, that one has them.
        stored: Arc<Snapshot>,
        /// It with them.
        snapshot: Arc<Snapshot>,
    },
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
    pub records: Vec<Record>,
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
    /// A snapshot of these runs.
    pub fn new(records: Vec<Record>, damaged: Vec<String>) -> Self {
        let mut known: HashMap<String, Known> = HashMap::new();
        for record in &records {
            if let Some(metrics) = &record.metrics {
                let cell = known.entry(record.spec.key()).or_default();
                cell.rounds.insert(record.round);
                cell.completion_ms = metrics.completion_ms;
            }
        }
        Self { records, damaged, known }
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
    /// Add finished runs to a snapshot.
    Append {
        /// The snapshot.
        stored: Arc<Snapshot>,
        /// The runs.
        records: Vec<Record>,
    },
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
    /// Put text on the clipboard.
    Copy(String),
    /// Capture the mouse, or stop it.
    CaptureMouse(bool),
}
