//! Cells of a sweep, the choice of runs, and progress events.

use serde::{Deserialize, Serialize};

use run::{Feasibility, RunEvent};
use table::{Record, Spec, Status};

/// Point of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Full spec of the cell, including defaults.
    pub spec: Spec,
    /// Reason why the cell cannot run, checked before anything starts.
    pub feasibility: Feasibility,
}

/// Progress event of a sweep, for the TUI and the command line.
#[derive(Clone, Debug)]
pub enum SweepEvent {
    /// A cell needs no run: finished before (with the stored record), skipped, or out of memory.
    CellSettled {
        cell: usize,
        round: u32,
        /// Stored record, or a record that is not stored for a cell that cannot run.
        record: Box<Record>,
    },
    /// A run of a cell starts.
    RunStarted { cell: usize, round: u32, run: String },
    /// Progress of a run: its phase, a finished sample, or decode steps.
    Run { cell: usize, round: u32, event: RunEvent },
    /// A run wrote a line to its standard error.
    Log { cell: usize, line: String },
    /// A run ended, well or badly, and is stored (simulated ones within seconds).
    RunEnded { cell: usize, round: u32, record: Box<Record> },
    /// Progress of evaluating the quality of the cells' models, after the cells.
    Evaluating {
        what: String,
        /// Windows times architectures, computed or found in the store.
        done: usize,
        /// Part of `done` that was found in the store.
        found: usize,
        /// Windows times architectures in total.
        of: usize,
    },
    /// Progress of training the cells' models, after the cells.
    Training {
        what: String,
        done: u32,
        /// Steps in `done` that an earlier process did.
        found: u32,
        of: u32,
        /// Loss of the step in nats per token.
        loss: f64,
        tokens_per_s: f64,
    },
    /// Message about no particular cell: results of evaluations, skipped models with reasons, queued jobs.
    Note(String),
    /// The sweep is paused: nothing runs and nothing starts until it resumes.
    Paused,
    /// A paused sweep starts runs again.
    Resumed,
    /// A cell and all before it have ended or cannot run. Sent once per cell, in order.
    CellDone {
        cell: usize,
        /// Record aggregated over rounds (contract: one object per cell).
        record: Box<Record>,
    },
}

/// Choice of runs to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// Runs that are not finished; resumes a stopped sweep.
    #[default]
    Missing,
    /// All runs, including finished ones.
    All,
    /// Runs that failed or were interrupted. Runs that never started are left out.
    Failed,
}

#[derive(Clone, Debug, Default)]
pub struct SweepOutcome {
    /// Number of cells by status; their records were sent as [`SweepEvent::CellDone`].
    pub cells: std::collections::BTreeMap<Status, usize>,
    /// Number of stored runs or batches of simulated runs.
    pub stored: usize,
    pub failed: usize,
    /// Number of failed evaluations of quality.
    pub unevaluated: usize,
    /// True if the sweep was cancelled before its end.
    pub interrupted: bool,
}
