//! Runs a grid: rounds that interleave cells, resume, cancellation, and one record per cell. Waits for cells that
//! another sweep is running in the same directory and uses its results.

use std::collections::{HashSet, VecDeque};

use super::state::{Grid, POLL, SweepState, not_run, waits_for};
use super::{Cell, Choice, Experiment, SweepEvent, SweepOutcome};
use crate::launch::{Cancel, Executor, ExecutorEvent, RunRequest};
use crate::store::{Claimed, Ended, Store};
use base::error::{Error, Result};
use run::sim::Simulator;
use run::{Shared, feasibility};
use table::{Record, Spec};

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
    let simulator = Simulator::default();
    run_grid(SweepState::new(experiment.grid(&simulator), store, choice, cancel, emit)?, executor)
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
    let mut conclude = |event| match event {
        SweepEvent::CellDone { record, .. } => concluded = Some(*record),
        event => emit(event),
    };
    run_grid(SweepState::new(grid, store, Choice::All, cancel, &mut conclude)?, executor)?;
    Ok(concluded.unwrap_or_else(|| not_run(spec, store)))
}

fn run_grid(mut state: SweepState<'_>, executor: &dyn Executor) -> Result<SweepOutcome> {
    let (store, cancel) = (state.store, state.cancel);
    let mut elsewhere = Ended::default();
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
    elsewhere: &mut Ended,
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
                std::thread::sleep(POLL);
            }
            continue;
        }
        refused = 0;
        if state.choice != Choice::All
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
