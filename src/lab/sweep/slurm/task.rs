//! Task side: runs the cells of a Slurm task on its node, into the shared store.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::Submitted;
use crate::sweep::{Cell, Choice, Experiment};
use base::atomic;
use base::error::{Error, Result};
use run::{Feasibility, Shared, feasibility};
use table::Status;

/// Cell that cannot run on the node of its task, with the reason. It leaves no record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Impossible {
    pub key: String,
    /// Either `Skipped` or `Oom`; every other status leaves a record.
    pub status: Status,
    pub reason: String,
}

#[derive(Debug)]
pub struct TaskCells {
    /// Experiment with the task's cells, whose feasibility is checked on this machine.
    pub experiment: Experiment,
    pub choice: Choice,
    /// Maximum time without progress of any rank.
    pub timeout: Duration,
}

impl TaskCells {
    /// Reads the cells of a task and writes a file with those that cannot run here. Fails if the submitted file
    /// cannot be read or has no such task.
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
