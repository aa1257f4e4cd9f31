//! Runs as child processes: own process group, events as JSON lines, watchdog, clean-up.
//!
//! The parent writes one `Request` to the child's standard input and keeps the pipe open, so that the
//! child notices when the parent dies, even by kill -9. The child sends [`run::RunEvent`]s, one JSON line each, on
//! standard output. Its standard error is the run's log.
//!
//! If a launcher (torchrun, srun, mpirun) started several processes, one per rank, each starts a child for its rank of
//! a run, and the children connect to each other (ranks.rs).

mod child;
mod process;
mod ranks;

pub use child::child_main;
pub(crate) use child::with_outcome;
pub use process::{Cancel, Executor, ExecutorEvent, ProcessExecutor, RunRequest};
pub use ranks::{LaunchedRanks, on_all_ranks};

#[cfg(test)]
mod tests;
