//! The trace in memory: spans, ranges, and metadata on the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::rules::UnsureOperation;
use super::{OperationInfo, OperationKind, ProcessGroup, Product};
use base::error::{Error, Result};
use plan::{Lane, Phase, Step};
use table::{Environment, Provenance, Spec};

/// Version of the trace format. Readers refuse older versions and read newer ones if the columns are
/// compatible.
pub const FORMAT_VERSION: u32 = 2;

/// [`Span::step`] of work outside all steps of an imported trace.
pub const NO_STEP: u32 = u32::MAX;
/// Host position from which an imported span was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LaunchSite {
    /// Innermost host range around the launch: an index into [`Trace::ranges`], [`LaunchSite::OUTSIDE`]
    /// if there is none, [`LaunchSite::NONE`] if the launch is unknown.
    pub range: u32,
    /// Framework operator around the launch, or the host call if there is none: an index into
    /// [`TraceMeta::range_names`], or [`LaunchSite::NONE`].
    pub operator: u32,
}

impl LaunchSite {
    pub const NONE: u32 = u32::MAX;
    pub const OUTSIDE: u32 = u32::MAX - 1;
    /// Launch site of native traces, and of imported spans whose launch is unknown.
    pub const UNKNOWN: Self = Self { range: Self::NONE, operator: Self::NONE };
}

/// True for the name of a call of CUDA or HIP (`cudaGraphLaunch`, `hipFree`), as opposed to a framework's operator or an
/// annotation (`cuBLAS gemm`).
pub fn is_host_call(name: &str) -> bool {
    let is_call = |rest: &str| {
        // libraries go on with an abbreviation: cuBLAS, cuDNN
        let is_word = |two: &[u8]| two[0].is_ascii_uppercase() && two[1].is_ascii_lowercase();
        rest.as_bytes().get(..2).is_some_and(is_word)
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    ["cuda", "cu", "hip"].iter().any(|api| name.strip_prefix(api).is_some_and(is_call))
}

/// One executed operation. Times are in ns on one clock for all ranks. Idle time is derived, not stored.
///
/// Struct literals end in `..Span::EMPTY`, so a new column changes only the code that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Index of the timed generation, from 0. In an imported trace, a sample begins where the numbers of steps start again.
    pub sample: u32,
    /// In an imported trace: prefill if the step's name says that it processes prompts, else decode.
    pub phase: Phase,
    /// Decode step from 0; 0 in prefill. In an imported trace with steps: the step that launched the
    /// span, or [`NO_STEP`]; numbers run through both phases, or each phase has its own.
    pub step: u32,
    pub rank: u32,
    pub lane: Lane,
    /// Index into [`TraceMeta::streams`]; 0 if that is empty.
    pub stream: u16,
    /// Index into the trace's [`Trace::operations`].
    pub operation: u32,
    /// Time at which all inputs were ready (ns). In an imported trace: time at which the host had
    /// launched the span, at least 1 ns before the start and equal for all kernels of a graph replay;
    /// the start time if the launch is unknown.
    pub ready_ns: i64,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Arrival of the last rank (ns), for collectives: before it the span waits for a peer, after it
    /// data moves. -1 otherwise.
    pub last_arrival_ns: i64,
    /// Sequence number of the collective in its process group, equal on all ranks; [`Span::NO_SEQUENCE`]
    /// if the trace does not record one.
    pub sequence: u32,
    pub launched: LaunchSite,
}

impl Span {
    pub const NO_SEQUENCE: u32 = u32::MAX;

    pub const EMPTY: Self = Self {
        sample: 0,
        phase: Phase::Decode,
        step: 0,
        rank: 0,
        lane: Lane::Compute,
        stream: 0,
        operation: 0,
        ready_ns: 0,
        start_ns: 0,
        end_ns: 0,
        last_arrival_ns: -1,
        sequence: Self::NO_SEQUENCE,
        launched: LaunchSite::UNKNOWN,
    };

    /// [`Self::ready_ns`] of an imported span with a known launch. The launch call may return after its
    /// kernel has started, so the value is capped at 1 ns before the start.
    pub fn launched(returned_ns: i64, start_ns: i64) -> i64 {
        returned_ns.min(start_ns.saturating_sub(1))
    }

    /// True if the trace has the time of its launch; it may have the launch site only.
    pub fn is_launch_known(&self) -> bool {
        self.ready_ns < self.start_ns
    }
}

/// Sorts spans into the order of [`Trace`]: by (sample, phase, step, rank, lane, start).
pub fn sort_spans(spans: &mut [Span]) {
    let key = |span: &Span| {
        let group = (span.sample, span.phase as u8, span.step, span.rank, span.lane as u8);
        (group, span.start_ns, span.stream)
    };
    if !spans.is_sorted_by_key(key) {
        spans.par_sort_by_key(key);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStream {
    pub rank: u32,
    /// Process id as the profiler records it.
    pub process: Option<i64>,
    /// Device number within that process, as the profiler records it.
    pub device: Option<i64>,
    /// CUDA context, if the rank has another stream of this number in another context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<i64>,
    pub id: i64,
}

impl TraceStream {
    /// Name for people: `stream 7`, or `stream 7 (context 2)` if several contexts have one.
    pub fn label(&self) -> String {
        match self.context {
            Some(context) => format!("stream {} (context {context})", self.id),
            None => format!("stream {}", self.id),
        }
    }
}

/// A named range of host or device time: NVTX, a user annotation, a profiler step. Ranges of one thread
/// nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub rank: u32,
    /// True for device time, false for host time.
    pub on_device: bool,
    /// Thread (or device row), numbered from 0 within the rank.
    pub thread: u16,
    /// Nesting depth: number of enclosing ranges on the thread.
    pub depth: u16,
    /// Name: an index into [`TraceMeta::range_names`]; larger in [`HostWork::events`].
    pub name: u32,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Summary of an import: events read, used and ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImportReport {
    /// Format of the files: `Kineto JSON`, `Nsight Systems SQLite`.
    pub format: String,
    /// Imported files, ordered by rank.
    pub files: Vec<String>,
    /// Number of events read, of any type.
    pub events: u64,
    /// Number of used events by type: `kernel`, `memcpy`, `range`, `launch`.
    pub used: BTreeMap<String, u64>,
    /// Number of ignored events by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Source of the rank numbers: `ranks from distributedInfo`, `ranks from file names`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_from: Option<String>,
    /// Number of ranks that the job has according to its files, but that have no trace here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing_ranks: u32,
    /// Missing or inconsistent data, one sentence each.
    pub warnings: Vec<String>,
    /// Number of clocks that timed the ranks, if it differs from one per file: a re-imported export
    /// keeps the clocks of the original trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<u32>,
    /// True if the times of several files count from one moment, so that they agree as well as the clocks of their hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wall_clock: bool,
    /// Findings that were kept because they affect much of a file; no cause is claimed from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Doubt>,
    /// Kernels that are ignored because of their times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_kernels: Vec<IgnoredKernel>,
    /// Long operations that look like communication but match no rule, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsure: Vec<UnsureOperation>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Part of an import that contradicts itself or is missing, so that no cause is claimed from it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Doubted {
    /// Times of launches: waiting for the host is unknown.
    Launches,
    /// Durations or streams of GPU work: overlap and exposed time are unknown.
    Durations,
    /// Names of kernels: communication and computation cannot be distinguished.
    Names,
    /// Completeness: a part of the file is damaged, and the GPU work in it is missing.
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IgnoredKernel {
    pub name: String,
    pub count: u64,
    /// True if a rule classifies it as communication.
    pub is_communication: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Doubt {
    pub about: Doubted,
    /// File name and one sentence, also among the warnings.
    pub sentence: String,
}

impl ImportReport {
    /// Reason in [`Self::ignored`] for the calls of a Kineto trace recorded with Python stacks.
    pub(crate) const PYTHON_STACK: &str = "category python_function: Python's stack";

    /// Number of recorded Python calls. Recording them slows the host.
    pub fn python_calls(&self) -> u64 {
        self.ignored.get(Self::PYTHON_STACK).copied().unwrap_or(0)
    }

    pub fn doubts(&self, about: Doubted) -> bool {
        self.doubts.iter().any(|doubt| doubt.about == about)
    }

    /// Doubts about the GPU work itself: they leave every result undecided.
    pub fn doubted_work(&self) -> impl Iterator<Item = &Doubt> {
        self.doubts.iter().filter(|doubt| doubt.about != Doubted::Launches)
    }
}

/// Metadata of the run, stored in the trace file's footer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    pub version: u32,
    pub provenance: Provenance,
    pub run: Option<String>,
    /// Requested experiment; `None` for imported traces.
    pub spec: Option<Spec>,
    /// Number of ranks in the trace.
    pub ranks: u32,
    /// Hashes of the prefill plan and the decode plan.
    pub plan_hashes: Vec<String>,
    pub environment: Environment,
    /// Clock source, and the method that synchronized it across ranks.
    pub clock: String,
    /// Tool that recorded the spans. Overlap is never compared between different recorders.
    pub recorder: String,
    /// Streams of all ranks; empty for native traces, in which each lane is a stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<TraceStream>,
    /// Names that [`Range::name`] and [`LaunchSite::operator`] index. Unique, except that an operator
    /// appears once per recorded set of shapes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub range_names: Vec<String>,
    /// Process groups of the collectives, each once; empty if the trace records none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ProcessGroup>,
    /// Work per operator call with recorded shapes, keyed by index into [`Self::range_names`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub products: BTreeMap<u32, Product>,
    /// Import summary; `None` for native traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportReport>,
    /// Operators and calls of host threads; empty for traces that were not imported from a profiler's file.
    #[serde(skip)]
    pub host: Arc<HostWork>,
}

impl TraceMeta {
    /// Metadata with everything else empty.
    pub fn new(provenance: Provenance, ranks: u32) -> Self {
        Self {
            version: FORMAT_VERSION,
            provenance,
            run: None,
            spec: None,
            ranks,
            plan_hashes: Vec::new(),
            environment: Environment::new(),
            clock: String::new(),
            recorder: String::new(),
            streams: Vec::new(),
            range_names: Vec::new(),
            groups: Vec::new(),
            products: BTreeMap::new(),
            import: None,
            host: Arc::default(),
        }
    }
}

/// A whole trace in memory. Spans are sorted by (sample, phase, step, rank, lane, start).
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub meta: TraceMeta,
    pub operations: Vec<OperationInfo>,
    pub spans: Vec<Span>,
    /// Named ranges, sorted by (rank, thread, start, longest first).
    pub ranges: Vec<Range>,
}

impl Trace {
    /// # Errors
    ///
    /// Returns an input error that begins with `problem` if the importer doubts the GPU work.
    pub fn require_no_doubt(&self, problem: &str) -> Result<()> {
        let doubt = self.meta.import.as_ref().and_then(|import| import.doubted_work().next());
        doubt.map_or(Ok(()), |doubt| {
            Err(Error::input_help(
                format!("{problem}: {}", doubt.sentence),
                "record the trace again; if it was exported or merged, try the original files",
            ))
        })
    }

    /// Step parameters for cost functions, if the trace has a spec.
    pub fn step(&self, span: &Span) -> Option<Step> {
        let spec = self.meta.spec.as_ref()?;
        let (batch, prompt) = (u64::from(spec.sequences_of_rank()), u64::from(spec.prompt_tokens));
        Some(match span.phase {
            Phase::Prefill => Step::prefill(batch, prompt),
            Phase::Decode => Step::decode(batch, prompt, u64::from(span.step)),
        })
    }

    /// Kind of a span's operation; `None` if the table lacks the operation.
    pub fn operation_kind(&self, span: &Span) -> Option<&OperationKind> {
        self.operations.get(span.operation as usize).map(|operation| &operation.kind)
    }

    /// True for a run of a mixture-of-experts model, and for an import in which rules find expert kernels.
    pub fn has_experts(&self) -> bool {
        self.operations.iter().any(|operation| operation.kind == OperationKind::Experts)
    }

    /// True if ranks of the run, or of the imported job, were not recorded. One of them may arrive last at any collective,
    /// so waiting for peers cannot be separated from transfer, whatever arrivals the spans have: an emulated collective of
    /// a rank that runs alone begins when that rank arrives.
    pub fn lacks_ranks(&self) -> bool {
        let of_run = self.meta.spec.as_ref().is_some_and(|spec| spec.ranks() > self.meta.ranks);
        of_run || self.meta.import.as_ref().is_some_and(|import| import.missing_ranks > 0)
    }

    /// Arrival of the last rank at the collective of a span (ns), clamped to the span; `None` if the arrival is not
    /// recorded, or if an unrecorded rank may arrive later.
    pub fn arrival(&self, span: &Span) -> Option<i64> {
        let is_known = span.last_arrival_ns >= 0 && !self.lacks_ranks();
        is_known.then(|| span.last_arrival_ns.clamp(span.start_ns, span.end_ns.max(span.start_ns)))
    }

    /// Keeps only the spans of the first rank if all ranks have the same spans, and returns the other ranks, ascending;
    /// empty if ranks differ, if there is one, or if the trace was imported.
    pub fn fold_ranks(&mut self) -> Vec<u32> {
        let Some(ranks) = self.equal_ranks() else { return Vec::new() };
        let Some((first, others)) = ranks.split_first() else { return Vec::new() };
        self.spans.retain(|span| span.rank == *first);
        self.spans.shrink_to_fit();
        others.to_vec()
    }

    /// Trace with copies of its only rank's spans for these ranks, in the order of every trace.
    pub fn unfold_ranks(&self, others: &[u32]) -> Self {
        let mut spans = Vec::with_capacity(self.spans.len() * (1 + others.len()));
        for step in self.spans.chunk_by(is_same_step) {
            spans.extend_from_slice(step);
            for rank in others {
                spans.extend(step.iter().map(|span| Span { rank: *rank, ..*span }));
            }
        }
        let (meta, operations) = (self.meta.clone(), self.operations.clone());
        Self { meta, operations, spans, ranges: self.ranges.clone() }
    }

    fn equal_ranks(&self) -> Option<Vec<u32>> {
        if self.meta.import.is_some() || !self.meta.streams.is_empty() || !self.ranges.is_empty() {
            return None;
        }
        let bare = |span: &Span| Span { rank: 0, ..*span };
        let mut ranks: Option<Vec<u32>> = None;
        for step in self.spans.chunk_by(is_same_step) {
            let of_rank: Vec<&[Span]> = step.chunk_by(|a, b| a.rank == b.rank).collect();
            let own: Vec<u32> = of_rank.iter().map(|spans| spans[0].rank).collect();
            let is_ascending = own.windows(2).all(|pair| pair[0] < pair[1]);
            let (first, others) = of_rank.split_first()?;
            let is_equal = others.iter().all(|spans| {
                spans.len() == first.len() && spans.iter().zip(*first).all(|(a, b)| bare(a) == bare(b))
            });
            if !is_ascending || !is_equal || *ranks.get_or_insert_with(|| own.clone()) != own {
                return None;
            }
        }
        ranks.filter(|ranks| ranks.len() > 1)
    }
}

fn is_same_step(a: &Span, b: &Span) -> bool {
    (a.sample, a.phase, a.step) == (b.sample, b.phase, b.step)
}

/// Operators and calls of an imported trace, for the timeline and the explanation of gaps. Unlike named ranges, they count
/// in no table, step or share, and trace files do not store them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostWork {
    /// Operators and calls in the order of [`Trace::ranges`](Trace::ranges). [`Range::name`] is
    /// [`Self::FIRST_NAME`] plus an index into [`Self::names`].
    pub events: Vec<Range>,
    /// Distinct names, without shapes.
    pub names: Vec<String>,
    /// Number of later events that were not kept.
    pub left_out: u64,
}

impl HostWork {
    /// Maximum number of events kept in a trace, the earliest ones; divided equally among its files.
    pub const MOST: usize = 200_000;

    /// Least [`Range::name`] of an operator or call; names of ranges are below it.
    pub const FIRST_NAME: u32 = 1 << 31;

    /// Name of an operator or call; `None` for a named range.
    pub fn name(&self, event: &Range) -> Option<&str> {
        let at = event.name.checked_sub(Self::FIRST_NAME)?;
        self.names.get(at as usize).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_calls_are_those_of_the_driver_and_the_runtime() {
        for name in [
            "cudaLaunchKernel",
            "cudaLaunchKernelExC_v11060",
            "cudaGraphLaunch",
            "cuLaunchKernelEx",
            "cudaMemcpyAsync",
            "cuMemsetD8Async",
            "hipExtModuleLaunchKernel",
            "hipMemcpyWithStream",
            "cudaStreamSynchronize",
            "cudaFree",
            "cuModuleLoadData",
        ] {
            assert!(is_host_call(name), "{name}");
        }
        for name in [
            "cuBLAS gemm",
            "cuDNN attention",
            "cuFFT",
            "cublasLtMatmul",
            "hipBLASLt",
            "cudaGraph capture",
            "aten::mm",
        ] {
            assert!(!is_host_call(name), "{name}");
        }
    }

    fn trace() -> Trace {
        let span = |step: u32, rank: u32, start_ns: i64| Span {
            step,
            rank,
            start_ns,
            end_ns: start_ns + 5,
            ..Span::EMPTY
        };
        let steps = (0..3).flat_map(|step| (0..4).map(move |rank| (step, rank)));
        let spans = steps.flat_map(|(step, rank)| {
            [0, 10].map(|start| span(step, rank, i64::from(step) * 100 + start))
        });
        crate::testing::trace(spans.collect())
    }

    #[test]
    fn ranks_that_did_the_same_are_stored_once_and_come_back() {
        let whole = trace();
        let mut folded = whole.clone();
        assert_eq!(folded.fold_ranks(), [1, 2, 3]);
        assert_eq!(folded.spans.len(), 6);
        assert_eq!(folded.unfold_ranks(&[1, 2, 3]), whole);
    }

    #[test]
    fn a_trace_stays_as_it_is_if_a_rank_differs_anywhere() {
        let last = trace().spans.len() - 1;
        let changes: [fn(&mut Trace, usize); 3] = [
            |trace, last| trace.spans[last].end_ns += 1,
            |trace, last| trace.spans.truncate(last),
            |trace, _| trace.spans.retain(|span| span.rank == 2),
        ];
        for change in changes {
            let mut trace = trace();
            change(&mut trace, last);
            let before = trace.clone();
            assert!(trace.fold_ranks().is_empty());
            assert_eq!(trace, before);
        }
    }
}
