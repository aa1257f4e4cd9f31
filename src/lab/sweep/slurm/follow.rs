//! Converts the state of Slurm's queue and of the shared store into events of a sweep: runs that begin and end are
//! found in the store, tasks that end in the queue.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::options::SlurmOptions;
use super::plan::Submitted;
use super::queue::Queue;
use super::submit::submit;
use crate::launch::{Cancel, Executor};
use crate::slurm;
use crate::store::{Ended, Store};
use crate::sweep::conclude::{Conclusion, impossible, not_run};
use crate::sweep::{Choice, Experiment, SweepEvent, SweepOutcome};
use base::error::Result;
use run::Feasibility;
use table::{Record, Status};

/// Poll interval of the store.
const STORE: Duration = Duration::from_secs(1);
/// Time for cancelled tasks to store their results: Slurm's `KillWait` plus a margin.
const CANCELLING: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

/// Settings for running cells on Slurm.
#[derive(Clone, Debug)]
pub struct OnSlurm {
    pub options: SlurmOptions,
    /// Path of this program on all nodes.
    pub binary: PathBuf,
    /// True to return without waiting for the tasks.
    pub detach: bool,
    /// Maximum time without progress of any rank.
    pub timeout: Duration,
}

/// Runs an experiment on Slurm: simulated cells here, the others in tasks of job arrays. Tasks of an earlier call
/// that are still queued or running are followed instead of submitted again. Blocks until all tasks have ended;
/// returns `None` right after submitting if detached.
///
/// # Errors
///
/// Returns a failure if Slurm rejects the jobs or the store cannot be read or written. Failed tasks become failed
/// runs instead.
pub fn execute_on_slurm(
    experiment: &Experiment,
    store: &Store,
    executor: &dyn Executor,
    choice: Choice,
    cancel: &Cancel,
    how: &OnSlurm,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Option<SweepOutcome>> {
    store.prepare()?;
    let mut known = Ended::default();
    let before = store.new_runs(&mut known)?;
    let is_old = |(record, _): &&(Record, bool)| record.status != Status::Running;
    let old: HashSet<String> =
        before.iter().filter(is_old).map(|(record, _)| record.run.clone()).collect();

    let keys: Vec<String> = experiment.cells.iter().map(|cell| cell.spec.key()).collect();
    let wanted: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let mut finished = match choice {
        Choice::All => Default::default(),
        Choice::Missing | Choice::Failed => store.finished_of(&wanted)?,
    };
    let failed = match choice {
        Choice::Failed => Some(store.failed_of(&wanted)?),
        Choice::All | Choice::Missing => None,
    };
    let (mut expected, mut found) = (BTreeSet::new(), Vec::new());
    let name = Some(experiment.name.as_str());
    for (cell, planned) in experiment.cells.iter().enumerate() {
        if let Some(record) = impossible(planned, name, store) {
            emit(SweepEvent::CellSettled { cell, round: 0, record: Box::new(record) });
        } else if !planned.spec.backend.is_simulated() {
            for round in 0..experiment.rounds {
                let is_chosen = |failed: &HashSet<_>| failed.contains(&(keys[cell].clone(), round));
                match finished.get(&keys[cell], round) {
                    Some(record) => found.push((cell, round, record)),
                    None if failed.as_ref().is_none_or(is_chosen) => {
                        expected.insert((cell, round));
                    }
                    None => {}
                }
            }
        }
    }
    let chosen_cells: BTreeSet<usize> = expected.iter().map(|(cell, _)| *cell).collect();
    let chosen = |cell: usize| chosen_cells.contains(&cell);
    let mut follower = Follower {
        experiment,
        store,
        choice,
        by_key: HashMap::new(),
        expected,
        ended: BTreeMap::new(),
        unfinished: HashMap::new(),
        lost: 0,
        cells: Conclusion::new(&experiment.cells, experiment.rounds, name, store, &chosen),
        stored: BTreeSet::new(),
    };
    for (cell, key) in keys.iter().enumerate() {
        follower.by_key.entry(key).or_default().push(cell);
    }
    let others: Vec<String> = found
        .iter()
        .filter(|(_, _, record)| record.experiment.as_deref() != name)
        .map(|(_, _, record)| record.run.clone())
        .collect();
    for (cell, round, record) in found {
        emit(SweepEvent::CellSettled { cell, round, record: Box::new(record.clone()) });
        follower.has_ended(cell, round, record, false, emit);
    }
    store.found_by(&others, &experiment.name)?;
    follower.simulate(executor, choice, cancel, emit)?;

    let cells: Vec<usize> = chosen_cells.iter().copied().collect();
    let sweeps = match cells.is_empty() || cancel.is_all() {
        true => Vec::new(),
        false => submit(experiment, &cells, store, choice, cancel, how, &mut |text| {
            emit(SweepEvent::Note(text));
        })?,
    };
    if how.detach && !cancel.is_all() {
        return Ok(None);
    }
    let mut queue = Queue::new(&sweeps, &keys, store);
    follower.follow(&mut queue, &mut known, &old, cancel, emit)?;
    let failed = follower.lost;
    let stored = follower.stored.len();
    let mut outcome =
        SweepOutcome { interrupted: cancel.is_all(), stored, ..follower.cells.finish(emit) };
    outcome.failed = outcome.failed.max(failed);
    let logs = |sweep: &&Submitted| sweep.experiment == experiment.name;
    match outcome.failed {
        0 if !outcome.interrupted => sweeps.iter().filter(logs).for_each(Submitted::remove),
        0 => {}
        _ => emit(SweepEvent::Note(format!(
            "what the tasks wrote stays until the next sweep: {}",
            sweeps.iter().map(|s| s.folder.display().to_string()).collect::<Vec<_>>().join(", ")
        ))),
    }
    Ok(Some(outcome))
}

/// Expected runs and the results so far.
struct Follower<'a> {
    experiment: &'a Experiment,
    store: &'a Store,
    choice: Choice,
    by_key: HashMap<&'a str, Vec<usize>>,
    /// Runs (cell and round) that still need a record.
    expected: BTreeSet<(usize, u32)>,
    /// Records of cells with other rounds outstanding, kept to be concluded in round order.
    ended: BTreeMap<usize, BTreeMap<u32, (Record, bool)>>,
    /// Last seen records of runs in progress.
    unfinished: HashMap<(usize, u32), Record>,
    /// Number of runs whose task ended without leaving a record.
    lost: usize,
    cells: Conclusion<'a>,
    /// Runs stored during this sweep.
    stored: BTreeSet<String>,
}

impl Follower<'_> {
    /// Runs simulated cells in this process, as any sweep does; they take seconds.
    fn simulate(
        &mut self,
        executor: &dyn Executor,
        choice: Choice,
        cancel: &Cancel,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<()> {
        let all = &self.experiment.cells;
        let is_simulated = |cell: &usize| {
            all[*cell].feasibility == Feasibility::Runs && all[*cell].spec.backend.is_simulated()
        };
        let simulated: Vec<usize> = (0..all.len()).filter(is_simulated).collect();
        if simulated.is_empty() {
            return Ok(());
        }
        let cells = simulated.iter().map(|cell| all[*cell].clone()).collect();
        let experiment = Experiment { cells, ..self.experiment.clone() };
        let mut records = Vec::new();
        crate::sweep::execute(&experiment, self.store, executor, choice, cancel, &mut |event| {
            if let SweepEvent::CellSettled { cell, round, record } = &event {
                records.push((simulated[*cell], *round, (**record).clone(), false));
            }
            if let SweepEvent::RunEnded { cell, round, record } = &event {
                records.push((simulated[*cell], *round, (**record).clone(), true));
            }
            if !matches!(event, SweepEvent::CellDone { .. }) {
                emit(event.of_cell(|cell| simulated[cell]));
            }
        })?;
        for (cell, round, record, ran) in records {
            self.has_ended(cell, round, record, ran, emit);
        }
        Ok(())
    }

    /// Adds the record of a run and concludes the cell if no expected run is outstanding.
    fn has_ended(
        &mut self,
        cell: usize,
        round: u32,
        record: Record,
        ran: bool,
        emit: &mut dyn FnMut(SweepEvent),
    ) {
        self.expected.remove(&(cell, round));
        if ran {
            self.stored.insert(record.run.clone());
        }
        self.ended.entry(cell).or_default().insert(round, (record, ran));
        if self.expected.range((cell, 0)..=(cell, u32::MAX)).next().is_some() {
            return;
        }
        let rounds = self.ended.remove(&cell).unwrap_or_default();
        // a simulated cell may get further rounds; its last round concludes it
        for (round, (record, ran)) in rounds {
            match ran {
                true => self.cells.ran(cell, round, record, emit),
                false => self.cells.ended(cell, round, record, emit),
            }
        }
    }

    fn follow(
        &mut self,
        queue: &mut Queue<'_>,
        known: &mut Ended,
        old: &HashSet<String>,
        cancel: &Cancel,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<()> {
        let mut cancelled: Option<Instant> = None;
        loop {
            self.look_at_store(known, old, emit)?;
            if self.expected.is_empty() {
                return Ok(());
            }
            queue.look(emit);
            for at in queue.over() {
                self.conclude(queue, at, cancelled.is_some(), emit)?;
            }
            if queue.is_all_over() {
                return Ok(());
            }
            match cancelled {
                None if cancel.is_all() => {
                    slurm::cancel(&queue.names)?;
                    queue.looked = None;
                    cancelled = Some(Instant::now());
                }
                Some(since) if since.elapsed() > CANCELLING => return Ok(()),
                _ => {}
            }
            let until = Instant::now() + STORE;
            while Instant::now() < until && (cancelled.is_some() || !cancel.is_all()) {
                std::thread::sleep(POLL);
            }
        }
    }

    /// Emits the runs that tasks began and ended.
    fn look_at_store(
        &mut self,
        known: &mut Ended,
        old: &HashSet<String>,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<()> {
        for (record, has_ended) in self.store.new_runs(known)? {
            if old.contains(&record.run) && !has_ended {
                continue;
            }
            let round = record.round;
            let cells = self.by_key.get(record.spec.key().as_str()).cloned().unwrap_or_default();
            for cell in cells
                .into_iter()
                .filter(|cell| self.expected.contains(&(*cell, round)))
                .collect::<Vec<_>>()
            {
                let seen = self.unfinished.get(&(cell, round)).is_some_and(|r| r.run == record.run);
                if !seen {
                    emit(SweepEvent::RunStarted { cell, round, run: record.run.clone() });
                }
                if has_ended {
                    self.unfinished.remove(&(cell, round));
                    emit(SweepEvent::RunEnded { cell, round, record: Box::new(record.clone()) });
                    self.has_ended(cell, round, record.clone(), true, emit);
                } else {
                    self.unfinished.insert((cell, round), record.clone());
                }
            }
        }
        Ok(())
    }

    /// Concludes the cells that a task left without a record, with the reason.
    fn conclude(
        &mut self,
        queue: &Queue<'_>,
        at: usize,
        cancelled: bool,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<()> {
        let followed = &queue.tasks[at];
        let over = followed.over();
        for settled in over.impossible() {
            for cell in self.by_key.get(settled.key.as_str()).cloned().unwrap_or_default() {
                for round in 0..self.experiment.rounds {
                    if self.expected.contains(&(cell, round)) {
                        let record = Record {
                            run: format!("{}-{}", settled.status.as_str(), settled.key),
                            experiment: Some(self.experiment.name.clone()),
                            created: self.store.now(),
                            ..self.without_run(cell, round, settled.status, settled.reason.clone())
                        };
                        emit(SweepEvent::CellSettled { cell, round, record: Box::new(record.clone()) });
                        self.has_ended(cell, round, record, false, emit);
                    }
                }
            }
        }
        // an earlier task may have finished the run after we stopped waiting for it, and this task found it in the
        // store
        let keys: Vec<String> =
            followed.cells.iter().map(|cell| self.experiment.cells[*cell].spec.key()).collect();
        let wanted: HashSet<&str> = keys.iter().map(String::as_str).collect();
        let mut finished = match self.choice {
            Choice::All => Default::default(),
            Choice::Missing | Choice::Failed => self.store.finished_of(&wanted)?,
        };
        for (cell, key) in followed.cells.iter().copied().zip(&keys) {
            for round in 0..self.experiment.rounds {
                if !self.expected.contains(&(cell, round)) {
                    continue;
                }
                if let Some(record) = finished.get(key, round) {
                    emit(SweepEvent::CellSettled { cell, round, record: Box::new(record.clone()) });
                    self.has_ended(cell, round, record, false, emit);
                    continue;
                }
                let begun = self.unfinished.remove(&(cell, round));
                let status = if cancelled { Status::Interrupted } else { over.status() };
                let reason = over.reason(begun.is_some());
                let record = match begun {
                    Some(record) => {
                        let record = Record { status, reason: Some(reason), ..record };
                        self.store.finish(&record)?;
                        record
                    }
                    // cells cancelled before they ran are reported as in any sweep
                    None if cancelled => continue,
                    None => self.without_run(cell, round, status, reason),
                };
                self.lost += usize::from(!cancelled);
                emit(SweepEvent::RunEnded { cell, round, record: Box::new(record.clone()) });
                self.has_ended(cell, round, record, true, emit);
            }
        }
        Ok(())
    }

    fn without_run(&self, cell: usize, round: u32, status: Status, reason: String) -> Record {
        let spec = &self.experiment.cells[cell].spec;
        let experiment = Some(self.experiment.name.clone());
        Record { round, status, experiment, reason: Some(reason), ..not_run(spec, self.store) }
    }
}
