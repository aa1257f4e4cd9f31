//! The instrumented pass: one more generation, timed by the recorder that was asked for.

use std::sync::Arc;

use super::{activity, events, gather, stamps};
use crate::comm::Peers;
use crate::cuda::clock::Tick;
use crate::cuda::engine::Engine;
use crate::cuda::{cupti, threads};
use crate::recorder::Clock;
use base::error::{Error, Result};
use table::{Environment, Instrumented, Recorder, Spec};
use trace::{OperationInfo, Span};

/// What the instrumented pass needs of the run.
pub(in crate::cuda) struct Context<'a> {
    pub engine: &'a Engine,
    pub spec: &'a Spec,
    pub prompts: &'a [u32],
    /// The other ranks; `None` where this rank is alone.
    pub peers: Option<&'a Arc<Peers>>,
    /// The host's clock; the same for all ranks of a process.
    pub clock: Clock,
    /// Whether events stand around collectives that have a stream of their own, as in the samples: where they make steps
    /// longer, they would make these longer, too.
    pub events: bool,
}

/// What it yields on rank 0.
#[derive(Debug)]
pub(in crate::cuda) struct Traced {
    /// What the run's record says of operations that were timed: how, and what that cost.
    pub instrumented: Instrumented,
    /// What the spans are of.
    pub operations: Vec<OperationInfo>,
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

/// A tick of the clock of stamps that is longer than this (ns) says little of kernels of a decode step.
const COARSE_NS: f64 = 2_100.0;

/// Runs the instrumented pass; `None` where nothing records, and on other ranks than 0.
pub(in crate::cuda) fn run(context: &Context<'_>) -> Result<Option<Traced>> {
    if context.spec.recorder == Recorder::Off {
        return Ok(None);
    }
    let engine = context.engine;
    let tick = Tick::measure(engine.gpu(), engine.main(), &engine.kernels().get("clock_probe")?)?;
    let (recorder, warning) = recorder(context, &tick)?;
    let offsets = gather::compare_clocks(context)?;
    let (times, mut of_rank) = match recorder {
        Recorder::Events => events::run(context)?,
        Recorder::Cupti => activity::run(context)?,
        Recorder::Stamps | Recorder::Off => stamps::run(context, tick)?,
    };
    of_rank.warnings.extend(warning);
    let programs = engine.programs();
    let operations = match recorder {
        Recorder::Events => events::table(engine),
        _ => trace::operations(&programs.prefill.plan, &programs.decode.plan),
    };
    gather::gather(context, recorder, operations, (times, of_rank), &offsets)
}

/// Who times the operations, the same on all ranks: CUPTI in the place of kernels whose clock is too coarse on any rank,
/// where it can be had on all; and on rank 0 what there is to say of that.
fn recorder(context: &Context<'_>, tick: &Tick) -> Result<(Recorder, Option<String>)> {
    let asked = context.spec.recorder;
    if asked != Recorder::Stamps {
        return Ok((asked, None));
    }
    // one recording a process
    let tries = context.peers.is_none_or(|peers| !peers.in_one_process() || peers.rank() == 0);
    let clock = context.clock;
    let lacks = || cupti::Session::start(move || clock.now()).err().map(|why| why.to_string());
    let own = (tick.ns, (tries && tick.ns > COARSE_NS).then(lacks).flatten());
    let all = threads::gather(context.peers, "ticks of clocks", own)?;
    let chosen = all.map(|all| decided(&all)).unwrap_or((Recorder::Stamps, None));
    let Some(peers) = context.peers else { return Ok(chosen) };
    let unreadable = |error: serde_json::Error| Error::failed(format!("rank 0's recorder: {error}"));
    let of_first = peers.broadcast(serde_json::to_vec(&chosen.0).map_err(unreadable)?)?;
    Ok((serde_json::from_slice(&of_first).map_err(unreadable)?, chosen.1))
}

/// From each rank's tick (ns) and why it has no CUPTI, if it was looked for: who times operations for which kernels were to
/// say when they ran, and what there is to say of that.
fn decided(ranks: &[(f64, Option<String>)]) -> (Recorder, Option<String>) {
    let tick = ranks.iter().map(|(tick, _)| *tick).fold(0.0, f64::max);
    if tick <= COARSE_NS {
        return (Recorder::Stamps, None);
    }
    let coarse = format!(
        "the GPU's clock ticks every {:.1} us, too rarely for stamps of short kernels",
        tick / 1e3
    );
    match ranks.iter().find_map(|(_, lacks)| lacks.as_ref()) {
        None => (Recorder::Cupti, Some(format!("{coarse}: CUPTI timed the operations"))),
        Some(why) => (Recorder::Stamps, Some(format!("{coarse}, and CUPTI cannot time them: {why}"))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cupti_takes_the_place_of_stamps_by_a_coarse_clock() {
        assert_eq!(decided(&[(1_000.0, None), (32.0, None)]), (Recorder::Stamps, None));
        let (recorder, said) = decided(&[(32.0, None), (4_096.0, None)]);
        assert_eq!(recorder, Recorder::Cupti);
        assert!(said.is_some_and(
            |said| said.contains("every 4.1 us") && said.ends_with("CUPTI timed the operations")
        ));
        let (recorder, said) = decided(&[(4_096.0, Some("no libcupti".into())), (32.0, None)]);
        assert_eq!(recorder, Recorder::Stamps, "better than nothing");
        assert!(said.is_some_and(|said| said.ends_with("CUPTI cannot time them: no libcupti")));
    }
}
