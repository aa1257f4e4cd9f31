//! Traces: what every rank's lanes did. One format for all backends and for imported traces.
//!
//! A trace file is one Parquet file: a row a [`Span`], and in its footer the format version, the
//! [`TraceMeta`] and the table of [`OperationInfo`]s as JSON. It is written streaming and renamed
//! into place, so a trace that exists is whole.

pub mod export;
mod file;
pub mod import;
pub mod rules;
#[doc(hidden)]
pub mod testing;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use file::contained;
pub use file::{TraceReader, TraceWriter, panic_is_contained, read, read_meta, write};

use crate::plan::{Cost, Lane, Operation, Phase, Plan, Step};
use crate::spec::{Provenance, Spec};
use crate::store::Environment;

/// Version of the trace format. Readers accept this and older ones.
pub const FORMAT_VERSION: u32 = 2;

/// One executed operation. Times are nanoseconds on the run's one clock. Idle is derived, not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Which timed generation, from 0.
    pub sample: u32,
    /// Prefill or decode.
    pub phase: Phase,
    /// Decode step from 0; 0 in prefill.
    pub step: u32,
    /// The rank.
    pub rank: u32,
    /// The lane.
    pub lane: Lane,
    /// Index into [`TraceMeta::streams`]; 0 where that is empty.
    pub stream: u16,
    /// Index into the trace's operations.
    pub operation: u32,
    /// When everything it waits for was there (ns). Of an imported trace: when the host had launched
    /// it; its start where that is unknown.
    pub ready_ns: i64,
    /// When it started (ns).
    pub start_ns: i64,
    /// When it ended (ns).
    pub end_ns: i64,
    /// Collectives only: when the last rank arrived (ns). Before it the span waited for a peer,
    /// after it data moved. -1 elsewhere.
    pub last_arrival_ns: i64,
}

/// A stream of a device: a row of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The rank it belongs to.
    pub rank: u32,
    /// Process, as the profiler names it.
    pub process: Option<i64>,
    /// Device of that process.
    pub device: Option<i64>,
    /// The stream's number in the profiler's file.
    pub id: i64,
}

/// A named range of host or device time: NVTX, a user annotation, a profiler step. Ranges of one
/// thread nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The rank it belongs to.
    pub rank: u32,
    /// Number of the thread (or device row) that it was pushed on, counted from 0 within the rank.
    pub thread: u16,
    /// How many ranges of its thread it lies in.
    pub depth: u16,
    /// Index into [`TraceMeta::range_names`].
    pub name: u32,
    /// When it started (ns).
    pub start_ns: i64,
    /// When it ended (ns).
    pub end_ns: i64,
}

/// What an importer read, used and left, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// Format of the files: `Kineto JSON`, `Nsight Systems SQLite`.
    pub format: String,
    /// The files, in order of ranks.
    pub files: Vec<String>,
    /// Events read, whatever they were.
    pub events: u64,
    /// Events used, by what they became: `kernel`, `memcpy`, `range`, `launch`.
    pub used: BTreeMap<String, u64>,
    /// Events ignored, by why.
    pub ignored: BTreeMap<String, u64>,
    /// What was missing or odd, a sentence each.
    pub warnings: Vec<String>,
}

/// What a span executed: an operation of the plan, or of an imported trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationInfo {
    /// Name with its phase: `decode/L12/mlp/down`.
    pub name: String,
    /// Prefill or decode.
    pub phase: Phase,
    /// Kind's name: `matmul`.
    pub kind: String,
    /// Module's name: `mlp`.
    pub module: String,
    /// The layer, where it belongs to one.
    pub layer: Option<u32>,
    /// The lane.
    pub lane: Lane,
    /// Shape on one rank, for people: `[rows, 2048] x [2048, 8192]`.
    pub shape: String,
    /// FLOPs and bytes as functions of the step.
    pub cost: Cost,
    /// Names of the unlowered operations.
    pub origins: Vec<String>,
    /// Operations (indices into this table) whose results it reads or awaits.
    pub waits_for: Vec<u32>,
}

/// What was run, where and how; lies in the trace file's footer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// [`FORMAT_VERSION`] of the writer.
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
    /// Machine and software.
    pub environment: Environment,
    /// What the clock was and how it was tied together over ranks.
    pub clock: String,
    /// What recorded the spans; overlap from different recorders is never compared.
    pub recorder: String,
    /// Streams of all ranks; empty where a rank's two lanes are its streams (own traces).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
    /// Names of [`Trace::ranges`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub range_names: Vec<String>,
    /// Of an imported trace, what was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportReport>,
}

/// A whole trace in memory; spans sorted by (sample, phase, step, rank, lane, start).
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What was run.
    pub meta: TraceMeta,
    /// Operations of all phases; spans point here.
    pub operations: Vec<OperationInfo>,
    /// Executions.
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

/// The operations table of a run: the prefill plan's operations, then the decode plan's.
/// An operation's index in the table is its index in its plan, plus the prefill plan's length for
/// decode.
pub fn operations(prefill: &Plan, decode: &Plan) -> Vec<OperationInfo> {
    let of = |plan: &Plan, base: u32| -> Vec<OperationInfo> {
        plan.operations
            .iter()
            .zip(plan.dependencies())
            .map(|(operation, waits)| OperationInfo {
                name: format!("{}/{}", plan.phase.as_str(), operation.name),
                phase: plan.phase,
                kind: operation.kind.as_str().into(),
                module: operation.module.as_str().into(),
                layer: operation.layer,
                lane: operation.lane,
                shape: shape(plan, operation),
                cost: operation.cost,
                origins: operation.origins.clone(),
                waits_for: waits.iter().map(|op| base + op.0).collect(),
            })
            .collect()
    };
    let mut table = of(prefill, 0);
    let base = table.len() as u32;
    table.extend(of(decode, base));
    table
}

fn shape(plan: &Plan, operation: &Operation) -> String {
    let columns =
        |values: &[crate::plan::ValueId]| values.last().map_or(0, |v| plan.values[v.index()].columns);
    match operation.weight {
        Some(weight) if operation.kind == crate::plan::Kind::MatMul => {
            let w = &plan.weights[weight.index()];
            format!("[rows, {}] x [{}, {}]", w.inputs, w.inputs, w.outputs)
        }
        _ => format!("[rows, {}]", columns(&operation.writes)),
    }
}
