//! Sweeps on a Slurm cluster: cells become tasks of job arrays, all nodes share the store, and the submitter follows
//! the results in it.
//!
//! | file | purpose |
//! |---|---|
//! | `needs` | groups cells into tasks; nodes, CPUs and GPUs of each |
//! | `options` | user options for `sbatch` |
//! | `plan` | file that assigns cells to tasks, and the batch scripts |
//! | `submit` | finds queued tasks and submits the rest |
//! | `queue` | state of the tasks |
//! | `follow` | events of the sweep from the queue and the store |
//! | `lost` | reasons for cells without a record |
//! | `task` | task side: runs the cells |

mod follow;
mod lost;
mod needs;
mod options;
mod plan;
mod queue;
mod submit;
mod task;

pub use follow::{OnSlurm, execute_on_slurm};
pub use options::SlurmOptions;
pub use task::TaskCells;
