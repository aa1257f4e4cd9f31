//! Slurm through its own commands. Independent of cells and runs.
//!
//! | file | contents |
//! |---|---|
//! | `command` | a Slurm command as a child process with a timeout; its failures as messages |
//! | `jobs` | `sbatch` and `scancel`: submits and cancels job arrays |
//! | `nodes` | `sinfo`: sizes of nodes |
//! | `tasks` | `squeue`: tasks and their states |

mod command;
mod jobs;
mod nodes;
mod tasks;

pub use jobs::{JobArray, cancel, submit};
pub use nodes::{NodeLimits, nodes};
pub use tasks::{SlurmTask, TaskState, queue};
pub(crate) use tasks::{current_task, is_under_way};

use std::time::Duration;

/// Timeout for commands that need the controller.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(60);
