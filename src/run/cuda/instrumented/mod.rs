//! Instrumented pass of a run: after the undisturbed samples, one more generation with timed operations. It yields the trace,
//! the overlap, and the overhead of timing.
//!
//! Each rank times its own GPU on its own host's clock and sends the timings to rank 0 as JSON; rank 0 converts them to its own
//! clock and combines them.

mod activity;
mod choice;
mod events;
mod report;
mod stamps;

pub use stamps::Stamps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::choice::choose_recorder;
use self::report::{describe_clock, timing_environment};
use crate::comm::Peers;
use crate::cuda::cupti::CuptiReport;
use crate::cuda::engine::Engine;
use crate::cuda::ranks::gather;
use crate::cuda::timing::collectives::CollectiveTime;
use crate::cuda::timing::{Tick, Tie, rank_tie};
use crate::recorder::{GenerationTimes, MonotonicClock, combine};
use base::error::Result;
use plan::{Lane, Phase};
use table::{Environment, Instrumented, Link, Recorder, Spec};
use trace::{OperationInfo, Span};

pub(super) struct InstrumentedRun<'a> {
    pub engine: &'a Engine,
    pub spec: &'a Spec,
    pub prompts: &'a [u32],
    pub peers: Option<&'a Arc<Peers>>,
    /// Host clock, shared by all ranks of a process.
    pub clock: MonotonicClock,
    /// True if events surround collectives on their own stream, as in the samples. If they slowed the samples
    /// down, they would slow this pass down, too.
    pub events: bool,
}

/// Result of the instrumented pass on rank 0.
#[derive(Debug)]
pub(super) struct InstrumentedResult {
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

/// Runs the instrumented pass. Returns `None` if the recorder is off, and on ranks other than 0.
pub(super) fn run(context: &InstrumentedRun<'_>) -> Result<Option<InstrumentedResult>> {
    if context.spec.recorder == Recorder::Off {
        return Ok(None);
    }
    let engine = context.engine;
    let tick = Tick::measure(&engine.gpu, engine.main(), &engine.kernels.get("clock_probe")?)?;
    let (recorder, warning) = choose_recorder(context, &tick)?;
    let offsets = clock_offsets(context)?;
    let (times, mut rank_times) = match recorder {
        Recorder::Events => events::run(context)?,
        Recorder::Cupti => activity::run(context)?,
        Recorder::Stamps | Recorder::Off => stamps::run(context, tick)?,
    };
    rank_times.warnings.extend(warning);
    let programs = &engine.programs;
    let operations = match recorder {
        Recorder::Events => events::segment_table(engine),
        _ => trace::operations([&programs.prefill.plan], [&programs.decode.plan]),
    };
    combine_ranks(context, recorder, operations, (times, rank_times), &offsets)
}

impl InstrumentedRun<'_> {
    fn barrier(&self) -> Result<()> {
        self.peers.map_or(Ok(()), |peers| peers.barrier())
    }

    /// Uploads the prompt, resets the state and waits for all ranks.
    fn prepare(&self) -> Result<()> {
        self.engine.prepare(self.spec.batch, self.prompts)?;
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
        self.engine.ranks.first().map_or(0, |rank| rank.index)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct InstrumentedStep {
    pub rank: u32,
    pub phase: Phase,
    /// Decode step index; 0 for prefill.
    pub step: u32,
    /// Origin of the times below (ns, host clock).
    pub start_ns: i64,
    pub length_ns: i64,
    /// Ready, start and end (ns) by operation or part of the trace's table; `None` without a record.
    pub operations: Vec<Option<[i64; 3]>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankTimes {
    pub rank: u32,
    pub steps: Vec<InstrumentedStep>,
    /// Events or records per step.
    pub events_per_step: f64,
    /// Maximum error on the host's clock, in both directions (ns).
    pub uncertainty_ns: i64,
    /// Drift of the host's clock ahead of the GPU's over `duration_ns` (ns).
    pub drift_ns: i64,
    pub duration_ns: i64,
    pub report: Option<CuptiReport>,
    /// Tick of the GPU's clock (ns) and stream time per stamp (us), for stamps only.
    pub tick_ns: f64,
    pub stamp_us: f64,
    /// Event timings of the last decode step's collectives, if there were events in addition to the recorder.
    pub by_events: Vec<CollectiveTime>,
    pub warnings: Vec<String>,
}

/// Clock queries per rank.
const CLOCK_QUERIES: usize = 200;

/// Offsets to add to each rank's clock to get rank 0's, on rank 0.
fn clock_offsets(context: &InstrumentedRun<'_>) -> Result<Vec<Tie>> {
    let same = Tie { at_ns: 0, uncertainty_ns: 0 };
    match context.peers {
        None => Ok(vec![same]),
        // threads share one clock
        Some(peers) if peers.in_one_process() => Ok(vec![same; peers.ranks()]),
        Some(peers) => {
            let clock = context.clock;
            let answers = peers.compare_clocks(CLOCK_QUERIES, move || clock.now())?;
            Ok(answers.iter().map(|answers| rank_tie(answers).unwrap_or(same)).collect())
        }
    }
}

/// Gathers the timings of all ranks on a common time axis. Returns `None` on ranks other than 0.
fn combine_ranks(
    context: &InstrumentedRun<'_>,
    recorder: Recorder,
    operations: Vec<OperationInfo>,
    (times, rank_times): (GenerationTimes, RankTimes),
    offsets: &[Tie],
) -> Result<Option<InstrumentedResult>> {
    let Some(all) = gather(context.peers, "timings", (times, rank_times))? else {
        return Ok(None);
    };
    let (times, mut ranks): (Vec<GenerationTimes>, Vec<RankTimes>) = all.into_iter().unzip();
    for (rank, offset) in ranks.iter_mut().zip(offsets) {
        rank.uncertainty_ns += offset.uncertainty_ns;
        rank.steps.iter_mut().for_each(|step| step.start_ns += offset.at_ns);
    }
    let emulated = context.spec.link != Link::Native;
    let steps = ranks.iter().flat_map(|rank| &rank.steps);
    let mut spans: Vec<Span> = steps.flat_map(|step| step_spans(step, &operations, emulated)).collect();
    spans.sort_unstable_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns, s.operation));
    let executed = ranks.len() as u32;
    // extrapolates the recorded steps to the whole decode phase
    let phases = context.steps() as f64 / decode_steps(&ranks).max(1) as f64;
    let lacks_ranks = executed < context.spec.ranks();
    let overlap = trace::overlap::decode_overlap(&spans, executed, lacks_ranks);
    let overlap = overlap.map(|overlap| overlap.times(phases));
    let sample = combine(&times, &[], executed);
    let name = match recorder {
        Recorder::Events => "cuda events around modules",
        other => other.as_str(),
    };
    let instrumented = Instrumented {
        recorder: name.into(),
        steps_ms: sample.steps_ms,
        overlap,
        ..Instrumented::default()
    };
    let of_cupti = ranks.iter().filter_map(|rank| rank.report.as_ref()?.warning());
    let mut warnings: Vec<String> =
        of_cupti.chain(ranks.iter().flat_map(|rank| rank.warnings.clone())).collect();
    warnings.dedup();
    Ok(Some(InstrumentedResult {
        instrumented,
        operations,
        spans,
        ranks: executed,
        clock: describe_clock(recorder, &ranks, offsets),
        environment: timing_environment(context, name, &ranks, offsets),
        warnings,
    }))
}

/// Number of decode steps timed on the first rank.
fn decode_steps(ranks: &[RankTimes]) -> usize {
    let Some(first) = ranks.first() else { return 0 };
    first.steps.iter().filter(|step| step.phase == Phase::Decode && step.rank == first.rank).count()
}

fn step_spans<'a>(
    step: &'a InstrumentedStep,
    operations: &'a [OperationInfo],
    emulated: bool,
) -> impl Iterator<Item = Span> + 'a {
    let is_before = |info: &OperationInfo| step.phase == Phase::Decode && info.phase == Phase::Prefill;
    let base = operations.iter().filter(|info| is_before(info)).count();
    step.operations.iter().enumerate().filter_map(move |(operation, times)| {
        let [ready, started, ended] = (*times)?;
        let lane = operations.get(base + operation)?.lane;
        Some(Span {
            sample: 0,
            phase: step.phase,
            step: step.step,
            rank: step.rank,
            lane,
            stream: 0,
            operation: (base + operation) as u32,
            ready_ns: step.start_ns + ready,
            start_ns: step.start_ns + started,
            end_ns: step.start_ns + ended,
            // an emulated collective waits for no peer; NCCL's last arrival is unknown
            last_arrival_ns: if lane == Lane::Comm && emulated { step.start_ns + started } else { -1 },
            ..Span::EMPTY
        })
    })
}
