//! Backends execute plans. All take a [`Job`] and give back an [`Outcome`]; events go out meanwhile.

pub mod cpu;
pub mod cuda;
mod generate;
mod measure;
mod sample;
pub mod sim;
mod watch;

pub use generate::{GenerateRequest, Generated};
pub use watch::StepLanes;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::comm::{Peers, Progress};
use crate::error::{Error, Result};
use crate::spec::{Backend, Spec};
use crate::store::Sample;
use crate::trace::Trace;

/// Everything a backend needs for one run.
#[derive(Clone, Debug)]
pub struct Job {
    /// What to run.
    pub spec: Spec,
    /// Whether to record spans (of the last sample).
    pub record: bool,
    /// Whether somebody watches: sends [`RunEvent::Step`].
    pub watch: bool,
    /// A rank that shows no progress for so long ends the run (cuda).
    pub timeout: Duration,
    /// Where this process is one rank of several processes (cuda): the others. Then only rank 0's
    /// outcome and trace count; other ranks give an outcome without samples, and no trace. Without it
    /// all ranks are threads of this process.
    pub peers: Option<Arc<Peers>>,
    /// The GPU of this process's first rank (cuda).
    pub device: usize,
    /// Told of whatever shows that the run goes on (cuda): without news for longer than `timeout` it is
    /// ended. Events of the run count, and each [`Peers::phase`] of [`Job::threads`] and `peers`.
    pub progress: Arc<Progress>,
}

/// A rank may show no progress for so long, where nothing else is asked for.
pub const TIMEOUT: Duration = Duration::from_secs(120);

impl Job {
    /// Peers for so many ranks as threads of this process.
    pub fn threads(&self, ranks: usize) -> Vec<Peers> {
        let watched = |peers: Peers| peers.with_progress(Arc::clone(&self.progress));
        Peers::threads(ranks, self.timeout).into_iter().map(watched).collect()
    }

    /// All ranks in this process, with the usual time-out.
    pub fn of(spec: Spec, record: bool, watch: bool) -> Self {
        Self { spec, record, watch, timeout: TIMEOUT, peers: None, device: 0, progress: Arc::default() }
    }
}

/// What happens while a run goes on. Sent as one JSON line each by a run's process to its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// What it is doing now: `loading weights`, `warm-up 1/2`, `sample 3/10`.
    Phase {
        /// For people.
        name: String,
    },
    /// A sample is done.
    SampleDone {
        /// From 0.
        index: u32,
        /// How many in all.
        of: u32,
        /// The times.
        sample: Sample,
    },
    /// Decode steps went by; at most ten times a second, and only where [`Job::watch`] asks for it.
    Step {
        /// Decode steps done in this generation; 0: the prefill has ended.
        done: u32,
        /// Decode steps of a generation.
        of: u32,
        /// Steps since the last such event, and how long they took (ms).
        steps: u32,
        /// See `steps`.
        ms: f64,
        /// The lanes of the last of them, by rank; empty where nothing is recorded (warm-up).
        lanes: Vec<StepLanes>,
    },
    /// Memory of the process.
    Memory {
        /// Resident bytes.
        resident_bytes: u64,
    },
    /// Something odd.
    Warning {
        /// For people.
        message: String,
    },
    /// It ended well; nothing follows.
    End {
        /// The result.
        outcome: Outcome,
    },
    /// It ended badly; nothing follows.
    Error {
        /// Why.
        message: String,
        /// The exit status it would have as a command.
        code: u8,
    },
}

/// What a run yields besides its trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Timed generations, in order; the traced one has its overlap.
    pub samples: Vec<Sample>,
    /// Weights, KV cache and activations on one rank.
    pub memory_bytes_per_rank: u64,
    /// Hashes of the prefill and decode plans.
    pub plan_hashes: Vec<String>,
    /// The backend's part of the record's environment (threads, placement, kernels).
    pub environment: crate::store::Environment,
    /// The arm in which operations were timed, where that is not the samples' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumented: Option<Box<crate::store::Instrumented>>,
}

/// What a backend gives back: the outcome, and the trace where one was recorded.
pub type RunResult = Result<(Outcome, Option<Trace>)>;

/// Runs a job on its backend; events of the run go to `emit` meanwhile.
pub fn run(job: &Job, emit: &mut dyn FnMut(RunEvent)) -> RunResult {
    match job.spec.backend {
        Backend::Sim => sim::run(job),
        Backend::Cpu => cpu::run(job, emit),
        Backend::Cuda => cuda::run(job, emit),
        Backend::Auto => Err(Error::input_help(
            "backend 'auto' is not resolved",
            "resolve the cell first: it becomes sim, cpu or cuda",
        )),
    }
}
