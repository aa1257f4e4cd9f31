//! State of a sweep's tasks in Slurm's queue, individually and summarized.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::lost::Over;
use super::plan::Submitted;
use crate::slurm::{self, State, Task};
use crate::store::Store;
use crate::sweep::SweepEvent;
use base::text::counted;

/// Poll interval of the queue. Long, because a controller serves many users.
const QUEUE: Duration = Duration::from_secs(5);
/// Time after a task's end in which its records may still appear: on local and on network file systems.
const LATE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(65));
/// Number of polls without a task after which it counts as ended.
const ABSENT: u32 = 3;

/// Task with cells of this sweep.
pub(super) struct Followed<'a> {
    /// Sweep with which it was submitted.
    pub sweep: &'a Submitted,
    pub array: usize,
    pub task: usize,
    /// Indices of its cells in the experiment.
    pub cells: Vec<usize>,
    last: Option<Task>,
    /// Consecutive polls in which Slurm did not list it.
    absent: u32,
    /// Time since which it is over.
    since: Option<Instant>,
    concluded: bool,
}

impl Followed<'_> {
    pub fn over(&self) -> Over<'_> {
        Over { sweep: self.sweep, array: self.array, task: self.task, last: self.last.as_ref() }
    }
}

pub(super) struct Queue<'a> {
    pub names: Vec<String>,
    pub tasks: Vec<Followed<'a>>,
    /// Time of the last query; `None` to query at once.
    pub looked: Option<Instant>,
    /// Last note that was emitted.
    told: String,
    late: Duration,
}

impl<'a> Queue<'a> {
    pub fn new(sweeps: &'a [Submitted], keys: &[String], store: &Store) -> Self {
        let mut tasks = Vec::new();
        for sweep in sweeps {
            for (array, of_array) in sweep.arrays.iter().enumerate() {
                for (task, cells) in of_array.tasks.iter().enumerate() {
                    let has: HashSet<String> =
                        cells.iter().map(|cell| sweep.cells[*cell].key()).collect();
                    let cells: Vec<usize> =
                        (0..keys.len()).filter(|cell| has.contains(&keys[*cell])).collect();
                    if !cells.is_empty() {
                        let (last, since) = (None, None);
                        tasks.push(Followed {
                            sweep,
                            array,
                            task,
                            cells,
                            last,
                            absent: 0,
                            since,
                            concluded: false,
                        });
                    }
                }
            }
        }
        let names = sweeps.iter().flat_map(Submitted::names).collect();
        let late = if store.is_of_a_network() { LATE.1 } else { LATE.0 };
        Self { names, tasks, looked: None, told: String::new(), late }
    }

    /// Queries Slurm if due and emits changes.
    pub fn look(&mut self, emit: &mut dyn FnMut(SweepEvent)) {
        if self.looked.is_some_and(|looked| looked.elapsed() < QUEUE) {
            return;
        }
        self.looked = Some(Instant::now());
        let there = match slurm::queue(&self.names) {
            Ok(there) => there,
            // the controller may be away for a while; the tasks continue
            Err(e) => return self.tell(format!("{e}; asking again"), emit),
        };
        for followed in &mut self.tasks {
            let name = followed.sweep.name(followed.array);
            let is_it = |task: &&Task| task.name == name && task.index as usize == followed.task;
            match there.iter().find(is_it) {
                Some(task) => {
                    followed.absent = 0;
                    followed.last = Some(task.clone());
                }
                None => followed.absent += 1,
            }
            let is_over = followed.absent >= ABSENT
                || followed.last.as_ref().is_some_and(|task| task.state.is_over());
            followed.since = if is_over { followed.since.or(Some(Instant::now())) } else { None };
        }
        let told = self.words();
        self.tell(told, emit);
    }

    fn tell(&mut self, text: String, emit: &mut dyn FnMut(SweepEvent)) {
        if !text.is_empty() && text != self.told {
            emit(SweepEvent::Note(format!("Slurm: {text}")));
            self.told = text;
        }
    }

    /// Summary of running, waiting and ended tasks.
    fn words(&self) -> String {
        let last = || self.tasks.iter().filter_map(|followed| followed.last.as_ref());
        let count = |state: State| last().filter(|task| task.state == state).count();
        let (runs, waits, over) = (
            count(State::UnderWay),
            count(State::Pending),
            last().filter(|task| task.state.is_over()).count(),
        );
        let listed = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
        let nodes = last().filter(|task| task.state == State::UnderWay).map(|task| task.nodes.as_str());
        let nodes = listed(nodes.filter(|nodes| !nodes.is_empty()).collect());
        let reasons =
            last().filter(|task| task.state == State::Pending).filter_map(|task| task.reason.as_deref());
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
    pub fn over(&mut self) -> Vec<usize> {
        let late = self.late;
        let is_due = |followed: &Followed<'_>| {
            !followed.concluded && followed.since.is_some_and(|since| since.elapsed() >= late)
        };
        let due: Vec<usize> = (0..self.tasks.len()).filter(|at| is_due(&self.tasks[*at])).collect();
        due.iter().for_each(|at| self.tasks[*at].concluded = true);
        due
    }

    pub fn is_all_over(&self) -> bool {
        self.tasks.iter().all(|followed| followed.concluded)
    }
}
