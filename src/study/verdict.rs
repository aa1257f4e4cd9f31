//! Verdict on a trace: exposed share of the time, responsible collectives, transfer or waiting for slower ranks,
//! stream use, and the gain of each remedy. `words` says it in sentences.
//!
//! All rules are in this module; `overlap`, the timeline and the report show its result. Remedies come from
//! [`super::rewire`], which rebuilds steps from the trace's own times. Where the importer doubts times or names, no
//! cause is claimed from them.
//!
//! A single gap that is most of the idle time is named, with the host's call that fills it, such as a blocking copy. If
//! idle time leads, the verdict names the operator that the host ran during the longest gap.

mod covered;
mod latency_bound;
mod words;

#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use self::covered::CoveredSteps;
use self::latency_bound::{LatencyBound, large_gb_s};
pub use self::words::VerdictPlace;
use self::words::percent;
use super::analysis::{
    CollectiveRow, IdleSplit, StepSummary, TimePart, TraceReport, estimated_skew, time_parts,
};
use super::rewire::{LAUNCH_BOUND, LayerCollectives, RewireChoice, Rewiring, Setting, StepSelection};
use base::statistics::distinct;
use base::text::{counted, latency};
use base::words::words;
use plan::{Architecture, LayerSet, Phase};
use table::{Collective, Provenance};
use trace::overlap::{Class, Replays, Selection, SpanRuns, StepKey, origin_ns};
use trace::rules::RuleClass;
use trace::{Doubted, ImportReport, Range, Span, Trace, is_host_call};

/// Minimum share of a collective's time before a cause is reported.
const DOMINATES: f64 = 2.0 / 3.0;

/// Minimum share of communication on dedicated streams for it to count as having its own.
const OWN: f64 = 0.5;

/// Maximum ratio of compute to communication time on a dedicated stream.
const HARDLY: f64 = 0.1;

/// Minimum share of the GPUs' work for a doubtful kernel to be named.
const DOUBTFUL: f64 = 0.02;

/// Minimum number of recorded Python calls for the verdict to say that they slow the host.
pub(crate) const MANY_PYTHON_CALLS: u64 = 1_000;

/// Name of the limit that no remedy exceeds.
const LIMIT: &str = "no communication at all";

/// Name of the remedy that joins all-reduce and norm.
const FUSED: &str = "fused all-reduce";

/// Start of a need that names a remedy without a prediction.
const NOT_PREDICTED: &str = "not predicted: ";
/// Start of a need that qualifies the numbers; more data may not help.
const CAVEAT: &str = "caveat: ";

/// Maximum number of collectives named in a verdict.
const NAMED: usize = 3;

words! {
    Cause, "cause" {
        /// At least two thirds move data.
        TransferDominated = "transfer-dominated",
        /// At least two thirds wait for the last rank.
        SkewDominated = "skew-dominated",
        /// Neither transfer nor waiting reaches two thirds.
        Mixed = "mixed",
        /// The trace does not determine the cause.
        Inconclusive = "inconclusive",
    }
}

impl Cause {
    /// Cause, from the time that moves data, that waits for the last rank, and that is one or the other.
    fn new(transfer_us: f64, waited_us: f64, unknown_us: f64) -> Self {
        let all = transfer_us + waited_us + unknown_us;
        let dominates = |us: f64| us >= DOMINATES * all;
        if all <= 0.0 {
            Self::Inconclusive
        } else if dominates(transfer_us) {
            Self::TransferDominated
        } else if dominates(waited_us) {
            Self::SkewDominated
        } else if dominates(transfer_us + unknown_us) || dominates(waited_us + unknown_us) {
            Self::Inconclusive
        } else {
            Self::Mixed
        }
    }
}

/// Time of collectives by cause, summed over executions (us).
#[derive(Clone, Copy, Debug, Default)]
struct CauseTimes {
    transfer_us: f64,
    waited_us: f64,
    /// Transfer, or waiting for a rank that was not recorded.
    unknown_us: f64,
    /// Collectives without a match on another rank.
    unmatched_us: f64,
}

impl CauseTimes {
    /// Times of a row; all of unknown cause unless its times are `trusted`.
    fn new(row: &CollectiveRow, trusted: bool) -> Self {
        let count = row.executed.count as f64;
        if !trusted {
            return Self { unmatched_us: row.mean_us * count, ..Self::default() };
        }
        let unmatched = row.transfer_us.is_none() && row.waited_at_least_us.is_none();
        Self {
            transfer_us: row.transfer_us.unwrap_or(0.0) * count,
            waited_us: row.waited_us.or(row.waited_at_least_us).unwrap_or(0.0) * count,
            unknown_us: row.waited_at_least_us.map_or(0.0, |waited| row.mean_us - waited) * count,
            unmatched_us: if unmatched { row.mean_us * count } else { 0.0 },
        }
    }

    fn add(self, more: Self) -> Self {
        Self {
            transfer_us: self.transfer_us + more.transfer_us,
            waited_us: self.waited_us + more.waited_us,
            unknown_us: self.unknown_us + more.unknown_us,
            unmatched_us: self.unmatched_us + more.unmatched_us,
        }
    }

    fn cause(self) -> Cause {
        Cause::new(self.transfer_us, self.waited_us, self.unknown_us + self.unmatched_us)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CollectiveVerdict {
    /// Name, with `L*` for the layer in own plans, and the kind of process group if there are several.
    pub name: String,
    pub group: Option<String>,
    /// Share of all exposed communication (0 to 1).
    pub share: f64,
    pub count: u64,
    /// Exposed communication per rank (us).
    pub exposed_us: f64,
    pub cause: Cause,
    /// Share of its time that moves data (0 to 1); null if unknown.
    pub transfer_share: Option<f64>,
    /// Minimum share of its time spent waiting for slower ranks (0 to 1), if ranks of its group were not recorded.
    pub waited_share_at_least: Option<f64>,
    /// Message, if its latency rather than the bandwidth of the link bounds the transfer.
    #[serde(skip)]
    latency_bound: Option<LatencyBound>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Remedy {
    pub name: String,
    /// Speedup of the measured step, with contention if a profile defines it.
    pub speedup: f64,
    /// Range that holds 95 % of the steps; null with fewer than 6.
    pub speedup_95: Option<[f64; 2]>,
    /// Speedup without contention, if `speedup` includes it.
    pub without_contention: Option<f64>,
    /// Speedup in the best case, if kernel time scales with the share of the batch; `speedup` assumes that it does not.
    pub at_best: Option<f64>,
    /// Error of the nearest validated traces, in words.
    pub error: String,
    /// True if the speedup includes launch gaps that Python stacks lengthened, and so is an upper bound.
    #[serde(skip)]
    is_at_most: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Verdict {
    /// Exposed communication over the time, averaged over ranks (0 to 1).
    pub exposed_share: f64,
    /// Exposed communication per rank (us).
    pub exposed_us: f64,
    /// Time that all shares are of, per rank (us).
    pub time_us: f64,
    /// Selected steps: `decode steps 3 to 40`, `step 0: prefill of 888 tokens`; null if an imported trace does not tell.
    pub part: Option<String>,
    /// True if the steps of a serving engine include no decode step.
    #[serde(skip)]
    lacks_decode: bool,
    #[serde(skip)]
    ranks: usize,
    /// Number of selected steps if all are of one phase, else 0.
    #[serde(skip)]
    steps: usize,
    /// Share of the time in which nothing ran (0 to 1).
    #[serde(skip)]
    idle_share: f64,
    /// True for a run of our own, whose host launches nothing by itself: only an engine's host time is recorded.
    #[serde(skip)]
    is_own: bool,
    /// Python calls that the profiler recorded, which slows the host.
    #[serde(skip)]
    python_calls: u64,
    /// True if the importer doubts the times of launches.
    #[serde(skip)]
    doubts_launches: bool,
    /// Parts of `idle_share`: waiting for the host, next to collectives, between kernels, outside of generations.
    #[serde(skip)]
    idle_parts: [f64; 4],
    /// Share of the time that kernels could save by hiding exposed communication (0 to 1).
    #[serde(skip)]
    hideable_share: f64,
    /// Communication and compute per rank (us), if compute is too short to hide all communication.
    #[serde(skip)]
    comm_exceeds_compute: Option<[f64; 2]>,
    /// True if the first need is traces of more ranks.
    #[serde(skip)]
    needs_ranks: bool,
    /// Latency of the recorded step that remedies compare with (us).
    #[serde(skip)]
    step_us: f64,
    /// Time that kernels limited by memory would save at the profile's bandwidth, as a share of the time (0 to 1), and
    /// the profile; `None` if the trace records no shapes.
    #[serde(skip)]
    memory_slack: Option<(f64, String)>,
    /// Hidden share of the communication (%); null without communication.
    pub overlap_pct: Option<f64>,
    /// Share of the time in which the GPU waited for the host, as far as launches are recorded (0 to 1); null if none
    /// is.
    pub host_share: Option<f64>,
    /// Part of `host_share` between two CUDA graphs (0 to 1).
    pub between_graphs_share: f64,
    /// True if the selected part replays CUDA graphs; checked only if the GPU waits for the host.
    pub has_graphs: bool,
    /// Longest gap, if it is most of the idle time and much of the time.
    pub longest_gap: Option<LongestGap>,
    /// Longest gap of any rank, however short.
    #[serde(skip)]
    any_gap: Option<LongestGap>,
    /// Idle time between the work of pipeline stages; null without stages.
    pub stages: Option<StageIdle>,
    /// Findings of the importer from which no cause is claimed, one sentence each; those that leave the verdict
    /// undecided first.
    pub doubts: Vec<String>,
    /// True if they leave the whole verdict undecided.
    pub undecided: bool,
    /// True if the job has one rank, and so no communication.
    #[serde(skip)]
    pub one_rank: bool,
    /// Work that fills the time, the largest part first.
    pub time: Vec<TimePart>,
    /// Main cause of the communication time.
    pub cause: Cause,
    /// Collectives with the most exposed time, the worst first.
    pub collectives: Vec<CollectiveVerdict>,
    /// True if at least half of the communication's time is on streams that hardly compute; null without communication.
    pub own_stream: Option<bool>,
    /// Share of the communication's time on such streams (0 to 1); null without communication.
    pub own_stream_share: Option<f64>,
    /// Kernels that look like communication but match no rule, with their share of the GPUs' work (0 to 1).
    pub doubtful: Vec<(String, f64)>,
    /// Communication kernels in the files that were ignored because of their times, with their number.
    pub ignored_communication: Vec<(String, u64)>,
    /// Skew of ranks as simulator settings (`skew.rank_pct`, `skew.operation_pct`); null with one rank.
    pub skew: Option<[f64; 2]>,
    pub remedies: Vec<Remedy>,
    pub not_rewired: Option<String>,
    pub needs: Vec<String>,
    pub headline: String,
    pub sentences: Vec<String>,
}

impl Verdict {
    /// Steps of a serving engine that include no decode step: `step 0: prefill of 888 tokens`.
    pub fn only_prefill(&self) -> Option<&str> {
        self.part.as_deref().filter(|_| self.lacks_decode)
    }
}

/// Pipeline bubbles of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct StageIdle {
    pub pp: u32,
    /// Micro-batches in flight.
    pub micro_batches: u32,
    /// Idle share of the time, averaged over ranks (0 to 1).
    pub idle_share: f64,
}

/// Verdict on the selected part of a trace, given its `report`. Remedies cover the steps of the whole trace.
pub fn verdict(
    trace: &Trace,
    report: &TraceReport,
    selection: &Selection,
    setting: &Setting,
) -> Verdict {
    let (all, ranks) = (&report.overlap.all, report.overlap.ranks.len().max(1) as f64);
    let share = |us: f64| if all.span_us > 0.0 { us / all.span_us } else { 0.0 };
    let idle = |part: fn(&IdleSplit) -> f64| share(report.idle.iter().map(part).sum());
    let is_imported = trace.meta.import.is_some();
    let import = report.import.as_ref();
    let doubts = |about| import.is_some_and(|import| import.doubts(about));
    let undecided = import.is_some_and(|import| import.doubted_work().next().is_some());
    let has_launches = !is_imported
        || trace.spans.iter().any(Span::is_launch_known)
            && !doubts(Doubted::Launches)
            && !doubts(Doubted::Durations);
    let runs = SpanRuns::new(trace, selection);
    // without compute there is nothing to overlap with
    let own_stream_share = own_stream_share(&runs).filter(|_| all.compute_us > 0.0);
    let host_share = idle(|rank| rank.host_us);
    let skew = estimated_skew(trace, selection).filter(|_| !undecided);
    let times_of = |row: &CollectiveRow| CauseTimes::new(row, !undecided);
    let large_gb_s =
        |row: &CollectiveRow| large_gb_s(row, &report.collectives, trace, setting.target.as_ref());
    let collectives = collectives(report, times_of, large_gb_s);
    let times = report.collectives.iter().map(times_of).fold(CauseTimes::default(), CauseTimes::add);
    let covered = CoveredSteps::new(trace, &report.steps);
    let is_judged = all.comm_us > 0.0 && !undecided;
    let predicted = match is_judged {
        true => remedies(trace, selection, setting),
        false => Ok(Predicted::default()),
    };
    let not_rewired = predicted.as_ref().err().cloned();
    let Predicted { remedies, step_us, needs: of_remedies } = predicted.unwrap_or_default();
    let gap = LongestGap::new(trace, report).filter(|_| !undecided);
    let needs = [
        missing_data(trace, report, times).filter(|_| is_judged),
        import.and_then(whole_graphs),
        steps_without_some_ranks(&report.steps).filter(|_| is_imported),
    ];
    let mut verdict = Verdict {
        exposed_share: share(all.exposed_comm_us),
        exposed_us: all.exposed_comm_us / ranks,
        time_us: all.span_us / ranks,
        lacks_decode: covered.as_ref().is_some_and(|covered| covered.lacks_decode),
        part: covered.map(|covered| covered.words),
        ranks: report.overlap.ranks.len(),
        steps: match report.steps.chunk_by(|a, b| (a.phase, a.ranks) == (b.phase, b.ranks)).count() {
            1 => report.steps.len(),
            _ => 0,
        },
        idle_share: share(all.idle_us),
        is_own: !is_imported,
        python_calls: import.map_or(0, ImportReport::python_calls),
        doubts_launches: doubts(Doubted::Launches),
        idle_parts: [
            host_share,
            idle(|rank| rank.communication_us),
            idle(|rank| rank.between_us),
            idle(|rank| rank.outside_us),
        ],
        hideable_share: share(all.exposed_comm_us.min(all.compute_us - all.overlap_us)),
        comm_exceeds_compute: (all.exposed_comm_us > all.compute_us - all.overlap_us)
            .then(|| [all.comm_us / ranks, all.compute_us / ranks]),
        needs_ranks: is_judged
            && report.stragglers.is_none()
            && report.overlap.ranks.len() < 2
            && !has_emulated_peers(trace),
        step_us,
        memory_slack: setting
            .target
            .as_ref()
            .and_then(|target| report.products.memory_slack(&target.profile, all.span_us / ranks)),
        overlap_pct: all.overlap_pct,
        host_share: has_launches.then_some(host_share),
        between_graphs_share: match has_launches {
            true => idle(|rank| rank.between_graphs_us),
            false => 0.0,
        },
        has_graphs: is_imported && host_share >= LAUNCH_BOUND && replays_graphs(&runs),
        longest_gap: gap.clone().filter(|(_, is_most)| *is_most).map(|(gap, _)| gap),
        any_gap: gap.map(|(gap, _)| gap),
        stages: stages(trace).map(|[pp, micro_batches]| StageIdle {
            pp,
            micro_batches,
            idle_share: idle(|rank| rank.idle_us - rank.outside_us),
        }),
        doubts: import.map(sentences_of_doubts).unwrap_or_default(),
        undecided,
        time: time_parts(trace, report, selection),
        cause: times.cause(),
        own_stream: own_stream_share.map(|share| share >= OWN).filter(|_| !undecided),
        own_stream_share: own_stream_share.filter(|_| !undecided),
        one_rank: has_one_rank(trace),
        doubtful: doubtful(trace),
        ignored_communication: import.map(ignored_communication).unwrap_or_default(),
        skew: skew.map(|skew| [skew.rank_pct, skew.operation_pct]),
        collectives,
        remedies,
        not_rewired,
        needs: needs.into_iter().flatten().chain(of_remedies).collect(),
        headline: String::new(),
        sentences: Vec::new(),
    };
    verdict.headline = verdict.in_a_few_words();
    verdict.sentences = verdict.sentences_for(VerdictPlace::CommandLine);
    verdict
}

/// Share of steps above which it is said that not all ranks recorded them; profilers of ranks rarely begin and end at the
/// same step.
const UNEVEN_STEPS: f64 = 0.1;

/// Warning about steps that not all ranks recorded; `None` if they are few.
fn steps_without_some_ranks(steps: &[StepSummary]) -> Option<String> {
    let most = steps.iter().map(|step| step.ranks).max()?;
    let missing = steps.iter().filter(|step| step.ranks < most).count();
    (missing as f64 > UNEVEN_STEPS * steps.len() as f64).then(|| {
        format!(
            "{CAVEAT}{missing} of {} were not recorded on all ranks, so times per rank average unequal recordings; \
             start and stop all profilers at the same step",
            counted(steps.len(), "step")
        )
    })
}

/// True if the run, or the job of an imported trace by its recorded world size, has one rank.
fn has_one_rank(trace: &Trace) -> bool {
    let world = trace.meta.environment.get("world_size").and_then(serde_json::Value::as_u64);
    trace.meta.ranks == 1
        && match &trace.meta.spec {
            Some(spec) => spec.ranks() == 1,
            None => world == Some(1),
        }
}

/// Pipeline stages of a run, or of the run of an export, and its micro-batches; `None` without stages.
fn stages(trace: &Trace) -> Option<[u32; 2]> {
    let of_export = |key: &str| u32::try_from(trace.meta.environment.get(key)?.as_u64()?).ok();
    let counts = match &trace.meta.spec {
        Some(spec) => [spec.pp, spec.micro_batches],
        None => [of_export("pp")?, of_export("micro_batches").unwrap_or(1)],
    };
    Some(counts).filter(|[pp, _]| *pp > 1)
}

/// Data needed to separate transfer from waiting if ranks were not recorded.
const MISSING: &str = "some ranks were not recorded, and one of them may be the slowest, so the waiting shown is a \
                       lower bound; record all ranks to separate transfer from waiting";

/// Data needed if most collectives have no match on another rank.
const UNMATCHED: &str = "most collectives have no match on another rank; record the same steps on all ranks to \
                         separate transfer from waiting";

/// True for a run whose other ranks were emulated: there are no traces of them.
fn has_emulated_peers(trace: &Trace) -> bool {
    trace.meta.spec.is_some() && trace.meta.provenance == Provenance::EmulatedLink && trace.lacks_ranks()
}

/// Data needed to name the cause of the communication's time; `None` if it is known, or if no rank can be recorded.
fn missing_data(trace: &Trace, report: &TraceReport, times: CauseTimes) -> Option<String> {
    let is_unexplained = times.cause() == Cause::Inconclusive || !report.obstacles.is_empty();
    if has_emulated_peers(trace) {
        None
    } else if report.stragglers.is_none() {
        Some(needed(report))
    } else if times.unknown_us > 0.0 {
        Some(MISSING.into())
    } else if times.unmatched_us > 0.0 && is_unexplained {
        Some(obstacles(report).unwrap_or_else(|| UNMATCHED.into()))
    } else {
        None
    }
}

/// Need of CUDA graphs as single kernels; `None` if no graph was recorded as a whole.
fn whole_graphs(import: &ImportReport) -> Option<String> {
    let graphs = import.used.get("graph launch").filter(|graphs| **graphs > 0)?;
    Some(format!(
        "{graphs} CUDA graphs are not counted, because they were recorded as whole graphs; record with `nsys profile \
         --cuda-graph-trace=node`"
    ))
}

fn needed(report: &TraceReport) -> String {
    match report.overlap.ranks.len() {
        0 | 1 => words::all_ranks("`overlap DIR`"),
        _ => obstacles(report).unwrap_or_else(|| {
            "collectives could not be matched across ranks; record the same steps on all ranks to separate transfer \
             from waiting"
                .into()
        }),
    }
}

/// Known reasons for unmatched collectives; `None` without any.
fn obstacles(report: &TraceReport) -> Option<String> {
    let words: Vec<&str> = report.obstacles.iter().map(|obstacle| obstacle.in_words()).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Collectives by exposed time, one row per name and kind of process group.
fn collectives(
    report: &TraceReport,
    times_of: impl Fn(&CollectiveRow) -> CauseTimes,
    large_gb_s: impl Fn(&CollectiveRow) -> Option<f64>,
) -> Vec<CollectiveVerdict> {
    let all: f64 = report.collectives.iter().map(|row| row.executed.exposed_us).sum();
    let ranks = report.overlap.ranks.len().max(1) as u64;
    let several = report.groups.len() > 1;
    let mut by_name: BTreeMap<(&str, Option<&str>), Vec<&CollectiveRow>> = BTreeMap::new();
    for row in &report.collectives {
        let group = row.group.as_deref().filter(|_| several);
        by_name.entry((&row.family, group)).or_default().push(row);
    }
    let row_of = |((name, group), rows): ((&str, Option<&str>), Vec<&CollectiveRow>)| {
        let count: u64 = rows.iter().map(|row| row.executed.count).sum();
        let exposed_us: f64 = rows.iter().map(|row| row.executed.exposed_us).sum();
        let times = rows.iter().copied().map(&times_of).fold(CauseTimes::default(), CauseTimes::add);
        let CauseTimes { transfer_us: transfer, waited_us: waited, unknown_us: unknown, .. } = times;
        let known = transfer + waited;
        CollectiveVerdict {
            name: group.map_or_else(|| name.to_owned(), |group| format!("{name} ({group})")),
            group: group.map(str::to_owned),
            share: if all > 0.0 { exposed_us / all } else { 0.0 },
            count: ((count + ranks / 2) / ranks).max(count.min(1)),
            exposed_us,
            cause: times.cause(),
            transfer_share: (times.cause() != Cause::Inconclusive && known > 0.0 && unknown <= 0.0)
                .then(|| transfer / known),
            waited_share_at_least: (unknown > 0.0).then(|| waited / (known + unknown)),
            latency_bound: match times.cause() {
                Cause::TransferDominated => LatencyBound::new(&rows, &large_gb_s),
                _ => None,
            },
        }
    };
    let mut rows: Vec<CollectiveVerdict> = by_name.into_iter().map(row_of).collect();
    rows.sort_by(|a, b| b.exposed_us.total_cmp(&a.exposed_us));
    rows.truncate(NAMED);
    rows
}

/// Share of the selected communication's time on dedicated streams; `None` without communication.
fn own_stream_share(runs: &SpanRuns<'_>) -> Option<f64> {
    let mut times = vec![(0i64, 0i64); runs.trace.meta.streams.len().max(1)];
    let mut comm = 0i64;
    runs.each(runs.by_rank.iter().flatten(), |span, (start, end)| {
        let Some(stream) = times.get_mut(usize::from(span.stream)) else { return };
        match runs.class(span) {
            Class::Comm => {
                stream.0 = stream.0.saturating_add(end - start);
                comm = comm.saturating_add(end - start);
            }
            Class::Compute => stream.1 = stream.1.saturating_add(end - start),
            Class::Memory | Class::Other => {}
        }
    });
    // in own traces each lane is a stream
    let is_own = |(comm, compute): &&(i64, i64)| {
        runs.trace.meta.streams.is_empty() || *compute as f64 <= HARDLY * *comm as f64
    };
    let own: i64 = times.iter().filter(is_own).map(|(comm, _)| *comm).sum();
    (comm > 0).then(|| own as f64 / comm as f64)
}

/// True if selected spans of a rank come from CUDA graphs.
fn replays_graphs(runs: &SpanRuns<'_>) -> bool {
    runs.by_rank.iter().any(|of_rank| {
        let spans = of_rank.iter().flat_map(|run| &runs.trace.spans[run.at.clone()]);
        !Replays::from_spans(spans).is_empty()
    })
}

fn sentences_of_doubts(import: &ImportReport) -> Vec<String> {
    let of_launches = import.doubts.iter().filter(|doubt| doubt.about == Doubted::Launches);
    distinct(import.doubted_work().chain(of_launches).map(|doubt| doubt.sentence.clone()))
}

/// Ignored communication of all files by kernel, the most frequent first.
fn ignored_communication(import: &ImportReport) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for kernel in import.ignored_kernels.iter().filter(|kernel| kernel.is_communication) {
        *counts.entry(&kernel.name).or_default() += kernel.count;
    }
    let mut counts: Vec<_> = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

/// Kernels that look like communication but count as compute, the longest first.
fn doubtful(trace: &Trace) -> Vec<(String, f64)> {
    let all: f64 = trace.spans.iter().map(|span| span.end_ns.abs_diff(span.start_ns) as f64).sum();
    let unsure = trace.meta.import.iter().flat_map(|import| &import.unsure);
    unsure
        .filter(|unsure| unsure.taken_for == RuleClass::Compute)
        .map(|unsure| (unsure.operation.name.clone(), unsure.operation.total_ns as f64 / all.max(1.0)))
        .filter(|(_, share)| *share >= DOUBTFUL)
        .collect()
}

#[derive(Default)]
struct Predicted {
    remedies: Vec<Remedy>,
    /// Latency of the recorded step (us).
    step_us: f64,
    /// Data that would improve the prediction.
    needs: Vec<String>,
}

/// Predicted remedies; an error says why there are none.
fn remedies(trace: &Trace, selection: &Selection, setting: &Setting) -> Result<Predicted, String> {
    let is_own = trace.meta.spec.is_some();
    // the step of one sample, else of all
    let key = selection.sample.filter(|_| is_own).zip(selection.step).map(|(sample, step)| StepKey {
        sample,
        phase: selection.phase.unwrap_or(Phase::Decode),
        step,
    });
    let step = selection.step.filter(|_| is_own && key.is_none());
    let asked = StepSelection { phase: selection.phase, step, key, layers: None };
    let mut rewiring = Rewiring::new(trace, &asked, setting).map_err(|error| error.to_string())?;
    let number = selection.step.filter(|_| !is_own).and_then(|step| rewiring.steps.number_of(step));
    if let Some(number) = number {
        rewiring = rewiring.on_step(number).map_err(|error| error.to_string())?;
    }
    let steps = &rewiring.steps;
    // while the host delays everything, other remedies only help after that one
    let host = !steps.is_launch_bound();
    let is_at_most = !host && rewiring.has_python_stacks;
    let plain = |architecture| RewireChoice { host, ..RewireChoice::from_architecture(architecture) };
    let mut choices: Vec<(&str, RewireChoice)> = Vec::new();
    if !host {
        choices.push((steps.launch_remedy(), plain(Architecture::Standard)));
    }
    let exchanges = steps.ends == LayerCollectives::Exchanges;
    if rewiring.collective() != Some(Collective::Fused) && !exchanges {
        let fused =
            RewireChoice { collective: Some(Collective::Fused), ..plain(Architecture::Standard) };
        choices.push((FUSED, fused));
    }
    choices.push(("ladder", plain(Architecture::Ladder(LayerSet::All))));
    if exchanges {
        choices.push(("farskip", plain(Architecture::FarSkip(LayerSet::All))));
    }
    choices
        .push(("two micro-batches", RewireChoice { micro_batches: 2, ..plain(Architecture::Standard) }));
    choices.push((LIMIT, plain(Architecture::UpperBound)));
    let mut remedies = Vec::new();
    let late_launches = rewiring.late_launches();
    let mut needs: Vec<String> =
        late_launches.map(|late| format!("{CAVEAT}{late}")).into_iter().collect();
    for (name, choice) in &mut choices {
        // the limit contains every remedy
        let is_fused = |remedy: &Remedy| remedy.name.ends_with(FUSED);
        if *name == LIMIT && remedies.iter().any(is_fused) {
            choice.collective = Some(Collective::Fused);
        }
        let answer = match rewiring.answer(choice) {
            Ok(answer) => answer,
            Err(error) if choice.collective.is_some() => {
                needs.push(format!("{NOT_PREDICTED}a fused all-reduce ({error})"));
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        let times = answer.best();
        let half = (choice.micro_batches > 1)
            .then(|| rewiring.answer(&RewireChoice { share: 0.5, ..choice.clone() }).ok())
            .flatten();
        remedies.push(Remedy {
            name: match host || remedies.is_empty() {
                true => (*name).to_owned(),
                false => format!("{} + {name}", steps.launch_remedy()),
            },
            speedup: times.speedup,
            speedup_95: times.speedup_95,
            without_contention: answer.contended.map(|_| answer.alone.speedup),
            at_best: half.map(|half| half.best().speedup),
            error: rewiring.error_of(&answer),
            is_at_most,
        });
    }
    Ok(Predicted { remedies, step_us: rewiring.measured().step_us, needs })
}

/// Minimum share of a rank's idle time for a gap to be named.
const MOST: f64 = 0.5;

/// Minimum share of a rank's time for a gap to be named.
const MUCH: f64 = 0.2;

/// Host call that the GPU waited for in a gap.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GapCall {
    pub name: String,
    /// Time of the call within the gap (us).
    pub within_us: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LongestGap {
    pub rank: u32,
    pub gap_us: f64,
    /// Start of the gap (us since the trace's first start).
    pub at_us: f64,
    /// Share of the rank's idle time (0 to 1).
    pub idle_share: f64,
    /// Share of the rank's other time in which it was busy (0 to 1).
    pub busy_share: f64,
    /// Host call that lasts most of the gap and returns in it or soon after; null if none is recorded.
    pub host_call: Option<GapCall>,
    /// Innermost operator, or call that returned within the gap, that lasts most of the gap.
    #[serde(skip)]
    operator: Option<GapCall>,
}

impl LongestGap {
    /// The longest gap of any rank, and whether it is most of that rank's idle time and much of its time, and no wait for
    /// communication.
    fn new(trace: &Trace, report: &TraceReport) -> Option<(Self, bool)> {
        let longest: &IdleSplit = report.idle.iter().max_by_key(|rank| rank.longest_ns)?;
        let lanes = report.overlap.ranks.iter().find(|rank| rank.rank == Some(longest.rank))?;
        let gap_us = longest.longest_ns as f64 / 1e3;
        let others_us = lanes.span_us - gap_us;
        let is_communication = longest.longest_ns > longest.host_ns + longest.between_ns;
        let is_most = longest.gaps > 1
            && !is_communication
            && gap_us >= MOST * longest.idle_us
            && gap_us >= MUCH * lanes.span_us;
        (gap_us > 0.0 && others_us > 0.0).then(|| {
            let gap = Self {
                rank: longest.rank,
                gap_us,
                at_us: longest.longest_at_ns as f64 / 1e3,
                idle_share: gap_us / longest.idle_us,
                busy_share: lanes.busy_us / others_us,
                host_call: host_call(trace, longest).filter(|_| is_most),
                operator: host_operator(trace, longest),
            };
            (gap, is_most)
        })
    }

    /// Call or operator that the host ran for most of the gap.
    pub fn host_work(&self) -> Option<&GapCall> {
        self.host_call.as_ref().or(self.operator.as_ref())
    }

    fn in_words(&self, ranks: usize, look: &str) -> String {
        let of_rank = if ranks > 1 { format!(" of rank {}", self.rank) } else { String::new() };
        let host = match self.host_work() {
            Some(GapCall { name, within_us }) => {
                format!("During it the host was in {name} for {}", latency(*within_us))
            }
            None => "Look at what the host did there".to_owned(),
        };
        format!(
            "One gap of {} at {} is {} of the idle time{of_rank}; outside it the GPU is busy {} of the time. {host} ({look}).",
            latency(self.gap_us),
            latency(self.at_us),
            percent(self.idle_share),
            percent(self.busy_share)
        )
    }
}

/// Longest gap of a rank (ns).
fn longest_gap(trace: &Trace, idle: &IdleSplit) -> (i64, i64) {
    let start = idle.longest_at_ns.saturating_add(origin_ns(trace));
    (start, start.saturating_add(idle.longest_ns))
}

/// Innermost operator, or call of the runtime, that lasts most of a rank's longest gap. A call that returns later did not
/// delay the launch of the work behind the gap.
fn host_operator(trace: &Trace, idle: &IdleSplit) -> Option<GapCall> {
    let (start, end) = longest_gap(trace, idle);
    let host = &trace.meta.host;
    let within = |work: &Range| work.end_ns.min(end).saturating_sub(work.start_ns.max(start));
    let lasting = host
        .events
        .iter()
        .filter(|work| work.rank == idle.rank && within(work) as f64 >= MOST * idle.longest_ns as f64);
    let named = lasting.filter_map(|work| {
        let name = host.name(work)?;
        (work.end_ns <= end || !is_host_call(name)).then_some((work, name))
    });
    let (work, name) = named.min_by_key(|(work, _)| work.end_ns.saturating_sub(work.start_ns))?;
    Some(GapCall { name: name.to_owned(), within_us: within(work) as f64 / 1e3 })
}

/// Host call of the rank that lasts most of its longest gap and returns in it or soon after, as one that launched the work
/// behind the gap itself: a call that returns later did not delay that launch.
fn host_call(trace: &Trace, idle: &IdleSplit) -> Option<GapCall> {
    let (start, end) = longest_gap(trace, idle);
    let soon = end.saturating_add(idle.longest_ns / 10);
    let of_rank = trace.ranges.iter().filter(|range| range.rank == idle.rank && !range.on_device);
    let within = |range: &Range| range.end_ns.min(end).saturating_sub(range.start_ns.max(start));
    // launch of the work behind the gap
    let next = trace.spans.iter().filter(|span| span.rank == idle.rank && span.start_ns == end);
    let launch = next.map(|span| span.ready_ns).min();
    let lasts = |range: &&Range| {
        let launched = launch.is_some_and(|at| (range.start_ns..=range.end_ns).contains(&at));
        (range.end_ns <= end || range.end_ns <= soon && launched)
            && within(range) as f64 >= MOST * idle.longest_ns as f64
    };
    let calls = of_rank.filter(lasts).filter_map(|range| {
        let name = trace.meta.range_names.get(range.name as usize)?;
        is_host_call(name).then(|| (range.end_ns <= end, within(range), name))
    });
    let (_, ns, name) = calls.max_by_key(|(returns_in_gap, ns, _)| (*returns_in_gap, *ns))?;
    Some(GapCall { name: name.clone(), within_us: ns as f64 / 1e3 })
}
