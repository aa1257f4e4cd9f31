//! Processes that a launcher (torchrun, srun, mpirun) started together, one per rank.
//!
//! Every process resolves the same command line by itself; the ranks compare fingerprints of their cells before the
//! first run. Then rank 0 does what it would do alone: it decides which cells run, stores and prints. It announces a
//! cell by its number, so another rank runs what its own command line says. For each run on several GPUs with NCCL,
//! every process starts a child (`__run`) for its rank, so that variables cached by NCCL are fresh. The children
//! connect to each other, and the ranks report how their child ended.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ending::StopReason;
use super::{Log, ProcessExecutor, Request};
use crate::launch::{Cancel, ExecutorEvent};
use base::checksum::short_key;
use base::error::{Error, Result};
use base::text::printable;
use run::comm::{LateRanks, Peers, Secret};
use run::launcher::{self, Launched, too_few};
use run::{RunEvent, executor};
use table::{Record, Spec, Status};

/// Time for all ranks to resolve their cells; a rank that dies meanwhile is noticed at once.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(600);

/// Time for the other ranks to report after rank 0's run has ended. Children that met notice the end at once; others
/// look for rank 0's child until their own timeout, which is added.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before missing ranks are named.
const LATE_AFTER: Duration = Duration::from_secs(10);

/// Rank 0's decision, which all ranks carry out together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Decision {
    /// Run the cell with this index; `job` is the id at which the children meet.
    Run { cell: usize, job: u64 },
    /// Exit with this status.
    End(u8),
}

/// Exit of a rank's child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankExit {
    /// Reason of a failure; `None` for success.
    pub failure: Option<String>,
    pub warnings: Vec<String>,
}

/// Result of resolving the command line on one rank, as the others need it.
#[derive(Debug, Serialize, Deserialize)]
enum Resolved {
    Cells(Fingerprint),
    Failed { why: String, code: u8 },
}

/// Number of cells, and a hash of each option's values in all cells.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    cells: usize,
    options: BTreeMap<String, String>,
}

impl Fingerprint {
    fn from_cells(cells: &[Spec]) -> Self {
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        for (index, cell) in cells.iter().enumerate() {
            let fields = serde_json::to_value(cell).ok();
            for (name, value) in fields.iter().filter_map(|fields| fields.as_object()).flatten() {
                *values.entry(name.clone()).or_default() += &format!("{index} {value}\n");
            }
        }
        let options = values.into_iter().map(|(name, values)| (name, short_key(values))).collect();
        Self { cells: cells.len(), options }
    }

    /// First difference from `other`, for an error message.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.cells != other.cells {
            return Some(format!("another number of cells ({}, not {})", other.cells, self.cells));
        }
        let names = self.options.keys().chain(other.options.keys());
        let mut names: Vec<&str> = names
            .filter(|name| self.options.get(*name) != other.options.get(*name))
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| format!("another {}", printable(&names.join(", "))))
    }
}

/// Reason for which the ranks run nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Disagreement {
    /// Rank 0 failed to resolve its cells, with this exit status.
    Failed(u8),
    /// Another rank failed, or has other cells than rank 0.
    Differs(String),
}

/// Runs `lead` with the cells of `resolve` on rank 0 or without a launcher. Other ranks resolve the same cells and
/// take part in those that rank 0 runs. Returns the exit status.
///
/// # Errors
///
/// Returns an input error for invalid launcher variables or if a rank resolves other cells than rank 0, a failure if
/// the ranks do not connect within `timeout`, or the error of `lead`.
pub fn on_all_ranks<T>(
    timeout: Duration,
    cancel: &Cancel,
    resolve: impl FnOnce() -> Result<(Vec<Spec>, T)>,
    lead: impl FnOnce(Option<Arc<LaunchedRanks>>, T) -> Result<u8>,
) -> Result<u8> {
    let Some(launched) = launcher::of_process()? else { return lead(None, resolve()?.1) };
    let peers = meet(launched, timeout, cancel)?.with_timeout(RESOLVE_TIMEOUT);
    let resolved = resolve();
    match disagreement(&peers, &resolved)? {
        Some(Disagreement::Differs(why)) => {
            return Err(Error::input_help(
                printable(&why).into_owned(),
                "start every rank with the same command line and files",
            ));
        }
        // rank 0 prints its own error
        Some(Disagreement::Failed(code)) if peers.rank() > 0 => return Ok(code),
        Some(Disagreement::Failed(_)) | None => {}
    }
    let (cells, resolved) = resolved?;
    if launched.meeting.rank > 0 {
        return follow(launched, &peers, &cells, timeout, cancel);
    }
    let peers = peers.with_timeout(timeout + REPORT_TIMEOUT);
    let ranks = Arc::new(LaunchedRanks { launched, peers, ended: AtomicBool::new(false) });
    let done = lead(Some(Arc::clone(&ranks)), resolved);
    ranks.end(match &done {
        Ok(code) => *code,
        Err(e) => e.exit_code(),
    });
    done
}

/// Compares what the ranks resolved; returns the same result on all of them.
fn disagreement<T>(peers: &Peers, resolved: &Result<(Vec<Spec>, T)>) -> Result<Option<Disagreement>> {
    let mine = match resolved {
        Ok((cells, _)) => Resolved::Cells(Fingerprint::from_cells(cells)),
        Err(e) => Resolved::Failed { why: e.to_string(), code: e.exit_code() },
    };
    let all: Option<Vec<Resolved>> = gather(peers, &mine)?;
    let found = all.and_then(|all| {
        let expected = match all.first()? {
            Resolved::Cells(cells) => cells,
            Resolved::Failed { code, .. } => return Some(Disagreement::Failed(*code)),
        };
        all.iter().enumerate().find_map(|(rank, other)| {
            Some(Disagreement::Differs(match other {
                Resolved::Failed { why, .. } => format!("rank {rank}: {}", printable(why)),
                Resolved::Cells(cells) => {
                    let difference = expected.difference(cells)?;
                    format!("rank {rank} resolves {difference} than rank 0")
                }
            }))
        })
    });
    decode(&peers.broadcast(encode(&found)?)?)
}

/// Rank 0's side: announces runs to the other ranks and ends them together.
#[derive(Debug)]
pub struct LaunchedRanks {
    launched: &'static Launched,
    peers: Peers,
    ended: AtomicBool,
}

impl LaunchedRanks {
    /// True if a cell runs as one process per rank.
    pub(super) fn take_part(spec: &Spec) -> bool {
        executor(spec.backend).is_ok_and(|executor| executor.takes_processes(spec))
    }

    /// Returns an error as soon as the process of another rank is gone.
    pub(super) fn check(&self) -> Result<()> {
        self.peers.check()
    }

    /// Announces a run to the other ranks; returns the id at which the children meet.
    pub(super) fn begin(&self, cell: usize, spec: &Spec) -> Result<u64> {
        let ranks = self.launched.meeting.ranks;
        if spec.tp as usize > ranks {
            return Err(Error::input(too_few(ranks, spec)));
        }
        // a fresh id, so that no rank of an earlier run can join this one
        let job = fastrand::u64(..);
        self.announce(Decision::Run { cell, job })?;
        Ok(job)
    }

    /// Adds the reports of the other ranks to a run's record.
    pub(super) fn conclude(&self, mut record: Record) -> Record {
        let reports: Vec<RankExit> = match gather(&self.peers, &RankExit::default()) {
            Ok(reports) => reports.unwrap_or_default(),
            Err(e) => {
                record.warnings.push(format!("not all ranks reported: {e}"));
                return record;
            }
        };
        for (rank, report) in reports.into_iter().enumerate().take(record.spec.tp as usize).skip(1) {
            let warnings = report.warnings.into_iter().map(|warning| format!("rank {rank}: {warning}"));
            record.warnings.extend(warnings);
            let Some(failure) = report.failure else { continue };
            match (&record.status, &mut record.reason) {
                (Status::Ok, _) => {
                    record.warnings.push(format!("rank {rank}, after the result: {failure}"));
                }
                // most failures only repeat the one that another rank died of
                (Status::Failed, Some(reason)) if !repeats(reason, &failure) => {
                    *reason += &format!("\nrank {rank}: {failure}");
                }
                _ => {}
            }
        }
        record
    }

    fn announce(&self, decision: Decision) -> Result<()> {
        self.peers.broadcast_unhurried(encode(&decision)?).map(|_| ())
    }

    /// Lets the other ranks exit with this status.
    fn end(&self, code: u8) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            // ranks that are gone need no decision
            let _ = self.announce(Decision::End(code));
        }
    }
}

impl Drop for LaunchedRanks {
    fn drop(&mut self) {
        self.end(1);
    }
}

/// True if a reason already contains the failure that a rank reports.
fn repeats(reason: &str, failure: &str) -> bool {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let core = |text: &str| first(text).split("; its last output").next().unwrap_or_default().to_owned();
    reason.contains(&core(failure)) || failure.contains(&core(reason))
}

/// Connects to the processes of the other ranks, at the address from the launcher. Late ranks are named on standard
/// error: a shell of `srun --pty` has the variables of a launch without any other rank.
fn meet(launched: &Launched, timeout: Duration, cancel: &Cancel) -> Result<Peers> {
    let report = |missing: &[usize]| {
        let _ = writeln!(std::io::stderr().lock(), "note: {}", launched.late(missing, LATE_AFTER));
    };
    let late = LateRanks { after: LATE_AFTER, report: &report, stop: &|| cancel.is_all() };
    Peers::connect(&launched.meeting, &Secret::load()?, timeout, Some(late))
}

/// Loop of ranks above 0: carries out rank 0's decisions until the end. Writes nothing but its child's log, to
/// standard error.
fn follow(
    launched: &Launched,
    peers: &Peers,
    cells: &[Spec],
    timeout: Duration,
    cancel: &Cancel,
) -> Result<u8> {
    let executor = ProcessExecutor { timeout, ..ProcessExecutor::new()? };
    loop {
        let (cell, job) = match decode(&peers.broadcast_unhurried(Vec::new())?)? {
            Decision::End(code) => return Ok(code),
            Decision::Run { cell, job } => (cell, job),
        };
        let spec = cells.get(cell).filter(|spec| LaunchedRanks::take_part(spec)).ok_or_else(|| {
            let why = format!("rank {} has no cell {cell} to run with others", peers.rank());
            peers.abort(&why);
            Error::failed(why)
        })?;
        let report = match launched.meeting.rank < spec.tp as usize {
            true => run_child(&executor, spec, job, peers, cancel),
            // this rank has no part in the run
            false => RankExit::default(),
        };
        gather(peers, &report)?;
        if cancel.is_all() {
            // only this rank may have been interrupted, and it can take no further part
            peers.abort(&format!("rank {} was interrupted", peers.rank()));
            return Err(Error::Interrupted);
        }
    }
}

fn run_child(
    executor: &ProcessExecutor,
    spec: &Spec,
    job: u64,
    peers: &Peers,
    cancel: &Cancel,
) -> RankExit {
    let request = Request {
        run: String::new(),
        dir: None,
        spec: spec.clone(),
        watch: false,
        timeout: executor.timeout,
        job: Some(job),
    };
    let stopped = || {
        let cancelled = cancel.is_all().then_some(StopReason::Cancelled);
        cancelled.or_else(|| peers.check().err().map(|e| StopReason::Apart(e.to_string())))
    };
    let end = executor.child(&request, Log::none(), &stopped, &mut |event| match event {
        ExecutorEvent::Log(said) | ExecutorEvent::Event(RunEvent::Error { message: said, .. }) => {
            // a closed standard error is no reason to fail
            let rank = peers.rank();
            let _ = writeln!(std::io::stderr().lock(), "[rank {rank}] {}", printable(&said));
        }
        _ => {}
    });
    end.report()
}

/// Every rank's value on rank 0, by rank; `None` on the others.
fn gather<T: Serialize + for<'a> Deserialize<'a>>(peers: &Peers, mine: &T) -> Result<Option<Vec<T>>> {
    let all = peers.gather(encode(mine)?)?;
    all.map(|all| all.iter().map(|bytes| decode(bytes)).collect()).transpose()
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::failed(format!("a message between ranks: {e}")))
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|e| Error::failed(format!("a message between ranks cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_the_reason_tells_already_is_not_told_twice() {
        let reason = "rank 1: out of memory; its last output:\nx";
        assert!(repeats(reason, "out of memory"));
        assert!(repeats("rank 1 is gone", "rank 1 is gone; its last output:\ny"));
        assert!(!repeats(reason, "killed by signal 9 (SIGKILL; out of memory?)"));
    }

    /// Conclusions of rank 0 and rank 1 from their resolved cells.
    fn verdicts(resolved: [Result<Vec<Spec>>; 2]) -> Vec<Option<Disagreement>> {
        let ranks = Peers::threads(2, Duration::from_secs(20)).into_iter().zip(resolved);
        std::thread::scope(|scope| {
            let ranks: Vec<_> = ranks
                .map(|(peers, resolved)| {
                    scope
                        .spawn(move || disagreement(&peers, &resolved.map(|cells| (cells, ()))).unwrap())
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    fn differs(why: &str) -> Option<Disagreement> {
        Some(Disagreement::Differs(why.to_owned()))
    }

    /// Nothing of a cell crosses the network, so a rank runs no variable, model, file or program that its own command
    /// line does not name: a difference in any of them ends all ranks.
    #[test]
    fn ranks_with_other_cells_run_nothing() {
        type Change = fn(&mut Spec);
        let spec = Spec { model: "tiny".into(), tp: 2, ..Spec::default() };
        let changes: [(&str, Change); 8] = [
            ("another env", |spec| _ = spec.env.insert("LD_PRELOAD".into(), "x.so".into())),
            ("another env", |spec| _ = spec.env.insert("NCCL_ALGO".into(), "Ring".into())),
            ("another model", |spec| spec.model = "/tmp/model".into()),
            ("another hardware", |spec| spec.hardware = "/tmp/x.toml".into()),
            ("another stack", |spec| spec.stack = "/tmp/x.toml".into()),
            ("another files", |spec| _ = spec.files.insert("model".into(), "0123".into())),
            ("another backend", |spec| spec.backend = table::Backend::Cpu),
            ("another tp", |spec| spec.tp = 4),
        ];
        for (wanted, change) in changes {
            let mut other = spec.clone();
            change(&mut other);
            for pair in [[spec.clone(), other.clone()], [other.clone(), spec.clone()]] {
                let pair = pair.map(|spec| Ok(vec![Spec::default(), spec]));
                let why = format!("rank 1 resolves {wanted} than rank 0");
                assert_eq!(verdicts(pair), [differs(&why), differs(&why)]);
            }
        }
        let fewer = verdicts([Ok(vec![spec.clone(); 2]), Ok(vec![spec.clone()])]);
        assert_eq!(fewer[1], differs("rank 1 resolves another number of cells (1, not 2) than rank 0"));
        assert_eq!(verdicts([Ok(vec![spec.clone()]), Ok(vec![spec.clone()])]), [None, None]);
        // an error of rank 0 is told by rank 0 alone, one of another rank by all
        let failed = || Err(Error::input("no such file"));
        assert_eq!(verdicts([failed(), failed()]), [(); 2].map(|()| Some(Disagreement::Failed(2))));
        let why = differs("rank 1: no such file");
        assert_eq!(verdicts([Ok(vec![spec]), failed()]), [why.clone(), why]);
    }
}
