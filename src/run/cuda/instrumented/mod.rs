//! Instrumented pass of a run: after the undisturbed samples, one more generation with timed operations. It yields the trace,
//! the overlap, and the overhead of timing.
//!
//! Each rank times its own GPU on its own host's clock and sends the timings to rank 0 as JSON; rank 0 converts them to its own
//! clock and combines them.

mod activity;
mod events;
mod stamps;

pub use stamps::Stamps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::comm::Peers;
use crate::cuda::cupti::{CuptiReport, OperationSpan, settle};
use crate::cuda::engine::Engine;
use crate::cuda::timing::collectives::{CollectiveTime, group_collectives};
use crate::cuda::timing::{Skeleton, Tick, Tie, rank_tie};
use crate::cuda::{cupti, ranks};
use crate::recorder::{GenerationTimes, MonotonicClock, combine};
use base::error::Result;
use base::statistics::median;
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

/// Maximum tick of the stamp clock (ns) that still resolves the kernels of a decode step.
const COARSE_NS: f64 = 2_100.0;

/// Runs the instrumented pass. Returns `None` if the recorder is off, and on ranks other than 0.
pub(super) fn run(context: &InstrumentedRun<'_>) -> Result<Option<InstrumentedResult>> {
    if context.spec.recorder == Recorder::Off {
        return Ok(None);
    }
    let engine = context.engine;
    let tick = Tick::measure(&engine.gpu, engine.main(), &engine.kernels.get("clock_probe")?)?;
    let (recorder, warning) = recorder(context, &tick)?;
    let offsets = compare_clocks(context)?;
    let (times, mut rank_times) = match recorder {
        Recorder::Events => events::run(context)?,
        Recorder::Cupti => activity::run(context)?,
        Recorder::Stamps | Recorder::Off => stamps::run(context, tick)?,
    };
    rank_times.warnings.extend(warning);
    let programs = &engine.programs;
    let operations = match recorder {
        Recorder::Events => events::table(engine),
        _ => trace::operations([&programs.prefill.plan], [&programs.decode.plan]),
    };
    combine_ranks(context, recorder, operations, (times, rank_times), &offsets)
}

/// Selects the same recorder on all ranks: CUPTI instead of stamps if the clock of any rank is too coarse and
/// CUPTI works on all ranks. Also returns a warning on rank 0.
fn recorder(context: &InstrumentedRun<'_>, tick: &Tick) -> Result<(Recorder, Option<String>)> {
    let asked = context.spec.recorder;
    if asked != Recorder::Stamps {
        return Ok((asked, None));
    }
    // CUPTI allows one recording per process
    let tries = context.peers.is_none_or(|peers| !peers.in_one_process() || peers.rank() == 0);
    let clock = context.clock;
    let lacks = || cupti::CuptiSession::start(move || clock.now()).err().map(|why| why.to_string());
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

/// Duration of a step (ns) and its operations' ready, start and end times, computed from spans on the host's
/// clock. A lane runs one operation at a time.
pub(super) fn settled(
    skeleton: &Skeleton,
    found: &[Option<OperationSpan>],
    start_ns: i64,
) -> (i64, Vec<Option<[i64; 3]>>) {
    let end = found.iter().flatten().map(|span| span.end_ns).max().unwrap_or(start_ns);
    (end - start_ns, settle(skeleton, found, start_ns))
}

/// Clock queries per rank.
const CLOCK_QUERIES: usize = 200;

/// Offsets to add to each rank's clock to get rank 0's, on rank 0.
fn compare_clocks(context: &InstrumentedRun<'_>) -> Result<Vec<Tie>> {
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
    let Some(all) = ranks::gather(context.peers, "timings", (times, rank_times))? else {
        return Ok(None);
    };
    let (times, mut ranks): (Vec<GenerationTimes>, Vec<RankTimes>) = all.into_iter().unzip();
    for (rank, offset) in ranks.iter_mut().zip(offsets) {
        rank.uncertainty_ns += offset.uncertainty_ns;
        rank.steps.iter_mut().for_each(|step| step.start_ns += offset.at_ns);
    }
    let emulated = context.spec.link != Link::Native;
    let steps = ranks.iter().flat_map(|rank| &rank.steps);
    let mut spans: Vec<Span> = steps.flat_map(|step| spans_of(step, &operations, emulated)).collect();
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
    let environment = environment(context, name, &ranks, offsets);
    let clock = clock(recorder, &ranks, offsets);
    Ok(Some(InstrumentedResult {
        instrumented,
        operations,
        spans,
        ranks: executed,
        clock,
        environment,
        warnings,
    }))
}

/// Number of decode steps timed on the first rank.
fn decode_steps(ranks: &[RankTimes]) -> usize {
    let of_first = |rank: &RankTimes| {
        rank.steps.iter().filter(|step| step.phase == Phase::Decode && step.rank == rank.rank).count()
    };
    ranks.first().map_or(0, of_first)
}

fn spans_of<'a>(
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

/// Collectives in the last decode step of each rank by events and by the recorder (us), where both timed them.
fn compare_events(ranks: &[RankTimes]) -> Vec<Vec<(CollectiveTime, f64)>> {
    let of_rank = |rank: &RankTimes| {
        let steps = ranks.iter().flat_map(|rank| &rank.steps);
        let steps = steps.filter(|step| step.phase == Phase::Decode && step.rank == rank.rank);
        let last = steps.max_by_key(|step| step.step);
        let compared = |by_events: &CollectiveTime| {
            let [_, start, end] = (*last?.operations.get(by_events.operation as usize)?)?;
            Some((*by_events, (end - start) as f64 / 1e3))
        };
        rank.by_events.iter().filter_map(compared).collect::<Vec<_>>()
    };
    ranks.iter().map(of_rank).filter(|compared| !compared.is_empty()).collect()
}

fn environment(
    context: &InstrumentedRun<'_>,
    name: &str,
    ranks: &[RankTimes],
    offsets: &[Tie],
) -> Environment {
    let most = |ns: fn(&RankTimes) -> i64| ranks.iter().map(|rank| ns(rank).abs()).max().unwrap_or(0);
    let us = |ns: i64| ns as f64 / 1e3;
    let cupti = ranks.iter().any(|rank| rank.report.is_some()).then(cupti::version).flatten();
    let summarize = |found: &[&(CollectiveTime, f64)]| -> Value {
        let middle = |us: fn(&(CollectiveTime, f64)) -> f64| {
            median(&found.iter().map(|each| us(each)).collect::<Vec<_>>())
        };
        let difference = |(by_events, by_recorder): &(CollectiveTime, f64)| by_events.us - by_recorder;
        json!({
            "events_us": middle(|(by_events, _)| by_events.us),
            "recorder_us": middle(|(_, by_recorder)| *by_recorder),
            "difference_us": middle(difference),
            "largest_difference_us": found.iter().map(|each| difference(each).abs()).fold(0.0, f64::max),
        })
    };
    let compared = compare_events(ranks);
    let collectives = group_collectives(context.engine, &compared, |(one, _)| one.operation, summarize);
    Environment::from([
        ("recorder".into(), json!(name)),
        ("cupti".into(), json!(cupti)),
        (
            "timing".into(),
            json!({
                "steps": decode_steps(ranks),
                "events_a_step": ranks.first().map(|rank| rank.events_per_step),
                "tick_ns": ranks.first().map(|rank| rank.tick_ns).filter(|ns| *ns > 0.0),
                "stamp_us": ranks.first().map(|rank| rank.stamp_us).filter(|us| *us > 0.0),
                "collectives": collectives,
                "clock_uncertainty_us": us(most(|rank| rank.uncertainty_ns)),
                "clock_drift_us": us(most(|rank| rank.drift_ns)),
                "clock_offset_uncertainty_us": us(offsets.iter().map(|t| t.uncertainty_ns).max().unwrap_or(0)),
            }),
        ),
    ])
}

/// Description of the trace's clock and its uncertainty.
fn clock(recorder: Recorder, ranks: &[RankTimes], offsets: &[Tie]) -> String {
    let us = |ns: i64| ns as f64 / 1e3;
    let uncertainty = ranks.iter().map(|rank| rank.uncertainty_ns).max().unwrap_or(0);
    let (drift, over) = ranks
        .iter()
        .map(|rank| (rank.drift_ns, rank.duration_ns))
        .max_by_key(|(drift, _)| drift.abs())
        .unwrap_or_default();
    let source = match recorder {
        Recorder::Cupti => "CUPTI's time stamps",
        Recorder::Stamps => "the kernels' own stamps of %globaltimer",
        _ => {
            "CUDA events around modules and collectives, each step's counted from its own first (f32 ms)"
        }
    };
    let mut text = format!(
        "{source}; tied to CLOCK_MONOTONIC of rank 0's host by round trips, +-{:.1} us, with {:+.1} us of drift over {:.2} s; ns since the run began",
        us(uncertainty),
        us(drift),
        over as f64 / 1e9
    );
    if offsets.iter().any(|offset| offset.uncertainty_ns > 0) {
        text += "; ranks of other processes compared by messages";
    }
    text
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
