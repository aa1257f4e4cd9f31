//! Runs as child processes: own process group, events as JSON lines, watchdog, clean-up.
//!
//! The parent writes one `Request` (protocol.rs) to the child's standard input and keeps the pipe open, so that the
//! child notices when the parent dies, even by kill -9. The child sends [`run::RunEvent`]s, one JSON line each, on
//! standard output. Its standard error is the run's log.
//!
//! If a launcher (torchrun, srun, mpirun) started several processes, rank 0 leads and the others follow (leader.rs):
//! each starts a child for its rank of a run, and the children connect to each other ([`run::comm::Peers`]).

mod child;
mod ending;
mod executor;
mod gpus;
mod leader;
mod permitted;
mod process;
mod protocol;
mod watchdog;

pub use child::child_main;
pub(crate) use ending::with_outcome;
pub use executor::{Cancel, Executor, ExecutorEvent, RunRequest};
pub use leader::{Leader, lead_or_follow};
pub use permitted::OwnCells;
pub use process::ProcessExecutor;

#[cfg(test)]
mod tests;
