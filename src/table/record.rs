//! Records: the JSON of one run (`ladderscope schema record`), including the samples behind its numbers.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Environment, Provenance, RunQuality, RunTraining, Spec};
use base::words::words;

pub const SCHEMA: u32 = 1;

words! {
    /// State of a run.
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
    /// Glyph, so that status is never shown by color alone.
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

/// One timed generation; times in ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Latency from prompt to token 1.
    pub prefill_ms: f64,
    /// Latency of all decode steps.
    pub decode_ms: f64,
    /// Latency of each decode step.
    pub steps_ms: Vec<f64>,
    /// Communication in the decode phase, if this sample was traced.
    pub overlap: Option<Overlap>,
}

/// Percentiles over the decode steps of all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// Numbers of a run or a cell. Scalars are medians over samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// Median latency of prefill, from prompt to token 1 (TTFT).
    pub prefill_ms: f64,
    /// Median latency of all decode steps of a generation.
    pub decode_ms: f64,
    /// Median latency of prefill plus decode.
    pub completion_ms: f64,
    /// Time per output token: percentiles over the decode steps of all samples.
    pub tpot_ms: Percentiles,
    /// Throughput of all sequences: batch x output tokens / median completion latency.
    pub tokens_per_s: f64,
    /// Throughput of all sequences divided by the number of GPUs (TP x PP x DP).
    pub tokens_per_s_per_gpu: f64,
    /// Number of samples.
    pub samples: u32,
    /// Bootstrap interval of `tokens_per_s`; null with fewer than 6 samples or for simulations.
    pub tokens_per_s_ci95: Option<[f64; 2]>,
    /// Bootstrap interval of TPOT (ms); null with fewer than 6 samples or for simulations.
    pub tpot_ms_ci95: Option<[f64; 2]>,
    /// Weights, KV cache and activations on one rank.
    pub memory_bytes_per_rank: u64,
}

/// Communication and overlap in the decode phase of one sample, per rank, averaged over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    /// Busy time of the comm lane.
    pub comm_ms: f64,
    /// Exposed communication: comm lane busy, compute lane idle.
    pub exposed_comm_ms: f64,
    /// 100 x (1 - exposed / comm); null without communication.
    pub overlap_pct: Option<f64>,
    /// Busy time of the compute lane.
    pub compute_ms: f64,
    /// Time with both lanes idle.
    pub idle_ms: f64,
    /// Part of `exposed_comm_ms` before the last rank arrives; absent if arrivals are unknown, and for
    /// simulations, which have it in `split`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_wait_ms: Option<f64>,
    /// Breakdown of the decode phase, if the backend provides it (sim).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

impl Overlap {
    /// Exposed communication that waits for the last rank, measured or simulated; the rest is transfer.
    pub fn peer_wait_ms(&self) -> Option<f64> {
        self.split.map(|split| split.peer_wait_ms).or(self.peer_wait_ms)
    }

    /// Sets [`Self::peer_wait_ms()`]; in the breakdown if there is one.
    pub fn set_peer_wait_ms(&mut self, ms: f64) {
        match &mut self.split {
            Some(split) => split.peer_wait_ms = ms,
            None => self.peer_wait_ms = Some(ms),
        }
    }

    /// Exposed communication in percent of the decode phase as recorded (instrumentation may have made
    /// it longer than the median). `None` for an empty phase.
    pub fn exposed_pct(&self) -> Option<f64> {
        let phase_ms = self.compute_ms + self.exposed_comm_ms + self.idle_ms;
        (phase_ms > 0.0).then(|| 100.0 * self.exposed_comm_ms / phase_ms)
    }

    /// Mean over ranks or runs; `None` without any. It has a breakdown, or time waiting for peers, if all of
    /// them have it.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let sum = all.iter().copied().reduce(|sum, one| sum.each(one, |sum, ms| sum + ms))?;
        Some(sum.each(sum, |ms, _| ms / all.len() as f64))
    }

    /// Overlap of a number of such phases.
    pub fn times(&self, number: f64) -> Self {
        Self { overlap_pct: self.overlap_pct, ..self.each(*self, |ms, _| number * ms) }
    }

    /// Combines every time with `of`; has an optional time if both have it.
    fn each(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        let comm_ms = of(self.comm_ms, other.comm_ms);
        let exposed_comm_ms = of(self.exposed_comm_ms, other.exposed_comm_ms);
        Self {
            comm_ms,
            exposed_comm_ms,
            overlap_pct: overlap_pct(exposed_comm_ms, comm_ms),
            compute_ms: of(self.compute_ms, other.compute_ms),
            idle_ms: of(self.idle_ms, other.idle_ms),
            peer_wait_ms: self.peer_wait_ms.zip(other.peer_wait_ms).map(|(own, other)| of(own, other)),
            split: self.split.zip(other.split).map(|(own, other)| Split {
                work_ms: of(own.work_ms, other.work_ms),
                contention_ms: of(own.contention_ms, other.contention_ms),
                peer_wait_ms: of(own.peer_wait_ms, other.peer_wait_ms),
                transfer_ms: of(own.transfer_ms, other.transfer_ms),
            }),
        }
    }
}

/// Breakdown of the decode phase of one sample, per rank, averaged over ranks. The parts plus idle time
/// sum to the phase; comparing them shows where two architectures differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// Duration of the compute lane's operations without contention.
    pub work_ms: f64,
    /// Slowdown of these operations by concurrent communication.
    pub contention_ms: f64,
    /// Exposed communication waiting for a peer.
    pub peer_wait_ms: f64,
    /// Exposed communication transferring data.
    pub transfer_ms: f64,
}

/// Instrumented pass of a run, in which operations were timed; source of trace and overlap. Samples and
/// metrics come from a separate, undisturbed pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Instrumented {
    /// Recorder of the operations: `stamps`, `cuda events around modules`, `cupti`.
    pub recorder: String,
    /// Latency of each decode step (ms).
    #[serde(default)]
    pub steps_ms: Vec<f64>,
    /// Median of `steps_ms`; 0 if empty.
    #[serde(default)]
    pub tpot_ms: f64,
    /// TPOT of this pass / TPOT of the undisturbed pass; null if either has no steps.
    #[serde(default)]
    pub overhead: Option<f64>,
    /// Bootstrap interval of `overhead` over rounds and blocks of steps.
    #[serde(default)]
    pub overhead_ci95: Option<[f64; 2]>,
    /// Communication in the decode phase of this pass.
    #[serde(default)]
    pub overlap: Option<Overlap>,
}

/// One run: request, status, numbers and provenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Record format version of the writer ([`SCHEMA`]).
    pub schema: u32,
    /// Id in the store; `BATCH:ROW` for a simulated sweep.
    pub run: String,
    pub status: Status,
    /// Reason for any status other than ok.
    pub reason: Option<String>,
    /// Requested cell.
    pub spec: Spec,
    pub provenance: Provenance,
    /// True if the self-check had passed on this GPU, driver and set of libraries (cuda); null for other
    /// backends.
    #[serde(default)]
    pub verified: Option<bool>,
    /// Null unless status is ok.
    pub metrics: Option<Metrics>,
    /// Null unless status is ok.
    pub overlap: Option<Overlap>,
    #[serde(deserialize_with = "Environment::unparsed")]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub environment: Environment,
    /// Trace file, relative to the runs directory.
    pub trace: Option<String>,
    /// Creation time of the record, RFC 3339 in UTC.
    #[serde(default)]
    pub created: String,
    /// Round of the sweep, from 0.
    #[serde(default)]
    pub round: u32,
    /// Name of the experiment, if run by a sweep.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Source runs of an aggregated cell (one per round).
    #[serde(default)]
    pub runs: Vec<String>,
    /// Samples behind the metrics. Copies of a record share them.
    #[serde(default)]
    pub samples: Arc<Vec<Sample>>,
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Instrumented pass, if separate from the samples' (cuda).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumented: Option<Instrumented>,
    /// Quality of the model in this architecture, if the store has an evaluation; looked up on reading,
    /// never stored with the record.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub quality: Option<Arc<RunQuality>>,
    /// Training results of the model in this architecture, if the store has any; looked up on reading.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub training: Option<Arc<RunTraining>>,
}

impl Record {
    /// Record without numbers, for an unfinished run.
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
            samples: Arc::default(),
            warnings: Vec::new(),
            instrumented: None,
            verified: None,
            quality: None,
            training: None,
        }
    }

    /// True if `sweep` need not run the cell again; checks with ranks sharing one GPU do not count.
    pub fn is_finished(&self) -> bool {
        self.status == Status::Ok && self.provenance.is_evidence()
    }

    /// True if the run succeeded with numbers fit for comparison, plots and calibration.
    pub fn has_numbers(&self) -> bool {
        self.is_finished() && self.metrics.is_some()
    }

    /// The record without latencies of single steps if they are simulated: they have no variance, so no interval needs
    /// them, and simulating the cell again reproduces them.
    pub fn without_simulated_steps(mut self) -> Self {
        if self.provenance == Provenance::Simulated {
            Arc::make_mut(&mut self.samples).iter_mut().for_each(|sample| sample.steps_ms = Vec::new());
        }
        self
    }

    /// True if the run ended by itself, successfully or not.
    pub fn has_ended(&self) -> bool {
        !matches!(self.status, Status::Running | Status::Interrupted)
    }
}

/// Parses a record. Reads newer formats if the known keys are present and adds a warning; otherwise
/// returns what is wrong.
pub fn parse(bytes: &[u8]) -> Result<Record, String> {
    let newer = |schema| format!("record format {schema} is newer than this build's {SCHEMA}");
    match serde_json::from_slice::<Record>(bytes) {
        Ok(mut record) => {
            let warning = (record.schema > SCHEMA).then(|| newer(u64::from(record.schema)));
            record.warnings.extend(warning.filter(|warning| !record.warnings.contains(warning)));
            record.warnings.retain(|warning| !is_unthrottled(warning));
            Ok(record)
        }
        Err(_) if bytes.is_empty() => Err("the file is empty".into()),
        Err(e) => Err(match schema_of(bytes).filter(|schema| *schema > u64::from(SCHEMA)) {
            Some(schema) => format!("{}: {e}", newer(schema)),
            None => e.to_string(),
        }),
    }
}

/// True for a warning about a power limit under which the clock kept 95 % of its maximum. Older versions recorded it
/// whenever the limit was active, as it is most of the time on memory-bound GPUs.
fn is_unthrottled(warning: &str) -> bool {
    let clocks = || {
        let (_, clocks) =
            warning.split_once("clocks were lowered by its power limit")?.1.split_once('(')?;
        let (lowest, rest) = clocks.split_once(" of ")?;
        let (most, _) = rest.split_once(" MHz")?;
        Some((lowest.parse::<f64>().ok()?, most.parse::<f64>().ok()?))
    };
    clocks().is_some_and(|(lowest, most)| lowest >= 0.95 * most)
}

pub fn schema_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u64,
    }
    serde_json::from_slice::<Versioned>(bytes).ok().map(|v| v.schema)
}

/// 100 x (1 - exposed / comm), both in the same unit; `None` without communication.
pub fn overlap_pct(exposed: f64, comm: f64) -> Option<f64> {
    (comm > 0.0).then(|| 100.0 * (1.0 - exposed / comm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_waits_for_peers_if_all_of_its_runs_know_for_how_long() {
        let waiting =
            |peer_wait_ms| Overlap { exposed_comm_ms: 4.0, peer_wait_ms, ..Overlap::default() };
        let of = |all: &[Overlap]| Overlap::mean(all).expect("there are some").peer_wait_ms();
        assert_eq!(of(&[waiting(Some(1.0)), waiting(Some(2.0))]), Some(1.5));
        assert_eq!(of(&[waiting(Some(1.0)), waiting(None)]), None);
        assert_eq!(waiting(Some(1.5)).times(2.0).peer_wait_ms(), Some(3.0));
        let split = Some(Split { peer_wait_ms: 2.5, ..Split::default() });
        assert_eq!(Overlap { split, ..Overlap::default() }.peer_wait_ms(), Some(2.5));
    }

    #[test]
    fn records_of_older_versions_do_not_know_the_wait_for_peers() {
        let old = r#"{"comm_ms": 2.0, "exposed_comm_ms": 1.0, "overlap_pct": 50.0, "compute_ms": 3.0, "idle_ms": 0.0}"#;
        let overlap: Overlap = serde_json::from_str(old).expect("it is an overlap");
        assert_eq!(overlap.peer_wait_ms(), None);
        let written = |overlap: &Overlap| serde_json::to_string(overlap).expect("it is JSON");
        assert!(!written(&overlap).contains("peer_wait_ms"));
        let known = Overlap { peer_wait_ms: Some(0.25), ..overlap };
        assert_eq!(serde_json::from_str::<Overlap>(&written(&known)).ok(), Some(known));
    }

    #[test]
    fn a_power_limit_that_kept_the_clock_is_no_warning() {
        let mut record = Record::new(Spec::default(), Status::Ok, None);
        let warning = |lowest: u32| {
            format!(
                "GPU 0: clocks were lowered by its power limit for 1481 ms of its samples ({lowest} of 1980 MHz at the \
                 lowest end of one)"
            )
        };
        record.warnings = vec![warning(1980), warning(1335), "some samples may have stalled".into()];
        let read = parse(&serde_json::to_vec(&record).expect("it is JSON")).expect("it is a record");
        assert_eq!(read.warnings, [warning(1335), "some samples may have stalled".into()]);
    }
}
