//! The cells of a sweep, which of their runs are executed, and what happens meanwhile.

use serde::{Deserialize, Serialize};

use run::{Feasibility, RunEvent};
use table::{Record, Spec, Status};

/// A point of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What the cell asks for, with every default filled in.
    pub spec: Spec,
    /// Why it will not be run, found before anything starts.
    pub feasibility: Feasibility,
}

/// What happens in a sweep; the terminal and the command line draw from it.
#[derive(Clone, Debug)]
pub enum SweepEvent {
    /// A cell needs no run: finished before (`record` as stored), skipped or oom.
    CellSettled {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass over the cells it would have been, from 0.
        round: u32,
        /// The record as it is stored, or would be.
        record: Box<Record>,
    },
    /// A run of a cell starts.
    RunStarted {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass over the cells it is, from 0.
        round: u32,
        /// The id under which the run is stored.
        run: String,
    },
    /// A run tells what it does: its phase, a sample that ended, decode steps that went by.
    Run {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass over the cells it is, from 0.
        round: u32,
        /// What the run's process told, as it sent it.
        event: RunEvent,
    },
    /// A run wrote a line to its standard error.
    Log {
        /// Index into the experiment's cells.
        cell: usize,
        /// The line without its end.
        line: String,
    },
    /// A run ended, well or badly; it is stored (a simulated one within seconds).
    RunEnded {
        /// Index into the experiment's cells.
        cell: usize,
        /// Which pass over the cells it is, from 0.
        round: u32,
        /// The record as it is stored.
        record: Box<Record>,
    },
    /// The quality of the cells' models is evaluated, after the cells.
    Evaluating {
        /// What is evaluated, in words.
        what: String,
        /// Windows times architectures that are computed or found.
        done: usize,
        /// Those of them that were found.
        found: usize,
        /// Windows times architectures in the whole evaluation.
        of: usize,
    },
    /// The cells' models are trained, after the cells.
    Training {
        /// What is trained, in words.
        what: String,
        /// Steps that are done.
        done: u32,
        /// Those of them that an earlier process did.
        found: u32,
        /// Steps of the training.
        of: u32,
        /// What the step's windows lost, in nats a token.
        loss: f64,
        /// Tokens that are trained on in a second.
        tokens_per_s: f64,
    },
    /// Something to be told that is of no one cell: what an evaluation found, who is left out and why, what is queued.
    Note(String),
    /// The sweep is paused: no run goes on, and none is started until it is resumed.
    Paused,
    /// The sweep was paused and starts runs again.
    Resumed,
    /// A cell and all before it have ended, or will not run: told once a cell, in their order.
    CellDone {
        /// Index into the experiment's cells.
        cell: usize,
        /// Its record, aggregated over rounds (contract: one object a cell).
        record: Box<Record>,
    },
}

impl SweepEvent {
    /// The same of a grid in which the cell has another number.
    pub(super) fn of_cell(mut self, number: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::CellSettled { cell, .. }
            | Self::RunStarted { cell, .. }
            | Self::Run { cell, .. }
            | Self::Log { cell, .. }
            | Self::RunEnded { cell, .. }
            | Self::CellDone { cell, .. } => *cell = number(*cell),
            Self::Evaluating { .. }
            | Self::Training { .. }
            | Self::Note(_)
            | Self::Paused
            | Self::Resumed => {}
        }
        self
    }
}

/// Which runs of a grid are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The runs that are not finished: what a sweep that stopped goes on with.
    #[default]
    Missing,
    /// All runs of the grid, those that are finished too.
    All,
    /// The runs that failed or were interrupted; what never ran stays so.
    Failed,
}

/// How a sweep ended.
#[derive(Clone, Debug, Default)]
pub struct SweepOutcome {
    /// How many cells ended how; their records were told as [`SweepEvent::CellDone`].
    pub cells: std::collections::BTreeMap<Status, usize>,
    /// How many runs, or batches of simulated ones, were stored.
    pub stored: usize,
    /// How many runs of this sweep ended as failed.
    pub failed: usize,
    /// How many evaluations of quality failed.
    pub unevaluated: usize,
    /// Whether the sweep was cancelled before its end.
    pub interrupted: bool,
}
