//! Executes the effects requested by `update` (files, sweeps, analyses), each on its own thread. Results
//! come back as messages; nothing here touches the state.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};

use super::prelude::*;
use super::task::{Questions, guarded};
use super::update::{BackgroundJob, Message, SweepEnd, SweepOrder};
use super::{format, terminal};
use crate::desk::{self, Runner};
use base::error::Result;
use lab::launch::Cancel;
use lab::store::Store;
use lab::sweep::{Experiment, SweepSelection};

/// Maximum time to wait for a file when the workbench quits; a network file system may hang.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Performer {
    store: Store,
    answers: Sender<Message>,
    cancel: Cancel,
    sweep: Option<JoinHandle<()>>,
    /// Threads that write files.
    writing: Vec<JoinHandle<()>>,
    questions: Questions,
    runs: Worker,
    /// True while a read is queued but not started; a second one would be redundant.
    reading: Arc<AtomicBool>,
    /// True while this process runs a sweep, which reports its own runs.
    sweeping: Arc<AtomicBool>,
}

impl Performer {
    pub fn new(dir: &Path, answers: Sender<Message>) -> Self {
        Self {
            store: Store::open(dir).remembering(),
            cancel: Cancel::default(),
            sweep: None,
            writing: Vec::new(),
            questions: Questions::default(),
            runs: Worker::new(answers.clone()),
            reading: Arc::default(),
            sweeping: Arc::default(),
            answers,
        }
    }

    /// Rereads the runs whenever another process changes them. The thread lives as long as the process.
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

    pub fn perform(&mut self, effect: Effect) {
        let store = self.store.clone();
        match effect {
            // handled by the event loop
            Effect::Quit { .. } => {}
            Effect::Ask(task) => {
                let answers = self.answers.clone();
                // the receiver is gone only when the workbench is closing
                self.questions.ask(task, move |answer| drop(answers.send(Message::Answered(answer))));
            }
            Effect::Store(StoreTask::Read) => read(&store, &self.runs, &self.reading, &self.answers),
            Effect::Store(task) => {
                let answers = self.answers.clone();
                self.runs.ask(move |sent| {
                    let mut say = |note| drop(answers.send(Message::Notified(note)));
                    Message::Runs(work_on(&store, task, sent, &mut say).map_err(|e| format::error(&e)))
                });
            }
            Effect::Sweep(SweepOrder::Start { experiment, choice }) => self.start(experiment, choice),
            Effect::Sweep(SweepOrder::Pause(true)) => self.cancel.pause(),
            Effect::Sweep(SweepOrder::Pause(false)) => self.cancel.resume(),
            Effect::Sweep(SweepOrder::CancelCell(cell)) => self.cancel.cell(cell),
            Effect::Sweep(SweepOrder::RestoreCell(cell)) => self.cancel.restore_cell(cell),
            Effect::Sweep(SweepOrder::CancelAll) => self.cancel.all(),
            Effect::Export { export, path } => {
                let holds = export.holds.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
                self.spawn(move || match desk::export::write_free(path, |path| export.write(path)) {
                    Ok(path) => Ok(format!("wrote {}{holds}", path.display())),
                    Err(error) => Err(format::error(&error)),
                });
            }
            Effect::Do(BackgroundJob(work)) => self.spawn(work),
            Effect::Copy(text) => self.report(terminal::copy(&text)),
            Effect::CaptureMouse(capture) => self.report(terminal::capture_mouse(capture)),
        }
    }

    /// Cancels running work; waits for it to be stored if `patience` is set, and for files that are being written. Returns
    /// true if it waited for a file, whose message is still in the channel.
    pub fn finish(mut self, patience: bool) -> bool {
        self.cancel.all();
        if let (true, Some(sweep)) = (patience, self.sweep) {
            // a panic in it was already reported as a message
            let _ = sweep.join();
        }
        let mut is_written = || {
            self.writing.retain(|file| !file.is_finished());
            self.writing.is_empty()
        };
        if is_written() {
            return false;
        }
        // a closed stderr is no reason to fail
        let _ = writeln!(std::io::stderr(), "writing the export…");
        let asked = Instant::now();
        while !is_written() && asked.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !is_written() {
            let _ = writeln!(std::io::stderr(), "gave up after a minute: the file is not complete");
        }
        true
    }

    fn report(&self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.send(Message::Notified(Err(format!("the terminal: {error}"))));
        }
    }

    fn send(&self, message: Message) {
        // the receiver is gone only when the workbench is closing
        let _ = self.answers.send(message);
    }

    /// Runs `work`, which writes a file, on a thread; a panic becomes a message.
    fn spawn(&mut self, work: impl FnOnce() -> std::result::Result<String, String> + Send + 'static) {
        let answers = self.answers.clone();
        self.writing.retain(|file| !file.is_finished());
        self.writing.push(std::thread::spawn(move || {
            let result = guarded(work).unwrap_or_else(Err);
            let _ = answers.send(Message::Notified(result));
        }));
    }

    fn start(&mut self, experiment: Arc<Experiment>, choice: SweepSelection) {
        self.cancel = Cancel::default();
        let runner = Runner { watch: true, ..Runner::new(self.store.clone(), self.cancel.clone()) };
        let (answers, sweeping) = (self.answers.clone(), Arc::clone(&self.sweeping));
        sweeping.store(true, Ordering::Relaxed);
        self.sweep = Some(std::thread::spawn(move || {
            let events = answers.clone();
            let result = guarded(move || {
                let outcome = runner.experiment(&experiment, choice, &mut |event| {
                    let _ = events.send(Message::Request(Request::SweepNews(Box::new(event))));
                })?;
                Ok(SweepEnd { failed: outcome.failed, interrupted: outcome.interrupted })
            });
            sweeping.store(false, Ordering::Relaxed);
            let result = result.and_then(|r: Result<SweepEnd>| r.map_err(|e| format::error(&e)));
            let _ = answers.send(Message::Request(Request::SweepEnded(result)));
        }));
    }
}

/// Thread that executes jobs on the most recent run list in submission order, so answers arrive in that
/// order.
#[derive(Clone, Debug)]
struct Worker(Sender<WorkerJob>);

#[derive(Default)]
struct SentRuns {
    runs: Option<Arc<Snapshot>>,
    /// Store fingerprint before the read; `None` if the runs have changed since.
    as_of: Option<u64>,
}

type WorkerJob = Box<dyn FnOnce(&mut SentRuns) -> Message + Send>;

impl Worker {
    /// Starts a worker that sends answers to `answers`; its thread ends when the worker is dropped.
    fn new(answers: Sender<Message>) -> Self {
        let (ask, asked) = unbounded::<WorkerJob>();
        std::thread::spawn(move || {
            let mut sent = SentRuns::default();
            for work in asked {
                let message = guarded(|| work(&mut sent));
                let message = message.unwrap_or_else(|error| Message::Notified(Err(error)));
                if answers.send(message).is_err() {
                    return;
                }
            }
        });
        Self(ask)
    }

    fn ask(&self, work: impl FnOnce(&mut SentRuns) -> Message + Send + 'static) {
        // the thread ends only with the workbench
        let _ = self.0.send(Box::new(work));
    }
}

/// Queues a read of the runs unless one is already waiting.
fn read(store: &Store, runs: &Worker, reading: &Arc<AtomicBool>, answers: &Sender<Message>) {
    if reading.swap(true, Ordering::AcqRel) {
        return;
    }
    let (store, reading, answers) = (store.clone(), Arc::clone(reading), answers.clone());
    runs.ask(move |sent| {
        // later changes may be missed by this read, so a new one may be queued
        reading.store(false, Ordering::Release);
        let mut say = |note| drop(answers.send(Message::Notified(note)));
        Message::Runs(work_on(&store, StoreTask::Read, sent, &mut say).map_err(|e| format::error(&e)))
    });
}

/// Reads or changes the stored runs; `say` shows messages beyond the new run list.
fn work_on(
    store: &Store,
    task: StoreTask,
    sent: &mut SentRuns,
    say: &mut dyn FnMut(std::result::Result<String, String>),
) -> Result<Arc<Snapshot>> {
    let before = std::mem::take(&mut sent.as_of);
    // without a changed list, the store is reread
    let changed = match (task, sent.runs.as_ref()) {
        (StoreTask::Read, known) => {
            sent.as_of = Some(store.fingerprint()?);
            match known {
                // an unchanged store is not reread
                Some(known) if before == sent.as_of => return Ok(Arc::clone(known)),
                _ => None,
            }
        }
        (StoreTask::Append(mut records), known) => known.map(|known| {
            // one that another process ran, or that was cancelled, ends without being handed over
            records.extend(known.running_runs().filter_map(|run| store.get(run).ok()));
            known.and(records)
        }),
        (StoreTask::Annotate { runs, edit }, known) => {
            store.annotate(&runs, &edit)?;
            known.map(|known| known.with(store.annotations()))
        }
        (StoreTask::Delete(runs), _) => {
            if let Err(error) = store.delete(&runs) {
                say(Err(format::error(&error)));
            }
            // runs that could not be deleted reappear
            None
        }
        (StoreTask::Restore, _) => {
            say(Ok(match store.restore_last()?.as_slice() {
                [] => "no deletion to undo".to_owned(),
                [run] => format!("restored {run}"),
                runs => format!("restored {} runs", runs.len()),
            }));
            None
        }
    };
    let snapshot = match changed {
        Some(snapshot) => snapshot,
        None => {
            let listing = store.list()?;
            Snapshot::annotated(listing.records, listing.damaged, store.annotations())
        }
    };
    Ok(Arc::clone(sent.runs.insert(Arc::new(snapshot))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::tests::fixtures::{record, spec};
    use table::{Backend, P2p};

    #[test]
    fn a_run_that_was_running_at_an_undo_is_listed_as_ended_once_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).remembering();
        let spec = spec("ladder", 2, P2p::On, Backend::Cpu);
        let begin = || store.begin(&spec, None, 0).unwrap().id;
        let finish = |id: &str| store.finish(&record(id, spec.clone(), 900.0)).unwrap();
        let (first, second) = (begin(), begin());
        finish(&first);
        let mut sent = SentRuns::default();
        let mut work = |task| work_on(&store, task, &mut sent, &mut |_| ()).unwrap();
        work(StoreTask::Delete(vec![first]));
        assert_eq!(work(StoreTask::Restore).running, 1);
        finish(&second);
        let runs = work(StoreTask::Append(Vec::new()));
        assert_eq!((runs.running, runs.records.len()), (0, 2));
    }
}
