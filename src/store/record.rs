//! Records: one run's JSON (contract.md), with the samples it was computed from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::{Provenance, Spec};

/// Version of the record format.
pub const SCHEMA: u32 = 1;

/// How a run ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It ran to its end.
    Ok,
    /// It died, hung or was wrong.
    Failed,
    /// It does not fit in memory; not started.
    Oom,
    /// It cannot run (TP does not divide the heads); not started.
    Skipped,
    /// It was stopped; it will be run again.
    Interrupted,
}

impl Status {
    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Oom => "oom",
            Self::Skipped => "skipped",
            Self::Interrupted => "interrupted",
        }
    }

    /// A glyph, so that colour is never alone.
    pub fn glyph(self) -> &'static str {
        match self {
            Self::Ok => "✔",
            Self::Failed => "✘",
            Self::Oom => "▣",
            Self::Skipped => "⊘",
            Self::Interrupted => "◼",
        }
    }
}

/// One timed generation. Milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Time from the prompt to token 1.
    pub prefill_ms: f64,
    /// Time of all decode steps.
    pub decode_ms: f64,
    /// Each decode step's time.
    pub steps_ms: Vec<f64>,
    /// Communication of the decode phase, where this sample was traced.
    pub overlap: Option<Overlap>,
}

/// Percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A run's or a cell's numbers. Scalars are medians over samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// TTFT: prompt to token 1.
    pub prefill_ms: f64,
    /// All decode steps.
    pub decode_ms: f64,
    /// Prefill and decode.
    pub completion_ms: f64,
    /// Time of an output token: percentiles over the decode steps of all samples.
    pub tpot_ms: Percentiles,
    /// batch x output tokens / completion.
    pub tokens_per_s: f64,
    /// That by TP.
    pub tokens_per_s_per_gpu: f64,
    /// Samples behind the medians.
    pub samples: u32,
    /// Bootstrap interval of the median, null with fewer than 6 samples or for simulations.
    pub tokens_per_s_ci95: Option<[f64; 2]>,
    /// Bootstrap interval of TPOT (ms), likewise.
    pub tpot_ms_ci95: Option<[f64; 2]>,
    /// Weights, KV cache, activations on one rank.
    pub memory_bytes_per_rank: u64,
}

/// Communication and overlap over the decode phase of one sample, per rank, averaged over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    /// Comm lane busy.
    pub comm_ms: f64,
    /// Comm lane busy and compute lane not.
    pub exposed_comm_ms: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
    /// Compute lane busy.
    pub compute_ms: f64,
    /// Neither lane busy.
    pub idle_ms: f64,
    /// Where the decode phase went, where the backend can tell (sim).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

/// Where the decode phase of one sample went, per rank, averaged over ranks. With idle time the parts
/// make up the phase; what one architecture has more of than another says where the difference is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// What the compute lane's operations take alone.
    pub work_ms: f64,
    /// What they take longer because communication ran beside them.
    pub contention_ms: f64,
    /// Exposed communication that waited for a peer.
    pub peer_wait_ms: f64,
    /// Exposed communication that moved data.
    pub transfer_ms: f64,
}

/// The arm of a run in which operations were timed. The run's samples, and so its metrics, are of
/// another arm, which nothing disturbed; this one gave the trace and the overlap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Instrumented {
    /// What recorded the operations, `cuda events, rotating K=8`.
    pub recorder: String,
    /// Replays that make up a step of the trace.
    pub windows: u32,
    /// Each decode step's time (ms), whichever part of it was timed.
    #[serde(default)]
    pub steps_ms: Vec<f64>,
    /// Median of these.
    #[serde(default)]
    pub tpot_ms: f64,
    /// TPOT of this arm over TPOT of the undisturbed one; null where either has no steps.
    #[serde(default)]
    pub overhead: Option<f64>,
    /// Bootstrap interval of that over rounds, and blocks of steps in each.
    #[serde(default)]
    pub overhead_ci95: Option<[f64; 2]>,
    /// By what factor timing stretched what was timed, which composing took off again.
    #[serde(default)]
    pub stretch: Option<f64>,
    /// Share of the composed steps' time by which operations were cut or moved where windows of
    /// different replays met.
    #[serde(default)]
    pub clipped: Option<f64>,
    /// Communication of the decode phase, as this arm saw it.
    #[serde(default)]
    pub overlap: Option<Overlap>,
}

/// What a sceptic asks for: machine, software, clocks, variables. Names to JSON values.
pub type Environment = BTreeMap<String, serde_json::Value>;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// How it ended.
    pub status: Status,
    /// Why it did not end well.
    pub reason: Option<String>,
    /// What was asked for.
    pub spec: Spec,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Numbers; null where status is not ok.
    pub metrics: Option<Metrics>,
    /// Overlap; null where status is not ok.
    pub overlap: Option<Overlap>,
    /// Machine and software.
    pub environment: Environment,
    /// The trace file, relative to the runs directory.
    pub trace: Option<String>,
    /// RFC 3339, UTC.
    #[serde(default)]
    pub created: String,
    /// Which pass over the cells of its sweep, from 0.
    #[serde(default)]
    pub round: u32,
    /// The experiment's name, if a sweep's.
    #[serde(default)]
    pub experiment: Option<String>,
    /// In an aggregated cell: ids of the runs (one a round) it was computed from.
    #[serde(default)]
    pub runs: Vec<String>,
    /// What the numbers were computed from.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Anything odd that was noticed.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The arm in which operations were timed, where that is another than the samples' (cuda).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumented: Option<Instrumented>,
}

impl Record {
    /// Whether `sweep` need not run this again.
    pub fn is_finished(&self) -> bool {
        self.status == Status::Ok
    }
}

/// Reads a record. A newer one is read where it has what this build knows, with a warning in it;
/// otherwise the error says what is wrong.
pub(super) fn parse(bytes: &[u8]) -> Result<Record, String> {
    let schema = schema_of(bytes);
    match (serde_json::from_slice::<Record>(bytes), schema) {
        (Ok(mut record), Some(schema)) if schema > u64::from(SCHEMA) => {
            let warning = format!("record format {schema} is newer than this build's {SCHEMA}");
            if !record.warnings.contains(&warning) {
                record.warnings.push(warning);
            }
            Ok(record)
        }
        (Ok(record), _) => Ok(record),
        (Err(e), Some(schema)) if schema > u64::from(SCHEMA) => {
            Err(format!("record format {schema} is newer than this build's {SCHEMA}: {e}"))
        }
        (Err(_), _) if bytes.is_empty() => Err("the file is empty".into()),
        (Err(e), _) => Err(e.to_string()),
    }
}

/// The format version that a record says it has.
pub(super) fn schema_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u64,
    }
    serde_json::from_slice::<Versioned>(bytes).ok().map(|v| v.schema)
}
