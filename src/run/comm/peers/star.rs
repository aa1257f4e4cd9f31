//! The ranks as a star: every collective operation goes through rank 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::mailbox::{Mailbox, Missing};
use super::meet::Wires;
use super::wire::{Frame, Operation};
use super::{Late, Meeting, Secret, meet};
use crate::comm::Progress;
use base::error::{Error, Result};

/// Other ranks wait for rank 0 a little longer than it waits for them: its message, which names who
/// is missing, comes first.
const PATIENCE: Duration = Duration::from_secs(3);

/// One rank's view of all ranks. A thread a rank holds one; it may be shared with threads that only
/// [`Peers::check`], note a [`Peers::phase`] or [`Peers::abort`].
///
/// A collective operation fails as soon as any rank has aborted, has died, or has shown no progress for
/// the time-out; the error names that rank, and all other ranks end with the same error.
#[derive(Debug)]
pub struct Peers {
    rank: usize,
    ranks: usize,
    timeout: Duration,
    /// What others sent to this rank.
    mine: Arc<Mailbox>,
    pub(super) way: Way,
    /// Collective operations so far: what is received must be of the same one.
    number: AtomicU64,
    /// Who else is informed of progress: the watchdog.
    progress: Option<Arc<Progress>>,
}

/// How what is sent gets there.
#[derive(Debug)]
pub(super) enum Way {
    /// Into the mailboxes of the other threads, by rank.
    Threads(Vec<Arc<Mailbox>>),
    /// Over TCP connections to the other processes.
    Processes(Wires),
}

/// One question to another rank's clock, all in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingPong {
    /// When rank 0 asked, by its clock.
    pub sent: i64,
    /// What the other's clock said.
    pub theirs: i64,
    /// When the answer had come, by rank 0's clock.
    pub received: i64,
}

impl Peers {
    /// The ranks of one process, each for a thread of its own.
    pub fn threads(ranks: usize, timeout: Duration) -> Vec<Self> {
        let boxes: Vec<Arc<Mailbox>> = (0..ranks).map(|_| Arc::new(Mailbox::new(ranks))).collect();
        let peers = |rank| Self {
            rank,
            ranks,
            timeout,
            mine: Arc::clone(&boxes[rank]),
            way: Way::Threads(boxes.clone()),
            number: AtomicU64::new(0),
            progress: None,
        };
        (0..ranks).map(peers).collect()
    }

    /// A rank that is a process of its own: rank 0 listens, the others come to it. Returns when all have
    /// come, each with the job's `secret`, or with an error when `timeout` is over; ranks that are late are reported
    /// before.
    ///
    /// # Errors
    ///
    /// A failure where not all ranks come within the time-out, which names those that are missing; where
    /// one comes twice, or is of another version of this program.
    pub fn connect(
        meeting: &Meeting,
        secret: &Secret,
        timeout: Duration,
        late: Option<Late<'_>>,
    ) -> Result<Self> {
        let mine = Arc::new(Mailbox::new(meeting.ranks));
        let wires = meet::connect(meeting, secret, timeout, late, &mine)?;
        let peers = Self {
            rank: meeting.rank,
            ranks: meeting.ranks,
            timeout,
            mine,
            way: Way::Processes(wires),
            number: AtomicU64::new(0),
            progress: None,
        };
        // others learn here that all have come
        peers.barrier()?;
        Ok(peers)
    }

    /// With another time-out from now on (meeting may take longer than what follows).
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A watchdog's view of progress is told of every [`Peers::phase`] too.
    pub fn with_progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// The rank that sees the others here, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are, this one included.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// How long a rank may show no progress before others stop waiting for it.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether every rank is a thread of this process.
    pub fn in_one_process(&self) -> bool {
        matches!(self.way, Way::Threads(_))
    }

    /// Says what this rank is doing now (`loading weights`): progress, as far as others wait for it, and
    /// what they say of it when they stop waiting.
    pub fn phase(&self, what: &str) {
        self.mine.phase(self.rank, what);
        if let Some(progress) = &self.progress {
            progress.of_rank(self.rank, what);
        }
        for to in self.reachable() {
            let _ = self.send(to, Frame::Phase(what.to_owned()));
        }
    }

    /// Blocks until every rank has called it. Fails as every collective operation of [`Peers`] does.
    pub fn barrier(&self) -> Result<()> {
        let number = self.next();
        self.to_first(Operation::Barrier, number, Vec::new())?;
        self.by_first(Operation::Barrier, number, Vec::new()).map(|_| ())
    }

    /// Every rank's bytes, by rank, on rank 0; `None` on the others, which do not wait. Fails as every
    /// collective operation of [`Peers`] does.
    pub fn gather(&self, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        self.to_first(Operation::Gather, self.next(), bytes)
    }

    /// Rank 0's bytes, on every rank; what other ranks give is ignored. Fails as every collective
    /// operation of [`Peers`] does.
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.by_first(Operation::Broadcast, self.next(), bytes)
    }

    /// Rank 0's bytes on every rank like [`Peers::broadcast`], for as long as that takes: there
    /// is no time-out, and the wait ends only with rank 0's bytes, or with an error when a rank
    /// has aborted or died.
    pub fn broadcast_unhurried(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let number = self.next();
        if self.rank == 0 {
            return self.by_first(Operation::Broadcast, number, bytes);
        }
        self.receive(0, Operation::Broadcast, number, None)
    }

    /// Compares every other rank's clock with rank 0's: on rank 0, by rank, `rounds` questions each
    /// (none of itself); empty on others. All ranks must call it. `now` is a rank's clock in ns. Fails
    /// as every collective operation of [`Peers`] does.
    pub fn compare_clocks(&self, rounds: usize, now: impl Fn() -> i64) -> Result<Vec<Vec<PingPong>>> {
        let number = self.next();
        if self.rank != 0 {
            for _ in 0..rounds {
                self.receive(0, Operation::Clock, number, Some(self.timeout + PATIENCE))?;
                self.deliver(0, Operation::Clock, number, now().to_le_bytes().to_vec())?;
            }
            return Ok(Vec::new());
        }
        let mut all = vec![Vec::new()];
        for rank in 1..self.ranks {
            let mut questions = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                let sent = now();
                self.deliver(rank, Operation::Clock, number, Vec::new())?;
                let answer = self.receive(rank, Operation::Clock, number, Some(self.timeout))?;
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

    /// Tells every rank that this one cannot go on: all present and future waits end with `why`.
    /// The first reason stays.
    pub fn abort(&self, why: &str) {
        self.mine.abort(why);
        match &self.way {
            Way::Threads(boxes) => boxes.iter().for_each(|other| other.abort(why)),
            Way::Processes(wires) => wires.abort(why),
        }
    }

    /// An error as soon as any rank has aborted or died, with the first reason that any rank gave. Never
    /// blocks: for loops that poll a GPU.
    pub fn check(&self) -> Result<()> {
        self.mine.check().map_err(Error::failed)
    }

    /// Ranks that this one sends to.
    fn reachable(&self) -> std::ops::Range<usize> {
        if self.rank == 0 { 1..self.ranks } else { 0..1 }
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn to_first(
        &self,
        operation: Operation,
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

    fn by_first(&self, operation: Operation, number: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.rank != 0 {
            return self.receive(0, operation, number, Some(self.timeout + PATIENCE));
        }
        for rank in 1..self.ranks {
            self.deliver(rank, operation, number, bytes.clone())?;
        }
        Ok(bytes)
    }

    fn deliver(&self, to: usize, operation: Operation, number: u64, bytes: Vec<u8>) -> Result<()> {
        self.check()?;
        self.send(to, Frame::Data { operation, number, bytes }).map_err(|e| {
            // its end may have been told meanwhile, with a better reason
            self.check()
                .err()
                .unwrap_or_else(|| self.fail(format!("rank {to} cannot be reached any more: {e}")))
        })
    }

    fn send(&self, to: usize, frame: Frame) -> std::io::Result<()> {
        match &self.way {
            Way::Threads(boxes) => {
                boxes[to].take(self.rank, frame);
                Ok(())
            }
            Way::Processes(wires) => wires.send(to, &frame),
        }
    }

    /// What `from` sent; no progress of it within `patience` is an error that ends all.
    fn receive(
        &self,
        from: usize,
        operation: Operation,
        number: u64,
        patience: Option<Duration>,
    ) -> Result<Vec<u8>> {
        let (their_operation, their_number, bytes) = match self.mine.wait(from, patience) {
            Ok(message) => message,
            Err(Missing::Broken(why)) => return Err(Error::failed(why)),
            Err(Missing::Left) => {
                return Err(self.fail(format!(
                    "rank {from} ended while rank {} waited for it ({})",
                    self.rank,
                    operation.name()
                )));
            }
            Err(Missing::Late { phase, silent }) => {
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

    /// Who did not come, and what they were doing, in one line.
    fn late(&self, from: usize, operation: Operation, phase: &str, silent: Duration) -> String {
        let mut who = format!("rank {from}{phase}");
        if self.rank == 0 {
            // those after it may be missing too
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

    /// An error that ends all ranks.
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
        match &self.way {
            Way::Threads(boxes) => {
                // who gave up tells one mailbox after the other: nobody may see this rank go before the reason
                let known = self.mine.check().err();
                for other in boxes {
                    if let Some(why) = &known {
                        other.abort(why);
                    }
                    other.take(self.rank, Frame::Leave);
                }
            }
            Way::Processes(wires) => wires.leave(),
        }
    }
}
