//! Submitted sweeps in the store: `runs/.slurm/NAME/sweep.json` assigns cells to the tasks of job arrays, next to the
//! batch scripts and the logs of the tasks. Complete before anything is queued, and never changed.
//!
//! Cells to be compared run on one node, in one task, round by round, because results of different machines are not
//! comparable. A task therefore has all cells that differ only in architecture, P2P, link, variables or collective.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::OnSlurm;
use crate::launch::Cancel;
use crate::slurm;
use crate::slurm::{JobArray, NodeLimits};
use crate::store::{Claimed, Store};
use crate::sweep::{Cell, Experiment, SweepSelection};
use base::error::{Error, Result};
use base::text::{counted, shell_command};
use base::{atomic, regular};
use plan::Architecture;
use run::{GridContext, executor, feasibility};
use table::{Link, P2p, Spec, Status};

const SLURM_FOLDER: &str = ".slurm";
const SUBMITTED_FILE: &str = "sweep.json";
const SUBMITTED_SCHEMA: u32 = 1;

/// GPUs per node if Slurm reports none, the usual size of nodes for tensor parallelism.
const DEFAULT_GPUS_PER_NODE: u32 = 8;

/// Resources of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct TaskResources {
    pub nodes: u32,
    /// Processes per node: one with all ranks as threads, or one per rank if there are several nodes.
    pub processes: u32,
    pub gpus: u32,
    pub cpus: u32,
}

impl TaskResources {
    /// Resources for a cell on nodes of this size.
    pub fn new(spec: &Spec, largest: NodeLimits) -> Self {
        // a rank uses one thread for compute and one for communication
        let cpus = |ranks: u32| ranks.saturating_mul(2).clamp(1, largest.cpus.max(1));
        let gpus = executor(spec.backend).map_or(0, |executor| executor.gpus(spec));
        if gpus == 0 {
            return Self { nodes: 1, processes: 1, gpus, cpus: cpus(spec.ranks()) };
        }
        let most = if largest.gpus == 0 { DEFAULT_GPUS_PER_NODE } else { largest.gpus };
        let nodes = (gpus.div_ceil(most)..=gpus).find(|nodes| gpus.is_multiple_of(*nodes));
        let nodes = nodes.unwrap_or(gpus);
        let gpus = gpus / nodes;
        match nodes {
            1 => Self { nodes, processes: 1, gpus, cpus: cpus(gpus) },
            _ => Self { nodes, processes: gpus, gpus, cpus: (largest.cpus / gpus).clamp(1, 2) },
        }
    }

    /// Options of `sbatch`. GPUs are requested as a generic resource per node, which every version supports.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--nodes={}", self.nodes),
            format!("--ntasks={}", self.nodes * self.processes),
            format!("--ntasks-per-node={}", self.processes),
            format!("--cpus-per-task={}", self.cpus),
        ];
        options.extend((self.gpus > 0).then(|| format!("--gres=gpu:{}", self.gpus)));
        options
    }

    /// Description, e.g. `2 nodes with 8 GPUs each`.
    pub fn words(&self) -> String {
        let nodes = counted(self.nodes as usize, "node");
        let each = if self.nodes > 1 { " each" } else { "" };
        match self.gpus {
            0 => format!("{nodes} with {}", counted(self.cpus as usize, "CPU")),
            gpus => format!("{nodes} with {}{each}", counted(gpus as usize, "GPU")),
        }
    }
}

/// Job array: tasks with the same needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TaskArray {
    pub needs: TaskResources,
    /// Cells of each task, as indices into [`SubmittedSweep::cells`].
    pub tasks: Vec<Vec<usize>>,
}

/// Groups cells into job arrays by the needs of their tasks. Cells keep their order.
pub(super) fn arrays(cells: &[Spec], largest: NodeLimits) -> Vec<TaskArray> {
    // key shared by cells that are compared with each other
    let setting = |spec: &Spec| {
        let common = Spec {
            architecture: Architecture::Standard,
            p2p: P2p::On,
            link: Link::Native,
            env: BTreeMap::new(),
            collective: Spec::default().collective,
            ..spec.plain()
        };
        common.key()
    };
    let mut arrays: BTreeMap<TaskResources, Vec<(String, Vec<usize>)>> = BTreeMap::new();
    for (cell, spec) in cells.iter().enumerate() {
        let tasks = arrays.entry(TaskResources::new(spec, largest)).or_default();
        let setting = setting(spec);
        match tasks.iter_mut().find(|(of, _)| *of == setting) {
            Some((_, cells)) => cells.push(cell),
            None => tasks.push((setting, vec![cell])),
        }
    }
    let array = |(needs, tasks): (TaskResources, Vec<(String, Vec<usize>)>)| TaskArray {
        needs,
        tasks: tasks.into_iter().map(|(_, cells)| cells).collect(),
    };
    arrays.into_iter().map(array).collect()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SubmittedSweep {
    pub schema: u32,
    pub experiment: String,
    pub rounds: u32,
    pub choice: SweepSelection,
    /// Maximum time without progress of any rank, in seconds.
    pub timeout_s: u64,
    /// Cells as resolved at submission.
    pub cells: Vec<Spec>,
    pub arrays: Vec<TaskArray>,
    /// Folder of its files; not serialized.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl SubmittedSweep {
    pub fn new(
        experiment: &Experiment,
        choice: SweepSelection,
        timeout: Duration,
        cells: Vec<Spec>,
        largest: NodeLimits,
    ) -> Self {
        Self {
            schema: SUBMITTED_SCHEMA,
            experiment: experiment.name.clone(),
            rounds: experiment.rounds,
            choice,
            timeout_s: timeout.as_secs(),
            arrays: arrays(&cells, largest),
            cells,
            folder: PathBuf::new(),
        }
    }

    pub fn name(&self, array: usize) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{folder}.{array}")
    }

    pub fn names(&self) -> Vec<String> {
        (0..self.arrays.len()).map(|array| self.name(array)).collect()
    }

    pub fn script(&self, array: usize) -> PathBuf {
        self.folder.join(format!("array-{array}.sh"))
    }

    pub fn log(&self, array: usize, task: usize) -> PathBuf {
        self.folder.join(format!("{}-{task}.log", self.name(array)))
    }

    /// File in which a task lists its cells that cannot run on its node.
    pub fn impossible(&self, array: usize, task: usize) -> PathBuf {
        self.folder.join(format!("impossible-{array}-{task}.json"))
    }

    /// Writes the folder with everything that tasks read. `binary` (this program) and `dir` (the runs directory) are
    /// paths valid on all nodes.
    pub fn write(&mut self, store: &Store, binary: &Path, dir: &Path) -> Result<()> {
        let all = store.folder(SLURM_FOLDER)?;
        // characters that are safe in file names and in Slurm's lists of names
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name: String = self.experiment.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        self.folder = all.join(format!("ladderscope-{name}-{:08x}", fastrand::u32(..)));
        regular::make_folder(&self.folder).map_err(Error::io(&self.folder))?;
        for (number, array) in self.arrays.iter().enumerate() {
            let text =
                script(&self.experiment, number, array, binary, dir, &self.folder.join(SUBMITTED_FILE));
            atomic::write(&self.script(number), text.as_bytes())?;
        }
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::failed(format!("the cells of Slurm's tasks as JSON: {e}")))?;
        atomic::write(&self.folder.join(SUBMITTED_FILE), &text)
    }

    pub fn read(file: &Path) -> Result<Self> {
        let bytes = regular::read(file).map_err(Error::io(file))?;
        let wrong = |why: String| Error::failed(format!("{}: {why}", file.display()));
        let read: Self = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        if read.schema > SUBMITTED_SCHEMA {
            return Err(wrong(format!(
                "it was written by a newer version (format {}, this build's is {SUBMITTED_SCHEMA})",
                read.schema
            )));
        }
        let cells = read.cells.len();
        if read.arrays.iter().flat_map(|array| array.tasks.iter().flatten()).any(|cell| *cell >= cells) {
            return Err(wrong("a task has a cell that is not in it".into()));
        }
        Ok(Self { folder: file.parent().unwrap_or(Path::new(".")).to_owned(), ..read })
    }

    /// All submitted sweeps of this store. Skips unreadable ones.
    pub fn all(store: &Store) -> Vec<Self> {
        let all = store.dir().join(SLURM_FOLDER);
        let folders = regular::entries(&all).unwrap_or_default().into_iter();
        folders
            .filter_map(|folder| Self::read(&all.join(folder.name).join(SUBMITTED_FILE)).ok())
            .collect()
    }

    pub fn remove(&self) {
        let _ = atomic::remove_dir(&self.folder);
    }
}

/// Batch script of an array. `exec` passes Slurm's signals to the program; `srun` starts one process per rank if
/// there are several nodes.
fn script(
    experiment: &str,
    number: usize,
    array: &TaskArray,
    binary: &Path,
    dir: &Path,
    file: &Path,
) -> String {
    let number = number.to_string();
    let (binary, dir, file) = (binary.to_string_lossy(), dir.to_string_lossy(), file.to_string_lossy());
    let words = [&*binary, "__task", &*file, &number, "--dir", &*dir];
    let experiment: String = experiment.chars().filter(|c| !c.is_control()).collect();
    let launcher = if array.needs.nodes > 1 { "srun " } else { "" };
    format!(
        "#!/bin/sh\n# {} of the experiment {experiment}; each task runs the cells that {SUBMITTED_FILE} gives it\n\
         exec {launcher}{}\n",
        array.needs.words(),
        shell_command(words)
    )
}

/// Cell that cannot run on the node of its task, with the reason. It leaves no record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct InfeasibleCell {
    pub key: String,
    /// Either `Skipped` or `Oom`; every other status leaves a record.
    pub status: Status,
    pub reason: String,
}

/// Cells of a task, read on its node, to be run into the shared store.
#[derive(Debug)]
pub struct TaskCells {
    /// Experiment with the task's cells, whose feasibility is checked on this machine.
    pub experiment: Experiment,
    pub choice: SweepSelection,
    /// Maximum time without progress of any rank.
    pub timeout: Duration,
}

impl TaskCells {
    /// Reads the cells of a task and writes a file with those that cannot run here. Fails if the submitted file
    /// cannot be read or has no such task.
    pub fn open(file: &Path, array: usize, task: usize) -> Result<Self> {
        let submitted = SubmittedSweep::read(file)?;
        let tasks = submitted.arrays.get(array).map(|array| &array.tasks);
        let cells = tasks.and_then(|tasks| tasks.get(task)).ok_or_else(|| {
            Error::failed(format!("{}: array {array} has no task {task}", file.display()))
        })?;
        let shared = GridContext::default();
        let cells = cells.iter().map(|cell| {
            let spec = submitted.cells[*cell].clone();
            let feasibility = feasibility::assess_with(&spec, &shared)?;
            Ok(Cell { spec, feasibility })
        });
        let cells = cells.collect::<Result<Vec<Cell>>>()?;
        let impossible = cells.iter().filter_map(|cell| {
            let (status, reason) = cell.feasibility.obstacle()?;
            Some(InfeasibleCell { key: cell.spec.key(), status, reason: reason.to_owned() })
        });
        let impossible: Vec<InfeasibleCell> = impossible.collect();
        if !impossible.is_empty() {
            let text = serde_json::to_vec(&impossible)
                .map_err(|e| Error::failed(format!("cells that cannot run, as JSON: {e}")))?;
            atomic::write(&submitted.impossible(array, task), &text)?;
        }
        let experiment = Experiment {
            name: submitted.experiment,
            path: file.to_owned(),
            rounds: submitted.rounds,
            cells,
            ..Experiment::default()
        };
        let timeout = Duration::from_secs(submitted.timeout_s);
        Ok(Self { experiment, choice: submitted.choice, timeout })
    }
}

/// Poll interval while another process submits.
const SUBMIT_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Submits tasks for cells that have none in the queue. Returns the sweeps with tasks for cells of this one and notes
/// what was queued or found. If Slurm rejects a job, cancels those submitted before and fails.
pub(super) fn submit(
    experiment: &Experiment,
    cells: &[usize],
    store: &Store,
    choice: SweepSelection,
    cancel: &Cancel,
    how: &OnSlurm,
    note: &mut dyn FnMut(String),
) -> Result<Vec<SubmittedSweep>> {
    // two processes that submit at once would both find an empty queue
    let _only = loop {
        match store.claim("slurm")? {
            Claimed::Ours(claim) => break claim,
            Claimed::By(_) if cancel.is_all() => return Err(Error::Interrupted),
            Claimed::By(_) => std::thread::sleep(SUBMIT_POLL_INTERVAL),
        }
    };
    let mut followed = Vec::new();
    let mut queued: HashSet<String> = HashSet::new();
    let keys: HashSet<String> = cells.iter().map(|cell| experiment.cells[*cell].spec.key()).collect();
    let earlier = SubmittedSweep::all(store);
    let names: Vec<String> = earlier.iter().flat_map(SubmittedSweep::names).collect();
    let there = slurm::queue(&names)?;
    for sweep in earlier {
        let mut of_ours = HashSet::new();
        let mut is_alive = false;
        for (number, array) in sweep.arrays.iter().enumerate() {
            let name = sweep.name(number);
            for task in there.iter().filter(|task| task.name == name && !task.state.is_over()) {
                is_alive = true;
                let cells = array.tasks.get(task.index as usize).into_iter().flatten();
                let keys = cells.map(|cell| sweep.cells[*cell].key()).filter(|key| keys.contains(key));
                of_ours.extend(keys);
            }
        }
        if !of_ours.is_empty() {
            note(format!(
                "{} still queued or running since an earlier sweep: followed, not submitted again",
                counted(of_ours.len(), "cell")
            ));
            queued.extend(of_ours);
            followed.push(sweep);
        } else if !is_alive && sweep.experiment == experiment.name {
            // its runs are stored and its logs were reported
            sweep.remove();
        }
    }
    let left =
        cells.iter().copied().filter(|cell| !queued.contains(&experiment.cells[*cell].spec.key()));
    let left: Vec<usize> = left.collect();
    if !left.is_empty() && !cancel.is_all() {
        followed.push(queue(experiment, &left, store, choice, how, note)?);
    }
    Ok(followed)
}

fn queue(
    experiment: &Experiment,
    cells: &[usize],
    store: &Store,
    choice: SweepSelection,
    how: &OnSlurm,
    note: &mut dyn FnMut(String),
) -> Result<SubmittedSweep> {
    let largest = slurm::nodes(how.options.partition())?;
    let specs = cells.iter().map(|cell| experiment.cells[*cell].spec.clone()).collect();
    let mut sweep = SubmittedSweep::new(experiment, choice, how.timeout, specs, largest);
    // nodes may have another working directory
    let dir = std::path::absolute(store.dir()).map_err(Error::io(store.dir()))?;
    sweep.write(&Store::open(&dir), &how.binary, &dir)?;
    for (number, array) in sweep.arrays.iter().enumerate() {
        let job = JobArray {
            name: sweep.name(number),
            script: &sweep.script(number),
            logs: &sweep.folder,
            tasks: array.tasks.len(),
            resources: array.needs.options(),
            options: &how.options.words,
        };
        match slurm::submit(&job) {
            Ok(id) => note(format!(
                "Slurm job {id}: {} of {}, {}",
                counted(array.tasks.len(), "task"),
                array.needs.words(),
                counted(array.tasks.iter().map(Vec::len).sum(), "cell"),
            )),
            Err(e) => {
                // submit all arrays or none
                let _ = slurm::cancel(&sweep.names());
                sweep.remove();
                return Err(e);
            }
        }
    }
    Ok(sweep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Backend;

    const NODES: NodeLimits = NodeLimits { gpus: 8, cpus: 96 };

    fn spec(backend: Backend, tp: u32) -> Spec {
        Spec { backend, tp, ..Spec::default() }
    }

    fn needs(tp: u32, nodes: NodeLimits) -> TaskResources {
        TaskResources::new(&spec(Backend::Cuda, tp), nodes)
    }

    #[test]
    fn a_rank_on_gpus_has_one_of_its_own_on_as_few_nodes_as_hold_them() {
        assert_eq!(needs(8, NODES), TaskResources { nodes: 1, processes: 1, gpus: 8, cpus: 16 });
        assert_eq!(needs(16, NODES), TaskResources { nodes: 2, processes: 8, gpus: 8, cpus: 2 });
        // 12 ranks on nodes of 8: as many on each
        assert_eq!(needs(12, NODES), TaskResources { nodes: 2, processes: 6, gpus: 6, cpus: 2 });
        assert_eq!(needs(7, NodeLimits { gpus: 4, cpus: 64 }).nodes, 7, "a prime number of ranks");
        assert_eq!(
            needs(16, NodeLimits { gpus: 0, cpus: 4 }),
            TaskResources { nodes: 2, processes: 8, gpus: 8, cpus: 1 }
        );
        let shard =
            Spec { link: Link::Emulated { alpha_us: 5.0, gb_s: 300.0 }, ..spec(Backend::Cuda, 8) };
        assert_eq!(TaskResources::new(&shard, NODES).gpus, 1, "one rank's shard");
        assert_eq!(
            needs(16, NODES).options(),
            ["--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--cpus-per-task=2", "--gres=gpu:8"]
        );
    }

    #[test]
    fn a_cell_on_cpus_has_two_for_a_rank_as_far_as_a_node_has_them() {
        let of = |tp, cpus| TaskResources::new(&spec(Backend::Cpu, tp), NodeLimits { gpus: 8, cpus });
        assert_eq!(of(4, 96), TaskResources { nodes: 1, processes: 1, gpus: 0, cpus: 8 });
        assert_eq!(of(4, 6).cpus, 6);
        assert!(!of(4, 96).options().iter().any(|option| option.contains("gres")));
    }

    #[test]
    fn what_is_compared_is_in_one_task() {
        let mut specs = Vec::new();
        for tp in [2, 4, 16] {
            for batch in [1, 4] {
                for architecture in [Architecture::Standard, Architecture::UpperBound] {
                    for p2p in [P2p::On, P2p::Off] {
                        let architecture = architecture.clone();
                        specs.push(Spec { batch, architecture, p2p, ..spec(Backend::Cuda, tp) });
                    }
                }
            }
        }
        let arrays = arrays(&specs, NODES);
        let shapes: Vec<(u32, usize)> = arrays.iter().map(|a| (a.needs.nodes, a.tasks.len())).collect();
        assert_eq!(shapes, [(1, 2), (1, 2), (2, 2)], "an array for each number of GPUs, a task a batch");
        let mut all: Vec<usize> = arrays.iter().flat_map(|array| array.tasks.concat()).collect();
        assert_eq!(arrays[0].tasks[0], [0, 1, 2, 3]);
        all.sort_unstable();
        assert_eq!(all, (0..specs.len()).collect::<Vec<_>>(), "each cell once");
    }

    fn submitted(nodes: u32) -> SubmittedSweep {
        let needs = TaskResources { nodes, processes: 8, gpus: 8, cpus: 2 };
        let cells = vec![Spec::default(), Spec { tp: 2, ..Spec::default() }];
        let experiment = Experiment { name: "my, sweep".into(), rounds: 1, ..Experiment::default() };
        let arrays = vec![TaskArray { needs, tasks: vec![vec![1], vec![0]] }];
        SubmittedSweep {
            arrays,
            ..SubmittedSweep::new(
                &experiment,
                SweepSelection::Missing,
                run::PROGRESS_TIMEOUT,
                cells,
                NODES,
            )
        }
    }

    #[test]
    fn what_was_submitted_is_read_as_it_was_written_and_names_are_plain() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let mut written = submitted(2);
        written.write(&store, Path::new("/opt/the program"), dir.path()).unwrap();
        let read = &SubmittedSweep::all(&store)[0];
        assert_eq!((&read.cells, &read.folder), (&written.cells, &written.folder));
        assert_eq!(read.arrays[0].tasks, written.arrays[0].tasks);
        assert!(read.name(0).starts_with("ladderscope-my__sweep-") && read.name(0).ends_with(".0"));
        let script = std::fs::read_to_string(read.script(0)).unwrap();
        assert!(
            script.starts_with("#!/bin/sh\n# 2 nodes with 8 GPUs each of the experiment my, sweep;")
        );
        assert!(script.contains("\nexec srun '/opt/the program' __task "), "{script}");
        read.remove();
        assert!(SubmittedSweep::all(&store).is_empty());
    }

    #[test]
    fn a_file_of_a_newer_version_or_with_a_cell_too_many_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |change: fn(&mut SubmittedSweep)| {
            let mut wrong = submitted(1);
            change(&mut wrong);
            wrong.write(&Store::open(dir.path()), Path::new("/x"), dir.path()).unwrap();
            SubmittedSweep::read(&wrong.folder.join(SUBMITTED_FILE)).unwrap_err().to_string()
        };
        assert!(refused(|s| s.schema = 2).contains("newer version (format 2"));
        assert!(refused(|s| s.arrays[0].tasks[0][0] = 2).contains("a cell that is not in it"));
    }
}
