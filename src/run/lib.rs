//! Backends execute plans: each takes a [`Job`], sends events while it runs, and returns an [`Outcome`].

mod backend;
mod bounded_cache;
pub mod comm;
pub mod cpu;
pub mod cuda;
pub mod feasibility;
mod generate;
mod grid_context;
pub mod launcher;
pub mod recorder;
mod resolve;
pub mod sim;
#[doc(hidden)]
pub mod testing;
mod token_comparison;

pub use backend::{Execute, HOST, PlanBackend, backend, evaluator, executor, generator};
pub use comm::emulated_link;
pub use feasibility::Feasibility;
pub use generate::{
    Emit, EvaluateRequest, Evaluated, EvaluationWindow, GenerateOptions, GenerateRequest,
    GenerationResult, GenerationStatus, WindowQuality, choose_generator, evaluation_plan,
};
pub use grid_context::GridContext;
pub use recorder::StepLanes;
pub use resolve::Resolve;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::error::Result;
use table::{Sample, Spec};
use trace::Trace;

/// All backends; `auto` asks the last one first.
pub static BACKENDS: [&dyn PlanBackend; 3] = [&sim::SimBackend, &cpu::CpuBackend, &cuda::CudaBackend];

#[derive(Clone, Debug)]
pub struct Job {
    pub spec: Spec,
    /// True to record spans of the last sample.
    pub record: bool,
    /// True to send [`RunEvent::Step`] events.
    pub watch: bool,
    /// Location of the ranks, on backends with several processes.
    pub ranks: cuda::RankPlacement,
}

/// Default time after which a rank without progress ends a run.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(120);

impl Job {
    pub fn new(spec: Spec, record: bool, watch: bool) -> Self {
        Self { spec, record, watch, ranks: cuda::RankPlacement::default() }
    }
}

/// Event of a run in progress. A run's process sends each to its parent as one JSON line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// New phase: `loading weights`, `warm-up 1/2`, `sample 3/10`.
    Phase {
        name: String,
    },
    SampleDone {
        index: u32,
        of: u32,
        sample: Sample,
    },
    /// Completed decode steps; at most ten per second, and only with [`Job::watch`].
    Step {
        /// Completed decode steps of this generation; 0 means the end of prefill.
        done: u32,
        of: u32,
        steps: u32,
        /// Time of those steps (ms).
        ms: f64,
        /// Lanes of the last step, by rank; empty if not recorded (warm-up).
        lanes: Vec<StepLanes>,
    },
    Memory {
        resident_bytes: u64,
    },
    Warning {
        message: String,
    },
    End {
        outcome: Outcome,
    },
    Error {
        message: String,
        code: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Timed generations in order; the traced one includes its overlap.
    pub samples: Vec<Sample>,
    /// Weights, KV cache and activations on one rank.
    pub memory_bytes_per_rank: u64,
    pub plan_hashes: Vec<String>,
    /// The backend's entries in the record's environment (threads, placement, kernels).
    pub environment: table::Environment,
    /// Separate pass with timed operations, if that is not the pass of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrumented: Option<Box<table::Instrumented>>,
}

pub type RunResult = Result<(Outcome, Option<Trace>)>;
