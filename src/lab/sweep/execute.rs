//! Runs a grid: rounds that interleave cells, resume, cancellation, and one record per cell. Waits for cells that
//! another sweep is running in the same directory and uses its results.
//!
//! A cell's record is emitted as soon as it and all cells before it have ended, then dropped, so memory grows with
//! the grid and not with the results.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use super::conclude::{Conclusion, impossible};
use super::simulate::{SimulationEvent, Simulations};
use super::{Cell, Choice, Experiment, SweepEvent, SweepOutcome};
use crate::launch::{Cancel, Executor, ExecutorEvent, RunRequest};
use crate::store::{Claimed, Ended, Finished, Store};
use base::error::{Error, Result};
use base::hash::short_key;
use run::sim::Simulator;
use run::{Feasibility, Shared, feasibility};
use table::{Record, Spec, Status};

/// Poll interval for cells that another process runs.
const POLL: Duration = Duration::from_millis(200);

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
    choice: Choice,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<SweepOutcome> {
    let Experiment { name, cells, rounds, .. } = experiment;
    let grid = Grid { cells, rounds: *rounds, name: Some(name), simulator: &Simulator::default() };
    grid.run(store, executor, choice, cancel, emit)
}

/// Runs one cell `rounds` times, even if it is finished (command `run`). Returns its record, aggregated over the
/// rounds. A cell that cannot run yields a record with the reason.
///
/// # Errors
///
/// Returns a failure if the store cannot be read or written. A failed run yields a record with the reason instead.
pub fn run_one(
    spec: &Spec,
    rounds: u32,
    store: &Store,
    executor: &dyn Executor,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Record> {
    let shared = Shared::default();
    let cells = [Cell { spec: spec.clone(), feasibility: feasibility::of_with(spec, &shared)? }];
    let (rounds, simulator) = (rounds.max(1), &shared.simulator);
    let grid = Grid { cells: &cells, rounds, name: None, simulator };
    let mut concluded = None;
    grid.run(store, executor, Choice::All, cancel, &mut |event| match event {
        SweepEvent::CellDone { record, .. } => concluded = Some(*record),
        event => emit(event),
    })?;
    Ok(concluded.unwrap_or_else(|| super::conclude::not_run(spec, store)))
}

struct Grid<'a> {
    cells: &'a [Cell],
    rounds: u32,
    name: Option<&'a str>,
    simulator: &'a Simulator,
}

/// Division of the cells in one round.
struct Round<'a> {
    /// Cells that are already finished.
    settled: Vec<usize>,
    simulations: Vec<(usize, &'a Spec)>,
    runs: Vec<usize>,
}

impl Grid<'_> {
    fn run(
        &self,
        store: &Store,
        executor: &dyn Executor,
        choice: Choice,
        cancel: &Cancel,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<SweepOutcome> {
        store.prepare()?;
        let keys: Vec<String> = self.cells.iter().map(|cell| cell.spec.key()).collect();
        let _simulations = self.claim_simulations(&keys, store, cancel, emit)?;
        let mut elsewhere = Ended::default();
        let (mut stored, mut found) = (BTreeSet::new(), Vec::new());
        let wanted: HashSet<&str> = keys.iter().map(String::as_str).collect();
        let mut finished = match choice {
            Choice::All => Finished::default(),
            Choice::Missing | Choice::Failed => store.finished_of(&wanted)?,
        };
        let failed = match choice {
            Choice::Failed => Some(store.failed_of(&wanted)?),
            Choice::All | Choice::Missing => None,
        };
        let chosen = |cell: usize, round: u32| {
            failed.as_ref().is_none_or(|failed| failed.contains(&(keys[cell].clone(), round)))
        };
        let in_some_round = |cell: usize| (0..self.rounds).any(|round| chosen(cell, round));
        let mut cells = Conclusion::new(self.cells, self.rounds, self.name, store, &in_some_round);
        for (cell, planned) in self.cells.iter().enumerate() {
            if let Some(record) = impossible(planned, self.name, store) {
                emit(SweepEvent::CellSettled { cell, round: 0, record: Box::new(record) });
            }
        }
        for number in 0..self.rounds {
            let round = self.round(number, &keys, &finished, &chosen);
            let mut settled = round.settled.iter().copied().peekable();
            let mut settle = |before: usize,
                              cells: &mut Conclusion,
                              emit: &mut dyn FnMut(SweepEvent)| {
                while let Some(cell) = settled.next_if(|cell| *cell < before) {
                    let Some(record) = finished.get(&keys[cell], number) else { continue };
                    self.note_found(&record, &mut found);
                    let event =
                        SweepEvent::CellSettled { cell, round: number, record: record.clone().into() };
                    emit(event);
                    cells.ended(cell, number, record, emit);
                }
            };
            if !round.simulations.is_empty() && !cancel.is_all() {
                let simulations = Simulations {
                    cells: round.simulations,
                    environment: machine::environment::collect(),
                    experiment: self.name,
                    round: number,
                };
                simulations.run(self.simulator, store, cancel, &mut |cell, event| match event {
                    SimulationEvent::Started(run) => {
                        emit(SweepEvent::RunStarted { cell, round: number, run });
                    }
                    SimulationEvent::Stored(record) => {
                        settle(cell, &mut cells, emit);
                        cancel.hold(&mut |paused| {
                            emit(if paused { SweepEvent::Paused } else { SweepEvent::Resumed })
                        });
                        stored.extend(record.run.split(':').next().map(str::to_owned));
                        emit(SweepEvent::RunEnded { cell, round: number, record: record.clone() });
                        cells.ran(cell, number, *record, emit);
                    }
                })?;
            }
            settle(self.cells.len(), &mut cells, emit);
            let mut waiting = Waiting { cells: round.runs.into(), refused: 0, told: HashSet::new() };
            while let Some(cell) = waiting.cells.pop_front() {
                cancel.hold(&mut |paused| {
                    emit(if paused { SweepEvent::Paused } else { SweepEvent::Resumed })
                });
                if cancel.is_cell(cell) {
                    continue;
                }
                let claim = match self.claim(&keys[cell], number, store)? {
                    Some(Claimed::By(who)) => {
                        waiting.put_back(cell, &who, emit);
                        continue;
                    }
                    ours => ours,
                };
                waiting.refused = 0;
                if choice != Choice::All
                    && let Some(record) = store.newly_finished(&mut elsewhere, &keys[cell], number)?
                {
                    self.note_found(&record, &mut found);
                    emit(SweepEvent::CellSettled { cell, round: number, record: record.clone().into() });
                    cells.ended(cell, number, record, emit);
                    continue;
                }
                let spec = &self.cells[cell].spec;
                let request =
                    RunRequest { spec, cell, round: number, experiment: self.name, store, cancel };
                let record = executor.run(&request, &mut |event| {
                    emit(match event {
                        ExecutorEvent::Started(run) => {
                            SweepEvent::RunStarted { cell, round: number, run }
                        }
                        ExecutorEvent::Event(event) => SweepEvent::Run { cell, round: number, event },
                        ExecutorEvent::Log(line) => SweepEvent::Log { cell, line },
                    });
                });
                drop(claim);
                if record.status != Status::Failed {
                    stored.insert(record.run.clone());
                }
                emit(SweepEvent::RunEnded { cell, round: number, record: record.clone().into() });
                cells.ran(cell, number, record, emit);
            }
            if cancel.is_all() {
                break;
            }
        }
        if let Some(name) = self.name {
            store.found_by(&found, name)?;
        }
        let outcome =
            SweepOutcome { interrupted: cancel.is_all(), stored: stored.len(), ..cells.finish(emit) };
        let gone = stored.iter().filter(|run| !store.has(run)).count();
        match gone {
            0 => Ok(outcome),
            gone => Err(Error::failed(format!(
                "{}: {gone} of the {} runs that this sweep stored are not there any more: the directory was \
                 removed or emptied meanwhile",
                store.dir().display(),
                stored.len()
            ))),
        }
    }

    /// Collects stored runs of other experiments that are reused for a cell.
    fn note_found(&self, record: &Record, found: &mut Vec<String>) {
        if record.experiment.as_deref() != self.name {
            found.push(record.run.clone());
        }
    }

    /// Claims a cell, so that no other sweep runs it at the same time. A cell run on its own (`run`) needs no claim:
    /// it runs regardless of others.
    fn claim(&self, key: &str, round: u32, store: &Store) -> Result<Option<Claimed>> {
        self.name.map(|_| store.claim(&format!("{key}-{round}"))).transpose()
    }

    /// Waits until no other process simulates the same cells. That takes seconds, and the results are in the store
    /// afterwards.
    fn claim_simulations(
        &self,
        keys: &[String],
        store: &Store,
        cancel: &Cancel,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<Option<Claimed>> {
        let is_simulated =
            |cell: &Cell| cell.feasibility == Feasibility::Runs && cell.spec.backend.is_simulated();
        let Some(first) = self.cells.iter().position(is_simulated) else { return Ok(None) };
        let all = short_key(keys.concat());
        let mut told = false;
        while !cancel.is_all() {
            match self.claim(&all, 0, store)? {
                Some(Claimed::By(who)) if !std::mem::replace(&mut told, true) => {
                    emit(SweepEvent::Log { cell: first, line: waits_for(&who) });
                }
                Some(Claimed::By(_)) => std::thread::sleep(POLL),
                ours => return Ok(ours),
            }
        }
        Ok(None)
    }

    /// Divides the cells of a round into finished, simulated and executed ones.
    fn round(
        &self,
        round: u32,
        keys: &[String],
        finished: &Finished<'_>,
        chosen: &dyn Fn(usize, u32) -> bool,
    ) -> Round<'_> {
        let (mut settled, mut simulations, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for (index, cell) in self.cells.iter().enumerate() {
            if cell.feasibility != Feasibility::Runs {
                continue;
            }
            if finished.contains(&keys[index], round) {
                settled.push(index);
            } else if !chosen(index, round) {
                continue;
            } else if cell.spec.backend.is_simulated() {
                simulations.push((index, &cell.spec));
            } else {
                runs.push(index);
            }
        }
        Round { settled, simulations, runs }
    }
}

/// Queue of cells left in a round.
struct Waiting {
    cells: VecDeque<usize>,
    /// Number of consecutive cells held by other processes.
    refused: usize,
    /// Cells whose holder was already reported.
    told: HashSet<usize>,
}

impl Waiting {
    /// Puts a cell held by another process at the end of the queue. Sleeps once all remaining cells are held by
    /// others.
    fn put_back(&mut self, cell: usize, who: &str, emit: &mut dyn FnMut(SweepEvent)) {
        if self.told.insert(cell) {
            emit(SweepEvent::Log { cell, line: waits_for(who) });
        }
        self.cells.push_back(cell);
        self.refused += 1;
        if self.refused >= self.cells.len() {
            self.refused = 0;
            std::thread::sleep(POLL);
        }
    }
}

fn waits_for(who: &str) -> String {
    format!("{who} runs this cell just now: waiting for its result")
}
