//! Slurm through its own commands: `sbatch` submits, `squeue` lists tasks and their state, `sinfo` describes nodes,
//! `scancel` cancels. Independent of cells and runs.

mod command;
mod nodes;
mod queue;

pub use command::{Job, cancel, submit};
pub use nodes::{Nodes, nodes};
pub use queue::{State, Task, queue};
pub(super) use queue::{current, is_under_way};
