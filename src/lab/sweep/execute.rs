//! Running a grid: rounds that interleave cells, resume, cancellation, one record a cell in the end. What another
//! sweep runs just now in the same directory is waited for and taken from there.
//!
//! A cell's record is told as soon as it and all cells before it have ended, and is not kept: memory
//! grows with the grid, not with what came out of it.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use super::conclude::{Conclusion, impossible};
use super::simulate::{self, Simulation};
use super::{Cell, Choice, Experiment, SweepEvent, SweepOutcome};
use crate::launch::{Cancel, Executor, ExecutorEvent, RunRequest};
use crate::store::{Claimed, Ended, Finished, Store};
use base::error::{Error, Result};
use base::hash::short_key;
use run::{Feasibility, feasibility};
use table::{Record, Spec, Status};

/// How often a cell that another process runs is asked for again.
const POLL: Duration = Duration::from_millis(200);

/// Runs an experiment: rounds interleave the cells; `choice` says which runs; simulated cells run in this process and are stored as one batch. Blocks; call it on a thread.
///
/// # Errors
///
/// A failure where the store cannot be read or written; runs that fail are no error,
/// but stored as failed.
pub fn execute(
    experiment: &Experiment,
    store: &Store,
    executor: &dyn Executor,
    choice: Choice,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<SweepOutcome> {
    let grid =
        Grid { cells: &experiment.cells, rounds: experiment.rounds, name: Some(&experiment.name) };
    grid.run(store, executor, choice, cancel, emit)
}

/// Runs one cell, `rounds` times, whether it was finished before or not: the `run` verb. Its record is
/// aggregated over the rounds. A cell that cannot run yields its record, with the reason.
///
/// # Errors
///
/// A failure where the store cannot be read or written; a run that fails is no error, but a
/// record that says why.
pub fn run_one(
    spec: &Spec,
    rounds: u32,
    store: &Store,
    executor: &dyn Executor,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Record> {
    let cell = Cell { spec: spec.clone(), feasibility: feasibility::of(spec)? };
    let grid = Grid { cells: std::slice::from_ref(&cell), rounds: rounds.max(1), name: None };
    let mut concluded = None;
    grid.run(store, executor, Choice::All, cancel, &mut |event| match event {
        SweepEvent::CellDone { record, .. } => concluded = Some(*record),
        event => emit(event),
    })?;
    Ok(concluded.unwrap_or_else(|| super::conclude::not_run(spec, store)))
}

/// What is to be run.
struct Grid<'a> {
    cells: &'a [Cell],
    rounds: u32,
    name: Option<&'a str>,
}

/// What one round has to do.
struct Round<'a> {
    /// Cells that were finished before.
    settled: Vec<usize>,
    simulations: Vec<Simulation<'a>>,
    /// Cells that are executed.
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
            simulate::run(&round.simulations, number, self.name, store, cancel, &mut |cell, record| {
                settle(cell, &mut cells, emit);
                cancel.hold(&mut |paused| {
                    emit(if paused { SweepEvent::Paused } else { SweepEvent::Resumed })
                });
                stored.extend(record.run.split(':').next().map(str::to_owned));
                emit(SweepEvent::RunStarted { cell, round: number, run: record.run.clone() });
                emit(SweepEvent::RunEnded { cell, round: number, record: record.clone().into() });
                cells.ran(cell, number, record, emit);
            })?;
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

    /// Takes note of a run of another experiment that one of these cells was found stored as.
    fn note_found(&self, record: &Record, found: &mut Vec<String>) {
        if record.experiment.as_deref() != self.name {
            found.push(record.run.clone());
        }
    }

    /// Claims a cell, so that no other sweep runs it meanwhile. What was asked for by itself (`run`) needs no claim:
    /// it is to be run whoever else does.
    fn claim(&self, key: &str, round: u32, store: &Store) -> Result<Option<Claimed>> {
        self.name.map(|_| store.claim(&format!("{key}-{round}"))).transpose()
    }

    /// Waits until nobody else simulates the same cells: they take seconds, and are found stored then.
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

    /// Who does what in a round.
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
                simulations.push(Simulation { cell: index, spec: &cell.spec });
            } else {
                runs.push(index);
            }
        }
        Round { settled, simulations, runs }
    }
}

/// Cells of a round that are still to be run.
struct Waiting {
    cells: VecDeque<usize>,
    /// How many in a row others have.
    refused: usize,
    /// Cells of which it was told who has them.
    told: HashSet<usize>,
}

impl Waiting {
    /// Another process has this cell: the others come first, and when all are had it is time to wait.
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
