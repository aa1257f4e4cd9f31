//! Submits the cells of a sweep. A restarted sweep follows its tasks that are still queued or running and submits
//! only cells without a task.

use std::collections::HashSet;
use std::time::Duration;

use super::follow::OnSlurm;
use super::tasks::Submitted;
use crate::launch::Cancel;
use crate::slurm::{self, Job};
use crate::store::{Claimed, Store};
use crate::sweep::{Choice, Experiment};
use base::error::{Error, Result};
use base::text::counted;

/// Poll interval while another process submits.
const POLL: Duration = Duration::from_millis(200);

/// Submits tasks for cells that have none in the queue. Returns the sweeps with tasks for cells of this one and notes
/// what was queued or found. If Slurm rejects a job, cancels those submitted before and fails.
pub(super) fn submit(
    experiment: &Experiment,
    cells: &[usize],
    store: &Store,
    choice: Choice,
    cancel: &Cancel,
    how: &OnSlurm,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Submitted>> {
    // two processes that submit at once would both find an empty queue
    let _only = loop {
        match store.claim("slurm")? {
            Claimed::Ours(claim) => break claim,
            Claimed::By(_) if cancel.is_all() => return Err(Error::Interrupted),
            Claimed::By(_) => std::thread::sleep(POLL),
        }
    };
    let mut followed = Vec::new();
    let mut queued: HashSet<String> = HashSet::new();
    let keys: HashSet<String> = cells.iter().map(|cell| experiment.cells[*cell].spec.key()).collect();
    let earlier = Submitted::all(store);
    let names: Vec<String> = earlier.iter().flat_map(Submitted::names).collect();
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
    choice: Choice,
    how: &OnSlurm,
    note: &mut dyn FnMut(String),
) -> Result<Submitted> {
    let largest = slurm::nodes(how.options.partition())?;
    let specs = cells.iter().map(|cell| experiment.cells[*cell].spec.clone()).collect();
    let mut sweep = Submitted::new(experiment, choice, how.timeout, specs, largest);
    // nodes may have another working directory
    let dir = std::path::absolute(store.dir()).map_err(Error::io(store.dir()))?;
    sweep.write(&Store::open(&dir), &how.binary, &dir)?;
    for (number, array) in sweep.arrays.iter().enumerate() {
        let job = Job {
            name: sweep.name(number),
            script: &sweep.script(number),
            logs: &sweep.folder,
            tasks: array.tasks.len(),
            needs: array.needs.options(),
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
