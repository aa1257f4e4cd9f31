//! Slurm, as its own commands tell of it: `sbatch` queues, `squeue` tells what is queued and how it ended,
//! `sinfo` what nodes have, `scancel` cancels. Nothing here knows of cells or runs.

mod command;
mod nodes;
mod queue;

pub use command::{Job, cancel, submit};
pub use nodes::{Nodes, nodes};
pub use queue::{State, Task, queue};
pub(super) use queue::{current, is_under_way};
