//! A sweep on a Slurm cluster: cells become tasks of job arrays, the store is shared, and whoever submitted them
//! follows what the tasks leave in it.
//!
//! | file | what it is for |
//! |---|---|
//! | `needs` | which cells make a task, and what it needs of nodes, CPUs and GPUs |
//! | `options` | what the user gives to `sbatch` |
//! | `plan` | the file that says which task has which cells, and the batch scripts |
//! | `submit` | what is queued already, what is to be queued |
//! | `queue` | what becomes of the tasks |
//! | `follow` | from the queue and the store to the events of a sweep |
//! | `lost` | what is said of cells that a task left without a record |
//! | `task` | the other side: a task runs its cells |

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
