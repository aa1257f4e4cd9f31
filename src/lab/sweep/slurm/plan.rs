//! Submitted sweeps in the store: `runs/.slurm/NAME/sweep.json` assigns cells to tasks, next to the batch scripts and
//! the logs of the tasks. Complete before anything is queued, and never changed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::needs::Needs;
use crate::store::Store;
use crate::sweep::Choice;
use base::error::{Error, Result};
use base::text::shell_command;
use base::{atomic, regular};
use table::Spec;

const FOLDER: &str = ".slurm";
const FILE: &str = "sweep.json";
const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Submitted {
    pub schema: u32,
    pub experiment: String,
    pub rounds: u32,
    pub choice: Choice,
    /// Maximum time without progress of any rank, in seconds.
    pub timeout_s: u64,
    /// Cells as resolved at submission.
    pub cells: Vec<Spec>,
    pub arrays: Vec<Array>,
    /// Folder of its files; not serialized.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Job array: tasks with the same needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Array {
    pub needs: Needs,
    /// Cells of each task, as indices into [`Submitted::cells`].
    pub tasks: Vec<Vec<usize>>,
}

impl Submitted {
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

    /// All submitted sweeps of this store. Skips unreadable ones.
    pub fn all(store: &Store) -> Vec<Self> {
        let all = store.dir().join(FOLDER);
        let folders = regular::entries(&all).unwrap_or_default().into_iter();
        folders.filter_map(|folder| Self::read(&all.join(folder.name).join(FILE)).ok()).collect()
    }

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

/// True for characters that are safe in file names and in Slurm's lists of names.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Batch script of an array. `exec` passes Slurm's signals to the program; `srun` starts one process per rank if
/// there are several nodes.
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
