//! Running: an experiment, an experiment on Slurm, or a single cell.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::cells::{evaluate_cells, train_cells};
use base::error::{Error, Result};
use lab::launch::{Cancel, LaunchedRanks, ProcessExecutor};
use lab::store::Store;
use lab::sweep::{self, Experiment, OnSlurm, SlurmOptions, SweepEvent, SweepOutcome, SweepSelection};
use run::{GridContext, PROGRESS_TIMEOUT};
use table::{Record, Spec, Status};
use trace::export;

/// Store, cancellation and options of runs.
#[derive(Clone, Debug)]
pub struct Runner {
    pub store: Store,
    pub cancel: Cancel,
    /// Timeout: kill a GPU run when any rank makes no progress for this long.
    pub timeout: Duration,
    /// True to emit a progress event per decode step.
    pub watch: bool,
    /// Processes of the other ranks, if a launcher started several.
    pub ranks: Option<Arc<LaunchedRanks>>,
}

impl Runner {
    /// Defaults: no step events, all ranks in one process.
    pub fn new(store: Store, cancel: Cancel) -> Self {
        Self { store, cancel, timeout: PROGRESS_TIMEOUT, watch: false, ranks: None }
    }

    /// Runs an experiment, then its evaluations and trainings. Blocks until it ends or is cancelled. Failed runs are
    /// stored as failed and are not an error.
    pub fn experiment(
        &self,
        experiment: &Experiment,
        choice: SweepSelection,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<SweepOutcome> {
        let executor = self.executor(None)?;
        let mut outcome =
            sweep::execute(experiment, &self.store, &executor, choice, &self.cancel, emit)?;
        if !outcome.interrupted && !self.cancel.is_all() {
            let after = evaluate_cells(experiment, &self.store, &self.cancel, emit).and_then(|failed| {
                Ok(failed + train_cells(experiment, &self.store, &self.cancel, emit)?)
            });
            match after {
                Ok(failed) => outcome.unevaluated = failed,
                Err(Error::Interrupted) => outcome.interrupted = true,
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }

    /// Runs an experiment in Slurm jobs ([`sweep::execute_on_slurm`]); returns `None` if detached, else blocks.
    pub fn on_slurm(
        &self,
        experiment: &Experiment,
        choice: SweepSelection,
        options: SlurmOptions,
        detach: bool,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<Option<SweepOutcome>> {
        let executor = self.executor(None)?;
        let how = OnSlurm { options, binary: executor.binary.clone(), detach, timeout: self.timeout };
        if experiment.cells.iter().any(|cell| cell.spec.backend.is_simulated()) {
            emit(SweepEvent::Note(
                "cells with `backend = \"sim\"` are simulated here, not by Slurm".into(),
            ));
        }
        if experiment.evaluate.is_some() || experiment.adapt.is_some() {
            emit(SweepEvent::Note(
                "Slurm tasks only run cells; run the same sweep without --slurm afterwards to evaluate quality and to \
                 train (it finds the stored runs)"
                    .into(),
            ));
        }
        sweep::execute_on_slurm(experiment, &self.store, choice, &self.cancel, &how, emit)
    }

    /// Runs one cell `rounds` times, each in a fresh process if it is measured, and writes the trace of the last
    /// sample to `trace`. Blocks. Returns an input error before the run if the trace cannot be written.
    pub fn cell(
        &self,
        spec: &Spec,
        shared: &GridContext,
        rounds: u32,
        trace: Option<&Path>,
        emit: &mut dyn FnMut(SweepEvent),
    ) -> Result<Record> {
        trace.map_or(Ok(()), check_writable)?;
        let executor = self.executor(trace)?;
        let mut record =
            sweep::run_one(spec, shared, rounds, &self.store, &executor, &self.cancel, emit)?;
        if let (Some(path), Status::Ok, true) = (trace, record.status, spec.backend.is_simulated()) {
            // the store keeps no trace of a simulated run, because simulating again gives the same spans
            let (_, simulated) = sweep::simulate_cell(spec, &shared.simulator, true)?;
            let mut simulated =
                simulated.ok_or_else(|| Error::failed("the simulation left no trace"))?;
            simulated.meta.run = Some(record.run.clone());
            export::write_in(&simulated, export::ExportFormat::of_recording(path), path)?;
            record.trace = Some(path.display().to_string());
        }
        Ok(record)
    }

    /// Executor of the cells that need a process; simulated cells run in this one.
    fn executor(&self, trace: Option<&Path>) -> Result<ProcessExecutor> {
        Ok(ProcessExecutor {
            trace_copy: trace.map(PathBuf::from),
            timeout: self.timeout,
            watch: self.watch,
            ranks: self.ranks.clone(),
            ..ProcessExecutor::new()?
        })
    }
}

fn check_writable(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    if path.is_dir() {
        return Err(Error::input(format!("--trace {}: a directory; pass a file name", path.display())));
    }
    if !parent.is_dir() {
        return Err(Error::input_help(
            format!("--trace {}: no such directory: {}", path.display(), parent.display()),
            "create it first, or write elsewhere",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_could_not_be_written_is_refused_before_the_run() {
        for path in ["/", "/tmp", "/no/such/directory/trace.parquet"] {
            let error = check_writable(Path::new(path)).err();
            assert_eq!(error.map(|e| e.exit_code()), Some(2), "{path}");
        }
        assert!(check_writable(Path::new("trace.parquet")).is_ok());
    }
}
