//! Instrumented pass of a run: after the undisturbed samples, one more generation with timed operations. It yields the trace,
//! the overlap, and the overhead of timing.
//!
//! Each rank times its own GPU on its own host's clock and sends the timings to rank 0 as JSON; rank 0 converts them to its own
//! clock.

mod activity;
mod events;
mod gather;
mod stamps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::comm::Peers;
use crate::cuda::cupti::{OperationSpan, Report, settle};
use crate::cuda::engine::Engine;
use crate::cuda::timing::collectives::Took;
use crate::cuda::timing::{OperationTime, Skeleton, Tick};
use crate::cuda::{cupti, ranks};
use crate::recorder::Clock;
use base::error::Result;
use plan::Phase;
use table::{Environment, Instrumented, Recorder, Spec};
use trace::{OperationInfo, Span};

pub(super) struct Context<'a> {
    pub engine: &'a Engine,
    pub spec: &'a Spec,
    pub prompts: &'a [u32],
    pub peers: Option<&'a Arc<Peers>>,
    /// Host clock, shared by all ranks of a process.
    pub clock: Clock,
    /// True if events surround collectives on their own stream, as in the samples. If they slowed the samples
    /// down, they would slow this pass down, too.
    pub events: bool,
}

/// Result of the instrumented pass on rank 0.
#[derive(Debug)]
pub(super) struct Traced {
    /// Record entry: timing method and its overhead.
    pub instrumented: Instrumented,
    pub operations: Vec<OperationInfo>,
    /// Sorted spans of all executed ranks.
    pub spans: Vec<Span>,
    /// Number of ranks with spans.
    pub ranks: u32,
    /// Trace metadata: clock of the spans and its synchronization between ranks.
    pub clock: String,
    /// Environment entries on the timing method, for record and trace.
    pub environment: Environment,
    /// One sentence per gap in the trace or the overlap.
    pub warnings: Vec<String>,
}

/// Maximum tick of the stamp clock (ns) that still resolves the kernels of a decode step.
const COARSE_NS: f64 = 2_100.0;

/// Runs the instrumented pass. Returns `None` if the recorder is off, and on ranks other than 0.
pub(super) fn run(context: &Context<'_>) -> Result<Option<Traced>> {
    if context.spec.recorder == Recorder::Off {
        return Ok(None);
    }
    let engine = context.engine;
    let tick = Tick::measure(&engine.gpu, engine.main(), &engine.kernels.get("clock_probe")?)?;
    let (recorder, warning) = recorder(context, &tick)?;
    let offsets = gather::compare_clocks(context)?;
    let (times, mut of_rank) = match recorder {
        Recorder::Events => events::run(context)?,
        Recorder::Cupti => activity::run(context)?,
        Recorder::Stamps | Recorder::Off => stamps::run(context, tick)?,
    };
    of_rank.warnings.extend(warning);
    let programs = &engine.programs;
    let operations = match recorder {
        Recorder::Events => events::table(engine),
        _ => trace::operations([&programs.prefill.plan], [&programs.decode.plan]),
    };
    gather::gather(context, recorder, operations, (times, of_rank), &offsets)
}

/// Selects the same recorder on all ranks: CUPTI instead of stamps if the clock of any rank is too coarse and
/// CUPTI works on all ranks. Also returns a warning on rank 0.
fn recorder(context: &Context<'_>, tick: &Tick) -> Result<(Recorder, Option<String>)> {
    let asked = context.spec.recorder;
    if asked != Recorder::Stamps {
        return Ok((asked, None));
    }
    // CUPTI allows one recording per process
    let tries = context.peers.is_none_or(|peers| !peers.in_one_process() || peers.rank() == 0);
    let clock = context.clock;
    let lacks = || cupti::Session::start(move || clock.now()).err().map(|why| why.to_string());
    let own = (tick.ns, (tries && tick.ns > COARSE_NS).then(lacks).flatten());
    let all = ranks::gather(context.peers, "ticks of clocks", own)?;
    let chosen = all.map(|all| decided(&all)).unwrap_or((Recorder::Stamps, None));
    Ok((ranks::broadcast(context.peers, "recorder", chosen.0)?, chosen.1))
}

/// Selects the recorder from each rank's clock tick (ns) and, if CUPTI was tried, the reason why it failed.
/// Also returns a warning.
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
    fn barrier(&self) -> Result<()> {
        self.peers.map_or(Ok(()), |peers| peers.barrier())
    }

    /// Uploads the prompt, resets the state and waits for all ranks.
    fn prepare(&self) -> Result<()> {
        self.engine.reset()?;
        self.engine.set_prompt(self.spec.batch, self.prompts)?;
        self.engine.wait_idle("preparing a timed generation")?;
        self.barrier()
    }

    /// Sequences, and prompt and output tokens of each.
    fn sizes(&self) -> [u32; 3] {
        [self.spec.batch, self.spec.prompt_tokens, self.spec.output_tokens]
    }

    fn steps(&self) -> usize {
        self.spec.output_tokens.saturating_sub(1) as usize
    }

    /// Global index of this rank.
    fn rank(&self) -> u32 {
        self.engine.ranks().first().copied().unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepTimes {
    pub rank: u32,
    pub phase: Phase,
    /// Decode step index; 0 for prefill.
    pub step: u32,
    /// Origin of the times below (ns, host clock).
    pub start_ns: i64,
    /// Duration (ns).
    pub length_ns: i64,
    /// Ready, start and end (ns) by operation or part of the trace's table; `None` without a record.
    pub operations: Vec<Option<[i64; 3]>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankTimes {
    pub rank: u32,
    pub steps: Vec<StepTimes>,
    /// Events or records per step.
    pub events_per_step: f64,
    /// Maximum error on the host's clock, in both directions (ns).
    pub uncertainty_ns: i64,
    /// Drift of the host's clock ahead of the GPU's over `duration_ns` (ns).
    pub drift_ns: i64,
    pub duration_ns: i64,
    pub report: Option<Report>,
    /// Tick of the GPU's clock (ns) and stream time per stamp (us), for stamps only.
    pub tick_ns: f64,
    pub stamp_us: f64,
    /// Event timings of the last decode step's collectives, if there were events in addition to the recorder.
    pub by_events: Vec<Took>,
    pub warnings: Vec<String>,
}

/// Duration of a step (ns) and its operations' ready, start and end times, computed from spans on the host's
/// clock. A lane runs one operation at a time.
pub(super) fn settled(
    skeleton: &Skeleton,
    found: &[Option<OperationSpan>],
    start_ns: i64,
) -> (i64, Vec<Option<[i64; 3]>>) {
    let end = found.iter().flatten().map(|span| span.end_ns).max().unwrap_or(start_ns);
    let times = settle(skeleton, found, start_ns);
    let triple = |time: &OperationTime| [time.ready_ns, time.start_ns, time.end_ns];
    (end - start_ns, times.iter().map(|time| time.as_ref().map(triple)).collect())
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
