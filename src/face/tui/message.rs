//! What can happen ([`Message`]) and what the workbench wants done about it ([`Effect`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::MouseEvent;

use super::prelude::*;
use super::task::{Answer, Task};
use lab::store;
use lab::sweep::{Choice, Experiment};
use table::Record;

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
    /// A signal asked the process to stop (Ctrl-Z, SIGTSTP).
    Stop,
    /// The process goes on after it was stopped (`fg`, SIGCONT).
    Resume,
    /// The runs directory was read.
    Runs(Result<Arc<Snapshot>, String>),
    /// Something done outside of the state is to be told: a note, or what went wrong.
    Told(Result<String, String>),
    /// A question was answered.
    Answered(Answer),
    /// Something that a screen is to take up, such as news of the sweep.
    Request(Request),
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many runs failed.
    pub failed: usize,
    /// Whether it was cancelled.
    pub interrupted: bool,
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
    /// Write what is shown to a file, beside one that is there already.
    Export {
        /// What is written: a picture, a figure or a table.
        export: Export,
        /// The path of the file.
        path: PathBuf,
    },
    /// Do something in the background, to the end whatever else is asked for, and tell what came of it.
    Do(Deed),
    /// Put text on the clipboard.
    Copy(String),
    /// Capture the mouse, or stop it.
    CaptureMouse(bool),
}

/// Something to be done, and what to say of it then.
pub struct Deed(pub Box<dyn FnOnce() -> Result<String, String> + Send>);

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deed")
    }
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
        /// Which of the experiment's runs are started: those that are missing, that failed, or all.
        choice: Choice,
    },
    /// Start no more runs, or go on.
    Pause(bool),
    /// Cancel one cell, by its index.
    CancelCell(usize),
    /// Cancel the whole sweep, the run under way included.
    CancelAll,
}
