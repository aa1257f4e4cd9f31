//! The instrumented arm of a run: after the samples, which nothing disturbed, one more generation in
//! which operations are timed. It gives the trace and the overlap, and says what timing cost.
//!
//! Each rank times itself on its own GPU, on its own host's clock; rank 0 gathers, and puts all on its
//! own clock.

mod activity;
mod events;
mod gather;
mod ranks;

use std::sync::Arc;

use super::engine::Engine;
use crate::backend::measure::Times;
use crate::comm::Peers;
use crate::error::Result;
use crate::record::Clock;
use crate::spec::{Recorder, Spec};
use crate::store::{Environment, Instrumented};
use crate::trace::Span;

use ranks::RankTimes;

/// What the arm needs.
pub(super) struct Context<'a> {
    pub engine: &'a Engine,
    pub spec: &'a Spec,
    pub prompts: &'a [u32],
    /// None: this rank is alone.
    pub peers: Option<&'a Arc<Peers>>,
    /// The host's clock; the same for all ranks of a process.
    pub clock: Clock,
}

/// What it yields on rank 0.
#[derive(Debug)]
pub(super) struct Traced {
    /// For the record.
    pub instrumented: Instrumented,
    /// Spans of all ranks that were executed, sorted as traces are.
    pub spans: Vec<Span>,
    /// How many ranks these are.
    pub ranks: u32,
    /// What the clock is.
    pub clock: String,
    /// For the record and the trace: how operations were timed.
    pub environment: Environment,
    /// What is missing.
    pub warnings: Vec<String>,
}

/// Runs the arm; `None` where nothing records, and on other ranks than 0.
pub(super) fn run(context: &Context<'_>) -> Result<Option<Traced>> {
    let timed: fn(&Context<'_>) -> Result<(Times, RankTimes)> = match context.spec.recorder {
        Recorder::Off => return Ok(None),
        Recorder::Events => events::run,
        Recorder::Cupti => activity::run,
    };
    let offsets = gather::compare_clocks(context)?;
    let (times, of_rank) = timed(context)?;
    gather::gather(context, times, of_rank, &offsets)
}

impl Context<'_> {
    /// All ranks meet, if there are several.
    fn barrier(&self) -> Result<()> {
        self.peers.map_or(Ok(()), |peers| peers.barrier())
    }

    /// The prompt is there, the caches are empty, and all ranks are ready.
    fn prepare(&self) -> Result<()> {
        self.engine.reset()?;
        self.engine.set_prompt(self.prompts)?;
        self.engine.wait_idle("preparing a timed generation")?;
        self.barrier()
    }

    /// Decode steps of the generation.
    fn steps(&self) -> usize {
        self.spec.output_tokens.saturating_sub(1) as usize
    }

    /// This process's or thread's rank among all.
    fn rank(&self) -> u32 {
        self.engine.ranks().first().copied().unwrap_or_default()
    }
}
