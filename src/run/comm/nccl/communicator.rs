//! A rank's membership in NCCL's group of ranks. Blocking: a call returns when it has done what was asked, since NCCL
//! hands what is asked of a non-blocking communicator to a thread of its own, every eager all-reduce too. A call that
//! waits for a rank that is gone would never return: a watchdog thread ends the communicator under it, when the
//! time-out is over or when another rank has given up.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

use super::library::{Functions, Nccl};
use super::types::{BYTE, Comm, Config, IN_PROGRESS, SUCCESS, SUM, UniqueId, data_type};
use crate::comm::{Exchange, Peers};
use base::error::{Error, Result};
use plan::DType;

/// How often the watchdog looks, and whoever waits for a call to end.
const LOOK: Duration = Duration::from_millis(5);
/// How long the end of a communicator may take before it is left to the end of the process.
const ENDING: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
/// A call that still has the communicator after so long waits for another rank: only ending it lets it return.
const STUCK: Duration = Duration::from_millis(50);

/// Says whether the other ranks are well.
pub type Alive = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// One rank's membership in an NCCL communicator; dropping it ends the membership.
#[derive(Debug)]
pub struct Communicator {
    shared: Arc<Shared>,
    rank: usize,
    /// Dropped with this: the watchdog ends.
    _watched: Sender<()>,
}

/// What the rank's thread and its watchdog share.
#[derive(Debug)]
struct Shared {
    nccl: &'static Nccl,
    /// NCCL's handle, which is null once the communicator was ended.
    comm: AtomicPtr<c_void>,
    /// Held while a call has the communicator.
    using: Mutex<()>,
    /// The call that is under way, and when it must have returned.
    call: Mutex<Option<(String, Instant)>>,
    /// Why the communicator was ended before its time.
    ended: Mutex<Option<String>>,
    timeout: Duration,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Communicator {
    /// Joins the ranks of `peers`, all of which must call this; rank 0's id goes to all. `bind` makes the rank's GPU the
    /// current one of the thread that calls it. Ends within the peers' time-out, and when one of them is gone; then all
    /// of them are told.
    ///
    /// # Errors
    ///
    /// A failure with NCCL's reason, or where a rank does not come within the time-out.
    pub fn join(
        nccl: &'static Nccl,
        peers: &Arc<Peers>,
        bind: impl Fn() -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let joined = (|| {
            let mine = match peers.rank() {
                0 => nccl.unique_id()?.as_bytes().to_vec(),
                _ => Vec::new(),
            };
            let id = UniqueId::from_bytes(&peers.broadcast(mine)?)?;
            let watched = Arc::clone(peers);
            let alive: Alive = Arc::new(move || watched.check());
            Self::join_with(nccl, id, (peers.rank(), peers.ranks()), peers.timeout(), bind, alive)
        })();
        joined.inspect_err(|e| peers.abort(&format!("rank {}: {e}", peers.rank())))
    }

    /// Joins the ranks that have the same id, as the first of a pair of so many. `alive` is asked meanwhile, and by the
    /// watchdog later, whether to go on.
    pub fn join_with(
        nccl: &'static Nccl,
        id: UniqueId,
        (rank, ranks): (usize, usize),
        timeout: Duration,
        bind: impl Fn() -> Result<()> + Send + 'static,
        alive: Alive,
    ) -> Result<Self> {
        let number = |n: usize| {
            c_int::try_from(n).map_err(|_| Error::input(format!("{n} ranks are too many for NCCL")))
        };
        let (c_rank, c_ranks) = (number(rank)?, number(ranks)?);
        let what = format!("joining rank {rank} of {ranks}");
        // on a thread of its own: it returns when all ranks are there, which may be never
        let (done, joined) = bounded(1);
        let init = nccl.functions.ncclCommInitRankConfig;
        let join = move || {
            let mut comm: Comm = null_mut();
            let mut config = Config::blocking();
            let code = bind().map(|()| {
                // SAFETY: the pointers are to live places of the right types; NCCL copies the configuration.
                unsafe { init(&mut comm, c_ranks, id, c_rank, &mut config) }
            });
            let _ = done.send(code.map(|code| (code, comm as usize)));
        };
        let thread = std::thread::Builder::new().name("joins NCCL".into()).spawn(join);
        thread.map_err(|e| Error::failed(format!("{what}: cannot start a thread: {e}")))?;
        let began = Instant::now();
        let (code, comm) = loop {
            if let Ok(joined) = joined.recv_timeout(LOOK) {
                break joined?;
            }
            alive()?;
            if began.elapsed() > timeout {
                return Err(Error::failed(format!(
                    "{what}: NCCL {} was not ready within {:.0} s; another rank did not join, or NCCL chose a \
                     network over which hosts do not reach each other (--env NCCL_SOCKET_IFNAME=... names one)",
                    nccl.version(),
                    timeout.as_secs_f64()
                )));
            }
        };
        let shared = Arc::new(Shared {
            nccl,
            comm: AtomicPtr::new(comm as Comm),
            using: Mutex::new(()),
            call: Mutex::new(None),
            ended: Mutex::new(None),
            timeout,
        });
        let watchdog = watch(&shared, alive)?;
        let joined = Self { shared, rank, _watched: watchdog };
        match code {
            SUCCESS if comm == 0 => Err(Error::failed(format!("{what}: NCCL gave no communicator"))),
            SUCCESS => Ok(joined),
            code => Err(joined.shared.give_up(code, &what)),
        }
    }

    /// Enqueues an exchange of numbers at `send` into `receive` (device addresses; of an all-reduce they may be the
    /// same) on `stream` (a `CUstream`). `count`: those of a sum, of a rank's share of one, or what a rank gives to
    /// a gather; without `dtype` they are bytes, which no sum takes. Returns when it is enqueued; the first of its kind
    /// connects the ranks before, which takes its time.
    ///
    /// # Safety
    /// Both addresses have as many numbers of `dtype` as that asks for (the share of every rank where all ranks' are
    /// read or written) in the memory of this communicator's GPU, and live until the stream has done it; the stream
    /// is one of that GPU.
    ///
    /// # Errors
    ///
    /// A failure with NCCL's reason, and its last debug line where it printed one; or
    /// why the communicator was ended meanwhile.
    pub unsafe fn exchange(
        &self,
        exchange: Exchange,
        [send, receive]: [u64; 2],
        count: usize,
        dtype: Option<DType>,
        stream: *mut c_void,
    ) -> Result<()> {
        let what = exchange.as_str();
        let (from, to) = (send as *const c_void, receive as *mut c_void);
        let format = dtype.map_or(BYTE, data_type);
        let Functions { ncclAllReduce, ncclReduceScatter, ncclAllGather, .. } =
            self.shared.nccl.functions;
        let doing = || format!("rank {}: the {what} of {count} numbers", self.rank);
        let code = self.shared.call(doing, |comm| {
            // SAFETY: the communicator is alive while a call has it; the rest is the caller's promise.
            unsafe {
                match exchange {
                    Exchange::AllReduce => ncclAllReduce(from, to, count, format, SUM, comm, stream),
                    Exchange::ReduceScatter { .. } => {
                        ncclReduceScatter(from, to, count, format, SUM, comm, stream)
                    }
                    Exchange::AllGather => ncclAllGather(from, to, count, format, comm, stream),
                }
            }
        })?;
        match code {
            SUCCESS => Ok(()),
            code => Err(self.shared.give_up(code, &format!("{what} on rank {}", self.rank))),
        }
    }

    /// An error as soon as NCCL noticed one in the background (`ncclCommGetAsyncError`), with NCCL's
    /// reason, or when this communicator was aborted, with the reason of the abort.
    pub fn check(&self) -> Result<()> {
        let asks = self.shared.nccl.functions.ncclCommGetAsyncError;
        let mut code = SUCCESS;
        let doing = || format!("rank {}: asking for errors", self.rank);
        // SAFETY: the communicator is alive while a call has it; one int is written.
        let asked = self.shared.call(doing, |comm| unsafe { asks(comm, &mut code) })?;
        match (asked, code) {
            (SUCCESS, SUCCESS | IN_PROGRESS) => Ok(()),
            (SUCCESS, code) | (code, _) => {
                Err(self.shared.give_up(code, &format!("rank {}, in the background", self.rank)))
            }
        }
    }

    /// Ends it, and whatever it has under way on the GPU; from any thread. What others wait for here
    /// ends with an error that says `why`.
    pub fn abort(&self, why: &str) {
        self.shared.abort(why);
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> Comm {
        self.shared.comm.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// Lets `call` have the communicator, watched; what it answered. An error where it was ended before, or under it.
    fn call(&self, what: impl Fn() -> String, call: impl FnOnce(Comm) -> c_int) -> Result<c_int> {
        let using = locked(&self.using);
        let comm = self.comm.load(Ordering::SeqCst);
        if comm.is_null() {
            drop(using);
            return Err(Error::failed(self.why()));
        }
        *locked(&self.call) = Some((what(), Instant::now() + self.timeout));
        let code = call(comm);
        *locked(&self.call) = None;
        match self.comm.load(Ordering::SeqCst).is_null() {
            true => Err(Error::failed(self.why())),
            false => Ok(code),
        }
    }

    /// Why it was ended.
    fn why(&self) -> String {
        locked(&self.ended).clone().unwrap_or_else(|| "NCCL's communicator was ended".into())
    }

    fn abort(&self, why: &str) {
        locked(&self.ended).get_or_insert_with(|| why.to_owned());
        // a call that is about to return does so first; one that does not return is why it is ended
        let _using = lock_within(&self.using, STUCK);
        let comm = self.comm.swap(null_mut(), Ordering::SeqCst);
        end(self.nccl.functions.ncclCommAbort, comm);
    }

    /// Ends it after an error of NCCL's, which comes back in words.
    fn give_up(&self, code: c_int, what: &str) -> Error {
        let why = self.nccl.describe(code, what, self.comm.load(Ordering::SeqCst));
        self.abort(&why);
        Error::failed(why)
    }

    /// Why the call that is under way must end, if so.
    fn overdue(&self, alive: &Alive) -> Option<String> {
        let (what, until) = locked(&self.call).clone()?;
        if Instant::now() > until {
            let seconds = self.timeout.as_secs_f64();
            return Some(format!("{what} was not enqueued within {seconds:.0} s: a rank did not come"));
        }
        alive().err().map(|error| error.to_string())
    }
}

/// Starts the watchdog of a communicator; it ends when what this gives is dropped.
fn watch(shared: &Arc<Shared>, alive: Alive) -> Result<Sender<()>> {
    let (watched, ended) = bounded::<()>(0);
    let shared = Arc::clone(shared);
    let look = move || {
        while ended.recv_timeout(LOOK) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
            if let Some(why) = shared.overdue(&alive) {
                shared.abort(&why);
            }
        }
    };
    let thread = std::thread::Builder::new().name("watches NCCL".into()).spawn(look);
    thread.map_err(|e| Error::failed(format!("cannot start a thread that watches NCCL: {e}")))?;
    Ok(watched)
}

/// The lock, unless somebody holds it for longer.
fn lock_within(mutex: &Mutex<()>, limit: Duration) -> Option<MutexGuard<'_, ()>> {
    let began = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() > limit => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
        }
    }
}

impl Drop for Communicator {
    /// In good order where nothing went wrong; never for longer than a few seconds, never with a panic.
    fn drop(&mut self) {
        let functions = self.shared.nccl.functions;
        let comm = self.shared.comm.swap(null_mut(), Ordering::SeqCst);
        match end(functions.ncclCommFinalize, comm) {
            Some(SUCCESS) => end(functions.ncclCommDestroy, comm),
            _ => end(functions.ncclCommAbort, comm),
        };
    }
}

/// Calls what ends a communicator, on a thread of its own: where the GPU hangs, so may this, and then
/// the end of the process frees it. What it answered; `None` where it did not.
fn end(free: unsafe extern "C" fn(Comm) -> c_int, comm: Comm) -> Option<c_int> {
    if comm.is_null() {
        return None;
    }
    let address = comm as usize;
    let (done, ended) = bounded(1);
    let thread = std::thread::Builder::new().name("ends NCCL".into()).spawn(move || {
        // SAFETY: the communicator was taken out of its place by whoever called: nobody else has it any more, but a
        // call that only this lets return.
        let code = unsafe { free(address as Comm) };
        let _ = done.send(code);
    });
    thread.ok()?;
    ended.recv_timeout(ENDING).ok()
}
