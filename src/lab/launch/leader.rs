//! Coordinates several processes started by a launcher, one per rank: rank 0 leads, the others follow.
//!
//! The launcher starts `ladderscope run` (or `sweep`) once per rank. Rank 0's process does what it would do alone: it
//! resolves the cells, decides, stores and prints. The others wait for its orders. For each run on several GPUs with
//! NCCL, every process starts a child (`__run`) for its rank, so that variables cached by NCCL are fresh. The
//! children connect to each other, and the followers report how their child ended.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ending::Stop;
use super::permitted::{OwnCells, permit};
use super::process::{Log, ProcessExecutor};
use super::protocol::{Order, Place, Report, Request};
use crate::launch::{Cancel, ExecutorEvent};
use base::error::{Error, Result};
use base::text::printable;
use run::comm::{Late, Peers, Secret};
use run::launcher::{self, Launched, too_few};
use run::{RunEvent, executor};
use table::{Record, Spec, Status};

/// Time for followers to report after rank 0's run has ended. Their children notice the end at once.
const REPORTING: Duration = Duration::from_secs(30);

/// Delay before missing ranks are named.
const LATE: Duration = Duration::from_secs(10);

/// True if a cell runs as one process per rank when a launcher started several.
pub(super) fn takes_several(spec: &Spec) -> bool {
    executor(spec.backend).is_ok_and(|executor| executor.takes_processes(spec))
}

/// Runs `body` on rank 0 or without a launcher; on other ranks, follows rank 0 and runs only built-in models and
/// `own` cells. Returns the exit status.
///
/// # Errors
///
/// Returns an input error for invalid launcher variables, a failure if the ranks do not connect within `timeout`, or
/// the error of `body`.
pub fn lead_or_follow(
    timeout: Duration,
    cancel: &Cancel,
    own: OwnCells<'_>,
    body: impl FnOnce(Option<Arc<Leader>>) -> Result<u8>,
) -> Result<u8> {
    match launcher::of_process()? {
        None => body(None),
        Some(launched) if launched.rank > 0 => follow(launched, timeout, cancel, own),
        Some(launched) => {
            let leader = Arc::new(Leader::meet(launched, timeout)?);
            let done = body(Some(Arc::clone(&leader)));
            leader.end(match &done {
                Ok(code) => *code,
                Err(e) => e.exit_code(),
            });
            done
        }
    }
}

/// Rank 0's side: sends runs to the processes of the other ranks and ends them together.
#[derive(Debug)]
pub struct Leader {
    launched: Launched,
    peers: Peers,
    ended: AtomicBool,
}

impl Leader {
    fn meet(launched: &Launched, timeout: Duration) -> Result<Self> {
        let peers = meet(launched, timeout)?.with_timeout(REPORTING);
        Ok(Self { launched: launched.clone(), peers, ended: AtomicBool::new(false) })
    }

    /// Returns an error as soon as the process of another rank is gone.
    pub(super) fn check(&self) -> Result<()> {
        self.peers.check()
    }

    /// Sends a run to the other ranks and sets `job.place`.
    pub(super) fn begin(&self, job: &mut Request) -> Result<()> {
        let mut meeting = self.launched.meeting();
        meeting.ranks = job.spec.tp as usize;
        if meeting.ranks > self.launched.ranks {
            return Err(Error::input(too_few(self.launched.ranks, &job.spec)));
        }
        // a fresh id, so that no rank of an earlier run can join this one
        meeting.job = fastrand::u64(..);
        job.place = Some(Place {
            meeting,
            local_rank: self.launched.local_rank,
            local_ranks: self.launched.local_ranks,
        });
        self.order(&Order::Run(Box::new(job.clone())))
    }

    /// Adds the reports of the other ranks to a run's record.
    pub(super) fn conclude(&self, job: &Request, mut record: Record) -> Record {
        let reports = match self.reports() {
            Ok(reports) => reports,
            Err(e) => {
                record.warnings.push(format!("not all ranks reported: {e}"));
                return record;
            }
        };
        for (rank, report) in reports.into_iter().enumerate().take(job.spec.tp as usize).skip(1) {
            let warnings = report.warnings.into_iter().map(|warning| format!("rank {rank}: {warning}"));
            record.warnings.extend(warnings);
            let Some(failure) = report.failure else { continue };
            match (&record.status, &mut record.reason) {
                (Status::Ok, _) => {
                    record.warnings.push(format!("rank {rank}, after the result: {failure}"));
                }
                // most failures only repeat the one that another rank died of
                (Status::Failed, Some(reason)) if !names(reason, &failure) => {
                    *reason += &format!("\nrank {rank}: {failure}");
                }
                _ => {}
            }
        }
        record
    }

    fn reports(&self) -> Result<Vec<Report>> {
        let all = self.peers.gather(encode(&Report::default())?)?.unwrap_or_default();
        all.iter().map(|bytes| decode(bytes)).collect()
    }

    fn order(&self, order: &Order) -> Result<()> {
        self.peers.broadcast_unhurried(encode(order)?).map(|_| ())
    }

    /// Lets the other ranks exit with this status.
    fn end(&self, code: u8) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            // ranks that are gone need no order
            let _ = self.order(&Order::End(code));
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.end(1);
    }
}

/// True if a reason already contains the failure that a rank reports.
fn names(reason: &str, failure: &str) -> bool {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let core = |text: &str| first(text).split("; its last output").next().unwrap_or_default().to_owned();
    reason.contains(&core(failure)) || failure.contains(&core(reason))
}

/// Connects to the processes of the other ranks, at the address from the launcher. Late ranks are named on standard
/// error: a shell of `srun --pty` has the variables of a launch without any other rank.
fn meet(launched: &Launched, timeout: Duration) -> Result<Peers> {
    let meeting = launched.meeting();
    let report = |missing: &[usize]| {
        let _ = writeln!(std::io::stderr().lock(), "note: {}", launched.late(missing, LATE));
    };
    let late = Late { after: LATE, report: &report };
    Peers::connect(&meeting, &Secret::of_job(meeting.is_here())?, timeout, Some(late))
}

/// Loop of ranks above 0: executes rank 0's orders until the end order. Writes nothing but its child's log, to
/// standard error.
fn follow(launched: &Launched, timeout: Duration, cancel: &Cancel, own: OwnCells<'_>) -> Result<u8> {
    let peers = meet(launched, timeout)?;
    let executor = ProcessExecutor::new()?;
    loop {
        match decode(&peers.broadcast_unhurried(Vec::new())?)? {
            Order::End(code) => return Ok(code),
            // this rank has no part in the run and sends an empty report
            Order::Run(job) if job.place.as_ref().is_some_and(|p| launched.rank >= p.meeting.ranks) => {
                peers.gather(encode(&Report::default())?)?;
            }
            Order::Run(mut job) => {
                job.timeout = timeout;
                if let Err(e) = permit(&mut job, launched, own) {
                    // rank 0 prints the reason
                    peers.abort(&e.to_string());
                    return Err(e);
                }
                let report = take_part(&executor, *job, launched, &peers, cancel)?;
                peers.gather(encode(&report)?)?;
            }
        }
    }
}

fn take_part(
    executor: &ProcessExecutor,
    mut job: Request,
    launched: &Launched,
    peers: &Peers,
    cancel: &Cancel,
) -> Result<Report> {
    // files written by the child are discarded
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    job.dir = folder.path().to_owned();
    job.watch = false;
    let executor = ProcessExecutor { timeout: job.timeout, ..executor.clone() };
    let stopped = || {
        let cancelled = cancel.is_all().then_some(Stop::Cancelled);
        cancelled.or_else(|| peers.check().err().map(|e| Stop::Apart(e.to_string())))
    };
    let ending = executor.child(&job, Log::none(), &stopped, &mut |event| match event {
        ExecutorEvent::Log(said) | ExecutorEvent::Event(RunEvent::Error { message: said, .. }) => {
            // a closed standard error is no reason to fail
            let _ = writeln!(std::io::stderr().lock(), "[rank {}] {}", launched.rank, printable(&said));
        }
        _ => {}
    });
    Ok(ending.report())
}

fn encode(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::failed(format!("between ranks: {e}")))
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        Error::failed(format!("what came from rank 0 or went to it is no JSON of ours: {e}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_the_reason_tells_already_is_not_told_twice() {
        let reason = "rank 1: out of memory; its last output:\nx";
        assert!(names(reason, "out of memory"));
        assert!(names("rank 1 is gone", "rank 1 is gone; its last output:\ny"));
        assert!(!names(reason, "killed by signal 9 (SIGKILL; out of memory?)"));
    }
}
