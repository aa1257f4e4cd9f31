//! What a trace holds: spans, ranges, and what was run, where and how.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rules::Unsure;
use super::{OperationInfo, ProcessGroup, Product};
use plan::{Lane, Phase, Step};
use table::{Environment, Provenance, Spec};

/// Version of the trace format. Readers refuse what is older, and read what is newer where it fits.
pub const FORMAT_VERSION: u32 = 2;

/// [`Span::step`] of an imported trace's work outside all of its steps.
pub const NO_STEP: u32 = u32::MAX;
/// Where the host launched a piece of an imported trace's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LaunchSite {
    /// The innermost host range around the launch: an index into [`Trace::ranges`], [`LaunchSite::OUTSIDE`] where
    /// there is none, [`LaunchSite::NONE`] where the launch is not known.
    pub range: u32,
    /// The framework's operator around the launch, or the host's call where there is none: an index into
    /// [`TraceMeta::range_names`], or [`LaunchSite::NONE`].
    pub operator: u32,
}

impl LaunchSite {
    /// No range or operator.
    pub const NONE: u32 = u32::MAX;
    /// A launch outside all ranges.
    pub const OUTSIDE: u32 = u32::MAX - 1;
    /// The launch is not known; of all own traces.
    pub const UNKNOWN: Self = Self { range: Self::NONE, operator: Self::NONE };
}

/// One executed operation. Times are nanoseconds on the run's one clock. Idle is derived, not stored.
///
/// Literals end in `..Span::EMPTY`, so that a new column changes only the code that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Which timed generation, from 0.
    pub sample: u32,
    /// Whether it is of prefill or of a decode step.
    pub phase: Phase,
    /// Decode step from 0; 0 in prefill. Of an imported trace with steps: the one in which it was launched, or
    /// [`NO_STEP`].
    pub step: u32,
    /// The rank that executed it, from 0.
    pub rank: u32,
    /// The lane on which it executed.
    pub lane: Lane,
    /// Index into [`TraceMeta::streams`]; 0 where that is empty.
    pub stream: u16,
    /// Index into the trace's operations.
    pub operation: u32,
    /// When everything it waits for was there (ns). Of an imported trace: when the host had launched it, at least 1 ns
    /// before its start and the same for all kernels of one graph replay; its start where the launch is not recorded.
    pub ready_ns: i64,
    /// When it started (ns).
    pub start_ns: i64,
    /// When it ended (ns).
    pub end_ns: i64,
    /// Collectives only: when the last rank arrived (ns). Before it the span waited for a peer,
    /// after it data moved. -1 elsewhere.
    pub last_arrival_ns: i64,
    /// Number of the collective within its process group, the same on all ranks of the group;
    /// [`Span::NO_SEQUENCE`] if the trace does not number collectives.
    pub sequence: u32,
    /// Where it was launched; unknown in own traces.
    pub launched: LaunchSite,
}

impl Span {
    /// Stands for an unknown [`Span::sequence`].
    pub const NO_SEQUENCE: u32 = u32::MAX;

    /// A span of length 0 in which everything optional is unknown.
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
}

impl Span {
    /// The [`Self::ready_ns`] of an imported span whose launch is recorded: a call may return after the kernel that it
    /// launched has started.
    pub fn launched(returned_ns: i64, start_ns: i64) -> i64 {
        returned_ns.min(start_ns.saturating_sub(1))
    }

    /// True if an imported trace records the host's launch of this span.
    pub fn is_launch_known(&self) -> bool {
        self.launched.range != LaunchSite::UNKNOWN.range || self.ready_ns < self.start_ns
    }
}

/// A stream of a device: a row of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The rank that the stream belongs to.
    pub rank: u32,
    /// Process, as the profiler names it.
    pub process: Option<i64>,
    /// The device of that process, as the profiler counts.
    pub device: Option<i64>,
    /// The stream's number in the profiler's file.
    pub id: i64,
}

/// A named range of host or device time: NVTX, a user annotation, a profiler step. Ranges
/// of one thread nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The rank on which the range was pushed.
    pub rank: u32,
    /// Whether it is a device's time, not its host's.
    pub on_device: bool,
    /// Number of the thread (or device row) that it was pushed on, counted from 0 within the rank.
    pub thread: u16,
    /// How many ranges of its thread it lies in.
    pub depth: u16,
    /// Which name it has: an index into [`TraceMeta::range_names`].
    pub name: u32,
    /// When it started (ns).
    pub start_ns: i64,
    /// When it ended (ns).
    pub end_ns: i64,
}

/// What an importer read, used and left, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImportReport {
    /// Format of the files: `Kineto JSON`, `Nsight Systems SQLite`.
    pub format: String,
    /// The files, in order of ranks.
    pub files: Vec<String>,
    /// How many events were read, whatever they were.
    pub events: u64,
    /// Events used, by what they became: `kernel`, `memcpy`, `range`, `launch`.
    pub used: BTreeMap<String, u64>,
    /// How many events were ignored, by the reason.
    pub ignored: BTreeMap<String, u64>,
    /// How the ranks were found: `ranks from distributedInfo`, `ranks from file names`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_from: Option<String>,
    /// Ranks of the job, by what its files say, that have no trace here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing_ranks: u32,
    /// What was missing or odd, a sentence each.
    pub warnings: Vec<String>,
    /// Clocks that timed the ranks, where that is not one a file: an export of this program has those of the trace that it
    /// was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<u32>,
    /// Long operations that look like communication though no rule knows them, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsure: Vec<Unsure>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What was run, where and how; lies in the trace file's footer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// The [`FORMAT_VERSION`] of the program that wrote the file.
    pub version: u32,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// The run's id, where it is a stored run's.
    pub run: Option<String>,
    /// What was asked for (`None` for imported traces).
    pub spec: Option<Spec>,
    /// Ranks in the trace.
    pub ranks: u32,
    /// Hashes of the prefill and the decode plan.
    pub plan_hashes: Vec<String>,
    /// The machine and the software that it ran on.
    pub environment: Environment,
    /// What the clock was and how it was tied together over ranks.
    pub clock: String,
    /// What recorded the spans; overlap from different recorders is never compared.
    pub recorder: String,
    /// Streams of all ranks; empty where a rank's two lanes are its streams (own traces).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
    /// The names to which [`Range::name`] and [`LaunchSite::operator`] point, each once, but an operator with shapes once
    /// for each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub range_names: Vec<String>,
    /// Process groups that collectives belong to, each once; empty if the trace names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ProcessGroup>,
    /// Work of a call of operators whose shapes are recorded, by their index in [`Self::range_names`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub products: BTreeMap<u32, Product>,
    /// What was read and left of an imported trace; `None` for own ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportReport>,
}

/// A whole trace in memory; spans sorted by (sample, phase, step, rank, lane, start).
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What was run, where and how.
    pub meta: TraceMeta,
    /// Operations of all phases; spans point here.
    pub operations: Vec<OperationInfo>,
    /// What was executed: one entry each time that an operation ran.
    pub spans: Vec<Span>,
    /// Named ranges, sorted by (rank, thread, start, longest first).
    pub ranges: Vec<Range>,
}

impl Trace {
    /// The step's numbers for costs, if the trace has a spec.
    pub fn step(&self, span: &Span) -> Option<Step> {
        let spec = self.meta.spec.as_ref()?;
        let (batch, prompt) = (u64::from(spec.batch), u64::from(spec.prompt_tokens));
        Some(match span.phase {
            Phase::Prefill => Step::prefill(batch, prompt),
            Phase::Decode => Step::decode(batch, prompt, u64::from(span.step)),
        })
    }
}
