//! Sweeps: experiment files, the grid of cells, rounds, resume.

mod built_in;
mod conclude;
mod draft;
pub mod edit;
mod execute;
mod experiment;
pub mod forecast;
mod gpus;
mod options;
mod ordered;
mod position;
mod schema;
mod shared;
mod simulate;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::RunEvent;
use crate::spec::Spec;
use crate::store::{Record, Status, Store};

/// How often a paused sweep looks whether it may go on.
const POLL: Duration = Duration::from_millis(20);

pub use built_in::BUILT_IN;
pub use execute::{execute, run_one};
pub use experiment::Experiment;
pub use options::CellOptions;
pub use schema::experiment_schema;
pub(crate) use shared::Shared;
pub use simulate::simulate_cells;
pub use verdict::verdict;

/// A point of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What to run.
    pub spec: Spec,
    /// Why it will not be run, found before anything starts.
    pub verdict: Verdict,
}

/// Whether a cell can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can.
    Runs,
    /// It cannot: TP does not divide the heads (with the arithmetic).
    Skipped(String),
    /// It would not fit in memory (with the arithmetic).
    Oom(String),
}

/// What happens in a sweep; the terminal and the command line draw from it.
#[derive(Clone, Debug)]
pub enum SweepEvent {
    /// A cell needs no run: finished before (`record` as stored), skipped or oom.
    CellSettled {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass.
        round: u32,
        /// Its record.
        record: Box<Record>,
    },
    /// A run starts.
    RunStarted {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass.
        round: u32,
        /// Its id.
        run: String,
    },
    /// A run says something.
    Run {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass.
        round: u32,
        /// What.
        event: RunEvent,
    },
    /// A run wrote a line to its standard error.
    Log {
        /// Index into the experiment's cells.
        cell: usize,
        /// The line.
        line: String,
    },
    /// A run ended, well or badly; it is stored (a simulated one within seconds).
    RunEnded {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass.
        round: u32,
        /// Its record.
        record: Box<Record>,
    },
    /// The sweep is paused: no run goes on, and none is started until it is resumed.
    Paused,
    /// The sweep goes on.
    Resumed,
    /// A cell and all before it have ended, or will not run: told once a cell, in their order.
    CellDone {
        /// Index into the experiment's cells.
        cell: usize,
        /// Its record, aggregated over rounds (contract: one object a cell).
        record: Box<Record>,
    },
}

/// Which runs of a grid are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Those that are not finished: what a sweep that stopped goes on with.
    #[default]
    Missing,
    /// All, finished ones too.
    All,
    /// Those that failed or were interrupted; what never ran stays so.
    Failed,
}

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
    /// Go on.
    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }
    /// Whether no run is to be started.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) && !self.is_all()
    }
    /// Waits while paused, and says so before and after. Blocks.
    fn hold(&self, emit: &mut dyn FnMut(SweepEvent)) {
        if !self.is_paused() {
            return;
        }
        emit(SweepEvent::Paused);
        while self.is_paused() {
            std::thread::sleep(POLL);
        }
        emit(SweepEvent::Resumed);
    }
    /// Whether everything is to stop.
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
    /// What to run.
    pub spec: &'a Spec,
    /// Index of the cell, for `cancel`.
    pub cell: usize,
    /// Which pass.
    pub round: u32,
    /// The experiment's name.
    pub experiment: Option<&'a str>,
    /// Where runs are stored.
    pub store: &'a Store,
    /// Cancels.
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

/// How a sweep ended.
#[derive(Clone, Debug, Default)]
pub struct SweepOutcome {
    /// How many cells ended how; their records were told as [`SweepEvent::CellDone`].
    pub cells: std::collections::BTreeMap<Status, usize>,
    /// Some runs failed.
    pub failed: usize,
    /// It was cancelled.
    pub interrupted: bool,
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
