//! Control messages between the ranks of one run: barrier, gather to rank 0, broadcast from rank 0, and abort.
//!
//! Ranks are threads of one process or processes over TCP, behind the same interface. Messages go between rank 0 and
//! each other rank (a star); they are small and rare (an id, reports, spans), and never part of a measurement. They
//! are numbers, names of phases, and outcomes: nothing that a rank receives is executed, opened or set. Every wait
//! ends: when the others arrive, when a rank aborts, dies or leaves, or when the awaited rank shows no progress for
//! the timeout.

mod handshake;
mod mailbox;
mod rendezvous;
mod secret;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mailbox::{Frame, Mailbox, PeerOperation, ReceiveError};
use rendezvous::Wires;
#[cfg(fuzzing)]
pub use rendezvous::read_any_message;
pub use rendezvous::{LateRanks, Meeting};
pub use secret::Secret;

use crate::comm::ProgressMonitor;
use base::error::{Error, Result};

/// Extra time that other ranks wait for rank 0, so that its error, which names the missing ranks, arrives first.
const FIRST_RANK_GRACE: Duration = Duration::from_secs(3);

/// One rank's view of all ranks, owned by its thread; other threads may share it only to call [`Peers::check`],
/// [`Peers::phase`] or [`Peers::abort`].
///
/// A collective operation fails as soon as any rank has aborted, died, or made no progress for the timeout. The error
/// names that rank, and all other ranks fail with the same error.
#[derive(Debug)]
pub struct Peers {
    rank: usize,
    ranks: usize,
    timeout: Duration,
    mine: Arc<Mailbox>,
    transport: Transport,
    /// Number of collective operations so far; received messages must have the same number.
    number: AtomicU64,
    progress: Option<Arc<ProgressMonitor>>,
}

/// Transport of messages to other ranks.
#[derive(Debug)]
enum Transport {
    Threads(Vec<Arc<Mailbox>>),
    Processes(Wires),
}

/// One clock query to another rank; all times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingPong {
    pub sent: i64,
    /// Reply of the other rank's clock.
    pub theirs: i64,
    /// Time on rank 0's clock at which the reply arrived.
    pub received: i64,
}

impl Peers {
    fn new(
        (rank, ranks): (usize, usize),
        timeout: Duration,
        mine: Arc<Mailbox>,
        transport: Transport,
    ) -> Self {
        Self { rank, ranks, timeout, mine, transport, number: AtomicU64::new(0), progress: None }
    }

    pub fn threads(ranks: usize, timeout: Duration) -> Vec<Self> {
        let boxes: Vec<Arc<Mailbox>> = (0..ranks).map(|_| Arc::new(Mailbox::new(ranks))).collect();
        let all = boxes.iter().enumerate();
        all.map(|(rank, mine)| {
            Self::new((rank, ranks), timeout, Arc::clone(mine), Transport::Threads(boxes.clone()))
        })
        .collect()
    }

    /// Connects a rank in its own process: rank 0 listens, the others connect to it with the job's `secret`. Returns
    /// when all ranks have connected, or with an error after `timeout`; late ranks are reported before that.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing ranks after the timeout, or if a rank connects twice or runs another
    /// version of this program.
    pub fn connect(
        meeting: &Meeting,
        secret: &Secret,
        timeout: Duration,
        late: Option<LateRanks<'_>>,
    ) -> Result<Self> {
        let mine = Arc::new(Mailbox::new(meeting.ranks));
        let wires = rendezvous::connect(meeting, secret, timeout, late, &mine)?;
        let place = (meeting.rank, meeting.ranks);
        let peers = Self::new(place, timeout, mine, Transport::Processes(wires));
        // the barrier tells the others that all ranks have connected
        peers.barrier()?;
        Ok(peers)
    }

    /// Changes the timeout for later operations; the rendezvous may need a longer one.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub fn with_progress(mut self, progress: Arc<ProgressMonitor>) -> Self {
        self.progress = Some(progress);
        self
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Maximum time without progress before other ranks stop waiting.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn in_one_process(&self) -> bool {
        matches!(self.transport, Transport::Threads(_))
    }

    /// Announces this rank's current activity (`loading weights`). It counts as progress, and other ranks name it in
    /// their timeout error.
    pub fn phase(&self, what: &str) {
        self.mine.phase(self.rank, what);
        if let Some(progress) = &self.progress {
            progress.of_rank(self.rank, what);
        }
        for to in self.reachable() {
            let _ = self.send(to, Frame::Phase(what.to_owned()));
        }
    }

    /// Blocks until every rank has called it. Fails like every collective operation of [`Peers`].
    pub fn barrier(&self) -> Result<()> {
        let number = self.next();
        self.to_first(PeerOperation::Barrier, number, Vec::new())?;
        self.by_first(PeerOperation::Barrier, number, Vec::new()).map(|_| ())
    }

    /// Collects every rank's bytes on rank 0, by rank; returns `None` at once on the others. Fails like every
    /// collective operation of [`Peers`].
    pub fn gather(&self, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        self.to_first(PeerOperation::Gather, self.next(), bytes)
    }

    /// Sends rank 0's bytes to every rank; the other ranks' argument is ignored. Fails like every collective
    /// operation of [`Peers`].
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.by_first(PeerOperation::Broadcast, self.next(), bytes)
    }

    /// Broadcasts like [`Peers::broadcast`] but without a timeout: the wait ends only with rank 0's bytes or when a
    /// rank aborts or dies.
    pub fn broadcast_unhurried(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let number = self.next();
        if self.rank == 0 {
            return self.by_first(PeerOperation::Broadcast, number, bytes);
        }
        self.receive(0, PeerOperation::Broadcast, number, None)
    }

    /// Compares every other rank's clock with rank 0's in `rounds` queries each. Returns the replies by rank on rank
    /// 0 (none for itself) and an empty list on others. All ranks must call it; `now` reads the rank's clock in ns.
    /// Fails like every collective operation of [`Peers`].
    pub fn compare_clocks(&self, rounds: usize, now: impl Fn() -> i64) -> Result<Vec<Vec<PingPong>>> {
        let number = self.next();
        if self.rank != 0 {
            for _ in 0..rounds {
                self.receive(0, PeerOperation::Clock, number, Some(self.timeout + FIRST_RANK_GRACE))?;
                self.deliver(0, PeerOperation::Clock, number, now().to_le_bytes().to_vec())?;
            }
            return Ok(Vec::new());
        }
        let mut all = vec![Vec::new()];
        for rank in 1..self.ranks {
            let mut questions = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                let sent = now();
                self.deliver(rank, PeerOperation::Clock, number, Vec::new())?;
                let answer = self.receive(rank, PeerOperation::Clock, number, Some(self.timeout))?;
                let received = now();
                let theirs = <[u8; 8]>::try_from(answer.as_slice()).map_err(|_| {
                    self.fail(format!("rank {rank} answered {} bytes for its clock", answer.len()))
                })?;
                questions.push(PingPong { sent, theirs: i64::from_le_bytes(theirs), received });
            }
            all.push(questions);
        }
        Ok(all)
    }

    /// Aborts all ranks: all present and future waits return `why`. The first reason wins.
    pub fn abort(&self, why: &str) {
        self.mine.abort(why);
        match &self.transport {
            Transport::Threads(boxes) => boxes.iter().for_each(|other| other.abort(why)),
            Transport::Processes(wires) => wires.abort(why),
        }
    }

    /// Returns the first abort reason as an error if any rank has aborted or died. Never blocks, so loops that poll a
    /// GPU can call it.
    pub fn check(&self) -> Result<()> {
        self.mine.check().map_err(Error::failed)
    }

    fn reachable(&self) -> std::ops::Range<usize> {
        if self.rank == 0 { 1..self.ranks } else { 0..1 }
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn to_first(
        &self,
        operation: PeerOperation,
        number: u64,
        bytes: Vec<u8>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        if self.rank != 0 {
            self.deliver(0, operation, number, bytes)?;
            return Ok(None);
        }
        let mut all = vec![bytes];
        for rank in 1..self.ranks {
            all.push(self.receive(rank, operation, number, Some(self.timeout))?);
        }
        Ok(Some(all))
    }

    fn by_first(&self, operation: PeerOperation, number: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.rank != 0 {
            return self.receive(0, operation, number, Some(self.timeout + FIRST_RANK_GRACE));
        }
        for rank in 1..self.ranks {
            self.deliver(rank, operation, number, bytes.clone())?;
        }
        Ok(bytes)
    }

    fn deliver(&self, to: usize, operation: PeerOperation, number: u64, bytes: Vec<u8>) -> Result<()> {
        self.check()?;
        self.send(to, Frame::Data { operation, number, bytes }).map_err(|e| {
            // the rank may have aborted in the meantime, with a better reason
            self.check()
                .err()
                .unwrap_or_else(|| self.fail(format!("rank {to} cannot be reached any more: {e}")))
        })
    }

    fn send(&self, to: usize, frame: Frame) -> std::io::Result<()> {
        match &self.transport {
            Transport::Threads(boxes) => {
                boxes[to].take(self.rank, frame);
                Ok(())
            }
            Transport::Processes(wires) => wires.send(to, &frame),
        }
    }

    /// Receives the message of `from`; aborts all ranks if it makes no progress within `patience`.
    fn receive(
        &self,
        from: usize,
        operation: PeerOperation,
        number: u64,
        patience: Option<Duration>,
    ) -> Result<Vec<u8>> {
        let (their_operation, their_number, bytes) = match self.mine.wait(from, patience) {
            Ok(message) => message,
            Err(ReceiveError::Broken(why)) => return Err(Error::failed(why)),
            Err(ReceiveError::Left) => {
                return Err(self.fail(format!(
                    "rank {from} ended while rank {} waited for it ({})",
                    self.rank,
                    operation.name()
                )));
            }
            Err(ReceiveError::Late { phase, silent }) => {
                let late = self.late(from, operation, &phase, silent);
                return Err(self.fail(late));
            }
        };
        if (their_operation, their_number) != (operation, number) {
            return Err(self.fail(format!(
                "ranks took different ways: rank {from} is at its {} (operation {their_number}), rank {} at its {} (operation {number})",
                their_operation.name(),
                self.rank,
                operation.name(),
            )));
        }
        Ok(bytes)
    }

    fn late(&self, from: usize, operation: PeerOperation, phase: &str, silent: Duration) -> String {
        let mut who = format!("rank {from}{phase}");
        if self.rank == 0 {
            // later ranks may be missing too
            for other in from + 1..self.ranks {
                if let Some(phase) = self.mine.missing(other) {
                    who += &format!(", rank {other}{phase}");
                }
            }
        }
        let (rank, seconds) = (self.rank, silent.as_secs_f64());
        format!(
            "{who} did not come within {seconds:.0} s: rank {rank} waited for it ({}); everything is ended",
            operation.name()
        )
    }

    fn fail(&self, why: String) -> Error {
        self.abort(&why);
        Error::failed(why)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort(&format!("rank {} panicked", self.rank));
        }
        match &self.transport {
            Transport::Threads(boxes) => {
                // an aborting rank notifies one mailbox after the other: no peer may see this rank leave before it
                // sees the reason
                let known = self.mine.check().err();
                for other in boxes {
                    if let Some(why) = &known {
                        other.abort(why);
                    }
                    other.take(self.rank, Frame::Leave);
                }
            }
            Transport::Processes(wires) => wires.leave(),
        }
    }
}

#[cfg(test)]
mod tests;
