//! Records: one run's JSON (`ladderscope schema record`), with the samples it was computed from.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::{Environment, Provenance, RunQuality, RunTraining, Spec};
use base::words::words;

/// Version of the record format.
pub const SCHEMA: u32 = 1;

words! {
    /// How a run ended, or that it has not yet.
    Status, "status" {
        /// It ran to its end.
        Ok = "ok",
        /// It died, hung or was wrong.
        Failed = "failed",
        /// It does not fit in memory; not started.
        Oom = "oom",
        /// It cannot run (TP does not divide the heads); not started.
        Skipped = "skipped",
        /// It was stopped; it will be run again.
        Interrupted = "interrupted",
        /// It runs now, in another process: it has no record yet.
        Running = "running",
    }
}

impl Status {
    /// A glyph, so that colour is never alone.
    pub fn glyph(self) -> &'static str {
        match self {
            Self::Ok => "✔",
            Self::Failed => "✘",
            Self::Oom => "▣",
            Self::Skipped => "⊘",
            Self::Interrupted => "◼",
            Self::Running => "▶",
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

/// Percentiles of a time over the decode steps of all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// The median: half of the steps took no longer.
    pub p50: f64,
    /// The 90th percentile: nine of ten steps took no longer.
    pub p90: f64,
    /// The 99th percentile: 99 of 100 steps took no longer.
    pub p99: f64,
}

/// A run's or a cell's numbers. Scalars are medians over samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// Latency of prefill, from prompt to token 1 (TTFT), the median over samples.
    pub prefill_ms: f64,
    /// Latency of all decode steps of a generation, the median over samples.
    pub decode_ms: f64,
    /// Latency of prefill and decode together, the median over samples.
    pub completion_ms: f64,
    /// Time of an output token: percentiles over the decode steps of all samples.
    pub tpot_ms: Percentiles,
    /// Throughput of all sequences: batch x output tokens over the median completion latency.
    pub tokens_per_s: f64,
    /// Throughput of all sequences, divided by TP.
    pub tokens_per_s_per_gpu: f64,
    /// How many samples the medians are over.
    pub samples: u32,
    /// Bootstrap interval of the median, null with fewer than 6 samples or for simulations.
    pub tokens_per_s_ci95: Option<[f64; 2]>,
    /// Bootstrap interval of TPOT (ms), null with fewer than 6 samples or for simulations.
    pub tpot_ms_ci95: Option<[f64; 2]>,
    /// Weights, KV cache, activations on one rank.
    pub memory_bytes_per_rank: u64,
}

/// Communication and overlap over the decode phase of one sample, per rank, averaged over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    /// Time in which the comm lane was busy.
    pub comm_ms: f64,
    /// Time in which the comm lane was busy and the compute lane was not.
    pub exposed_comm_ms: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
    /// Time in which the compute lane was busy.
    pub compute_ms: f64,
    /// Time in which neither lane was busy.
    pub idle_ms: f64,
    /// Where the decode phase went, where the backend can tell (sim).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

impl Overlap {
    /// The exposed part of the decode phase (%), of the phase as it was recorded: it may have taken longer than the
    /// median one, in which case a share of that would be none. Null of a phase without length.
    pub fn exposed_pct(&self) -> Option<f64> {
        let phase_ms = self.compute_ms + self.exposed_comm_ms + self.idle_ms;
        (phase_ms > 0.0).then(|| 100.0 * self.exposed_comm_ms / phase_ms)
    }
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

/// The pass of a run in which operations were timed. The run's samples, and so its metrics, are of
/// another pass, which nothing disturbed; this one gave the trace and the overlap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Instrumented {
    /// What recorded the operations: `stamps`, `cuda events around modules`, `cupti`.
    pub recorder: String,
    /// Each decode step's time (ms).
    #[serde(default)]
    pub steps_ms: Vec<f64>,
    /// The median of `steps_ms`; 0 where there are none.
    #[serde(default)]
    pub tpot_ms: f64,
    /// TPOT of this pass over TPOT of the undisturbed one; null where either has no steps.
    #[serde(default)]
    pub overhead: Option<f64>,
    /// Bootstrap interval of that over rounds, and blocks of steps in each.
    #[serde(default)]
    pub overhead_ci95: Option<[f64; 2]>,
    /// Communication of the decode phase, as this pass saw it.
    #[serde(default)]
    pub overlap: Option<Overlap>,
}

/// One run: what was asked for, how it ended, its numbers, where they come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The version of the record's format, [`SCHEMA`] of the writer.
    pub schema: u32,
    /// The id under which the run is stored; `BATCH:ROW` of a simulated sweep.
    pub run: String,
    /// How the run ended, or that it was never started.
    pub status: Status,
    /// Why it did not end well.
    pub reason: Option<String>,
    /// What was asked for.
    pub spec: Spec,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Whether the program had passed its check of itself on this GPU, driver and set of
    /// libraries (cuda); null of other backends.
    #[serde(default)]
    pub verified: Option<bool>,
    /// Numbers; null where status is not ok.
    pub metrics: Option<Metrics>,
    /// Overlap; null where status is not ok.
    pub overlap: Option<Overlap>,
    /// The machine and the software that it ran on.
    pub environment: Environment,
    /// The trace file, relative to the runs directory.
    pub trace: Option<String>,
    /// When the record was made, RFC 3339 in UTC.
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
    /// The pass in which operations were timed, where that is another than the samples' (cuda).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumented: Option<Instrumented>,
    /// The quality of the model as the run wires it, where the store has it evaluated: looked up when records are
    /// read, never stored with them.
    #[serde(
        default,
        skip_deserializing,
        skip_serializing_if = "Option::is_none",
        serialize_with = "shared"
    )]
    #[schemars(with = "Option<RunQuality>")]
    pub quality: Option<Arc<RunQuality>>,
    /// What trainings of the model as the run wires it ended with, where the store has any: looked up as the quality is.
    #[serde(
        default,
        skip_deserializing,
        skip_serializing_if = "Option::is_none",
        serialize_with = "shared"
    )]
    #[schemars(with = "Option<RunTraining>")]
    pub training: Option<Arc<RunTraining>>,
}

/// Writes what several records share.
pub fn shared<S: Serializer, T: Serialize>(
    one: &Option<Arc<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    one.as_deref().serialize(serializer)
}

impl Record {
    /// A record without numbers: a run that has not ended, or was never started.
    pub fn new(spec: Spec, status: Status, reason: Option<String>) -> Self {
        Self {
            schema: SCHEMA,
            run: String::new(),
            status,
            reason,
            provenance: spec.provenance(),
            spec,
            metrics: None,
            overlap: None,
            environment: Default::default(),
            trace: None,
            created: String::new(),
            round: 0,
            experiment: None,
            runs: Vec::new(),
            samples: Vec::new(),
            warnings: Vec::new(),
            instrumented: None,
            verified: None,
            quality: None,
            training: None,
        }
    }

    /// Whether `sweep` need not run this again; a check of ranks on one GPU is no run of the cell.
    pub fn is_finished(&self) -> bool {
        self.status == Status::Ok && self.provenance.is_evidence()
    }

    /// Whether it ended well with numbers that may be compared, plotted and calibrated from.
    pub fn has_numbers(&self) -> bool {
        self.is_finished() && self.metrics.is_some()
    }

    /// Whether it came to an end, good or bad, by itself: it neither runs nor was stopped.
    pub fn has_ended(&self) -> bool {
        !matches!(self.status, Status::Running | Status::Interrupted)
    }
}

/// Reads a record. A newer one is read where it has what this build knows, with a warning in it;
/// otherwise the error says what is wrong.
pub fn parse(bytes: &[u8]) -> Result<Record, String> {
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
pub fn schema_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u64,
    }
    serde_json::from_slice::<Versioned>(bytes).ok().map(|v| v.schema)
}

/// 100 x (1 - exposed / comm); `None` without communication. Any unit, the same for both.
pub fn overlap_pct(exposed: f64, comm: f64) -> Option<f64> {
    (comm > 0.0).then(|| 100.0 * (1.0 - exposed / comm))
}
