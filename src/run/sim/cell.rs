//! One cell on the simulator: all of its steps with the record's environment, or a prediction from a few steps.

use std::sync::Arc;

use super::cost::CostModel;
use super::durations::{Durations, ExpertShares, TimeBySource};
use super::lanes::SimulatedOperation;
use super::link::{collective, environment};
use super::pipeline::PipelineStages;
use super::ranks::{IdenticalRanks, SimulatedRanks};
use super::routing::ExpertRouting;
use super::serving::{CellTimes, Load, ServingLatency, serve};
use super::simulator::{CellPlans, need, precision};
use super::skew::SkewedRanks;
use crate::{Outcome, RunResult};
use base::error::{Error, Result};
use machine::hardware::{MemoryNeed, Target};
use plan::{Lane, ModelShape, Phase, Plan, Step};
use table::{Provenance, Sample, Spec};
use trace::{Span, Trace, TraceMeta, operations, stage_groups};

/// Cell with everything that its simulation needs.
#[derive(Clone, Debug)]
pub struct SimulatedCell<'a> {
    pub spec: &'a Spec,
    pub shape: ModelShape,
    pub target: Arc<Target>,
    pub plans: Arc<CellPlans>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyPrediction {
    /// Prefill latency: prompt to first token (ms).
    pub prefill_ms: f64,
    pub decode_ms: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PredictedStep {
    /// All operations, in order per lane.
    pub spans: Vec<PredictedSpan>,
    /// Time from the start of the step to its tokens (ns).
    pub length_ns: i64,
    pub overlap: table::Overlap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedSpan {
    pub operation: usize,
    pub lane: Lane,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Environment key of the note that requests wait for KV cache; shown as a warning.
pub const QUEUED_NOTE: &str = "queued";

const QUEUED: &str = "requests wait for KV cache: ";

/// Simulated time of prefill and of the middle decode step, grouped by cost source.
pub(super) type Sources = [(&'static str, [f64; 4]); 2];

impl SimulatedCell<'_> {
    /// The same cell on another target, with the same plans: for fitting constants that no plan depends on.
    pub fn on(&self, target: &Arc<Target>) -> Self {
        Self { target: Arc::clone(target), ..self.clone() }
    }

    /// Memory of one rank.
    pub fn memory(&self) -> MemoryNeed {
        self.need().0
    }

    fn need(&self) -> (MemoryNeed, f64) {
        let precision = precision(self.spec, &self.target);
        let plans = self.plans.memory(&self.shape, precision);
        need(self.spec, &self.shape, precision, plans, &self.target)
    }

    /// Simulates the closed loop of a cell with `concurrency`, whose prompts and outputs vary between
    /// `length_ratio` and 1 of their lengths; `None` for a static batch and for a stack without a scheduler.
    pub fn serve(&self, length_ratio: f64) -> Option<ServingLatency> {
        let engine = self.target.stack.serving.as_ref().filter(|_| self.spec.concurrency > 0)?;
        let load = Load {
            concurrency: self.spec.concurrency.div_ceil(self.spec.dp.max(1)),
            prompt_tokens: self.spec.prompt_tokens,
            output_tokens: self.spec.output_tokens,
            length_ratio,
            cache_tokens: self.need().1,
        };
        Some(serve(engine, &load, &mut CellTimes::new(self, engine, &load)))
    }

    /// Explains why a rank does not fit into the GPU's memory, if so.
    pub fn out_of_memory(&self) -> Option<String> {
        let (need, capacity) = (self.memory(), self.target.profile.memory_bytes);
        (!need.fits(capacity)).then(|| {
            format!(
                "out of memory: a rank needs {}; the GPU has {:.1} GB",
                need.arithmetic(),
                capacity as f64 / 1e9
            )
        })
    }

    /// Simulates prefill and every decode step. Returns one sample, since only skew varies and that follows from the
    /// seed. With `record` the trace has every rank.
    ///
    /// # Errors
    ///
    /// Returns an input error for zero batch or tokens, and for a run of more than 292 simulated years, which
    /// overflows the clock.
    pub fn run(&self, record: bool) -> RunResult {
        let spec = self.spec;
        let counts = [spec.batch, spec.prompt_tokens, spec.output_tokens];
        if let Some(at) = counts.iter().position(|count| *count == 0) {
            let name = ["batch", "prompt_tokens", "output_tokens"][at];
            return Err(Error::input(format!("{name} is 0; it must be at least 1")));
        }
        let middle = self.decode_steps().saturating_sub(1) / 2;
        let sources = [("prefill", Phase::Prefill, 0), ("decode", Phase::Decode, middle)]
            .map(|(name, phase, step)| (name, by_source(&self.stage_durations(phase, step))));
        if let Some(served) = self.serve(1.0) {
            return Ok((self.served(&served, &sources), None));
        }
        let is_alike = !self.has_ranks_that_differ();
        let simulated = match is_alike {
            true => spec.pp.max(1),
            false => self.ranks(),
        };
        let mut recorder = Recorder::new(self, simulated as usize, record);
        let plans = &self.plans.prefill;
        let (tokens, overlap) = match is_alike {
            true if spec.pp > 1 => self.run_steps(PipelineStages::new(plans), &mut recorder),
            true => self.run_steps(IdenticalRanks::new(&plans[0]), &mut recorder),
            false => {
                let shares = self.expert_shares(Phase::Prefill);
                self.run_steps(SkewedRanks::of_cell(self, Phase::Prefill, 0, shares), &mut recorder)
            }
        };
        let outcome = self.outcome(self.sample(&tokens, overlap)?, &sources);
        let trace = record.then(|| self.trace(&outcome, recorder.spans));
        Ok((outcome, trace))
    }

    /// Outcome of a closed loop: mean latencies of a request, and the overlap of decode steps at the mean context.
    fn served(&self, served: &ServingLatency, sources: &Sources) -> Outcome {
        let steps = f64::from(self.decode_steps());
        let overlap = self.predict_middle_step().map(|step| step.overlap.times(steps));
        // a request's mean TPOT, as benchmarks report it: prefills are part of it
        let sample = Sample {
            prefill_ms: served.ttft_ms,
            decode_ms: served.tpot_ms * steps,
            steps_ms: Vec::new(),
            overlap,
        };
        let mut outcome = self.outcome(sample, sources);
        outcome.environment.insert("requests_decoding".to_owned(), served.running.into());
        if served.is_queued {
            let (running, all) = (served.running, self.spec.concurrency);
            let note = format!("{QUEUED}{running} of {all} requests decode at once");
            outcome.environment.insert(QUEUED_NOTE.to_owned(), note.into());
        }
        outcome
    }

    fn outcome(&self, sample: Sample, sources: &Sources) -> Outcome {
        let messages = [Phase::Prefill, Phase::Decode].map(|phase| self.message(phase));
        Outcome {
            samples: vec![sample],
            memory_bytes_per_rank: self.memory().total(),
            plan_hashes: self.plans.hashes().to_vec(),
            environment: environment(self.spec, &self.target, (self.shape.layers, messages), sources),
            instrumented: None,
        }
    }

    /// Predicts prefill and decode latency, in a few hundred microseconds if ranks are alike. Decode steps grow slowly
    /// with the context, so the first, middle and last step are simulated and summed with Simpson's rule (exact with a
    /// static KV cache, otherwise within a thousandth). A pipeline's step is the interval between steps once it is
    /// full. Ranks that differ are all simulated, as in [`Self::run`].
    pub fn predict(&self) -> LatencyPrediction {
        let steps = self.decode_steps();
        if let Some(served) = self.serve(1.0) {
            let decode_ms = served.tpot_ms * f64::from(steps);
            return LatencyPrediction { prefill_ms: served.ttft_ms, decode_ms };
        }
        let shares = self.expert_shares(Phase::Decode);
        let at = |step| self.one_step(Phase::Decode, step, &shares, |_| {}).0;
        let mean = match steps {
            0 => 0.0,
            1 => at(0),
            _ if self.target.stack.static_kv => at(0),
            _ => (at(0) + 4.0 * at((steps - 1) / 2) + at(steps - 1)) / 6.0,
        };
        let shares = self.expert_shares(Phase::Prefill);
        let prefill_ms = self.one_step(Phase::Prefill, 0, &shares, |_| {}).0;
        LatencyPrediction { prefill_ms, decode_ms: mean * f64::from(steps) }
    }

    /// Predicts the middle decode step: spans of the first rank, of the first stage in a pipeline, and the overlap of
    /// all ranks; `None` if only one token is generated.
    pub fn predict_middle_step(&self) -> Option<PredictedStep> {
        let steps = self.spec.output_tokens.checked_sub(2)? + 1;
        let mut spans = Vec::with_capacity(self.plans.decode[0].operations.len());
        let shares = self.expert_shares(Phase::Decode);
        let (ms, overlap) = self.one_step(Phase::Decode, (steps - 1) / 2, &shares, |event| {
            let SimulatedOperation { operation, lane, start, end, .. } = event;
            spans.push(PredictedSpan { operation, lane, start_ns: start, end_ns: end });
        });
        Some(PredictedStep { spans, length_ns: (ms * 1e6).round() as i64, overlap: overlap? })
    }

    /// True if decode steps communicate only by dispatches and combines whose latencies were measured: then neither
    /// the link nor P2P changes them.
    pub fn has_measured_exchanges(&self) -> bool {
        let (model, step) = (self.cost_model(Phase::Decode), self.step(Phase::Decode, 0));
        self.plans.decode.iter().all(|plan| model.has_measured_exchanges(plan, &step))
    }

    /// True if ranks do different work or differ in speed, so that each is simulated.
    fn has_ranks_that_differ(&self) -> bool {
        let is_uneven =
            ExpertRouting::new(self.spec, &self.shape).is_some_and(|routed| routed.is_uneven());
        let is_skewed = is_uneven && self.spec.pp == 1 || !self.target.profile.skew.is_none();
        self.ranks() > 1 && is_skewed
    }

    /// Size of a phase's first all-reduce (bytes), 0 without any.
    fn message(&self, phase: Phase) -> (&'static str, f64) {
        let plan = &self.plans.stages(phase)[0];
        let first = plan.operations.iter().find(|operation| operation.kind.is_collective());
        let step = self.step(phase, 0).of_group(plan.groups, 0);
        (phase.as_str(), first.map_or(0.0, |first| first.cost.message_bytes.at(&step) as f64))
    }

    /// Ranks that exchange messages: of one pipeline stage.
    pub(super) fn ranks(&self) -> u32 {
        self.spec.tp.max(self.spec.dp)
    }

    pub(super) fn decode_steps(&self) -> u32 {
        self.spec.output_tokens.saturating_sub(1)
    }

    pub(super) fn step(&self, phase: Phase, step: u32) -> Step {
        let batch = u64::from(self.spec.sequences_of_rank());
        let prompt = u64::from(self.spec.prompt_tokens);
        match phase {
            Phase::Prefill => Step::prefill(batch, prompt),
            Phase::Decode => Step::decode(batch, prompt, u64::from(step)),
        }
    }

    pub(super) fn durations(&self, phase: Phase, step: u32) -> Durations<'_> {
        Durations::new(self.cost_model(phase), &self.plans.stages(phase)[0], &self.step(phase, step))
    }

    pub(super) fn cost_model(&self, phase: Phase) -> CostModel<'_> {
        let collective = collective(self.spec, &self.target).0;
        CostModel::new(&self.target, collective, self.spec, &self.shape, phase)
    }

    /// Draws of the experts' shares in a phase, the same in all its steps; empty if ranks are alike.
    pub(super) fn expert_shares(&self, phase: Phase) -> ExpertShares {
        match self.has_ranks_that_differ() {
            true => self.durations(phase, 0).expert_shares(&self.step(phase, 0)),
            false => Vec::new(),
        }
    }

    /// Simulates one step alone; returns its latency (ms) and overlap.
    fn one_step(
        &self,
        phase: Phase,
        step: u32,
        shares: &ExpertShares,
        mut visit: impl FnMut(SimulatedOperation),
    ) -> (f64, Option<table::Overlap>) {
        if self.has_ranks_that_differ() {
            return self.one_step_of_ranks(phase, step, shares, visit);
        }
        if self.spec.pp > 1 {
            return self.one_stage_step(phase, step, visit);
        }
        let mut ranks = IdenticalRanks::new(&self.plans.stages(phase)[0]);
        let tokens = ranks.step(&[self.durations(phase, step)], |_, event| visit(event));
        (milliseconds(tokens), ranks.overlap())
    }

    /// One step of ranks that differ, with the draws of the run's step; `visit` gets the first rank's events. Without
    /// collectives ranks never wait, so the rank with the longest mean step sets the decode latency.
    fn one_step_of_ranks(
        &self,
        phase: Phase,
        step: u32,
        shares: &ExpertShares,
        mut visit: impl FnMut(SimulatedOperation),
    ) -> (f64, Option<table::Overlap>) {
        let durations = [self.durations(phase, step)];
        let mut ranks = SkewedRanks::of_cell(self, phase, step, shares.clone());
        let tokens = ranks.step(&durations, |rank, event| {
            if rank == 0 {
                visit(event);
            }
        });
        let mut operations = self.plans.stages(phase)[0].operations.iter();
        let is_free = !operations.any(|operation| operation.kind.is_collective());
        let ns = match is_free && phase == Phase::Decode {
            true => ranks.pace_without_waiting(&durations[0]),
            false => tokens,
        };
        (milliseconds(ns), ranks.overlap())
    }

    fn sample(&self, tokens: &[i64], overlap: Option<table::Overlap>) -> Result<Sample> {
        let (&prefill_end, &end) = (tokens.first().unwrap_or(&0), tokens.last().unwrap_or(&0));
        // times saturate at the end of the clock
        if end == i64::MAX {
            return Err(Error::input(format!(
                "{}: the simulated run is longer than 292 years (clock overflow)",
                self.spec.label()
            )));
        }
        Ok(Sample {
            prefill_ms: milliseconds(prefill_end),
            decode_ms: milliseconds(end - prefill_end),
            steps_ms: tokens.windows(2).map(|pair| milliseconds(pair[1] - pair[0])).collect(),
            overlap,
        })
    }

    fn trace(&self, outcome: &Outcome, spans: Vec<Span>) -> Trace {
        Trace {
            meta: TraceMeta {
                spec: Some(self.spec.clone()),
                plan_hashes: outcome.plan_hashes.clone(),
                environment: outcome.environment.clone(),
                clock: "simulated: nanoseconds since the run began, one clock for all ranks".into(),
                recorder: "sim".into(),
                groups: stage_groups(self.ranks(), self.spec.pp),
                ..TraceMeta::new(Provenance::Simulated, self.spec.ranks())
            },
            operations: operations(&self.plans.prefill, &self.plans.decode),
            spans,
            ranges: Vec::new(),
        }
    }
}

pub(super) fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Simulated time (us) of all stages by cost source.
fn by_source(stages: &[Durations<'_>]) -> TimeBySource {
    stages.iter().map(Durations::by_source).fold(TimeBySource::default(), |mut sum, stage| {
        sum.iter_mut().zip(stage).for_each(|(sum, us)| *sum += us);
        sum
    })
}

/// Collects the events of one step and converts them to spans in trace order at its end, if recording is on.
pub(super) struct Recorder {
    pub(super) is_on: bool,
    /// Offsets of the prefill and the decode plan in the trace's table of operations, by simulated unit.
    bases: Vec<[u32; 2]>,
    /// Events by simulated unit (a stage, a rank, or one for all identical ranks) and lane.
    events: Vec<[Vec<SimulatedOperation>; 2]>,
    ranks: usize,
    spans: Vec<Span>,
}

impl Recorder {
    /// `simulated` is the number of simulated units: stages, ranks that differ, or one.
    fn new(cell: &SimulatedCell<'_>, simulated: usize, is_on: bool) -> Self {
        let CellPlans { prefill, decode, .. } = &*cell.plans;
        let count = |plan: &Plan| plan.operations.len();
        let (mut stage_bases, mut base, mut events) = (Vec::new(), 0, 0);
        for (prefill, decode) in prefill.iter().zip(decode) {
            stage_bases.push([base as u32, (base + count(prefill)) as u32]);
            base += count(prefill) + count(decode);
            events += count(prefill) + cell.decode_steps() as usize * count(decode);
        }
        let ranks = cell.spec.ranks() as usize;
        let spans = events / stage_bases.len().max(1) * ranks;
        Self {
            is_on,
            bases: (0..simulated).map(|unit| stage_bases[unit.min(stage_bases.len() - 1)]).collect(),
            events: vec![[Vec::new(), Vec::new()]; simulated],
            ranks,
            spans: Vec::with_capacity(if is_on { spans } else { 0 }),
        }
    }

    pub(super) fn add(&mut self, unit: usize, event: &SimulatedOperation) {
        if self.is_on {
            self.events[unit][event.lane as usize].push(*event);
        }
    }

    pub(super) fn end_step(&mut self, phase: Phase, step: u32) {
        if !self.is_on {
            return;
        }
        let each = (self.ranks / self.events.len()).max(1);
        for rank in 0..self.ranks {
            let unit = rank / each;
            let base = self.bases[unit][usize::from(phase == Phase::Decode)];
            self.spans.extend(self.events[unit].iter().flatten().map(|event| Span {
                sample: 0,
                phase,
                step,
                rank: rank as u32,
                lane: event.lane,
                stream: 0,
                operation: base + event.operation as u32,
                ready_ns: event.ready,
                start_ns: event.start,
                end_ns: event.end,
                last_arrival_ns: if event.lane == Lane::Comm { event.arrival } else { -1 },
                ..Span::EMPTY
            }));
        }
        for lane in self.events.iter_mut().flatten() {
            lane.clear();
        }
    }
}
