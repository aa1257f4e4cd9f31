//! Simulation of one run: prefill, every decode step, and the record's environment.

use serde_json::json;

use super::cost::{Durations, Machine};
use super::lanes::{Clock, Lanes};
use super::overlap::{Overlap, average};
use super::plans::{Plans, lowering};
use super::recorder::Recorder;
use super::skew::Skewed;
use crate::{Outcome, RunResult};
use base::error::{Error, Result};
use machine::hardware::{CollectiveCost, CostSource, LinkBasis, MemoryNeed, Target};
use plan::{Architecture, ModelShape, Phase, Precision, Step};
use table::{Collective, Environment, Link, P2p, Provenance, Sample, Spec};
use trace::{FORMAT_VERSION, Trace, TraceMeta, operations};

/// Simulates `spec` on a given model shape and target; ignores `spec.model`, `spec.hardware`, `spec.stack` and
/// `spec.set`. Returns one sample, since only skew varies and that follows from the seed. With `record` the trace has
/// every rank. Fails like [`simulate_plans`], or if TP does not divide the model.
pub fn simulate(spec: &Spec, shape: &ModelShape, target: &Target, record: bool) -> RunResult {
    if let Some(problem) = link_problem(spec, target) {
        return Err(Error::input(problem));
    }
    simulate_plans(&Plans::new(spec, shape, target)?, spec, shape, target, record)
}

/// Simulates prebuilt plans; used by every what-if and sweep.
///
/// # Errors
///
/// Returns an input error for zero batch or tokens, and for a run of more than 292 simulated years, which overflows
/// the clock.
pub fn simulate_plans(
    plans: &Plans,
    spec: &Spec,
    shape: &ModelShape,
    target: &Target,
    record: bool,
) -> RunResult {
    for (name, value) in [
        ("batch", spec.batch),
        ("prompt_tokens", spec.prompt_tokens),
        ("output_tokens", spec.output_tokens),
    ] {
        if value == 0 {
            return Err(Error::input(format!("{name} is 0; it must be at least 1")));
        }
    }
    let replay = Replay { plans, spec, shape, target };
    let (sample, sources, recorder) = replay.run(record)?;
    let precision = Precision::gpu(spec.dtype);
    let need = MemoryNeed::of_plans(spec, shape, precision, plans.memory(shape, spec.dtype));
    let outcome = Outcome {
        samples: vec![sample],
        memory_bytes_per_rank: need.total(),
        plan_hashes: plans.hashes().to_vec(),
        environment: environment(spec, target, &sources),
        instrumented: None,
    };
    let trace = record.then(|| Trace {
        meta: TraceMeta {
            version: FORMAT_VERSION,
            provenance: Provenance::Simulated,
            run: None,
            spec: Some(spec.clone()),
            ranks: spec.tp,
            plan_hashes: outcome.plan_hashes.clone(),
            environment: outcome.environment.clone(),
            clock: "simulated: nanoseconds since the run began, one clock for all ranks".into(),
            recorder: "sim".into(),
            streams: Vec::new(),
            range_names: Vec::new(),
            groups: Vec::new(),
            products: Default::default(),
            import: None,
        },
        operations: operations(&plans.prefill, &plans.decode),
        spans: recorder.spans,
        ranges: Vec::new(),
    });
    Ok((outcome, trace))
}

/// Simulated time of prefill and of the middle decode step, grouped by cost source.
type Sources = [(&'static str, [f64; 4]); 2];

struct Replay<'a> {
    plans: &'a Plans,
    spec: &'a Spec,
    shape: &'a ModelShape,
    target: &'a Target,
}

impl<'a> Replay<'a> {
    fn run(&self, record: bool) -> Result<(Sample, Sources, Recorder)> {
        let (batch, prompt) = (u64::from(self.spec.batch), u64::from(self.spec.prompt_tokens));
        let steps = self.spec.output_tokens.saturating_sub(1);
        let prefill = self.durations(Phase::Prefill, &Step::prefill(batch, prompt));
        let decode = self.durations(Phase::Decode, &Step::decode(batch, prompt, 0));
        let middle = self.durations(
            Phase::Decode,
            &Step::decode(batch, prompt, u64::from(steps.saturating_sub(1) / 2)),
        );
        let sources = [("prefill", prefill.by_source()), ("decode", middle.by_source())];
        let alike = self.target.profile.skew.is_none() || self.spec.tp == 1;
        let ranks = if alike { 1 } else { self.spec.tp as usize };
        let mut recorder = Recorder::new(self.spec, self.plans, ranks, record);
        let (times, overlap) = if alike {
            self.alike(&prefill, decode, &mut recorder)
        } else {
            self.skewed(&prefill, decode, &mut recorder)
        };
        let (&prefill_end, &end) = (times.first().unwrap_or(&0), times.last().unwrap_or(&0));
        // times saturate at the end of the clock
        if end == i64::MAX {
            return Err(Error::input(format!(
                "{}: the simulated run takes more than 292 years, which is where the clock ends",
                self.spec.label()
            )));
        }
        let sample = Sample {
            prefill_ms: milliseconds(prefill_end),
            decode_ms: milliseconds(end - prefill_end),
            steps_ms: times.windows(2).map(|pair| milliseconds(pair[1] - pair[0])).collect(),
            overlap,
        };
        Ok((sample, sources, recorder))
    }

    fn durations(&self, phase: Phase, step: &Step) -> Durations<'a> {
        let plan = if phase == Phase::Prefill { &self.plans.prefill } else { &self.plans.decode };
        let collective = collective(self.spec, self.target).0;
        let machine = Machine::new(self.target, collective, self.spec, self.shape, phase);
        Durations::new(machine, plan, step)
    }

    fn step(&self, step: u32) -> Step {
        Step::decode(u64::from(self.spec.batch), u64::from(self.spec.prompt_tokens), u64::from(step))
    }

    /// Simulates one rank for all identical ranks. Returns the times of the tokens of prefill and of each step (ns).
    /// Allocates nothing between steps.
    fn alike(
        &self,
        prefill: &Durations<'_>,
        mut durations: Durations<'_>,
        recorder: &mut Recorder,
    ) -> (Vec<i64>, Option<table::Overlap>) {
        let steps = self.spec.output_tokens.saturating_sub(1);
        let mut clock = Clock::default();
        Lanes::new(&self.plans.prefill).step(prefill, &mut clock, |event| recorder.add(0, &event));
        recorder.end_step(Phase::Prefill, 0);
        let mut times = Vec::with_capacity(steps as usize + 1);
        times.push(clock.tokens);
        let mut overlap = Overlap::default();
        let mut lanes = Lanes::new(&self.plans.decode);
        let mut step = 0;
        while step < steps {
            let grew = durations.grow(&self.step(step));
            let (before, begin) = (overlap.sums(), clock);
            let both = lanes.step(&durations, &mut clock, |event| {
                overlap.count(&event);
                recorder.add(0, &event);
            });
            overlap.meet(both);
            recorder.end_step(Phase::Decode, step);
            times.push(clock.tokens);
            step += 1;
            // if the lanes are in the same relative state and nothing grows any more, all remaining steps are
            // identical
            let length = clock.tokens.saturating_sub(begin.tokens);
            let alike = clock.earlier(length) == begin;
            if !recorder.is_on && alike && !grew && step > 1 && !durations.is_growing() {
                let left = i64::from(steps - step);
                overlap.repeat(&before, left, left.saturating_mul(length));
                times.extend((1..=left).map(|n| clock.tokens.saturating_add(n.saturating_mul(length))));
                break;
            }
        }
        (times, overlap.finish())
    }

    /// Simulates ranks of different speed, each on its own lanes. Returns the time of each token (ns) and the
    /// overlap.
    fn skewed(
        &self,
        prefill: &Durations<'_>,
        mut durations: Durations<'_>,
        recorder: &mut Recorder,
    ) -> (Vec<i64>, Option<table::Overlap>) {
        let steps = self.spec.output_tokens.saturating_sub(1);
        let (skew, seed) = (self.target.profile.skew, self.spec.seed);
        let clocks = vec![Clock::default(); self.spec.tp as usize];
        let mut ranks = Skewed::new(&self.plans.prefill, skew, seed, 0, &clocks);
        ranks.step(prefill, |rank, event| recorder.add(rank, &event));
        recorder.end_step(Phase::Prefill, 0);
        let mut times = vec![ranks.tokens()];
        let mut overlaps: Vec<Overlap> = clocks.iter().map(|_| Overlap::default()).collect();
        let mut ranks = Skewed::new(&self.plans.decode, skew, seed, 1, &ranks.clocks());
        for step in 0..steps {
            durations.grow(&self.step(step));
            ranks.step(&durations, |rank, event| {
                overlaps[rank].add(&event);
                recorder.add(rank, &event);
            });
            for overlap in &mut overlaps {
                overlap.settle();
            }
            recorder.end_step(Phase::Decode, step);
            times.push(ranks.tokens());
        }
        (times, average(overlaps))
    }
}

fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Collective cost, and the all-reduce that is used (`None` on an emulated link).
pub(super) fn collective<'a>(
    spec: &Spec,
    target: &'a Target,
) -> (CollectiveCost<'a>, Option<Collective>) {
    let of = |p2p| {
        let scale = target.stack.collective;
        let (cost, used) = target.profile.collective(spec.collective, p2p, spec.tp, scale);
        (cost, Some(used))
    };
    match (spec.link, p2p_of(spec)) {
        (Link::Emulated { alpha_us, gb_s }, _) => (CollectiveCost::Formula { alpha_us, gb_s }, None),
        (_, p2p) => of(p2p),
    }
}

fn p2p_of(spec: &Spec) -> P2p {
    match spec.link {
        Link::P2pOn => P2p::On,
        Link::P2pOff => P2p::Off,
        Link::Native | Link::Emulated { .. } => spec.p2p,
    }
}

pub fn link_problem(spec: &Spec, target: &Target) -> Option<String> {
    if matches!(spec.link, Link::Emulated { .. }) {
        return None;
    }
    let profile = &target.profile;
    let problem = profile.link_problem(spec.collective, p2p_of(spec), spec.tp)?;
    Some(format!("{}: {problem}", profile.name))
}

#[derive(Clone, Debug, PartialEq)]
pub struct LinkTimes {
    /// Latency as nccl-tests measures it, back to back (us).
    pub alone_us: f64,
    /// Latency used in the simulation, with the stack's scale factors (us).
    pub charged_us: f64,
    /// Profile rows used; `None` on an emulated link.
    pub basis: Option<LinkBasis>,
    /// Source of the latencies, unless this collective, TP and message size were measured.
    pub note: Option<String>,
}

pub fn link_times(spec: &Spec, target: &Target, bytes: f64) -> LinkTimes {
    let (cost, used) = collective(spec, target);
    let basis = cost.basis();
    let is_measured = basis.is_none_or(|basis| basis.note().is_none()) && cost.covers(bytes);
    let notes =
        [used.and_then(|used| another(spec, target, used)), cost.note().filter(|_| !is_measured)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    LinkTimes {
        alone_us: cost.alone_us(bytes),
        charged_us: cost.us(bytes).0,
        basis,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

/// Latency of one all-reduce of `bytes` bytes in a simulated cell, alone on its lane (us).
pub fn all_reduce_us(spec: &Spec, target: &Target, bytes: f64) -> f64 {
    collective(spec, target).0.us(bytes).0
}

/// Environment key that explains why a cell uses another collective than requested; shown as a warning.
pub const COLLECTIVE_NOTE: &str = "collective_note";

/// Environment key for a link that was not measured at the cell's TP.
const LINK_BASIS: &str = "link_basis";

pub const LINK_WARNING: &str = "link: ";

pub fn link_warning(environment: &Environment) -> Option<String> {
    let basis = environment.get(LINK_BASIS)?.as_str()?;
    basis.contains("extrapolated").then(|| format!("{LINK_WARNING}{basis}"))
}

/// The simulator's entries in the record's environment: everything that determines the results.
fn environment(spec: &Spec, target: &Target, sources: &Sources) -> Environment {
    let Target { profile, stack } = target;
    let mut environment = Environment::from([
        ("simulator".to_owned(), json!("discrete events; latency tables, rooflines, contention")),
        ("hardware_profile".to_owned(), json!(profile.name)),
        ("stack".to_owned(), json!(stack.name)),
        ("stack_note".to_owned(), json!(stack.note)),
        ("cost_sources".to_owned(), shares(sources)),
    ]);
    if !profile.skew.is_none() {
        environment.insert("skew".to_owned(), json!(profile.skew));
    }
    if spec.tp > 1 {
        let (cost, used) = collective(spec, target);
        let (small, large) = (cost.us(16384.0).0, cost.us(16_777_216.0).0);
        environment.insert(
            "link".to_owned(),
            match spec.link {
                Link::Emulated { alpha_us, gb_s } => json!({ "alpha_us": alpha_us, "gb_s": gb_s }),
                _ => json!({ "us_16KiB": small, "us_16MiB": large }),
            },
        );
        let collective = match used {
            None if spec.collective == Collective::Fused => "fused, emulated".to_owned(),
            None => "emulated".to_owned(),
            Some(used) if used == spec.collective => used.to_string(),
            Some(used) => {
                environment.insert(COLLECTIVE_NOTE.to_owned(), json!(another(spec, target, used)));
                format!("{used} ({} {})", spec.collective, instead(spec, target))
            }
        };
        environment.insert("collective".to_owned(), json!(collective));
        if let Some(ctas) = cost.ctas() {
            environment.insert("collective_ctas".to_owned(), json!(ctas));
        }
        if let Some(basis) = cost.basis().and_then(|basis| basis.note()) {
            environment.insert(LINK_BASIS.to_owned(), json!(basis));
        }
        if let Some(note) = cost.note() {
            environment.insert("link_note".to_owned(), json!(note));
        }
        if spec.architecture == Architecture::UpperBound {
            environment.insert("norm".to_owned(), json!(norm_of_the_bound(spec, target)));
        }
    }
    if !spec.set.is_empty() {
        environment.insert("overrides".to_owned(), json!(spec.set));
    }
    environment
}

/// Explains why another collective than requested is used; `None` if it is the requested one.
fn another(spec: &Spec, target: &Target, used: Collective) -> Option<String> {
    (used != spec.collective).then(|| {
        format!("all-reduces are those of {used}, not {}: {}", spec.collective, instead(spec, target))
    })
}

/// Reason why the requested collective is not used.
fn instead(spec: &Spec, target: &Target) -> String {
    if p2p_of(spec) == P2p::Off {
        return "needs P2P".to_owned();
    }
    if spec.tp > target.profile.gpus_per_node {
        return format!("needs all ranks in one node, of {} GPUs here", target.profile.gpus_per_node);
    }
    format!("was measured by nobody on {}", target.profile.name)
}

/// Norm cost assumed for the upper bound, in words.
fn norm_of_the_bound(spec: &Spec, target: &Target) -> &'static str {
    if lowering(spec, target).fuse_all_reduce {
        "every rank norms all rows on its compute lane, which fused all-reduces spare it: hidden shares above 1 are real"
    } else {
        "every rank norms all rows, as the other architectures do"
    }
}

/// Share of the simulated time by cost source (0 to 1, three digits), for each phase.
fn shares(sources: &Sources) -> serde_json::Value {
    let of = |us: &[f64; 4]| -> serde_json::Value {
        let all: f64 = us.iter().sum();
        let share = |us: &f64| if all > 0.0 { (us / all * 1e3).round() / 1e3 } else { 0.0 };
        CostSource::ALL.iter().zip(us).map(|(source, us)| (source.as_str(), json!(share(us)))).collect()
    };
    sources.iter().map(|(phase, us)| ((*phase).to_owned(), of(us))).collect()
}
