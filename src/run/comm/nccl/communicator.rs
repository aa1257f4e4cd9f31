//! One rank's NCCL communicator, in blocking mode: non-blocking communicators hand every call, including each eager
//! all-reduce, to a separate NCCL thread. A blocking call that waits for a dead rank would never return, so a
//! watchdog thread aborts the communicator on timeout or when another rank has failed.

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

/// Poll interval of the watchdog and of waits for calls to finish.
const LOOK: Duration = Duration::from_millis(5);
/// Maximum time to finalize a communicator; after that it is leaked until the process exits.
const ENDING: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
/// A call that holds the communicator longer than this is waiting for another rank and returns only on abort.
const STUCK: Duration = Duration::from_millis(50);

pub type Alive = Arc<dyn Fn() -> Result<()> + Send + Sync>;

#[derive(Debug)]
pub struct Communicator {
    shared: Arc<Shared>,
    rank: usize,
    _watched: Sender<()>,
}

#[derive(Debug)]
struct Shared {
    nccl: &'static Nccl,
    /// NCCL handle; null once the communicator is aborted.
    comm: AtomicPtr<c_void>,
    /// Locked while a call uses the communicator.
    using: Mutex<()>,
    call: Mutex<Option<(String, Instant)>>,
    ended: Mutex<Option<String>>,
    timeout: Duration,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Communicator {
    /// Joins the ranks of `peers` with rank 0's id; every rank must call this. `bind` makes the rank's GPU current on
    /// the calling thread.
    ///
    /// # Errors
    ///
    /// Aborts all ranks and returns an error with NCCL's reason, or if a rank dies or does not join within the
    /// timeout.
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

    /// Joins the ranks that share `id`, as `rank` of `ranks`. `alive` is polled while joining, and later by the
    /// watchdog.
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
        // on its own thread: the call returns only when all ranks have joined, possibly never
        let (done, joined) = bounded(1);
        let init = nccl.functions.ncclCommInitRankConfig;
        let join = move || {
            let mut comm: Comm = null_mut();
            let mut config = Config::blocking();
            let code = bind().map(|()| {
                // SAFETY: the pointers are to live values of the right types; NCCL copies the configuration.
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

    /// Enqueues an exchange from `send` into `receive` (device addresses; may be equal for an all-reduce) on `stream`
    /// (a `CUstream`). `count` is the length of the sum for an all-reduce, of one rank's share for a reduce-scatter,
    /// and of one rank's input for an all-gather. Without `dtype` the elements are bytes, which cannot be summed.
    /// Returns when the exchange is enqueued; the first exchange of its kind also connects the ranks.
    ///
    /// # Safety
    ///
    /// Both addresses must have room for the elements above (the shares of all ranks on the full side) in the memory
    /// of this communicator's GPU, and must live until the stream has finished the exchange. The stream must belong
    /// to that GPU.
    ///
    /// # Errors
    ///
    /// Returns an error with NCCL's reason and last debug line, or with the reason why the communicator was aborted.
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
            // SAFETY: the communicator is alive during the call; the caller guarantees the rest.
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

    /// Returns the background error of NCCL (`ncclCommGetAsyncError`) or the reason of an abort.
    pub fn check(&self) -> Result<()> {
        let asks = self.shared.nccl.functions.ncclCommGetAsyncError;
        let mut code = SUCCESS;
        let doing = || format!("rank {}: asking for errors", self.rank);
        // SAFETY: the communicator is alive during the call; the function writes one int.
        let asked = self.shared.call(doing, |comm| unsafe { asks(comm, &mut code) })?;
        match (asked, code) {
            (SUCCESS, SUCCESS | IN_PROGRESS) => Ok(()),
            (SUCCESS, code) | (code, _) => {
                Err(self.shared.give_up(code, &format!("rank {}, in the background", self.rank)))
            }
        }
    }

    /// Aborts the communicator and its work on the GPU; callable from any thread. Waiting calls return `why` as an
    /// error.
    pub fn abort(&self, why: &str) {
        self.shared.abort(why);
    }

    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> Comm {
        self.shared.comm.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// Runs `call` with the communicator, supervised by the watchdog; returns NCCL's result code, or an error if the
    /// communicator was aborted before or during the call.
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

    fn why(&self) -> String {
        locked(&self.ended).clone().unwrap_or_else(|| "NCCL's communicator was ended".into())
    }

    fn abort(&self, why: &str) {
        locked(&self.ended).get_or_insert_with(|| why.to_owned());
        // lets a call that is about to return finish first; a stuck one is the reason for the abort
        let _using = lock_within(&self.using, STUCK);
        let comm = self.comm.swap(null_mut(), Ordering::SeqCst);
        end(self.nccl.functions.ncclCommAbort, comm);
    }

    fn give_up(&self, code: c_int, what: &str) -> Error {
        let why = self.nccl.describe(code, what, self.comm.load(Ordering::SeqCst));
        self.abort(&why);
        Error::failed(why)
    }

    fn overdue(&self, alive: &Alive) -> Option<String> {
        let (what, until) = locked(&self.call).clone()?;
        if Instant::now() > until {
            let seconds = self.timeout.as_secs_f64();
            return Some(format!("{what} was not enqueued within {seconds:.0} s: a rank did not come"));
        }
        alive().err().map(|error| error.to_string())
    }
}

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

/// Locks the mutex; returns `None` if it is not free within `limit`.
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
    /// Finalizes the communicator if it is healthy, else aborts it. Takes a few seconds at most and never panics.
    fn drop(&mut self) {
        let functions = self.shared.nccl.functions;
        let comm = self.shared.comm.swap(null_mut(), Ordering::SeqCst);
        match end(functions.ncclCommFinalize, comm) {
            Some(SUCCESS) => end(functions.ncclCommDestroy, comm),
            _ => end(functions.ncclCommAbort, comm),
        };
    }
}

/// Finalizes or aborts a communicator on a separate thread, because a hung GPU can block this too; then the process
/// exit frees it. Returns NCCL's result code, `None` on timeout.
fn end(free: unsafe extern "C" fn(Comm) -> c_int, comm: Comm) -> Option<c_int> {
    if comm.is_null() {
        return None;
    }
    let address = comm as usize;
    let (done, ended) = bounded(1);
    let thread = std::thread::Builder::new().name("ends NCCL".into()).spawn(move || {
        // SAFETY: the caller swapped the handle out of its slot, so only a stuck call that this releases still uses
        // it.
        let code = unsafe { free(address as Comm) };
        let _ = done.send(code);
    });
    thread.ok()?;
    ended.recv_timeout(ENDING).ok()
}
