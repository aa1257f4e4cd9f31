//! Timed generations on the cpu backend: warm-up, samples, spans, overlap.
//!
//! A sample starts when all ranks have reached the gate and ends when the last rank has its last token. Step times
//! are differences between the times at which the last rank finished each step. The main thread does its bookkeeping
//! between samples, while the ranks wait, so it disturbs none of them.

use serde_json::json;

use super::attention::{RowRun, StepRows};
use super::engine::{self, CpuSetup, Worker};
use super::placement::CorePlacement;
use super::rank::Rank;
use super::watch::{Gather, Pace, StepReport, Watch};
use crate::comm::{RankFailure, RankGroup, SpinWait, emulated_link};
use crate::generate::{CHUNK, GenerateRequest, GenerationResult, PromptLogits};
use crate::recorder::{GenerationTimes, StepPlace, combine, phase_name, prompts, range};
use crate::token_comparison::{GeneratedTokens, TokenComparison};
use crate::{Job, Outcome, PlanBackend, RunEvent, RunResult};
use base::error::{Error, Result};
use model::Model;
use plan::{Architecture, DType, QUANTIZED};
use table::{Environment, Sample, Spec};
use trace::{Span, Trace, TraceMeta};

struct RankReport {
    rank: u32,
    times: GenerationTimes,
    tokens: GeneratedTokens,
    spans: Vec<Span>,
    memory_bytes: u64,
}

enum Message {
    Done(RankReport),
    Step(StepReport),
}

/// Runs a job: warm-up, then samples. The last sample's spans become the trace. Returns an input error for a TP that
/// does not divide the model or an invalid checkpoint.
pub fn run(job: &Job, emit: &mut dyn FnMut(RunEvent)) -> RunResult {
    let spec = &job.spec;
    // no record carries the name of another all-reduce
    super::CpuBackend.lacks_collective(spec.collective).map_or(Ok(()), |why| Err(Error::input(why)))?;
    let model = Model::resolve(&spec.model)?;
    let capacity = (spec.prompt_tokens + spec.output_tokens) as usize;
    let setup = CpuSetup {
        threads: threads(spec),
        pp: spec.pp,
        shard_head: spec.shard_head,
        link: emulated_link(spec)?,
        sequences: spec.batch as usize,
        variant: spec.variant(),
        prefill_variant: spec.variant(),
        ..CpuSetup::new(&model, &spec.architecture, (spec.dtype, spec.tp, spec.seed), capacity)
    };
    let shared = engine::prepare(&setup)?;
    emit(RunEvent::Phase { name: "loading weights".into() });
    // barrier of ranks and main thread before every generation
    let gate: RankGroup =
        RankGroup::new(spec.ranks() as usize + 1, None, SpinWait::default(), shared.clock);
    let generations = spec.warmup + spec.samples;
    let prompts = prompts(spec, model.shape.vocab);
    let watch = job.watch.then(Watch::default);
    let body = |worker: &mut Worker<'_>, to_main: &crossbeam_channel::Sender<Message>| {
        let mut pace = Pace::default();
        for generation in 0..generations {
            gate.barrier()?;
            if let Some(pipe) =
                worker.rank.from_previous.as_ref().filter(|_| worker.rank.first_layer == 0)
            {
                pipe.drain();
            }
            let sample = generation.checked_sub(spec.warmup);
            let place = StepPlace {
                is_recorded: job.record && sample.is_some(),
                sample: sample.unwrap_or(0),
                step: 0,
            };
            let watched = watch.as_ref().map(|watch| GenerationWatch { watch, generation, to_main });
            let report = generate_once(worker, spec, &prompts, place, &mut pace, watched)?;
            // a closed channel means that the main thread has failed; the gate returns the error
            let _ = to_main.send(Message::Done(report));
        }
        Ok(worker.rank.kernels.instruction_set())
    };

    let mut collected = CollectedResults::new(spec, model.shape.layers);
    let loaded = shared.weights(&setup)?;
    let instruction_sets =
        engine::run_ranks(&setup, &shared, &loaded, body, &|why| gate.abort(why), |from_ranks| {
            let mut steps = Gather::new(spec.ranks(), spec.output_tokens.saturating_sub(1));
            for generation in 0..generations {
                emit(RunEvent::Phase { name: phase_name(spec, generation) });
                if gate.barrier().is_err() {
                    break; // the failed rank reports the reason
                }
                let reports = reports_of_generation(spec, &from_ranks, &mut steps, emit);
                if reports.len() < spec.ranks() as usize {
                    break;
                }
                collected.add(generation, reports, emit)?;
            }
            Ok(())
        })?;
    let CollectedResults { samples, spans, memory_bytes, compared, .. } = collected;

    let of_stage = |stage: &engine::Stage| [stage.prefill.plan.hash(), stage.decode.plan.hash()];
    let plan_hashes: Vec<String> = shared.stages.iter().flat_map(of_stage).collect();
    let mut environment = environment(spec, &model, &shared.placement, &instruction_sets, &plan_hashes);
    environment.insert("computed".into(), compared.environment());
    let outcome = Outcome {
        samples,
        memory_bytes_per_rank: memory_bytes,
        plan_hashes: plan_hashes.clone(),
        environment,
        instrumented: None,
    };
    Ok((outcome, job.record.then(|| recorded_trace(spec, &shared, plan_hashes, spans))))
}

/// Passes steps on to `emit` until each rank has reported; fewer reports mean that a rank has failed.
fn reports_of_generation(
    spec: &Spec,
    from_ranks: &crossbeam_channel::Receiver<Message>,
    steps: &mut Gather,
    emit: &mut dyn FnMut(RunEvent),
) -> Vec<RankReport> {
    let mut reports = Vec::with_capacity(spec.ranks() as usize);
    while reports.len() < spec.ranks() as usize {
        match from_ranks.recv() {
            Ok(Message::Done(report)) => reports.push(report),
            Ok(Message::Step(note)) => steps.take(note).into_iter().for_each(&mut *emit),
            Err(_) => break,
        }
    }
    steps.finish().into_iter().for_each(emit);
    reports.sort_unstable_by_key(|report| report.rank);
    reports
}

/// Results that the main thread collects over all generations.
struct CollectedResults<'a> {
    spec: &'a Spec,
    samples: Vec<Sample>,
    /// Spans of the last sample.
    spans: Vec<Span>,
    /// Peak memory over ranks.
    memory_bytes: u64,
    compared: TokenComparison,
}

impl<'a> CollectedResults<'a> {
    fn new(spec: &'a Spec, layers: u32) -> Self {
        let compared = TokenComparison::new(spec, layers);
        Self { spec, samples: Vec::new(), spans: Vec::new(), memory_bytes: 0, compared }
    }

    /// Adds a generation by the reports of all ranks, in their order. Of a warm-up only tokens and memory count.
    fn add(
        &mut self,
        generation: u32,
        reports: Vec<RankReport>,
        emit: &mut dyn FnMut(RunEvent),
    ) -> Result<()> {
        let spec = self.spec;
        // the last stage samples
        let sampling = &reports[reports.len() - spec.tp as usize..];
        let tokens: Vec<GeneratedTokens> = sampling.iter().map(|r| r.tokens.clone()).collect();
        self.compared.check(&phase_name(spec, generation), &tokens)?;
        self.memory_bytes = reports.iter().map(|r| r.memory_bytes).max().unwrap_or(0);
        let Some(index) = generation.checked_sub(spec.warmup) else { return Ok(()) };
        self.spans.clear();
        let times: Vec<GenerationTimes> = reports
            .into_iter()
            .map(|report| {
                self.spans.extend(report.spans);
                report.times
            })
            .collect();
        let sample = combine(&times, &self.spans, spec.ranks());
        emit(RunEvent::SampleDone { index, of: spec.samples, sample: sample.clone() });
        self.samples.push(sample);
        Ok(())
    }
}

fn recorded_trace(
    spec: &Spec,
    shared: &engine::StageContext,
    plan_hashes: Vec<String>,
    mut spans: Vec<Span>,
) -> Trace {
    spans.sort_unstable_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
    Trace {
        meta: TraceMeta {
            spec: Some(spec.clone()),
            plan_hashes,
            clock: "CLOCK_MONOTONIC, one for all ranks (threads of one process); ns since the run began"
                .into(),
            recorder: "cpu threads".into(),
            groups: trace::stage_groups(spec.tp, spec.pp),
            ..TraceMeta::new(spec.provenance(), spec.ranks())
        },
        operations: trace::operations(
            shared.stages.iter().map(|stage| &stage.prefill.plan),
            shared.stages.iter().map(|stage| &stage.decode.plan),
        ),
        spans,
        ranges: Vec::new(),
    }
}

pub(super) fn threads(spec: &Spec) -> u32 {
    (spec.threads / spec.ranks()).max(1)
}

#[derive(Clone, Copy)]
struct GenerationWatch<'a> {
    watch: &'a Watch,
    generation: u32,
    to_main: &'a crossbeam_channel::Sender<Message>,
}

impl GenerationWatch<'_> {
    fn prefilled(&self, rank: &Rank, pace: &mut Pace, now: i64) {
        if rank.global == 0
            && let Some(note) = pace.prefilled(self.watch, self.generation, now)
        {
            let _ = self.to_main.send(Message::Step(note));
        }
    }

    fn stepped(
        &self,
        rank: &Rank,
        pace: &mut Pace,
        done: u32,
        now: i64,
        recorded: bool,
    ) -> Result<(), RankFailure> {
        if !self.watch.wants(rank.global, self.generation, done) {
            return Ok(());
        }
        let mut note = match rank.global {
            0 => pace.stepped(self.watch, self.generation, done, now),
            // other ranks contribute only their lanes
            _ if !recorded => return Ok(()),
            _ => StepReport { generation: self.generation, done, steps: 0, took_ns: 0, spans: None },
        };
        if recorded {
            note.spans = Some(rank.step_spans());
        }
        let _ = self.to_main.send(Message::Step(note));
        Ok(())
    }
}

fn generate_once(
    worker: &mut Worker<'_>,
    spec: &Spec,
    prompts: &[u32],
    place: StepPlace,
    pace: &mut Pace,
    watched: Option<GenerationWatch<'_>>,
) -> Result<RankReport, RankFailure> {
    let (batch, prompt) = (spec.batch as usize, spec.prompt_tokens as usize);
    let rows = |position: usize, count: usize| StepRows {
        runs: (0..batch).map(|sequence| RowRun { sequence, position, count }).collect(),
    };
    let rank = &mut worker.rank;
    rank.not_finite = 0;
    let phase_range = |name| place.is_recorded.then(|| range(name));
    let started = rank.clock.now();
    if let (Some(watched), 0) = (&watched, rank.global) {
        pace.begin(watched.watch, watched.generation, started);
    }
    let prefill = phase_range("prefill");
    let first = rank.step(&mut worker.prefill, place, &rows(0, prompt), prompts)?;
    let prefill_end = rank.clock.now();
    drop(prefill);
    if let Some(watched) = &watched {
        watched.prefilled(rank, pace, prefill_end);
    }
    // only the last stage samples; the first receives the tokens, the others need none
    let input = |sampled: &[u32]| if sampled.is_empty() { vec![0; batch] } else { sampled.to_vec() };
    let (mut tokens, mut chosen) = (input(&first), first);
    let decode = phase_range("decode");
    let mut step_ends = Vec::with_capacity(spec.output_tokens as usize);
    for step in 0..spec.output_tokens.saturating_sub(1) {
        let place = StepPlace { step, ..place };
        let rows = rows(prompt + step as usize, 1);
        let sampled = rank.step(&mut worker.decode, place, &rows, &tokens)?;
        let end = rank.clock.now();
        step_ends.push(end);
        chosen.extend_from_slice(&sampled);
        tokens = input(&sampled);
        if let Some(watched) = &watched {
            watched.stepped(rank, pace, step + 1, end, place.is_recorded)?;
        }
    }
    drop(decode);
    let spans = if place.is_recorded { rank.take_spans() } else { Vec::new() };
    let memory_bytes =
        worker.weights.bytes() + rank.cache.bytes() + worker.prefill.bytes() + worker.decode.bytes();
    let tokens = GeneratedTokens::new(&chosen, rank.not_finite);
    let rank = rank.global;
    Ok(RankReport {
        rank,
        tokens,
        times: GenerationTimes { started, prefill_end, step_ends },
        spans,
        memory_bytes,
    })
}

fn environment(
    spec: &Spec,
    model: &Model,
    placement: &CorePlacement,
    instruction_sets: &[String],
    plan_hashes: &[String],
) -> Environment {
    let weights = if model.has_weights { "checkpoint" } else { "random, from the seed" };
    let divides_head = spec.shard_head || spec.architecture.wiring(1).divides_head();
    let mut environment = Environment::from([
        ("backend".into(), json!("cpu")),
        ("instruction_set".into(), json!(instruction_sets.first())),
        ("compute_threads".into(), json!(spec.ranks() * threads(spec))),
        ("collectives".into(), json!("by the rank that arrives last; no thread of their own")),
        ("head".into(), json!(if divides_head && spec.tp > 1 { "sharded" } else { "replicated" })),
        ("thread_placement".into(), json!(placement.describe())),
        ("weights".into(), json!(weights)),
        ("activations".into(), json!("f32")),
        ("kv_cache".into(), json!("f32")),
        ("plan_hashes".into(), json!(plan_hashes)),
        ("parameters".into(), json!(model.shape.parameters())),
    ]);
    if spec.dtype == DType::Fp8 {
        environment.insert("quantized".into(), json!(QUANTIZED));
    }
    environment
}

/// Generates tokens on this machine's cores; calls `on_token` with the number of tokens per sequence so far. Returns
/// an input error for f16 weights, a TP that does not divide the model, or an invalid checkpoint.
pub fn generate(request: &GenerateRequest, on_token: &mut dyn FnMut(usize)) -> Result<GenerationResult> {
    request.check()?;
    super::CpuBackend.check_format(request.dtype)?;
    let GenerateRequest { model, architecture, dtype, tp, seed, variant, .. } = request;
    let setup = CpuSetup {
        shard_head: shards_head(request),
        sampling: request.sampling(),
        sequences: request.prompts.len(),
        all_logits: true,
        variant: *variant,
        prefill_variant: variant.undivided(),
        ..CpuSetup::new(model, architecture, (*dtype, *tp, *seed), request.capacity())
    };
    let shared = engine::prepare(&setup)?;
    let body = |worker: &mut Worker<'_>, progress: &crossbeam_channel::Sender<usize>| {
        let progress = (worker.rank.index == 0).then_some(progress);
        on_rank(worker, request, progress)
    };
    let loaded = shared.weights(&setup)?;
    let mut ranks = engine::run_ranks(&setup, &shared, &loaded, body, &|_| (), |progress| {
        progress.iter().for_each(&mut *on_token);
        Ok(())
    })?;
    // if the architecture lets ranks diverge, rank 0's tokens count
    Ok(ranks.swap_remove(0))
}

/// True if the head is sharded. Ranks whose residuals may diverge each need the whole head.
fn shards_head(request: &GenerateRequest) -> bool {
    let shape = &request.model.shape;
    let agree = !request.architecture.wiring(shape.layers).may_diverge();
    agree && request.architecture != Architecture::UpperBound && shape.vocab.is_multiple_of(request.tp)
}

fn on_rank(
    worker: &mut Worker<'_>,
    request: &GenerateRequest,
    progress: Option<&crossbeam_channel::Sender<usize>>,
) -> Result<GenerationResult, RankFailure> {
    let place = StepPlace::default();
    let vocab = request.model.shape.vocab as usize;
    let count = request.prompts.len();
    let mut generated = GenerationResult::default();
    // prompts differ in length: each is processed separately, in chunks
    for (sequence, prompt) in request.prompts.iter().enumerate() {
        let mut seen = PromptLogits::default();
        let mut next = 0;
        for first in (0..prompt.len()).step_by(CHUNK) {
            let tokens = &prompt[first..(first + CHUNK).min(prompt.len())];
            let run = RowRun { sequence, position: first, count: tokens.len() };
            let sampled =
                worker.rank.step(&mut worker.prefill, place, &StepRows { runs: vec![run] }, tokens)?;
            let logits = worker.prefill.value(worker.prefill.program.plan.logits[0]);
            seen.take(prompt, first, logits, vocab);
            next = sampled[0];
        }
        generated.tokens.push(vec![next]);
        seen.finish(prompt, &mut generated);
    }
    let stopped = |tokens: &[u32]| tokens.last().is_some_and(|last| request.stop_at.contains(last));
    for made in 1..request.output_tokens as usize {
        if let Some(progress) = progress {
            let _ = progress.send(made);
        }
        let live: Vec<usize> = (0..count).filter(|s| !stopped(&generated.tokens[*s])).collect();
        if live.is_empty() {
            break;
        }
        let runs = live.iter().map(|&sequence| RowRun {
            sequence,
            position: request.prompts[sequence].len() + made - 1,
            count: 1,
        });
        let tokens: Vec<u32> = live.iter().map(|s| generated.tokens[*s][made - 1]).collect();
        let rows = StepRows { runs: runs.collect() };
        let next = worker.rank.step(&mut worker.decode, place, &rows, &tokens)?;
        for (sequence, token) in live.into_iter().zip(next) {
            generated.tokens[sequence].push(token);
        }
    }
    Ok(generated)
}
