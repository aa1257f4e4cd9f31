//! What all screens share: the window, the clock, colours, keys, stored runs, what the user is told; and
//! the ways out of a screen: questions ([`super::task`]), requests to the workbench, effects.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use super::action::Action;
use super::config::Themes;
use super::keymap::Keymap;
use super::layout;
use super::message::Ended;
use super::mouse::Press;
use super::overlay::{Folder, Overlay};
use super::prelude::*;
use super::scope::Scope;
use super::task::Tasks;
use lab::sweep::{Choice, Experiment, SweepEvent};
use table::{Record, Spec};

/// Messages that are kept.
const MESSAGES: usize = 200;

/// What a screen sees beside itself. It does not see the other screens.
#[derive(Debug)]
pub struct Context {
    /// Columns and rows of the window.
    pub size: (u16, u16),
    /// Pixels of one of them, across and down, where the terminal tells.
    pub cell_pixels: Option<(u16, u16)>,
    /// Milliseconds since the workbench was opened.
    pub now_ms: u64,
    /// The screen that is shown.
    pub tab: Tab,
    /// What lies on the screen, the topmost last.
    pub overlays: Vec<Box<dyn Overlay>>,
    /// The lines that were typed where the user was asked for one, by title of the question.
    pub past: HashMap<String, Vec<String>>,
    /// Which runs the screens are about.
    pub scope: Scope,
    /// Trace files that were opened, the newest first.
    pub recent: Vec<String>,
    /// The folder of the path that is typed.
    pub folder: Option<Folder>,
    /// Something the user is told.
    pub notice: Option<Notice>,
    /// Which key does what.
    pub keys: Keymap,
    /// What was told until now, the newest last.
    pub messages: VecDeque<(u64, Notice)>,
    /// Whether the mouse is captured.
    pub mouse: bool,
    /// Where and when the mouse's button went down last.
    pub press: Option<Press>,
    /// The user wants to leave as soon as the cancelled sweep has ended.
    pub leaving: bool,
    /// The colours of the theme in force.
    pub theme: Theme,
    /// The themes to choose from.
    pub themes: Themes,
    /// The theme that the user chose in the workbench, instead of that of the settings.
    pub chosen_theme: Option<String>,
    /// The theme that was kept from an earlier start and is shown since this one began.
    pub recalled_theme: Option<String>,
    /// The directory in which runs are stored.
    pub dir: PathBuf,
    /// The runs directory's content, once read.
    pub stored: Option<Arc<Snapshot>>,
    /// The directory of experiment files.
    pub experiments: PathBuf,
    /// Experiments that a sweep is running or will run.
    pub sweeps: Sweeps,
    /// The questions that are being answered in the background.
    pub tasks: Tasks,
    /// What the screens ask of the workbench, in order.
    pub requests: VecDeque<Request>,
    /// What is to be done outside of the state.
    pub effects: Vec<Effect>,
}

/// Experiments of sweeps, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweeps {
    /// The name of the experiment whose sweep runs; `None` where none does.
    pub running: Option<String>,
    /// Whether it moves: it runs, and does not wait to be resumed.
    pub moving: bool,
    /// The experiments that wait for the one that runs.
    pub queued: Vec<String>,
}

/// How traces are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// In the place of what is shown, at a stretch of the first trace (from and to, in ns since its
    /// first start), or, with `None`, at the first decode step of that trace.
    Alone(Option<(i64, i64)>),
    /// Beneath the trace that is shown, where one is.
    Beneath,
}

/// What a screen asks of the workbench, or what the sweep tells it. Each request is offered to one
/// screen after the other, and the one that does it takes it ([`super::screen::Screen::serve`]).
#[derive(Debug)]
pub enum Request {
    /// Show the timelines of stored runs (full ids), from top to bottom.
    OpenRuns {
        /// The full ids of the runs.
        runs: Vec<String>,
        /// How their traces are shown.
        opening: Opening,
    },
    /// Show the timeline of a run.
    OpenRecord(Box<Record>),
    /// Show the timeline of a trace file, or of a run by its id where there is no such file.
    OpenPath(String, Opening),
    /// Run an experiment, behind the sweep that runs if one does.
    Sweep {
        /// The experiment whose cells are run.
        experiment: Arc<Experiment>,
        /// Which of the experiment's runs are started: those that are missing, that failed, or all.
        choice: Choice,
    },
    /// Cancel the sweep that runs.
    CancelSweep,
    /// The sweep that runs tells what has happened in it.
    SweepNews(Box<SweepEvent>),
    /// The sweep ended; the error if it could not be run.
    SweepEnded(Result<Ended, String>),
    /// Show what-if, starting from a run where one is selected.
    WhatIf(Option<Box<SelectedRun>>),
}

/// A run that is selected on a screen.
#[derive(Clone, Debug)]
pub struct SelectedRun {
    /// The cell that was run, with all its options.
    pub spec: Spec,
    /// The full id of the run.
    pub run: String,
}

impl Context {
    /// What a workbench that has just been opened knows.
    pub fn new(dir: PathBuf, theme: Theme, size: (u16, u16)) -> Self {
        Self {
            size,
            cell_pixels: None,
            now_ms: 0,
            tab: Tab::Experiments,
            overlays: Vec::new(),
            past: HashMap::new(),
            scope: Scope::default(),
            recent: Vec::new(),
            folder: None,
            notice: None,
            keys: Keymap::default(),
            messages: VecDeque::new(),
            mouse: true,
            press: None,
            leaving: false,
            theme,
            themes: Themes::default(),
            chosen_theme: None,
            recalled_theme: None,
            dir,
            stored: None,
            experiments: "experiments".into(),
            sweeps: Sweeps::default(),
            tasks: Tasks::default(),
            requests: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// The body of the window, empty where it is too small.
    pub fn body(&self) -> Rect {
        layout::regions(self).map_or(Rect::ZERO, |regions| regions.body)
    }

    /// The key to tell of what can be done on a screen.
    pub fn key<S: Acts>(&self, act: S::Act) -> String {
        self.keys.label(Action::of::<S>(act))
    }

    /// Tells the user something that a key press takes away.
    pub fn inform(&mut self, text: impl Into<String>) {
        self.tell(Notice { text: text.into(), error: false });
    }

    /// Tells the user what went wrong; stays until Escape.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.tell(Notice { text: text.into(), error: true });
    }

    /// An answer, or its error told.
    pub fn told<T>(&mut self, answer: Result<T, String>) -> Option<T> {
        answer.map_err(|error| self.fail(error)).ok()
    }

    fn tell(&mut self, notice: Notice) {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back((self.now_ms, notice.clone()));
        // what went wrong stays until it is closed, whatever else there is to tell
        if notice.error || !self.notice.as_ref().is_some_and(|n| n.error) {
            self.notice = Some(notice);
        }
    }

    /// Asks the workbench for something.
    pub fn request(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// Opens the timelines of stored runs, from top to bottom, alone.
    pub fn open_runs(&mut self, runs: impl IntoIterator<Item = String>) {
        self.request(Request::OpenRuns {
            runs: runs.into_iter().collect(),
            opening: Opening::Alone(None),
        });
    }

    /// Has something done outside of the state.
    pub fn perform(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}

/// Something the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What the user is told; it may have several lines.
    pub text: String,
    /// It went wrong: shown until it is closed.
    pub error: bool,
}
