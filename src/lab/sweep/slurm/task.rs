//! The other side: a task of Slurm runs its cells on the node that it was given, into the store that all share.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::Submitted;
use crate::sweep::{Cell, Choice, Experiment};
use base::atomic;
use base::error::{Error, Result};
use run::{Feasibility, Shared, feasibility};
use table::Status;

/// A cell that cannot run on the node of its task, and why: such cells leave no record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Impossible {
    /// The key of its spec.
    pub key: String,
    /// `Skipped` or `Oom`; nothing else leaves no record.
    pub status: Status,
    pub reason: String,
}

/// What a task is to run.
#[derive(Debug)]
pub struct TaskCells {
    /// The cells of the task as an experiment of their own, judged on this machine.
    pub experiment: Experiment,
    /// Which of their runs are executed.
    pub choice: Choice,
    /// How long a rank may show no progress.
    pub timeout: Duration,
}

impl TaskCells {
    /// Reads what a task has to do, and says which of its cells cannot run here.
    ///
    /// # Errors
    ///
    /// A failure where the file that was submitted cannot be read, or has no such task.
    pub fn open(file: &Path, array: usize, task: usize) -> Result<Self> {
        let submitted = Submitted::read(file)?;
        let tasks = submitted.arrays.get(array).map(|array| &array.tasks);
        let cells = tasks.and_then(|tasks| tasks.get(task)).ok_or_else(|| {
            Error::failed(format!("{}: array {array} has no task {task}", file.display()))
        })?;
        let shared = Shared::default();
        let cells = cells.iter().map(|cell| {
            let spec = submitted.cells[*cell].clone();
            let feasibility = feasibility::of_with(&spec, &shared)?;
            Ok(Cell { spec, feasibility })
        });
        let cells = cells.collect::<Result<Vec<Cell>>>()?;
        let impossible: Vec<Impossible> = cells.iter().filter_map(impossible).collect();
        if !impossible.is_empty() {
            let text = serde_json::to_vec(&impossible)
                .map_err(|e| Error::failed(format!("cells that cannot run, as JSON: {e}")))?;
            atomic::write(&submitted.impossible(array, task), &text)?;
        }
        let experiment = Experiment {
            name: submitted.experiment.clone(),
            path: file.to_owned(),
            question: None,
            text: String::new(),
            model: None,
            rounds: submitted.rounds,
            evaluate: None,
            adapt: None,
            axes: Vec::new(),
            combinations: cells.len(),
            cells,
        };
        Ok(Self {
            experiment,
            choice: submitted.choice,
            timeout: Duration::from_secs(submitted.timeout_s),
        })
    }
}

fn impossible(cell: &Cell) -> Option<Impossible> {
    let (status, reason) = match &cell.feasibility {
        Feasibility::Runs => return None,
        Feasibility::Skipped(reason) => (Status::Skipped, reason),
        Feasibility::Oom(reason) => (Status::Oom, reason),
    };
    Some(Impossible { key: cell.spec.key(), status, reason: reason.clone() })
}
