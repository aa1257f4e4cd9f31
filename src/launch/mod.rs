//! Runs as child processes: own process group, events as JSON lines, watchdog, clean-up.

use crate::store::Record;
use crate::sweep::{Executor, ExecutorEvent, RunRequest};

/// Runs a cell in a child process of this very binary.
#[derive(Clone, Debug)]
pub struct ProcessExecutor {
    /// The binary; usually the current one.
    pub binary: std::path::PathBuf,
    /// End a run that says nothing for so long.
    pub silence: std::time::Duration,
    /// Where a copy of the trace goes (`run --trace FILE`).
    pub trace_copy: Option<std::path::PathBuf>,
}

impl ProcessExecutor {
    /// With the current binary and the default watchdog.
    pub fn new() -> crate::error::Result<Self> {
        todo!()
    }
}

impl Executor for ProcessExecutor {
    fn run(&self, request: &RunRequest<'_>, emit: &mut dyn FnMut(ExecutorEvent)) -> Record {
        let _ = (request, emit);
        todo!()
    }
}

/// The hidden verb `__run`: executes the job on standard input, events to standard output. Exits when
/// its parent dies.
pub fn child_main() -> std::process::ExitCode {
    todo!()
}
