//! Interface between a sweep and the code that runs its cells: the process launcher, or a mock in tests. Includes
//! cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::store::Store;
use run::RunEvent;
use table::{Record, Spec};

/// Poll interval while a sweep is paused.
const POLL: Duration = Duration::from_millis(20);

/// Handle that cancels or pauses a sweep, or cancels single cells. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    all: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    cells: Arc<std::sync::Mutex<std::collections::BTreeSet<usize>>>,
}

impl Cancel {
    /// Cancels the whole sweep. The current run is ended and stored as interrupted.
    pub fn all(&self) {
        self.all.store(true, Ordering::SeqCst);
    }
    /// Cancels one cell in all rounds.
    pub fn cell(&self, cell: usize) {
        if let Ok(mut cells) = self.cells.lock() {
            cells.insert(cell);
        }
    }
    /// Lets the current run finish and starts no other until [`Cancel::resume`].
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }
    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }
    /// True if paused and not cancelled.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) && !self.is_all()
    }
    /// Blocks while paused. Calls `paused` with true when the wait begins and with false when it ends.
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
    /// True if the whole sweep is cancelled, not only a cell.
    pub fn is_all(&self) -> bool {
        self.all.load(Ordering::SeqCst)
    }
    /// True if this cell or the whole sweep is cancelled.
    pub fn is_cell(&self, cell: usize) -> bool {
        self.is_all() || self.cells.lock().is_ok_and(|cells| cells.contains(&cell))
    }
}

/// Runs one cell. Tests use a mock.
pub trait Executor: Sync {
    /// Runs the cell to its end. Polls `request.cancel` and sends events and log lines to `emit`. Never fails: a run
    /// that died becomes a record with status failed.
    fn run(&self, request: &RunRequest<'_>, emit: &mut dyn FnMut(ExecutorEvent)) -> Record;
}

#[derive(Debug)]
pub struct RunRequest<'a> {
    pub spec: &'a Spec,
    /// Index of the cell, for [`Cancel::is_cell`].
    pub cell: usize,
    /// Pass over the cells of the sweep, from 0.
    pub round: u32,
    pub experiment: Option<&'a str>,
    pub store: &'a Store,
    /// Handle with which the caller cancels or pauses.
    pub cancel: &'a Cancel,
}

#[derive(Clone, Debug)]
pub enum ExecutorEvent {
    /// Sent once the run's id is known.
    Started(String),
    Event(RunEvent),
    /// Line on the standard error of the run.
    Log(String),
}
