//! What was submitted, in the store: `runs/.slurm/NAME/sweep.json` says which task has which cells, and beside it
//! lie the batch scripts and what the tasks wrote. It is whole before anything is queued, and does not change.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::needs::Needs;
use crate::store::Store;
use crate::sweep::Choice;
use base::error::{Error, Result};
use base::text::shell_command;
use base::{atomic, regular};
use table::Spec;

/// The folder of all submitted sweeps in a runs directory.
const FOLDER: &str = ".slurm";
/// The file that says which task has which cells.
const FILE: &str = "sweep.json";
/// The format of that file.
const SCHEMA: u32 = 1;

/// Cells that were submitted together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Submitted {
    pub schema: u32,
    /// The name of the experiment.
    pub experiment: String,
    pub rounds: u32,
    /// Which runs of its cells a task executes.
    pub choice: Choice,
    /// How long a rank may show no progress, in seconds.
    pub timeout_s: u64,
    /// The cells, as they were resolved when they were submitted.
    pub cells: Vec<Spec>,
    pub arrays: Vec<Array>,
    /// Where all of it lies; not written.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A job array: tasks that need the same of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Array {
    pub needs: Needs,
    /// Of each task the cells, as indices into those of the whole.
    pub tasks: Vec<Vec<usize>>,
}

impl Submitted {
    /// The name under which Slurm has an array.
    pub fn name(&self, array: usize) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{folder}.{array}")
    }

    /// The names of all arrays.
    pub fn names(&self) -> Vec<String> {
        (0..self.arrays.len()).map(|array| self.name(array)).collect()
    }

    /// The batch script of an array.
    pub fn script(&self, array: usize) -> PathBuf {
        self.folder.join(format!("array-{array}.sh"))
    }

    /// Where a task writes.
    pub fn log(&self, array: usize, task: usize) -> PathBuf {
        self.folder.join(format!("{}-{task}.log", self.name(array)))
    }

    /// Where a task says which of its cells cannot run there.
    pub fn impossible(&self, array: usize, task: usize) -> PathBuf {
        self.folder.join(format!("impossible-{array}-{task}.json"))
    }

    /// Makes the folder with all that tasks read. `binary` is this program's file and `dir` the runs directory, as they
    /// are named on all nodes.
    pub fn write(&mut self, store: &Store, binary: &Path, dir: &Path) -> Result<()> {
        let all = store.dir().join(FOLDER);
        regular::folder(&all).map_err(Error::io(&all))?;
        let name: String = self.experiment.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        self.folder = all.join(format!("ladderscope-{name}-{:08x}", fastrand::u32(..)));
        regular::make_folder(&self.folder).map_err(Error::io(&self.folder))?;
        for (number, array) in self.arrays.iter().enumerate() {
            let text = script(&self.experiment, number, array, binary, dir, &self.folder.join(FILE));
            atomic::write(&self.script(number), text.as_bytes())?;
        }
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::failed(format!("the cells of Slurm's tasks as JSON: {e}")))?;
        atomic::write(&self.folder.join(FILE), &text)
    }

    /// Reads the file of a sweep.
    pub fn read(file: &Path) -> Result<Self> {
        let bytes = regular::read(file).map_err(Error::io(file))?;
        let wrong = |why: String| Error::failed(format!("{}: {why}", file.display()));
        let read: Self = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        if read.schema > SCHEMA {
            return Err(wrong(format!(
                "it was written by a newer version (format {}, this build's is {SCHEMA})",
                read.schema
            )));
        }
        let cells = read.cells.len();
        if read.arrays.iter().flat_map(|array| array.tasks.iter().flatten()).any(|cell| *cell >= cells) {
            return Err(wrong("a task has a cell that is not in it".into()));
        }
        Ok(Self { folder: file.parent().unwrap_or(Path::new(".")).to_owned(), ..read })
    }

    /// All sweeps that were submitted from this store and whose folders are there; what cannot be read is left out.
    pub fn all(store: &Store) -> Vec<Self> {
        let all = store.dir().join(FOLDER);
        let folders = regular::entries(&all).unwrap_or_default().into_iter();
        folders.filter_map(|folder| Self::read(&all.join(folder.name).join(FILE)).ok()).collect()
    }

    /// Takes the folder away, of which nobody needs anything any more.
    pub fn remove(&self) {
        let _ = atomic::remove_dir(&self.folder);
    }
}

impl Default for Submitted {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            experiment: String::new(),
            rounds: 1,
            choice: Choice::Missing,
            timeout_s: run::TIMEOUT.as_secs(),
            cells: Vec::new(),
            arrays: Vec::new(),
            folder: PathBuf::new(),
        }
    }
}

/// Characters that neither a file name nor Slurm's lists of names take for something else.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// The batch script of an array. `exec` hands Slurm's signals to the program itself; over several nodes
/// `srun` starts a process a rank.
fn script(
    experiment: &str,
    number: usize,
    array: &Array,
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
        "#!/bin/sh\n# {} of the experiment {experiment}; each task runs the cells that {FILE} gives it\n\
         exec {launcher}{}\n",
        array.needs.words(),
        shell_command(words)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submitted(nodes: u32) -> Submitted {
        let needs = Needs { nodes, processes: 8, gpus: 8, cpus: 2 };
        Submitted {
            experiment: "my, sweep".into(),
            cells: vec![Spec::default(), Spec { tp: 2, ..Spec::default() }],
            arrays: vec![Array { needs, tasks: vec![vec![1], vec![0]] }],
            ..Submitted::default()
        }
    }

    #[test]
    fn what_was_submitted_is_read_as_it_was_written_and_names_are_plain() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let mut written = submitted(2);
        written.write(&store, Path::new("/opt/the program"), dir.path()).unwrap();
        let read = &Submitted::all(&store)[0];
        assert_eq!((&read.cells, &read.folder), (&written.cells, &written.folder));
        assert_eq!(read.arrays[0].tasks, written.arrays[0].tasks);
        assert!(read.name(0).starts_with("ladderscope-my__sweep-") && read.name(0).ends_with(".0"));
        let script = std::fs::read_to_string(read.script(0)).unwrap();
        assert!(
            script.starts_with("#!/bin/sh\n# 2 nodes with 8 GPUs each of the experiment my, sweep;")
        );
        assert!(script.contains("\nexec srun '/opt/the program' __task "), "{script}");
        read.remove();
        assert!(Submitted::all(&store).is_empty());
    }

    #[test]
    fn a_file_of_a_newer_version_or_with_a_cell_too_many_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |change: fn(&mut Submitted)| {
            let mut wrong = submitted(1);
            change(&mut wrong);
            wrong.write(&Store::open(dir.path()), Path::new("/x"), dir.path()).unwrap();
            Submitted::read(&wrong.folder.join(FILE)).unwrap_err().to_string()
        };
        assert!(refused(|s| s.schema = 2).contains("newer version (format 2"));
        assert!(refused(|s| s.arrays[0].tasks[0][0] = 2).contains("a cell that is not in it"));
    }
}
