//! Inputs of the workbench ([`Message`]) and the side effects it requests ([`Effect`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::MouseEvent;

use super::prelude::*;
use super::task::{Answer, Task};
use lab::store;
use lab::sweep::{Choice, Experiment};
use table::Record;

/// Input event: a key, a result from a worker, a sweep event.
#[derive(Debug)]
pub enum Message {
    /// Time in milliseconds since the workbench was opened; sent before other messages.
    Clock(u64),
    Key(KeyEvent),
    /// Mouse event (only while captured).
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// Termination signal, or the terminal is gone.
    Terminate,
    /// Suspend signal (Ctrl-Z, SIGTSTP).
    Stop,
    /// Resume after a suspend (`fg`, SIGCONT).
    Resume,
    Runs(Result<Arc<Snapshot>, String>),
    Told(Result<String, String>),
    Answered(Answer),
    Request(Request),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub failed: usize,
    pub interrupted: bool,
}

#[derive(Debug)]
pub enum Effect {
    Quit {
        /// True if a sweep was cut short; reflected in the exit status.
        interrupted: bool,
    },
    Ask(Task),
    Store(StoreTask),
    Sweep(SweepOrder),
    /// Writes an export; never overwrites an existing file.
    Export {
        export: Export,
        path: PathBuf,
    },
    /// Runs a job in the background to completion and reports its result.
    Do(Deed),
    Copy(String),
    CaptureMouse(bool),
}

pub struct Deed(pub Box<dyn FnOnce() -> Result<String, String> + Send>);

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deed")
    }
}

/// Job on the stored runs; executed in order, each returns the new run list.
#[derive(Clone, Debug)]
pub enum StoreTask {
    Read,
    Append(Vec<Record>),
    Annotate {
        /// Full run ids.
        runs: Vec<String>,
        edit: store::Edit,
    },
    Delete(Vec<String>),
    Restore,
}

#[derive(Clone, Debug)]
pub enum SweepOrder {
    Start {
        experiment: Arc<Experiment>,
        /// Runs to start: missing, failed, or all.
        choice: Choice,
    },
    /// Pauses (starts no more runs) or resumes.
    Pause(bool),
    CancelCell(usize),
    /// Cancels the whole sweep, including the current run.
    CancelAll,
}
