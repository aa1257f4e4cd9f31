//! One simulated run: plans, costs, prefill and every decode step, and what is said of it.

use serde_json::json;

use super::cost::{Durations, Machine};
use super::lanes::{Clock, Event, Lanes, nanoseconds};
use super::overlap::Overlap;
use crate::backend::{Job, Outcome, RunResult};
use crate::error::{Error, Result};
use crate::hardware::{MemoryNeed, Profile, lowering};
use crate::model::{Model, ModelShape};
use crate::plan::{Lane, Phase, Plan, PlanSpec, Precision, Step};
use crate::spec::{Collective, Link, P2p, Provenance, Spec};
use crate::store::{Environment, Sample};
use crate::trace::{FORMAT_VERSION, Span, Trace, TraceMeta, operations};

/// Simulates one run: prefill and every decode step.
pub fn run(job: &Job) -> RunResult {
    let model = Model::resolve(&job.spec.model)?;
    let profile = Profile::load(&job.spec.hardware)?.with(&job.spec.set)?;
    simulate(&job.spec, &model.shape, &profile, job.record)
}

/// Simulates `spec` on a model and a profile that are already at hand (`spec.model`, `spec.hardware`
/// and `spec.set` are not looked at): the call behind every what-if. One sample, as nothing varies.
/// The trace, if `record`, has every rank, all alike.
pub fn simulate(spec: &Spec, shape: &ModelShape, profile: &Profile, record: bool) -> RunResult {
    for (name, value) in [
        ("batch", spec.batch),
        ("prompt_tokens", spec.prompt_tokens),
        ("output_tokens", spec.output_tokens),
    ] {
        if value == 0 {
            return Err(Error::input(format!("{name} is 0; it must be at least 1")));
        }
    }
    let precision = Precision::uniform(spec.dtype);
    let lowering = lowering(&spec.stack)?;
    let plan = |phase| {
        let (shape, architecture) = (shape.clone(), spec.architecture.clone());
        Plan::new(&PlanSpec { shape, architecture, tp: spec.tp, phase, precision, lowering })
            .map_err(|error| Error::input(format!("{}: {error}", spec.label())))
    };
    let (prefill, decode) = (plan(Phase::Prefill)?, plan(Phase::Decode)?);
    let link = link(spec, profile);
    let machine = Machine::new(profile, spec.dtype, link.0);

    let mut spans = record.then(|| Recorder::new(spec, &prefill, &decode));
    let sample = replay(spec, machine, &prefill, &decode, &mut spans)?;
    let outcome = Outcome {
        samples: vec![sample],
        memory_bytes_per_rank: MemoryNeed::of_plans(spec, shape, precision, &prefill, &decode).total(),
        plan_hashes: vec![prefill.hash(), decode.hash()],
        environment: environment(spec, profile, link),
    };
    let trace = spans.map(|recorder| Trace {
        meta: TraceMeta {
            version: FORMAT_VERSION,
            provenance: Provenance::Simulated,
            run: None,
            spec: Some(spec.clone()),
            ranks: spec.tp,
            plan_hashes: outcome.plan_hashes.clone(),
            environment: outcome.environment.clone(),
            clock: "simulated: picoseconds since the run began, one clock for all ranks".into(),
            recorder: "sim".into(),
            streams: Vec::new(),
            range_names: Vec::new(),
            import: None,
        },
        operations: operations(&prefill, &decode),
        spans: recorder.spans,
        ranges: Vec::new(),
    });
    Ok((outcome, trace))
}

/// Prefill and every decode step. Nothing is allocated between steps.
fn replay(
    spec: &Spec,
    machine: Machine,
    prefill: &Plan,
    decode: &Plan,
    spans: &mut Option<Recorder>,
) -> Result<Sample> {
    let (batch, prompt) = (u64::from(spec.batch), u64::from(spec.prompt_tokens));
    let steps = spec.output_tokens.saturating_sub(1);
    let mut clock = Clock::default();

    let durations = Durations::new(machine, prefill, &Step::prefill(batch, prompt));
    Lanes::new(prefill).step(&durations.ps, &mut clock, |event| {
        if let Some(recorder) = spans {
            recorder.add(&event);
        }
    });
    if let Some(recorder) = spans {
        recorder.end_step(Phase::Prefill, 0);
    }
    let prefill_end = clock.tokens;

    let mut overlap = Overlap::default();
    let mut steps_ms = Vec::with_capacity(steps as usize);
    let mut lanes = Lanes::new(decode);
    let mut durations = Durations::new(machine, decode, &Step::decode(batch, prompt, 0));
    for step in 0..steps {
        durations.grow(decode, &Step::decode(batch, prompt, u64::from(step)));
        let begin = clock.tokens;
        lanes.step(&durations.ps, &mut clock, |event| {
            overlap.add(&event);
            if let Some(recorder) = spans {
                recorder.add(&event);
            }
        });
        overlap.settle();
        if let Some(recorder) = spans {
            recorder.end_step(Phase::Decode, step);
        }
        steps_ms.push(milliseconds(clock.tokens - begin));
    }
    // times saturate at the end of the clock
    if clock.tokens == i64::MAX {
        return Err(Error::input(format!(
            "{}: the simulated run takes more than 106 days, which is where the clock ends",
            spec.label()
        )));
    }
    Ok(Sample {
        prefill_ms: milliseconds(prefill_end),
        decode_ms: milliseconds(clock.tokens - prefill_end),
        steps_ms,
        overlap: overlap.finish(),
    })
}

fn milliseconds(ps: i64) -> f64 {
    ps as f64 / 1e9
}

/// The link's (alpha_us, gb_s), and which all-reduce it is (`None`: an emulated one, of no kind).
type ChosenLink = ((f64, f64), Option<Collective>);

fn link(spec: &Spec, profile: &Profile) -> ChosenLink {
    let of = |p2p| {
        let (link, used) = profile.link_of(spec.collective, p2p, spec.tp);
        (link, Some(used))
    };
    match spec.link {
        Link::Native => of(spec.p2p),
        Link::P2pOn => of(P2p::On),
        Link::P2pOff => of(P2p::Off),
        Link::Emulated { alpha_us, gb_s } => ((alpha_us, gb_s), None),
    }
}

/// What the simulator adds to the record's environment: everything that decided the numbers.
fn environment(spec: &Spec, profile: &Profile, (link, used): ChosenLink) -> Environment {
    let mut environment = Environment::from([
        ("simulator".to_owned(), json!("discrete events; roofline compute, alpha-beta collectives")),
        ("hardware_profile".to_owned(), json!(profile.name)),
        ("stack".to_owned(), json!(spec.stack)),
    ]);
    if spec.tp > 1 {
        environment.insert("link".to_owned(), json!({ "alpha_us": link.0, "gb_s": link.1 }));
        let collective = match (spec.collective, used) {
            (_, None) => "emulated",
            (Collective::OneShot, Some(Collective::Nccl)) => {
                "nccl (one-shot needs P2P inside a node, and a profile that has it)"
            }
            (_, Some(Collective::OneShot)) => "one-shot",
            (_, Some(Collective::Nccl)) => "nccl",
        };
        environment.insert("collective".to_owned(), json!(collective));
        let off = matches!((spec.link, spec.p2p), (Link::Native, P2p::Off) | (Link::P2pOff, _));
        let table = if off { &profile.link.p2p_off } else { &profile.link.p2p_on };
        if let (Some(_), Some(note)) = (used.filter(|used| *used == Collective::Nccl), &table.note) {
            environment.insert("link_note".to_owned(), json!(note));
        }
    }
    if !spec.set.is_empty() {
        environment.insert("overrides".to_owned(), json!(spec.set));
    }
    environment
}

/// Turns one rank's events into every rank's spans, sorted as traces are.
struct Recorder {
    ranks: u32,
    /// Where the current plan's operations begin in the trace's table.
    decode_base: u32,
    compute: Vec<Event>,
    comm: Vec<Event>,
    spans: Vec<Span>,
}

impl Recorder {
    fn new(spec: &Spec, prefill: &Plan, decode: &Plan) -> Self {
        let steps = spec.output_tokens.saturating_sub(1) as usize;
        let events = prefill.operations.len() + steps * decode.operations.len();
        Self {
            ranks: spec.tp,
            decode_base: prefill.operations.len() as u32,
            compute: Vec::with_capacity(decode.operations.len()),
            comm: Vec::with_capacity(decode.operations.len()),
            spans: Vec::with_capacity(events * spec.tp as usize),
        }
    }

    fn add(&mut self, event: &Event) {
        match event.lane {
            Lane::Compute => self.compute.push(*event),
            Lane::Comm => self.comm.push(*event),
        }
    }

    fn end_step(&mut self, phase: Phase, step: u32) {
        let base = if phase == Phase::Prefill { 0 } else { self.decode_base };
        for rank in 0..self.ranks {
            self.spans.extend(self.compute.iter().chain(&self.comm).map(|event| {
                let start_ns = nanoseconds(event.start);
                Span {
                    sample: 0,
                    phase,
                    step,
                    rank,
                    lane: event.lane,
                    stream: 0,
                    operation: base + event.operation as u32,
                    ready_ns: nanoseconds(event.ready),
                    start_ns,
                    end_ns: nanoseconds(event.end),
                    // ranks are alike: nobody waits for a peer
                    last_arrival_ns: if event.lane == Lane::Comm { start_ns } else { -1 },
                }
            }));
        }
        self.compute.clear();
        self.comm.clear();
    }
}
