//! A rank's membership in NCCL's group of ranks. Non-blocking: every call returns at once, its end is
//! polled, and whoever waits stops when the time-out is over or when another rank is gone.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::library::{Functions, Nccl};
use super::types::{BYTE, Comm, Config, IN_PROGRESS, SUCCESS, SUM, UniqueId, data_type};
use crate::base::error::{Error, Result};
use crate::plan::DType;
use crate::run::comm::{Exchange, Peers};

/// NCCL hands what is asked of a non-blocking communicator to a thread of its own, every all-reduce too:
/// for so long that is looked for without a pause, since a decode step asks a hundred times.
const SPIN: Duration = Duration::from_micros(500);
/// Shortest and longest time between two looks at something that takes longer.
const POLL: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));
/// How long the end of a communicator may take before it is left to the end of the process.
const ENDING: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// One rank's membership in an NCCL communicator; dropping it ends the membership.
#[derive(Debug)]
pub struct Communicator {
    nccl: &'static Nccl,
    state: Mutex<State>,
    rank: usize,
    timeout: Duration,
}

#[derive(Debug)]
struct State {
    /// NCCL's handle, which is null once the communicator was ended.
    comm: Comm,
    /// Why the communicator was ended before its time.
    ended: Option<String>,
}

// SAFETY: NCCL allows a communicator's use from any thread, one at a time; the mutex around the state
// sees to that.
unsafe impl Send for State {}

impl Communicator {
    /// Joins the ranks of `peers`, all of which must call this; rank 0's id goes to all. The current CUDA
    /// context of this thread decides the GPU. Ends within the peers' time-out, and when one of them is
    /// gone; then all of them are told.
    ///
    /// # Errors
    ///
    /// A failure with NCCL's reason, or where a rank does not come within the time-out.
    pub fn join(nccl: &'static Nccl, peers: &Peers) -> Result<Self> {
        let joined = (|| {
            let mine = match peers.rank() {
                0 => nccl.unique_id()?.as_bytes().to_vec(),
                _ => Vec::new(),
            };
            let id = UniqueId::from_bytes(&peers.broadcast(mine)?)?;
            Self::join_with(nccl, id, peers.rank(), peers.ranks(), peers.timeout(), &|| peers.check())
        })();
        joined.inspect_err(|e| peers.abort(&format!("rank {}: {e}", peers.rank())))
    }

    /// Joins the ranks that have the same id. `check` is asked meanwhile whether to go on.
    pub fn join_with(
        nccl: &'static Nccl,
        id: UniqueId,
        rank: usize,
        ranks: usize,
        timeout: Duration,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let number = |n: usize| {
            c_int::try_from(n).map_err(|_| Error::input(format!("{n} ranks are too many for NCCL")))
        };
        let (c_rank, c_ranks) = (number(rank)?, number(ranks)?);
        let mut comm: Comm = std::ptr::null_mut();
        let mut config = Config::non_blocking();
        // SAFETY: the pointers are to live places of the right types; NCCL copies the configuration.
        let code = unsafe {
            (nccl.functions.ncclCommInitRankConfig)(&mut comm, c_ranks, id, c_rank, &mut config)
        };
        let joined = Self { nccl, state: Mutex::new(State { comm, ended: None }), rank, timeout };
        let what = format!("joining rank {rank} of {ranks}");
        if !matches!(code, SUCCESS | IN_PROGRESS) {
            return Err(joined.give_up(code, &what));
        }
        if comm.is_null() {
            return Err(Error::failed(format!("{what}: NCCL gave no communicator")));
        }
        let late = || {
            format!(
                "{what}: NCCL {} was not ready within {:.0} s; another rank did not join, or NCCL chose a \
                 network over which hosts do not reach each other (--env NCCL_SOCKET_IFNAME=... names one)",
                nccl.version(),
                timeout.as_secs_f64()
            )
        };
        joined.until_done(&what, check, &late)?;
        Ok(joined)
    }

    /// Enqueues an exchange of numbers at `send` into `receive` (device addresses; of an all-reduce they may be the
    /// same) on `stream` (a `CUstream`). `count`: those of a sum, of a rank's share of one, or what a rank gives to
    /// a gather; without `dtype` they are bytes, which no sum takes. Returns when it is enqueued.
    ///
    /// # Safety
    /// Both addresses have as many numbers of `dtype` as that asks for (the share of every rank where all ranks' are
    /// read or written) in the memory of this communicator's GPU, and live until the stream has done it; the stream
    /// is one of that GPU.
    ///
    /// # Errors
    ///
    /// A failure with NCCL's reason, and its last debug line where it printed one.
    pub unsafe fn exchange(
        &self,
        exchange: Exchange,
        [send, receive]: [u64; 2],
        count: usize,
        dtype: Option<DType>,
        stream: *mut c_void,
    ) -> Result<()> {
        let what = exchange.as_str();
        let code = {
            let state = self.alive()?;
            let (from, to) = (send as *const c_void, receive as *mut c_void);
            let (format, comm) = (dtype.map_or(BYTE, data_type), state.comm);
            let Functions { ncclAllReduce, ncclReduceScatter, ncclAllGather, .. } = self.nccl.functions;
            // SAFETY: the communicator is alive while the state is locked; the rest is the caller's promise.
            unsafe {
                match exchange {
                    Exchange::AllReduce => ncclAllReduce(from, to, count, format, SUM, comm, stream),
                    Exchange::ReduceScatter { .. } => {
                        ncclReduceScatter(from, to, count, format, SUM, comm, stream)
                    }
                    Exchange::AllGather => ncclAllGather(from, to, count, format, comm, stream),
                }
            }
        };
        match code {
            SUCCESS => Ok(()),
            // a thread of NCCL's enqueues it; the first of its kind connects ranks before
            IN_PROGRESS => {
                let late = || {
                    format!(
                        "rank {}: the {what} of {count} numbers was not enqueued within {:.0} s",
                        self.rank,
                        self.timeout.as_secs_f64()
                    )
                };
                self.until_done(what, &|| Ok(()), &late)
            }
            code => Err(self.give_up(code, &format!("{what} on rank {}", self.rank))),
        }
    }

    /// An error as soon as NCCL noticed one in the background (`ncclCommGetAsyncError`), with NCCL's
    /// reason, or when this communicator was aborted, with the reason of the abort. Never blocks.
    pub fn check(&self) -> Result<()> {
        let code = self.async_code()?;
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(self.give_up(code, &format!("rank {}, in the background", self.rank))),
        }
    }

    /// Ends it, and whatever it has under way on the GPU; from any thread. What others wait for here
    /// ends with an error that says `why`.
    pub fn abort(&self, why: &str) {
        let Some(mut state) = self.lock_within(ENDING) else { return };
        state.ended.get_or_insert_with(|| why.to_owned());
        let comm = std::mem::replace(&mut state.comm, std::ptr::null_mut());
        drop(state);
        end(self.nccl.functions.ncclCommAbort, comm);
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> Comm {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).comm
    }

    fn async_code(&self) -> Result<c_int> {
        let state = self.alive()?;
        let mut code = SUCCESS;
        // SAFETY: the communicator is alive while the state is locked; one int is written.
        let asked = unsafe { (self.nccl.functions.ncclCommGetAsyncError)(state.comm, &mut code) };
        self.nccl.check(asked, "ncclCommGetAsyncError", state.comm)?;
        Ok(code)
    }

    /// Polls until what is under way has been done. Failing that, ends the communicator.
    fn until_done(
        &self,
        what: &str,
        check: &dyn Fn() -> Result<()>,
        late: &dyn Fn() -> String,
    ) -> Result<()> {
        let (began, mut pause) = (Instant::now(), POLL.0);
        loop {
            match self.async_code()? {
                SUCCESS => return Ok(()),
                IN_PROGRESS => {}
                code => return Err(self.give_up(code, what)),
            }
            if began.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            if let Err(gone) = check() {
                self.abort(&gone.to_string());
                return Err(gone);
            }
            if began.elapsed() > self.timeout {
                let why = late();
                self.abort(&why);
                return Err(Error::failed(why));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL.1);
        }
    }

    /// The state, with a communicator that can be used.
    fn alive(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.ended {
            Some(why) => Err(Error::failed(why.clone())),
            None if state.comm.is_null() => Err(Error::failed("NCCL's communicator was ended")),
            None => Ok(state),
        }
    }

    /// The state, unless somebody holds it for longer: a call that should have returned at once and hangs.
    fn lock_within(&self, limit: Duration) -> Option<MutexGuard<'_, State>> {
        let began = Instant::now();
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if began.elapsed() > limit => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL.1),
            }
        }
    }

    /// Ends it after an error of NCCL's, which comes back in words.
    fn give_up(&self, code: c_int, what: &str) -> Error {
        let why = match self.lock_within(ENDING) {
            Some(state) => self.nccl.describe(code, what, state.comm),
            None => self.nccl.describe(code, what, std::ptr::null_mut()),
        };
        self.abort(&why);
        Error::failed(why)
    }
}

impl Drop for Communicator {
    /// In good order where nothing went wrong; never for longer than a few seconds, never with a panic.
    fn drop(&mut self) {
        let functions = self.nccl.functions;
        let Some(mut state) = self.lock_within(ENDING) else { return };
        let comm = std::mem::replace(&mut state.comm, std::ptr::null_mut());
        drop(state);
        if comm.is_null() {
            return;
        }
        // SAFETY: the communicator is alive, and nobody else has it any more.
        let code = unsafe { (functions.ncclCommFinalize)(comm) };
        let began = Instant::now();
        let mut left = code;
        while left == IN_PROGRESS && began.elapsed() < ENDING {
            std::thread::sleep(POLL.1);
            // SAFETY: as above; one int is written.
            if unsafe { (functions.ncclCommGetAsyncError)(comm, &mut left) } != SUCCESS {
                break;
            }
        }
        end(if left == SUCCESS { functions.ncclCommDestroy } else { functions.ncclCommAbort }, comm);
    }
}

/// Calls what frees a communicator, on a thread of its own: where the GPU hangs, so may this, and then
/// the end of the process frees it.
fn end(free: unsafe extern "C" fn(Comm) -> c_int, comm: Comm) {
    if comm.is_null() {
        return;
    }
    let address = comm as usize;
    let (done, ended) = crossbeam_channel::bounded(1);
    let thread = std::thread::Builder::new().name("ends NCCL".into()).spawn(move || {
        // SAFETY: the communicator was taken out of its state by whoever called: this is its last use.
        let code = unsafe { free(address as Comm) };
        let _ = done.send(code);
    });
    if thread.is_ok() {
        let _ = ended.recv_timeout(ENDING);
    }
}
