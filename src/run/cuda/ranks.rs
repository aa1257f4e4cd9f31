//! Ranks as threads or processes, and NCCL choices, probed in separate processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::engine::first_sums;
use crate::PROGRESS_TIMEOUT;
use crate::comm::nccl::{Nccl, NcclChoices, NcclCommunicator, PeerCheck, UniqueId};
use crate::comm::{Peers, ProgressMonitor, nccl};
use crate::cuda::collective::CollectiveTransport;
use crate::cuda::engine::Local;
use base::cache::FileCache;
use base::checksum::{hex, sha256};
use base::error::{Error, Result};
use machine::driver::Gpu;
use table::shared_gpu;

/// Location of a [`crate::Job`]'s ranks. By default all are threads of this process, the first one on GPU 0.
#[derive(Clone, Debug)]
pub struct RankPlacement {
    /// Timeout: the run fails if a rank makes no progress for this long.
    pub timeout: Duration,
    /// Other ranks, if this process is one of several. Then only rank 0 returns samples and a trace.
    pub peers: Option<Arc<Peers>>,
    /// GPU of this process's first rank.
    pub device: usize,
    /// Notified of all progress; the run fails after `timeout` without any. Counts run events, and each
    /// [`Peers::phase`] of [`RankPlacement::threads`] and `peers`.
    pub progress: Arc<ProgressMonitor>,
}

impl Default for RankPlacement {
    fn default() -> Self {
        Self { timeout: PROGRESS_TIMEOUT, peers: None, device: 0, progress: Arc::default() }
    }
}

impl RankPlacement {
    /// Creates peers for ranks that are threads of this process.
    pub fn threads(&self, ranks: usize) -> Vec<Peers> {
        let watched = |peers: Peers| peers.with_progress(Arc::clone(&self.progress));
        Peers::threads(ranks, self.timeout).into_iter().map(watched).collect()
    }
}

/// Runs one thread per rank: rank 0 runs `first` on this thread and returns the result, the others run
/// `other`. Returns the first error of any rank.
pub(super) fn on_threads<R: Send>(
    all: Vec<Peers>,
    first: impl FnOnce(&Arc<Peers>) -> Result<R>,
    other: impl Fn(&Arc<Peers>) -> Result<R> + Sync,
) -> Result<R> {
    let mut all = all.into_iter().map(Arc::new);
    let peers = all.next().ok_or_else(|| Error::failed("no ranks"))?;
    std::thread::scope(|scope| {
        let other = &other;
        let others: Vec<_> = all
            .map(|peers| {
                std::thread::Builder::new()
                    .name(format!("rank{}", peers.rank()))
                    .spawn_scoped(scope, move || other(&peers))
                    .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))
            })
            .collect();
        let started: Result<Vec<_>> = others.into_iter().collect();
        let others = started.inspect_err(|error| peers.abort(&error.to_string()))?;
        let mut result = first(&peers);
        for other in others {
            let ended = other.join().unwrap_or_else(|_| Err(Error::failed("a rank panicked")));
            if let (Ok(_), Err(error)) = (&result, ended) {
                result = Err(error);
            }
        }
        result
    })
}

/// Runs a rank's `part` on its GPU after joining its peers; an error aborts all ranks. `messages` are the
/// message sizes (bytes) for probing NCCL's choices beforehand; `None` if nothing is timed.
pub(super) fn among_peers<R>(
    nccl: &'static Nccl,
    device: usize,
    peers: &Arc<Peers>,
    messages: Option<&[u64]>,
    part: impl FnOnce(&Gpu, Local) -> Result<R>,
) -> Result<R> {
    let result = (|| {
        let gpu = Gpu::open(device)?;
        gpu.bind()?;
        // with a shared GPU no latency is used, so NCCL's choices are not probed
        let chosen = match messages.filter(|_| !shared_gpu::is_on()) {
            Some(messages) => {
                peers.phase("asking what NCCL chooses");
                chosen(nccl, peers, &gpu, messages)?
            }
            None => None,
        };
        peers.phase("joining NCCL");
        let on = gpu.clone();
        let communicator = NcclCommunicator::join(nccl, peers, move || on.bind())?;
        let index = peers.rank() as u32;
        let transport = CollectiveTransport::Nccl(communicator, chosen.map(Box::new));
        part(&gpu, Local { ranks: index..index + 1, transport, one_shot: None })
    })();
    result.inspect_err(|error| peers.abort(&format!("rank {}: {error}", peers.rank())))
}

/// Gathers the part of every rank on rank 0, or of this rank without peers; `None` on other ranks. `what`
/// names the parts in errors.
pub(super) fn gather<T: Serialize + DeserializeOwned>(
    peers: Option<&Arc<Peers>>,
    what: &str,
    part: T,
) -> Result<Option<Vec<T>>> {
    let Some(peers) = peers else { return Ok(Some(vec![part])) };
    let bytes = serde_json::to_vec(&part).map_err(|e| Error::failed(format!("{what}: {e}")))?;
    let Some(all) = peers.gather(bytes)? else { return Ok(None) };
    let parse = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes)
            .map_err(|e| Error::failed(format!("the {what} of rank {rank} cannot be read: {e}")))
    };
    all.iter().enumerate().map(parse).collect::<Result<Vec<T>>>().map(Some)
}

/// Rank 0's `value` on every rank; `value` itself without peers. `what` names it in errors.
pub(super) fn broadcast<T: Serialize + DeserializeOwned>(
    peers: Option<&Arc<Peers>>,
    what: &str,
    value: T,
) -> Result<T> {
    let Some(peers) = peers else { return Ok(value) };
    let bytes = serde_json::to_vec(&value).map_err(|e| Error::failed(format!("{what}: {e}")))?;
    serde_json::from_slice(&peers.broadcast(bytes)?)
        .map_err(|e| Error::failed(format!("rank 0's {what} cannot be read: {e}")))
}

/// Check that an engine polls while it waits: fails once another rank has ended.
pub(super) fn alive(peers: Option<&Arc<Peers>>) -> PeerCheck {
    let peers = peers.cloned();
    Arc::new(move || peers.as_ref().map_or(Ok(()), |peers| peers.check()))
}

/// Command-line verb of a probe process.
pub const VERB: &str = "__nccl";

/// Interval for checking the other ranks while waiting for a probe.
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    rank: usize,
    ranks: usize,
    device: usize,
    timeout_s: f64,
    /// Message sizes (bytes).
    messages: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProbeMessage {
    /// Rank 0's NCCL id in hexadecimal, sent before any input.
    Id(String),
    Chosen(Box<NcclChoices>),
    Error(String),
}

/// NCCL's choices for all-reduces of these message sizes (bytes), from the cache or a new probe. All `peers`
/// must call this. Returns `None` if NCCL logs nothing.
///
/// # Errors
///
/// Returns an error if the ranks cannot sum, with the probe's reason.
pub(super) fn chosen(
    nccl: &'static Nccl,
    peers: &Arc<Peers>,
    gpu: &Gpu,
    messages: &[u64],
) -> Result<Option<NcclChoices>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let all = peers.gather(format!("{host} {}", gpu.info().uuid).into_bytes())?;
    let cache = FileCache::of_user("nccl");
    let key = all.map(|ranks| {
        let variables = nccl::variables();
        let driver = gpu.info().driver_api;
        let inputs = (ranks, nccl.version(), driver, variables, messages);
        format!("{}.json", sha256(serde_json::to_vec(&inputs).unwrap_or_default()))
    });
    let known = key.as_ref().zip(cache.as_ref()).and_then(|(key, cache)| cache.load(key));
    let known = peers.broadcast(known.unwrap_or_default())?;
    if let Ok(chosen) = serde_json::from_slice(&known) {
        return Ok(Some(chosen));
    }
    let found = run_probe(peers, gpu.info().index, messages)?;
    if let (Some(key), Some(cache), Ok(bytes)) = (key, cache, serde_json::to_vec(&found)) {
        cache.store(&key, &bytes);
    }
    // use rank 0's choices everywhere, so that all ranks leave the same number of SMs
    let first = broadcast(Some(peers), "account of NCCL's choices", found)?;
    Ok((first != NcclChoices::default()).then_some(first))
}

fn run_probe(peers: &Peers, device: usize, messages: &[u64]) -> Result<NcclChoices> {
    let task = Task {
        rank: peers.rank(),
        ranks: peers.ranks(),
        device,
        timeout_s: peers.timeout().as_secs_f64(),
        messages: messages.to_vec(),
    };
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let text = serde_json::to_string(&task).map_err(|e| Error::failed(format!("a probe: {e}")))?;
    let binary = std::env::current_exe()
        .map_err(|e| Error::failed(format!("the running binary cannot be found: {e}")))?;
    let mut command = Command::new(&binary);
    command.arg(VERB).arg(text).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.envs(nccl::DEBUG_VARIABLES).env(nccl::DEBUG_FILE, folder.path().join("nccl.txt"));
    let mut probe = Probe { child: command.spawn().map_err(Error::io(&binary))? };
    let received = lines(&mut probe.child);
    let until = Instant::now() + peers.timeout() + Duration::from_secs(10);
    let mut mine = Vec::new();
    if peers.rank() == 0 {
        match next(&received, peers, until)? {
            ProbeMessage::Id(id) => mine = id.into_bytes(),
            other => return Err(unexpected(&other)),
        }
    }
    let id = peers.broadcast(mine)?;
    // keep stdin open: the probe exits when it closes
    let mut input = probe.child.stdin.take();
    if let Some(input) = &mut input {
        let written = input.write_all(&[&id, b"\n".as_slice()].concat()).and_then(|()| input.flush());
        written.map_err(|e| Error::failed(format!("writing the result of an NCCL probe: {e}")))?;
    }
    match next(&received, peers, until)? {
        ProbeMessage::Chosen(chosen) => Ok(*chosen),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(message: &ProbeMessage) -> Error {
    match message {
        ProbeMessage::Error(why) => Error::failed(why.clone()),
        other => Error::failed(format!("a probe of NCCL says {other:?} out of turn")),
    }
}

/// Probe process, killed on drop.
struct Probe {
    child: Child,
}

impl Drop for Probe {
    fn drop(&mut self) {
        // it has reported its result, or nobody waits for it anymore
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Receives the probe's output line by line.
fn lines(probe: &mut Child) -> Receiver<ProbeMessage> {
    let (sender, receiver) = unbounded();
    if let Some(out) = probe.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                // skip other output of libraries
                if let Ok(message) = serde_json::from_str(&line) {
                    let _ = sender.send(message);
                }
            }
        });
    }
    receiver
}

fn next(messages: &Receiver<ProbeMessage>, peers: &Peers, until: Instant) -> Result<ProbeMessage> {
    loop {
        match messages.recv_timeout(PEER_CHECK_INTERVAL) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::failed("the probe of what NCCL chooses ended without output"));
            }
            Err(RecvTimeoutError::Timeout) => peers.check()?,
        }
        if Instant::now() > until {
            return Err(Error::failed("a probe of what NCCL chooses did not end in time"));
        }
    }
}

/// Main function of a probe process: joins its ranks, sums once per message size, reports NCCL's log, and
/// exits.
pub fn probe_main(task: &str) -> ExitCode {
    let chosen = serde_json::from_str(task)
        .map_err(|e| Error::input(format!("{VERB} takes a task as JSON: {e}")))
        .and_then(|task| probe(&task));
    let code = u8::from(chosen.is_err());
    print(&match chosen {
        Ok(chosen) => ProbeMessage::Chosen(Box::new(chosen)),
        Err(error) => ProbeMessage::Error(error.to_string()),
    });
    // a regular exit would wait for libraries with hanging work
    signal_hook::low_level::exit(code.into())
}

fn print(message: &ProbeMessage) {
    if let Ok(line) = serde_json::to_string(message) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn probe(task: &Task) -> Result<NcclChoices> {
    let nccl = Nccl::load()?;
    let gpu = Gpu::open(task.device)?;
    if task.rank == 0 {
        print(&ProbeMessage::Id(hex(nccl.unique_id()?.as_bytes())));
    }
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|e| Error::failed(format!("a probe cannot read the id: {e}")))?;
    std::thread::spawn(|| {
        // blocks until the parent is gone
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        signal_hook::low_level::exit(1)
    });
    let digits = line.trim().as_bytes().chunks(2);
    let bytes: Vec<u8> =
        digits.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    let id = UniqueId::from_bytes(&bytes)?;
    let (on, place) = (gpu.clone(), (task.rank, task.ranks));
    let timeout = Duration::from_secs_f64(task.timeout_s.clamp(1.0, 1e6));
    let communicator =
        NcclCommunicator::join_with(nccl, id, place, timeout, move || on.bind(), Arc::new(|| Ok(())))?;
    first_sums(&gpu, &communicator, &task.messages)?;
    Ok(nccl::chosen().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn rank_0_has_what_all_ranks_bring_and_the_first_error_is_everybodys() {
        let part = |peers: &Arc<Peers>| {
            assert_eq!(gather(None, "names", peers.rank())?, Some(vec![peers.rank()]));
            gather(Some(peers), "names", format!("rank {}", peers.rank()))
        };
        let all = on_threads(Peers::threads(3, TIMEOUT), part, part).unwrap();
        assert_eq!(all.unwrap(), ["rank 0", "rank 1", "rank 2"]);

        let part = |peers: &Arc<Peers>| {
            if peers.rank() == 2 {
                peers.abort("out of memory");
                return Err(Error::failed("out of memory"));
            }
            peers.barrier()
        };
        let error = on_threads(Peers::threads(3, TIMEOUT), part, part).unwrap_err();
        assert_eq!(error.to_string(), "out of memory");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let part = |peers: &Arc<Peers>| match peers.rank() {
            0 => gather(Some(peers), "times", 1_u32).map(|_| ()),
            _ => peers.gather(b"[".to_vec()).map(|_| ()),
        };
        let error = on_threads(Peers::threads(2, TIMEOUT), part, part).unwrap_err().to_string();
        assert!(error.contains("the times of rank 1 cannot be read"), "{error}");
    }

    #[test]
    fn a_rank_that_panics_is_an_error() {
        let part = |peers: &Arc<Peers>| -> Result<()> {
            assert_eq!(peers.rank(), 0, "a panic on purpose");
            Ok(())
        };
        let error = on_threads(Peers::threads(2, TIMEOUT), part, part).unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }
}
