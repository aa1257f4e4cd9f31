//! The tasks of a sweep in Slurm's queue: what became of each, and what is told of them all.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::lost::Over;
use super::plan::Submitted;
use crate::slurm::{self, State, Task};
use crate::store::Store;
use crate::sweep::SweepEvent;
use base::text::counted;

/// How often the queue is looked at: a controller has many users.
const QUEUE: Duration = Duration::from_secs(5);
/// For so long after its end a task's records may still come; over a network's file system later.
const LATE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(65));
/// A task that Slurm does not name so many times has ended long ago.
const ABSENT: u32 = 3;

/// A task with cells of this sweep.
pub(super) struct Followed<'a> {
    /// What was submitted together with it.
    pub sweep: &'a Submitted,
    /// The number of its array.
    pub array: usize,
    /// Its number within the array.
    pub task: usize,
    /// Its cells, as the experiment counts them.
    pub cells: Vec<usize>,
    /// What Slurm said of it last.
    last: Option<Task>,
    /// How many times in a row Slurm did not name it.
    absent: u32,
    /// Since when it is over.
    since: Option<Instant>,
    concluded: bool,
}

impl Followed<'_> {
    pub fn over(&self) -> Over<'_> {
        Over { sweep: self.sweep, array: self.array, task: self.task, last: self.last.as_ref() }
    }
}

/// The tasks of this sweep in Slurm's queue.
pub(super) struct Queue<'a> {
    /// The names of its arrays.
    pub names: Vec<String>,
    /// All tasks, each with what is known of it.
    pub tasks: Vec<Followed<'a>>,
    /// When Slurm was asked last; `None`: it is to be asked now.
    pub looked: Option<Instant>,
    /// What was told of it last.
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

    /// Asks Slurm, where that is due, and tells what changed.
    pub fn look(&mut self, emit: &mut dyn FnMut(SweepEvent)) {
        if self.looked.is_some_and(|looked| looked.elapsed() < QUEUE) {
            return;
        }
        self.looked = Some(Instant::now());
        let there = match slurm::queue(&self.names) {
            Ok(there) => there,
            // a controller that is away comes back; the tasks go on meanwhile
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

    /// What runs where, and what waits for what.
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

    /// Tasks that have ended so long ago that nothing more comes of them, each once.
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
