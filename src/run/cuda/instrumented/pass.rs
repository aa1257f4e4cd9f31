//! The instrumented pass: one more generation, timed by the recorder that was asked for.

use std::sync::Arc;

use super::ranks::RankTimes;
use super::{activity, events, gather, stamps};
use crate::base::error::Result;
use crate::run::comm::Peers;
use crate::run::cuda::engine::Engine;
use crate::run::measure::Times;
use crate::run::recorder::Clock;
use crate::table::{Environment, Instrumented, Recorder, Spec};
use crate::trace::Span;

/// What the instrumented pass needs of the run.
pub(in crate::run::cuda) struct Context<'a> {
    pub engine: &'a Engine,
    pub spec: &'a Spec,
    pub prompts: &'a [u32],
    /// The other ranks; `None` where this rank is alone.
    pub peers: Option<&'a Arc<Peers>>,
    /// The host's clock; the same for all ranks of a process.
    pub clock: Clock,
}

/// What it yields on rank 0.
#[derive(Debug)]
pub(in crate::run::cuda) struct Traced {
    /// What the run's record says of operations that were timed: how, and what that cost.
    pub instrumented: Instrumented,
    /// Spans of all ranks that were executed, sorted as traces are.
    pub spans: Vec<Span>,
    /// How many ranks the spans are of.
    pub ranks: u32,
    /// For the trace: what the clock of the spans is, and how it was tied together over ranks.
    pub clock: String,
    /// For the record and the trace: how operations were timed.
    pub environment: Environment,
    /// A sentence for each thing that the trace or the overlap lacks.
    pub warnings: Vec<String>,
}

/// Runs the instrumented pass; `None` where nothing records, and on other ranks than 0.
pub(in crate::run::cuda) fn run(context: &Context<'_>) -> Result<Option<Traced>> {
    let timed: fn(&Context<'_>) -> Result<(Times, RankTimes)> = match context.spec.recorder {
        Recorder::Off => return Ok(None),
        Recorder::Stamps => stamps::run,
        Recorder::Events => events::run,
        Recorder::Cupti => activity::run,
    };
    let offsets = gather::compare_clocks(context)?;
    let (times, of_rank) = timed(context)?;
    gather::gather(context, times, of_rank, &offsets)
}

impl Context<'_> {
    /// All ranks meet, if there are several.
    pub(super) fn barrier(&self) -> Result<()> {
        self.peers.map_or(Ok(()), |peers| peers.barrier())
    }

    /// The prompt is there, the caches are empty, and all ranks are ready.
    pub(super) fn prepare(&self) -> Result<()> {
        self.engine.reset()?;
        self.engine.set_prompt(self.spec.batch, self.prompts)?;
        self.engine.wait_idle("preparing a timed generation")?;
        self.barrier()
    }

    /// Decode steps of the generation.
    pub(super) fn steps(&self) -> usize {
        self.spec.output_tokens.saturating_sub(1) as usize
    }

    /// This process's or thread's rank among all.
    pub(super) fn rank(&self) -> u32 {
        self.engine.ranks().first().copied().unwrap_or_default()
    }
}
