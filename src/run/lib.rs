//! Backends execute plans. All take a [`Job`] and give back an [`Outcome`]; events go out meanwhile.

mod backend;
pub mod comm;
mod computed;
pub mod cpu;
pub mod cuda;
mod evaluate;
pub mod feasibility;
mod generate;
pub mod launcher;
mod measure;
pub mod recorder;
mod resolve;
mod sample;
mod shared;
pub mod sim;
#[doc(hidden)]
pub mod testing;
mod watch;

pub use backend::{HOST, PlanBackend, backend, is_supervised};
pub use evaluate::{Emit, EvaluateRequest, Evaluated, Window, WindowQuality, evaluation_plan};
pub use feasibility::Feasibility;
pub use generate::{GenerateOptions, GenerateRequest, Generated, Said, choose_generator};
pub use measure::emulated_link;
pub use resolve::Resolve;
pub use shared::Shared;
pub use watch::StepLanes;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::error::Result;
use table::{Sample, Spec};
use trace::Trace;

/// All backends. `auto` asks the last one first.
pub static BACKENDS: [&dyn PlanBackend; 3] = [&sim::SimBackend, &cpu::CpuBackend, &cuda::CudaBackend];

/// Everything a backend needs for one run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The cell to be run, with every default filled in.
    pub spec: Spec,
    /// Whether to record spans (of the last sample).
    pub record: bool,
    /// Whether somebody watches: sends [`RunEvent::Step`].
    pub watch: bool,
    /// Where its ranks are, on backends that take several processes.
    pub ranks: cuda::Ranks,
}

/// A rank may show no progress for so long, where nothing else is asked for.
pub const TIMEOUT: Duration = Duration::from_secs(120);

impl Job {
    /// All ranks in this process, with the usual time-out.
    pub fn of(spec: Spec, record: bool, watch: bool) -> Self {
        Self { spec, record, watch, ranks: cuda::Ranks::default() }
    }
}

/// What happens while a run goes on. Sent as one JSON line each by a run's process to its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// What it is doing now: `loading weights`, `warm-up 1/2`, `sample 3/10`.
    Phase {
        /// What the run is doing, in words for people.
        name: String,
    },
    /// A timed generation has ended; warm-ups are not told of.
    SampleDone {
        /// Which sample it is, from 0.
        index: u32,
        /// How many samples the run has in all.
        of: u32,
        /// The times of the sample.
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
        /// How long the steps since the last such event took (ms).
        ms: f64,
        /// The lanes of the last of them, by rank; empty where nothing is recorded (warm-up).
        lanes: Vec<StepLanes>,
    },
    /// How much of the host's memory the run's process takes.
    Memory {
        /// How many bytes of the process are resident.
        resident_bytes: u64,
    },
    /// Something odd was noticed; the run goes on.
    Warning {
        /// What was noticed, in words for people.
        message: String,
    },
    /// It ended well; nothing follows.
    End {
        /// What the run yields besides its trace.
        outcome: Outcome,
    },
    /// It ended badly; nothing follows.
    Error {
        /// Why it ended, in words for people.
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
    pub environment: table::Environment,
    /// The pass in which operations were timed, where that is not the one of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumented: Option<Box<table::Instrumented>>,
}

/// What a backend gives back: the outcome, and the trace where one was recorded.
pub type RunResult = Result<(Outcome, Option<Trace>)>;
