//! Rewires every step of a trace: latency, interval and speedup; or one step as spans beneath the original.

use rayon::prelude::*;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::choice::{RewireChoice, Setting};
use super::collective::{
    ChangedAllReduce, LatencyChange, TracedAllReduce, UnknownSize, by_name, instead, known,
};
use super::steps::{LayerCollectives, RecordedStep, RecordedSteps, StepSelection, spread};
use super::wire::{AssignedPlan, ContentionLosses, WiringOptions, middle};
use crate::validate::{Changes, TieBand, nearest_error, rewired_error};
use crate::verdict::MANY_PYTHON_CALLS;
use crate::whatif::set_link;
use base::error::{Error, Result};
use base::statistics::{interval95, median};
use base::text::counted;
use machine::hardware::{CollectiveCost, CollectiveScale, Target};
use model::Model;
use plan::{Architecture, Kind, Lane, ModelShape, Phase, Plan};
use run::sim::{ReplayedOperation, replay};
use table::render::{Shown, Table};
use table::{Backend, Collective, Link, P2p, Provenance, Spec};
use trace::overlap::StepKey;
use trace::overlap::intervals::{difference, length, union};
use trace::{ImportReport, OperationKind, Span, Trace, TraceMeta, operations};

/// Minimum steps for an interval.
const LEAST_STEPS: usize = 6;

/// Key of a rewired trace's environment: the error of the validated traces nearest to it.
pub const PREDICTION_ERROR: &str = "prediction_error";

/// Step latency over the steps of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Times")]
pub struct RewiredTimes {
    /// Median over the steps (us).
    pub step_us: f64,
    /// 2.5th to 97.5th percentile of the steps (us); null with fewer than 6 steps.
    pub step_us_95: Option<[f64; 2]>,
    /// Median speedup: measured / rewired step latency.
    pub speedup: f64,
    /// 2.5th to 97.5th percentile of the speedup over the steps; null with fewer than 6 steps.
    pub speedup_95: Option<[f64; 2]>,
    /// Exposed communication, of all collectives: median over steps, averaged over ranks (us).
    pub exposed_us: f64,
    /// Busy time of the comm lane: median over steps, averaged over ranks (us); of collectives besides those of the layers
    /// only what is exposed. 0 for measured steps.
    #[serde(skip)]
    pub comm_us: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RewireAnswer {
    pub choice: RewireChoice,
    /// Times without contention between the lanes.
    pub alone: RewiredTimes,
    /// Times with the profile's contention; `None` without a profile.
    pub contended: Option<RewiredTimes>,
}

impl RewireAnswer {
    /// Times with contention if a profile gives it, else without.
    pub fn best(&self) -> RewiredTimes {
        self.contended.unwrap_or(self.alone)
    }
}

/// Times of the chosen steps, replayed.
type StepReplays = Arc<[ReplayedTimes]>;

/// Trace prepared for rewiring.
#[derive(Clone, Debug)]
pub struct Rewiring {
    pub steps: RecordedSteps,
    /// Provenance of the trace's numbers; answers are always simulated.
    pub provenance: Provenance,
    pub target: Option<Target>,
    /// Ranks of the model: tensor-parallel, or with exchanges data- and expert-parallel.
    pub tp: Option<u32>,
    known: Option<TracedAllReduce>,
    /// Collectives that the trace's all-reduce matches: see [`by_name`].
    own: Vec<Collective>,
    p2p: P2p,
    /// Cell of the traced run; `None` for other engines' traces.
    cell: Option<Spec>,
    /// Shape of the traced model; `None` if the trace does not name a known one.
    shape: Option<ModelShape>,
    chosen: Vec<usize>,
    /// Replays of the chosen steps as traced, by the contention in them.
    as_traced: Arc<Mutex<Vec<(ContentionLosses, StepReplays)>>>,
    /// Name of the traced hardware among validated traces; `None` if unknown.
    hardware: Option<String>,
    /// True if the trace was recorded with Python stacks, which slow the host and so lengthen launch gaps.
    pub(crate) has_python_stacks: bool,
}

/// Minimum speedup that late launches take away, for a note.
const LATE: f64 = 1.05;

impl Rewiring {
    /// Finds the steps of a trace and looks up its all-reduces in the profile.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RecordedSteps::new`], and an error if the trace's provenance is no evidence or the
    /// importer doubts its GPU work.
    pub fn new(trace: &Trace, asked: &StepSelection, setting: &Setting) -> Result<Self> {
        trace.meta.provenance.require_evidence("the trace")?;
        trace.require_no_doubt("steps cannot be rebuilt from this trace")?;
        let mut steps = RecordedSteps::new(trace, asked)?;
        let spec = trace.meta.spec.as_ref();
        let world = trace.meta.environment.get("world_size").and_then(serde_json::Value::as_u64);
        let world = world.and_then(|world| u32::try_from(world).ok());
        let recorded = spec
            .map(|spec| spec.tp.max(spec.dp))
            .or(group_size(trace, &steps.all_reduce))
            .filter(|tp| *tp > 1);
        if let Some(given) = setting.tp {
            let contradicted = recorded.filter(|tp| *tp != given);
            let contradicted =
                contradicted.map(|tp| format!("contradicts the trace: {tp} ranks communicate"));
            let indivisible = world.filter(|world| !world.is_multiple_of(given));
            let indivisible =
                indivisible.map(|world| format!("does not divide the trace's world size of {world}"));
            if let Some(why) = contradicted.or(indivisible) {
                return Err(Error::input_help(
                    format!("--tp {given} {why}"),
                    format!("omit --tp; to predict {given} ranks instead, pass --on-tp {given}"),
                ));
            }
            if let Some(world) = world.filter(|world| recorded.is_none() && *world > given) {
                let replicas = world / given;
                steps.notes.push(format!(
                    "--tp {given} of a world size of {world}: assuming {replicas} replicas or pipeline stages of {given} ranks"
                ));
            }
        }
        let tp = setting
            .tp
            .or(recorded)
            .or((steps.ranks > 1).then_some(steps.ranks))
            .or(world)
            .filter(|tp| *tp > 1);
        let real = spec.filter(|spec| !matches!(spec.link, Link::Emulated { .. }));
        let own = match steps.ends {
            LayerCollectives::AllReduces => {
                real.map_or_else(|| by_name(&steps.all_reduce), |spec| vec![spec.collective])
            }
            LayerCollectives::Exchanges => Vec::new(),
        };
        let bytes =
            setting.message_bytes.or_else(|| message_bytes(trace, steps.phase, &steps.all_reduce));
        let known = setting
            .target
            .as_ref()
            .zip(tp)
            .map(|(target, tp)| known(&steps, target, tp, bytes, own.first().copied()));
        if own.contains(&Collective::Fused) && spec.is_none() {
            let note = "the all-reduce is fused with the norm: the norm's time moves with it, and times with another \
                        all-reduce (--collective) lack it";
            steps.notes.push(note.into());
        }
        let ended = steps.ended();
        let unended = steps.steps.len() - ended.len();
        if unended > 0 {
            let its = if unended == 1 { "its" } else { "their" };
            steps.notes.push(format!(
                "skipped {}: no step follows in the trace, so {its} latency is unknown",
                counted(unended, "step")
            ));
        }
        let chosen = spread(&ended);
        let p2p = spec.map_or(P2p::On, |spec| spec.p2p);
        let (provenance, target) = (trace.meta.provenance, setting.target.clone());
        let hardware = match (spec.map(|spec| spec.backend), &target) {
            (Some(Backend::Cpu), _) => Some("cpu".to_owned()),
            (_, target) => target.as_ref().map(|target| target.profile.name.clone()),
        };
        let cell = spec.cloned();
        let shape = spec.and_then(|spec| Model::resolve(&spec.model).ok()).map(|model| model.shape);
        let as_traced = Arc::default();
        let python_calls = trace.meta.import.as_ref().map_or(0, ImportReport::python_calls);
        Ok(Self {
            steps,
            provenance,
            target,
            tp,
            known,
            own,
            p2p,
            cell,
            shape,
            chosen,
            as_traced,
            hardware,
            has_python_stacks: python_calls >= MANY_PYTHON_CALLS,
        })
    }

    /// Note on late launches that limit the gain from hiding communication in the chosen steps: predicts without
    /// communication with and without the recorded launches. `None` if the step is launch-bound anyway.
    pub fn late_launches(&self) -> Option<String> {
        if !self.steps.has_launches || self.steps.is_launch_bound() {
            return None;
        }
        let speedup = |architecture, host| {
            let answer = self
                .answer(&RewireChoice { host, ..RewireChoice::from_architecture(architecture) })
                .ok()?;
            Some(answer.alone.speedup)
        };
        let kept = speedup(Architecture::UpperBound, true)?;
        let free = speedup(Architecture::UpperBound, false)? / speedup(Architecture::Standard, false)?;
        (free > LATE && free - 1.0 > 2.0 * (kept - 1.0)).then(|| {
            format!(
                "late kernel launches limit the gain: removing communication gives {kept:.2}x with the recorded launches, \
                 {free:.2}x with launches on time (--no-launches)"
            )
        })
    }

    /// Predicts from one step of the trace instead of all.
    ///
    /// # Errors
    ///
    /// Returns an error if the step does not exist.
    pub fn on_step(mut self, number: u32) -> Result<Self> {
        self.step(number)?;
        self.chosen =
            self.steps.steps.iter().position(|step| step.number == number).into_iter().collect();
        self.as_traced = Arc::default();
        Ok(self)
    }

    /// Error of the validated traces nearest to a choice, in words, for times without contention; for a simulated run, the
    /// validation of its cell with that choice (see [`nearest_error`]).
    pub fn error(&self, choice: &RewireChoice) -> String {
        self.nearest(choice, false)
    }

    /// Error of an answer's times with contention; `None` if contention does not change them or their error.
    pub fn contended_error(&self, answer: &RewireAnswer) -> Option<String> {
        answer.contended.filter(|contended| *contended != answer.alone)?;
        Some(self.nearest(&answer.choice, true)).filter(|error| *error != self.error(&answer.choice))
    }

    /// Error of an answer's times with contention if a profile gives it, else without.
    pub fn error_of(&self, answer: &RewireAnswer) -> String {
        self.contended_error(answer).unwrap_or_else(|| self.error(&answer.choice))
    }

    fn nearest(&self, choice: &RewireChoice, is_contended: bool) -> String {
        if self.provenance == Provenance::Simulated {
            return match &self.cell {
                None => "not validated: a simulated trace without its run's options".to_owned(),
                Some(_) if !choice.host => "not validated for steps without launch gaps".to_owned(),
                Some(cell) => nearest_error(&choice.on(cell)),
            };
        }
        let changes = Changes { is_contended, ..self.changes(choice) };
        rewired_error(self.hardware.as_deref(), &changes)
    }

    fn changes(&self, choice: &RewireChoice) -> Changes {
        let changes = self.changed(choice).changes();
        let uncovered = match self.steps.ends {
            LayerCollectives::Exchanges => Some("dispatch and combine"),
            LayerCollectives::AllReduces => changes.uncovered,
        };
        Changes { uncovered, ..changes }
    }

    /// Band within which predictions with this choice tie: at least the error that [`Self::error`] states, or, for a
    /// simulated run, the band of its cell with that choice.
    pub(crate) fn tie_band(&self, choice: &RewireChoice) -> TieBand {
        if self.provenance == Provenance::Simulated {
            let cell = self.cell.as_ref().filter(|_| choice.host);
            return cell.map_or(TieBand::UNKNOWN, |cell| TieBand::from_spec(&choice.on(cell)));
        }
        // predictions of other wirings were not compared with their runs
        let is_validated = matches!(
            choice.architecture,
            Architecture::Standard
                | Architecture::Ladder(_)
                | Architecture::Parallel
                | Architecture::UpperBound
        );
        let band = TieBand::of_rewired(self.hardware.as_deref(), &self.changes(choice));
        let is_wide = band.share >= TieBand::UNKNOWN.share;
        if is_validated || is_wide { band } else { TieBand::UNKNOWN }
    }

    /// Note on architectures whose plan merges products that the trace has apart: a simulated run of them is faster.
    pub fn unmerged(&self, architecture: &Architecture) -> Option<String> {
        let merges = architecture.wiring(self.steps.layers).fused_block
            && self.steps.ends == LayerCollectives::AllReduces
            && self.steps.mixture.is_none();
        merges.then(|| {
            format!(
                "{architecture} keeps the trace's separate QKV and gate/up products; a simulated run merges them into one, \
                 which is faster"
            )
        })
    }

    /// Options of the traced run; `None` for other engines' traces.
    pub(crate) fn cell(&self) -> Option<&Spec> {
        self.cell.as_ref()
    }

    /// True if a choice removes launch gaps that Python stacks lengthened, so that its speedup is an upper bound.
    pub fn is_overstated(&self, choice: &RewireChoice) -> bool {
        self.has_python_stacks && self.steps.is_launch_bound() && !choice.host
    }

    /// True if the shape of the traced model is known, so that [`Self::tp_problem`] can check it.
    pub(crate) fn knows_model(&self) -> bool {
        self.shape.is_some()
    }

    /// Explains why the traced model cannot be sharded over `tp` ranks; `None` if it can, or if its shape is unknown.
    pub(crate) fn tp_problem(&self, tp: u32) -> Option<String> {
        let (shape, cell) = (self.shape.as_ref()?, self.cell.as_ref()?);
        let ep = if cell.ep > 1 { tp } else { 1 };
        shape.tp_problem(tp).or_else(|| shape.expert_problem(tp, ep, 1))
    }

    /// P2P setting of the traced run.
    pub fn p2p(&self) -> P2p {
        self.p2p
    }

    /// Number of the step at time `at_ns` of the trace, else of the step with this key, else of the first.
    pub fn step_at(&self, key: Option<StepKey>, at_ns: i64) -> u32 {
        let steps = &self.steps.steps;
        let within = steps.iter().find(|step| step.time.0 <= at_ns && at_ns < step.time.1);
        let found = within.or_else(|| steps.iter().find(|step| Some(step.key) == key));
        found.or(steps.first()).map_or(0, |step| step.number)
    }

    /// Number of the predicted step of median latency, the middle one of equals.
    pub(crate) fn typical_step(&self) -> u32 {
        let mut ascending = self.chosen.clone();
        ascending.sort_by(|a, b| self.length(*a).total_cmp(&self.length(*b)));
        ascending.get(ascending.len() / 2).map_or(0, |at| self.steps.steps[*at].number)
    }

    /// Number of the recorded step with this key.
    pub(crate) fn number_of_key(&self, key: StepKey) -> Option<u32> {
        self.steps.steps.iter().find(|step| step.key == key).map(|step| step.number)
    }

    /// Time in which the GPU waits for the host in a launch-bound step, with the gap before the next one (ms, median over
    /// steps, averaged over ranks); `None` if the steps are not launch-bound.
    pub(crate) fn launch_wait_ms(&self) -> Option<f64> {
        let waits: Vec<f64> =
            self.chosen.iter().map(|at| self.steps.steps[*at].times.host / 1e6).collect();
        median(&waits).filter(|_| self.steps.is_launch_bound())
    }

    pub fn rewired_steps(&self) -> usize {
        self.chosen.len()
    }

    /// Message size of an all-reduce (bytes), and true if it was estimated from the latency; `None` if unknown.
    pub fn message(&self) -> Option<(f64, bool)> {
        self.known.and_then(|known| Some((known.bytes.ok()?, known.is_estimate)))
    }

    /// Reason why the message size is unknown although a profile fits the trace.
    pub fn unknown_size(&self) -> Option<UnknownSize> {
        self.known?.bytes.err()
    }

    /// Collective of the trace, if the run or the kernel name identifies it.
    pub fn collective(&self) -> Option<Collective> {
        self.own.first().copied()
    }

    /// Drops a collective that the trace already has: its times stay as measured.
    fn changed(&self, choice: &RewireChoice) -> RewireChoice {
        let collective =
            choice.collective.filter(|wanted| !self.own.contains(wanted) || choice.p2p.is_some());
        RewireChoice { collective, ..choice.clone() }
    }

    pub fn measured(&self) -> RewiredTimes {
        let of_step = |at: &usize| StepTimes {
            step_us: self.length(*at),
            speedup: 1.0,
            exposed_us: self.steps.steps[*at].times.exposed / 1e3,
            comm_us: 0.0,
        };
        times(&self.chosen.iter().map(of_step).collect::<Vec<_>>())
    }

    /// Median all-reduce time per rank and step, including the wait for the last rank (us).
    pub fn all_reduce_us(&self) -> f64 {
        self.changed_all_reduce_us(LatencyChange::NONE)
    }

    /// [`Self::all_reduce_us`] with the link, TP and collective of a choice; the waits stay as traced.
    ///
    /// # Errors
    ///
    /// Returns an error if no profile covers the collective.
    pub(crate) fn all_reduce_us_with(&self, choice: &RewireChoice) -> Result<f64> {
        Ok(self.changed_all_reduce_us(self.instead(&self.changed(choice))?))
    }

    fn changed_all_reduce_us(&self, change: LatencyChange) -> f64 {
        let of_step = |at: &usize| {
            let reduces = self.steps.steps[*at].reduces.iter();
            let ns = reduces.map(|reduced| change.latency_ns(reduced.transfer) + reduced.waited);
            ns.sum::<i64>() as f64 / 1e3
        };
        median(&self.chosen.iter().map(of_step).collect::<Vec<_>>()).unwrap_or(0.0)
    }

    fn length(&self, at: usize) -> f64 {
        let step = &self.steps.steps[at];
        (step.time.1 - step.time.0) as f64 / 1e3
    }

    /// Predicts the steps' times for a choice.
    ///
    /// # Errors
    ///
    /// Returns an error if the architecture names layers that the model lacks, the chosen TP does not divide the model, or
    /// no profile covers the collective.
    pub fn answer(&self, choice: &RewireChoice) -> Result<RewireAnswer> {
        let rewired = Ready::new(self, &self.changed(choice))?;
        let with = |losses| self.over_steps(&rewired, choice, losses);
        let alone = with(ContentionLosses::default())?;
        let contended = self.losses(choice).map(with).transpose()?;
        Ok(RewireAnswer { choice: choice.clone(), alone, contended })
    }

    /// [`RewireAnswer::best`] of a choice, without the other times.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::answer`].
    pub fn best(&self, choice: &RewireChoice) -> Result<RewiredTimes> {
        let rewired = Ready::new(self, &self.changed(choice))?;
        self.over_steps(&rewired, choice, self.losses(choice).unwrap_or_default())
    }

    /// Part of a step's time that a replay with measured times leaves out, and the step's whole time (ns).
    /// The difference consists of unexplained gaps between kernels and the host between steps.
    /// [`Self::answer`] keeps it as measured; a trace of the replay is shorter by it. Returns an error if the
    /// step does not exist.
    pub fn left_out_ns(&self, number: u32) -> Result<(i64, i64)> {
        let standard = Ready::standard(&self.steps)?;
        let step = self.step(number)?;
        let replayed = standard.replay(step, ContentionLosses::default(), true);
        let length = step.time.1 - step.time.0;
        Ok((length - replayed.times.length, length))
    }

    fn step(&self, number: u32) -> Result<&RecordedStep> {
        let step = self.steps.steps.iter().find(|step| step.number == number);
        step.ok_or_else(|| Error::input(format!("no step {number}")))
    }

    /// Replays one step with a choice, including contention if a profile gives it.
    pub(super) fn executed(
        &self,
        choice: &RewireChoice,
        number: u32,
    ) -> Result<(AssignedPlan, Vec<ReplayedOperation>, &RecordedStep)> {
        let ready = Ready::new(self, &self.changed(choice))?;
        let step = self.step(number)?;
        let losses = self.losses(choice).unwrap_or_default();
        let executed = ready.replay(step, losses, choice.host).executed;
        Ok((ready.assigned, executed, step))
    }

    /// Plan and executed operations of one step with a choice; see [`beneath`] for errors.
    pub(crate) fn replayed(
        &self,
        choice: &RewireChoice,
        number: u32,
    ) -> Result<(Plan, Vec<ReplayedOperation>)> {
        self.executed(choice, number).map(|(assigned, executed, _)| (assigned.plan, executed))
    }

    /// Replays of the chosen steps as traced.
    fn as_traced(&self, losses: ContentionLosses) -> Result<StepReplays> {
        let known = || self.as_traced.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, replays)) = known().iter().find(|(of, _)| *of == losses) {
            return Ok(Arc::clone(replays));
        }
        let standard = Ready::standard(&self.steps)?;
        let replay = |at: &usize| standard.replay(&self.steps.steps[*at], losses, true).times;
        let replays: StepReplays = self.chosen.par_iter().map(replay).collect();
        known().push((losses, Arc::clone(&replays)));
        Ok(replays)
    }

    fn over_steps(
        &self,
        rewired: &Ready,
        choice: &RewireChoice,
        losses: ContentionLosses,
    ) -> Result<RewiredTimes> {
        // overlap in the trace already includes contention, so both replays have it
        let as_traced = self.as_traced(losses)?;
        let each: Vec<StepTimes> = self
            .chosen
            .par_iter()
            .zip(&*as_traced)
            .map(|(&at, before)| {
                let step = &self.steps.steps[at];
                let Replayed { times: after, executed } = rewired.replay(step, losses, choice.host);
                // time that a replay leaves out, such as the host between steps, stays as measured
                let length = self.length(at);
                // except the gap between two graphs if launches are assumed free
                let left_out = if choice.host { 0 } else { step.between_graphs };
                let changed = length + (after.length - before.length - left_out) as f64 / 1e3;
                // the replay of the trace serializes kernels and all-reduces that overlapped in it, so `before` may be
                // too long; the rewired step still takes its kernels' time
                let kernels = (step.times.compute / 1e3).min(length);
                let least = kernels + (after.work - before.work) as f64 / 1e3;
                let step_us = changed.max(least).max(f64::MIN_POSITIVE);
                // so does communication besides the layers' collectives
                let others = step.times.exposed_others / 1e3;
                let [comm_us, exposed_us] = lanes_us(&executed, self.steps.ranks).map(|us| us + others);
                StepTimes { step_us, speedup: length / step_us, exposed_us, comm_us }
            })
            .collect();
        Ok(times(&each))
    }

    /// Contention between the lanes; `None` without a profile, and over an emulated link: its rate was fitted to NCCL, and
    /// predictions without it match the measured runs (`errors_of_rewired_traces_are_those_of_measured_runs`).
    fn losses(&self, choice: &RewireChoice) -> Option<ContentionLosses> {
        if self.provenance == Provenance::EmulatedLink {
            return None;
        }
        let (target, tp, known) = (self.target.as_ref()?, self.tp?, self.known?);
        let contention = &target.stack.contention;
        let collective = choice.collective.or(known.collective).unwrap_or_default();
        let p2p = choice.p2p.unwrap_or(self.p2p);
        let (cost, _) = target.profile.collective(collective, p2p, tp, CollectiveScale::ALONE);
        let rate = match self.steps.phase {
            Phase::Prefill => contention.arithmetic,
            Phase::Decode => contention.memory,
        };
        let bytes = known.cost_bytes();
        let intensity = contention.intensity(bytes, cost.ctas(bytes));
        Some(ContentionLosses { compute: rate * intensity, comm: contention.comm })
    }

    /// Latency (us) and bandwidth (1e9 bytes/s) of the traced run's emulated link and of the one that a choice makes of it;
    /// `None` if the link was a real one or the choice keeps it, and with another P2P setting or all-reduce, which a
    /// profile predicts.
    fn emulated(&self, choice: &RewireChoice) -> Option<[[f64; 2]; 2]> {
        let Link::Emulated { alpha_us, gb_s } = self.cell.as_ref()?.link else { return None };
        let is_changed = choice.alpha_us.or(choice.gb_s).is_some();
        let of_network = choice.network().iter().any(|(_, value)| value.is_some());
        let is_profiles = choice.p2p.is_some() || choice.collective.is_some() || of_network;
        let other = [choice.alpha_us.unwrap_or(alpha_us), choice.gb_s.unwrap_or(gb_s)];
        (is_changed && !is_profiles).then_some([[alpha_us, gb_s], other])
    }

    /// True if a choice changes the emulated link of the traced run, whose formula then gives the times.
    pub(crate) fn emulates(&self, choice: &RewireChoice) -> bool {
        self.emulated(choice).is_some()
    }

    fn instead(&self, choice: &RewireChoice) -> Result<LatencyChange> {
        if choice.keeps_reduces() {
            return Ok(LatencyChange::NONE);
        }
        if self.steps.ends == LayerCollectives::Exchanges {
            return Err(Error::input_help(
                format!(
                    "the trace has no all-reduce to change; dispatch and combine stay as {}",
                    self.provenance
                ),
                "simulate other links and ranks: `ladderscope whatif --dp N --ep N`",
            ));
        }
        if let Some(problem) = choice.tp.and_then(|tp| self.tp_problem(tp)) {
            return Err(Error::input(problem));
        }
        let (Some(target), Some(tp), Some(known)) = (&self.target, self.tp, &self.known) else {
            return Err(Error::input_help(
                "another all-reduce is predicted by a hardware profile, and none fits the trace",
                "pass --hardware and, if the trace does not record it, --tp",
            ));
        };
        if let Some([own, other]) = self.emulated(choice) {
            let [own, scaled, other] = [own, [own[0], other[1]], other]
                .map(|[alpha_us, gb_s]| CollectiveCost::Formula { alpha_us, gb_s });
            return Ok(LatencyChange::between([&own, &scaled, &other], known.cost_bytes()));
        }
        let after_tp = choice.tp.unwrap_or(tp);
        let crosses_network = after_tp > target.profile.gpus_per_node;
        if !crosses_network && choice.network().iter().any(|(_, value)| value.is_some()) {
            return Err(Error::input_help(
                format!(
                    "the network has no effect: TP {after_tp} fits in a node of {} GPUs",
                    target.profile.gpus_per_node
                ),
                "choose more ranks with --on-tp",
            ));
        }
        let mut set = BTreeMap::new();
        let mut change = |name, value, (key, of_network): (&str, Option<f64>)| {
            set_link(&mut set, &target.profile, name, value);
            set.extend(of_network.map(|value| (key.to_owned(), value.to_string())));
            target.with(&set)
        };
        let [network_alpha_us, network_gb_s] = choice.network();
        let scaled = change("gb_s", choice.gb_s, network_gb_s)?;
        let after = ChangedAllReduce {
            targets: [&scaled, &change("alpha_us", choice.alpha_us, network_alpha_us)?],
            tp: after_tp,
            collective: choice.collective.or(known.collective).unwrap_or_default(),
            p2p: choice.p2p.unwrap_or(self.p2p),
        };
        // another link scales the times of an unknown kernel as it scales NCCL's
        let as_nccl = (choice.collective.is_none() && !choice.keeps_link()).then(Collective::default);
        instead(known, (target, tp, self.p2p), known.collective.or(as_nccl), &after)
    }
}

/// A replayed step (ns).
struct Replayed {
    executed: Vec<ReplayedOperation>,
    times: ReplayedTimes,
}

#[derive(Clone, Copy, Debug)]
struct ReplayedTimes {
    length: i64,
    /// Sum of the kernels' times, of the rank with the most.
    work: i64,
}

/// Wiring with its all-reduces, ready for the replay of steps.
struct Ready {
    assigned: AssignedPlan,
    instead: LatencyChange,
}

impl Ready {
    /// The trace itself.
    fn standard(steps: &RecordedSteps) -> Result<Self> {
        let wired = WiringOptions::plain(Architecture::Standard);
        Ok(Self { assigned: AssignedPlan::new(steps, wired)?, instead: LatencyChange::NONE })
    }

    fn new(rewiring: &Rewiring, choice: &RewireChoice) -> Result<Self> {
        let wired = WiringOptions {
            architecture: choice.architecture.clone(),
            fused: choice.collective == Some(Collective::Fused),
            micro_batches: choice.micro_batches.max(1),
            share: choice.share,
            kernels: match (choice.tp, rewiring.tp) {
                (Some(new), Some(traced)) => f64::from(traced) / f64::from(new.max(1)),
                _ => 1.0,
            },
        };
        let assigned = AssignedPlan::new(&rewiring.steps, wired)?;
        Ok(Self { assigned, instead: rewiring.instead(choice)? })
    }

    fn replay(&self, step: &RecordedStep, losses: ContentionLosses, host: bool) -> Replayed {
        let transfer_of =
            |reduced: &super::RecordedCollective| self.instead.latency_ns(reduced.transfer);
        let transfers: Vec<i64> = step.reduces.iter().map(transfer_of).collect();
        let times = self.assigned.times(step, &transfers, losses, host);
        let work = times.work.iter().map(|rank| rank.iter().sum()).max().unwrap_or(0);
        let (executed, length) = replay(&self.assigned.plan, &times);
        Replayed { executed, times: ReplayedTimes { length, work } }
    }
}

/// Communication and its exposed part, averaged over ranks (us).
fn lanes_us(executed: &[ReplayedOperation], ranks: u32) -> [f64; 2] {
    let of_rank = |rank: u32| {
        let lane = |lane: Lane| {
            let of_lane = executed.iter().filter(move |one| one.rank == rank && one.lane == lane);
            union(of_lane.filter(|one| one.end > one.start).map(|one| (one.start, one.end)))
        };
        let comm = lane(Lane::Comm);
        [length(&comm), length(&difference(&comm, &lane(Lane::Compute)))]
    };
    let all: Vec<[i64; 2]> = (0..ranks).map(of_rank).collect();
    [0, 1].map(|at| all.iter().map(|one| one[at]).sum::<i64>() as f64 / 1e3 / f64::from(ranks.max(1)))
}

/// Predicted or measured times of one step.
#[derive(Clone, Copy, Debug)]
struct StepTimes {
    step_us: f64,
    /// Measured / predicted latency.
    speedup: f64,
    /// Exposed communication, averaged over ranks (us).
    exposed_us: f64,
    /// All communication, averaged over ranks (us).
    comm_us: f64,
}

/// Medians and intervals over steps.
fn times(each: &[StepTimes]) -> RewiredTimes {
    type Number = fn(&StepTimes) -> f64;
    let of = |number: Number| each.iter().map(number).collect::<Vec<f64>>();
    let median_of = |number: Number| median(&of(number)).unwrap_or(0.0);
    let interval = |number: Number| interval95(of(number)).filter(|_| each.len() >= LEAST_STEPS);
    let step_us: Number = |one| one.step_us;
    let speedup: Number = |one| one.speedup;
    RewiredTimes {
        step_us: median_of(step_us),
        step_us_95: interval(step_us),
        speedup: median_of(speedup),
        speedup_95: interval(speedup),
        exposed_us: median_of(|one| one.exposed_us),
        comm_us: median_of(|one| one.comm_us),
    }
}

/// Number of ranks in the process group of the collective with this operation name; `None` if the trace names no group.
fn group_size(trace: &Trace, all_reduce: &str) -> Option<u32> {
    let mut named = trace.operations.iter().filter(|operation| operation.name == all_reduce);
    let group = named.find_map(|operation| operation.collective.as_ref()?.group)?;
    trace.meta.groups.get(group as usize).map(|group| group.size)
}

/// Median message size (bytes) of the collective with this operation name in the phase, as recorded, or from the plan of
/// our own run.
fn message_bytes(trace: &Trace, phase: Phase, all_reduce: &str) -> Option<f64> {
    let is_own = trace.meta.spec.is_some();
    let sizes = trace.spans.iter().filter(|span| span.phase == phase).filter_map(|span| {
        let operation = trace.operations.get(span.operation as usize)?;
        if !is_own {
            let named = operation.name == all_reduce;
            return operation.collective.as_ref().filter(|_| named)?.message_bytes;
        }
        let step = trace.step(span)?;
        (operation.kind.as_str() == all_reduce).then(|| operation.cost.message_bytes.at(&step))
    });
    let bytes = middle(sizes.take(4096).filter_map(|bytes| i64::try_from(bytes).ok()));
    (bytes > 0).then_some(bytes as f64)
}

struct Row<'a> {
    name: String,
    provenance: Provenance,
    collective: String,
    alone: &'a RewiredTimes,
    contended: Option<&'a RewiredTimes>,
    error: String,
    contended_error: Option<String>,
    is_overstated: bool,
}

/// Measured steps, then every answer. For people, `<` precedes speedups that are upper bounds; files have a column instead.
pub fn answers_table(rewiring: &Rewiring, answers: &[RewireAnswer], is_for_people: bool) -> Table {
    let measured = rewiring.measured();
    let first = Row {
        name: match rewiring.provenance {
            Provenance::EmulatedLink => "as run, emulated-link".into(),
            provenance => format!("as {provenance}"),
        },
        provenance: rewiring.provenance,
        collective: String::new(),
        alone: &measured,
        contended: rewiring.target.is_some().then_some(&measured),
        error: String::new(),
        contended_error: None,
        is_overstated: false,
    };
    let rest = answers.iter().map(|answer| Row {
        name: answer.choice.label(),
        provenance: Provenance::Simulated,
        collective: answer.choice.collective.map(|c| c.to_string()).unwrap_or_default(),
        alone: &answer.alone,
        contended: answer.contended.as_ref(),
        error: rewiring.error(&answer.choice),
        contended_error: rewiring.contended_error(answer),
        is_overstated: rewiring.is_overstated(&answer.choice),
    });
    let rows: Vec<Row<'_>> = std::iter::once(first).chain(rest).collect();
    let end = |pair: Option<[f64; 2]>, at: usize| Shown::number(pair.map(|pair| pair[at]), 3);
    let speedup = |row: &Row<'_>, times: &RewiredTimes| {
        let shown = Shown::Interval(times.speedup, times.speedup_95, 2);
        if row.is_overstated && is_for_people { Shown::text(format!("< {shown}")) } else { shown }
    };
    Table::from_rows(
        &rows,
        &[
            ("architecture", &|row| Shown::text(&row.name)),
            ("provenance|", &|row| Shown::text(row.provenance)),
            ("collective|", &|row| Shown::text(&row.collective)),
            ("step_us", &|row| Shown::Time(row.alone.step_us)),
            ("speedup", &|row| speedup(row, row.alone)),
            ("exposed_us", &|row| Shown::Time(row.alone.exposed_us)),
            ("contended_step_us|contended step", &|row| {
                Shown::time(row.contended.map(|times| times.step_us))
            }),
            ("contended_speedup|contended speedup", &|row| {
                row.contended.map_or(Shown::None, |times| speedup(row, times))
            }),
            ("speedup_low|", &|row| end(row.alone.speedup_95, 0)),
            ("speedup_high|", &|row| end(row.alone.speedup_95, 1)),
            ("step_low_us|", &|row| end(row.alone.step_us_95, 0)),
            ("step_high_us|", &|row| end(row.alone.step_us_95, 1)),
            ("contended_speedup_low|", &|row| end(row.contended.and_then(|of| of.speedup_95), 0)),
            ("contended_speedup_high|", &|row| end(row.contended.and_then(|of| of.speedup_95), 1)),
            ("speedup_is_upper_bound|", &|row| Shown::text(row.is_overstated)),
            ("error|", &|row| Shown::text(&row.error)),
            ("contended_error|", &|row| row.contended_error.as_ref().map_or(Shown::None, Shown::text)),
        ],
    )
    .least(&["speedup", "step_us", "exposed_us"])
}

/// Rewires step `number` of a trace and returns it as a trace that starts at the measured step's time;
/// includes contention if a profile gives it. Each module is one span.
///
/// # Errors
///
/// Returns the errors of [`Rewiring::answer`], and an error if the step does not exist.
pub fn beneath(
    original: &Trace,
    rewiring: &Rewiring,
    choice: &RewireChoice,
    number: u32,
) -> Result<Trace> {
    let (assigned, executed, step) = rewiring.executed(choice, number)?;
    let plan = &assigned.plan;
    let mut table = operations([plan], [plan]);
    table.truncate(plan.operations.len());
    for (info, operation) in table.iter_mut().zip(&plan.operations) {
        info.phase = step.key.phase;
        info.shape = String::new();
        // the operation that carries a module's time represents the whole module
        if let (Lane::Compute, Some((module, _))) = (operation.lane, info.name.rsplit_once('/'))
            && matches!(
                operation.kind,
                Kind::Norm | Kind::AddNorm | Kind::JoinNorm { .. } | Kind::MatMul
            )
        {
            info.name = module.to_owned();
            info.kind = OperationKind::Module;
        }
    }
    let mut spans: Vec<Span> = executed
        .iter()
        // operations covered by a module's span have zero length
        .filter(|one| one.end > one.start)
        .map(|one| Span {
            sample: step.key.sample,
            phase: step.key.phase,
            step: if step.key.phase == Phase::Prefill { 0 } else { step.key.step },
            rank: one.rank,
            lane: one.lane,
            operation: one.operation as u32,
            ready_ns: step.time.0 + one.ready,
            start_ns: step.time.0 + one.start,
            end_ns: step.time.0 + one.end,
            last_arrival_ns: match plan.operations[one.operation].kind.is_collective() {
                true => step.time.0 + one.arrival,
                false => -1,
            },
            ..Span::EMPTY
        })
        .collect();
    spans.sort_by_key(|span| (span.rank, span.lane, span.start_ns));
    let mut environment = original.meta.environment.clone();
    let error = rewiring.error_of(&rewiring.answer(choice)?);
    environment.insert(PREDICTION_ERROR.to_owned(), error.into());
    Ok(Trace {
        meta: TraceMeta {
            environment,
            clock: original.meta.clock.clone(),
            recorder: format!("rewired: {}", choice.label()),
            // computed from measured times, but not a measurement
            ..TraceMeta::new(Provenance::Simulated, rewiring.steps.ranks)
        },
        operations: table,
        spans,
        ranges: Vec::new(),
    })
}
