//! Experiments: the available ones, files and built-in; running them or single cells, simulations in this process and
//! every other run in its own; and their answers, computed from the runs as they end.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rayon::prelude::*;

use super::cells::{evaluate_cells, train_cells};
use base::error::{Error, Result};
use base::input::InputKind;
use base::offer::Offer;
use lab::launch::{Cancel, LaunchedRanks, ProcessExecutor};
use lab::store::Store;
use lab::sweep::document::Document;
use lab::sweep::{self, BUILT_IN, Choice, Experiment, OnSlurm, SlurmOptions, SweepEvent, SweepOutcome};
use run::{Shared, TIMEOUT};
use study::answer::{Answer, MOST_RUNS};
use table::{Provenance, Record, Spec, Status};
use trace::export;

/// Directory of the user's experiment files, below the current one.
pub const DIRECTORY: &str = "experiments";

/// Available experiment, possibly broken.
#[derive(Debug)]
pub struct AvailableExperiment {
    pub name: String,
    /// `None` if built in.
    pub path: Option<PathBuf>,
    /// Empty if the file cannot be read.
    pub text: String,
    pub experiment: Result<Experiment>,
}

impl AvailableExperiment {
    fn of_file(path: PathBuf, shared: &Shared) -> Self {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (text, experiment) = match InputKind::EXPERIMENT.text(&path) {
            Ok(text) => {
                let experiment = Experiment::resolve(&text, &path, None, shared);
                (text, experiment)
            }
            Err(error) => (String::new(), Err(error)),
        };
        Self { name, text, experiment, path: Some(path) }
    }

    fn of_built_in(name: &str, text: &str, shared: &Shared) -> Self {
        let experiment = Experiment::resolve(text, Path::new(&format!("{name}.toml")), None, shared);
        Self { name: name.into(), path: None, text: text.into(), experiment }
    }
}

/// Loads the `*.toml` files of a directory, sorted, then the built-in experiments that no file overrides. A broken
/// file is an entry with its error. Returns an error if the directory exists and cannot be read.
pub fn available_experiments(dir: &Path) -> Result<Vec<AvailableExperiment>> {
    let mut paths = Vec::new();
    if dir.is_dir() {
        for entry in std::fs::read_dir(dir).map_err(Error::io(dir))? {
            paths.push(entry.map_err(Error::io(dir))?.path());
        }
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let shared = Shared::default();
    let mut found: Vec<AvailableExperiment> =
        paths.into_par_iter().map(|path| AvailableExperiment::of_file(path, &shared)).collect();
    let hidden: HashSet<String> = found.iter().map(|experiment| experiment.name.clone()).collect();
    let built_in = BUILT_IN.into_par_iter().filter(|(name, _)| !hidden.contains(*name));
    // planning thousands of cells takes a while
    found.par_extend(built_in.map(|(name, text)| AvailableExperiment::of_built_in(name, text, &shared)));
    Ok(found)
}

/// Loads one of the available experiments; `None` if there is none of this name.
pub fn available_experiment(dir: &Path, name: &str) -> Option<AvailableExperiment> {
    let (path, shared) = (dir.join(format!("{name}.toml")), Shared::default());
    if path.is_file() {
        return Some(AvailableExperiment::of_file(path, &shared));
    }
    let (name, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
    Some(AvailableExperiment::of_built_in(name, text, &shared))
}

/// Names of the available experiments; reads only the directory.
pub fn names(dir: &Path) -> Vec<Offer> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let name = |path: PathBuf| Some(path.file_stem()?.to_string_lossy().into_owned());
    let mut own: Vec<String> = files.filter_map(name).collect();
    own.sort();
    let mut names: Vec<Offer> = BUILT_IN.iter().map(|(name, _)| Offer::new(*name, "built in")).collect();
    names.retain(|offer| !own.contains(&offer.text));
    own.into_iter().map(|name| Offer::new(name, "")).chain(names).collect()
}

/// Question of an available experiment; the rest of its file may be invalid.
pub fn question(name: &str) -> Option<String> {
    let file = InputKind::EXPERIMENT.text(&Path::new(DIRECTORY).join(format!("{name}.toml")));
    let built_in = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    let text = file.ok().or(built_in.map(|(_, text)| (*text).to_owned()))?;
    let document = Document::parse(&text, Path::new(name)).ok()?;
    document.get("question")?.values.first().cloned()
}

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
        Self { store, cancel, timeout: TIMEOUT, watch: false, ranks: None }
    }

    /// Runs an experiment, then its evaluations and trainings. Blocks until it ends or is cancelled. Failed runs are
    /// stored as failed and are not an error.
    pub fn experiment(
        &self,
        experiment: &Experiment,
        choice: Choice,
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
        choice: Choice,
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
        shared: &Shared,
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
            export::write_in(&simulated, export::Format::of_recording(path), path)?;
            record.trace = Some(path.display().to_string());
        }
        Ok(record)
    }

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

/// Collects the runs of a sweep from its events. Keeps none if there are more than [`MOST_RUNS`], so memory stays
/// bounded for large grids.
#[derive(Clone, Debug, Default)]
pub struct AnswerCollector {
    records: Vec<Record>,
    is_full: bool,
}

impl AnswerCollector {
    pub fn add(&mut self, event: &SweepEvent) {
        let (SweepEvent::CellSettled { record, .. } | SweepEvent::RunEnded { record, .. }) = event
        else {
            return;
        };
        if self.records.len() >= MOST_RUNS {
            (self.records, self.is_full) = (Vec::new(), true);
        }
        if self.is_full {
            return;
        }
        let mut record = Record::clone(record);
        if record.provenance == Provenance::Simulated {
            // simulated steps have no variance, so no interval needs them
            Arc::make_mut(&mut record.samples)
                .iter_mut()
                .for_each(|sample| sample.steps_ms = Vec::new());
        }
        self.records.push(record);
    }

    pub fn answers(self) -> Vec<Answer> {
        if self.is_full { Vec::new() } else { Answer::of(self.records) }
    }
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
