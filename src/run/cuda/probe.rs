//! What NCCL chooses for a cell's messages, asked once of each set of GPUs, versions and variables: in processes of their
//! own, one a rank, in which it writes down its tuning. Where something is timed it never does.
//!
//! A rank's process starts its probe, hands it rank 0's id, and waits for what it says, a line of JSON each. A probe ends
//! when whoever started it is gone.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use serde::{Deserialize, Serialize};

use super::engine::first_sums;
use crate::comm::Peers;
use crate::comm::nccl::{self, Chosen, Communicator, Nccl, UniqueId};
use base::cache::Cache;
use base::error::{Error, Result};
use base::hash::{hex, sha256};
use machine::driver::Gpu;

/// The verb of a probe's process.
pub const VERB: &str = "__nccl";

/// How often whoever waits for a probe looks whether the other ranks are well.
const LOOK: Duration = Duration::from_millis(20);

/// What a probe is told, on its command line.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    rank: usize,
    ranks: usize,
    device: usize,
    timeout_s: f64,
    /// Sizes of the messages (bytes).
    messages: Vec<u64>,
}

/// What a probe says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// Rank 0's id, in hexadecimal digits, before it is told one.
    Id(String),
    Chosen(Box<Chosen>),
    Error(String),
}

/// What NCCL chooses on these ranks for all-reduces of these messages (bytes): from an earlier probe, or from one that
/// is started now; `peers` all call this. `None` where it writes nothing down.
///
/// # Errors
///
/// A failure where the ranks cannot sum, with the probe's reason.
pub(super) fn chosen(
    nccl: &'static Nccl,
    peers: &Peers,
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
    let bytes = serde_json::to_vec(&found).map_err(|e| Error::failed(format!("NCCL's choices: {e}")))?;
    if let (Some(key), Some(cache)) = (key, cache) {
        cache.store(&key, &bytes);
    }
    // what rank 0's told counts: all ranks leave the same room
    let first = peers.broadcast(bytes)?;
    let first: Chosen = serde_json::from_slice(&first)
        .map_err(|e| Error::failed(format!("rank 0's account of NCCL's choices: {e}")))?;
    Ok((first != Chosen::default()).then_some(first))
}

/// Starts this rank's probe and waits for what it says.
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
    // kept open: its end is the probe's
    let mut input = probe.child.stdin.take();
    if let Some(input) = &mut input {
        let told = input.write_all(&[&id, b"\n".as_slice()].concat()).and_then(|()| input.flush());
        told.map_err(|e| Error::failed(format!("a probe of NCCL cannot be told: {e}")))?;
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

/// A probe, which ends with this.
struct Probe {
    child: Child,
}

impl Drop for Probe {
    fn drop(&mut self) {
        // it has said what there is to say, or nobody waits for it any more
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a probe says, line by line.
fn lines(probe: &mut Child) -> Receiver<Said> {
    let (tell, told) = unbounded();
    if let Some(out) = probe.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                // what else libraries print there is none of it
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

/// A probe's process: joins its ranks, sums once for each message, says what NCCL wrote down, and ends.
pub fn probe_main(task: &str) -> ExitCode {
    let said = serde_json::from_str(task)
        .map_err(|e| Error::input(format!("{VERB} takes a task as JSON: {e}")))
        .and_then(|task| probe(&task));
    let code = u8::from(said.is_err());
    say(&said.map_or_else(|e| Said::Error(e.to_string()), |chosen| Said::Chosen(Box::new(chosen))));
    // a library whose work hangs would be waited for at an orderly exit
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
        // until whoever started this is gone
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
