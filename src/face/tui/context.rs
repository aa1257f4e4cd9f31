//! State shared by all screens (window, clock, colours, keys, stored runs, messages), and the ways a screen
//! reaches outside itself: background questions ([`super::task`]), requests to the workbench, effects.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::config::Themes;
use super::history::SessionHistory;
use super::keymap::{Action, Keymap};
use super::mouse::Press;
use super::overlay::{Folder, Overlay};
use super::prelude::*;
use super::regions::regions;
use super::scope::ResultScope;
use super::task::Tasks;
use super::trace_picker::TypedPath;
use super::update::SweepEnd;
use lab::store::Annotations;
use lab::sweep::{Experiment, SweepEvent, SweepSelection};
use plan::Architecture;
use study::analysis::RunTable;
use study::whatif::TracedSteps;
use table::{Provenance, Record, Spec, Status};

/// Time (ms) after which a message that is no error disappears.
const NOTICE_MS: u64 = 6_000;

/// Length of the message history.
const MESSAGES: usize = 200;

/// Shared state visible to a screen; other screens are not.
#[derive(Debug)]
pub struct Context {
    /// Window size in columns and rows.
    pub size: (u16, u16),
    /// Cell size in pixels (width, height), if the terminal reports it.
    pub cell_pixels: Option<(u16, u16)>,
    /// Milliseconds since the workbench was opened.
    pub now_ms: u64,
    pub tab: Tab,
    /// Open overlays, topmost last.
    pub overlays: Vec<Box<dyn Overlay>>,
    /// Input history, by prompt title.
    pub past: HashMap<String, Vec<String>>,
    pub scope: ResultScope,
    /// Recently opened trace files, newest first.
    pub recent: Vec<String>,
    pub folder: Option<Folder>,
    /// Path from a dialog that is being opened.
    pub typed_path: Option<TypedPath>,
    /// Title of the trace on the timeline.
    pub open_trace: Option<String>,
    pub notice: Option<Notice>,
    /// Time of the latest message, in ms of the workbench clock.
    noticed_ms: u64,
    pub keys: Keymap,
    /// Message history with timestamps (ms), newest last.
    pub messages: VecDeque<(u64, Notice)>,
    pub mouse: bool,
    pub press: Option<Press>,
    /// True if the last key was a first `g`.
    pub after_g: bool,
    /// Set when the user quits during a sweep: leave once the cancelled sweep has ended.
    pub leaving: bool,
    pub theme: Theme,
    pub themes: Themes,
    /// Theme chosen in the workbench, overriding the settings.
    pub chosen_theme: Option<String>,
    /// Theme restored from an earlier session at startup.
    pub recalled_theme: Option<String>,
    pub dir: PathBuf,
    pub stored: Option<Arc<Snapshot>>,
    pub experiments: PathBuf,
    pub sweeps: Sweeps,
    /// Busy threads of other programs on this machine; unknown in tests.
    pub load: fn() -> Option<f64>,
    pub tasks: Tasks,
    pub requests: VecDeque<Request>,
    /// Keys pressed while a trace was opening, to be pressed once it is shown.
    pub early: Vec<KeyEvent>,
    pub effects: Vec<Effect>,
    pub history: SessionHistory,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweeps {
    pub running: Option<String>,
    /// True while the sweep is running and not paused.
    pub moving: bool,
    pub queued: Vec<String>,
}

/// Placement of a newly opened trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Replaces the current view. Opens at the given interval of the first trace (ns since its first
    /// start), or at its first decode step if `None`.
    Alone(Option<(i64, i64)>),
    /// Adds the trace below the current one, if any.
    Beneath,
}

/// Request from a screen or the sweep to the workbench. It is offered to each screen in turn; the first
/// that handles it consumes it ([`super::screen::Screen::serve`]).
#[derive(Debug)]
pub enum Request {
    OpenRuns {
        /// Full run ids.
        runs: Vec<String>,
        opening: Opening,
    },
    OpenRecord(Box<Record>),
    /// Shows what is stored of runs (full ids) whose timelines do not open: the details of one, two side by side.
    ShowRuns {
        runs: Vec<String>,
        why: String,
    },
    /// Shows the timeline of a trace file, or of the run with this id if no such file exists.
    OpenPath(String, Opening),
    Sweep {
        experiment: Arc<Experiment>,
        /// Runs to start: missing, failed, or all.
        choice: SweepSelection,
    },
    /// Shows the result of the stored runs of this experiment in scope.
    StoredResult {
        experiment: Arc<Experiment>,
        /// Number of its runs that are not stored.
        missing: usize,
    },
    CancelSweep,
    SweepNews(Box<SweepEvent>),
    /// End of the sweep; the error if it could not run.
    SweepEnded(Result<SweepEnd, String>),
    WhatIf(Option<Box<SelectedRun>>),
    /// Opens the what-if screen on the run of a trace that cannot be rewired, with its measured step time (ms).
    WhatIfRunOfTrace {
        selected: Box<SelectedRun>,
        measured: Option<(f64, Provenance)>,
    },
    /// Opens the what-if screen on a measured step of the trace with this name, at an architecture if it is not the
    /// traced one.
    WhatIfTraced(Arc<TracedSteps>, String, Option<Architecture>),
    /// Opens it on the step under the cursor of the timeline; unless `asked` by the user, without a question.
    WhatIfOpenTrace {
        asked: bool,
    },
}

#[derive(Clone, Debug)]
pub struct SelectedRun {
    pub spec: Spec,
    /// Full run id; the cell's label if it has no run.
    pub run: String,
}

impl Context {
    pub fn new(dir: PathBuf, theme: Theme, size: (u16, u16)) -> Self {
        Self {
            size,
            cell_pixels: None,
            now_ms: 0,
            tab: Tab::Experiments,
            overlays: Vec::new(),
            past: HashMap::new(),
            scope: ResultScope::default(),
            recent: Vec::new(),
            folder: None,
            typed_path: None,
            open_trace: None,
            notice: None,
            noticed_ms: 0,
            keys: Keymap::default(),
            messages: VecDeque::new(),
            mouse: true,
            press: None,
            after_g: false,
            leaving: false,
            theme,
            themes: Themes::default(),
            chosen_theme: None,
            recalled_theme: None,
            dir,
            stored: None,
            experiments: "experiments".into(),
            sweeps: Sweeps::default(),
            load: || None,
            tasks: Tasks::default(),
            requests: VecDeque::new(),
            early: Vec::new(),
            effects: Vec::new(),
            history: SessionHistory::default(),
        }
    }

    /// Body of the window; empty if the window is too small.
    pub fn body(&self) -> Rect {
        regions(self).map_or(Rect::ZERO, |regions| regions.body)
    }

    /// Reason why a screen of results shows no run.
    pub fn why_no_run(&self) -> &'static str {
        let has_runs = self.stored.as_ref().is_some_and(|stored| !stored.records.is_empty());
        if has_runs { "no run is shown" } else { "no run is stored yet" }
    }

    pub fn key<S: Acts>(&self, act: S::Act) -> String {
        self.keys.label(Action::from_act::<S>(act))
    }

    /// Shows a message for some seconds, or until the next key press.
    pub fn inform(&mut self, text: impl Into<String>) {
        self.tell(Notice { text: text.into(), error: false });
    }

    /// Shows an error until Escape or the next action other than moving dismisses it.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.tell(Notice { text: text.into(), error: true });
    }

    /// Unwraps an answer; shows the error if there is one.
    pub fn ok_or_fail<T>(&mut self, answer: Result<T, String>) -> Option<T> {
        answer.map_err(|error| self.fail(error)).ok()
    }

    /// Adds a message to the history.
    pub fn log(&mut self, notice: Notice) {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back((self.now_ms, notice));
    }

    fn tell(&mut self, notice: Notice) {
        self.log(notice.clone());
        // an open error is not replaced by a plain message
        if notice.error || !self.notice.as_ref().is_some_and(|n| n.error) {
            (self.notice, self.noticed_ms) = (Some(notice), self.now_ms);
        }
    }

    /// Remaining time (ms) of the message; `None` without one, and for errors, which wait for a key.
    pub fn notice_left_ms(&self) -> Option<u64> {
        self.notice.as_ref().filter(|notice| !notice.error)?;
        Some(self.noticed_ms.saturating_add(NOTICE_MS).saturating_sub(self.now_ms))
    }

    pub fn request(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// Opens the timelines of stored runs from top to bottom, replacing the current view.
    pub fn open_runs(&mut self, runs: impl IntoIterator<Item = String>) {
        self.request(Request::OpenRuns {
            runs: runs.into_iter().collect(),
            opening: Opening::Alone(None),
        });
    }

    pub fn perform(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Text; may span several lines.
    pub text: String,
    /// True for errors, which stay while the cursor moves.
    pub error: bool,
}

/// Contents of the runs directory at one moment; shared by all screens.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All stored runs, oldest first.
    pub records: Arc<Vec<Record>>,
    pub table: RunTable,
    pub annotations: Arc<Annotations>,
    /// Unreadable files, with the reason.
    pub damaged: Vec<String>,
    /// Number of running runs; cached because every frame needs it.
    pub running: usize,
    /// Indices of the runs by cell key ([`table::Spec::key`]).
    pub cells: HashMap<String, Vec<usize>>,
    /// Stored results by cell key.
    pub known: HashMap<String, StoredCell>,
    /// Index of each run.
    places: Arc<HashMap<String, usize>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredCell {
    /// Rounds with a finished run.
    pub rounds: BTreeSet<u32>,
    /// Completion latency of the newest run (ms).
    pub completion_ms: f64,
}

impl Snapshot {
    pub fn new(records: Vec<Record>, damaged: Vec<String>) -> Self {
        Self::annotated(records, damaged, Arc::default())
    }

    pub fn annotated(records: Vec<Record>, damaged: Vec<String>, annotations: Arc<Annotations>) -> Self {
        let keys: Vec<String> = records.par_iter().map(|record| record.spec.key()).collect();
        let mut cells: HashMap<String, Vec<usize>> = HashMap::new();
        let mut known: HashMap<String, StoredCell> = HashMap::new();
        for (place, (record, key)) in records.iter().zip(keys).enumerate() {
            if let Some(metrics) = &record.metrics {
                let cell = known.entry(key.clone()).or_default();
                cell.rounds.extend(record.is_finished().then_some(record.round));
                cell.completion_ms = metrics.completion_ms;
            }
            cells.entry(key).or_default().push(place);
        }
        let table = RunTable::new(&records, &annotations);
        let running = records.iter().filter(|record| record.status == Status::Running).count();
        let places = records.iter().zip(0..).map(|(record, place)| (record.run.clone(), place));
        let places = Arc::new(places.collect());
        Self { records: Arc::new(records), table, annotations, damaged, running, cells, known, places }
    }

    pub fn with(&self, annotations: Arc<Annotations>) -> Self {
        let table = self.table.annotated(&self.records, &annotations);
        Self { table, annotations, ..self.clone() }
    }

    /// Adds runs that are not present yet, and replaces those that were running when the store was read.
    pub fn and(&self, records: Vec<Record>) -> Self {
        let mut all = self.records.to_vec();
        for record in records {
            match self.places.get(&record.run) {
                Some(place) if all[*place].status == Status::Running => all[*place] = record,
                Some(_) => {}
                None => all.push(record),
            }
        }
        Self::annotated(all, self.damaged.clone(), self.annotations.clone())
    }

    /// Ids of the running runs.
    pub fn running_runs(&self) -> impl Iterator<Item = &str> {
        let running = self.records.iter().filter(|record| record.status == Status::Running);
        running.map(|record| record.run.as_str())
    }

    /// True if both snapshots share the same runs; tags and notes may differ.
    pub fn has_runs_of(&self, other: Option<&Arc<Self>>) -> bool {
        other.is_some_and(|other| Arc::ptr_eq(&self.records, &other.records))
    }

    pub fn has_quality(&self) -> bool {
        self.records.iter().any(|record| record.quality.is_some())
    }

    pub fn find(&self, run: &str) -> Option<&Record> {
        self.records.get(*self.places.get(run)?)
    }
}
