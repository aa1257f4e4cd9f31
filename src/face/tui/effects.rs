//! Does what `update` asks for: files, sweeps, analyses, each on a thread of its own; answers come
//! back as messages. Nothing here touches the state.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, unbounded};

use super::message::{Deed, Ended, Message, SweepOrder};
use super::prelude::*;
use super::task::{Questions, guarded};
use super::{format, terminal};
use crate::desk::{self, Start};
use base::error::Result;
use lab::launch::Cancel;
use lab::store::Store;
use lab::sweep::{Choice, Experiment};

/// Performs effects; answers go to its channel.
#[derive(Debug)]
pub struct Performer {
    store: Store,
    answers: Sender<Message>,
    cancel: Cancel,
    sweep: Option<JoinHandle<()>>,
    questions: Questions,
    /// Works on the runs as they were told last.
    runs: Worker,
    /// Whether a reading of the runs is asked for and has not begun: another would tell the same.
    reading: Arc<AtomicBool>,
    /// Whether a sweep of this process goes on; it tells its own runs.
    sweeping: Arc<AtomicBool>,
}

impl Performer {
    /// A performer that stores runs in `dir` and answers there.
    pub fn new(dir: &Path, answers: Sender<Message>) -> Self {
        Self {
            store: Store::open(dir),
            cancel: Cancel::default(),
            sweep: None,
            questions: Questions::default(),
            runs: Worker::new(answers.clone()),
            reading: Arc::default(),
            sweeping: Arc::default(),
            answers,
        }
    }

    /// Has the runs read again whenever another process has changed them. The thread ends with the process.
    pub fn watch(&self) {
        let (store, runs, answers) = (self.store.clone(), self.runs.clone(), self.answers.clone());
        let (reading, sweeping) = (Arc::clone(&self.reading), Arc::clone(&self.sweeping));
        std::thread::spawn(move || {
            store.watch(|| {
                if !sweeping.load(Ordering::Relaxed) {
                    read(&store, &runs, &reading, &answers);
                }
                true
            });
        });
    }

    /// Does it, or sets it going.
    pub fn perform(&mut self, effect: Effect) {
        let store = self.store.clone();
        match effect {
            // the loop's own
            Effect::Quit { .. } => {}
            Effect::Ask(task) => {
                let answers = self.answers.clone();
                // nobody listens any more where the workbench is being left
                self.questions.ask(task, move |answer| drop(answers.send(Message::Answered(answer))));
            }
            Effect::Store(StoreTask::Read) => read(&store, &self.runs, &self.reading, &self.answers),
            Effect::Store(task) => {
                let answers = self.answers.clone();
                self.runs.ask(move |told| {
                    let mut say = |note| drop(answers.send(Message::Told(note)));
                    Message::Runs(work_on(&store, task, told, &mut say).map_err(|e| format::error(&e)))
                });
            }
            Effect::Sweep(SweepOrder::Start { experiment, choice }) => self.start(experiment, choice),
            Effect::Sweep(SweepOrder::Pause(true)) => self.cancel.pause(),
            Effect::Sweep(SweepOrder::Pause(false)) => self.cancel.resume(),
            Effect::Sweep(SweepOrder::CancelCell(cell)) => self.cancel.cell(cell),
            Effect::Sweep(SweepOrder::CancelAll) => self.cancel.all(),
            Effect::Export { export, path } => {
                self.spawn(move || match desk::export::write_free(path, |path| export.write(path)) {
                    Ok(path) => Message::Told(Ok(format!("written: {}", path.display()))),
                    Err(error) => Message::Told(Err(format::error(&error))),
                })
            }
            Effect::Do(Deed(work)) => self.spawn(move || Message::Told(work())),
            Effect::Copy(text) => self.report(terminal::copy(&text)),
            Effect::CaptureMouse(capture) => self.report(terminal::capture_mouse(capture)),
        }
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
            self.send(Message::Told(Err(format!("the terminal: {error}"))));
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
            let message = guarded(work).unwrap_or_else(|error| Message::Told(Err(error)));
            let _ = answers.send(message);
        });
    }

    fn start(&mut self, experiment: Arc<Experiment>, choice: Choice) {
        self.cancel = Cancel::default();
        let start = Start { watch: true, ..Start::new(self.store.clone(), self.cancel.clone()) };
        let (answers, sweeping) = (self.answers.clone(), Arc::clone(&self.sweeping));
        sweeping.store(true, Ordering::Relaxed);
        self.sweep = Some(std::thread::spawn(move || {
            let events = answers.clone();
            let result = guarded(move || {
                let outcome = start.experiment(&experiment, choice, &mut |event| {
                    let _ = events.send(Message::Request(Request::SweepNews(Box::new(event))));
                })?;
                Ok(Ended { failed: outcome.failed, interrupted: outcome.interrupted })
            });
            sweeping.store(false, Ordering::Relaxed);
            let result = result.and_then(|r: Result<Ended>| r.map_err(|e| format::error(&e)));
            let _ = answers.send(Message::Request(Request::SweepEnded(result)));
        }));
    }
}

/// A thread that does one thing after the other with the runs as they were told last, in the order in which
/// they were asked for; so the answers come in that order, too.
#[derive(Clone, Debug)]
struct Worker(Sender<Work>);

/// The runs as they were told last.
#[derive(Default)]
struct Told {
    runs: Option<Arc<Snapshot>>,
    /// The store's fingerprint before they were read; `None` where they have been changed since.
    as_of: Option<u64>,
}

type Work = Box<dyn FnOnce(&mut Told) -> Message + Send>;

impl Worker {
    /// One whose answers go there. Its thread ends with it.
    fn new(answers: Sender<Message>) -> Self {
        let (ask, asked) = unbounded::<Work>();
        std::thread::spawn(move || {
            let mut told = Told::default();
            for work in asked {
                let message = guarded(|| work(&mut told));
                let message = message.unwrap_or_else(|error| Message::Told(Err(error)));
                if answers.send(message).is_err() {
                    return;
                }
            }
        });
        Self(ask)
    }

    fn ask(&self, work: impl FnOnce(&mut Told) -> Message + Send + 'static) {
        // the thread ends only with the workbench
        let _ = self.0.send(Box::new(work));
    }
}

/// Has the runs read, unless that is asked for already: however often somebody asks, at most one reading waits.
fn read(store: &Store, runs: &Worker, reading: &Arc<AtomicBool>, answers: &Sender<Message>) {
    if reading.swap(true, Ordering::AcqRel) {
        return;
    }
    let (store, reading, answers) = (store.clone(), Arc::clone(reading), answers.clone());
    runs.ask(move |told| {
        // what changes from now on is not certain to be read
        reading.store(false, Ordering::Release);
        let mut say = |note| drop(answers.send(Message::Told(note)));
        Message::Runs(work_on(&store, StoreTask::Read, told, &mut say).map_err(|e| format::error(&e)))
    });
}

/// Reads or changes the stored runs; `say` tells the user more than what they are then.
fn work_on(
    store: &Store,
    task: StoreTask,
    told: &mut Told,
    say: &mut dyn FnMut(std::result::Result<String, String>),
) -> Result<Arc<Snapshot>> {
    let before = std::mem::take(&mut told.as_of);
    let snapshot = match (task, told.runs.as_ref()) {
        (StoreTask::Read, known) => {
            let now = store.fingerprint()?;
            told.as_of = Some(now);
            match known {
                // thousands of records need not be read and copied to find them as they were
                Some(known) if before == told.as_of => return Ok(Arc::clone(known)),
                _ => list(store)?,
            }
        }
        (StoreTask::Append(records), Some(before)) => before.and(records),
        (StoreTask::Annotate { runs, edit }, before) => {
            store.annotate(&runs, &edit)?;
            match before {
                Some(before) => before.with(store.annotations()),
                None => list(store)?,
            }
        }
        (StoreTask::Delete(runs), _) => {
            if let Err(error) = store.delete(&runs) {
                say(Err(format::error(&error)));
            }
            // what could not be deleted is shown again
            list(store)?
        }
        (StoreTask::Restore, _) => {
            say(Ok(match store.restore_last()?.as_slice() {
                [] => "nothing is deleted that could be brought back".to_owned(),
                [run] => format!("restored {run}"),
                runs => format!("restored {} runs", runs.len()),
            }));
            list(store)?
        }
        (StoreTask::Append(_), None) => list(store)?,
    };
    Ok(Arc::clone(told.runs.insert(Arc::new(snapshot))))
}

/// Reads the stored runs.
fn list(store: &Store) -> Result<Snapshot> {
    let listing = store.list()?;
    Ok(Snapshot::annotated(listing.records, listing.damaged, store.annotations()))
}
