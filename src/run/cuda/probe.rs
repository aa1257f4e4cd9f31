//! Probe of NCCL's choices for a cell's message sizes, cached per set of GPUs, versions and variables. Each
//! rank runs a separate process with NCCL's tuning log enabled, so the log never affects timed processes.
//!
//! Each rank starts its probe, sends it rank 0's id, and reads its answers as lines of JSON. A probe exits
//! when its parent does.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use serde::{Deserialize, Serialize};

use super::engine::first_sums;
use super::ranks::broadcast;
use crate::comm::Peers;
use crate::comm::nccl::{self, Chosen, Communicator, Nccl, UniqueId};
use base::cache::Cache;
use base::error::{Error, Result};
use base::hash::{hex, sha256};
use machine::driver::Gpu;

/// Command-line verb of a probe process.
pub const VERB: &str = "__nccl";

/// Interval for checking the other ranks while waiting for a probe.
const LOOK: Duration = Duration::from_millis(20);

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
enum Said {
    /// Rank 0's NCCL id in hexadecimal, sent before any input.
    Id(String),
    Chosen(Box<Chosen>),
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
) -> Result<Option<Chosen>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let all = peers.gather(format!("{host} {}", gpu.info().uuid).into_bytes())?;
    let cache = Cache::of_user("nccl");
    let key = all.map(|ranks| {
        let variables = nccl::variables();
        let driver = gpu.info().driver_api;
        let told = (ranks, nccl.version(), driver, variables, messages);
        format!("{}.json", sha256(serde_json::to_vec(&told).unwrap_or_default()))
    });
    let known = key.as_ref().zip(cache.as_ref()).and_then(|(key, cache)| cache.load(key));
    let known = peers.broadcast(known.unwrap_or_default())?;
    if let Ok(chosen) = serde_json::from_slice(&known) {
        return Ok(Some(chosen));
    }
    let found = ask(peers, gpu.info().index, messages)?;
    if let (Some(key), Some(cache), Ok(bytes)) = (key, cache, serde_json::to_vec(&found)) {
        cache.store(&key, &bytes);
    }
    // use rank 0's choices everywhere, so that all ranks leave the same number of SMs
    let first = broadcast(Some(peers), "account of NCCL's choices", found)?;
    Ok((first != Chosen::default()).then_some(first))
}

fn ask(peers: &Peers, device: usize, messages: &[u64]) -> Result<Chosen> {
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
    let said = lines(&mut probe.child);
    let until = Instant::now() + peers.timeout() + Duration::from_secs(10);
    let mut mine = Vec::new();
    if peers.rank() == 0 {
        match next(&said, peers, until)? {
            Said::Id(id) => mine = id.into_bytes(),
            other => return Err(unexpected(&other)),
        }
    }
    let id = peers.broadcast(mine)?;
    // keep stdin open: the probe exits when it closes
    let mut input = probe.child.stdin.take();
    if let Some(input) = &mut input {
        let told = input.write_all(&[&id, b"\n".as_slice()].concat()).and_then(|()| input.flush());
        told.map_err(|e| Error::failed(format!("writing the result of an NCCL probe: {e}")))?;
    }
    match next(&said, peers, until)? {
        Said::Chosen(chosen) => Ok(*chosen),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(said: &Said) -> Error {
    match said {
        Said::Error(why) => Error::failed(why.clone()),
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
fn lines(probe: &mut Child) -> Receiver<Said> {
    let (tell, told) = unbounded();
    if let Some(out) = probe.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                // skip other output of libraries
                if let Ok(said) = serde_json::from_str(&line) {
                    let _ = tell.send(said);
                }
            }
        });
    }
    told
}

fn next(said: &Receiver<Said>, peers: &Peers, until: Instant) -> Result<Said> {
    loop {
        match said.recv_timeout(LOOK) {
            Ok(said) => return Ok(said),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::failed("a probe of what NCCL chooses ended without a word"));
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
    let said = serde_json::from_str(task)
        .map_err(|e| Error::input(format!("{VERB} takes a task as JSON: {e}")))
        .and_then(|task| probe(&task));
    let code = u8::from(said.is_err());
    say(&said.map_or_else(|e| Said::Error(e.to_string()), |chosen| Said::Chosen(Box::new(chosen))));
    // a regular exit would wait for libraries with hanging work
    signal_hook::low_level::exit(code.into())
}

fn say(said: &Said) {
    if let Ok(line) = serde_json::to_string(said) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn probe(task: &Task) -> Result<Chosen> {
    let nccl = Nccl::load()?;
    let gpu = Gpu::open(task.device)?;
    if task.rank == 0 {
        say(&Said::Id(hex(nccl.unique_id()?.as_bytes())));
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
        Communicator::join_with(nccl, id, place, timeout, move || on.bind(), Arc::new(|| Ok(())))?;
    first_sums(&gpu, &communicator, &task.messages)?;
    Ok(nccl::chosen().unwrap_or_default())
}
