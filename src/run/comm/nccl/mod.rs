//! NCCL, loaded at run time. Functions and structures follow `nccl.h` from version 2.18 on; later versions are
//! compatible.
//!
//! One rank's NCCL communicator, in blocking mode: non-blocking communicators hand every call, including each eager
//! all-reduce, to a separate NCCL thread. A blocking call that waits for a dead rank would never return, so a
//! watchdog thread aborts the communicator on timeout or when another rank has failed.

mod library;

pub use library::{Nccl, Probe, UniqueId, probe};

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use serde::{Deserialize, Serialize};

use self::library::{BYTE, Comm, Functions, IN_PROGRESS, NcclConfig, SUCCESS, SUM, data_type};
use crate::comm::{Exchange, Peers};
use base::error::{Error, Result};
use plan::DType;

/// Poll interval of the watchdog and of waits for calls to finish.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum time to finalize a communicator; after that it is leaked until the process exits.
const FINALIZE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
/// A call that holds the communicator longer than this is waiting for another rank and returns only on abort.
const STUCK_AFTER: Duration = Duration::from_millis(50);

/// Returns an error if another rank has ended.
pub type PeerCheck = Arc<dyn Fn() -> Result<()> + Send + Sync>;

#[derive(Debug)]
pub struct NcclCommunicator {
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

impl NcclCommunicator {
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
            let alive: PeerCheck = Arc::new(move || watched.check());
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
        alive: PeerCheck,
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
            let mut config = NcclConfig::blocking();
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
            if let Ok(joined) = joined.recv_timeout(POLL_INTERVAL) {
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
    fn address(&self) -> Comm {
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
        let _using = lock_within(&self.using, STUCK_AFTER);
        let comm = self.comm.swap(null_mut(), Ordering::SeqCst);
        end(self.nccl.functions.ncclCommAbort, comm);
    }

    fn give_up(&self, code: c_int, what: &str) -> Error {
        let why = self.nccl.describe(code, what, self.comm.load(Ordering::SeqCst));
        self.abort(&why);
        Error::failed(why)
    }

    fn overdue(&self, alive: &PeerCheck) -> Option<String> {
        let (what, until) = locked(&self.call).clone()?;
        if Instant::now() > until {
            let seconds = self.timeout.as_secs_f64();
            return Some(format!(
                "{what} was not enqueued within {seconds:.0} s: a rank never reached it"
            ));
        }
        alive().err().map(|error| error.to_string())
    }
}

fn watch(shared: &Arc<Shared>, alive: PeerCheck) -> Result<Sender<()>> {
    let (watched, ended) = bounded::<()>(0);
    let shared = Arc::clone(shared);
    let look = move || {
        while ended.recv_timeout(POLL_INTERVAL) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
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
            Err(TryLockError::WouldBlock) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

impl Drop for NcclCommunicator {
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
    ended.recv_timeout(FINALIZE_TIMEOUT).ok()
}

/// Variables that make NCCL log its choices. Logging costs time, so they are never set in timed runs. [`DEBUG_FILE`]
/// names the log file.
pub const DEBUG_VARIABLES: [(&str, &str); 2] =
    [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH,TUNING")];

/// Controls in-switch reduction (NVLS): 0 off, 1 on, 2 automatic.
pub const NVLS: &str = "NCCL_NVLS_ENABLE";

pub const DEBUG_FILE: &str = "NCCL_DEBUG_FILE";

/// NCCL's choices, as far as its log reports them; that differs by version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclChoices {
    /// NCCL version with its CUDA version: `2.27.3+cuda12.9`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Transports between ranks: `P2P/CUMEM`, `SHM/direct`, `NET/IB`.
    pub transports: BTreeSet<String>,
    /// Network between hosts: `IB`, `Socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// True if in-switch reduction (NVLS) was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvls: Option<bool>,
    /// Algorithm and protocol (`RING LL`) by all-reduce size (bytes).
    pub all_reduce: BTreeMap<u64, String>,
    /// Channels, one thread block each, by all-reduce size (bytes).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<u64, u32>,
    /// Environment variables that NCCL reports to have applied.
    pub heeded: BTreeSet<String>,
    pub warnings: Vec<String>,
}

impl NcclChoices {
    /// Sizes (bytes) of all-reduces that use in-switch reduction (NVLS); empty if NVLS is available but the log lists
    /// no sizes, `None` if it is not used.
    pub fn through_the_switch(&self) -> Option<Vec<u64>> {
        let nvls = self.all_reduce.iter().filter(|(_, how)| how.starts_with("NVLS"));
        let bytes: Vec<u64> = nvls.map(|(bytes, _)| *bytes).collect();
        let is_told = !self.all_reduce.is_empty();
        (!bytes.is_empty() || (!is_told && self.nvls == Some(true))).then_some(bytes)
    }

    /// Note for runs without P2P in which NCCL still reduces in the NVLink switch.
    pub fn switch_without_p2p(&self) -> Option<String> {
        let bytes = self.through_the_switch()?;
        let which = match bytes.as_slice() {
            [] => "it may choose NVLS".to_owned(),
            bytes => format!(
                "NVLS for messages of {} bytes",
                bytes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ),
        };
        Some(format!(
            "P2P is off, but NCCL sums within NVLink's switch all the same ({which}), at NVLink's speed: nothing ties \
             the one to the other; --nvls off (NCCL_NVLS_ENABLE=0) takes that away, too"
        ))
    }
}

const WARNINGS: usize = 20;

/// Parses the log that this process's NCCL wrote to `NCCL_DEBUG_FILE`; `None` if there is no log.
pub fn chosen() -> Option<NcclChoices> {
    let name = std::env::var(DEBUG_FILE).ok()?;
    // NCCL's placeholders: %p is the process id, %h the host name
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = host.split('.').next().unwrap_or_default();
    let file_of = |host: &str| name.replace("%p", &std::process::id().to_string()).replace("%h", host);
    let text =
        [file_of(&host), file_of(short)].iter().find_map(|path| std::fs::read(Path::new(path)).ok())?;
    Some(parse(&String::from_utf8_lossy(&text)))
}

pub fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("NCCL_"))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}

fn parse(text: &str) -> NcclChoices {
    let mut chosen = NcclChoices::default();
    for line in text.lines() {
        if let Some((_, message)) = line.split_once("NCCL INFO ") {
            information(&mut chosen, message.trim());
        } else if let Some((_, message)) = line.split_once("NCCL WARN ")
            && chosen.warnings.len() < WARNINGS
        {
            chosen.warnings.push(message.trim().to_owned());
        } else if let Some((_, version)) = line.split_once("NCCL version ") {
            chosen.version.get_or_insert_with(|| first_word(version));
        }
    }
    chosen
}

fn information(chosen: &mut NcclChoices, message: &str) {
    if let Some(version) = message.strip_prefix("NCCL version ") {
        chosen.version.get_or_insert_with(|| first_word(version));
    } else if let Some((channels, _)) = message.split_once(" coll channels") {
        chosen.channels = channels.trim().parse().ok().or(chosen.channels);
        // versions before 2.17 have no NVLS channels and do not log them
        if let Some(nvls) =
            message.split(',').find_map(|part| part.trim().strip_suffix(" nvls channels"))
        {
            chosen.nvls = nvls.parse::<u32>().ok().map(|channels| channels > 0).or(chosen.nvls);
        }
    } else if let Some((_, way)) = message.split_once(" via ")
        && message.starts_with("Channel ")
    {
        chosen.transports.insert(transport(way));
    } else if let Some(network) = message.strip_prefix("Using network ") {
        chosen.network.get_or_insert_with(|| first_word(network));
    } else if let Some((name, _)) = message.split_once(" set by environment to ") {
        chosen.heeded.insert(first_word(name));
    } else if let Some((bytes, how)) =
        message.strip_prefix("AllReduce: ").and_then(|rest| rest.split_once(" Bytes -> "))
        && let Ok(bytes) = bytes.trim().parse()
        && let Some(named) = algorithm(how)
    {
        chosen.all_reduce.insert(bytes, named);
        chosen.blocks.extend(channels(how).map(|channels| (bytes, channels)));
    }
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Shortens `P2P/CUMEM/read` to `P2P/CUMEM` and drops the card number of a network.
fn transport(way: &str) -> String {
    first_word(way).split('/').take(2).collect::<Vec<_>>().join("/")
}

/// Number of channels in `channel{Lo..Hi}={0..1}`.
fn channels(how: &str) -> Option<u32> {
    let (_, range) = how.split_once("channel{Lo..Hi}={")?;
    let (low, high) = range.split_once('}')?.0.split_once("..")?;
    let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    high.checked_sub(low)?.checked_add(1)
}

/// Parses `Algo RING proto LL channel{...}`; versions before 2.24 log numbers instead of names.
fn algorithm(how: &str) -> Option<String> {
    const ALGORITHMS: [&str; 7] =
        ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
    const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];
    let words: Vec<&str> = how.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(name))?;
        words.get(at + 1).copied()
    };
    let named = |word: &str, names: &[&str]| match word.parse::<usize>() {
        Ok(number) => names.get(number).map_or_else(|| word.to_owned(), |name| (*name).to_owned()),
        Err(_) => word.to_uppercase(),
    };
    let (algorithm, protocol) = (after("algo")?, after("proto")?);
    Some(format!("{} {}", named(algorithm, &ALGORITHMS), named(protocol, &PROTOCOLS)))
}

#[cfg(test)]
mod tests;
