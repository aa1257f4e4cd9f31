//! What a sweep asks of whoever runs its cells, and how it cancels them: the launcher in earnest, a mock
//! in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::store::Store;
use run::RunEvent;
use table::{Record, Spec};

/// How often a paused sweep looks whether it may go on.
const POLL: Duration = Duration::from_millis(20);

/// Cancels a sweep, or one of its cells, or makes it wait; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    all: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    cells: Arc<std::sync::Mutex<std::collections::BTreeSet<usize>>>,
}

impl Cancel {
    /// Stop everything; the running run is ended and stored as interrupted.
    pub fn all(&self) {
        self.all.store(true, Ordering::SeqCst);
    }
    /// Stop one cell in all rounds.
    pub fn cell(&self, cell: usize) {
        if let Ok(mut cells) = self.cells.lock() {
            cells.insert(cell);
        }
    }
    /// Let the running run end, and start no other until [`Cancel::resume`].
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }
    /// Lets a sweep that was paused go on with its next run.
    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }
    /// Whether no run is to be started.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) && !self.is_all()
    }
    /// Waits while paused, and tells `paused` when the wait begins (true) and when it has ended (false). Blocks.
    pub fn hold(&self, paused: &mut dyn FnMut(bool)) {
        if !self.is_paused() {
            return;
        }
        paused(true);
        while self.is_paused() {
            std::thread::sleep(POLL);
        }
        paused(false);
    }
    /// Whether the whole sweep is to stop, not only the run under way.
    pub fn is_all(&self) -> bool {
        self.all.load(Ordering::SeqCst)
    }
    /// Whether this cell is to stop.
    pub fn is_cell(&self, cell: usize) -> bool {
        self.is_all() || self.cells.lock().is_ok_and(|cells| cells.contains(&cell))
    }
}

/// Runs one cell; the launcher in earnest, a mock in tests.
pub trait Executor: Sync {
    /// Runs the cell to its end, whatever that is. `stop` is polled; events and log lines go to `emit`.
    /// Never fails: a run that died is a record with status failed.
    fn run(&self, request: &RunRequest<'_>, emit: &mut dyn FnMut(ExecutorEvent)) -> Record;
}

/// What an executor is asked.
#[derive(Debug)]
pub struct RunRequest<'a> {
    /// The cell to be run, with all its options.
    pub spec: &'a Spec,
    /// Index of the cell, for `cancel`.
    pub cell: usize,
    /// Which pass over the cells of the sweep it belongs to, from 0.
    pub round: u32,
    /// The name of the experiment, for the record.
    pub experiment: Option<&'a str>,
    /// Where runs are stored.
    pub store: &'a Store,
    /// How whoever asked takes the request back or pauses.
    pub cancel: &'a Cancel,
}

/// What an executor says while a run goes on.
#[derive(Clone, Debug)]
pub enum ExecutorEvent {
    /// The run's id is known.
    Started(String),
    /// An event of the run.
    Event(RunEvent),
    /// A line on its standard error.
    Log(String),
}
