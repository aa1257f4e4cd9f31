//! Runs as child processes: own process group, events as JSON lines, watchdog, clean-up.
//!
//! The parent writes one `Request` to the child's standard input and keeps the pipe open, so that the
//! child notices when the parent dies, even by kill -9. The child sends [`run::RunEvent`]s, one JSON line each, on
//! standard output. Its standard error is the run's log.
//!
//! If a launcher (torchrun, srun, mpirun) started several processes, one per rank, each starts a child for its rank of
//! a run, and the children connect to each other (ranks.rs).
//!
//! This file is the parent: it starts the process, reads its output, ends it and stores the result.

mod child;
mod ending;
mod ranks;

pub use child::child_main;
pub use ranks::{LaunchedRanks, on_all_ranks};

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

use self::ending::{ChildEnd, StopReason};
use crate::store::{RunDir, Store};
use base::atomic::AtomicFile;
use base::error::{Error, Result};
use base::regular;
use run::{RunEvent, executor};
use table::{Record, Spec, Status};
use trace::export;

/// Time between SIGTERM and SIGKILL, and between a process's end and giving up on its pipes.
const KILL_DELAY: Duration = Duration::from_secs(2);
/// Poll interval for cancellation while no lines arrive, and while a sweep is paused.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum log size in bytes; the rest is dropped.
const LOG_LIMIT: u64 = 8 << 20;
/// Silence after which a run counts as hung.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);
/// Time a process may take to exit after its final event.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

const TRACE: &str = "trace.parquet";
const LOG: &str = "log.txt";

/// Job of a child, the single line on its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Request {
    pub run: String,
    /// Directory of the run; `None` on ranks above 0, which store nothing.
    pub dir: Option<PathBuf>,
    pub spec: Spec,
    /// Report decode steps as they happen.
    pub watch: bool,
    /// Maximum time without progress of any rank (see [`run::cuda::RankPlacement::timeout`]).
    pub timeout: Duration,
    /// Id at which the children of all ranks meet, if each rank is a process.
    pub job: Option<u64>,
}

/// Runs a cell in a child process of the same binary.
#[derive(Clone, Debug)]
pub struct ProcessExecutor {
    pub binary: PathBuf,
    /// Ends a run that is silent for longer than this.
    pub silence: Duration,
    /// Makes runs report their decode steps ([`RunEvent::Step`]).
    pub watch: bool,
    /// Destination of a copy of the trace (`run --trace FILE`).
    pub trace_copy: Option<PathBuf>,
    /// Kills a run that does not exit this long after its result.
    pub exit_timeout: Duration,
    /// Maximum time without progress of any rank (see [`run::cuda::RankPlacement::timeout`]).
    pub timeout: Duration,
    /// Set if a launcher started several processes.
    pub ranks: Option<Arc<LaunchedRanks>>,
}

impl ProcessExecutor {
    /// Uses the current binary and the default timeouts. Fails if the path of the running binary is unknown.
    pub fn new() -> Result<Self> {
        let binary = std::env::current_exe()
            .map_err(|e| Error::failed(format!("the running binary cannot be found: {e}")))?;
        Ok(Self {
            binary,
            silence: SILENCE_TIMEOUT,
            watch: false,
            trace_copy: None,
            exit_timeout: EXIT_TIMEOUT,
            timeout: run::PROGRESS_TIMEOUT,
            ranks: None,
        })
    }

    fn spawn(&self, job: &Request) -> Result<Child> {
        let spec = &job.spec;
        let mut command = Command::new(&self.binary);
        command.arg("__run").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        executor(spec.backend)?.prepare(&mut command, spec);
        // own process group: it can be killed with all its children, and terminal interrupts do not reach it
        command.envs(&spec.env).process_group(0);
        command.spawn().map_err(Error::io(&self.binary))
    }

    fn supervise(
        &self,
        request: &RunRequest<'_>,
        run: &RunDir,
        emit: &mut dyn FnMut(ExecutorEvent),
    ) -> Record {
        let record = Record::new(request.spec.clone(), Status::Failed, None);
        let mut job = Request {
            run: run.id.clone(),
            dir: Some(run.path.clone()),
            spec: request.spec.clone(),
            watch: self.watch,
            timeout: self.timeout,
            job: None,
        };
        let cancelled = || request.cancel.is_cell(request.cell).then_some(StopReason::Cancelled);
        let log = Log::create(&run.path.join(LOG));
        let Some(ranks) = self.ranks.as_ref().filter(|_| LaunchedRanks::take_part(request.spec)) else {
            return self.child(&job, log, &cancelled, emit).conclude(record);
        };
        match ranks.begin(request.cell, request.spec) {
            Err(e) => ChildEnd::never_began(e.to_string()).conclude(record),
            Ok(id) => {
                job.job = Some(id);
                let stopped = || {
                    cancelled().or_else(|| ranks.check().err().map(|e| StopReason::Apart(e.to_string())))
                };
                ranks.conclude(self.child(&job, log, &stopped, emit).conclude(record))
            }
        }
    }

    /// Runs one process from start to end, and stops it once `stopped` returns a reason.
    fn child(
        &self,
        job: &Request,
        log: Log,
        stopped: &dyn Fn() -> Option<StopReason>,
        emit: &mut dyn FnMut(ExecutorEvent),
    ) -> ChildEnd {
        let mut child = match self.spawn(job) {
            Ok(child) => child,
            Err(e) => return ChildEnd::never_began(format!("its process could not be started: {e}")),
        };
        // kept open to the end: the child exits when the pipe closes
        let mut stdin = child.stdin.take();
        if let (Some(stdin), Ok(mut line)) = (&mut stdin, serde_json::to_string(job)) {
            line.push('\n');
            // the exit status reports a child that died already
            let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush());
        }
        let (sender, lines) = crossbeam_channel::bounded(1024);
        if let Some(out) = child.stdout.take() {
            listen(out, sender.clone(), Line::Out);
        }
        if let Some(err) = child.stderr.take() {
            listen(err, sender.clone(), Line::Log);
        }
        drop(sender);
        // a process reports memory twice a second, so a longer silence means that it is stopped or hangs. The run's
        // own watchdog acts earlier, with a more precise message
        let supervised = executor(job.spec.backend).is_ok_and(|executor| executor.is_supervised());
        let silence = self.silence.min(if supervised { self.timeout * 2 } else { self.timeout });
        let mut end = self.listen_and_watch(&child, &lines, silence, stopped, log, emit);
        end.status = child.wait().ok();
        drop(stdin);
        end
    }

    /// Reads output until the process has ended and its pipes are drained. Does not reap the process, so the result
    /// has no exit status yet.
    fn listen_and_watch(
        &self,
        child: &Child,
        lines: &Receiver<Line>,
        silence: Duration,
        stopped: &dyn Fn() -> Option<StopReason>,
        mut log: Log,
        emit: &mut dyn FnMut(ExecutorEvent),
    ) -> ChildEnd {
        let mut end = ChildEnd::default();
        let group = Pid::from_child(child);
        let mut last_sign = Instant::now();
        let mut stop: Option<(StopReason, Instant)> = None;
        let mut killed = false;
        let mut ended: Option<Instant> = None;
        let mut finished_at: Option<Instant> = None;
        loop {
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok(message) => {
                    last_sign = Instant::now();
                    on_line(message, &mut log, &mut end, emit);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // pipes are closed and the process has ended
                Err(RecvTimeoutError::Disconnected) if ended.is_some() => break,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
            }
            if ended.is_none() && has_ended(group) {
                // kills all that the process started; not yet reaped, its id cannot be reused
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                ended = Some(Instant::now());
            }
            // something outside the group may hold the pipes open forever
            if ended.is_some_and(|at| at.elapsed() > KILL_DELAY) && lines.is_empty() {
                break;
            }
            if finished_at.is_none() && (end.outcome.is_some() || end.error.is_some()) {
                finished_at = Some(Instant::now());
            }
            let exit_overdue =
                ended.is_none() && finished_at.is_some_and(|at| at.elapsed() > self.exit_timeout);
            let kill_due = stop.as_ref().is_some_and(|(_, since)| since.elapsed() > KILL_DELAY);
            if !killed && (exit_overdue || kill_due) {
                killed = true;
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            if stop.is_none() {
                let silent = last_sign.elapsed() > silence && ended.is_none();
                let why = stopped().or_else(|| silent.then_some(StopReason::Silent(silence)));
                if let Some(why) = why {
                    stop = Some((why, Instant::now()));
                    let _ = rustix::process::kill_process_group(group, Signal::TERM);
                }
            }
        }
        end.stop = stop.map(|(why, _)| why);
        end
    }

    fn copy_trace(&self, run: &RunDir, record: &mut Record) {
        let Some(to) = self.trace_copy.as_ref().filter(|_| record.trace.is_some()) else { return };
        let copy = || {
            let from = run.path.join(TRACE);
            let format = export::ExportFormat::of_recording(to);
            if format != export::ExportFormat::Parquet {
                return export::write_in(&trace::read(&from)?, format, to);
            }
            let mut trace = regular::open(&from).map_err(Error::io(&from))?;
            let mut file = AtomicFile::create_all(to)?;
            std::io::copy(&mut trace, file.file_mut()).map_err(Error::io(to))?;
            file.finish()
        };
        if let Err(e) = copy() {
            record.warnings.push(format!("the trace could not be copied: {e}"));
        }
    }
}

impl Executor for ProcessExecutor {
    fn run(&self, request: &RunRequest<'_>, emit: &mut dyn FnMut(ExecutorEvent)) -> Record {
        let begun = request.store.begin(request.spec, request.experiment, request.round);
        let mut record = match &begun {
            Ok(run) => {
                emit(ExecutorEvent::Started(run.id.clone()));
                let mut record = self.supervise(request, run, emit);
                record.run = run.id.clone();
                // removes files that the process was writing when it was ended
                request.store.remove_abandoned();
                if run.path.join(TRACE).exists() {
                    record.trace = Some(format!("{}/{TRACE}", run.id));
                }
                self.copy_trace(run, &mut record);
                record
            }
            Err(e) => {
                let reason = format!("the run's directory could not be made: {e}");
                Record::new(request.spec.clone(), Status::Failed, Some(reason))
            }
        };
        record.created = request.store.now();
        record.round = request.round;
        record.experiment = request.experiment.map(str::to_owned);
        if record.environment.is_empty() {
            // the run reported none, but the machine is known
            record.environment = machine::environment::collect();
        }
        if begun.is_ok()
            && let Err(e) = request.store.finish(&record)
        {
            // a result that was not stored does not count as success
            let reason = format!("it ended as {} and could not be stored: {e}", record.status.as_str());
            (record.status, record.metrics, record.overlap) = (Status::Failed, None, None);
            record.reason = Some(reason);
        }
        record
    }
}

enum Line {
    Out(String),
    Log(String),
}

/// Forwards lines of a pipe from a separate thread.
fn listen(pipe: impl Read + Send + 'static, to: Sender<Line>, wrap: fn(String) -> Line) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            if to.send(wrap(text.trim_end_matches(['\n', '\r']).to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
}

fn on_line(message: Line, log: &mut Log, end: &mut ChildEnd, emit: &mut dyn FnMut(ExecutorEvent)) {
    match message {
        Line::Log(line) => {
            log.write(&line);
            end.log(&line);
            emit(ExecutorEvent::Log(line));
        }
        Line::Out(line) if line.trim().is_empty() => {}
        Line::Out(line) => match serde_json::from_str::<RunEvent>(&line) {
            Ok(event) => {
                match &event {
                    RunEvent::Warning { message } => end.warn(message.clone()),
                    RunEvent::Error { message, .. } => end.error = Some(message.clone()),
                    RunEvent::End { outcome } => end.outcome = Some(outcome.clone()),
                    _ => {}
                }
                emit(ExecutorEvent::Event(event));
            }
            Err(_) => {
                let start: String = line.chars().take(80).collect();
                let warning = format!("standard output had a line that is no event: '{start}'");
                end.warn(warning.clone());
                log.write(&line);
                emit(ExecutorEvent::Event(RunEvent::Warning { message: warning }));
            }
        },
    }
}

/// True if the process has ended. Does not reap it, so its id stays valid.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Log file of a run, bounded in size. Write errors never fail a run.
struct Log {
    file: Option<File>,
    left: u64,
}

impl Log {
    fn create(path: &Path) -> Self {
        let file = regular::open_or_make(path).and_then(|file| file.set_len(0).map(|()| file));
        Self { file: file.ok(), left: LOG_LIMIT }
    }

    pub fn none() -> Self {
        Self { file: None, left: 0 }
    }

    fn write(&mut self, line: &str) {
        let Some(file) = &mut self.file else { return };
        let length = line.len() as u64 + 1;
        if length > self.left {
            let _ =
                writeln!(file, "... the log is cut here: it was longer than {} MiB", LOG_LIMIT >> 20);
            self.file = None;
            return;
        }
        self.left -= length;
        let _ = writeln!(file, "{line}");
    }
}

/// Handle that cancels or pauses a sweep, or cancels single cells. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    all: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    cells: Arc<std::sync::Mutex<std::collections::BTreeSet<usize>>>,
}

impl Cancel {
    /// Cancels the whole sweep. The current run is ended and stored as interrupted.
    pub fn all(&self) {
        self.all.store(true, Ordering::SeqCst);
    }
    /// Cancels one cell in all rounds.
    pub fn cell(&self, cell: usize) {
        if let Ok(mut cells) = self.cells.lock() {
            cells.insert(cell);
        }
    }
    /// Takes back [`Cancel::cell`], for the rounds that the sweep has not reached.
    pub fn restore_cell(&self, cell: usize) {
        if let Ok(mut cells) = self.cells.lock() {
            cells.remove(&cell);
        }
    }
    /// Lets the current run finish and starts no other until [`Cancel::resume`].
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }
    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }
    /// True if paused and not cancelled.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) && !self.is_all()
    }
    /// Blocks while paused. Calls `paused` with true when the wait begins and with false when it ends.
    pub fn hold(&self, paused: &mut dyn FnMut(bool)) {
        if !self.is_paused() {
            return;
        }
        paused(true);
        while self.is_paused() {
            std::thread::sleep(POLL_INTERVAL);
        }
        paused(false);
    }
    /// True if the whole sweep is cancelled, not only a cell.
    pub fn is_all(&self) -> bool {
        self.all.load(Ordering::SeqCst)
    }
    /// True if this cell or the whole sweep is cancelled.
    pub fn is_cell(&self, cell: usize) -> bool {
        self.is_all() || self.cells.lock().is_ok_and(|cells| cells.contains(&cell))
    }
}

/// Runs one cell. Tests use a mock.
pub trait Executor: Sync {
    /// Runs the cell to its end. Polls `request.cancel` and sends events and log lines to `emit`. Never fails: a run
    /// that died becomes a record with status failed.
    fn run(&self, request: &RunRequest<'_>, emit: &mut dyn FnMut(ExecutorEvent)) -> Record;
}

#[derive(Debug)]
pub struct RunRequest<'a> {
    pub spec: &'a Spec,
    /// Index of the cell, for [`Cancel::is_cell`].
    pub cell: usize,
    /// Pass over the cells of the sweep, from 0.
    pub round: u32,
    pub experiment: Option<&'a str>,
    pub store: &'a Store,
    /// Handle with which the caller cancels or pauses.
    pub cancel: &'a Cancel,
}

#[derive(Clone, Debug)]
pub enum ExecutorEvent {
    /// Sent once the run's id is known.
    Started(String),
    Event(RunEvent),
    /// Line on the standard error of the run.
    Log(String),
}

#[cfg(test)]
mod tests;
