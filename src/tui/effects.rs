//! Does what `update` asks for: files, sweeps, analyses, each on a thread of its own; answers come
//! back as messages. Nothing here touches the state.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, unbounded};

use super::message::{Effect, Ended, Message, Snapshot, TraceSource};
use super::screens::compare::state::{Compared, KeptCells};
use super::screens::experiments::{check, save};
use super::screens::live::look;
use super::screens::pareto::picture;
use super::screens::timeline::state::{Matches, TraceIndex};
use super::screens::whatif::worker::WhatIfWorker;
use super::{experiments, format, terminal};
use crate::analysis::{self, Selection};
use crate::backend::{self, Job};
use crate::error::{Error, Result};
use crate::launch::ProcessExecutor;
use crate::plan::Phase;
use crate::spec::{Backend, Spec};
use crate::store::{Record, Store};
use crate::sweep::{self, Cancel, Choice, Experiment};
use crate::trace::rules::Rules;
use crate::trace::{self, Trace};

/// Decode steps of a simulated run that is simulated again for its timeline.
const RESIMULATED_STEPS: u32 = 32;

/// Performs effects; answers go to its channel.
#[derive(Debug)]
pub struct Performer {
    store: Store,
    experiments: PathBuf,
    answers: Sender<Message>,
    cancel: Cancel,
    sweep: Option<JoinHandle<()>>,
    /// Cells of the runs that were compared last.
    cells: Arc<KeptCells>,
    whatif: WhatIfWorker,
    /// The newest check of an edited experiment.
    check: Arc<AtomicU64>,
    /// Works on the runs as they were told last.
    runs: Worker<Option<Arc<Snapshot>>>,
    /// Works out the points of the Pareto screen.
    pareto: Worker<()>,
}

impl Performer {
    /// A performer that stores runs in `dir`, reads experiments from `experiments`, and answers there.
    pub fn new(dir: &Path, experiments: PathBuf, answers: Sender<Message>) -> Self {
        Self {
            store: Store::open(dir),
            experiments,
            whatif: WhatIfWorker::new(answers.clone()),
            cancel: Cancel::default(),
            sweep: None,
            cells: Arc::default(),
            check: Arc::default(),
            runs: Worker::new(answers.clone()),
            pareto: Worker::new(answers.clone()),
            answers,
        }
    }

    /// Does it, or sets it going.
    pub fn perform(&mut self, effect: Effect) {
        let store = self.store.clone();
        match effect {
            // the loop's own
            Effect::Quit { .. } => {}
            Effect::LoadExperiments => {
                let dir = self.experiments.clone();
                self.spawn(move || Message::Experiments(experiments::load(&dir)));
            }
            Effect::LoadRuns => self.with_runs(move |told| list(&store, told)),
            Effect::Annotate { runs, edit } => self.with_runs(move |told| {
                store.annotate(&runs, &edit)?;
                let Some(before) = told.as_ref() else { return list(&store, told) };
                let snapshot = Arc::new(before.with(store.annotations()));
                *told = Some(snapshot.clone());
                Ok(Message::Annotated(snapshot))
            }),
            Effect::DeleteRuns(runs) => {
                let answers = self.answers.clone();
                self.with_runs(move |told| {
                    if let Err(error) = store.delete(&runs) {
                        let _ = answers.send(Message::Failed(format::error(&error)));
                    }
                    // what could not be deleted is shown again
                    list(&store, told)
                });
            }
            Effect::RestoreRuns => {
                let answers = self.answers.clone();
                self.with_runs(move |told| {
                    let note = match store.restore_last()?.as_slice() {
                        [] => "nothing is deleted that could be brought back".to_owned(),
                        [run] => format!("restored {run}"),
                        runs => format!("restored {} runs", runs.len()),
                    };
                    let _ = answers.send(Message::Info(note));
                    list(&store, told)
                });
            }
            Effect::LoadWhole(run) => self.spawn(move || match store.get(&run) {
                Ok(record) => Message::WholeRun(Box::new(record)),
                Err(error) => Message::Failed(format::error(&error)),
            }),
            Effect::SideBySide { rows: [a, b], runs } => self.spawn(move || {
                let side_by_side = analysis::side_by_side(&runs.records, a, b);
                Message::SideBySide(side_by_side.map(Box::new).map_err(|e| format::error(&e)))
            }),
            Effect::StartSweep { experiment, choice } => self.start(experiment, choice),
            Effect::PauseSweep(true) => self.cancel.pause(),
            Effect::PauseSweep(false) => self.cancel.resume(),
            Effect::LookAtCell { sweep, cell, spec } => {
                self.spawn(move || Message::CellLooked { sweep, cell, looked: look::look(&spec) });
            }
            Effect::Append(records) => self.with_runs(move |told| {
                let Some(before) = told.as_ref() else { return list(&store, told) };
                let snapshot = Arc::new(before.and(records));
                *told = Some(snapshot.clone());
                Ok(Message::Appended(snapshot))
            }),
            Effect::CheckDraft { serial, name, path, text, stored } => {
                let newest = Arc::clone(&self.check);
                newest.store(serial, Ordering::Relaxed);
                self.spawn(move || {
                    let stop = || newest.load(Ordering::Relaxed) != serial;
                    let checked = check::check(serial, &text, &path, stored.as_deref(), &stop);
                    Message::DraftChecked { name, checked }
                });
            }
            Effect::SaveExperiment(save) => {
                let dir = self.experiments.clone();
                self.spawn(move || {
                    let result = save::write(&save, &dir);
                    Message::Saved { save, result }
                });
            }
            Effect::CancelCell(cell) => self.cancel.cell(cell),
            Effect::CancelAll => self.cancel.all(),
            Effect::OpenTraces { request, sources } => self.spawn(move || {
                let open = |source: &TraceSource| open(&store, source).map_err(|e| format::error(&e));
                Message::Trace { request, result: sources.iter().map(open).collect() }
            }),
            Effect::Analyse { request, pane, index, part } => self.spawn(move || {
                let selection = match part {
                    Some(key) => Selection {
                        phase: Some(key.phase),
                        step: Some(key.step),
                        ..Selection::default()
                    },
                    None => Selection { phase: Some(Phase::Decode), ..Selection::default() },
                };
                let report = analysis::overlap(&index.trace, &selection);
                Message::Overlap { request, pane, part, overlap_pct: report.all.overlap_pct }
            }),
            Effect::Search { request, pane, serial, index, query } => self.spawn(move || {
                let matches = Arc::new(Matches::of(&index, &query));
                Message::Found { request, pane, serial, matches }
            }),
            Effect::Timeline(ask) => self.spawn(move || Message::Timeline(Box::new(ask.answer()))),
            Effect::Pareto(runs) => {
                self.pareto.ask(move |()| Message::Pareto(analysis::pareto(&runs.records)));
            }
            Effect::Compare { request, asked, runs } => {
                let cells = Arc::clone(&self.cells);
                self.spawn(move || {
                    let result = Compared::new(&cells.of(&runs), &asked);
                    Message::Compare {
                        request,
                        result: result.map(Arc::new).map_err(|e| format::error(&e)),
                    }
                });
            }
            Effect::WhatIf { request, variant } => self.whatif.ask(request, *variant),
            Effect::ParetoMarks { axes, reading, runs } => self.spawn(move || {
                let points = analysis::pareto_on(&runs.records, axes);
                Message::ParetoMarks { axes, reading, points }
            }),
            Effect::ParetoAreas { key, runs } => self.spawn(move || {
                let areas = analysis::area_gained(&runs.records, key.options, Some(&key.group));
                Message::ParetoAreas { key, areas }
            }),
            Effect::ReadOverlay(path) => self.spawn(move || {
                let read = |path: PathBuf| Ok((path.clone(), analysis::read_overlay(&path)?));
                let read = path.map(read).transpose();
                Message::Overlay(read.map_err(|e: Error| format::error(&e)))
            }),
            Effect::ParetoPicture(sketch) => self.spawn(move || {
                let result = picture::paint(&sketch, terminal::cell_pixels()).map(Arc::new);
                Message::ParetoPicture { sketch, result }
            }),
            Effect::Export { export, path } => self.spawn(move || {
                let path = free(path);
                match export.write(&path) {
                    Ok(()) => Message::Info(format!("written: {}", path.display())),
                    Err(error) => Message::Failed(format::error(&error)),
                }
            }),
            Effect::Copy(text) => self.report(terminal::copy(&text)),
            Effect::CaptureMouse(capture) => self.report(terminal::capture_mouse(capture)),
        }
    }

    /// Indexes traces that the workbench was opened with, classified by these rules; the answer is to
    /// request `request`.
    pub fn show(&self, request: u64, traces: Vec<(String, Trace)>, rules: Option<String>) {
        self.spawn(move || {
            let open = |(source, trace): (String, Trace)| {
                Arc::new(index(trace, None).opened_from(source).classified_by(rules.clone()))
            };
            let traces = traces.into_iter().map(open).collect();
            Message::Trace { request, result: Ok(traces) }
        });
    }

    /// Cancels what runs and waits until it has been stored. `patience`: whether to wait at all.
    pub fn finish(self, patience: bool) {
        self.cancel.all();
        if let (true, Some(sweep)) = (patience, self.sweep) {
            // a panic in it has been told as a message
            let _ = sweep.join();
        }
    }

    fn report(&self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.send(Message::Failed(format!("the terminal: {error}")));
        }
    }

    fn send(&self, message: Message) {
        // nobody listens any more: the workbench is being left
        let _ = self.answers.send(message);
    }

    /// Runs `work` on a thread; a panic in it becomes a message.
    fn spawn(&self, work: impl FnOnce() -> Message + Send + 'static) {
        let answers = self.answers.clone();
        std::thread::spawn(move || {
            let message = guarded(work).unwrap_or_else(Message::Failed);
            let _ = answers.send(message);
        });
    }

    /// Runs work on the stored runs, after what was asked for before.
    fn with_runs(
        &self,
        work: impl FnOnce(&mut Option<Arc<Snapshot>>) -> Result<Message> + Send + 'static,
    ) {
        self.runs
            .ask(move |told| work(told).unwrap_or_else(|error| Message::Failed(format::error(&error))));
    }

    fn start(&mut self, experiment: Arc<Experiment>, choice: Choice) {
        self.cancel = Cancel::default();
        let (store, cancel, answers) = (self.store.clone(), self.cancel.clone(), self.answers.clone());
        self.sweep = Some(std::thread::spawn(move || {
            let events = answers.clone();
            let result = guarded(move || {
                let executor = ProcessExecutor { watch: true, ..ProcessExecutor::new()? };
                let mut emit = |event| {
                    let _ = events.send(Message::Sweep(Box::new(event)));
                };
                let outcome =
                    sweep::execute(&experiment, &store, &executor, choice, &cancel, &mut emit)?;
                Ok(Ended { failed: outcome.failed, interrupted: outcome.interrupted })
            });
            let result = result.and_then(|r: Result<Ended>| r.map_err(|e| format::error(&e)));
            let _ = answers.send(Message::SweepEnded(result));
        }));
    }
}

/// A thread that does one thing after the other, in the order in which they were asked for; so the answers
/// come in that order, too.
#[derive(Debug)]
struct Worker<S>(Sender<Work<S>>);

type Work<S> = Box<dyn FnOnce(&mut S) -> Message + Send>;

impl<S: Default + 'static> Worker<S> {
    /// One whose answers go there. Its thread ends with it.
    fn new(answers: Sender<Message>) -> Self {
        let (ask, asked) = unbounded::<Work<S>>();
        std::thread::spawn(move || {
            let mut state = S::default();
            for work in asked {
                let message = guarded(|| work(&mut state)).unwrap_or_else(Message::Failed);
                if answers.send(message).is_err() {
                    return;
                }
            }
        });
        Self(ask)
    }

    fn ask(&self, work: impl FnOnce(&mut S) -> Message + Send + 'static) {
        // the thread ends only with the workbench
        let _ = self.0.send(Box::new(work));
    }
}

/// A panic as an error: a defect of this program must neither freeze nor end the workbench.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        format!("a defect of ladderscope, please report it: {text}")
    })
}

/// Reads the stored runs.
fn list(store: &Store, told: &mut Option<Arc<Snapshot>>) -> Result<Message> {
    let listing = match store.list() {
        Ok(listing) => listing,
        Err(error) => return Ok(Message::Runs(Err(format::error(&error)))),
    };
    let snapshot = Arc::new(Snapshot::annotated(listing.records, listing.damaged, store.annotations()));
    *told = Some(snapshot.clone());
    Ok(Message::Runs(Ok(snapshot)))
}

/// Reads and indexes a trace.
fn open(store: &Store, source: &TraceSource) -> Result<Arc<TraceIndex>> {
    let (path, rules) = match source {
        TraceSource::Run(record) => return open_run(store, record),
        TraceSource::Path { path, rules } => (path, rules),
    };
    let home = path.strip_prefix("~").ok().zip(std::env::home_dir());
    let path = home.map_or_else(|| path.clone(), |(rest, home)| home.join(rest));
    // a run's id is no path
    if !path.exists()
        && let Some(name) = path.to_str().filter(|name| !name.contains(['/', '.']))
    {
        return open_run(store, &store.get(name)?);
    }
    let trace = match rules {
        Some(rules) => trace::import::open_with(&path, &Rules::load(rules)?)?.0,
        None => trace::import::open(&path)?,
    };
    let index = index(trace, path.file_name().and_then(|name| name.to_str()));
    Ok(Arc::new(index.opened_from(path.display().to_string()).classified_by(rules.clone())))
}

/// Reads and indexes a run's trace. A simulated run that left none is simulated again: that gives the
/// same spans.
fn open_run(store: &Store, record: &Record) -> Result<Arc<TraceIndex>> {
    if let Some(path) = store.trace_path(record) {
        let trace = trace::import::open(&path)?;
        return Ok(Arc::new(index(trace, Some(&record.run)).opened_from(&record.run)));
    }
    if record.spec.backend != Backend::Sim {
        return Err(Error::input_help(
            format!("run {} has no trace file in {}", record.run, store.dir().display()),
            "its numbers are complete; to see its lanes, run the cell again",
        ));
    }
    let output_tokens = record.spec.output_tokens.min(RESIMULATED_STEPS + 1);
    let spec = Spec { output_tokens, samples: 1, warmup: 0, ..record.spec.clone() };
    let (_, trace) = backend::run(&Job::of(spec, true, false), &mut |_| {})?;
    // said first, so that a part is never taken for the whole
    let name = if output_tokens < record.spec.output_tokens {
        format!("first {RESIMULATED_STEPS} of {} steps: {}", record.spec.output_tokens - 1, record.run)
    } else {
        record.run.clone()
    };
    match trace {
        Some(trace) => Ok(Arc::new(index(trace, Some(&name)).opened_from(&record.run))),
        None => Err(Error::failed(format!("simulating run {} again gave no trace", record.run))),
    }
}

fn index(trace: Trace, run: Option<&str>) -> TraceIndex {
    let run = run.or(trace.meta.run.as_deref()).unwrap_or("imported trace");
    let title = match (&trace.meta.spec, &trace.meta.import) {
        (Some(spec), _) => format!("{run}  {} {} {}", spec.model, spec.label(), spec.link),
        (None, Some(import)) => format!("{run}  {}", import.format),
        (None, None) => run.to_string(),
    };
    TraceIndex::new(title, trace)
}

/// The path, or where there is such a file the first free one of `name-2`, `name-3`, ...
fn free(path: PathBuf) -> PathBuf {
    if !path.exists() {
        return path;
    }
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let numbered = |n| path.with_file_name(format!("{stem}-{n}.{extension}"));
    (2..u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or(path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_classified_by_the_rules_that_it_was_opened_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.json");
        let events = r#"{"traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "pid": 0,
             "tid": 7, "ts": 1.0, "dur": 2.0, "args": {"device": 0, "stream": 7}},
            {"ph": "X", "cat": "kernel", "name": "void multimem_all_reduce<1>(x)", "pid": 0,
             "tid": 7, "ts": 4.0, "dur": 2.0, "args": {"device": 0, "stream": 7}}]}"#;
        std::fs::write(&path, events).unwrap();
        let store = Store::open(dir.path());
        let opened = |rules: Option<&str>| {
            open(&store, &TraceSource::Path { path: path.clone(), rules: rules.map(str::to_owned) })
        };
        let communication = |rules| {
            let index = opened(rules).unwrap();
            assert_eq!(index.rules.as_deref(), rules);
            index.trace.spans.iter().filter(|span| span.lane == crate::plan::Lane::Comm).count()
        };
        assert_eq!((communication(None), communication(Some("hta"))), (2, 1));
        let error = opened(Some("nobodys")).unwrap_err();
        assert!(error.to_string().contains("'nobodys'"), "{error}");
    }
}
