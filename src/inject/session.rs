//! The recorder of a process: event buffers, the window, the thread that writes, and fork and exit.
//!
//! Nothing here may disturb the program: no function waits for the disk, a full buffer drops events and counts them,
//! and after a failed write the recorder falls silent. The part is opened anew for each write, because programs close
//! descriptors that they did not open. A forked child starts over with a session of its own; the locks of the parent,
//! which other threads may have held, are never touched again.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::control::{CONTROL_FILE, Control, DIRECTORY_VARIABLE};
use crate::format::{CHUNK_HEADER, MOST_TEXT, RecordingEvent};
use crate::{cupti, format, sys};

/// Interval between writes: what SIGKILL can lose. The first ones are shorter, for short processes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
const FIRST_WRITE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum delay of the program's exit.
const EXIT_DELAY_LIMIT: Duration = Duration::from_secs(2);
/// Number of event buffers; a thread uses the one of its id modulo this number.
const SHARDS: usize = 64;
/// Maximum size of one buffer (bytes).
const MOST_BUFFERED: usize = 8 << 20;
/// Maximum number of different texts.
const MOST_TEXTS: usize = 500_000;
const RANK_VARIABLES: [&str; 15] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "CUDA_VISIBLE_DEVICES",
    "VLLM_DP_RANK",
];

static CURRENT: AtomicPtr<RecordingSession> = AtomicPtr::new(std::ptr::null_mut());
/// Directory of the recording; `None` if this process is not recorded.
static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();

thread_local! {
    /// True while this thread is in the recorder: a nested call, as from a signal handler, does nothing.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Session and thread id.
    static THREAD: Cell<(*const RecordingSession, u32)> = const { Cell::new((std::ptr::null(), 0)) };
}

#[derive(Debug)]
pub struct RecordingSession {
    pid: u32,
    start_ns: u64,
    directory: PathBuf,
    file: PathBuf,
    variables: Vec<Vec<u8>>,
    shards: [Mutex<Vec<u8>>; SHARDS],
    /// Events to write before those of the shards: texts and metadata.
    first: Mutex<Vec<u8>>,
    texts: RwLock<HashMap<Box<[u8]>, u32>>,
    /// Recording window, from the control file.
    window_start_ns: AtomicU64,
    window_stop_ns: AtomicU64,
    limit: AtomicU64,
    lost: AtomicU64,
    written: AtomicU64,
    is_silent: AtomicBool,
    has_worker: AtomicBool,
    /// True if CUPTI was set up, so its records must be flushed.
    pub(crate) has_cupti: AtomicBool,
    ending: Mutex<Ending>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Running,
    Asked,
    Done,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the body of a call from foreign code: no panic leaves it, and it is not entered twice by a thread.
pub fn guarded<T>(otherwise: T, body: impl FnOnce(&'static RecordingSession) -> T) -> T {
    let entered = INSIDE.try_with(|inside| !inside.replace(true)).unwrap_or(false);
    if !entered {
        return otherwise;
    }
    let result = catch_unwind(AssertUnwindSafe(|| RecordingSession::current().map(body)));
    let _ = INSIDE.try_with(|inside| inside.set(false));
    match result {
        Ok(Some(result)) => result,
        Ok(None) => otherwise,
        Err(_) => {
            // a bug of ours must not cost the program more than its recording
            if let Some(session) = RecordingSession::existing() {
                session.is_silent.store(true, Ordering::Relaxed);
            }
            otherwise
        }
    }
}

extern "C" fn forked() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
    let _ = INSIDE.try_with(|inside| inside.set(false));
}

extern "C" fn exiting() {
    let _ = catch_unwind(|| {
        if let Some(session) = RecordingSession::existing() {
            session.end();
        }
    });
}

/// Ends the session before handlers that the program's libraries registered until now.
pub(crate) fn end_before_others() {
    sys::at_exit(exiting);
}

impl RecordingSession {
    fn existing() -> Option<&'static Self> {
        // SAFETY: sessions are leaked, so the address stays valid.
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
    }

    /// The session of this process, created on first use; `None` if the process is not recorded.
    pub fn current() -> Option<&'static Self> {
        Self::existing().or_else(|| {
            let directory = DIRECTORY.get_or_init(|| {
                let directory = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from)?;
                // another user's directory: record nothing and say nothing
                std::fs::read(directory.join(CONTROL_FILE)).ok()?;
                // ours alone: std is part of the object
                std::panic::set_hook(Box::new(|_| {}));
                sys::at_fork_in_child(forked);
                sys::at_exit(exiting);
                Some(directory)
            });
            let session = Box::into_raw(Box::new(Self::new(directory.clone()?)));
            match CURRENT.compare_exchange(
                std::ptr::null_mut(),
                session,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                // SAFETY: leaked above.
                Ok(_) => Some(unsafe { &*session }),
                Err(first) => {
                    // SAFETY: made above and given to nobody.
                    drop(unsafe { Box::from_raw(session) });
                    // SAFETY: leaked by the thread that was first.
                    Some(unsafe { &*first })
                }
            }
        })
    }

    fn new(directory: PathBuf) -> Self {
        let (pid, start_ns) = (std::process::id(), sys::realtime_ns());
        let host = String::from_utf8_lossy(&sys::host_name()).replace(['/', '\0'], "_");
        let set =
            |name: &&str| std::env::var(name).ok().map(|value| format!("{name}={value}").into_bytes());
        let session = Self {
            pid,
            start_ns,
            file: directory.join(format!("{host}-{pid}-{start_ns}.{}", format::SUFFIX)),
            directory,
            variables: RANK_VARIABLES.iter().filter_map(set).collect(),
            shards: [const { Mutex::new(Vec::new()) }; SHARDS],
            first: Mutex::new(Vec::new()),
            texts: RwLock::default(),
            window_start_ns: AtomicU64::new(u64::MAX),
            window_stop_ns: AtomicU64::new(u64::MAX),
            limit: AtomicU64::new(u64::MAX),
            lost: AtomicU64::new(0),
            written: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            has_worker: AtomicBool::new(false),
            has_cupti: AtomicBool::new(false),
            ending: Mutex::new(Ending::Running),
            changed: Condvar::new(),
        };
        session.read_control();
        session
    }

    fn read_control(&self) {
        let bytes = std::fs::read(self.directory.join(CONTROL_FILE)).unwrap_or_default();
        if let Some(control) = Control::decode(&bytes) {
            self.window_start_ns.store(control.start_ns, Ordering::Relaxed);
            self.window_stop_ns.store(control.stop_ns, Ordering::Relaxed);
            self.limit.store(control.limit, Ordering::Relaxed);
        }
    }

    /// True if events of this time are wanted.
    pub fn wants(&self, time_ns: u64) -> bool {
        !self.is_silent.load(Ordering::Relaxed)
            && time_ns >= self.window_start_ns.load(Ordering::Relaxed)
            && time_ns < self.window_stop_ns.load(Ordering::Relaxed)
    }

    /// Id of the calling thread.
    pub fn thread(&self) -> u32 {
        let known = THREAD.try_with(Cell::get).unwrap_or((std::ptr::null(), 0));
        if std::ptr::eq(known.0, self) {
            return known.1;
        }
        let id = sys::thread_id();
        let _ = THREAD.try_with(|thread| thread.set((self, id)));
        id
    }

    /// Adds events of this thread. `encode` runs under the lock of a shard, which the writer and threads with equal
    /// ids modulo `SHARDS` share.
    pub fn add(&'static self, thread: u32, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        let mut shard = lock(&self.shards[thread as usize % SHARDS]);
        if shard.len() < MOST_BUFFERED {
            encode(&mut shard);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        drop(shard);
        self.ensure_worker();
    }

    /// Adds an event that is kept whatever the window.
    pub fn add_always(&'static self, event: &RecordingEvent) {
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        event.encode(&mut lock(&self.first));
        self.ensure_worker();
    }

    pub fn note(&'static self, text: String) {
        self.add_always(&RecordingEvent::Note { text: text.into_bytes() });
    }

    /// Number of a text, defined on first use; 0 if there are too many.
    pub fn text(&self, text: &[u8]) -> u32 {
        let text = &text[..text.len().min(MOST_TEXT)];
        if let Some(id) = self.texts.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return *id;
        }
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = texts.get(text) {
            return *id;
        }
        if texts.len() >= MOST_TEXTS {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return 0;
        }
        let id = texts.len() as u32 + 1;
        texts.insert(text.into(), id);
        RecordingEvent::Text { id, text: text.to_vec() }.encode(&mut lock(&self.first));
        id
    }

    fn ensure_worker(&'static self) {
        if self.has_worker.load(Ordering::Relaxed) || self.has_worker.swap(true, Ordering::AcqRel) {
            return;
        }
        let thread = std::thread::Builder::new().name("ladderscope".into());
        let started = sys::with_signals_blocked(|| {
            thread.stack_size(256 << 10).spawn(move || {
                let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
                if worked.is_err() {
                    self.is_silent.store(true, Ordering::Relaxed);
                }
                *lock(&self.ending) = Ending::Done;
                self.changed.notify_all();
            })
        });
        if started.is_err() {
            self.is_silent.store(true, Ordering::Relaxed);
        }
    }

    /// Body of the writing thread.
    fn work(&'static self) {
        let _ = INSIDE.try_with(|inside| inside.set(true));
        sys::be_nice();
        let mut command = Vec::new();
        self.describe(&mut command);
        for text in &self.variables {
            RecordingEvent::Variable { text: text.clone() }.encode(&mut lock(&self.first));
        }
        let mut described = Instant::now();
        let mut interval = FIRST_WRITE_INTERVAL;
        loop {
            let ending = lock(&self.ending);
            let waits = |ending: &mut Ending| *ending == Ending::Running;
            let (ending, _) = self
                .changed
                .wait_timeout_while(ending, interval, waits)
                .unwrap_or_else(PoisonError::into_inner);
            let asked = *ending != Ending::Running;
            drop(ending);
            interval = (2 * interval).min(WRITE_INTERVAL);
            self.read_control();
            if described.elapsed() > Duration::from_secs(1) || asked {
                described = Instant::now();
                self.describe(&mut command);
            }
            if self.has_cupti.load(Ordering::Acquire) {
                if asked {
                    // the last flush may hang
                    self.write();
                }
                cupti::flush(self, asked);
            }
            self.write();
            if asked {
                let (time_ns, lost) = (sys::realtime_ns(), self.lost.load(Ordering::Relaxed));
                let end = RecordingEvent::End { time_ns, lost, cpu_ns: sys::thread_cpu_ns() };
                end.encode(&mut lock(&self.first));
                self.write();
                return;
            }
        }
    }

    /// Adds the clocks, and the process if its title changed.
    fn describe(&self, known: &mut Vec<u8>) {
        let mut command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        while command.last() == Some(&0) {
            command.pop();
        }
        command.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        command.truncate(MOST_TEXT);
        let mut first = lock(&self.first);
        if *known != command || known.is_empty() {
            let parent = std::os::unix::process::parent_id();
            let process = RecordingEvent::Process {
                pid: self.pid,
                parent,
                start_ns: self.start_ns,
                host: sys::host_name(),
                command: command.clone(),
            };
            process.encode(&mut first);
            *known = command;
        }
        let clock =
            RecordingEvent::Clock { realtime_ns: sys::realtime_ns(), monotonic_ns: sys::monotonic_ns() };
        clock.encode(&mut first);
    }

    /// Appends everything buffered to the part, texts before the events that use them.
    fn write(&self) {
        let mut chunks: Vec<Vec<u8>> = Vec::new();
        for shard in &self.shards {
            let events = std::mem::take(&mut *lock(shard));
            if !events.is_empty() {
                chunks.push(events);
            }
        }
        let first = std::mem::take(&mut *lock(&self.first));
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        for events in std::iter::once(first).chain(chunks).filter(|events| !events.is_empty()) {
            let written = self.written.load(Ordering::Relaxed);
            let mut bytes = Vec::with_capacity(events.len() + CHUNK_HEADER + format::HEADER);
            if written == 0 {
                bytes.extend_from_slice(&format::header());
            }
            bytes.extend_from_slice(&(events.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&format::checksum(&events).to_le_bytes());
            bytes.extend_from_slice(&events);
            let total = written + bytes.len() as u64;
            if let Err(error) = self.append(&bytes) {
                self.fall_silent(written, &format!("errno-{}", error.raw_os_error().unwrap_or(0)));
                return;
            }
            self.written.store(total, Ordering::Relaxed);
            if total > self.limit.load(Ordering::Relaxed) {
                self.fall_silent(total, "limit");
                return;
            }
        }
    }

    fn append(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options.open(&self.file)?.write_all(bytes)
    }

    /// Ends the recording of this process, cuts what was written halfway, and leaves an empty file that says why.
    fn fall_silent(&self, length: u64, why: &str) {
        self.is_silent.store(true, Ordering::Relaxed);
        if let Ok(file) = OpenOptions::new().write(true).open(&self.file) {
            let _ = file.set_len(length);
        }
        let _ = std::fs::File::create(self.file.with_extension(why));
    }

    /// Asks the writing thread for a last write and waits for it, but not for long.
    fn end(&self) {
        if !self.has_worker.load(Ordering::Acquire) {
            return;
        }
        let mut ending = lock(&self.ending);
        // registered twice, it waits once
        if *ending != Ending::Running {
            return;
        }
        *ending = Ending::Asked;
        self.changed.notify_all();
        let waits = |ending: &mut Ending| *ending != Ending::Done;
        drop(self.changed.wait_timeout_while(ending, EXIT_DELAY_LIMIT, waits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session whose worker never starts: `add` only fills buffers.
    fn session(directory: &tempfile::TempDir) -> &'static RecordingSession {
        let session = RecordingSession::new(directory.path().to_owned());
        session.has_worker.store(true, Ordering::Relaxed);
        Box::leak(Box::new(session))
    }

    fn part_bytes(session: &RecordingSession) -> u64 {
        std::fs::metadata(&session.file).map_or(0, |metadata| metadata.len())
    }

    #[test]
    fn full_buffers_drop_events_and_count_them() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        session.add(1, |buffer| buffer.resize(MOST_BUFFERED, 0));
        session.add(1, |_| panic!("the buffer is full"));
        assert_eq!(session.lost.load(Ordering::Relaxed), 1);
        session.add(2, |buffer| buffer.push(0));
        assert_eq!(session.lost.load(Ordering::Relaxed), 1, "another thread's buffer has room");
        session.write();
        session.add(1, |buffer| buffer.push(0));
        assert_eq!(session.lost.load(Ordering::Relaxed), 1, "a write empties the buffers");
    }

    #[test]
    fn only_events_in_the_window_are_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        assert!(!session.wants(0) && !session.wants(1 << 60), "closed until the control file opens it");
        let control = Control { start_ns: 10, stop_ns: 20, limit: u64::MAX };
        std::fs::write(directory.path().join(CONTROL_FILE), control.encode()).unwrap();
        session.read_control();
        assert_eq!([9, 10, 19, 20].map(|time_ns| session.wants(time_ns)), [false, true, true, false]);
    }

    #[test]
    fn a_process_over_its_limit_falls_silent_and_keeps_what_it_wrote() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::always(8);
        std::fs::write(directory.path().join(CONTROL_FILE), control.encode()).unwrap();
        let session = session(&directory);
        assert!(session.wants(5));
        session.add(1, |buffer| buffer.extend([0; 100]));
        session.write();
        let written = part_bytes(session);
        assert!(written > 100, "{written}");
        assert!(session.file.with_extension("limit").exists());
        assert!(!session.wants(5));
        session.add(1, |_| panic!("a silent recorder buffers nothing"));
        session.write();
        assert_eq!(part_bytes(session), written);
    }
}
