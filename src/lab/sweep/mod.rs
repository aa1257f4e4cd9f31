//! Sweeps: experiment files, the grid of cells, rounds, resume. This file executes a sweep: its events, state and
//! rounds.

pub mod document;
pub mod edit;
mod experiment;
mod file;
pub mod forecast;
mod keys;
mod simulate;
mod slurm;

pub use experiment::{Adapt, BUILT_IN, CONTEXT, Evaluate, Experiment, OWN_TEXT, TextSource};
pub use keys::experiment_schema;
pub use simulate::{simulate_cell, simulate_cells};
pub use slurm::{OnSlurm, SlurmOptions, TaskCells, execute_on_slurm};

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::simulate::{SimulationEvent, Simulations};
use crate::launch::{Cancel, Executor, ExecutorEvent, RunRequest};
use crate::store::{Claimed, EndedRuns, Finished, Store};
use base::checksum::short_key;
use base::error::{Error, Result};
use run::sim::Simulator;
use run::{Feasibility, GridContext, RunEvent, feasibility};
use table::{Record, Spec, Status};

/// Poll interval for cells that another process runs.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Reason of cells that were not reached.
const CANCELLED: &str = "cancelled before it ran";

/// Reason of cells that were not run because only failed ones were selected.
const NOT_CHOSEN: &str = "only failed cells are run again, and it did not fail";

/// Cells and rounds of a sweep.
#[derive(Clone, Copy)]
struct Grid<'a> {
    pub cells: &'a [Cell],
    pub rounds: u32,
    /// Name of the experiment; `None` for a cell on its own.
    pub name: Option<&'a str>,
    pub simulator: &'a Simulator,
}

struct SweepState<'a> {
    pub grid: Grid<'a>,
    /// [`Spec::key`] of each cell.
    pub keys: Vec<String>,
    pub store: &'a Store,
    pub choice: SweepSelection,
    pub cancel: &'a Cancel,
    pub emit: &'a mut dyn FnMut(SweepEvent),
    /// Claim on the simulated cells, held while this process may simulate them.
    simulations: Option<Claimed>,
    /// Runs that are in the store.
    finished: Finished<'a>,
    /// Runs to repeat with [`SweepSelection::Failed`].
    failed: Option<HashSet<(String, u32)>>,
    /// Number of outstanding rounds of each cell.
    left: Vec<u32>,
    /// Runs of cells that were not reported yet.
    ended: BTreeMap<usize, Vec<Record>>,
    /// First cell that was not reported yet.
    next: usize,
    /// Stored runs of other experiments that are reused.
    found: Vec<String>,
    /// Runs and batches stored by this sweep.
    pub stored: BTreeSet<String>,
    pub outcome: SweepOutcome,
}

impl<'a> SweepState<'a> {
    /// Finds the finished runs in the store and emits the cells that cannot run. Waits while another sweep simulates
    /// the same cells. Fails if the store cannot be read.
    pub fn new(
        grid: Grid<'a>,
        store: &'a Store,
        choice: SweepSelection,
        cancel: &'a Cancel,
        emit: &'a mut dyn FnMut(SweepEvent),
    ) -> Result<Self> {
        store.prepare()?;
        let keys: Vec<String> = grid.cells.iter().map(|cell| cell.spec.key()).collect();
        let simulations = claim_simulations(grid, &keys, store, cancel, emit)?;
        let wanted: HashSet<&str> = keys.iter().map(String::as_str).collect();
        let finished = match grid.name {
            Some(_) => store.finished_for(choice, &wanted)?,
            // a cell on its own runs even if it is finished
            None => Finished::default(),
        };
        let failed = match choice {
            SweepSelection::Failed => Some(store.failed_of(&wanted)?),
            SweepSelection::Again(_) | SweepSelection::Missing => None,
        };
        let mut state = Self {
            grid,
            keys,
            store,
            choice,
            cancel,
            emit,
            simulations,
            finished,
            failed,
            left: Vec::new(),
            ended: BTreeMap::new(),
            next: 0,
            found: Vec::new(),
            stored: BTreeSet::new(),
            outcome: SweepOutcome::default(),
        };
        let is_open = |cell: usize, round: u32| {
            state.finished.contains(&state.keys[cell], round) || state.is_chosen(cell, round)
        };
        let left = |cell: usize| match state.failed {
            Some(_) => (0..grid.rounds).filter(|round| is_open(cell, *round)).count() as u32,
            None => grid.rounds,
        };
        state.left = (0..grid.cells.len()).map(left).collect();
        for (cell, planned) in grid.cells.iter().enumerate() {
            if let Some(record) = impossible(planned, grid.name, store) {
                (state.emit)(SweepEvent::CellSettled { cell, round: 0, record: Box::new(record) });
            }
        }
        Ok(state)
    }

    fn is_chosen(&self, cell: usize, round: u32) -> bool {
        let is_failed = |failed: &HashSet<_>| failed.contains(&(self.keys[cell].clone(), round));
        self.failed.as_ref().is_none_or(is_failed)
    }

    /// Cells with a run to execute in this round, in a process of its own.
    pub fn to_execute(&self, round: u32) -> impl Iterator<Item = usize> {
        let cells = self.grid.cells.iter().enumerate();
        cells
            .filter(move |(cell, planned)| {
                planned.feasibility == Feasibility::Runs
                    && !planned.spec.backend.is_simulated()
                    && !self.finished.contains(&self.keys[*cell], round)
                    && self.is_chosen(*cell, round)
            })
            .map(|(cell, _)| cell)
    }

    /// Settles the cells of a round that are in the store and simulates those that are not, in cell order.
    pub fn settle_and_simulate(&mut self, round: u32) -> Result<()> {
        let (mut settled, mut simulations) = (VecDeque::new(), Vec::new());
        for (cell, planned) in self.grid.cells.iter().enumerate() {
            if planned.feasibility != Feasibility::Runs {
                continue;
            }
            if self.finished.contains(&self.keys[cell], round) {
                settled.push_back(cell);
            } else if planned.spec.backend.is_simulated() && self.is_chosen(cell, round) {
                simulations.push((cell, &planned.spec));
            }
        }
        let (store, cancel, Grid { name, simulator, .. }) = (self.store, self.cancel, self.grid);
        if !simulations.is_empty() && !cancel.is_all() {
            let environment = machine::environment::collect();
            let simulations = Simulations { cells: simulations, environment, experiment: name, round };
            simulations.run(simulator, store, cancel, &mut |cell, event| match event {
                SimulationEvent::Started(run) => self.started(cell, round, &run),
                SimulationEvent::Stored(record) => {
                    self.settle_stored(&mut settled, cell, round);
                    self.hold();
                    self.ran(cell, round, *record);
                }
            })?;
        }
        self.settle_stored(&mut settled, usize::MAX, round);
        Ok(())
    }

    /// Settles the cells before `end`. One at a time, since records are loaded from the store.
    fn settle_stored(&mut self, settled: &mut VecDeque<usize>, end: usize, round: u32) {
        while let Some(cell) = settled.pop_front_if(|cell| *cell < end) {
            if let Some(record) = self.finished.get(&self.keys[cell], round) {
                self.settled(cell, round, record);
            }
        }
    }

    /// Waits while the sweep is paused.
    pub fn hold(&mut self) {
        let emit = &mut self.emit;
        self.cancel
            .hold(&mut |paused| emit(if paused { SweepEvent::Paused } else { SweepEvent::Resumed }));
    }

    /// Takes a run that needs no execution.
    pub fn settled(&mut self, cell: usize, round: u32, record: Record) {
        if record.is_finished() && record.experiment.as_deref() != self.grid.name {
            self.found.push(record.run.clone());
        }
        (self.emit)(SweepEvent::CellSettled { cell, round, record: Box::new(record.clone()) });
        self.ended(cell, record);
    }

    pub fn started(&mut self, cell: usize, round: u32, run: &str) {
        (self.emit)(SweepEvent::RunStarted { cell, round, run: run.to_owned() });
    }

    /// Takes a run that was executed now.
    pub fn ran(&mut self, cell: usize, round: u32, record: Record) {
        if record.status == Status::Failed {
            self.outcome.failed += 1;
        } else {
            // all rows of a batch count once
            self.stored.extend(record.run.split(':').next().map(str::to_owned));
        }
        (self.emit)(SweepEvent::RunEnded { cell, round, record: Box::new(record.clone()) });
        self.ended(cell, record);
    }

    fn ended(&mut self, cell: usize, record: Record) {
        self.ended.entry(cell).or_default().push(record);
        self.left[cell] = self.left[cell].saturating_sub(1);
        while let Some(cell) = self.grid.cells.get(self.next) {
            if self.left[self.next] > 0 && cell.feasibility == Feasibility::Runs {
                break;
            }
            self.report();
        }
    }

    /// Emits the record of the next cell.
    fn report(&mut self) {
        let (cell, grid) = (self.next, self.grid);
        let records = self.ended.remove(&cell).unwrap_or_default();
        let record = impossible(&grid.cells[cell], grid.name, self.store);
        let record = record.or_else(|| aggregated(records)).unwrap_or_else(|| {
            let is_chosen = (0..grid.rounds).any(|round| self.is_chosen(cell, round));
            Record {
                experiment: grid.name.map(str::to_owned),
                reason: Some(if is_chosen { CANCELLED } else { NOT_CHOSEN }.to_owned()),
                ..not_run(&grid.cells[cell].spec, self.store)
            }
        });
        *self.outcome.cells.entry(record.status).or_default() += 1;
        (self.emit)(SweepEvent::CellDone { cell, record: Box::new(record) });
        self.next += 1;
    }

    /// Lets other sweeps simulate the same cells.
    pub fn release_simulations(&mut self) {
        self.simulations = None;
    }

    /// Stores which runs of other experiments this one reused.
    pub fn note_found(&self) -> Result<()> {
        self.grid.name.map_or(Ok(()), |name| self.store.found_by(&self.found, name))
    }

    /// Emits the remaining cells, also those that were cancelled.
    pub fn finish(mut self) -> Result<SweepOutcome> {
        while self.next < self.grid.cells.len() {
            self.report();
        }
        self.note_found()?;
        Ok(SweepOutcome { interrupted: self.cancel.is_all(), stored: self.stored.len(), ..self.outcome })
    }
}

/// Waits until no other process simulates the same cells. That takes seconds, and the results are in the store
/// afterwards.
fn claim_simulations(
    grid: Grid<'_>,
    keys: &[String],
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Option<Claimed>> {
    let is_simulated =
        |cell: &Cell| cell.feasibility == Feasibility::Runs && cell.spec.backend.is_simulated();
    let first = grid.cells.iter().position(is_simulated);
    let (Some(first), Some(_)) = (first, grid.name) else { return Ok(None) };
    let all = format!("{}-0", short_key(keys.concat()));
    let mut is_reported = false;
    while !cancel.is_all() {
        match store.claim(&all)? {
            Claimed::By(who) if !std::mem::replace(&mut is_reported, true) => {
                emit(SweepEvent::Log { cell: first, line: waits_for(&who) });
            }
            Claimed::By(_) => std::thread::sleep(CLAIM_POLL_INTERVAL),
            ours => return Ok(Some(ours)),
        }
    }
    Ok(None)
}

fn waits_for(who: &str) -> String {
    format!("{who} runs this cell just now: waiting for its result")
}

/// Aggregates the records of all rounds of a cell into one; `None` without any.
fn aggregated(mut records: Vec<Record>) -> Option<Record> {
    records.sort_by_key(|record| record.round);
    // interrupted runs are ignored if another round ended
    if records.iter().any(|record| record.status != Status::Interrupted) {
        records.retain(|record| record.status != Status::Interrupted);
    }
    let is_ok = |record: &Record| record.status == Status::Ok;
    let all = if records.iter().any(is_ok) { table::aggregate(&records) } else { Vec::new() };
    all.iter().find(|record| is_ok(record)).or(all.first()).cloned().or(records.pop())
}

/// Record of a cell that cannot run. Never stored, and always has the same id.
fn impossible(cell: &Cell, experiment: Option<&str>, store: &Store) -> Option<Record> {
    let (status, reason) = cell.feasibility.obstacle()?;
    let experiment = experiment.map(str::to_owned);
    Some(Record { experiment, ..without_run(&cell.spec, status, reason, store) })
}

/// Record of a cell that was not reached.
fn not_run(spec: &Spec, store: &Store) -> Record {
    without_run(spec, Status::Interrupted, CANCELLED, store)
}

fn without_run(spec: &Spec, status: Status, reason: &str, store: &Store) -> Record {
    Record {
        run: format!("{}-{}", status.as_str(), spec.key()),
        created: store.now(),
        ..Record::new(spec.clone(), status, Some(reason.to_owned()))
    }
}

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
pub enum SweepSelection {
    /// Runs that are not finished; resumes a stopped sweep.
    #[default]
    Missing,
    /// All runs, except those that were created since this time: when the repetition began, which an interrupted one
    /// keeps.
    Again(Timestamp),
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

/// Runs an experiment. Rounds interleave the cells, `choice` selects the runs, and simulated cells run in this
/// process and are stored as one batch. Blocks, so call it on a thread.
///
/// # Errors
///
/// Returns a failure if the store cannot be read or written. Failed runs are stored as failed instead.
pub fn execute(
    experiment: &Experiment,
    store: &Store,
    executor: &dyn Executor,
    choice: SweepSelection,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<SweepOutcome> {
    let simulator = Simulator::default();
    run_grid(SweepState::new(experiment.grid(&simulator), store, choice, cancel, emit)?, executor)
}

/// Executes or simulates one cell `rounds` times, even if it is finished (command `run`). Returns its record, aggregated
/// over the rounds. A cell that cannot run yields a record with the reason.
///
/// # Errors
///
/// Returns a failure if the store cannot be read or written. A failed run yields a record with the reason instead.
pub fn run_one(
    spec: &Spec,
    shared: &GridContext,
    rounds: u32,
    store: &Store,
    executor: &dyn Executor,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Record> {
    let cells = [Cell { spec: spec.clone(), feasibility: feasibility::assess_with(spec, shared)? }];
    let (rounds, simulator) = (rounds.max(1), &shared.simulator);
    let grid = Grid { cells: &cells, rounds, name: None, simulator };
    let mut concluded = None;
    let mut conclude = |event| match event {
        SweepEvent::CellDone { record, .. } => concluded = Some(*record),
        event => emit(event),
    };
    run_grid(
        SweepState::new(grid, store, SweepSelection::Again(Timestamp::now()), cancel, &mut conclude)?,
        executor,
    )?;
    Ok(concluded.unwrap_or_else(|| not_run(spec, store)))
}

fn run_grid(mut state: SweepState<'_>, executor: &dyn Executor) -> Result<SweepOutcome> {
    let (store, cancel) = (state.store, state.cancel);
    let mut elsewhere = EndedRuns::default();
    for round in 0..state.grid.rounds {
        state.settle_and_simulate(round)?;
        run_round(&mut state, round, executor, &mut elsewhere)?;
        if cancel.is_all() {
            break;
        }
    }
    let stored = std::mem::take(&mut state.stored);
    let outcome = SweepOutcome { stored: stored.len(), ..state.finish()? };
    match stored.iter().filter(|run| !store.has(run)).count() {
        0 => Ok(outcome),
        gone => Err(Error::failed(format!(
            "{}: {gone} of the {} runs that this sweep stored are not there any more: the directory was removed or \
             emptied meanwhile",
            store.dir().display(),
            stored.len()
        ))),
    }
}

/// Executes the runs of a round. Cells held by other processes go to the end of the queue.
fn run_round(
    state: &mut SweepState<'_>,
    round: u32,
    executor: &dyn Executor,
    elsewhere: &mut EndedRuns,
) -> Result<()> {
    let (grid, store, cancel) = (state.grid, state.store, state.cancel);
    let mut queue: VecDeque<usize> = state.to_execute(round).collect();
    // consecutive cells that others hold, and cells whose holder was reported
    let (mut refused, mut reported) = (0, HashSet::new());
    while let Some(cell) = queue.pop_front() {
        state.hold();
        if cancel.is_cell(cell) {
            continue;
        }
        // a cell on its own runs regardless of others
        let claim =
            grid.name.map(|_| store.claim(&format!("{}-{round}", state.keys[cell]))).transpose()?;
        if let Some(Claimed::By(who)) = claim {
            if reported.insert(cell) {
                (state.emit)(SweepEvent::Log { cell, line: waits_for(&who) });
            }
            queue.push_back(cell);
            refused += 1;
            if refused >= queue.len() {
                refused = 0;
                std::thread::sleep(CLAIM_POLL_INTERVAL);
            }
            continue;
        }
        refused = 0;
        if !matches!(state.choice, SweepSelection::Again(_))
            && let Some(record) = store.newly_finished(elsewhere, &state.keys[cell], round)?
        {
            state.settled(cell, round, record);
            continue;
        }
        let spec = &grid.cells[cell].spec;
        let request = RunRequest { spec, cell, round, experiment: grid.name, store, cancel };
        let record = executor.run(&request, &mut |event| {
            (state.emit)(match event {
                ExecutorEvent::Started(run) => SweepEvent::RunStarted { cell, round, run },
                ExecutorEvent::Event(event) => SweepEvent::Run { cell, round, event },
                ExecutorEvent::Log(line) => SweepEvent::Log { cell, line },
            });
        });
        drop(claim);
        state.ran(cell, round, record);
    }
    Ok(())
}

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
