//! Running a grid: rounds that interleave cells, resume, cancellation, one record a cell in the end.

use std::collections::HashMap;

use super::simulate::{self, Simulation};
use super::{
    Cancel, Cell, Executor, ExecutorEvent, Experiment, RunRequest, SweepEvent, SweepOutcome, Verdict,
};
use crate::error::Result;
use crate::spec::{Backend, Spec};
use crate::store::{Record, Status, Store};

/// Runs an experiment: rounds interleave the cells; finished cells are not run again (unless
/// `again`); simulated cells run in this process and are stored as one batch. Blocks; call it on a thread.
pub fn execute(
    experiment: &Experiment,
    store: &Store,
    executor: &dyn Executor,
    again: bool,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<SweepOutcome> {
    let cells: Vec<&Cell> = experiment.cells.iter().collect();
    let grid = Grid { cells, rounds: experiment.rounds, name: Some(&experiment.name) };
    grid.run(store, executor, again, cancel, emit)
}

/// Runs one cell, `rounds` times, whether it was finished before or not: the `run` verb. Its record is
/// aggregated over the rounds. A cell that cannot run yields its record, with the reason.
pub fn run_one(
    spec: &Spec,
    rounds: u32,
    store: &Store,
    executor: &dyn Executor,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Record> {
    let cell = Cell { spec: spec.clone(), verdict: super::verdict(spec)? };
    let grid = Grid { cells: vec![&cell], rounds: rounds.max(1), name: None };
    let mut outcome = grid.run(store, executor, true, cancel, emit)?;
    Ok(outcome.cells.pop().unwrap_or_else(|| not_run(spec, store)))
}

/// What is to be run.
struct Grid<'a> {
    cells: Vec<&'a Cell>,
    rounds: u32,
    name: Option<&'a str>,
}

impl Grid<'_> {
    fn run(
        &self,
        store: &Store,
        executor: &dyn Executor,
        again: bool,
        cancel: &Cancel,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<SweepOutcome> {
        let finished = if again { HashMap::new() } else { store.finished()? };
        let keys: Vec<String> = self.cells.iter().map(|cell| cell.spec.key()).collect();
        // each cell's records, a round after the other
        let mut records: Vec<Vec<Record>> = vec![Vec::new(); self.cells.len()];
        let mut failed = 0;
        for (index, cell) in self.cells.iter().enumerate() {
            if let Some(record) = impossible(cell, self.name, store) {
                emit(SweepEvent::CellSettled {
                    cell: index,
                    round: 0,
                    record: Box::new(record.clone()),
                });
                records[index].push(record);
            }
        }
        for round in 0..self.rounds {
            let mut simulations = Vec::new();
            let mut runs = Vec::new();
            for (index, cell) in self.cells.iter().enumerate() {
                if cell.verdict != Verdict::Runs {
                    continue;
                }
                if let Some(record) = finished.get(&(keys[index].clone(), round)) {
                    let settled = Box::new(record.clone());
                    emit(SweepEvent::CellSettled { cell: index, round, record: settled });
                    records[index].push(record.clone());
                } else if cell.spec.backend == Backend::Sim {
                    simulations.push(Simulation { cell: index, spec: &cell.spec });
                } else {
                    runs.push(index);
                }
            }
            let mut keep = |index: usize, record: Record, emit: &mut dyn FnMut(SweepEvent)| {
                failed += usize::from(record.status == Status::Failed);
                emit(SweepEvent::RunEnded { cell: index, round, record: Box::new(record.clone()) });
                records[index].push(record);
            };
            simulate::run(&simulations, round, self.name, store, cancel, &mut |event| match event {
                simulate::Event::Started { cell, run } => {
                    emit(SweepEvent::RunStarted { cell, round, run });
                }
                simulate::Event::Ended { cell, record } => keep(cell, *record, emit),
            })?;
            for index in runs {
                if cancel.is_cell(index) {
                    continue;
                }
                let request = RunRequest {
                    spec: &self.cells[index].spec,
                    cell: index,
                    round,
                    experiment: self.name,
                    store,
                    cancel,
                };
                let record = executor.run(&request, &mut |event| {
                    emit(match event {
                        ExecutorEvent::Started(run) => {
                            SweepEvent::RunStarted { cell: index, round, run }
                        }
                        ExecutorEvent::Event(event) => SweepEvent::Run { cell: index, round, event },
                        ExecutorEvent::Log(line) => SweepEvent::Log { cell: index, line },
                    });
                });
                keep(index, record, emit);
            }
            if cancel.is_all() {
                break;
            }
        }
        let cells = self.cells.iter().zip(records);
        Ok(SweepOutcome {
            cells: cells.map(|(cell, records)| self.conclude(cell, records, store)).collect(),
            failed,
            interrupted: cancel.is_all(),
        })
    }

    /// One record of all rounds of a cell.
    fn conclude(&self, cell: &Cell, mut records: Vec<Record>, store: &Store) -> Record {
        // an interrupted run says nothing about a cell that ended in another round
        if records.iter().any(|r| r.status != Status::Interrupted) {
            records.retain(|r| r.status != Status::Interrupted);
        }
        if !records.iter().any(|r| r.status == Status::Ok) {
            return records.pop().unwrap_or_else(|| Record {
                experiment: self.name.map(str::to_owned),
                ..not_run(&cell.spec, store)
            });
        }
        let last = records.last().cloned();
        let ok = |record: &Record| record.status == Status::Ok;
        let aggregated = crate::analysis::aggregate(&records);
        let best = aggregated.iter().find(|r| ok(r)).or(aggregated.first()).cloned();
        best.or(last).unwrap_or_else(|| not_run(&cell.spec, store))
    }
}

/// The record of a cell that cannot run: never stored, its id always the same.
fn impossible(cell: &Cell, experiment: Option<&str>, store: &Store) -> Option<Record> {
    let (status, reason) = match &cell.verdict {
        Verdict::Runs => return None,
        Verdict::Skipped(reason) => (Status::Skipped, reason),
        Verdict::Oom(reason) => (Status::Oom, reason),
    };
    let mut record = Record::new(cell.spec.clone(), status, Some(reason.clone()));
    record.run = format!("{}-{}", status.as_str(), cell.spec.key());
    record.created = store.now();
    record.experiment = experiment.map(str::to_owned);
    Some(record)
}

/// The record of a cell that was not reached.
fn not_run(spec: &Spec, store: &Store) -> Record {
    let reason = "cancelled before it ran";
    let mut record = Record::new(spec.clone(), Status::Interrupted, Some(reason.into()));
    record.run = format!("{}-{}", Status::Interrupted.as_str(), spec.key());
    record.created = store.now();
    record
}
