//! What can happen ([`Message`]) and what the workbench wants done about it ([`Effect`]).

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::experiments::Entry;
use super::screen::Export;
use super::screens::experiments::draft::Checked;
use super::screens::experiments::save::{NotSaved, Save};
use super::screens::live::state::Looked;
use super::screens::pareto::picture::{Picture, Sketch};
use super::screens::pareto::state::AreaKey;
use super::screens::timeline::state::{Answer as TimelineAnswer, Ask, Matches, Part, TraceIndex};
use super::snapshot::Snapshot;
use super::task::{Answer, Task};
use crate::lab::store;
use crate::lab::sweep::{Choice, Experiment, SweepEvent};
use crate::study::analysis::{AreaGained, Axes, OverlayPoint, ParetoPoint};
use crate::table::{Record, Spec};

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
    /// Experiment files were read.
    Experiments(Vec<Entry>),
    /// An edited experiment was checked.
    DraftChecked {
        /// The name of the experiment.
        name: String,
        /// What came of it.
        checked: Checked,
    },
    /// An experiment's file was written, or was not.
    Saved {
        /// The file that was to be written.
        save: Save,
        /// Its path, or why not.
        result: Result<PathBuf, NotSaved>,
    },
    /// A cell of the sweep was looked at.
    CellLooked {
        /// Which sweep, counted by [`super::screens::live::state::Live::sweep`].
        sweep: u64,
        /// The index of the cell in the experiment.
        cell: usize,
        /// What is known of it.
        looked: Looked,
    },
    /// The runs directory was read.
    Runs(Result<Arc<Snapshot>, String>),
    /// Something done outside of the state is to be told: a note, or what went wrong.
    Told(Result<String, String>),
    /// A question was answered.
    Answered(Answer),
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
        /// The spans that the search found.
        matches: Arc<Matches>,
    },
    /// A question of the timeline was answered.
    Timeline(Box<TimelineAnswer>),
    /// Points of the Pareto screen.
    Pareto(Vec<ParetoPoint>),
    /// The same points, frontiers marked on other axes.
    ParetoMarks {
        /// What is plotted on either axis.
        axes: Axes,
        /// Which reading of the runs directory; answers to older ones are dropped.
        reading: u64,
        /// The points with the frontiers marked.
        points: Vec<ParetoPoint>,
    },
    /// Areas gained in a group.
    ParetoAreas {
        /// Of which group and how areas were asked for.
        key: AreaKey,
        /// The areas that each architecture gains.
        areas: Vec<AreaGained>,
    },
    /// Points from elsewhere were read from a file; `None`: they were taken away.
    Overlay(Result<Option<(PathBuf, Vec<OverlayPoint>)>, String>),
    /// The Pareto plot was painted.
    ParetoPicture {
        /// What was asked for.
        sketch: Arc<Sketch>,
        /// The picture that was painted, or why there is none.
        result: Result<Arc<Picture>, String>,
    },
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
    /// Read the experiment files.
    LoadExperiments,
    /// Look at a cell of the sweep.
    LookAtCell {
        /// The number of the sweep that the cell is of.
        sweep: u64,
        /// The index of the cell in the experiment.
        cell: usize,
        /// What the cell asks for, with every default filled in.
        spec: Box<Spec>,
    },
    /// Check an edited experiment; an older check that still goes on is not waited for.
    CheckDraft {
        /// To match the answer.
        serial: u64,
        /// The name of the experiment.
        name: String,
        /// Names the text in errors.
        path: PathBuf,
        /// The text as it was edited.
        text: String,
        /// The stored runs as they were read last.
        stored: Option<Arc<Snapshot>>,
    },
    /// Write an experiment's file.
    SaveExperiment(Save),
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
    /// Compute the points of the Pareto screen.
    Pareto(Arc<Snapshot>),
    /// Mark frontiers on other axes.
    ParetoMarks {
        /// What is plotted on either axis.
        axes: Axes,
        /// To match the answer.
        reading: u64,
        /// The stored runs as they were read last.
        runs: Arc<Snapshot>,
    },
    /// Compute the areas that architectures gain over standard.
    ParetoAreas {
        /// What is asked; to match the answer.
        key: AreaKey,
        /// The stored runs as they were read last.
        runs: Arc<Snapshot>,
    },
    /// Read points from elsewhere; `None` takes them away.
    ReadOverlay(Option<PathBuf>),
    /// Paint the Pareto plot.
    ParetoPicture(Arc<Sketch>),
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
