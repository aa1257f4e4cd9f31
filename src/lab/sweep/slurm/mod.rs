//! Sweeps on a Slurm cluster: cells become tasks of job arrays (`tasks`), which are submitted unless they are queued
//! already (`submit`). All nodes share the store, in which the submitter finds the runs that begin and end; it finds the
//! tasks that end in the queue, and cells that a task left without a record get one with the reason.

mod options;
mod tasks;

pub use options::SlurmOptions;
pub use tasks::TaskCells;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::tasks::{InfeasibleCell, SubmittedSweep, submit};
use crate::launch::Cancel;
use crate::slurm::{self, SlurmTask, TaskState};
use crate::store::{EndedRuns, Store};
use crate::sweep::{Experiment, SweepEvent, SweepOutcome, SweepSelection};
use crate::sweep::{SweepState, not_run, without_run};
use base::error::Result;
use base::regular;
use base::text::{counted, printable};
use run::sim::Simulator;
use table::{Record, Status};

/// Poll interval of the store.
const STORE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval of the queue. Long, because a controller serves many users.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Time for cancelled tasks to store their results: Slurm's `KillWait` plus a margin.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(90);
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after a task's end in which its records may still appear: on local and on network file systems.
const RECORD_DELAY: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(65));
/// Number of polls without a task after which it counts as ended.
const ABSENT_POLLS: u32 = 3;
/// Bytes read from the end of a log.
const LOG_TAIL_BYTES: usize = 4096;

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
    choice: SweepSelection,
    cancel: &Cancel,
    how: &OnSlurm,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<Option<SweepOutcome>> {
    store.prepare()?;
    let mut known = EndedRuns::default();
    let before = store.new_runs(&mut known)?;
    let ended = before.iter().filter(|(record, _)| record.status != Status::Running);
    let old: HashSet<String> = ended.map(|(record, _)| record.run.clone()).collect();

    let simulator = Simulator::default();
    let mut state = SweepState::new(experiment.grid(&simulator), store, choice, cancel, emit)?;
    for round in 0..experiment.rounds {
        state.settle_and_simulate(round)?;
    }
    state.release_simulations();
    let rounds =
        (0..experiment.rounds).flat_map(|round| state.to_execute(round).map(move |cell| (cell, round)));
    let expected: BTreeSet<(usize, u32)> = rounds.collect();
    let mut cells: Vec<usize> = expected.iter().map(|(cell, _)| *cell).collect();
    cells.dedup();
    let sweeps = match cells.is_empty() || cancel.is_all() {
        true => Vec::new(),
        false => submit(experiment, &cells, store, choice, cancel, how, &mut |text| {
            (state.emit)(SweepEvent::Note(text));
        })?,
    };
    if how.detach && !cancel.is_all() {
        state.note_found()?;
        return Ok(None);
    }
    let by_key = state.keys.iter().cloned().enumerate().map(|(cell, key)| (key, cell)).collect();
    let mut queue = Queue::new(&sweeps, &state.keys, store);
    let mut follower = Follower { state, by_key, expected, running: HashMap::new() };
    follower.follow(&mut queue, &mut known, &old)?;
    let outcome = follower.state.finish()?;
    match outcome.failed {
        0 if !outcome.interrupted => {
            sweeps
                .iter()
                .filter(|sweep| sweep.experiment == experiment.name)
                .for_each(SubmittedSweep::remove);
        }
        0 => {}
        _ => emit(SweepEvent::Note(format!(
            "what the tasks wrote stays until the next sweep: {}",
            sweeps.iter().map(|s| s.folder.display().to_string()).collect::<Vec<_>>().join(", ")
        ))),
    }
    Ok(Some(outcome))
}

struct Follower<'a> {
    state: SweepState<'a>,
    /// Cells by [`table::Spec::key`].
    by_key: HashMap<String, usize>,
    /// Runs (cell and round) that still need a record.
    expected: BTreeSet<(usize, u32)>,
    /// Last seen records of runs in progress.
    running: HashMap<(usize, u32), Record>,
}

impl Follower<'_> {
    fn follow(
        &mut self,
        queue: &mut Queue<'_>,
        known: &mut EndedRuns,
        old: &HashSet<String>,
    ) -> Result<()> {
        let cancel = self.state.cancel;
        let mut cancelled: Option<Instant> = None;
        loop {
            self.look_at_store(known, old)?;
            if self.expected.is_empty() {
                return Ok(());
            }
            queue.look(self.state.emit);
            for at in queue.over() {
                self.conclude(&queue.tasks[at], cancelled.is_some())?;
            }
            if queue.tasks.iter().all(|followed| followed.is_concluded) {
                return Ok(());
            }
            match cancelled {
                None if cancel.is_all() => {
                    slurm::cancel(&queue.names)?;
                    queue.looked = None;
                    cancelled = Some(Instant::now());
                }
                Some(since) if since.elapsed() > CANCEL_TIMEOUT => return Ok(()),
                _ => {}
            }
            let until = Instant::now() + STORE_POLL_INTERVAL;
            while Instant::now() < until && (cancelled.is_some() || !cancel.is_all()) {
                std::thread::sleep(CANCEL_POLL_INTERVAL);
            }
        }
    }

    /// Emits the runs that tasks began and ended.
    fn look_at_store(&mut self, known: &mut EndedRuns, old: &HashSet<String>) -> Result<()> {
        for (record, has_ended) in self.state.store.new_runs(known)? {
            let cell = self.by_key.get(&record.spec.key()).copied();
            let run = cell.map(|cell| (cell, record.round)).filter(|run| self.expected.contains(run));
            let Some((cell, round)) = run.filter(|_| has_ended || !old.contains(&record.run)) else {
                continue;
            };
            let seen = self.running.get(&(cell, round)).is_some_and(|seen| seen.run == record.run);
            if !seen {
                self.state.started(cell, round, &record.run);
            }
            if has_ended {
                self.running.remove(&(cell, round));
                self.expected.remove(&(cell, round));
                self.state.ran(cell, round, record);
            } else {
                self.running.insert((cell, round), record);
            }
        }
        Ok(())
    }

    /// Concludes the cells that a task left without a record, with the reason.
    fn conclude(&mut self, task: &Followed<'_>, is_cancelled: bool) -> Result<()> {
        let (store, rounds) = (self.state.store, self.state.grid.rounds);
        for InfeasibleCell { key, status, reason } in task.impossible() {
            let Some(cell) = self.by_key.get(&key).copied() else { continue };
            for round in (0..rounds).filter(|round| self.expected.remove(&(cell, *round))) {
                let spec = &self.state.grid.cells[cell].spec;
                let record = without_run(spec, status, &reason, store);
                let experiment = self.state.grid.name.map(str::to_owned);
                self.state.settled(cell, round, Record { round, experiment, ..record });
            }
        }
        // an earlier task may have finished the run after we stopped waiting for it, and this task found it in the
        // store
        let keys: Vec<String> = task.cells.iter().map(|cell| self.state.keys[*cell].clone()).collect();
        let wanted: HashSet<&str> = keys.iter().map(String::as_str).collect();
        let mut finished = match self.state.choice {
            // clocks of the nodes may differ
            SweepSelection::Again(_) => Default::default(),
            SweepSelection::Missing | SweepSelection::Failed => store.finished_of(&wanted)?,
        };
        for (cell, key) in task.cells.iter().copied().zip(&keys) {
            for round in 0..rounds {
                if !self.expected.contains(&(cell, round)) {
                    continue;
                }
                let stored = finished.get(key, round);
                let running = self.running.remove(&(cell, round));
                // cells cancelled before they ran are reported as in any sweep
                if stored.is_none() && running.is_none() && is_cancelled {
                    continue;
                }
                self.expected.remove(&(cell, round));
                if let Some(record) = stored {
                    self.state.settled(cell, round, record);
                    continue;
                }
                let status = if is_cancelled { Status::Interrupted } else { task.status() };
                let reason = Some(task.reason(running.is_some()));
                let record = match running {
                    Some(record) => {
                        let record = Record { status, reason, ..record };
                        store.finish(&record)?;
                        record
                    }
                    None => {
                        let experiment = self.state.grid.name.map(str::to_owned);
                        let spec = &self.state.grid.cells[cell].spec;
                        Record { round, status, experiment, reason, ..not_run(spec, store) }
                    }
                };
                // whatever stopped the task: the sweep misses this run
                self.state.outcome.failed += usize::from(!is_cancelled && status != Status::Failed);
                self.state.ran(cell, round, record);
            }
        }
        Ok(())
    }
}

/// Task with cells of this sweep.
struct Followed<'a> {
    /// Sweep with which it was submitted.
    sweep: &'a SubmittedSweep,
    array: usize,
    task: usize,
    /// Indices of its cells in the experiment.
    cells: Vec<usize>,
    /// Last state from Slurm; `None` if Slurm never listed it.
    last: Option<SlurmTask>,
    /// Consecutive polls in which Slurm did not list it.
    absent: u32,
    /// Time since which it is over.
    since: Option<Instant>,
    is_concluded: bool,
}

impl Followed<'_> {
    /// Cells that cannot run on the task's node.
    fn impossible(&self) -> Vec<InfeasibleCell> {
        let path = self.sweep.impossible(self.array, self.task);
        regular::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Status for the unfinished cells of the task, from Slurm's state.
    fn status(&self) -> Status {
        match self.last.as_ref().map(|task| task.state) {
            Some(TaskState::Stopped) => Status::Interrupted,
            _ => Status::Failed,
        }
    }

    /// Reason for the missing record.
    fn reason(&self, began: bool) -> String {
        let name = || format!("{}_{}", self.sweep.name(self.array), self.task);
        let job = self.last.as_ref().map_or_else(name, SlurmTask::id);
        let on = self.last.as_ref().map(|task| task.nodes.as_str()).filter(|nodes| !nodes.is_empty());
        let on = on.map_or(String::new(), |nodes| format!(" on {nodes}"));
        let when = if began { "while it ran" } else { "before it ran" };
        let word = self.last.as_ref().filter(|task| task.state.is_over()).map(|task| task.word.as_str());
        let what = match word {
            Some("NODE_FAIL") => format!("its node failed {when} (Slurm job {job}{on}: NODE_FAIL)"),
            Some("TIMEOUT") => format!(
                "its time was up {when} (Slurm job {job}{on}: TIMEOUT); --slurm '--time HH:MM:SS' asks for more"
            ),
            Some("OUT_OF_MEMORY") => format!(
                "Slurm ended it {when} for its memory (job {job}{on}: OUT_OF_MEMORY); --slurm '--mem SIZE' asks for more"
            ),
            Some("CANCELLED") => format!("cancelled {when} (Slurm job {job}{on})"),
            Some("COMPLETED") => format!(
                "Slurm job {job}{on} ended well and left no record here: is the runs directory the same on all nodes?"
            ),
            Some(word) => format!("Slurm job {job}{on} ended {when}: {word}"),
            None => format!("Slurm no longer has data on job {job}{on}, which ended {when}"),
        };
        match last_words(&self.sweep.log(self.array, self.task)) {
            // the last output of a stopped task does not explain its end
            Some(said) if self.status() == Status::Failed && word != Some("NODE_FAIL") => {
                format!("{what}; its log ends: {said}")
            }
            _ => what,
        }
    }
}

fn last_words(log: &Path) -> Option<String> {
    let bytes = regular::read(log).ok()?;
    let tail =
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
    let line = tail.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(printable(line).into_owned())
}

struct Queue<'a> {
    names: Vec<String>,
    tasks: Vec<Followed<'a>>,
    /// Time of the last query; `None` to query at once.
    looked: Option<Instant>,
    /// Last note that was emitted.
    reported: String,
    late: Duration,
}

impl<'a> Queue<'a> {
    fn new(sweeps: &'a [SubmittedSweep], keys: &[String], store: &Store) -> Self {
        let mut tasks = Vec::new();
        for sweep in sweeps {
            for (array, of_array) in sweep.arrays.iter().enumerate() {
                for (task, cells) in of_array.tasks.iter().enumerate() {
                    let has: HashSet<String> =
                        cells.iter().map(|cell| sweep.cells[*cell].key()).collect();
                    let cells: Vec<usize> =
                        (0..keys.len()).filter(|cell| has.contains(&keys[*cell])).collect();
                    if !cells.is_empty() {
                        tasks.push(Followed {
                            sweep,
                            array,
                            task,
                            cells,
                            last: None,
                            absent: 0,
                            since: None,
                            is_concluded: false,
                        });
                    }
                }
            }
        }
        let names = sweeps.iter().flat_map(SubmittedSweep::names).collect();
        let late = if store.is_on_network() { RECORD_DELAY.1 } else { RECORD_DELAY.0 };
        Self { names, tasks, looked: None, reported: String::new(), late }
    }

    /// Queries Slurm if due and emits changes.
    fn look(&mut self, emit: &mut dyn FnMut(SweepEvent)) {
        if self.looked.is_some_and(|looked| looked.elapsed() < QUEUE_POLL_INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        let there = match slurm::queue(&self.names) {
            Ok(there) => there,
            // the controller may be away for a while; the tasks continue
            Err(e) => return self.report(format!("{e}; asking again"), emit),
        };
        for followed in &mut self.tasks {
            let name = followed.sweep.name(followed.array);
            let is_it = |task: &&SlurmTask| task.name == name && task.index as usize == followed.task;
            match there.iter().find(is_it) {
                Some(task) => {
                    followed.absent = 0;
                    followed.last = Some(task.clone());
                }
                None => followed.absent += 1,
            }
            let is_over = followed.absent >= ABSENT_POLLS
                || followed.last.as_ref().is_some_and(|task| task.state.is_over());
            followed.since = if is_over { followed.since.or(Some(Instant::now())) } else { None };
        }
        let reported = self.summary();
        self.report(reported, emit);
    }

    fn report(&mut self, text: String, emit: &mut dyn FnMut(SweepEvent)) {
        if !text.is_empty() && text != self.reported {
            emit(SweepEvent::Note(format!("Slurm: {text}")));
            self.reported = text;
        }
    }

    /// Summary of running, waiting and ended tasks.
    fn summary(&self) -> String {
        let last = || self.tasks.iter().filter_map(|followed| followed.last.as_ref());
        let count = |state: TaskState| last().filter(|task| task.state == state).count();
        let (runs, waits, over) = (
            count(TaskState::UnderWay),
            count(TaskState::Pending),
            last().filter(|task| task.state.is_over()).count(),
        );
        let listed = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
        let nodes =
            last().filter(|task| task.state == TaskState::UnderWay).map(|task| task.nodes.as_str());
        let nodes = listed(nodes.filter(|nodes| !nodes.is_empty()).collect());
        let reasons = last()
            .filter(|task| task.state == TaskState::Pending)
            .filter_map(|task| task.reason.as_deref());
        let reasons = listed(reasons.collect());
        let mut said = Vec::new();
        if runs > 0 {
            let on = if nodes.is_empty() { String::new() } else { format!(" on {nodes}") };
            said.push(format!("{} under way{on}", counted(runs, "task")));
        }
        if waits > 0 {
            let why = if reasons.is_empty() { String::new() } else { format!(" ({reasons})") };
            said.push(format!("{waits} waiting{why}"));
        }
        said.extend((over > 0).then(|| format!("{over} ended")));
        said.join(", ")
    }

    /// Tasks that ended long enough ago for all records to have appeared. Returns each once.
    fn over(&mut self) -> Vec<usize> {
        let late = self.late;
        let is_due = |followed: &Followed<'_>| {
            !followed.is_concluded && followed.since.is_some_and(|since| since.elapsed() >= late)
        };
        let due: Vec<usize> = (0..self.tasks.len()).filter(|at| is_due(&self.tasks[*at])).collect();
        due.iter().for_each(|at| self.tasks[*at].is_concluded = true);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_which_job_where_how_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("ladderscope-x-1");
        std::fs::create_dir(&folder).unwrap();
        let (experiment, nodes) = (Experiment::default(), slurm::NodeLimits { gpus: 8, cpus: 8 });
        let sweep =
            SubmittedSweep::new(&experiment, SweepSelection::Missing, Duration::ZERO, Vec::new(), nodes);
        let sweep = SubmittedSweep { folder, ..sweep };
        let followed = |array, task, last| {
            let (cells, since) = (Vec::new(), None);
            Followed { sweep: &sweep, array, task, cells, last, absent: 0, since, is_concluded: false }
        };
        std::fs::write(sweep.log(0, 3), "starting\nerror: no GPU\n\n").unwrap();
        let said = |state, word: &str, began| {
            let task = SlurmTask {
                name: "x".into(),
                job: 12,
                index: 3,
                state,
                word: word.into(),
                nodes: "gpu7".into(),
                reason: None,
            };
            let over = followed(0, 3, Some(task));
            (over.status(), over.reason(began))
        };
        let (status, why) = said(TaskState::Failed, "NODE_FAIL", true);
        assert_eq!(status, Status::Failed);
        assert_eq!(why, "its node failed while it ran (Slurm job 12_3 on gpu7: NODE_FAIL)");
        let (status, why) = said(TaskState::Stopped, "TIMEOUT", false);
        assert_eq!(status, Status::Interrupted);
        assert!(why.contains("before it ran") && why.contains("--time HH:MM:SS"), "{why}");
        let (_, why) = said(TaskState::Failed, "FAILED", false);
        assert_eq!(
            why,
            "Slurm job 12_3 on gpu7 ended before it ran: FAILED; its log ends: error: no GPU"
        );
        let unknown = followed(1, 0, None);
        let (status, why) = (unknown.status(), unknown.reason(false));
        assert!(status == Status::Failed && why.contains("ladderscope-x-1.1_0"), "{why}");
    }
}
